"""A last look at what was written: is it whole, is it of this input, and does it say what the data says?"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, fields
from typing import Any, Protocol, runtime_checkable

import numpy as np

from streamdr import fitting, store
from streamdr.addresses import Place
from streamdr.blocks import Array, Block, Span
from streamdr.errors import DataError, StoreError
from streamdr.freshness import Wanted
from streamdr.methods.rows import EMBEDDING, ROW_OUTPUTS, RowOutput, RowView
from streamdr.reports import Report
from streamdr.sizes import format_bytes
from streamdr.sources import Source
from streamdr.stage import Stage

SAMPLE_BYTES = 64 * 2**20
"""What is read of the input. An input that is smaller is read whole."""

_RUNS = 8
_BLOCK_BYTES = 8 * 2**20
_ROUNDING = 1e-5
"""How far, as a share of the total variance, sums in mixed precision may be off."""


@runtime_checkable
class Reconstructs(Protocol):
    """A model that says how far rows are from what it can say of them."""

    reconstruction_error: float
    """The mean of `squared_errors` over the rows that it was fitted to."""
    total_variance: float
    n_samples: float
    ddof: int

    def squared_errors(self, values: Array) -> Array:
        """Each row's squared distance from its reconstruction."""


def verify(stage: Stage) -> Report:
    """Check the outputs against the input. What is not as it should be is a StoreError that says where.

    The model is read whole and compared with its digests, the embedding and all else that was written of
    rows with its checksums; a sample of the input, the same every time, is mapped once more and compared
    with the rows that were written.
    """
    run, began = stage.run, time.monotonic()
    saved = store.load_model(stage.model)
    _require_finite_model(stage.model, saved.model)
    wanted = stage.wanted(saved.model)
    source = wanted.source
    fitting.require_features(saved.model, source)
    checks = {"model": f"every file has its sha256; {saved.model.n_features:,} features, as the input has"}

    outputs = [_Written.of(kind, place, saved, wanted) for kind, place in stage.rows.items()]
    for output in outputs:
        checks[output.view.kind.name] = output.read_whole(stage)

    rows = sample(source)
    seen = _Seen()
    with fitting.one_blas_thread():
        for span in rows:
            block = source.block(span, holes=saved.model.holes)
            _look(seen, saved.model, block)
            for output in outputs:
                output.compare(block)
    if seen.n_rows:
        checks["sample"] = f"{seen.n_rows:,} of {source.spec.n_rows:,} rows"
    else:
        band = min(source.chunks[0], source.spec.n_rows) * source.spec.line_bytes("rows")
        checks["sample"] = f"none: one row of chunks takes {format_bytes(band)} to read"
    for output in outputs if seen.n_rows else ():
        name = "scores" if output.view.kind == EMBEDDING else f"sample of {output.view.kind.name}"
        checks[name] = output.verdict(source, run.output.refresh_tolerance)
    if wanted.snapshot.digest(source.spec.n_rows) != source.fingerprint():
        raise DataError(
            f"{source.name}: changed while it was being read; run again when nothing writes to it"
        )
    if seen.weight:
        fitted_to_it = saved.input_fingerprint == wanted.fingerprint
        checks["reconstruction error"] = _compare_errors(seen, stage.model, saved.model, fitted_to_it)
    return {
        "command": "verify",
        "n_rows": source.spec.n_rows,
        "sampled_rows": seen.n_rows,
        "bytes_read": seen.n_rows * source.stored_line_bytes("rows"),
        "seconds": time.monotonic() - began,
        "model": run.output.model,
        "model_digest": saved.record["digest"],
        "embedding": run.output.embedding,
        "outputs": run.output.rows,
        "reconstruction_error": seen.mean_error,
        "checks": checks,
    }


def sample(source: Source) -> list[Span]:
    """A few runs of rows, spread evenly, which can be read within `SAMPLE_BYTES`; none where one cannot."""
    n_rows, row_bytes = source.spec.n_rows, source.spec.line_bytes("rows")
    at_once = max(1, _BLOCK_BYTES // row_bytes)
    if n_rows * row_bytes <= SAMPLE_BYTES:
        return list(Span(0, n_rows).split(at_once))
    # Whoever reads a row decodes all the chunks that it goes through.
    chunk = min(source.chunks[0], n_rows)
    n_chunks = math.ceil(n_rows / chunk)
    wanted = min(_RUNS, n_chunks, SAMPLE_BYTES // (chunk * row_bytes))
    firsts = (n_chunks - 1) * np.arange(wanted) // max(1, wanted - 1) * chunk
    return [Span(int(first), min(int(first) + min(at_once, chunk), n_rows)) for first in firsts]


@dataclass
class _Seen:
    """What the sample told."""

    n_rows: int = 0
    weight: float = 0.0
    squared_error: float = 0.0

    @property
    def mean_error(self) -> float | None:
        return self.squared_error / self.weight if self.weight else None


@dataclass
class _Written:
    """What was written of rows, by this model and as long as the input, and how the sample compares."""

    path: Place
    array: Any
    view: RowView
    squared_difference: float = 0.0
    squared_size: float = 0.0

    @classmethod
    def of(cls, kind: RowOutput, path: Place, saved: store.SavedModel, wanted: Wanted) -> _Written:
        source = wanted.source
        array, record = store.open_rows(path, kind.name), store.read_group(path, kind.name).record
        if record.get("model_digest") != saved.record["digest"]:
            raise StoreError(f"{path}: was not made by the model that is there now; transform again")
        view = kind.of(saved.model)
        expected, _ = view.frame(source.spec.n_rows, source.sample_shape, source.dims)
        if array.shape != expected:
            there, asked = (" x ".join(f"{n:,}" for n in shape) for shape in (array.shape, expected))
            raise StoreError(
                f"{path}: has {there} values where the input and the model ask for {asked}; transform again"
            )
        if record.get("input_fingerprint") != wanted.fingerprint:
            raise StoreError(
                f"{path}: was made of another input than {source.name}, or that has changed since; "
                "transform again"
            )
        return cls(path, array, view)

    def read_whole(self, stage: Stage) -> str:
        """Compare every chunk with its checksum, and look for values that are not finite."""
        n_rows, chunk, view = self.array.shape[0], self.array.chunks[0], self.view
        stage.progress.start("verify", n_rows, 0, float(view.n_outputs * self.array.dtype.itemsize))
        try:
            for span in Span(0, n_rows).split(chunk):
                if not view.is_sound(self.rows(span)):
                    raise StoreError(f"{self._where(span)}: not all values are finite; transform again")
                stage.progress.advance(len(span))
        finally:
            stage.progress.finish()
        n_chunks = math.ceil(n_rows / chunk)
        but = "" if view.blank is None else f" but those of {int(view.blank.sum()):,} unknown features"
        whole = f"{n_rows:,} rows, as the input has; {n_chunks:,} chunks have their crc32c"
        return f"{whole}; all values finite{but}"

    def rows(self, span: Span) -> Array:
        try:
            return np.asarray(self.array[span.slice]).reshape(len(span), self.view.n_outputs)
        except StoreError as error:
            raise StoreError(f"{self._where(span)}: {error.__cause__}; transform again") from error.__cause__

    def compare(self, block: Block) -> None:
        """Map some of the input once more."""
        anew, rows = self.view.transform(block.values).astype(np.float64), self.rows(block.span)
        difference = np.where(np.isnan(anew) & np.isnan(rows), 0.0, anew - rows)
        self.squared_size += float(np.nansum(anew**2))
        self.squared_difference += float(np.sum(difference**2))

    def verdict(self, source: Source, tolerance: float) -> str:
        """Whether what was mapped once more is what was written."""
        # Blocks of another length sum in another order: half of the digits must agree. And rows of an earlier
        # model may have been kept, if it was close enough on those that were looked at then.
        types = [dtype for dtype in (self.array.dtype, source.spec.working) if dtype.kind == "f"]
        coarser = max(np.finfo(dtype).eps for dtype in types)  # labels are whole numbers
        if not self._difference <= math.sqrt(coarser) + 2 * tolerance:
            raise StoreError(
                f"{self.path}: mapped once more, the sample's rows differ by {self._difference:.2g} of their "
                "size from those written; transform again"
            )
        return f"mapped once more, the sample differs by {self._difference:.1g} of its size"

    @property
    def _difference(self) -> float:
        """Between the rows that were written and the same mapped once more, as a part of their size."""
        if not self.squared_difference:
            return 0.0
        return math.sqrt(self.squared_difference / self.squared_size) if self.squared_size else math.inf

    def _where(self, span: Span) -> str:
        return f"{self.path}: rows {span.start}-{span.stop - 1}"


def _look(seen: _Seen, model: Any, block: Block) -> None:
    weights = np.ones(len(block.values)) if block.weights is None else block.weights
    seen.n_rows += len(block.values)
    if isinstance(model, Reconstructs):
        seen.weight += float(weights.sum())
        seen.squared_error += float(weights @ model.squared_errors(block.values))


def _compare_errors(seen: _Seen, path: Place, model: Reconstructs, fitted_to_it: bool) -> str:
    # Squares only add up: whatever the sample, its part cannot be more than the whole. No such bound holds
    # from below, since the sample may be of the rows that the model describes best.
    allowed = model.reconstruction_error + _ROUNDING * model.total_variance
    if fitted_to_it and seen.squared_error > allowed * (model.n_samples - model.ddof):
        raise StoreError(
            f"{path}: leaves {seen.mean_error:.6g} of the variance of the sample's rows, and says that "
            f"it leaves {model.reconstruction_error:.6g} of all rows, which cannot be; fit again"
        )
    other = "" if fitted_to_it else ", which were others, or have changed since"
    said = f"the model says {model.reconstruction_error:.6g} of its rows{other}"
    return f"{seen.mean_error:.6g} in the sample; {said}"


def _require_finite_model(path: Place, model: Any) -> None:
    unknown = _unknown_features(model)
    for field in fields(model):
        value = getattr(model, field.name)
        if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
            continue
        finite = np.isfinite(value)
        if unknown is not None and field.metadata.get("dims", ())[-1:] == ("feature",):
            finite |= unknown
        if not finite.all():
            raise StoreError(f"{path}: {field.name} holds values that are not finite; fit again")


def _unknown_features(model: Any) -> Array | None:
    """The features of which a model says that it knows nothing, if there are any."""
    views = [kind.of(model) for kind in ROW_OUTPUTS if kind.fills and kind.made_by(type(model))]
    return views[0].blank if views else None
