"""Every registered method, by every route: a transform that was stopped continues."""

from __future__ import annotations

import pytest
from contract_cases import ROUTES, ROWS, outputs_of
from fits import StopAfter, fit

from streamdr import store
from streamdr.core.execution import Execution
from streamdr.engine import fitting, planner
from streamdr.errors import Interrupted


@pytest.mark.parametrize("name", ROUTES)
def test_a_stopped_transform_publishes_nothing_and_the_next_one_continues(
    name, store_of, tmp_path, blocks_of, monkeypatch
):
    """With one worker and small output chunks, much is left to do when it is stopped."""
    blocks_of(1 << 10)
    monkeypatch.setattr(planner, "_OUTPUT_CHUNK", 1 << 8)
    monkeypatch.setattr(planner, "_CHUNK_BLOCKS", 1)
    case = ROUTES[name]
    source = case.source(store_of(case))
    model = fit(case.method, source, workers=2).model
    for kind in outputs_of(case.method):
        target, whole = (tmp_path / f"{kind.key} {what}.zarr" for what in ("stopped", "whole"))
        stopper = StopAfter(ROWS / 3)
        with pytest.raises(Interrupted):
            fitting.transform(
                model,
                source,
                target,
                Execution(workers=1),
                kind=kind,
                attributes={},
                progress=stopper,
                stop=stopper.stop,
            )
        assert not target.exists(), "a part of it was published"
        again = fitting.transform(model, source, target, Execution(workers=2), kind=kind, attributes={})
        once = fitting.transform(model, source, whole, Execution(workers=2), kind=kind, attributes={})
        assert 0 < again.bytes_read < once.bytes_read, kind.key
        first, second = (store.open_rows(path, kind.name)[...].tobytes() for path in (target, whole))
        assert first == second, kind.key
