"""Several methods over one input, side by side: a run for each, and one table of what came of them."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np

from streamdr import memory, pipeline, store, tabulation
from streamdr.addresses import Place, parse_place
from streamdr.blocks import Array, Span
from streamdr.config import Comparison
from streamdr.errors import ConfigError, DataError, MemoryLimitError, StoreError
from streamdr.folders import Folder
from streamdr.methods import Method
from streamdr.methods.base import Supervised
from streamdr.progress import Progress
from streamdr.remote.folder import folder_at
from streamdr.reports import Report
from streamdr.sources import Source
from streamdr.stage import Stage

RECORD = ".comparison.json"
"""What is remembered of earlier comparisons, beside their models."""

_VERSION = 1
"""Of what is measured, and how."""


def compare(
    comparison: Comparison, progress: Progress, stop: threading.Event, *, fresh: bool = False
) -> Report:
    """Carry out every method that is not up to date, measure what came of it, and write the table.

    The table is written when all are done: whole, or not at all. What a method took is remembered beside
    its model, so a comparison that is repeated reads nothing, and tells the same.
    """
    _require_apart(comparison)
    stages = [Stage(run, progress, stop, fresh) for run in comparison.runs()]
    given = _Input(stages[0].open_labelled(), [entry.method for entry in comparison.methods])
    record = _Record(folder_at(parse_place(comparison.output.folder)))
    reports = []
    for entry, stage in zip(comparison.methods, stages, strict=True):
        progress.message(f"{entry.name}: {entry.method.name}")
        memory.give_back()
        memory.forget_peak()
        with _telling_whose(entry.name):
            report = pipeline.run_all(stage)
        reports.append(report)
        if not report["reused"]:
            took = {key: report[key] for key in ("seconds", "bytes_read", "peak_rss")}
            record.keep("took", entry.name, _written(stage), took)
    # Only now: scikit-learn, and what it leaves, would count as memory that methods take.
    rows = [
        {**_row(entry.name, stage, given, record), "reused": report["reused"]}
        for entry, stage, report in zip(comparison.methods, stages, reports, strict=True)
    ]
    key = given.key()
    sample = record.get("sample", "", key) or record.keep("sample", "", key, given.facts())
    for path in comparison.output.tables:
        _write(parse_place(path), rows)
    return {
        "command": "compare",
        "input": given.source.name,
        "n_rows": given.source.spec.n_rows,
        "n_cols": given.source.spec.n_cols,
        "sample": sample,
        "rows": rows,
        "tables": comparison.output.tables,
        "bytes_read": sum(report["bytes_read"] for report in reports) + given.bytes_read,
        "reused": all(report["reused"] for report in reports),
    }


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
        self._fingerprint = source.fingerprint()
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
        from streamdr.quality import sampled_rows

        spec = self.source.spec
        self.source.validate()
        regions, rows, classes = sampled_rows(spec, self.source.chunks[0]), [], []
        for band, chosen in regions:
            block = self.source.block(band, holes=True)
            rows.append(block.values[chosen - band.start])
            if self._has_classes and block.labels is not None:
                classes.append(block.labels[chosen - band.start])
            self.bytes_read += len(band) * spec.line_bytes("rows")
        return _Sample(regions, np.concatenate(rows), np.concatenate(classes) if classes else None)

    def measure(self, stage: Stage) -> Report:
        """How good an embedding is, by what became of the rows of the sample."""
        from streamdr.quality import measure

        scores = store.open_embedding(stage.embedding)
        if scores.shape[0] != self.source.spec.n_rows:
            raise DataError(f"{self.source.name}: has changed while it was compared; run it again")
        kept = [np.asarray(scores[band.slice])[chosen - band.start] for band, chosen in self.sample.regions]
        found = measure(self.sample.rows, np.concatenate(kept), self.sample.classes)
        return {"n_outputs": scores.shape[1], **found.to_dict()}

    def facts(self) -> Report:
        """How large the sample is, and how much of its classes the nearest rows of the input tell."""
        from streamdr.quality import nearest_neighbour_accuracy

        sample = self.sample
        complete = np.isfinite(sample.rows).all(axis=1)
        accuracy = None
        if sample.classes is not None and complete.sum() > 1:
            accuracy = nearest_neighbour_accuracy(sample.rows[complete], sample.classes[complete])
        return {"rows": int(complete.sum()), "accuracy": accuracy}


class _Record:
    """What earlier comparisons in a folder found, by kind and name, each with a digest of what it is of."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        found: Any = None
        try:
            with folder.open(RECORD) as file:
                found = None if file is None else json.load(file)
        except ValueError:  # it is damaged, and holds nothing that has to be known
            pass
        known = isinstance(found, dict) and found.get("version") == _VERSION
        kept = found.get("kept") if known else None
        self._kept: dict[str, dict[str, Report]] = kept if isinstance(kept, dict) else {}

    def get(self, kind: str, name: str, of: str) -> Report | None:
        """What was found, unless it is of something else."""
        kept = self._kept.get(kind, {}).get(name)
        return None if kept is None or kept["of"] != of else kept["found"]

    def keep(self, kind: str, name: str, of: str, found: Report) -> Report:
        """Remember what was found."""
        self._kept.setdefault(kind, {})[name] = {"of": of, "found": found}
        content = json.dumps({"version": _VERSION, "kept": self._kept}, indent=1)
        self._folder.write(RECORD, lambda file: _put(file, content))
        return found


def _row(name: str, stage: Stage, given: _Input, record: _Record) -> Report:
    """A method's row. What it took is not known of outputs that were there before anybody looked."""
    written = _written(stage)
    took = record.get("took", name, written) or dict.fromkeys(("seconds", "bytes_read", "peak_rss"))
    key = given.key(written)
    found = record.get("measured", name, key) or record.keep("measured", name, key, given.measure(stage))
    return {
        "name": name,
        "method": stage.run.method.name,
        "parameters": _changed(stage.run.method),
        **found,
        **took,
        "model": stage.run.output.model,
        "embedding": stage.run.output.embedding,
    }


def _changed(method: Method) -> Report:
    """The parameters that are not what they would be by themselves."""
    values = ((field, getattr(method, field.name)) for field in fields(cast(Any, method)))
    changed: Report = store.to_json({field.name: value for field, value in values if value != field.default})
    return changed


def _written(stage: Stage) -> str:
    """What tells an embedding from any other."""
    digest: str = store.read_group(stage.embedding, "embedding").record["digest"]
    return digest


def _write(place: Place, rows: Sequence[Report]) -> None:
    """Write the table as its name ends, in one step."""
    render = tabulation.comma_separated if place.name.endswith(".csv") else tabulation.markdown
    try:
        folder_at(place.parent).write(place.name, lambda file: _put(file, render(rows)))
    except OSError as error:
        raise StoreError(f"{place}: cannot be written: {error}") from error


def _put(file: Any, text: str) -> None:
    file.write(text.encode())


@contextmanager
def _telling_whose(name: str) -> Iterator[None]:
    """Say which of the methods met an error of the data, or of memory."""
    try:
        yield
    except (DataError, MemoryLimitError) as error:
        raise type(error)(f"{name}: {error}") from error


def _require_apart(comparison: Comparison) -> None:
    """Refuse to write a table into a store that is read or written: it would damage it."""
    runs = comparison.runs()
    given = comparison.input
    stores = [given.path, given.weights, given.labels, given.mask]
    stores += [path for run in runs for path in (run.output.model, run.output.embedding)]
    for table in map(parse_place, comparison.output.tables):
        for place in (parse_place(path) for path in stores if path is not None):
            if isinstance(table, Path) and isinstance(place, Path):
                inside = table.resolve().is_relative_to(place.resolve())
            else:
                inside = f"{table}/".startswith(f"{place}/")
            if inside:
                raise ConfigError(f"{table}: lies in {place}, which is a store; write the table elsewhere")
