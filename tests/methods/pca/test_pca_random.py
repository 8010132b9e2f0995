"""PCA of random matrices with random parameters against the SVD: shapes, types, weights, offsets, ranks."""

import warnings

import numpy as np
import pytest

import streamdr
from streamdr.errors import StreamdrError

DTYPES = ("float32", "float64", "float16", "uint8", "int16", "int32")


def drawn(rng):
    """A matrix that may be of low rank, far from zero, with constant columns and repeated rows; weights."""
    n, d = int(rng.integers(2, 60)), int(rng.integers(1, 60))
    rank = int(rng.integers(1, 8))
    rows = rng.standard_normal((n, rank)) @ rng.standard_normal((rank, d)) * 10 ** rng.uniform(-6, 6)
    size = np.abs(rows).mean()
    if rng.random() < 0.4:
        rows = rows + rng.standard_normal((n, d)) * 10 ** rng.uniform(-8, 1) * size
    if rng.random() < 0.4:
        rows = rows + 10 ** rng.uniform(-3, 6) * size
    if rng.random() < 0.3:
        rows[:, rng.integers(d)] = rng.choice([0, 1, 0.1, 1e5])
    if rng.random() < 0.2:
        rows = rows[rng.integers(0, n, n)]
    dtype = np.dtype(str(rng.choice(DTYPES)))
    if dtype.kind in "iu":
        rows = np.round((rows - rows.min()) / (np.ptp(rows) or 1.0) * 200)
    elif dtype == np.float16:
        rows = rows / (np.abs(rows).max() or 1.0) * 100
    weights = rng.integers(0, 3, n) * rng.choice([1.0, 0.37]) if rng.random() < 0.5 else None
    if weights is not None and not weights.any():
        weights[0] = 1.0
    return rows.astype(dtype), weights


def parameters(rng, shape):
    given = {
        "solver": str(rng.choice(["covariance", "gram", "krylov"])),
        "scale": bool(rng.random() < 0.3),
        "center": bool(rng.random() < 0.7),
        "ddof": int(rng.integers(0, 2)),
        "n_components": int(rng.integers(1, min(shape) + 1)),
    }
    if given["solver"] != "krylov" and rng.random() < 0.4:
        given["n_components"] = [0.5, 0.9, 1.0, None][rng.integers(4)]
    if rng.random() < 0.2:
        given["whiten"] = str(rng.choice(["pca", "zca"]))
    return given


def check(seed):
    rng = np.random.default_rng(seed)
    rows, weights = drawn(rng)
    given = parameters(rng, rows.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            pca = streamdr.PCA(**given).fit(rows, sample_weight=weights)
        except StreamdrError:
            return  # refused with a message
        scores = pca.transform(rows)
    heavy = np.ones(len(rows)) if weights is None else weights
    freedom = heavy.sum() - given["ddof"]
    plain = rows.astype(np.float64)
    if given["center"]:
        plain = plain - np.average(plain, axis=0, weights=heavy)
    if given["scale"]:
        plain = plain / np.sqrt(heavy @ plain**2 / freedom)
    found, components, k = pca.explained_variance_, pca.components_, len(pca.components_)
    spectrum = np.linalg.svd(plain * np.sqrt(heavy)[:, None], compute_uv=False) ** 2 / freedom
    exact = np.append(spectrum, np.zeros(k))[:k]
    rounding = 4e-5 if rows.dtype.itemsize <= 2 or rows.dtype == np.float32 else 1e-10
    slack = rounding * spectrum[0]
    assert np.isfinite(scores).all()
    assert found.sum() <= pca.total_variance_ * (1 + 1e-9)
    assert pca.total_variance_ == pytest.approx(spectrum.sum(), rel=rounding)
    assert (found <= exact + slack).all()
    np.testing.assert_allclose(components @ components.T, np.eye(k), atol=1e-9)
    if pca.residuals_ is None:
        np.testing.assert_allclose(found, exact, atol=slack)
    else:
        images = (plain * heavy[:, None]).T @ (plain @ components.T) / freedom
        actual = np.linalg.norm(images - components.T * found, axis=0)
        assert (actual <= pca.residuals_ + slack).all()


def test_random_matrices():
    for seed in range(40):
        check(seed)


@pytest.mark.slow
def test_a_thousand_random_matrices():
    for seed in range(40, 1040):
        check(seed)
