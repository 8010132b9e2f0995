"""Comparisons: run several methods on one input, and write one table of their costs and measures."""

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
from streamdr.data import Source, expand
from streamdr.engine import planner
from streamdr.errors import ConfigError, DataError, MemoryLimitError, ParameterError, StoreError
from streamdr.methods.chain import Chain
from streamdr.store.key_value_folder import KeyValueFolder
from streamdr.store.remote.key_value_folder import open_folder
from streamdr.workflow import pipeline, report_tables
from streamdr.workflow.reports import ComparedMethod, CompareReport, MeasuredSample
from streamdr.workflow.run_context import RunContext

RECORD = ".comparison.json"
"""The file, beside the models, that holds the results of earlier comparisons."""

_VERSION = 1
"""The version of the record. It changes with the measures and with how they are taken."""

_Found = dict[str, Any]
"""The content of one entry of the record: a few numbers by name."""

_MAX_FILE_BYTES = 64 * 2**20
_RECORD_START = b'{\n "version": '
_COST_KEYS = ("seconds", "bytes_read", "peak_rss")
_MEASURE_KEYS = ("n_outputs", "trustworthiness", "stress", "accuracy")


def compare(
    comparison: Comparison, progress: Progress, stop: threading.Event, *, fresh: bool = False
) -> CompareReport:
    """Run every method that is not up to date, measure its embedding, and write the table.

    The table is written when all methods are done: completely, or not at all. The cost of a method is
    recorded beside its model, so a repeated comparison reads nothing and reports the same numbers.
    """
    _require_outside_stores(comparison)
    _require_own_tables(comparison.output.tables)
    contexts = [RunContext(run, progress, stop, fresh) for run in comparison.runs()]
    given = _Input(contexts[0].open_labelled(), [entry.method for entry in comparison.methods])
    record = _Record(open_folder(parse_location(comparison.output.folder)))
    reports = []
    for entry, context in zip(comparison.methods, contexts, strict=True):
        progress.message(f"{entry.name}: {entry.method.name}")
        planner.give_back()
        planner.forget_peak()
        with _naming_method(entry.name):
            report = pipeline.run_all(context, opened=context.reuse_input(given.source, given.snapshot))
        reports.append(report)
        if not report.reused:
            cost = {"seconds": report.seconds, "bytes_read": report.bytes_read, "peak_rss": report.peak_rss}
            record.put("took", entry.name, _embedding_digest(context), cost)
    # Measuring comes last: the memory of scikit-learn would count as memory of the methods.
    rows = [
        _row(entry.name, context, given, record, reused=report.reused)
        for entry, context, report in zip(comparison.methods, contexts, reports, strict=True)
    ]
    key = given.key()
    sample = record.get("sample", "", key, ("rows", "accuracy")) or record.put(
        "sample", "", key, given.sample_facts()
    )
    for path in comparison.output.tables:
        _write_table(parse_location(path), rows)
    return CompareReport(
        input=given.source.name,
        n_rows=given.source.spec.n_rows,
        n_cols=given.source.spec.n_cols,
        sample=MeasuredSample(rows=sample["rows"], accuracy=sample["accuracy"]),
        rows=tuple(rows),
        tables=tuple(comparison.output.tables),
        bytes_read=sum(report.bytes_read for report in reports) + given.bytes_read,
        reused=all(report.reused for report in reports),
    )


@dataclass(frozen=True)
class _Sample:
    """The rows of the input that embeddings are measured on."""

    regions: list[tuple[Span, Array]]
    rows: Array
    classes: Array | None


class _Input:
    """The input of all methods, and a sample of it. The sample is read when something has to be measured."""

    def __init__(self, source: Source, methods: Sequence[Method]) -> None:
        self.source = source
        self.snapshot = source.snapshot()
        """The state of the input. It decides for every method whether its outputs are up to date."""
        self._fingerprint = self.snapshot.digest(source.spec.n_rows)
        self.bytes_read = 0
        labels = source.spec.labels
        classified = any(isinstance(method, Supervised) and method.target == "classes" for method in methods)
        self._has_classes = labels is not None and (labels.kind != "f" or classified)
        """Whether labels are classes. Floating-point labels are classes if a method uses them as classes."""

    def key(self, embedding_digest: str = "") -> str:
        """Return a digest of this snapshot of the input and of an embedding."""
        return hashlib.sha256(
            f"{embedding_digest} {self._fingerprint} {self._has_classes}".encode()
        ).hexdigest()

    @cached_property
    def sample(self) -> _Sample:
        """The sampled rows, and their classes if there are any. Rows may have missing values."""
        from streamdr.workflow.metrics import sampled_rows

        spec = self.source.spec
        self.source.validate(self.snapshot)
        regions, rows, classes = sampled_rows(spec, self.source.chunks[0]), [], []
        for band, chosen in regions:
            block = self.source.block(band, allow_nan=True)
            rows.append(block.values[chosen - band.start])
            if self._has_classes and block.labels is not None:
                classes.append(block.labels[chosen - band.start])
            self.bytes_read += len(band) * self.source.stored_line_bytes("rows")
        return _Sample(regions, np.concatenate(rows), np.concatenate(classes) if classes else None)

    def measure(self, context: RunContext) -> _Found:
        """Measure how good an embedding is, on the rows of the sample."""
        from streamdr.workflow.metrics import measure

        scores = context.embedding.open_embedding()
        if scores.shape[0] != self.source.spec.n_rows:
            raise DataError(f"{self.source.name}: changed during the comparison; run it again")
        kept = [np.asarray(scores[band.slice])[chosen - band.start] for band, chosen in self.sample.regions]
        found = measure(self.sample.rows, np.concatenate(kept), self.sample.classes)
        return {"n_outputs": scores.shape[1], **found.to_dict()}

    def sample_facts(self) -> _Found:
        """Return the size of the sample, and its 1-NN accuracy in the input itself."""
        from streamdr.workflow.metrics import nearest_neighbour_accuracy

        sample = self.sample
        complete = np.isfinite(sample.rows).all(axis=1)
        accuracy = None
        if sample.classes is not None and complete.sum() > 1:
            accuracy = nearest_neighbour_accuracy(sample.rows[complete], sample.classes[complete])
        return {"rows": int(complete.sum()), "accuracy": accuracy}


class _Record:
    """The results of earlier comparisons in a folder, by kind and name, each with a digest of its origin."""

    def __init__(self, folder: KeyValueFolder) -> None:
        self._folder = folder
        data = _read_file(folder, RECORD)
        found: Any = None
        if data is not None:
            with suppress(ValueError, RecursionError):  # a damaged record only costs measuring again
                found = json.loads(data)
            ours = isinstance(found, dict) and {"version"} <= found.keys() <= {"version", "kept"}
            if not ours and not _is_damaged_record(data):
                raise StoreError(
                    f"{folder.name}: holds a file {RECORD} that streamdr did not write and would replace; "
                    "move it elsewhere, or choose another folder"
                )
        current = isinstance(found, dict) and found.get("version") == _VERSION
        kept = found.get("kept") if current else None
        self._kept: dict[str, dict[str, _Found]] = {}
        for kind, entries in kept.items() if isinstance(kept, dict) else ():
            if isinstance(entries, dict):
                self._kept[kind] = {name: entry for name, entry in entries.items() if _is_valid_entry(entry)}

    def get(self, kind: str, name: str, origin: str, keys: Collection[str]) -> _Found | None:
        """Return the entry, or None where there is none with this origin and these keys."""
        kept = self._kept.get(kind, {}).get(name)
        if kept is None or kept["of"] != origin or kept["found"].keys() != set(keys):
            return None
        found: _Found = kept["found"]
        return found

    def put(self, kind: str, name: str, origin: str, found: _Found) -> _Found:
        """Add an entry, write the record, and return the entry."""
        self._kept.setdefault(kind, {})[name] = {"of": origin, "found": found}
        content = json.dumps({"version": _VERSION, "kept": self._kept}, indent=1)
        self._folder.write(RECORD, lambda file: _write_text(file, content))
        return found


def _row(name: str, context: RunContext, given: _Input, record: _Record, *, reused: bool) -> ComparedMethod:
    """Return the row of a method. Its cost is None where the outputs existed before the first comparison."""
    digest = _embedding_digest(context)
    cost = record.get("took", name, digest, _COST_KEYS) or dict.fromkeys(_COST_KEYS)
    key = given.key(digest)
    found = record.get("measured", name, key, _MEASURE_KEYS) or record.put(
        "measured", name, key, given.measure(context)
    )
    return ComparedMethod(
        name=name,
        method=context.run.method.name,
        parameters=_nondefault_parameters(context.run.method),
        n_outputs=found["n_outputs"],
        trustworthiness=found["trustworthiness"],
        stress=found["stress"],
        accuracy=found["accuracy"],
        seconds=cost["seconds"],
        bytes_read=cost["bytes_read"],
        peak_rss=cost["peak_rss"],
        model=context.run.output.model,
        embedding=context.run.output.embedding,
        reused=reused,
    )


def _nondefault_parameters(method: Method) -> dict[str, Any]:
    """Return the parameters that differ from their defaults; of a chain, those of each step."""
    if isinstance(method, Chain):
        steps = zip(method.names, method.steps, strict=True)
        return {name: _nondefault_parameters(step) for name, step in steps}
    values = ((field, getattr(method, field.name)) for field in fields(cast(Any, method)))
    changed: dict[str, Any] = store.to_json(
        {field.name: value for field, value in values if value != field.default}
    )
    return changed


def _embedding_digest(context: RunContext) -> str:
    """Return the digest of the embedding that is stored."""
    digest: str = context.embedding.read_group("embedding").record["digest"]
    return digest


def _write_table(place: Location, rows: Sequence[ComparedMethod]) -> None:
    """Write the table in the format of its suffix, in one step. Only such a table is replaced."""
    _require_own_table(place)
    render = report_tables.comma_separated if place.name.endswith(".csv") else report_tables.markdown
    place = place.resolve()  # through a link, the table is written where the link leads
    try:
        open_folder(place.parent).write(place.name, lambda file: _write_text(file, render(rows)))
    except OSError as error:
        raise StoreError(f"{place}: cannot be written: {error}") from error


def _require_own_tables(tables: Sequence[str]) -> None:
    """Refuse paths where another file exists."""
    for table in tables:
        _require_own_table(parse_location(table))


def _require_own_table(place: Location) -> None:
    """Refuse to replace a .md or .csv file that is not the table of a comparison."""
    data = _read_file(open_folder(place.parent), place.name)
    if data is not None and not report_tables.is_comparison(data.decode(errors="replace")):
        raise StoreError(
            f"{place}: exists, and holds something else than the table of a comparison, so it is never "
            "overwritten; choose another path for output.table"
        )


def _read_file(folder: KeyValueFolder, name: str) -> bytes | None:
    """Return the content of a file, or None where there is no file."""
    try:
        with folder.open(name) as file:
            data = b"" if file is None else file.read(_MAX_FILE_BYTES + 1)
            return None if file is None else data
    except OSError as error:
        raise StoreError(f"{folder.name}/{name}: cannot be written: {error.strerror or error}") from error


def _is_damaged_record(data: bytes) -> bool:
    """Whether a file may have been a record: truncated, empty, or with some bytes damaged."""
    starts_like_one = data[: len(_RECORD_START)] == _RECORD_START[: len(data)]
    return starts_like_one or not data.strip(b"\0") or b'"kept"' in data


def _is_valid_entry(entry: Any) -> bool:
    """Whether an entry of the record has the right structure."""
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("of"), str)
        and isinstance(entry.get("found"), dict)
        and all(value is None or isinstance(value, int | float) for value in entry["found"].values())
    )


def _write_text(file: Any, text: str) -> None:
    file.write(text.encode())


@contextmanager
def _naming_method(name: str) -> Iterator[None]:
    """Add the name of the method to errors of the data and of memory."""
    try:
        yield
    except ParameterError:  # it has the line of the configuration already
        raise
    except DataError as error:
        raise type(error)(f"{name}: {error}") from error
    except MemoryLimitError as error:
        raise MemoryLimitError(f"{name}: {error.problem}", error.least, error.otherwise) from error


def _require_outside_stores(comparison: Comparison) -> None:
    """Refuse to write a table into an input or output store, because that would damage the store."""
    runs = comparison.runs()
    given = comparison.input
    stores = [given.weights, given.labels, given.mask]
    stores += [path for run in runs for path in (run.output.model, run.output.embedding)]
    places = [*expand(given.path), *(parse_location(path) for path in stores if path is not None)]
    for table in map(parse_location, comparison.output.tables):
        for place in places:
            if store.open_backend(place).contains(table):
                raise ConfigError(f"{table}: lies inside the store {place}; write the table elsewhere")
