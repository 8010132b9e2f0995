"""Weights that are all zero are the same error in every method; uneven weights do not lose precision."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.core.array_spec import ArrayConfigParams

import streamdr
from streamdr.core.execution import Execution
from streamdr.core.method import Supervised
from streamdr.data import open_source
from streamdr.engine.fitting import fit
from streamdr.errors import DataError
from streamdr.methods import METHODS
from streamdr.methods.kernel_pca import kernel_pca
from streamdr.methods.ppca import mixture, ppca
from streamdr.methods.selection import mutual_info

WRITE_EMPTY_CHUNKS: ArrayConfigParams = {"write_empty_chunks": True}
RNG = np.random.default_rng(2)
ROWS = RNG.normal(size=(80, 5)) + 1
LABELS = RNG.integers(0, 3, 80)
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "pca": [{"solver": solver} for solver in ("covariance", "gram", "krylov")],
    "ppca": [{"method": method} for method in ("closed_form", "em", "minibatch")],
    "kernel_pca": [
        *({"approximation": way} for way in ("exact", "nystrom", "random_features")),
        {"kernel": {"search": {"rbf": {"gamma": [0.1, 1.0]}}, "folds": 2}},
    ],
    "select_mutual_info": [{}, {"k": "cv"}],
    "select_f_score": [{}, {"k": "cv"}],
    "select_correlation": [{}, {"k": "cv"}],
}
CASES = [(name, settings) for name in METHODS for settings in SETTINGS.get(name, [{}])]


@pytest.mark.parametrize(("name", "settings"), CASES, ids=[f"{name} {case}" for name, case in CASES])
def test_every_method_refuses_weights_that_are_all_zero(name, settings):
    method = replace(METHODS[name].examples()[0], **settings)
    labels = LABELS if isinstance(method, Supervised) else None
    source = open_source(ROWS, weights=np.zeros(len(ROWS)), labels=labels)
    with pytest.raises(DataError, match="weights: every weight is zero"):
        fit(method, source, Execution())


def test_weights_are_read_until_one_is_not_zero(tmp_path):
    weights = np.zeros(len(ROWS))
    store = zarr.create_array(
        tmp_path / "weights", shape=weights.shape, chunks=(7,), dtype="f8", config=WRITE_EMPTY_CHUNKS
    )
    store[:] = weights
    with pytest.raises(DataError, match=r"weights: every weight is zero.*leave the weights out"):
        streamdr.PCA(2).fit(zarr.array(ROWS, chunks=(10, 5)), sample_weight=tmp_path / "weights")
    weights[70:] = 1
    store[:] = weights
    late = streamdr.PCA(2).fit(zarr.array(ROWS, chunks=(10, 5)), sample_weight=tmp_path / "weights")
    np.testing.assert_allclose(
        late.explained_variance_, streamdr.PCA(2).fit(ROWS[70:]).explained_variance_, rtol=1e-10
    )


@pytest.mark.parametrize(
    "estimator",
    [
        streamdr.KernelPCA(2, n_landmarks=4, approximation="nystrom"),
        streamdr.KernelPCA(2, n_landmarks=4, kernel={"search": {"rbf": {"gamma": [0.1, 1.0]}}, "folds": 2}),
        streamdr.KernelPCA(2, n_landmarks=4, approximation="random_features"),
        streamdr.SparseKernelPCA(2, n_candidates=4),
        streamdr.PPCAMixture(1, n_mixtures=2, max_iter=3),
        streamdr.PPCA(2),
        streamdr.SelectMutualInfo(k=2),
    ],
    ids=lambda estimator: str(estimator)[:40],
)
def test_a_sample_is_read_from_all_rows_if_its_part_has_no_weight(estimator, monkeypatch):
    """Samples are read from a part of the rows: here the rows of positive weight are in another part."""
    monkeypatch.setattr(kernel_pca, "_SAMPLE_ROWS", 20)
    monkeypatch.setattr(mixture, "_SAMPLE_ROWS", 20)
    monkeypatch.setattr(ppca, "_START_ROWS", 20)
    monkeypatch.setattr(mutual_info, "_FEWEST_ROWS", 4)
    monkeypatch.setattr(mutual_info, "_SAMPLE_ROWS", 4)
    rows = RNG.normal(size=(2000, 5))
    labels = RNG.integers(0, 2, 2000)
    weights = np.zeros(2000)
    weights[1000:1100] = 1.0
    alone = estimator.fit(rows[1000:1100], labels[1000:1100]).get_feature_names_out()
    fitted = estimator.fit(rows, labels, sample_weight=weights)
    assert len(fitted.get_feature_names_out()) == len(alone)
    assert np.isfinite(fitted.transform(rows[1000:1100])).all()


@pytest.mark.parametrize("solver", ["covariance", "gram"])
@pytest.mark.parametrize("dtype", ["f4", "i2", "f8"])
def test_the_shift_is_near_the_weighted_mean(solver, dtype):
    """One row far from the others has nearly all the weight: float32 must not lose the variance."""
    rng = np.random.default_rng(0)
    rows = np.rint(rng.normal(size=(40, 1)) * rng.integers(20, 900, (1, 30)) + 300).astype(dtype)
    weights = np.concatenate([[2e7], rng.uniform(0.1, 60, 39)])
    found = streamdr.PCA(2, solver=solver).fit(rows, sample_weight=weights)
    exact = np.cov(rows.astype("f8"), rowvar=False, aweights=weights, ddof=0) * weights.sum()
    values = np.linalg.eigvalsh(exact / (weights.sum() - 1))[::-1]
    np.testing.assert_allclose(found.explained_variance_[0], values[0], rtol=1e-5)
    np.testing.assert_allclose(found.mean_, np.average(rows.astype("f8"), axis=0, weights=weights), rtol=1e-6)
