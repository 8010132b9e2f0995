"""Several methods over one input, side by side: a run for each, and one table of what came of them."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, cast

import numpy as np

from streamdr import store
from streamdr.config import Comparison
from streamdr.core.addresses import Location, parse_location
from streamdr.core.blocks import Array, Span
from streamdr.core.method import Method, Supervised
from streamdr.core.progress import Progress
from streamdr.data import Source
from streamdr.engine import planner
from streamdr.errors import ConfigError, DataError, MemoryLimitError, ParameterError, StoreError
from streamdr.store.key_value_folder import KeyValueFolder
from streamdr.store.remote.key_value_folder import open_folder
from streamdr.workflow import pipeline, report_tables
from streamdr.workflow.reports import ComparedMethod, CompareReport, Sample
from streamdr.workflow.run_context import RunContext

RECORD = ".comparison.json"
"""What is remembered of earlier comparisons, beside their models."""

_VERSION = 1
"""Of what is measured, and how."""

_Found = dict[str, Any]
"""What the record keeps: a few numbers by name."""

_LARGEST_BYTES = 64 * 2**20
_BEGINNING = b'{\n "version": '
_TOOK = ("seconds", "bytes_read", "peak_rss")
_MEASURED = ("n_outputs", "trustworthiness", "stress", "accuracy")


def compare(
    comparison: Comparison, progress: Progress, stop: threading.Event, *, fresh: bool = False
) -> CompareReport:
    """Carry out every method that is not up to date, measure what came of it, and write the table.

    The table is written when all are done: whole, or not at all. What a method took is remembered beside
    its model, so a comparison that is repeated reads nothing, and tells the same.
    """
    _require_apart(comparison)
    _require_own(comparison.output.tables)
    stages = [RunContext(run, progress, stop, fresh) for run in comparison.runs()]
    given = _Input(stages[0].open_labelled(), [entry.method for entry in comparison.methods])
    record = _Record(open_folder(parse_location(comparison.output.folder)))
    reports = []
    for entry, context in zip(comparison.methods, stages, strict=True):
        progress.message(f"{entry.name}: {entry.method.name}")
        planner.give_back()
        planner.forget_peak()
        with _naming_method(entry.name):
            report = pipeline.run_all(context, opened=context.reuse_input(given.source, given.seen))
        reports.append(report)
        if not report.reused:
            took = {"seconds": report.seconds, "bytes_read": report.bytes_read, "peak_rss": report.peak_rss}
            record.keep("took", entry.name, _written(context), took)
    # Only now: scikit-learn, and what it leaves, would count as memory that methods take.
    rows = [
        _row(entry.name, context, given, record, reused=report.reused)
        for entry, context, report in zip(comparison.methods, stages, reports, strict=True)
    ]
    key = given.key()
    sample = record.get("sample", "", key, ("rows", "accuracy")) or record.keep(
        "sample", "", key, given.facts()
    )
    for path in comparison.output.tables:
        _write(parse_location(path), rows)
    return CompareReport(
        input=given.source.name,
        n_rows=given.source.spec.n_rows,
        n_cols=given.source.spec.n_cols,
        sample=Sample(rows=sample["rows"], accuracy=sample["accuracy"]),
        rows=tuple(rows),
        tables=tuple(comparison.output.tables),
        bytes_read=sum(report.bytes_read for report in reports) + given.bytes_read,
        reused=all(report.reused for report in reports),
    )


@dataclass(frozen=True)
class _Sample:
    """Some rows of the input."""

    regions: list[tuple[Span, Array]]
    rows: Array
    classes: Array | None


class _Input:
    """What all methods read, and a sample of it, which is read when something is to be measured."""

    def __init__(self, source: Source, methods: Sequence[Method]) -> None:
        self.source = source
        self.seen = source.snapshot()
        """The look at it by which every method's outputs are up to date or not."""
        self._fingerprint = self.seen.digest(source.spec.n_rows)
        self.bytes_read = 0
        labels = source.spec.labels
        told = any(isinstance(method, Supervised) and method.target == "classes" for method in methods)
        self._has_classes = labels is not None and (labels.kind != "f" or told)
        """Whether labels are classes: numbers in a floating type are, if a method takes them for such."""

    def key(self, of: str = "") -> str:
        """A digest of this input, as it is looked at here, and of what is compared with it."""
        return hashlib.sha256(f"{of} {self._fingerprint} {self._has_classes}".encode()).hexdigest()

    @cached_property
    def sample(self) -> _Sample:
        """Rows with their classes, if there are any; rows may have holes."""
        from streamdr.workflow.metrics import sampled_rows

        spec = self.source.spec
        self.source.validate(self.seen)
        regions, rows, classes = sampled_rows(spec, self.source.chunks[0]), [], []
        for band, chosen in regions:
            block = self.source.block(band, allow_nan=True)
            rows.append(block.values[chosen - band.start])
            if self._has_classes and block.labels is not None:
                classes.append(block.labels[chosen - band.start])
            self.bytes_read += len(band) * self.source.stored_line_bytes("rows")
        return _Sample(regions, np.concatenate(rows), np.concatenate(classes) if classes else None)

    def measure(self, context: RunContext) -> _Found:
        """How good an embedding is, by what became of the rows of the sample."""
        from streamdr.workflow.metrics import measure

        scores = context.embedding.open_embedding()
        if scores.shape[0] != self.source.spec.n_rows:
            raise DataError(f"{self.source.name}: has changed while it was compared; run it again")
        kept = [np.asarray(scores[band.slice])[chosen - band.start] for band, chosen in self.sample.regions]
        found = measure(self.sample.rows, np.concatenate(kept), self.sample.classes)
        return {"n_outputs": scores.shape[1], **found.to_dict()}

    def facts(self) -> _Found:
        """How large the sample is, and how much of its classes the nearest rows of the input tell."""
        from streamdr.workflow.metrics import nearest_neighbour_accuracy

        sample = self.sample
        complete = np.isfinite(sample.rows).all(axis=1)
        accuracy = None
        if sample.classes is not None and complete.sum() > 1:
            accuracy = nearest_neighbour_accuracy(sample.rows[complete], sample.classes[complete])
        return {"rows": int(complete.sum()), "accuracy": accuracy}


class _Record:
    """What earlier comparisons in a folder found, by kind and name, each with a digest of what it is of."""

    def __init__(self, folder: KeyValueFolder) -> None:
        self._folder = folder
        data = _content(folder, RECORD)
        found: Any = None
        if data is not None:
            with suppress(ValueError, RecursionError):  # damaged, it holds nothing that has to be known
                found = json.loads(data)
            ours = isinstance(found, dict) and {"version"} <= found.keys() <= {"version", "kept"}
            if not ours and not _is_remains(data):
                raise StoreError(
                    f"{folder.name}: holds a file {RECORD} that streamdr did not write, and would write; "
                    "move it elsewhere, or choose another folder"
                )
        known = isinstance(found, dict) and found.get("version") == _VERSION
        kept = found.get("kept") if known else None
        self._kept: dict[str, dict[str, _Found]] = {}
        for kind, entries in kept.items() if isinstance(kept, dict) else ():
            if isinstance(entries, dict):
                self._kept[kind] = {name: entry for name, entry in entries.items() if _is_kept(entry)}

    def get(self, kind: str, name: str, of: str, keys: Collection[str]) -> _Found | None:
        """What was found, with these keys, unless it is of something else."""
        kept = self._kept.get(kind, {}).get(name)
        if kept is None or kept["of"] != of or kept["found"].keys() != set(keys):
            return None
        found: _Found = kept["found"]
        return found

    def keep(self, kind: str, name: str, of: str, found: _Found) -> _Found:
        """Remember what was found."""
        self._kept.setdefault(kind, {})[name] = {"of": of, "found": found}
        content = json.dumps({"version": _VERSION, "kept": self._kept}, indent=1)
        self._folder.write(RECORD, lambda file: _put(file, content))
        return found


def _row(name: str, context: RunContext, given: _Input, record: _Record, *, reused: bool) -> ComparedMethod:
    """A method's row. What it took is not known of outputs that were there before anybody looked."""
    written = _written(context)
    took = record.get("took", name, written, _TOOK) or dict.fromkeys(_TOOK)
    key = given.key(written)
    found = record.get("measured", name, key, _MEASURED) or record.keep(
        "measured", name, key, given.measure(context)
    )
    return ComparedMethod(
        name=name,
        method=context.run.method.name,
        parameters=_changed(context.run.method),
        n_outputs=found["n_outputs"],
        trustworthiness=found["trustworthiness"],
        stress=found["stress"],
        accuracy=found["accuracy"],
        seconds=took["seconds"],
        bytes_read=took["bytes_read"],
        peak_rss=took["peak_rss"],
        model=context.run.output.model,
        embedding=context.run.output.embedding,
        reused=reused,
    )


def _changed(method: Method) -> dict[str, Any]:
    """The parameters that are not what they would be by themselves."""
    values = ((field, getattr(method, field.name)) for field in fields(cast(Any, method)))
    changed: dict[str, Any] = store.to_json(
        {field.name: value for field, value in values if value != field.default}
    )
    return changed


def _written(context: RunContext) -> str:
    """What tells an embedding from any other."""
    digest: str = context.embedding.read_group("embedding").record["digest"]
    return digest


def _write(place: Location, rows: Sequence[ComparedMethod]) -> None:
    """Write the table as its name ends, in one step, in the place of nothing but such a table."""
    _require_own_table(place)
    render = report_tables.comma_separated if place.name.endswith(".csv") else report_tables.markdown
    place = place.resolve()  # through a link, the table is written where the link leads
    try:
        open_folder(place.parent).write(place.name, lambda file: _put(file, render(rows)))
    except OSError as error:
        raise StoreError(f"{place}: cannot be written: {error}") from error


def _require_own(tables: Sequence[str]) -> None:
    for table in tables:
        _require_own_table(parse_location(table))


def _require_own_table(place: Location) -> None:
    """Refuse to write a table in the place of anything else that ends in .md or .csv."""
    data = _content(open_folder(place.parent), place.name)
    if data is not None and not report_tables.is_comparison(data.decode(errors="replace")):
        raise StoreError(
            f"{place}: exists and is not only the table of a comparison, so it is never overwritten; choose "
            "another path for output.table"
        )


def _content(folder: KeyValueFolder, name: str) -> bytes | None:
    """What a file holds, or None where there is none."""
    try:
        with folder.open(name) as file:
            data = b"" if file is None else file.read(_LARGEST_BYTES + 1)
            return None if file is None else data
    except OSError as error:
        raise StoreError(f"{folder.name}/{name}: cannot be written: {error.strerror or error}") from error


def _is_remains(data: bytes) -> bool:
    """Whether a file may have been a record: cut short, empty, or with some bytes damaged."""
    begun = data[: len(_BEGINNING)] == _BEGINNING[: len(data)]
    return begun or not data.strip(b"\0") or b'"kept"' in data


def _is_kept(entry: Any) -> bool:
    """Whether an entry of the record is one."""
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("of"), str)
        and isinstance(entry.get("found"), dict)
        and all(value is None or isinstance(value, int | float) for value in entry["found"].values())
    )


def _put(file: Any, text: str) -> None:
    file.write(text.encode())


@contextmanager
def _naming_method(name: str) -> Iterator[None]:
    """Say which of the methods met an error of the data, or of memory."""
    try:
        yield
    except ParameterError:  # it says where it stands in the file
        raise
    except DataError as error:
        raise type(error)(f"{name}: {error}") from error
    except MemoryLimitError as error:
        raise MemoryLimitError(f"{name}: {error.problem}", error.least, error.otherwise) from error


def _require_apart(comparison: Comparison) -> None:
    """Refuse to write a table into a store that is read or written: it would damage it."""
    runs = comparison.runs()
    given = comparison.input
    stores = [given.path, given.weights, given.labels, given.mask]
    stores += [path for run in runs for path in (run.output.model, run.output.embedding)]
    for table in map(parse_location, comparison.output.tables):
        for place in (parse_location(path) for path in stores if path is not None):
            if store.open_backend(place).contains(table):
                raise ConfigError(f"{table}: lies in {place}, which is a store; write the table elsewhere")
