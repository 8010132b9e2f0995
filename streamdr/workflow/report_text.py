"""Plans, reports and inspections as plain text for people, which can be piped and searched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from streamdr.core.byte_sizes import format_bytes, format_seconds
from streamdr.core.safe_text import one_line
from streamdr.workflow import report_tables

if TYPE_CHECKING:  # commands import on demand, so that `--help` is fast
    from streamdr.core.facts import Column, Fact, Table, Value
    from streamdr.data.ingest import IngestReport
    from streamdr.workflow.findings import (
        ArrayInspection,
        FoundArray,
        MatrixInspection,
        MissingChunks,
        ModelInspection,
        RowsInspection,
        StoreInspection,
        TableInspection,
    )
    from streamdr.workflow.reports import (
        CompareReport,
        ExportReport,
        FitPlan,
        FitReport,
        OutputPlan,
        PlanReport,
        PlotReport,
        Predicted,
        ReprocessReport,
        RowsReport,
        RunReport,
        StagesReport,
        StageState,
        StepState,
        TransformReport,
        VerifyReport,
    )

_BAR = 24
_LISTED = 20
_PERCENT = len("100.000%")
_RANGE = 1.1
"""A range of times is told if its ends differ by more than this factor."""


def plan(fit: FitPlan, transforms: Mapping[str, OutputPlan] = MappingProxyType({})) -> str:
    """Return what a fit will do and why, with the time and memory of the fit and of the outputs of rows."""
    block = f"{fit.block_rows:,} x {fit.block_columns:,} ({format_bytes(fit.block_bytes)})"
    fallback = fit.if_values_are_missing
    most = fit.passes - (fallback.passes if fallback else 0)
    passes = "1 pass" if most == 1 else f"at most {most} passes"
    missing = []
    if fallback:
        further = f"{fallback.solver}, at most {fallback.passes} more passes"
        missing = [("if missing", f"{further}, {format_seconds(fallback.seconds)}")]
    if fit.counting_passes:
        passes = f"1 pass that counts observed values, then {passes}"
    used = fit.n_cols - fit.n_left_out
    features = f"{used:,} of {fit.n_cols:,}, {fit.n_left_out:,} left out" if fit.n_left_out else None
    parts = [(name, format_bytes(size)) for name, size in fit.parts.items() if size]
    return _listing(
        "plan",
        [
            ("input", f"{fit.input}, {fit.n_rows:,} x {fit.n_cols:,} {fit.dtype}{_sparse(fit.density)}"),
            ("features", features),
            ("solver", fit.reason),
            ("work", f"{passes} over the {fit.axis}, {_count(fit.workers, 'worker')}"),
            ("time", _time(fit)),
            *missing,
            ("blocks", f"{block} each, in {_count(fit.segments, 'segment')}"),
            ("memory", f"{format_bytes(fit.peak)} at the peak, limit {format_bytes(fit.limit)}"),
            *((f"  {name}", size) for name, size in parts),
            *((_output(name), _mapping(each)) for name, each in transforms.items()),
        ],
    )


def _mapping(transform: OutputPlan) -> str:
    how = f"by {transform.axis}, {_count(transform.workers, 'worker')}"
    return f"{format_bytes(transform.peak)} at the peak, {how}, {format_seconds(transform.seconds)}"


def _time(fit: FitPlan) -> str:
    """Return how long a fit will take, with its range where the number of passes is not known."""
    time = format_seconds(fit.seconds)
    if fit.most_seconds > _RANGE * fit.least_seconds and fit.most_seconds >= 1:
        least, most = format_seconds(fit.least_seconds), format_seconds(fit.most_seconds)
        time += (
            f", from {least.removeprefix('about ')} to {most.removeprefix('about ')} by the number of passes"
        )
    return time + (", by nominal speeds" if fit.speeds == "nominal" else ", by the speeds of this machine")


def _run_time(found: Predicted) -> list[tuple[str, str]]:
    """Return how long all stale stages will take, and by which speeds."""
    speeds = {
        "measured now": "by the speeds of this machine, which were measured just now",
        "measured earlier": "by the speeds of this machine, as measured earlier",
        "nominal": "by nominal speeds",
    }[found.speeds]
    time = format_seconds(found.seconds) if found.seconds else "nothing to do"
    rows = [("run", f"{time}, after a start of {found.start_seconds:.1f} s; {speeds}")]
    if found.problem:
        rows.append(("", f"the speeds could not be kept, and are measured each time: {found.problem}"))
    return rows


def planned(report: PlanReport) -> str:
    """Return the plan, and which of its stages are stale."""
    stages = [*_stages(report.stages), *_run_time(report.predicted)]
    return f"{plan(report.fit, report.transforms)}\n\n{_listing('stages', stages)}"


def _stages(stages: Sequence[StageState]) -> list[tuple[str, str]]:
    """Return the state of each stage, and below it those of its steps."""
    found = []
    for stage in stages:
        found.append((stage.name, _stage(stage)))
        found += [(f"  {step.name}", _step(step)) for step in stage.steps]
    return found


def _step(step: StepState) -> str:
    reads = _reads(step.least_bytes_to_read, step.bytes_to_read, "if it takes more passes")
    return f"{step.state}: {step.reason}; reads {reads}"


def _stage(stage: StageState) -> str:
    if stage.state == "fresh":
        return f"fresh: {stage.reason}"
    more = "if it takes more passes" if stage.name == "fit" else "if the model moves"
    reads = _reads(stage.least_bytes_to_read, stage.bytes_to_read, more)
    way = "; `run` needs output.overwrite, `reprocess` does not" if stage.in_the_way else ""
    return f"stale: {stage.reason}; reads {reads}{way}"


def _reads(least_bytes: int, most_bytes: int, more: str) -> str:
    least, most = (format_bytes(size) if size else "nothing" for size in (least_bytes, most_bytes))
    return least if least == most else f"{least}, or {most} at most {more}"


def fitted(report: FitReport) -> str:
    """Return the result of a fit, its cost, and where the model is."""
    heading = f"{report.method} of {report.n_rows:,} x {report.n_cols:,}"
    facts = [*_facts(report.facts), *_effort(report), ("model", report.model)]
    return _listing(heading, facts) + _tables(report.tables)


def transformed(report: TransformReport) -> str:
    """Return the outputs of a transform and their costs, one after the other."""
    return "\n\n".join(_written(kind, each) for kind, each in report.outputs.items())


def _output(key: str) -> str:
    """Return the name of an output for people. A step keeps the name that it was given."""
    return key if key.startswith("steps.") else key.replace("_", " ")


def _written(kind: str, report: RowsReport) -> str:
    heading = f"{report.title} of {report.n_rows:,} rows, {_count(report.n_outputs, 'column')}"
    text = _listing(heading, [*_effort(report), (_output(kind), report.path)])
    if report.errors is None:
        return text
    return f"{text}\n\n{_errors(report.errors.of, report.errors.rms_error)}"


def _errors(of: str, errors: Mapping[str, float]) -> str:
    """Return the errors of several methods, as bars."""
    longest, width = max(errors.values()), max(map(len, errors))
    lines = [one_line(f"root mean square error of {of}")]
    for name, error in errors.items():
        lines.append(f"  {name:<{width}}  {error:>8.4g}  {_bar(error, longest)}")
    return "\n".join(lines)


def ran(report: RunReport | StagesReport) -> str:
    """Return the reports of the stages of a run."""
    texts = [] if report.fit is None else [fitted(report.fit)]
    if report.transform is not None:
        texts.append(transformed(report.transform))
    return "\n\n".join(texts)


def reprocessed(report: ReprocessReport) -> str:
    """Return the reports of several configurations, and their total cost."""
    texts = [f"{one_line(str(each.config))}\n\n{ran(each.run)}" for each in report.runs]
    effort = f"{format_bytes(report.bytes_read)} in {report.seconds:.1f} s"
    return "\n\n".join([*texts, _listing("in total", [("read", effort)])])


def compared(report: CompareReport) -> str:
    """Return the table of a comparison, one row per method."""
    sample = report.sample
    shape = f"{report.n_rows:,} x {report.n_cols:,}"
    heading = f"{_count(len(report.rows), 'method')} on {report.input}, {shape}"
    facts = [("measured", f"by {sample.rows:,} rows")]
    if sample.accuracy is not None:
        facts.append(("1-NN accuracy", f"{sample.accuracy:.1%} in the input itself"))
    read = format_bytes(report.bytes_read) if report.bytes_read else "nothing: everything was up to date"
    facts += [("read", read), *(("table", path) for path in report.tables)]
    return f"{report_tables.text(report.rows)}\n\n{_listing(heading, facts)}"


def verified(report: VerifyReport) -> str:
    """Return the checks that the outputs passed."""
    return _listing("all checks passed", list(report.checks.items()))


def ingested(report: IngestReport) -> str:
    """Return the shape, the layout and the cost of what was ingested."""
    appended = report.appended_rows
    return _listing(
        f"{report.n_rows:,} x {report.n_cols:,} {report.dtype}",
        [
            ("chunks", _lengths(report.chunks)),
            ("appended", f"{appended:,} rows" if appended < report.n_rows else None),
            ("labels", f"column {report.labels!r}" if report.labels is not None else None),
            ("left out", ", ".join(map(repr, report.left_out)) or None),
            ("written", f"{format_bytes(report.bytes_written)} in {report.seconds:.1f} s"),
            ("store", str(report.path)),
        ],
    )


def plotted(report: PlotReport) -> str:
    """Return what was drawn, and where it is."""
    return _listing(
        f"{report.kind.replace('_', ' ')} of a {report.method} model",
        [("model", report.model), ("picture", f"{report.path}, {format_bytes(report.bytes)}")],
    )


def exported(report: ExportReport) -> str:
    """Return what was exported, and where it is."""
    return _listing(
        f"{report.method} model of {report.n_features:,} features as ONNX",
        [
            ("model", report.model),
            ("file", f"{report.path}, {format_bytes(report.bytes)}"),
            ("type", f"{report.dtype}, opset {report.opset}"),
            ("outputs", ", ".join(report.outputs)),
        ],
    )


def inspected(found: ModelInspection | RowsInspection | StoreInspection) -> str:
    """Return what `inspect` found at a path."""
    from streamdr.workflow.findings import ModelInspection, RowsInspection

    if isinstance(found, ModelInspection):
        return _model(found)
    if isinstance(found, RowsInspection):
        return _rows(found)
    origin = f", {found.origin}" if found.origin else ""
    arrays = [_found_array(array) for array in found.arrays]
    return "\n\n".join([one_line(f"{found.path}: {found.kind}{origin}"), *arrays])


def _model(found: ModelInspection) -> str:
    facts = [
        ("method", found.method),
        *_parameters(found),
        ("maps", f"{found.n_features:,} features to {found.n_outputs:,}"),
        *_facts(found.facts),
        (
            "input",
            f"{found.n_rows:,} rows" if found.input is None else f"{found.input}, {found.n_rows:,} rows",
        ),
        ("written", f"{found.created} by streamdr {found.version}, all digests verified"),
    ]
    return _listing(f"{found.path}: streamdr model", facts) + _tables(found.tables)


def _parameters(found: ModelInspection) -> list[tuple[str, str]]:
    """Return the parameters on one line; of a chain, on one line for each step."""
    steps = found.parameters.get("steps") if found.method == "chain" else None
    if steps is None:
        return [("parameters", _assignments(found.parameters))]
    lines = []
    for number, step in enumerate(steps, start=1):
        own = {key: value for key, value in step.items() if key not in ("name", "as")}
        alias = "" if step["as"] == step["name"] else f" as {step['as']}"
        lines.append((f"step {number}", f"{step['name']}{alias}{': ' if own else ''}{_assignments(own)}"))
    return lines


def _assignments(parameters: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in parameters.items())


def _rows(found: RowsInspection) -> str:
    return _listing(
        f"{found.path}: streamdr {found.kind}",
        [
            ("array", f"{_lengths(found.shape)} {found.dtype}"),
            ("dimensions", ", ".join(found.dims)),
            ("chunks", f"{_lengths(found.chunks)}, none missing"),
            ("on disk", format_bytes(found.stored_bytes)),
            ("model", f"{found.model} ({found.method})"),
            ("step", found.step),
            ("written", f"{found.created} by streamdr {found.version}"),
        ],
    )


def _found_array(found: FoundArray) -> str:
    from streamdr.workflow.findings import (
        LabelsInspection,
        MatrixInspection,
        TableInspection,
        UnusableArray,
    )

    if isinstance(found, LabelsInspection):
        return _listing(found.name, [("labels", f"{found.labels:,}, text; input.labels can name them")])
    if isinstance(found, UnusableArray):
        return _listing(found.name, [("cannot be used", found.problem)])
    if isinstance(found, MatrixInspection):
        return _matrix(found)
    return _table_of(found) if isinstance(found, TableInspection) else _array(found)


def _matrix(found: MatrixInspection) -> str:
    shape = f"{found.n_rows:,} x {found.n_cols:,}"
    facts = [
        ("sparse matrix", f"{shape} {found.dtype}, by {found.order} ({found.format})"),
        ("density", f"{found.density:.2%}: {found.stored_values:,} values"),
        ("on disk", format_bytes(found.stored_bytes)),
        ("missing", None if found.missing is None else _missing(found.missing)),
    ]
    return _listing(found.name, facts)


def _table_of(found: TableInspection) -> str:
    names = ", ".join(found.first) + (", ..." if found.n_rows > len(found.first) else "")
    facts = [
        ("names", f"{found.n_rows:,}: {names}"),
        ("columns", ", ".join(found.columns) or "none"),
    ]
    return _listing(found.name, facts)


def _array(found: ArrayInspection) -> str:
    facts = [("array", f"{_lengths(found.shape)} {found.dtype}, {format_bytes(found.bytes)}")]
    if found.stale_copy:
        old = " x ".join(map(str, found.stale_copy))
        facts.append(
            ("stale", f"{old} to zarr and xarray, until zarr.consolidate_metadata is run on the group")
        )
    if found.dims:
        facts.append(("dimensions", ", ".join(str(dim) for dim in found.dims)))
    if found.chunks:
        facts.append(("chunks", _lengths(found.chunks)))
    if found.shards:
        facts.append(("shards", _lengths(found.shards)))
    if found.codecs:
        facts.append(("codecs", f"{', '.join(found.codecs)} (zarr v{found.zarr_format})"))
    facts.append(("on disk", format_bytes(found.stored_bytes)))
    if found.missing is not None:
        facts.append(("missing", _missing(found.missing)))
    facts.append(("as a matrix", f"{found.n_rows:,} samples x {found.n_cols:,} features"))
    for axis, blocks in found.blocks.items():
        size = f"{blocks.lines:,} {axis} ({format_bytes(blocks.bytes)})"
        facts.append((f"read by {axis}", f"{_count(blocks.count, 'block')} of {size}"))
    return _listing(found.name, facts)


def _sparse(density: float | None) -> str:
    return "" if density is None else f", sparse: {density:.2%} of the values are stored"


def _lengths(shape: Iterable[int]) -> str:
    return " x ".join(f"{length:,}" for length in shape)


def _missing(missing: MissingChunks) -> str:
    if not missing.count:
        return f"none of {_count(missing.total, 'chunk')}"
    return f"{missing.count:,} of {_count(missing.total, 'chunk')}, the first is {missing.first}"


def _facts(facts: Iterable[Fact]) -> list[tuple[str, str]]:
    return [(fact.name, _shown(fact.value, fact.unit)) for fact in facts]


def _shown(value: Value, unit: str) -> str:
    """Return a value with its unit, formatted for people."""
    if isinstance(value, bool):
        text = "yes" if value else "no"
    elif unit.startswith("%") and not isinstance(value, str):
        return f"{value:.2%}{unit.removeprefix('%')}"
    elif isinstance(value, float):
        text = f"{value:.6g}"
    else:
        text = f"{value:,}" if isinstance(value, int) else value
    return f"{text} {unit}".rstrip()


def _effort(report: FitReport | RowsReport) -> list[tuple[str, str]]:
    if report.reused:
        return [("read", "nothing: it was up to date")]
    read = f"{format_bytes(report.bytes_read)} in {report.seconds:.1f} s"
    return [("read", read), ("memory", f"{format_bytes(report.peak_rss)} at the peak")]


def _tables(tables: Iterable[Table]) -> str:
    return "".join(f"\n\n{_table(table)}" for table in tables if table.rows)


def _table(table: Table) -> str:
    """Return the first rows of a table as aligned columns, with bars for the column that has them."""
    shown = table.head(_LISTED)
    columns = list(zip(shown.columns, zip(*shown.rows, strict=True), strict=True))
    lines = zip(*(_cells(column, values) for column, values in columns), strict=True)
    bars = next((["", *_bars(values)] for column, values in columns if column.bars), None)
    text = [f"  {'  '.join(line)}" for line in lines]
    if bars is not None:
        text = [f"{line}  {bar}" for line, bar in zip(text, bars, strict=True)]
    if shown.left_out:
        text.append(f"  ... and {shown.left_out:,} more")
    return "\n".join(line.rstrip() for line in text)


def _cells(column: Column, values: Sequence[Value]) -> list[str]:
    """Return the name and the values of a column, padded: text is aligned left, numbers right."""
    share = column.unit.startswith("%")
    cells = [one_line(f"{value:.3%}" if share else _shown(value, column.unit)) for value in values]
    cells.insert(0, one_line(column.name))
    width = max([_PERCENT if share else 0, *map(len, cells)])
    words = all(isinstance(value, str) for value in values)
    return [cell.ljust(width) if words else cell.rjust(width) for cell in cells]


def _bars(values: Sequence[Value]) -> list[str]:
    sizes = [abs(float(value)) for value in values]
    longest = max(sizes)  # not always the first: sparse components are in the order of their selection
    return [_bar(size, longest) for size in sizes]


def _bar(size: float, longest: float) -> str:
    part = size / max(longest, 1e-300)
    return "█" * round(_BAR * part) if 0 <= part <= 1 else ""


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _listing(heading: str, facts: Iterable[tuple[str, str | None]]) -> str:
    """Return a heading and the facts below it. Facts that are None are left out."""
    present = [(one_line(name), one_line(str(value))) for name, value in facts if value is not None]
    width = max(len(name) for name, _ in present)
    return "\n".join([one_line(heading), *(f"  {name:<{width}}  {value}" for name, value in present)])
