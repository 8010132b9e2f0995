"""Fits of probabilistic PCA to stores: the same bits everywhere, and nothing read twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import zarr
from fits import bits, grown, stored
from fits import fit as fit_any
from narrowing import checked, present
from nightly import Heard, Nights, correlated

from streamdr import store
from streamdr.core.execution import Execution
from streamdr.core.method import Method
from streamdr.data import open_source
from streamdr.engine import fitting
from streamdr.errors import DataError, ParameterError
from streamdr.methods.pca import PCA
from streamdr.methods.ppca import PPCA
from streamdr.methods.ppca.em import divergence
from streamdr.methods.ppca.holdout import Holdout
from streamdr.methods.ppca.model import PPCAModel

N, D, K = 1500, 12, 3
ALL = N * D * 4
METHODS = {
    "em": PPCA(K, method="em", tol=0.0, max_iter=3),
    "concurrent": PPCA([2, K], method="em", tol=0.0, max_iter=3, holdout=0.1),
    "minibatch": PPCA(K, method="minibatch", tol=0.0, max_iter=3),
    "ridge": PPCA(K, method="em", tol=0.0, max_iter=3, ridge=5.0),
    "auto": PPCA(K, tol=0.0, max_iter=3),
}


pytestmark = pytest.mark.usefixtures("small_blocks")


class Fitted(NamedTuple):
    """A fit whose model is one of probabilistic PCA."""

    model: PPCAModel
    bytes_read: int


def fit(method: Method, source: Path, **settings: Any) -> Fitted:
    found = fit_any(method, source, **settings)
    return Fitted(checked(PPCAModel, found.model), found.bytes_read)


@pytest.fixture(scope="module")
def whole():
    return correlated(N, D)


@pytest.fixture(scope="module")
def incomplete(whole):
    rows = whole.copy()
    rows[np.random.default_rng(1).random(rows.shape) < 0.2] = np.nan
    return rows


@pytest.fixture
def path(tmp_path, incomplete):
    return stored(tmp_path / "x.zarr", incomplete)


@pytest.mark.parametrize("chunks", [(40, 5), (7, 12), (1500, 12), (64, 1)])
def test_the_same_values_are_held_out_however_they_are_stored(tmp_path, incomplete, path, chunks):
    method = PPCA(K, method="em", holdout=0.2, max_iter=1)
    held_out = present(fit(method, stored(tmp_path / "y.zarr", incomplete, chunks)).model.held_out)
    other = present(fit(method, path).model.held_out)
    assert held_out[0] == other[0] > 0
    np.testing.assert_allclose(held_out, other, rtol=1e-9)


# How much is read


@pytest.mark.parametrize("chunk", [10, 40])
def test_minibatches_read_every_row_once(tmp_path, incomplete, chunk):
    path = stored(tmp_path / "y.zarr", incomplete, (chunk, D))
    assert fit(PPCA(K, method="minibatch", max_iter=1), path).bytes_read == ALL
    more = fit(PPCA(K, method="minibatch", max_iter=3, tol=0.0), path)
    assert more.bytes_read == 3 * ALL


def test_each_iteration_reads_every_row_once(path):
    for steps in (1, 4):
        assert fit(PPCA(K, method="em", tol=0.0, max_iter=steps), path).bytes_read == (1 + steps) * ALL
    several = fit(PPCA([1, 2, K], method="em", tol=0.0, max_iter=4), path)
    assert several.bytes_read == 5 * ALL, "as many passes as one fit"


def test_tall_data_starts_from_a_part_of_the_rows(tmp_path, monkeypatch, incomplete, path):
    monkeypatch.setattr("streamdr.methods.ppca.ppca._START_ROWS", 300)
    fitted = fit(PPCA(K, method="em", tol=0.0, max_iter=2), path)
    assert 2.15 * ALL < fitted.bytes_read < 2.25 * ALL, "a fifth, and two iterations"


def test_complete_data_needs_only_the_moments_of_pca(tmp_path, whole):
    path, settings = stored(tmp_path / "y.zarr", whole), {"workers": 2, "ledger": tmp_path / "ledger"}
    assert fit_any(PCA(5, solver="covariance"), path, **settings).bytes_read == ALL
    for method in (PPCA(3), PPCA([1, 2, 5]), PPCA(2, method="closed_form", solver="covariance")):
        found = fit(method, path, **settings)
        assert found.bytes_read == 0, method
        assert found.model.solver == "closed_form"
        assert bits(found.model) == bits(fit(method, path).model)


@pytest.mark.parametrize("row", [0, 700, N - 1])
def test_a_missing_value_found_late_leads_to_em(tmp_path, whole, row):
    rows = whole.copy()
    rows[row, 7] = np.nan
    path, ledger = stored(tmp_path / "y.zarr", rows), tmp_path / "ledger"
    model = fit(PPCA(K), path, ledger=ledger)
    assert model.model.solver == "em"
    assert bits(model.model) == bits(fit(PPCA(K, method="em"), path).model)
    again = fit(PPCA(K), path, ledger=ledger)
    assert bits(again.model) == bits(model.model)
    assert again.bytes_read == 0


# Rows are appended


@pytest.fixture
def grows(tmp_path):
    """A store of the first 5000 of 6000 rows, and all the rows."""
    rows = correlated(6000, D)
    rows[np.random.default_rng(1).random(rows.shape) < 0.2] = np.nan
    return stored(tmp_path / "x.zarr", rows[:5000], (100, D)), rows


def test_only_appended_rows_are_read_while_the_model_hardly_changes(grows, tmp_path):
    path, rows = grows
    method, ledger = PPCA(K, method="em", tol=1e-4), tmp_path / "ledger"
    first = fit(method, path, ledger=ledger)
    assert first.model.converged
    size = 5000
    for added in (100, 33, 300):
        size += added
        grown(path, rows[:size])
        second = fit(method, path, ledger=ledger, start=first.model)
        # Incomplete grains are read again, and grains that are now part of a larger one.
        assert second.bytes_read <= (added + max(size / 16, 200)) * D * 4
        assert second.model.converged
        assert second.model.n_samples == np.count_nonzero(np.isfinite(rows[:size]).any(axis=1))
        np.testing.assert_array_equal(second.model.components, first.model.components)
        fresh = fit(PPCA(K, method="em", tol=1e-4, max_iter=1), path, start=first.model)
        assert second.model.log_likelihood == fresh.model.log_likelihood, "the sums are those of all rows"
        first = second


def test_components_keep_their_signs_after_an_append(grows, tmp_path):
    path, rows = grows
    method = PPCA(K, method="em", tol=1e-10, append_tol=0)
    first = fit(method, path).model
    turned = replace(first, components=-first.components)  # a fit from the start would not have these signs
    grown(path, rows)
    second = fit(method, path, start=turned).model
    assert second.n_iter > 1
    assert (np.sum(second.components * turned.components, axis=1) > 0.9).all()


def test_a_model_that_changes_is_iterated_from_the_previous_one(grows, tmp_path):
    path, rows = grows
    method, ledger = PPCA(K, method="em", tol=1e-10, append_tol=0), tmp_path / "ledger"
    first = fit(method, path, ledger=ledger)
    grown(path, rows)
    second = fit(method, path, ledger=ledger, start=first.model)
    from_start = fit(method, path)
    assert second.model.n_iter > 1
    assert second.bytes_read < from_start.bytes_read
    assert second.model.log_likelihood == pytest.approx(from_start.model.log_likelihood, rel=1e-9)
    np.testing.assert_allclose(
        second.model.get_covariance(), from_start.model.get_covariance(), rtol=1e-3, atol=1e-4
    )


def test_a_feature_first_observed_in_appended_rows_is_included(grows, tmp_path):
    path, rows = grows
    rows[:5000, 4] = np.nan
    zarr.open_array(path, mode="r+")[:] = rows[:5000]
    method, ledger = PPCA(K, method="em"), tmp_path / "ledger"
    first = fit(method, path, ledger=ledger)
    assert np.isnan(first.model.mean[4])
    grown(path, rows)
    second = fit(method, path, ledger=ledger, start=first.model)
    assert np.isfinite(second.model.mean).all()
    assert second.model.new_features == 0
    from_start = fit(method, path)
    assert bits(second.model) == bits(from_start.model), "as if it had started with all rows"
    assert second.bytes_read <= from_start.bytes_read + (1000 + 6000 / 16) * D * 4, (
        "it is detected in the first pass"
    )


def test_auto_continues_with_em_where_that_was_needed_before(grows, tmp_path):
    path, rows = grows
    ledger = tmp_path / "ledger"
    first = fit(PPCA(K, tol=1e-4), path, ledger=ledger)
    assert first.model.solver == "em"
    grown(path, rows[:5100])
    second = fit(PPCA(K, tol=1e-4), path, ledger=ledger, start=first.model)
    assert second.bytes_read <= (100 + 5100 / 16) * D * 4
    with pytest.raises(ParameterError, match="needs complete data"):
        fit(PPCA(K, method="closed_form"), path, start=first.model)


def test_repeated_runs_read_only_new_rows(tmp_path):
    rows = correlated(6000, 20)
    rows[np.random.default_rng(1).random(rows.shape) < 0.2] = np.nan
    nights = Nights(tmp_path, rows, {"method": {"name": "ppca", "n_components": 3, "tol": 1e-4}})
    nights.write(5000)
    assert nights.run().fit.bytes_read > 5000 * 80
    nights.grow(5200)
    assert nights.run().fit.bytes_read <= (200 + 5200 / 16) * 80
    assert nights.run().fit.bytes_read == 0


# Transforms


def test_rows_with_missing_values_are_transformed_as_by_the_model(path, incomplete, tmp_path):
    incomplete = incomplete.copy()
    incomplete[70] = np.nan
    zarr.open_array(path, mode="r+")[70] = np.nan
    model = fit(METHODS["em"], path).model
    fitting.transform(model, open_source(path), tmp_path / "z.zarr", Execution(workers=2), attributes={})
    embedding = store.open_embedding(tmp_path / "z.zarr")[:]
    np.testing.assert_allclose(embedding, model.transform(incomplete), atol=1e-5)
    np.testing.assert_allclose(embedding[70], 0.0, atol=1e-7)
    zarr.open_array(path, mode="r+")[1234, 7] = np.inf
    with pytest.raises(DataError, match="inf at row 1234, column 7"):
        fitting.transform(model, open_source(path), tmp_path / "y.zarr", Execution(), attributes={})


# Errors in the data


def test_an_infinite_value_is_named_by_its_row_and_column(tmp_path, incomplete):
    for name, method in METHODS.items():
        rows = incomplete.copy()
        rows[1234, 7] = np.inf
        path = stored(tmp_path / f"{name}.zarr".replace(" ", "-"), rows)
        with pytest.raises(DataError, match=r"inf at row 1234, column 7.*NaN if they stand for missing"):
            fit(method, path)


def test_a_value_that_is_held_out_and_infinite_is_named_too(tmp_path, incomplete):
    hidden = np.argwhere(Holdout(0.1, 0).chosen(np.arange(N), incomplete))[-1]
    rows = incomplete.copy()
    rows[tuple(hidden)] = -np.inf
    path = stored(tmp_path / "y.zarr", rows)
    with pytest.raises(DataError, match=f"-inf at row {hidden[0]}, column {hidden[1]}"):
        fit(METHODS["concurrent"], path)


def test_a_missing_value_is_named_by_the_closed_form(tmp_path, whole):
    rows = whole.copy()
    rows[1234, 7] = np.nan
    path = stored(tmp_path / "y.zarr", rows)
    with pytest.raises(ParameterError, match="nan at row 1234, column 7"):
        fit(PPCA(K, method="closed_form"), path)


def test_pass_labels_show_the_progress_of_em(path):
    class Listener(Heard):
        def start(self, begun):
            self.lines.append(begun.label)

    listener = Listener()
    fit(METHODS["em"], path, progress=listener)
    assert listener.lines[:2] == ["covariances to start from", "EM 1"]
    assert "EM 2, " in listener.lines[2]
    assert "nats per row, change " in listener.lines[2]
    listener = Listener()
    fit(METHODS["minibatch"], path, progress=listener)
    assert listener.lines[1] == "minibatch 1 of 15"
    assert "minibatch 2 of 15, " in listener.lines[2]


def test_a_step_for_appended_rows_is_as_good_as_reading_all_of_them(grows, tmp_path):
    """After each append, one step from where EM had converged."""
    path, rows = grows
    method, ledger = PPCA(K, method="em", tol=1e-9), tmp_path / "ledger"
    last = fit(method, path, ledger=ledger)
    for size in (5100, 5300, 5600, 6000):
        grown(path, rows[:size])
        added = size - last.model.n_samples
        last = fit(method, path, ledger=ledger, start=last.model)
        assert last.bytes_read <= (added + max(size / 16, 200)) * D * 4
        assert (last.model.converged, last.model.n_iter) == (True, 1)
        full = fit(method, path).model
        error = full.n_parameters / (2 * full.n_samples * D)
        assert divergence(full.factors, last.model.factors) <= 0.05 * error
    facts: dict[str, Any] = {"parameters": {}, "feature_names": None, "input_fingerprint": "", "n_rows": 6000}
    store.save_model(tmp_path / "m.zarr", last.model, method="ppca", **facts)
    again = store.load_model(tmp_path / "m.zarr").model
    assert again.anchor.factors.loadings.tobytes() == last.model.anchor.factors.loadings.tobytes()
    assert again.anchor.factors.loadings.tobytes() != again.factors.loadings.tobytes()
