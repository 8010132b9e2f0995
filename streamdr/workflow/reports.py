"""The reports of commands and stages: one immutable type per report.

`to_json` is what `--json` prints. Between processes a report is sent with all its fields, as a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, TypeVar

from pydantic import TypeAdapter

from streamdr.core.facts import Fact, Table
from streamdr.data.examples.datasets import Denoising, Filling

T = TypeVar("T")
Json = dict[str, Any]


class Report(Protocol):
    """The result of a command or of a stage."""

    def to_json(self) -> Json:
        """Return the report as plain data, as `--json` prints it."""


def _without(fields: Json, name: str) -> Json:
    return {key: value for key, value in fields.items() if key != name}


def to_message(report: Any) -> Json:
    """Return all fields of a report, or of another dataclass, as plain data for another process."""
    return asdict(report)


def from_message(kind: type[T], message: Any) -> T:
    """Return the report of a message: the inverse of `to_message`."""
    made: T = TypeAdapter(kind).validate_python(message)
    return made


@dataclass(frozen=True)
class StepState:
    """Whether a step of a chain has to be fitted again, and what that would read."""

    name: str
    state: Literal["fresh", "stale"]
    reason: str
    bytes_to_read: int
    least_bytes_to_read: int


@dataclass(frozen=True)
class StageState:
    """Whether a stage is stale, what it would read, and whether an existing output stops it."""

    name: str
    state: Literal["fresh", "stale"]
    reason: str
    bytes_to_read: int
    least_bytes_to_read: int
    in_the_way: bool
    steps: tuple[StepState, ...] = ()
    """The steps of the chain that a fit fits; none for another method, and for other stages."""

    def to_json(self) -> Json:
        """Return the fields by name; without steps if there are none."""
        found = asdict(self)
        return {**found, "steps": list(found["steps"])} if self.steps else _without(found, "steps")


@dataclass(frozen=True)
class StatusReport:
    """Which stages are up to date."""

    stages: tuple[StageState, ...]

    def to_json(self) -> Json:
        """Return the report as plain data."""
        return {"command": "status", "stages": [stage.to_json() for stage in self.stages]}


@dataclass(frozen=True)
class Fallback:
    """The route that continues another one if a value is missing."""

    solver: str
    passes: int
    seconds: float


@dataclass(frozen=True)
class FitPlan:
    """What a fit will do, with its time and memory."""

    input: str
    n_rows: int
    n_cols: int
    n_left_out: int
    """The number of columns that are left out. If all rows must be read to know, as in the first rows."""
    dtype: str
    density: float | None
    """The share of the values that are stored, if rows are stored sparse."""
    solver: str
    reason: str
    workers: int
    counting_passes: int
    """The passes that count observed values, before the features are chosen: 0 or 1."""
    passes: int
    seconds: float
    """The time of the whole fit with the usual number of passes, on this machine."""
    least_seconds: float
    most_seconds: float
    """The same with the least and the largest number of passes."""
    speeds: str
    """Where the speeds come from: "measured now", "measured earlier", or "nominal"."""
    if_values_are_missing: Fallback | None
    axis: str
    block_rows: int
    block_columns: int
    block_bytes: int
    segments: int
    peak: int
    limit: int
    parts: Mapping[str, int]
    """The parts of the peak, in bytes."""
    fits: bool

    def to_json(self) -> Json:
        """Return the fields by name. Only sparse rows have a density."""
        return {name: value for name, value in asdict(self).items() if name != "density" or value is not None}


@dataclass(frozen=True)
class OutputPlan:
    """How an output of rows will be written, with its peak memory."""

    title: str
    peak: int
    workers: int
    axis: str
    seconds: float
    """The time to write all of its rows, on this machine."""


@dataclass(frozen=True)
class Predicted:
    """How long a run will take: its stages that are stale, as far as they can be planned."""

    seconds: float
    """With the usual number of passes, without the start of Python."""
    least_seconds: float
    most_seconds: float
    fit_seconds: float
    output_seconds: Mapping[str, float]
    start_seconds: float
    """The start of Python, and imports."""
    speeds: str
    """Where the speeds come from: "measured now", "measured earlier", or "nominal"."""
    problem: str
    """Why measured speeds could not be kept; empty if they are."""


@dataclass(frozen=True)
class PlanReport:
    """What a run will do: its fit, its outputs of rows as far as they can be planned, and what is stale."""

    fit: FitPlan
    transforms: Mapping[str, OutputPlan]
    up_to_date: bool
    stages: tuple[StageState, ...]
    predicted: Predicted

    def to_json(self) -> Json:
        """Return the report as plain data. The plan of the fit is at the top level."""
        return {
            "command": "plan",
            **self.fit.to_json(),
            "transforms": {name: asdict(each) for name, each in self.transforms.items()},
            "up_to_date": self.up_to_date,
            "stages": [stage.to_json() for stage in self.stages],
            "predicted": asdict(self.predicted),
        }


@dataclass(frozen=True)
class FitPlanned:
    """The plan that a fit followed."""

    workers: int
    planned_peak: int
    memory_limit: int
    reason: str


@dataclass(frozen=True)
class FitReport:
    """The result of a fit."""

    n_rows: int
    n_cols: int
    n_left_out: int
    """The number of columns that the model leaves out."""
    method: str
    summary: Mapping[str, Any]
    """The summary of the model, for programs."""
    bytes_read: int
    seconds: float
    peak_rss: int
    model: str
    reused: bool
    because: str
    planned: FitPlanned | None
    """None where the model was up to date."""
    facts: tuple[Fact, ...]
    """The facts of the model, for people."""
    tables: tuple[Table, ...]

    def to_json(self) -> Json:
        """Return the report as plain data."""
        return {
            "command": "fit",
            "n_rows": self.n_rows,
            "n_cols": self.n_cols,
            "n_left_out": self.n_left_out,
            "method": self.method,
            "summary": dict(self.summary),
            "bytes_read": self.bytes_read,
            "seconds": self.seconds,
            "peak_rss": self.peak_rss,
            "model": self.model,
            "reused": self.reused,
            "because": self.because,
            **({} if self.planned is None else asdict(self.planned)),
        }


@dataclass(frozen=True)
class RowsReport:
    """The result of one output with one row per input row."""

    title: str
    path: str
    n_rows: int
    n_outputs: int
    rows_written: int
    bytes_read: int
    seconds: float
    peak_rss: int
    reused: bool
    because: str
    model_moved: float | None = None
    """How far the model has moved from the existing rows; None where that was not measured."""
    errors: Filling | Denoising | None = None
    """The errors of the rows, if the input is an example whose true values are available."""

    def to_json(self) -> Json:
        """Return the report as plain data."""
        found = {
            "title": self.title,
            "path": self.path,
            "n_rows": self.n_rows,
            "n_outputs": self.n_outputs,
            "rows_written": self.rows_written,
            "bytes_read": self.bytes_read,
            "seconds": self.seconds,
            "peak_rss": self.peak_rss,
            "reused": self.reused,
            "because": self.because,
        }
        if not self.reused:
            found["model_moved"] = self.model_moved
        if self.errors is not None:
            found[self.errors.name] = asdict(self.errors)
        return found


@dataclass(frozen=True)
class TransformReport:
    """The result of a transform: of each output, and in total."""

    peak_rss: int
    model: str
    embedding: str | None
    outputs: Mapping[str, RowsReport]

    @property
    def n_rows(self) -> int:
        """The number of rows of the input."""
        return max(report.n_rows for report in self.outputs.values())

    @property
    def bytes_read(self) -> int:
        """The bytes read for all outputs."""
        return sum(report.bytes_read for report in self.outputs.values())

    @property
    def seconds(self) -> float:
        """The time for all outputs."""
        return sum(report.seconds for report in self.outputs.values())

    @property
    def reused(self) -> bool:
        """Whether all outputs were up to date."""
        return all(report.reused for report in self.outputs.values())

    def to_json(self) -> Json:
        """Return the report as plain data. Some values of the embedding, if any, are at the top level."""
        outputs = {name: report.to_json() for name, report in self.outputs.items()}
        embedding = outputs.get("embedding", {})
        repeated = ("n_outputs", "rows_written", "because", "model_moved")
        return {
            "command": "transform",
            "n_rows": self.n_rows,
            **{key: embedding[key] for key in repeated if key in embedding},
            "bytes_read": self.bytes_read,
            "seconds": self.seconds,
            "peak_rss": self.peak_rss,
            "model": self.model,
            "embedding": self.embedding,
            "reused": self.reused,
            "outputs": outputs,
        }


@dataclass(frozen=True)
class RunReport:
    """The results of the stages of a run."""

    peak_rss: int
    model: str
    embedding: str | None
    fit: FitReport
    transform: TransformReport | None

    @property
    def n_rows(self) -> int:
        """The number of rows of the input."""
        return self.fit.n_rows

    @property
    def bytes_read(self) -> int:
        """The bytes read by all stages."""
        return self.fit.bytes_read + (0 if self.transform is None else self.transform.bytes_read)

    @property
    def seconds(self) -> float:
        """The time for all stages."""
        return self.fit.seconds + (0 if self.transform is None else self.transform.seconds)

    @property
    def reused(self) -> bool:
        """Whether all outputs were up to date."""
        return self.fit.reused and (self.transform is None or self.transform.reused)

    def to_json(self) -> Json:
        """Return the report as plain data."""
        return {
            "command": "run",
            "n_rows": self.n_rows,
            "bytes_read": self.bytes_read,
            "seconds": self.seconds,
            "peak_rss": self.peak_rss,
            "model": self.model,
            "embedding": self.embedding,
            "reused": self.reused,
            "fit": self.fit.to_json(),
            **({} if self.transform is None else {"transform": self.transform.to_json()}),
        }


@dataclass(frozen=True)
class ConfigurationRun:
    """The run of one of several configurations."""

    config: str | None
    """The file of the configuration."""
    run: RunReport

    def to_json(self) -> Json:
        """Return the report of the run as plain data, with the name of the file."""
        return {"config": self.config, **self.run.to_json()}


@dataclass(frozen=True)
class ReprocessReport:
    """The results of several configurations."""

    peak_rss: int
    runs: tuple[ConfigurationRun, ...]

    @property
    def bytes_read(self) -> int:
        """The bytes read by all runs."""
        return sum(each.run.bytes_read for each in self.runs)

    @property
    def seconds(self) -> float:
        """The time for all runs."""
        return sum(each.run.seconds for each in self.runs)

    @property
    def reused(self) -> bool:
        """Whether all outputs were up to date."""
        return all(each.run.reused for each in self.runs)

    def to_json(self) -> Json:
        """Return the report as plain data."""
        return {
            "command": "reprocess",
            "bytes_read": self.bytes_read,
            "seconds": self.seconds,
            "peak_rss": self.peak_rss,
            "reused": self.reused,
            "runs": [each.to_json() for each in self.runs],
        }


@dataclass(frozen=True)
class VerifyReport:
    """The checks that the outputs passed."""

    n_rows: int
    sampled_rows: int
    bytes_read: int
    seconds: float
    model: str
    model_digest: str
    embedding: str | None
    outputs: Mapping[str, str]
    reconstruction_error: float | None
    checks: Mapping[str, str]
    """The result of each check, by the name of what was checked."""

    def to_json(self) -> Json:
        """Return the report as plain data."""
        return {"command": "verify", **asdict(self)}


@dataclass(frozen=True)
class StagesReport:
    """The reports of the stages of a flow; None for stages that did not run."""

    plan: PlanReport | None = None
    fit: FitReport | None = None
    transform: TransformReport | None = None
    verify: VerifyReport | None = None

    def to_json(self) -> Json:
        """Return the reports as plain data, by the names of the stages."""
        stages = {"plan": self.plan, "fit": self.fit, "transform": self.transform, "verify": self.verify}
        return {name: report.to_json() for name, report in stages.items() if report is not None}


@dataclass(frozen=True)
class SummaryReport:
    """The summary of a run: the tables of its model, and a page in Markdown."""

    tables: tuple[Table, ...]
    markdown: str

    def to_json(self) -> Json:
        """Return the report as plain data."""
        return {
            "command": "summarise",
            "tables": {table.title: table.records() for table in self.tables},
            "markdown": self.markdown,
        }


@dataclass(frozen=True)
class MeasuredSample:
    """The rows that embeddings are measured on."""

    rows: int
    accuracy: float | None
    """The share of rows that have the class of their nearest neighbour in the input; None without classes."""


@dataclass(frozen=True)
class ComparedMethod:
    """The cost of a method, and the measures of its embedding. The cost is None where it was not recorded."""

    name: str
    method: str
    parameters: Mapping[str, Any]
    """The parameters that differ from their defaults."""
    n_outputs: int
    trustworthiness: float | None
    stress: float | None
    accuracy: float | None
    seconds: float | None
    bytes_read: int | None
    peak_rss: int | None
    model: str
    embedding: str | None
    reused: bool

    def to_json(self) -> Json:
        """Return the fields by name."""
        return asdict(self)


@dataclass(frozen=True)
class CompareReport:
    """The result of a comparison of several methods on one input."""

    input: str
    n_rows: int
    n_cols: int
    sample: MeasuredSample
    rows: tuple[ComparedMethod, ...]
    tables: tuple[str, ...]
    """The files that were written."""
    bytes_read: int
    reused: bool

    def to_json(self) -> Json:
        """Return the report as plain data."""
        return {
            "command": "compare",
            "input": self.input,
            "n_rows": self.n_rows,
            "n_cols": self.n_cols,
            "sample": asdict(self.sample),
            "rows": [row.to_json() for row in self.rows],
            "tables": list(self.tables),
            "bytes_read": self.bytes_read,
            "reused": self.reused,
        }


@dataclass(frozen=True)
class PlotReport:
    """The result of a plot: what was drawn, and where it is."""

    kind: str
    path: str
    bytes: int
    model: str
    method: str

    def to_json(self) -> Json:
        """Return the report as plain data."""
        return {"command": "plot", **asdict(self)}


@dataclass(frozen=True)
class ExportReport:
    """The result of an export: what was written, and where it is."""

    path: str
    bytes: int
    model: str
    method: str
    dtype: str
    opset: int
    n_features: int
    outputs: tuple[str, ...]

    def to_json(self) -> Json:
        """Return the report as plain data."""
        return {"command": "export", **asdict(self), "outputs": list(self.outputs)}
