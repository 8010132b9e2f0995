"""The stages of a run as tasks of Prefect: one a stage, with paths and figures between them, never data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ParamSpec

from form import Form
from gauge import Gauge
from orchestra import (
    NO_CACHE,
    Block,
    Cancelled,
    Failed,
    State,
    Task,
    create_markdown_artifact,
    create_table_artifact,
    exponential_backoff,
    get_run_logger,
    task,
)

from streamdr import tabulation, terminal
from streamdr.methods.rows import ROW_OUTPUTS
from streamdr.reports import Report
from streamdr.safe_text import lines, one_line
from streamdr.workshop import Act, Order, StageError, Workshop

RETRIES = 5
BACKOFF_SECONDS = 4
"""The first wait. Each is twice as long as the one before: two minutes in all."""

P = ParamSpec("P")
_ROWS = [kind.name for kind in ROW_OUTPUTS]


class Bench:
    """Where the stages of one run are carried out, and what they are about."""

    def __init__(
        self, workshop: Workshop, configurations: list[Report], fresh: bool, storage: Mapping[str, Any]
    ) -> None:
        self._workshop = workshop
        self.configurations = configurations
        self._fresh = fresh
        self._storage = storage

    def of(self, configurations: list[Report]) -> Bench:
        """The same for other configurations."""
        return Bench(self._workshop, configurations, self._fresh, self._storage)

    def one_by_one(self) -> Iterator[Bench]:
        """The same for each configuration alone."""
        for configuration in self.configurations:
            yield self.of([configuration])

    def without_rows(self) -> Bench:
        """The same for the models alone."""
        none = dict.fromkeys(_ROWS)
        bare = [{**each, "output": {**each["output"], **none}} for each in self.configurations]
        return self.of(bare)

    @property
    def has_rows(self) -> bool:
        """Whether there is anything to transform to."""
        return any(self.configurations[0]["output"].get(kind) is not None for kind in _ROWS)

    def do(self, act: Act, reports: Mapping[str, Report] | None = None) -> Report:
        """Carry out a stage, with its progress shown on the page of the run."""
        order = Order(act, self.configurations, self._fresh, reports or {}, self._storage)
        with Gauge(key=act) as gauge:
            return self._workshop.carry_out(order, gauge)


def run(
    work: Callable[[Bench], Report],
    configurations: Sequence[Form],
    storage_block: str | None,
    fresh: bool,
) -> Report | State[Any]:
    """What every flow does around its stages: a workshop, and a clear end when one of them fails."""
    try:
        storage = {} if storage_block is None else _storage(storage_block)
        with Workshop() as workshop:
            return work(Bench(workshop, [each.root for each in configurations], fresh, storage))
    except StageError as error:
        # Two runs of one output are no failure of the second: the first does its work.
        end = Cancelled if error.kind == "BusyError" else Failed
        return end(message=one_line(" ".join(str(error).split())), data=error)


def _may_pass(task: Any, run: Any, state: State[Any]) -> bool:
    """Whether a stage that failed is worth another try."""
    error = state.result(raise_on_failure=False)
    return isinstance(error, StageError) and error.can_pass


def stage(name: str) -> Callable[[Callable[P, Report]], Task[P, Report]]:
    """A task that is tried again, after longer and longer waits, when what stopped it can pass."""
    return task(
        name=name,
        retries=RETRIES,
        retry_delay_seconds=exponential_backoff(backoff_factor=BACKOFF_SECONDS),
        retry_jitter_factor=0.2,
        retry_condition_fn=_may_pass,
        cache_policy=NO_CACHE,
        persist_result=False,
    )


@stage("plan")
def plan(bench: Bench) -> Report:
    """Validate the configuration and the input, and say what a fit would do."""
    report = bench.do("plan")
    for line in filter(None, lines(terminal.planned(report)).split("\n")):
        get_run_logger().info(line)
    return report


@stage("fit")
def fit(bench: Bench) -> Report:
    """Fit the method, pass by pass, and publish the model."""
    return bench.do("fit")


@stage("transform")
def transform(bench: Bench) -> Report:
    """Write the embedding, and what else is asked for of rows, going on where an interrupted run stopped."""
    return bench.do("transform")


@stage("reprocess")
def reprocess(bench: Bench) -> Report:
    """Bring what is stale up to date, for several configurations over one input."""
    return bench.do("reprocess")


@stage("compare")
def compare(bench: Bench) -> Report:
    """Bring every method of a comparison up to date, and write the table."""
    report = bench.do("compare")
    rows, about = tabulation.cells(report["rows"]), "What each method took, and how good it is."
    _show(lambda: create_table_artifact(table=rows, key="comparison", description=about))
    return report


@stage("verify")
def verify(bench: Bench) -> Report:
    """Check what was written against the input."""
    report = bench.do("verify")
    checks = [{"check": one_line(name), "found": one_line(found)} for name, found in report["checks"].items()]
    about = "What was checked once more after it was written."
    _show(lambda: create_table_artifact(table=checks, key="verified", description=about))
    return report


@stage("summarise")
def summarise(bench: Bench, reports: Mapping[str, Report]) -> Report:
    """Show what was found: a table, and a page with the pictures."""
    report = bench.do("summarise", reports)
    table, about = report["table"], "What each component explains."
    if table:
        _show(lambda: create_table_artifact(table=table, key="explained-variance", description=about))
    _show(lambda: create_markdown_artifact(markdown=report["markdown"], key="summary"))
    return {"components": len(table)}


def _show(create: Callable[[], object]) -> None:
    """Put something on the page of the run. The work is done, whether or not there is a server to show it."""
    try:
        create()
    except Exception as error:
        get_run_logger().warning("could not be shown: %s", one_line(str(error)))


def _storage(block: str) -> Mapping[str, Any]:
    """The settings that a block holds: those of a remote file system, or a secret that is a mapping."""
    try:
        document: Any = Block.load(block)
    except ValueError as error:
        message = f"storage_block: {block!r} cannot be loaded: {error}; name it as TYPE/NAME"
        raise StageError("ConfigError", message, exit_code=2, can_pass=False) from error
    held = document.get() if hasattr(document, "get") else getattr(document, "settings", None)
    if not isinstance(held, Mapping):
        message = (
            f"storage_block: {block!r} holds no settings; use a remote-file-system block, or a secret block "
            "whose value is a JSON object"
        )
        raise StageError("ConfigError", message, exit_code=2, can_pass=False)
    return {str(name): _plain(value) for name, value in held.items()}


def _plain(value: Any) -> Any:
    return value.get_secret_value() if hasattr(value, "get_secret_value") else value
