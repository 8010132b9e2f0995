"""The stages of a run as tasks of Prefect: one a stage, with paths and figures between them, never data."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ParamSpec, TypeVar

from streamdr.cli.supervisor import StageError
from streamdr.cli.worker import StageName, StageRequest, WorkerProcess
from streamdr.core.facts import Table
from streamdr.core.row_outputs import ROW_OUTPUTS
from streamdr.core.safe_text import lines, one_line
from streamdr.flows.parameters import Parameters
from streamdr.flows.prefect_progress import PrefectProgress
from streamdr.flows.prefect_setup import (
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
from streamdr.workflow import report_tables, report_text
from streamdr.workflow.reports import (
    CompareReport,
    FitReport,
    PlanReport,
    ReprocessReport,
    StagesReport,
    SummaryReport,
    TransformReport,
    VerifyReport,
)

RETRIES = 5
BACKOFF_SECONDS = 4
"""The first wait. Each is twice as long as the one before: two minutes in all."""

P = ParamSpec("P")
R = TypeVar("R")
Configured = dict[str, Any]
"""A configuration, as plain data."""
_ROWS = [kind.name for kind in ROW_OUTPUTS]


class StageRunner:
    """Carries out the stages of one run, in a worker process."""

    def __init__(
        self, worker: WorkerProcess, configurations: list[Configured], fresh: bool, storage: Mapping[str, Any]
    ) -> None:
        self._worker = worker
        self.configurations = configurations
        self._fresh = fresh
        self._storage = storage

    def of(self, configurations: list[Configured]) -> StageRunner:
        """The same for other configurations."""
        return StageRunner(self._worker, configurations, self._fresh, self._storage)

    def one_by_one(self) -> Iterator[StageRunner]:
        """The same for each configuration alone."""
        for configuration in self.configurations:
            yield self.of([configuration])

    def without_rows(self) -> StageRunner:
        """The same for the models alone."""
        none = dict.fromkeys(_ROWS)
        bare = [{**each, "output": {**each["output"], **none}} for each in self.configurations]
        return self.of(bare)

    @property
    def has_rows(self) -> bool:
        """Whether there is anything to transform to."""
        return any(self.configurations[0]["output"].get(kind) is not None for kind in _ROWS)

    def do(self, act: StageName, reports: StagesReport | None = None) -> Any:
        """Carry out a stage, with its progress shown on the page of the run, and return its report."""
        request = StageRequest(
            act, self.configurations, self._fresh, reports or StagesReport(), self._storage
        )
        with PrefectProgress(key=act) as gauge:
            return self._worker.run(request, gauge)


def run(
    work: Callable[[StageRunner], R],
    configurations: Sequence[Parameters],
    storage_block: str | None,
    fresh: bool,
) -> R | State[Any]:
    """What every flow does around its stages: a worker process, and a clear end when one of them fails."""
    try:
        storage = {} if storage_block is None else _storage(storage_block)
        with WorkerProcess() as worker:
            return work(StageRunner(worker, [each.root for each in configurations], fresh, storage))
    except StageError as error:
        # Two runs of one output are no failure of the second: the first does its work.
        end = Cancelled if error.kind == "BusyError" else Failed
        return end(message=one_line(" ".join(str(error).split())), data=error)


def _may_pass(task: Any, run: Any, state: State[Any]) -> bool:
    """Whether a stage that failed is worth another try."""
    error = state.result(raise_on_failure=False)
    return isinstance(error, StageError) and error.can_pass


def stage(name: str) -> Callable[[Callable[P, R]], Task[P, R]]:
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
def plan(runner: StageRunner) -> PlanReport:
    """Validate the configuration and the input, and say what a fit would do."""
    report: PlanReport = runner.do("plan")
    for line in filter(None, lines(report_text.planned(report)).split("\n")):
        get_run_logger().info(line)
    return report


@stage("fit")
def fit(runner: StageRunner) -> FitReport:
    """Fit the method, pass by pass, and publish the model."""
    report: FitReport = runner.do("fit")
    return report


@stage("transform")
def transform(runner: StageRunner) -> TransformReport:
    """Write the embedding, and what else is asked for of rows, going on where an interrupted run stopped."""
    report: TransformReport = runner.do("transform")
    return report


@stage("reprocess")
def reprocess(runner: StageRunner) -> ReprocessReport:
    """Bring what is stale up to date, for several configurations over one input."""
    report: ReprocessReport = runner.do("reprocess")
    return report


@stage("compare")
def compare(runner: StageRunner) -> CompareReport:
    """Bring every method of a comparison up to date, and write the table."""
    report: CompareReport = runner.do("compare")
    rows, about = report_tables.cells(report.rows), "What each method took, and how good it is."
    _show(lambda: create_table_artifact(table=rows, key="comparison", description=about))
    return report


@stage("verify")
def verify(runner: StageRunner) -> VerifyReport:
    """Check what was written against the input."""
    report: VerifyReport = runner.do("verify")
    checks = [{"check": one_line(name), "found": one_line(found)} for name, found in report.checks.items()]
    about = "What was checked once more after it was written."
    _show(lambda: create_table_artifact(table=checks, key="verified", description=about))
    return report


@stage("summarise")
def summarise(runner: StageRunner, reports: StagesReport) -> None:
    """Show what was found: what the model lists, and a page with the pictures."""
    report: SummaryReport = runner.do("summarise", reports)
    for table in report.tables:
        _show(partial(_show_table, table))
    _show(lambda: create_markdown_artifact(markdown=report.markdown, key="summary"))


def _show_table(table: Table) -> None:
    """Put what a model lists on the page of the run."""
    # The key of an artifact has small letters, digits and dashes only.
    key = re.sub(r"[^a-z0-9]+", "-", table.title.lower()).strip("-")
    rows = [
        {one_line(name): one_line(value) if isinstance(value, str) else value for name, value in row.items()}
        for row in table.records()
    ]
    create_table_artifact(table=rows, key=key, description=one_line(table.about or table.title))


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
