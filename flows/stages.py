"""The stages of a run as Prefect tasks, one per stage. Tasks exchange paths and reports, never data."""

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
"""The first wait. Each wait is twice as long as the one before: two minutes in total."""

P = ParamSpec("P")
R = TypeVar("R")
Configured = dict[str, Any]
"""A configuration as plain data."""
_ROWS = [*(kind.name for kind in ROW_OUTPUTS), "steps"]


class StageRunner:
    """Runs the stages of one run in a worker process."""

    def __init__(
        self, worker: WorkerProcess, configurations: list[Configured], fresh: bool, storage: Mapping[str, Any]
    ) -> None:
        self._worker = worker
        self.configurations = configurations
        self._fresh = fresh
        self._storage = storage

    def with_configurations(self, configurations: list[Configured]) -> StageRunner:
        """Return a runner for other configurations, with the same worker process."""
        return StageRunner(self._worker, configurations, self._fresh, self._storage)

    def one_by_one(self) -> Iterator[StageRunner]:
        """Yield a runner for each configuration."""
        for configuration in self.configurations:
            yield self.with_configurations([configuration])

    def without_rows(self) -> StageRunner:
        """Return a runner for the models alone, without outputs of rows."""
        none = dict.fromkeys(_ROWS)
        models = [{**each, "output": {**each["output"], **none}} for each in self.configurations]
        return self.with_configurations(models)

    @property
    def has_rows(self) -> bool:
        """Whether any output of rows is configured."""
        return any(self.configurations[0]["output"].get(kind) for kind in _ROWS)

    def do(self, act: StageName, reports: StagesReport | None = None) -> Any:
        """Run a stage, show its progress on the page of the run, and return its report."""
        request = StageRequest(
            act, self.configurations, self._fresh, reports or StagesReport(), self._storage
        )
        with PrefectProgress(key=act) as progress:
            return self._worker.run(request, progress)


def run(
    work: Callable[[StageRunner], R],
    configurations: Sequence[Parameters],
    storage_block: str | None,
    fresh: bool,
) -> R | State[Any]:
    """Run the stages of a flow in a worker process, and return its final state if one of them fails."""
    try:
        storage = {} if storage_block is None else _storage(storage_block)
        with WorkerProcess() as worker:
            return work(StageRunner(worker, [each.root for each in configurations], fresh, storage))
    except StageError as error:
        # A second run of one output is cancelled, not failed: the first run does its work.
        end = Cancelled if error.kind == "BusyError" else Failed
        return end(message=one_line(" ".join(str(error).split())), data=error)


def _may_pass(task: Any, run: Any, state: State[Any]) -> bool:
    """Whether a stage that failed is retried."""
    error = state.result(raise_on_failure=False)
    return isinstance(error, StageError) and error.can_pass


def stage(name: str) -> Callable[[Callable[P, R]], Task[P, R]]:
    """Return a decorator for a task that is retried, with growing waits, after transient errors."""
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
    """Validate the configuration and the input, and log what a fit would do."""
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
    """Write the outputs of rows, and continue where an interrupted run stopped."""
    report: TransformReport = runner.do("transform")
    return report


@stage("reprocess")
def reprocess(runner: StageRunner) -> ReprocessReport:
    """Bring stale outputs up to date, for several configurations on one input."""
    report: ReprocessReport = runner.do("reprocess")
    return report


@stage("compare")
def compare(runner: StageRunner) -> CompareReport:
    """Bring every method of a comparison up to date, and write the table."""
    report: CompareReport = runner.do("compare")
    rows, about = (
        report_tables.cells(report.rows),
        "The cost of each method, and the measures of its embedding.",
    )
    _show(lambda: create_table_artifact(table=rows, key="comparison", description=about))
    return report


@stage("verify")
def verify(runner: StageRunner) -> VerifyReport:
    """Check what was written against the input."""
    report: VerifyReport = runner.do("verify")
    checks = [{"check": one_line(name), "found": one_line(found)} for name, found in report.checks.items()]
    about = "The checks of the outputs after they were written."
    _show(lambda: create_table_artifact(table=checks, key="verified", description=about))
    return report


@stage("summarise")
def summarise(runner: StageRunner, reports: StagesReport) -> None:
    """Show the tables of the model, and a page with its plots."""
    report: SummaryReport = runner.do("summarise", reports)
    for table in report.tables:
        _show(partial(_show_table, table))
    _show(lambda: create_markdown_artifact(markdown=report.markdown, key="summary"))


def _show_table(table: Table) -> None:
    """Show a table of a model on the page of the run."""
    # The key of an artifact has lower-case letters, digits and dashes only.
    key = re.sub(r"[^a-z0-9]+", "-", table.title.lower()).strip("-")
    rows = [
        {one_line(name): one_line(value) if isinstance(value, str) else value for name, value in row.items()}
        for row in table.records()
    ]
    create_table_artifact(table=rows, key=key, description=one_line(table.about or table.title))


def _show(create: Callable[[], object]) -> None:
    """Create an artifact on the page of the run. A failure is only a warning, because the work is done."""
    try:
        create()
    except Exception as error:
        get_run_logger().warning("could not be shown: %s", one_line(str(error)))


def _storage(block: str) -> Mapping[str, Any]:
    """Return the settings in a block: of a remote file system, or of a secret that is a mapping."""
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
