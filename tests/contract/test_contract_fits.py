"""Every registered method, by every route: the same bits on any workers, after a stop and an append."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, cast

import numpy as np
import pytest
from contract_cases import CASES, CHUNKS, COLUMNS, GROWING, MORE, ROWS, Case, outputs_of
from fits import StopsInNewPass, bits, fit

from streamdr import store
from streamdr.core.execution import Execution
from streamdr.core.method import Model, in_memory
from streamdr.engine.read_estimates import estimate_fit_reads
from streamdr.errors import Interrupted
from streamdr.methods.chain import Chain, ChainModel, parameters_of

BLOCK = 1 << 10


@pytest.fixture(autouse=True)
def _small_blocks(blocks_of):
    blocks_of(BLOCK)


@pytest.fixture(params=CASES)
def case(request) -> Case:
    return CASES[request.param]


def test_the_bits_are_the_same_on_any_number_of_threads_and_a_second_fit_with_a_ledger_reads_no_data(
    case, store_of, tmp_path
):
    source = case.source(store_of(case))
    least, most = estimate_fit_reads(case.method, source, Execution(workers=1))
    one = fit(case.method, source, workers=1)
    assert least <= one.bytes_read <= most, "within the estimate"
    assert (least > 0) == (case.route.passes > 0)
    assert bits(fit(case.method, source, workers=3).model) == bits(one.model)
    settings = {"workers": 2, "ledger": tmp_path / "ledger", "checkpoint_seconds": 0.0}
    assert bits(fit(case.method, source, **settings).model) == bits(one.model)
    again = fit(case.method, source, **settings)
    assert bits(again.model) == bits(one.model)
    assert again.bytes_read == 0


def test_a_fit_that_is_stopped_in_each_of_its_passes_ends_with_the_same_bits_and_reads_nothing_twice(
    case, store_of, tmp_path
):
    source = case.source(store_of(case))
    whole = fit(case.method, source, workers=2)
    settings = {"workers": 2, "ledger": tmp_path / "ledger", "checkpoint_seconds": 0.0}
    taken, resumed, last = 0.0, 0, None
    while last is None:
        stopper = StopsInNewPass()
        try:
            last = fit(case.method, source, progress=stopper, stop=stopper.stop, **settings)
        except Interrupted:
            taken += stopper.bytes_taken
        finally:
            resumed += stopper.resumed
    assert resumed > 0 or not case.route.passes, "it must be stopped in the middle of a pass"
    assert bits(last.model) == bits(whole.model)
    assert last.bytes_read <= whole.bytes_read - taken, "no data is read twice"


@pytest.mark.parametrize("name", GROWING)
def test_appended_rows_give_the_bits_of_a_fit_that_reads_all_of_them(name, own_store_of, tmp_path):
    """Both fits start from the model of the first rows, for methods that use a start."""
    case = GROWING[name]
    own_store_of(case)
    settings: dict[str, Any] = {"workers": 2, "ledger": tmp_path / "ledger", "checkpoint_seconds": 0.0}
    first = fit(case.method, case.source(tmp_path), **settings)
    case.grow(tmp_path)
    source = case.source(tmp_path)
    least, most = estimate_fit_reads(case.method, source, Execution(**settings), start=first.model)
    grown = fit(case.method, source, start=first.model, **settings)
    complete = fit(case.method, source, start=first.model, workers=2)
    assert bits(grown.model) == bits(complete.model)
    assert grown.bytes_read <= complete.bytes_read
    assert least <= grown.bytes_read <= most, "within the estimate"
    if case.goes_on:
        # Incomplete grains are read again, and grains that are now part of a larger one.
        again = max(MORE // 16, 2 * CHUNKS[0])
        assert grown.bytes_read <= (MORE - ROWS + again) * 4 * COLUMNS, "little more than the new rows"


@pytest.mark.parametrize("name", CASES)
def test_a_store_with_any_chunks_gives_the_result_of_rows_in_memory(name, store_of):
    """Up to rounding; the same bits if only the chunks of columns differ, and passes are over rows.

    Values are float64, so that rounding is far below the tolerance. A route that reads parts of the
    rows reads bands of whole chunks: which rows are in them depends on the chunks.
    """
    case, models = CASES[name], {}
    n_cols = case.rows().shape[1]
    for chunks in (case.chunks, (case.chunks[0], n_cols), (7, n_cols - 3), (ROWS, max(1, n_cols // 8))):
        source = case.source(store_of(case, chunks=chunks, dtype=np.dtype(np.float64)))
        models[chunks] = fit(case.method, source, workers=2).model
    if all(phase.axis == "rows" for phase in case.route.phases):
        one, other, *_ = models.values()
        assert bits(other) == bits(one)
    if any(phase.part is not None for phase in case.route.phases):
        return
    rows = case.rows().astype(np.float64)
    here = in_memory(case.method, rows, labels=case.here())
    # Changes may be rounding errors of values of about 1, residuals of values as large as eigenvalues.
    variances = [
        values
        for name, values in numbers(here).items()
        if name.split(".")[-1] in ("eigenvalues", "explained_variance")
    ]
    level = max([1.0, *(float(np.nanmax(np.abs(values), initial=0.0)) for values in variances)])
    for chunks, model in models.items():
        for name, expected in numbers(here).items():
            rounding = 1e-12 * (level if name.endswith("residuals") else 1.0)
            atol = max(rounding, 1e-7 * np.nanmax(np.abs(expected), initial=0.0))
            found = numbers(model)[name]
            np.testing.assert_allclose(found, expected, rtol=0, atol=atol, err_msg=f"{name}, {chunks}")
        for kind in outputs_of(case.method):
            expected, found = (kind.of(each).transform(rows) for each in (here, model))
            atol = 1e-7 * np.nanmax(np.abs(expected))
            np.testing.assert_allclose(found, expected, rtol=0, atol=atol, err_msg=f"{kind.key}, {chunks}")


def numbers(model: Model) -> dict[str, np.ndarray]:
    """The arrays and numbers of a model; of a chain, those of each of its models."""
    if isinstance(model, ChainModel):
        members = zip(model.names, map(numbers, model.models), strict=True)
        return {f"{name}.{key}": each for name, found in members for key, each in found.items()}
    found = {field.name: np.asarray(getattr(model, field.name)) for field in fields(cast(Any, model))}
    return {name: each for name, each in found.items() if each.dtype.kind in "biuf"}


def test_a_saved_model_has_the_bits_of_the_fitted_one(case, store_of, tmp_path):
    model = fit(case.method, case.source(store_of(case)), workers=2).model
    facts: dict[str, Any] = {"feature_names": None, "input_fingerprint": "", "n_rows": ROWS}
    given = parameters_of(case.method) if isinstance(case.method, Chain) else {}
    store.save_model(tmp_path / "m.zarr", model, method=case.method.name, parameters=given, **facts)
    assert bits(store.load_model(tmp_path / "m.zarr").model) == bits(model)
