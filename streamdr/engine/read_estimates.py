"""How much a fit or a transform would read, without reading it: passes in the ledger are replayed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import NamedTuple

from streamdr.core.axes import FeatureAxes
from streamdr.core.blocks import Span
from streamdr.core.execution import Execution
from streamdr.core.method import Method, Model, Passes, Route
from streamdr.core.progress import Silent
from streamdr.core.row_outputs import RowOutput
from streamdr.data.feature_subset import FeatureSubset
from streamdr.data.snapshot import Snapshot
from streamdr.data.source import Source
from streamdr.engine.executors import Threads
from streamdr.engine.fitting import first_rows, one_blas_thread
from streamdr.engine.ledger import Ledger
from streamdr.engine.narrowing import bytes_to_count, narrowed, usable_start
from streamdr.engine.planner import plan, view_and_source
from streamdr.engine.runner import Runner
from streamdr.methods.chain import Chain
from streamdr.store.remote.key_value_folder import open_folder


class ReadEstimate(NamedTuple):
    """The least and the most bytes that a stage would read."""

    least: int
    most: int


NOTHING = ReadEstimate(0, 0)


def estimate_fit_reads(
    method: Method,
    source: Source,
    execution: Execution,
    *,
    fresh: bool = False,
    start: Model | None = None,
    start_axes: FeatureAxes | None = None,
    seen: Snapshot | None = None,
) -> ReadEstimate:
    """Return how many bytes a fit would read. Passes that are in the ledger read nothing.

    The number is known for an exact route, except for a sample, which may need all rows. An iterative route
    may converge after the first pass that is not in the ledger, or need all of its passes.
    """
    return together(
        estimate_step_reads(
            method, source, execution, fresh=fresh, start=start, start_axes=start_axes, seen=seen
        )
    )


def together(steps: Sequence[ReadEstimate]) -> ReadEstimate:
    """Return how many bytes several steps would read."""
    return ReadEstimate(sum(step.least for step in steps), sum(step.most for step in steps))


def estimate_step_reads(
    method: Method,
    source: Source,
    execution: Execution,
    *,
    fresh: bool = False,
    start: Model | None = None,
    start_axes: FeatureAxes | None = None,
    seen: Snapshot | None = None,
) -> list[ReadEstimate]:
    """Return the same for each step of a chain, and for another method alone."""
    source = narrowed(method, source, execution, fresh=fresh, seen=seen)
    route = plan(method, source, execution).route
    every = source.spec.n_rows * source.stored_line_bytes("rows")
    ledger = None if execution.ledger is None or fresh else Ledger(open_folder(execution.ledger))
    if seen is None and ledger is not None:
        seen = source.snapshot()
    parts = _parts(route, source, usable_start(start, start_axes, source))
    if isinstance(source, FeatureSubset) and source.counting is not None:
        unread = bytes_to_count(method, source.whole, ledger, seen)
        # What else must be read depends on the features that are found.
        first, *others = (part.route.passes * every for part in parts)
        return [ReadEstimate(unread, unread + first), *(ReadEstimate(0, most) for most in others)]
    found: list[ReadEstimate] = []
    models: list[Model] = []
    stop = threading.Event()
    with one_blas_thread(), closing(Threads(1, stop)) as engine:
        runner = Runner(engine, source, 1, Silent(), stop, ledger, seen=seen)
        for part in parts:
            if len(models) < len(found):  # a step before it has to read
                found.append(_unread(part.route, every, surely=found[len(models)].least >= every))
                continue
            reads, model = _replayed(runner, part, models, every)
            found.append(reads)
            models += [] if model is None else [model]
    return found


class _Part(NamedTuple):
    """A step of a chain, or another method alone: its route, and its passes after the models before it."""

    route: Route
    passes: Callable[[Sequence[Model]], Passes]
    continued: Callable[[Sequence[Model]], Passes] | None
    """Its passes from an earlier model, where there is one."""
    last: bool = True
    """Whether no step follows, so that its model is not needed."""


def _parts(route: Route, source: Source, start: Model | None) -> list[_Part]:
    method, data = route.method, source.named_spec
    if not isinstance(method, Chain):
        continued = None if start is None else lambda models: method.passes(data, start)
        return [_Part(route, lambda models: method.passes(data), continued)]

    def part(number: int, member: Route) -> _Part:
        goes_on = start is not None and number == len(method.steps) - 1
        return _Part(
            member,
            lambda models: method.passes_of(number, data, models),
            (lambda models: method.passes_of(number, data, models, start)) if goes_on else None,
            last=number == len(method.steps) - 1,
        )

    return [part(number, member) for number, member in enumerate(method.member_routes(data))]


def _unread(route: Route, every: int, *, surely: bool) -> ReadEstimate:
    """Return what a step reads whose rows are not known yet. It may have read the same rows before."""
    if not surely or not route.exact or route.usual_passes:
        return ReadEstimate(0, route.passes * every)
    return ReadEstimate((route.passes - route.sampling_passes) * every, route.passes * every)


def _replayed(
    runner: Runner, part: _Part, models: Sequence[Model], every: int
) -> tuple[ReadEstimate, Model | None]:
    """Return what a method would read; and its model for the next step, if all passes are in the ledger."""
    route = part.route
    further = 0 if route.fallback is None else route.fallback.passes
    passes, samples = route.passes - further, route.sampling_passes
    exact = route.exact and (route.usual_passes or passes) == passes
    requests = (part.continued or part.passes)(models)
    try:
        request = next(requests)
    except StopIteration as finished:  # it learns nothing from the rows
        return NOTHING, finished.value
    if further and request.empty.allow_nan:  # values are known to be missing: only the fallback is left
        passes, exact, further = further, False, 0
    elif part.continued is not None and request.label != next(part.passes(models)).label:
        passes, samples = passes - samples, 0  # it continues from the last fit, and takes no sample
        if route.continuing_passes:
            passes, exact = route.continuing_passes, False
    least = most = passes * every
    number = 0
    while True:
        most -= runner.bytes_of(request)
        least -= every if number < samples else runner.bytes_of(request)
        full, unread = runner.remembered(request)
        if full is None:
            surely = max(least, 0) if exact else 0
            return ReadEstimate(unread + surely, unread + max(most, 0) + further * every), None
        if most <= 0 and part.last:  # a pass that refuses NaN has found no missing values
            return ReadEstimate(0, further * every if request.empty.allow_nan else 0), None
        try:
            request = requests.send(full)
        except StopIteration as finished:
            return NOTHING, finished.value
        number += 1


def estimate_transform_reads(
    source: Source,
    kind: RowOutput,
    models: Sequence[Model],
    unchanged_rows: int,
    axes: FeatureAxes | None = None,
) -> ReadEstimate:
    """Return how many bytes a transform by one of some models would read.

    `unchanged_rows` rows of an earlier output may be kept. Whether they are depends on the model: a sample of
    them is mapped again to measure its change.
    """
    views = [view_and_source(model, source, kind, axes)[1] for model in models] or [source]
    each = [_transform_reads(view, unchanged_rows) for view in views]
    return ReadEstimate(min(reads.least for reads in each), max(reads.most for reads in each))


def _transform_reads(source: Source, unchanged_rows: int) -> ReadEstimate:
    n_rows = source.spec.n_rows
    sample = source.stored_bytes([first_rows(source, unchanged_rows)])
    new, every = (source.stored_bytes([Span(start, n_rows)]) for start in (unchanged_rows, 0))
    return ReadEstimate(new + sample, every + sample)
