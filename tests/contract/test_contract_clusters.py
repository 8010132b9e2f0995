"""Every registered method, by every route: a dask cluster gives the bits that threads give."""

from __future__ import annotations

import pytest
from contract_cases import CASES, ROUTES, outputs_of
from dask_processes import scheduler, worker
from fits import bits, fit

from streamdr import store
from streamdr.core.execution import Execution
from streamdr.engine import fitting


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """The scheduler file of one cluster of two workers, for all methods."""
    file = tmp_path_factory.mktemp("cluster") / "scheduler.json"
    with scheduler(file), worker(file), worker(file):
        yield str(file)


@pytest.mark.parametrize("name", CASES)
def test_a_fit_has_the_bits_that_threads_give(name, cluster, store_of, blocks_of):
    blocks_of(1 << 11)
    case = CASES[name]
    source = case.source(store_of(case))
    there = fit(case.method, source, scheduler=cluster).model
    assert bits(there) == bits(fit(case.method, source, workers=2).model)


@pytest.mark.parametrize("name", ROUTES)
def test_row_outputs_have_the_bits_that_threads_write(name, cluster, store_of, tmp_path, blocks_of):
    blocks_of(1 << 11)
    case = ROUTES[name]
    source = case.source(store_of(case))
    model = fit(case.method, source, workers=2).model
    for kind in outputs_of(case.method):
        written: list[bytes] = []
        for place in (Execution(workers=1), Execution(workers=3), Execution(scheduler=cluster)):
            target = tmp_path / f"{kind.key} {len(written)}.zarr"
            fitting.transform(model, source, target, place, kind=kind, attributes={})
            written.append(store.open_rows(target, kind.name)[...].tobytes())
        assert written[1:] == written[:1] * 2, kind.key
