"""The choice of the features of a fit: by the first rows, or by a pass that counts the observed values."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import cast

import numpy as np

from streamdr.core.accumulator import Accumulator
from streamdr.core.axes import FeatureAxes
from streamdr.core.execution import Execution
from streamdr.core.method import Method, Model, Pass
from streamdr.core.progress import Progress, Silent
from streamdr.data.feature_subset import FeatureSubset
from streamdr.data.features import features_for, foreseen_features, observation_pass, observation_phase
from streamdr.data.snapshot import Snapshot
from streamdr.data.source import Source
from streamdr.engine.executors import Threads, open_executor
from streamdr.engine.ledger import Ledger
from streamdr.engine.planner import give_back, plan_counting, require_first_rows
from streamdr.engine.runner import Runner
from streamdr.statistics.observed import Observed
from streamdr.store.remote.key_value_folder import open_folder


def select_features(
    method: Method,
    source: Source,
    execution: Execution,
    progress: Progress,
    stop: threading.Event,
    ledger: Ledger | None,
    seen: Snapshot | None,
) -> tuple[Source, Runner | None]:
    """Return the features that a method sees, and the runner of the pass over the rows, if it took one."""
    require_first_rows(source, execution)
    request = observation_pass(method, source)
    if request is None:
        return features_for(method, source), None
    observed, _ = _remembered(request, source, ledger, seen)
    if observed is not None:
        return features_for(method, source, cast(Observed, observed)), None
    phase = observation_phase(source, request)
    foreseen = foreseen_features(method, source, phase)
    method.routes(foreseen.named_spec)  # refuses parameters before all is read
    chosen = plan_counting(method, source, phase, execution)
    with open_executor(execution, chosen.workers, stop) as engine:
        pause = execution.checkpoint_seconds
        runner = Runner(engine, source, chosen.window, progress, stop, ledger, pause, seen)
        observed = runner.run(request)
    give_back()
    return features_for(method, source, cast(Observed, observed), counting=phase), runner


def narrowed(
    method: Method,
    source: Source,
    execution: Execution,
    *,
    fresh: bool = False,
    seen: Snapshot | None = None,
) -> Source:
    """Return the features of a source that a method will see, reading no more than the first rows.

    Where that needs statistics of all rows that are not in the ledger, these are the features that it will
    probably see.
    """
    if isinstance(source, FeatureSubset) or source.axes is None:
        return source
    require_first_rows(source, execution)
    request = observation_pass(method, source)
    if request is None:
        return features_for(method, source)
    ledger = None if execution.ledger is None or fresh else Ledger(open_folder(execution.ledger))
    if seen is None and ledger is not None:
        seen = source.snapshot()
    observed, _ = _remembered(request, source, ledger, seen)
    if observed is None:
        return foreseen_features(method, source, observation_phase(source, request))
    return features_for(method, source, cast(Observed, observed))


def bytes_to_count(method: Method, source: Source, ledger: Ledger | None, seen: Snapshot | None) -> int:
    """Return the bytes that the choice of the features reads. The ledger may have some of its rows."""
    request = observation_pass(method, source)
    return 0 if request is None else _remembered(request, source, ledger, seen)[1]


def usable_start(start: Model | None, axes: FeatureAxes | None, source: Source) -> Model | None:
    """Return the model to start from, if it was fitted to the same features; `axes` are those of its own."""
    if start is None:
        return None
    now = np.arange(source.spec.n_cols) if source.axes is None else source.axes.columns
    before = np.arange(start.n_features) if axes is None else axes.columns
    return start if np.array_equal(now, before) else None


def _remembered(
    request: Pass, source: Source, ledger: Ledger | None, seen: Snapshot | None
) -> tuple[Accumulator | None, int]:
    """Return the full accumulator of a pass that is in the ledger, and the bytes to read where it is not."""
    stop = threading.Event()
    with closing(Threads(1, stop)) as engine:
        return Runner(engine, source, 1, Silent(), stop, ledger, seen=seen).remembered(request)
