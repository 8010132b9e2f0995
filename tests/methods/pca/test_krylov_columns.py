"""The Krylov solver over columns, which it takes where chunks are tall, against the SVD in float64."""

from typing import Any

import numpy as np
import pytest
import zarr
from fits import StopAfter, bits, fit, stored

import streamdr.data.transformed
from streamdr.core import blocks
from streamdr.core.execution import Execution
from streamdr.core.row_outputs import EMBEDDING
from streamdr.data import open_source
from streamdr.data.in_memory import ArraySource
from streamdr.engine import fitting
from streamdr.engine.planner import plan, plan_transform, resident, view_and_source
from streamdr.errors import DataError, Interrupted, ParameterError
from streamdr.methods.chain import chain_of
from streamdr.methods.pca import PCA
from streamdr.methods.steps import Clip, ScaleGenotypes, SelectVariance, Standardise

pytestmark = pytest.mark.usefixtures("small_blocks")

TALL = (90, 7)
OPTIONS = [
    {},
    {"scale": True},
    {"center": False},
    {"center": False, "scale": True},
    {"precision": "double"},
    {"whiten": "pca"},
]


def data(dtype="float32", n=150, d=320, rank=9, offset=0.0):
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((n, rank)) * np.linspace(30, 5, rank) @ rng.standard_normal((rank, d))
    rows += 4 * rng.standard_normal((n, d)) + offset
    limits = np.iinfo(dtype) if np.dtype(dtype).kind in "iu" else None
    return (rows if limits is None else np.clip(rows, limits.min, limits.max)).astype(dtype)


def decomposed(rows, weights=None, factors=1.0, *, scale=False, center=True, **_other):
    """Variances, components and total variance in float64."""
    rows = rows.astype(np.float64)
    weights = np.ones(len(rows)) if weights is None else weights
    freedom = weights.sum() - 1
    rows = rows - (weights @ rows / weights.sum() if center else 0.0)
    if scale:
        rows = rows / np.sqrt(weights @ rows**2 / freedom)
    heavy = rows * factors * np.sqrt(weights)[:, None]
    _, singular, axes = np.linalg.svd(heavy, full_matrices=False)
    return singular**2 / freedom, axes, (heavy**2).sum() / freedom


def check(model, expected, rounding=1e-6):
    variances, axes, total = expected
    k = model.n_components
    np.testing.assert_allclose(model.explained_variance, variances[:k], rtol=rounding)
    assert model.total_variance == pytest.approx(total, rel=rounding)
    assert (np.abs((model.components * axes[:k]).sum(axis=1)) > 1 - rounding).all()
    np.testing.assert_allclose(model.components @ model.components.T, np.eye(k), atol=1e-10)


def krylov(k=5, **parameters):
    return PCA(k, solver="krylov", **parameters)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "float32", "float64", "int64"])
def test_it_is_the_decomposition(tmp_path, dtype, options):
    rows = data(dtype)
    fitted: Any = fit(krylov(**options), stored(tmp_path / "x.zarr", rows, TALL))
    assert "over columns" in fitted.plan.reason
    check(fitted.model, decomposed(rows, **options))
    mean = rows.mean(axis=0, dtype=np.float64)
    np.testing.assert_allclose(
        fitted.model.mean, mean if options.get("center", True) else 0 * mean, atol=1e-4
    )
    np.testing.assert_allclose(fitted.model.var, rows.var(axis=0, dtype=np.float64), rtol=1e-5)


def test_rows_have_weights(tmp_path):
    rows = data()
    weights = np.random.default_rng(0).integers(0, 3, len(rows)).astype(float)
    source = open_source(
        stored(tmp_path / "x.zarr", rows, TALL), weights=stored(tmp_path / "w.zarr", weights, (20,))
    )
    check(fit(krylov(), source).model, decomposed(rows, weights))
    check(fit(krylov(), source).model, decomposed(np.repeat(rows, weights.astype(int), axis=0)))


def test_features_have_weights(tmp_path):
    rows, factors = data(), np.random.default_rng(1).uniform(0.1, 40.0, 320)
    path = stored(tmp_path / "x.zarr", rows, TALL)
    for options in ({}, {"scale": True}):
        model: Any = fit(krylov(**options), open_source(path, feature_weights=factors)).model
        check(model, decomposed(rows, factors=factors, **options))
        np.testing.assert_allclose(
            model.scale * factors, rows.std(axis=0, ddof=1) if options else 1.0, rtol=1e-5
        )


def test_a_mean_of_ten_thousand_deviations_does_not_cancel(tmp_path):
    rows = data(offset=0.0)
    far = rows + np.float32(1e4) * rows.std(axis=0)
    model: Any = fit(krylov(), stored(tmp_path / "x.zarr", far, TALL)).model
    check(model, decomposed(far), rounding=1e-5)


def test_low_ranks_constant_columns_and_repeated_rows(tmp_path):
    rng = np.random.default_rng(2)
    rows = (rng.integers(-9, 9, (150, 3)) @ rng.integers(-4, 4, (3, 320))).astype("float32")
    rows[:, 5:30] = 7.7
    rows = np.concatenate([rows, rows[:50]])
    model: Any = fit(krylov(6), stored(tmp_path / "x.zarr", rows, TALL)).model
    variances, axes, total = decomposed(rows)
    assert model.rank == 3
    np.testing.assert_allclose(model.explained_variance, variances[:6], atol=1e-6 * total)
    np.testing.assert_allclose(model.components @ model.components.T, np.eye(6), atol=1e-10)
    np.testing.assert_allclose(model.components[:3] @ axes[:3].T @ axes[:3], model.components[:3], atol=1e-6)
    with pytest.raises(ParameterError, match="column 5 is constant"):
        fit(krylov(scale=True), tmp_path / "x.zarr")


@pytest.mark.parametrize(("n", "d", "k"), [(2, 320, 1), (3, 320, 3), (12, 320, 5), (200, 5, 5), (260, 8, 3)])
def test_shapes_smaller_than_the_basis(tmp_path, n, d, k):
    rows = data(n=n, d=d)
    model: Any = fit(krylov(k), stored(tmp_path / "x.zarr", rows, (n, max(1, d // 40)))).model
    variances, _, total = decomposed(rows)
    np.testing.assert_allclose(model.explained_variance, variances[:k], atol=1e-6 * total)
    np.testing.assert_allclose(model.components @ model.components.T, np.eye(k), atol=1e-10)


@pytest.mark.parametrize("decay", [0.5, 0.8, 0.97])
def test_residuals_bound_the_errors(tmp_path, decay):
    rng = np.random.default_rng(4)
    left, right = (np.linalg.qr(rng.standard_normal((size, 140)))[0] for size in (150, 320))
    rows = (left * decay ** np.arange(140)) @ right.T
    model: Any = fit(krylov(20, max_passes=3), stored(tmp_path / "x.zarr", rows, TALL)).model
    centred = rows - rows.mean(axis=0)
    images = centred.T @ (centred @ model.components.T) / (len(rows) - 1)
    errors = np.linalg.norm(images - model.components.T * model.explained_variance, axis=0)
    assert (errors <= model.residuals + 1e-12).all()
    variances = decomposed(rows)[0]
    assert (model.explained_variance <= variances[:20] + 1e-12 * variances[0]).all()


def test_bits_do_not_depend_on_workers_or_interruptions(tmp_path):
    path = stored(tmp_path / "x.zarr", data("int8"), TALL)
    method = krylov(tol=0.0, scale=True)
    whole = bits(fit(method, path, workers=1).model)
    assert bits(fit(method, path, workers=2).model) == whole
    assert bits(fit(method, path, workers=8).model) == whole
    assert bits(fit(method, path, scheduler="processes", workers=2).model) == whole
    ledger = tmp_path / "ledger"
    stop = StopAfter(500)
    with pytest.raises(Interrupted):
        fit(method, path, progress=stop, stop=stop.stop, ledger=ledger, checkpoint_seconds=0)
    resumed = fit(method, path, ledger=ledger)
    assert bits(resumed.model) == whole
    assert resumed.bytes_read < 5 * 150 * 320
    assert fit(method, path, ledger=ledger).bytes_read == 0


def test_missing_chunks_and_values_are_named(tmp_path):
    rows = data()
    path = stored(tmp_path / "x.zarr", rows, TALL)
    rows[33, 100] = np.nan
    with pytest.raises(DataError, match="row 33, column 100"):
        fit(krylov(), stored(tmp_path / "nan.zarr", rows, TALL))
    (path / "c" / "1" / "3").unlink()
    with pytest.raises(DataError, match="chunk"):
        fit(krylov(), path)


def test_short_chunks_sparse_rows_and_a_bootstrap_are_read_by_rows(tmp_path):
    rows = data()
    by_rows = plan(krylov(), open_source(stored(tmp_path / "short.zarr", rows, (2, 320))), Execution())
    assert "over columns" not in by_rows.reason
    tall = open_source(stored(tmp_path / "tall.zarr", rows, TALL))
    assert "over columns" not in plan(krylov(n_bootstrap=20), tall, Execution()).reason
    assert "over columns" in plan(krylov(), tall, Execution()).reason
    in_memory = plan(krylov(), ArraySource(rows), Execution())
    assert "over columns" not in in_memory.reason


def test_one_worker_holds_a_few_columns_only(tmp_path, blocks_of):
    """The rows of a chunk take 8 MB, as columns of bytes 0.2 MB."""
    blocks_of(1 << 20)
    path = stored(tmp_path / "x.zarr", np.zeros((2000, 1000), np.int8), (2000, 50))
    source = open_source(path)
    chosen = plan(krylov(), source, Execution(workers=1))
    assert chosen.parts["blocks"] < 3 * 2000 * 50 + (1 << 17)
    assert blocks.LARGEST_BLOCK_BYTES < 4 * 2000 * 1000


def genotypes():
    rng = np.random.default_rng(5)
    frequencies = rng.beta(1, 1, (5, 320))
    rows = rng.binomial(2, frequencies[rng.integers(5, size=150)]).astype("int8")
    rows[:, 60:80] = 0
    rows[rng.random(rows.shape) < 0.02] = -1
    return rows


@pytest.mark.parametrize(
    "steps",
    [
        [ScaleGenotypes()],
        [ScaleGenotypes(0.2)],
        [Clip(0, 1), ScaleGenotypes()],
        [ScaleGenotypes(), Standardise(max_value=3.0)],
        [ScaleGenotypes(), SelectVariance(90)],
    ],
)
def test_chains_of_steps_that_map_columns_apart_are_read_by_columns(tmp_path, steps):
    rows = genotypes()
    fits: dict[str, Any] = {}
    for name, chunks in {"tall": TALL, "short": (2, 320)}.items():
        source = open_source(stored(tmp_path / f"{name}.zarr", rows, chunks), missing_value=-1)
        fits[name] = fit(chain_of([*steps, krylov(4)]), source, workers=2)
    tall, short = fits["tall"], fits["short"]
    assert "over columns" in tall.plan.reason
    assert "over columns" not in short.plan.reason
    known = np.where(rows < 0, np.nan, rows.astype(np.float32))
    mapped: Any = known
    for model in short.model.models[:-1]:
        mapped = model.transform(mapped)
    check(tall.model.last, decomposed(mapped))
    np.testing.assert_allclose(tall.model.transform(known), short.model.transform(known), atol=2e-4)


def test_an_error_in_a_column_that_is_read_alone_names_it(tmp_path):
    rows = genotypes()
    fitted: Any = fit(
        chain_of([ScaleGenotypes(), krylov(4)]),
        open_source(stored(tmp_path / "x.zarr", rows, TALL), missing_value=-1),
    )
    rows[140, 201] = 3
    source = open_source(stored(tmp_path / "bad.zarr", rows, TALL), missing_value=-1)
    with pytest.raises(DataError, match=r"row 140.*column 201"):
        fit(chain_of([ScaleGenotypes(), krylov(4)]), source)
    mapped = streamdr.data.transformed.TransformedSource(source, fitted.model.models[0])
    with pytest.raises(DataError, match=r"row 140.*column 201"):
        mapped.read(blocks.Span(0, 150), blocks.Span(150, 260))


def test_a_chain_is_fitted_and_written_by_columns_where_rows_do_not_fit(tmp_path, blocks_of):
    blocks_of(1 << 20)
    few = np.random.default_rng(6).binomial(2, 0.3, (1500, 80)).astype("int8")
    rows = np.tile(few, (1, 150))
    source = open_source(stored(tmp_path / "x.zarr", rows, (1500, 400)))
    execution = Execution(workers=1, memory_limit=resident() + (110 << 20))
    model: Any = fitting.fit(chain_of([ScaleGenotypes(), krylov(3)]), source, execution).model
    view, seen = view_and_source(model, source, EMBEDDING)
    assert plan_transform(view, seen, execution, np.dtype("f4")).axis == "columns"
    fitting.transform(model, source, tmp_path / "scores.zarr", execution, attributes={})
    written: Any = zarr.open_array(tmp_path / "scores.zarr" / "embedding", mode="r")[:]
    np.testing.assert_allclose(written, model.transform(rows), atol=1e-3)
