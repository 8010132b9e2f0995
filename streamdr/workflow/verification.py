"""A last look at what was written: is it whole, is it of this input, and does it say what the data says?"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, fields
from typing import Any, Protocol, runtime_checkable

import numpy as np

from streamdr.core.blocks import Array, Block, Span
from streamdr.core.byte_sizes import format_bytes
from streamdr.core.row_outputs import EMBEDDING, ROW_OUTPUTS, RowOutput, RowView
from streamdr.data import Source
from streamdr.engine import fitting
from streamdr.errors import DataError, StoreError
from streamdr.store import Backend, SavedModel
from streamdr.workflow.reports import VerifyReport
from streamdr.workflow.run_context import RunContext
from streamdr.workflow.staleness import OpenedInput

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


def verify(context: RunContext) -> VerifyReport:
    """Check the outputs against the input. What is not as it should be is a StoreError that says where.

    The model is read whole and compared with its digests, the embedding and all else that was written of
    rows with its checksums; a sample of the input, the same every time, is mapped once more and compared
    with the rows that were written.
    """
    run, began = context.run, time.monotonic()
    saved = context.model.load_model()
    _require_finite_model(context.model, saved.model)
    opened = context.open_input(saved.model)
    source, fingerprint = opened.source, opened.fingerprint
    fitting.require_features(saved.model, source)
    checks = {"model": f"every file has its sha256; {saved.model.n_features:,} features, as the input has"}

    outputs = [_Written.of(kind, output, saved, opened) for kind, output in context.rows.items()]
    for output in outputs:
        checks[output.view.kind.name] = output.read_whole(context)

    rows = sample(source)
    seen = _Seen()
    with fitting.one_blas_thread():
        for span in rows:
            block = source.block(span, allow_nan=saved.model.allow_nan)
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
    if source.fingerprint() != fingerprint:
        raise DataError(
            f"{source.name}: changed while it was being read; run again when nothing writes to it"
        )
    if seen.weight:
        fitted_to_it = saved.input_fingerprint == fingerprint
        checks["reconstruction error"] = _compare_errors(seen, context.model, saved.model, fitted_to_it)
    return VerifyReport(
        n_rows=source.spec.n_rows,
        sampled_rows=seen.n_rows,
        bytes_read=seen.n_rows * source.stored_line_bytes("rows"),
        seconds=time.monotonic() - began,
        model=run.output.model,
        model_digest=saved.record["digest"],
        embedding=run.output.embedding,
        outputs=run.output.rows,
        reconstruction_error=seen.mean_error,
        checks=checks,
    )


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

    output: Backend
    array: Any
    view: RowView
    squared_difference: float = 0.0
    squared_size: float = 0.0

    @classmethod
    def of(cls, kind: RowOutput, output: Backend, saved: SavedModel, opened: OpenedInput) -> _Written:
        source = opened.source
        array, record = output.open_rows(kind.name), output.read_group(kind.name).record
        if record.get("model_digest") != saved.record["digest"]:
            raise StoreError(f"{output}: was not made by the model that is there now; transform again")
        view = kind.of(saved.model)
        expected, _ = view.frame(source.spec.n_rows, source.sample_shape, source.dims)
        if array.shape != expected:
            there, asked = (" x ".join(f"{n:,}" for n in shape) for shape in (array.shape, expected))
            raise StoreError(
                f"{output}: has {there} values where the input and the model ask for {asked}; transform again"
            )
        if record.get("input_fingerprint") != opened.fingerprint:
            raise StoreError(
                f"{output}: was made of another input than {source.name}, or that has changed since; "
                "transform again"
            )
        return cls(output, array, view)

    def read_whole(self, context: RunContext) -> str:
        """Compare every chunk with its checksum, and look for values that are not finite."""
        n_rows, chunk, view = self.array.shape[0], self.array.chunks[0], self.view
        context.progress.start("verify", n_rows, 0, float(view.n_outputs * self.array.dtype.itemsize))
        try:
            for span in Span(0, n_rows).split(chunk):
                if not view.is_valid(self.rows(span)):
                    raise StoreError(f"{self._where(span)}: not all values are finite; transform again")
                context.progress.advance(len(span))
        finally:
            context.progress.finish()
        n_chunks = math.ceil(n_rows / chunk)
        but = (
            ""
            if view.never_observed is None
            else f" but those of {int(view.never_observed.sum()):,} features that were never observed"
        )
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
                f"{self.output}: mapped once more, the sample's rows differ by {self._difference:.2g} of "
                "their size from those written; transform again"
            )
        return f"mapped once more, the sample differs by {self._difference:.1g} of its size"

    @property
    def _difference(self) -> float:
        """Between the rows that were written and the same mapped once more, as a part of their size."""
        if not self.squared_difference:
            return 0.0
        return math.sqrt(self.squared_difference / self.squared_size) if self.squared_size else math.inf

    def _where(self, span: Span) -> str:
        return f"{self.output}: rows {span.start}-{span.stop - 1}"


def _look(seen: _Seen, model: Any, block: Block) -> None:
    weights = np.ones(len(block.values)) if block.weights is None else block.weights
    seen.n_rows += len(block.values)
    if isinstance(model, Reconstructs):
        seen.weight += float(weights.sum())
        seen.squared_error += float(weights @ model.squared_errors(block.values))


def _compare_errors(seen: _Seen, output: Backend, model: Reconstructs, fitted_to_it: bool) -> str:
    # Squares only add up: whatever the sample, its part cannot be more than the whole. No such bound holds
    # from below, since the sample may be of the rows that the model describes best.
    allowed = model.reconstruction_error + _ROUNDING * model.total_variance
    if fitted_to_it and seen.squared_error > allowed * (model.n_samples - model.ddof):
        raise StoreError(
            f"{output}: leaves {seen.mean_error:.6g} of the variance of the sample's rows, and says that "
            f"it leaves {model.reconstruction_error:.6g} of all rows, which cannot be; fit again"
        )
    other = "" if fitted_to_it else ", which were others, or have changed since"
    said = f"the model says {model.reconstruction_error:.6g} of its rows{other}"
    return f"{seen.mean_error:.6g} in the sample; {said}"


def _require_finite_model(output: Backend, model: Any) -> None:
    unknown = _unknown_features(model)
    for field in fields(model):
        value = getattr(model, field.name)
        if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
            continue
        finite = np.isfinite(value)
        if unknown is not None and field.metadata.get("dims", ())[-1:] == ("feature",):
            finite |= unknown
        if not finite.all():
            raise StoreError(f"{output}: {field.name} holds values that are not finite; fit again")


def _unknown_features(model: Any) -> Array | None:
    """The features of which a model says that it knows nothing, if there are any."""
    views = [kind.of(model) for kind in ROW_OUTPUTS if kind.fills and kind.supported_by(type(model))]
    return views[0].never_observed if views else None
