"""The compiled kernels and the numpy code that takes their place return the same bits."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from narrowing import present

from streamdr.core import kernels
from streamdr.core.blocks import Array
from streamdr.core.method import in_memory
from streamdr.methods.ppca import PPCA, PPCAMixture
from streamdr.methods.ppca.posterior import Factors, observe, observe_with_numpy
from streamdr.methods.ppca.small_matrices import invert_with_numpy

ROOT = Path(__file__).parents[2]
BUILD = "from setuptools import setup; setup()"
NUMBERS = (1, 2, 7, 8, 9, 37)


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> ModuleType:
    """The kernels, compiled from the present source as an installation does."""
    place = tmp_path_factory.mktemp("built")
    options = ["build_ext", "--build-lib", str(place / "lib"), "--build-temp", str(place / "objects")]
    made = subprocess.run(
        [sys.executable, "-c", BUILD, *options], cwd=ROOT, capture_output=True, text=True, check=False
    )
    found = list((place / "lib").rglob("_kernels.*"))
    assert found, f"a compiler is needed: {made.stderr}"
    loader = ExtensionFileLoader("streamdr.core._kernels", str(found[0]))
    module = module_from_spec(present(spec_from_file_location(loader.name, found[0], loader=loader)))
    loader.exec_module(module)
    return module


def matrices(rng: np.random.Generator, order: int, number: int, kind: str) -> Array:
    """Packed matrices, one to a column."""
    columns = {"definite": order + 2, "semidefinite": max(1, order // 2)}.get(kind, order)
    factors = rng.normal(size=(order, columns, number)) * 10.0 ** rng.integers(-3, 4, size=number)
    full = np.einsum("imn,jmn->ijn", factors, factors)
    packed = full[np.tril_indices(order)]
    if kind == "hostile":
        packed[rng.random(packed.shape) < 0.02] = np.nan
        packed[rng.random(packed.shape) < 0.02] = np.inf
        packed[:, rng.random(number) < 0.3] *= -1.0
        packed[:, rng.random(number) < 0.3] = -0.0
    return packed


def inverted(invert, packed: Array, vectors: Array, *, with_outer: bool) -> list[Array]:
    order, number = vectors.shape
    solved, diagonal, quadratic = np.empty((order, number)), np.empty((order, number)), np.empty((1, number))
    invert(packed, vectors, solved, diagonal, quadratic, with_outer)
    return [packed, solved, diagonal, quadratic]


def assert_same_bits(these: list[Array], those: list[Array]) -> None:
    """NaN equals NaN, and 0.0 does not equal -0.0."""
    for one, other in zip(these, those, strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(np.signbit(one[one == 0.0]), np.signbit(other[other == 0.0]))


@pytest.mark.parametrize("kind", ["definite", "semidefinite", "hostile"])
def test_inverses_have_the_same_bits(built, kind):
    rng = np.random.default_rng(0)
    for order in range(1, 41):
        for number in NUMBERS if order < 20 else (1, 11):
            packed = matrices(rng, order, number, kind)
            vectors = rng.normal(size=(order, number))
            for with_outer in (False, True):
                assert_same_bits(
                    inverted(built.invert, packed.copy(), vectors, with_outer=with_outer),
                    inverted(invert_with_numpy, packed.copy(), vectors, with_outer=with_outer),
                )


@pytest.mark.parametrize(
    "laid_out",
    [
        lambda array: np.asfortranarray(array),
        lambda array: np.repeat(array, 2, axis=1)[:, ::2],
        lambda array: np.pad(array, ((0, 0), (3, 5)))[:, 3:-5],
        lambda array: array[::-1, ::-1].copy()[::-1, ::-1],
    ],
    ids=["columns first", "every other column", "inner columns", "backwards"],
)
def test_the_layout_of_matrices_does_not_matter(built, laid_out):
    rng = np.random.default_rng(1)
    packed, vectors = matrices(rng, 5, 21, "definite"), rng.normal(size=(5, 21))
    expected = inverted(built.invert, packed.copy(), vectors, with_outer=True)
    assert_same_bits(inverted(built.invert, laid_out(packed), laid_out(vectors), with_outer=True), expected)


def test_inverses_are_those_of_lapack(built):
    rng = np.random.default_rng(2)
    order, number = 9, 13
    packed, vectors = matrices(rng, order, number, "definite") * 1e-3, rng.normal(size=(order, number))
    full = np.empty((number, order, order))
    rows, columns = np.tril_indices(order)
    full[:, rows, columns] = full[:, columns, rows] = packed.T
    full += np.eye(order)
    found, solved, diagonal, quadratic = inverted(built.invert, packed, vectors, with_outer=False)
    inverses = np.linalg.inv(full)
    np.testing.assert_allclose(found, inverses[:, rows, columns].T, rtol=1e-6, atol=1e-9)
    expected = np.einsum("nij,jn->in", inverses, vectors)
    np.testing.assert_allclose(solved, expected, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(quadratic[0], np.einsum("in,in->n", expected, vectors), rtol=1e-6)
    np.testing.assert_allclose(
        -2 * np.log(diagonal).sum(axis=0), np.linalg.slogdet(full)[1], rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_centred_values_have_the_same_bits(built, dtype):
    rng = np.random.default_rng(3)
    for shape in ((1, 1), (3, 7), (40, 33), (0, 4), (5, 0)):
        values = (rng.normal(size=(shape[0], shape[1] + 2)) * 1e6).astype(dtype)[:, 1:-1]
        values[rng.random(shape) < 0.3] = np.nan
        values[rng.random(shape) < 0.1] = np.inf
        centre = rng.normal(size=(1, shape[1]))
        results = []
        for kernel in (built.observe, observe_with_numpy):
            residual, mask = np.empty(shape), np.empty(shape)
            kernel(values, centre, residual, mask)
            results.append([residual, mask])
        assert_same_bits(*results)
        expected = np.where(np.isnan(values), 0.0, values - centre)
        np.testing.assert_array_equal(results[0][0], expected)
        np.testing.assert_array_equal(results[0][1], ~np.isnan(values))


@pytest.mark.parametrize(
    "stored",
    [
        np.asfortranarray,
        lambda values: (
            np.frombuffer(b"x" + values.tobytes(), np.uint8)[1:].view(values.dtype).reshape(values.shape)
        ),
        lambda values: values.astype(">f8"),
        lambda values: values.view(values.dtype.newbyteorder("<")),
        lambda values: values.astype(np.longdouble),
        lambda values: values[::-1].copy()[::-1],
    ],
    ids=["columns first", "unaligned", "big-endian", "little-endian", "long double", "backwards"],
)
def test_values_may_be_stored_in_any_way(built, stored, monkeypatch):
    monkeypatch.setattr(kernels, "compiled", built)
    values = np.random.default_rng(5).normal(size=(9, 6))
    values[values > 1.0] = np.nan
    factors = Factors(np.arange(6.0), np.ones((6, 2)), 1.0)
    found = observe(stored(values), factors)
    np.testing.assert_array_equal(found.residual, np.where(np.isnan(values), 0.0, values - np.arange(6.0)))
    np.testing.assert_array_equal(found.mask, ~np.isnan(values))


def test_other_shapes_and_types_are_refused(built):
    good = [np.ones((3, 4)), np.ones((2, 4)), np.ones((2, 4)), np.ones((2, 4)), np.ones((1, 4))]
    built.invert(*good, False)
    for number in range(len(good)):
        for bad in (np.ones((3, 5)), good[number].astype(np.float32), np.ones(4)):
            with pytest.raises((ValueError, TypeError)):
                built.invert(*(bad if n == number else one for n, one in enumerate(good)), False)
    frozen = np.ones((3, 4))
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        built.invert(frozen, *good[1:], False)
    rows = [np.ones((3, 4)), np.ones((1, 4)), np.ones((3, 4)), np.ones((3, 4))]
    for number in range(len(rows)):
        others: tuple[Any, ...] = (np.ones((3, 8))[:, ::2], np.ones((2, 5)), np.ones((3, 4), np.int32))
        for other in others:
            with pytest.raises(ValueError, match=r"matrix|contiguous"):
                built.observe(*(other if n == number else one for n, one in enumerate(rows)))


@pytest.mark.parametrize(
    "method",
    [
        PPCA(3, method="em", max_iter=3),
        PPCA(2, method="em", max_iter=2, holdout=0.1),
        PPCA(2, method="minibatch", max_iter=1, batch_rows=50),
        PPCAMixture(2, 2, max_iter=2),
    ],
    ids=["em", "holdout", "minibatch", "mixture"],
)
def test_a_fit_and_its_outputs_have_the_same_bits_without_kernels(built, method, monkeypatch):
    rng = np.random.default_rng(4)
    values = (rng.normal(size=(300, 3)) @ rng.normal(size=(3, 11)) + rng.normal(size=(300, 11)) + 5.0).astype(
        np.float32
    )
    values[rng.random(values.shape) < 0.2] = np.nan
    results = []
    for module in (built, None):
        monkeypatch.setattr(kernels, "compiled", module)
        model: Any = in_memory(method, values)
        outputs = (model.transform, model.impute, model.impute_variance, model.score_samples)
        results.append(
            [model.components, *(output(values) for output in outputs), model.transform(values[:1])]
        )
    assert_same_bits(*results)


def test_an_object_of_another_version_is_ignored(built, monkeypatch):
    assert built.VERSION == kernels.VERSION
    monkeypatch.setattr(kernels, "VERSION", kernels.VERSION + 1)
    monkeypatch.setitem(sys.modules, "streamdr.core._kernels", built)
    monkeypatch.setattr("streamdr.core._kernels", built, raising=False)
    assert kernels.load() is None
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "streamdr.core._kernels", None)
    monkeypatch.delattr("streamdr.core._kernels", raising=False)
    assert kernels.load() is None
