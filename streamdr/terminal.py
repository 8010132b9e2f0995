"""Plans, reports and inspections in words for people: plain text, so that it pipes and greps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from streamdr import tabulation
from streamdr.safe_text import one_line
from streamdr.sizes import format_bytes, format_seconds

Report = dict[str, Any]

_BAR = 24
_LISTED = 20


def plan(report: Report) -> str:
    """What a fit will do, why, and what it will take."""
    block = f"{report['block_rows']:,} x {report['block_columns']:,} ({format_bytes(report['block_bytes'])})"
    other = report["if_values_are_missing"]
    most = report["passes"] - (other["passes"] if other else 0)
    passes = "1 pass" if most == 1 else f"at most {most} passes"
    missing = []
    if other:
        further = f"{other['solver']}, at most {other['passes']} more passes"
        missing = [("if missing", f"{further}, {format_seconds(other['seconds'])}")]
    parts = [(name, format_bytes(size)) for name, size in report["parts"].items() if size]
    return _listing(
        "plan",
        [
            ("input", f"{report['input']}, {_matrix(report)}"),
            ("solver", report["reason"]),
            ("work", f"{passes} over the {report['axis']}, {_count(report['workers'], 'worker')}"),
            ("time", f"{format_seconds(report['seconds'])}, by nominal speeds of reading and arithmetic"),
            *missing,
            ("blocks", f"{block} each, in {_count(report['segments'], 'segment')}"),
            ("memory", f"{format_bytes(report['peak'])} at the peak, limit {format_bytes(report['limit'])}"),
            *((f"  {name}", size) for name, size in parts),
            *((name.replace("_", " "), _mapping(each)) for name, each in report["transforms"].items()),
        ],
    )


def _mapping(transform: Report) -> str:
    how = f"by {transform['axis']}, {_count(transform['workers'], 'worker')}"
    return f"{format_bytes(transform['peak'])} at the peak, {how}"


def planned(report: Report) -> str:
    """The plan as an answer of its own, and what of it there is to do."""
    stages = [(stage["name"], _stage(stage)) for stage in report["stages"]]
    return f"{plan(report)}\n\n{_listing('stages', stages)}"


def _stage(stage: Report) -> str:
    if stage["state"] == "fresh":
        return f"fresh: {stage['reason']}"
    least, most = (
        format_bytes(stage[key]) if stage[key] else "nothing"
        for key in ("least_bytes_to_read", "bytes_to_read")
    )
    more = "if it takes more passes" if stage["name"] == "fit" else "if the model moves"
    reads = least if least == most else f"{least}, or {most} at most {more}"
    way = "; `run` needs output.overwrite, `reprocess` does not" if stage["in_the_way"] else ""
    return f"stale: {stage['reason']}; reads {reads}{way}"


def fitted(report: Report) -> str:
    """What a fit found, what it took, and where the model is."""
    heading = f"{report['method']} of {report['n_rows']:,} x {report['n_cols']:,}"
    facts = [*_summary(report["summary"]), *_effort(report), ("model", report["model"])]
    return _listing(heading, facts) + _tables(report["summary"])


def transformed(report: Report) -> str:
    """What a transform wrote, and what it took, one output after the other."""
    return "\n\n".join(_written(kind, each) for kind, each in report["outputs"].items())


def _written(kind: str, report: Report) -> str:
    heading = f"{report['title']} of {report['n_rows']:,} rows, {_count(report['n_outputs'], 'column')}"
    text = _listing(heading, [*_effort(report), (kind.replace("_", " "), report["path"])])
    if filling := report.get("filling"):
        of = f"{filling['holes']:,} values that were taken from {filling['dataset']}"
        return f"{text}\n\n{_errors(of, filling['rms_error'])}"
    if denoising := report.get("denoising"):
        of = f"{denoising['dataset']}, with noise of standard deviation {denoising['noise']:g}"
        return f"{text}\n\n{_errors(of, denoising['rms_error'])}"
    return text


def _errors(of: str, errors: dict[str, float]) -> str:
    """The error of something by several means, as bars."""
    longest, width = max(errors.values()), max(map(len, errors))
    lines = [one_line(f"root mean square error of {of}")]
    for name, error in errors.items():
        lines.append(f"  {name:<{width}}  {error:>8.4g}  {_bar(error, longest)}")
    return "\n".join(lines)


def ran(report: Report) -> str:
    """The stages of a run."""
    text = fitted(report["fit"])
    return f"{text}\n\n{transformed(report['transform'])}" if "transform" in report else text


def reprocessed(report: Report) -> str:
    """What several configurations took, one after the other."""
    texts = [f"{one_line(str(run['config']))}\n\n{ran(run)}" for run in report["runs"]]
    effort = f"{format_bytes(report['bytes_read'])} in {report['seconds']:.1f} s"
    return "\n\n".join([*texts, _listing("all of it", [("read", effort)])])


def compared(report: Report) -> str:
    """What several methods made of one input, a row each."""
    sample = report["sample"]
    shape = f"{report['n_rows']:,} x {report['n_cols']:,}"
    heading = f"{_count(len(report['rows']), 'method')} on {report['input']}, {shape}"
    facts = [("measured", f"by {sample['rows']:,} rows")]
    if sample["accuracy"] is not None:
        facts.append(("1-NN accuracy", f"{sample['accuracy']:.1%} in the input itself"))
    facts.append(
        (
            "read",
            format_bytes(report["bytes_read"]) if report["bytes_read"] else "nothing: all was up to date",
        )
    )
    facts += [("table", path) for path in report["tables"]]
    return f"{tabulation.text(report['rows'])}\n\n{_listing(heading, facts)}"


def verified(report: Report) -> str:
    """What was looked at, and found to be as it should."""
    return _listing("all is well", list(report["checks"].items()))


def ingested(report: Report) -> str:
    """What was brought in."""
    chunk = " x ".join(f"{length:,}" for length in report["chunks"])
    return _listing(
        f"{report['n_rows']:,} x {report['n_cols']:,} {report['dtype']}",
        [
            ("chunks", chunk),
            (
                "appended",
                f"{appended:,} rows" if (appended := report["appended_rows"]) < report["n_rows"] else None,
            ),
            ("labels", f"column {report['labels']!r}" if report["labels"] is not None else None),
            ("left out", ", ".join(map(repr, report["left_out"])) or None),
            ("written", f"{format_bytes(report['bytes_written'])} in {report['seconds']:.1f} s"),
            ("store", report["path"]),
        ],
    )


def plotted(report: Report) -> str:
    """What was drawn, and where it is."""
    return _listing(
        f"{report['kind'].replace('_', ' ')} of a {report['method']} model",
        [("model", report["model"]), ("picture", f"{report['path']}, {format_bytes(report['bytes'])}")],
    )


def inspected(report: Report) -> str:
    """What was found at a path."""
    if report["kind"] == "model":
        return _model(report)
    if "arrays" not in report:
        return _rows(report)
    origin = f", {report['origin']}" if report["origin"] else ""
    arrays = [_array(array) for array in report["arrays"]]
    return "\n\n".join([one_line(f"{report['path']}: {report['kind']}{origin}"), *arrays])


def _model(report: Report) -> str:
    parameters = ", ".join(f"{name}={value}" for name, value in report["parameters"].items())
    facts = [
        ("method", report["method"]),
        ("parameters", parameters),
        ("maps", f"{report['n_features']:,} features to {report['n_outputs']:,}"),
        *_summary(report["summary"]),
        ("input", f"{report['input']}, {report['n_rows']:,} rows"),
        ("written", f"{report['created']} by streamdr {report['version']}, every bit as it was written"),
    ]
    return _listing(f"{report['path']}: streamdr model", facts) + _tables(report["summary"])


def _rows(report: Report) -> str:
    shape, chunk = (" x ".join(f"{length:,}" for length in report[key]) for key in ("shape", "chunks"))
    return _listing(
        f"{report['path']}: streamdr {report['kind']}",
        [
            ("array", f"{shape} {report['dtype']}"),
            ("dimensions", ", ".join(report["dims"])),
            ("chunks", f"{chunk}, all there"),
            ("on disk", format_bytes(report["stored_bytes"])),
            ("model", f"{report['model']} ({report['method']})"),
            ("written", f"{report['created']} by streamdr {report['version']}"),
        ],
    )


def _array(array: Report) -> str:
    if "labels" in array:
        return _listing(array["name"], [("labels", f"{array['labels']:,}, text; input.labels can name them")])
    if array["problem"] is not None:
        return _listing(array["name"], [("cannot be used", array["problem"])])
    shape = " x ".join(f"{length:,}" for length in array["shape"])
    facts = [("array", f"{shape} {array['dtype']}, {format_bytes(array['bytes'])}")]
    if array.get("stale_copy"):
        old = " x ".join(map(str, array["stale_copy"]))
        facts.append(
            ("stale", f"{old} to zarr and xarray, until zarr.consolidate_metadata is run on the group")
        )
    if array["dims"]:
        facts.append(("dimensions", ", ".join(str(dim) for dim in array["dims"])))
    if array["chunks"]:
        facts.append(("chunks", " x ".join(f"{length:,}" for length in array["chunks"])))
    if array["shards"]:
        facts.append(("shards", " x ".join(f"{length:,}" for length in array["shards"])))
    if array["codecs"]:
        facts.append(("codecs", f"{', '.join(array['codecs'])} (zarr v{array['zarr_format']})"))
    facts.append(("on disk", format_bytes(array["stored_bytes"])))
    if array["missing"] is not None:
        facts.append(("missing", _missing(array["missing"])))
    facts.append(("as a matrix", f"{array['n_rows']:,} samples x {array['n_cols']:,} features"))
    for axis, blocks in array["blocks"].items():
        size = f"{blocks['lines']:,} {axis} ({format_bytes(blocks['bytes'])})"
        facts.append((f"read by {axis}", f"{_count(blocks['count'], 'block')} of {size}"))
    return _listing(array["name"], facts)


def _missing(missing: Report) -> str:
    if not missing["count"]:
        return f"none of {_count(missing['total'], 'chunk')}"
    return f"{missing['count']:,} of {_count(missing['total'], 'chunk')}, the first being {missing['first']}"


def _summary(summary: Report) -> list[tuple[str, str]]:
    """What a model says of itself: in words where its words are known, else as it says it."""
    known = {**summary}
    facts = []
    if "explained_variance_ratio" in summary:
        explained = sum(known.pop("explained_variance_ratio"))
        what = "the variance between classes" if "n_classes" in summary else "the variance"
        number = f"{known.pop('n_components'):,}, which explain {explained:.2%} of {what}"
        facts += [("solver", known.pop("solver")), ("components", number)]
    if "n_classes" in summary:
        ratio = f"{known.pop('total_variance'):.6g} times the variance within them"
        facts.append(("classes", f"{known.pop('n_classes'):,}, apart by {ratio}"))
    if "reconstruction_error" in summary:
        lost, total = known.pop("reconstruction_error"), known.pop("total_variance")
        facts.append(("left out", f"{lost:.6g} of a variance of {total:.6g}"))
        if known.pop("rank") < summary["n_components"]:
            facts.append(("rank", f"{summary['rank']:,}: the data has no variance in the other directions"))
    if "log_likelihood" in summary:
        nats = f"{known.pop('log_likelihood'):.6g} nats a row"
        facts.append(("likelihood", f"{nats} after {_count(known.pop('n_iter'), 'iteration')}"))
    notes = known.pop("notes", [])
    known.pop("kernels", None)  # which have a table of their own
    known.pop("columns", None)
    facts += [(name.replace("_", " "), _plainly(value)) for name, value in known.items()]
    return facts + [("note", note) for note in notes]


def _plainly(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _effort(report: Report) -> list[tuple[str, str]]:
    if report["reused"]:
        return [("read", "nothing: it was up to date")]
    read = f"{format_bytes(report['bytes_read'])} in {report['seconds']:.1f} s"
    return [("read", read), ("memory", f"{format_bytes(report['peak_rss'])} at the peak")]


def _tables(summary: Report) -> str:
    return _kernel_table(summary) + _variance_table(summary) + _column_table(summary)


def _kernel_table(summary: Report) -> str:
    """The kernels of a search, from the best to the worst, by what they leave of rows that were held out."""
    kernels: Sequence[Report] = summary.get("kernels", ())
    if not kernels:
        return ""
    listed = kernels[:_LISTED]
    width, longest = max(len(each["kernel"]) for each in listed), max(each["error"] for each in listed)
    lines = ["", f"  {'kernel':<{width}}  unexplained    spread"]
    for each in listed:
        name, error, spread = one_line(each["kernel"]), each["error"], each["spread"]
        lines.append(f"  {name:<{width}}  {error:>11.3%}  {spread:>8.3%}  {_bar(error, longest)}".rstrip())
    if len(kernels) > _LISTED:
        lines.append(f"  ... and {len(kernels) - _LISTED:,} more")
    return "\n".join(["", *lines])


def _column_table(summary: Report) -> str:
    """The columns that were chosen, in order, and what each tells by itself."""
    columns: Sequence[Report] = summary.get("columns", ())
    if not columns:
        return ""
    listed = columns[:_LISTED]
    longest = max(abs(each["score"]) for each in listed)
    lines = ["", f"  column  {summary['statistic']}"]
    for each in listed:
        bar = _bar(abs(each["score"]), longest)
        lines.append(f"  {one_line(str(each['column'])):>6}  {each['score']:>11.6g}  {bar}".rstrip())
    if len(columns) > _LISTED:
        lines.append(f"  ... and {len(columns) - _LISTED:,} more")
    return "\n".join(["", *lines])


def _variance_table(summary: Report) -> str:
    ratios: Sequence[float] = summary.get("explained_variance_ratio", ())
    if not ratios:
        return ""
    lines, reached = ["", "  component  variance    in all"], 0.0
    longest = max(ratios)  # not always the first: sparse components are in the order of their choice
    for number, ratio in enumerate(ratios[:_LISTED], 1):
        reached += ratio
        lines.append(f"  {number:>9}  {ratio:>8.3%}  {reached:>8.3%}  {_bar(ratio, longest)}".rstrip())
    if summary["n_components"] > _LISTED:
        lines.append(f"  ... and {summary['n_components'] - _LISTED:,} more")
    return "\n".join(["", *lines])


def _bar(size: float, longest: float) -> str:
    part = size / max(longest, 1e-300)
    return "█" * round(_BAR * part) if 0 <= part <= 1 else ""


def _matrix(report: Report) -> str:
    return f"{report['n_rows']:,} x {report['n_cols']:,} {report['dtype']}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _listing(heading: str, facts: Iterable[tuple[str, str | None]]) -> str:
    """A heading, and what there is to say of it; what is None is left out."""
    known = [(one_line(name), one_line(str(value))) for name, value in facts if value is not None]
    width = max(len(name) for name, _ in known)
    return "\n".join([one_line(heading), *(f"  {name:<{width}}  {value}" for name, value in known)])
