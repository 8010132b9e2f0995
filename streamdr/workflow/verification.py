"""Verification of outputs: are they complete, were they made from this input, do they match the data?"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, fields
from typing import Any, Protocol, runtime_checkable

import numpy as np

from streamdr.core.blocks import Array, Block, Span
from streamdr.core.byte_sizes import format_bytes
from streamdr.core.progress import PassStart
from streamdr.core.row_outputs import EMBEDDING, ROW_OUTPUTS, RowOutput, RowView
from streamdr.data import Source
from streamdr.data.features import for_model
from streamdr.engine import fitting
from streamdr.engine.coordinates import frame_shape
from streamdr.errors import DataError, StoreError
from streamdr.methods.chain import ChainModel
from streamdr.store import Backend, SavedModel
from streamdr.workflow.reports import VerifyReport
from streamdr.workflow.run_context import RunContext
from streamdr.workflow.staleness import model_digest

SAMPLE_BYTES = 64 * 2**20
"""The bytes of the input that are read. A smaller input is read completely."""

_RUNS = 8
_BLOCK_BYTES = 8 * 2**20
_ROUNDING = 1e-5
"""The error of sums in mixed precision that is accepted, as a share of the total variance."""


@runtime_checkable
class Reconstructs(Protocol):
    """A model with a reconstruction error."""

    reconstruction_error: float
    """The mean of `squared_errors` over the rows of the fit."""
    total_variance: float
    n_samples: float
    ddof: int

    def squared_errors(self, values: Array) -> Array:
        """Return the squared distance of each row from its reconstruction."""


def verify(context: RunContext) -> VerifyReport:
    """Check the outputs against the input, and raise a StoreError that names the first problem.

    The model is read and compared with its digests, and all outputs of rows with their checksums. A sample of
    the input, the same every time, is mapped again and compared with the rows that were written.
    """
    run, began = context.run, time.monotonic()
    saved = context.model.load_model()
    _require_finite_model(context.model, saved.model)
    opened = context.open_input(saved.model)
    fingerprint = opened.fingerprint
    fitting.require_features(saved.model, opened.source, saved.axes, saved.feature_names)
    source = for_model(opened.source, saved.axes)
    checks = {"model": f"every file has its sha256; {opened.source.spec.n_cols:,} features, like the input"}

    outputs = [
        _WrittenRows.check(kind, output, saved, source, fingerprint) for kind, output in context.rows.items()
    ]
    for output in outputs:
        checks[output.view.kind.key] = output.read_all(context)

    rows = sample(source)
    totals = _SampleTotals()
    with fitting.one_blas_thread():
        for span in rows:
            block = source.block(span, allow_nan=saved.model.allow_nan)
            _add_block(totals, saved.model, block)
            for output in outputs:
                output.compare(block)
    if totals.n_rows:
        checks["sample"] = f"{totals.n_rows:,} of {source.spec.n_rows:,} rows"
    else:
        band = min(source.chunks[0], source.spec.n_rows) * source.spec.line_bytes("rows")
        checks["sample"] = f"none: reading one row of chunks takes {format_bytes(band)}"
    for output in outputs if totals.n_rows else ():
        name = "scores" if output.view.kind == EMBEDDING else f"sample of {output.view.kind.key}"
        checks[name] = output.require_equal(source, run.output.refresh_tolerance)
    if source.fingerprint() != fingerprint:
        raise DataError(
            f"{source.name}: changed while it was being read; run again when nothing writes to it"
        )
    if totals.weight:
        fitted_to_it = saved.input_fingerprint == fingerprint
        checks["reconstruction error"] = _compare_errors(totals, context.model, saved.model, fitted_to_it)
    return VerifyReport(
        n_rows=source.spec.n_rows,
        sampled_rows=totals.n_rows,
        bytes_read=totals.n_rows * source.stored_line_bytes("rows"),
        seconds=time.monotonic() - began,
        model=run.output.model,
        model_digest=saved.record["digest"],
        embedding=run.output.embedding,
        outputs=run.output.rows,
        reconstruction_error=totals.mean_error,
        checks=checks,
    )


def sample(source: Source) -> list[Span]:
    """Return a few evenly spaced ranges of rows, of `SAMPLE_BYTES` at most; none if one takes more."""
    n_rows, row_bytes = source.spec.n_rows, source.spec.line_bytes("rows")
    at_once = max(1, _BLOCK_BYTES // row_bytes)
    if n_rows * row_bytes <= SAMPLE_BYTES:
        return list(Span(0, n_rows).split(at_once))
    # Reading a row decodes all chunks that it is in.
    chunk = min(source.chunks[0], n_rows)
    n_chunks = math.ceil(n_rows / chunk)
    wanted = min(_RUNS, n_chunks, SAMPLE_BYTES // (chunk * row_bytes))
    firsts = (n_chunks - 1) * np.arange(wanted) // max(1, wanted - 1) * chunk
    return [Span(int(first), min(int(first) + min(at_once, chunk), n_rows)) for first in firsts]


@dataclass
class _SampleTotals:
    """The sums over the rows of the sample."""

    n_rows: int = 0
    weight: float = 0.0
    squared_error: float = 0.0

    @property
    def mean_error(self) -> float | None:
        return self.squared_error / self.weight if self.weight else None


@dataclass
class _WrittenRows:
    """An output of rows of this model and this input, and how the sample compares with it."""

    output: Backend
    array: Any
    view: RowView
    squared_difference: float = 0.0
    squared_size: float = 0.0

    @classmethod
    def check(
        cls, kind: RowOutput, output: Backend, saved: SavedModel, source: Source, fingerprint: str
    ) -> _WrittenRows:
        """Open the output, and require that it was made by this model from this input."""
        array, record = output.open_rows(kind.name), output.read_group(kind.name).record
        if record.get("model_digest") != model_digest(kind, saved):
            raise StoreError(f"{output}: was not made by the current model; transform again")
        view = kind.of(saved.model, saved.axes)
        expected, _ = frame_shape(view, source)
        if array.shape != expected:
            there, asked = (" x ".join(f"{n:,}" for n in shape) for shape in (array.shape, expected))
            raise StoreError(
                f"{output}: has {there} values where the input and the model ask for {asked}; transform again"
            )
        if record.get("input_fingerprint") != fingerprint:
            raise StoreError(
                f"{output}: was made from another input than {source.name}, or the input has changed since; "
                "transform again"
            )
        return cls(output, array, view)

    def read_all(self, context: RunContext) -> str:
        """Compare every chunk with its checksum, and require finite values."""
        n_rows, chunk, view = self.array.shape[0], self.array.chunks[0], self.view
        row_bytes = float(view.n_outputs * self.array.dtype.itemsize)
        context.progress.start(PassStart("verify", n_rows, bytes_per_row=row_bytes))
        try:
            for span in Span(0, n_rows).split(chunk):
                if not view.is_valid(self.rows(span)):
                    raise StoreError(f"{self._where(span)}: not all values are finite; transform again")
                context.progress.advance(len(span))
        finally:
            context.progress.finish()
        coordinates = self.output.open_coordinates(view.kind.name)
        for coordinate in coordinates.values():
            coordinate.require_intact()
        n_chunks = math.ceil(n_rows / chunk)
        beside = f", and so have {', '.join(coordinates)}" if coordinates else ""
        exception = (
            ""
            if view.never_observed is None
            else f" except those of {int(view.never_observed.sum()):,} features that were never observed"
        )
        checked = (
            f"{n_rows:,} rows, like the input; {n_chunks:,} chunks have their {self.output.checksum}{beside}"
        )
        return f"{checked}; all values finite{exception}"

    def rows(self, span: Span) -> Array:
        """Return rows of the output as a matrix."""
        try:
            return np.asarray(self.array[span.slice]).reshape(len(span), self.view.n_outputs)
        except StoreError as error:
            raise StoreError(f"{self._where(span)}: {error.__cause__}; transform again") from error.__cause__

    def compare(self, block: Block) -> None:
        """Map a block of the input again, and add its difference from the rows that were written."""
        mapped, rows = self.view.transform(block.values).astype(np.float64), self.rows(block.span)
        difference = np.where(np.isnan(mapped) & np.isnan(rows), 0.0, mapped - rows)
        self.squared_size += float(np.nansum(mapped**2))
        self.squared_difference += float(np.sum(difference**2))

    def require_equal(self, source: Source, tolerance: float) -> str:
        """Require that the sample, mapped again, equals the rows that were written, up to rounding."""
        # Blocks of another length sum in another order, so half of the digits must agree. And rows of an
        # earlier model may have been kept, if that model was within the tolerance.
        types = [dtype for dtype in (self.array.dtype, source.spec.working) if dtype.kind == "f"]
        coarser = max(np.finfo(dtype).eps for dtype in types)  # labels are whole numbers
        if not self._difference <= math.sqrt(coarser) + 2 * tolerance:
            raise StoreError(
                f"{self.output}: the rows of the sample, mapped again, differ by {self._difference:.2g} of "
                "their size from those written; transform again"
            )
        return f"mapped again, the sample differs by {self._difference:.1g} of its size"

    @property
    def _difference(self) -> float:
        """The difference between the written rows and the same rows mapped again, relative to their size."""
        if not self.squared_difference:
            return 0.0
        return math.sqrt(self.squared_difference / self.squared_size) if self.squared_size else math.inf

    def _where(self, span: Span) -> str:
        return f"{self.output}: rows {span.start}-{span.stop - 1}"


def _add_block(totals: _SampleTotals, model: Any, block: Block) -> None:
    """Add the reconstruction errors of a block."""
    weights = np.ones(len(block.values)) if block.weights is None else block.weights
    totals.n_rows += len(block.values)
    if isinstance(model, Reconstructs):
        totals.weight += float(weights.sum())
        totals.squared_error += float(weights @ model.squared_errors(block.values))


def _compare_errors(totals: _SampleTotals, output: Backend, model: Reconstructs, fitted_to_it: bool) -> str:
    """Compare the reconstruction error of the sample with the one that the model records."""
    # The squared error of a sample cannot exceed that of all rows. There is no lower bound, because the
    # sample may contain the rows that the model describes best.
    allowed = model.reconstruction_error + _ROUNDING * model.total_variance
    if fitted_to_it and totals.squared_error > allowed * (model.n_samples - model.ddof):
        raise StoreError(
            f"{output}: has a reconstruction error of {totals.mean_error:.6g} on the sample, and records "
            f"{model.reconstruction_error:.6g} for all rows, which is impossible; fit again"
        )
    other = "" if fitted_to_it else ", which are other rows, or have changed since"
    said = f"the model records {model.reconstruction_error:.6g} for the rows of its fit{other}"
    return f"{totals.mean_error:.6g} in the sample; {said}"


def _require_finite_model(output: Backend, model: Any) -> None:
    """Refuse a model with values that are not finite, except for features that were never observed."""
    never_observed = _never_observed(model)
    if isinstance(model, ChainModel):
        for member in model.models:
            _require_finite_model(output, member)
        return
    for field in fields(model):
        value = getattr(model, field.name)
        if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
            continue
        finite = np.isfinite(value)
        if never_observed is not None and field.metadata.get("dims", ())[-1:] == ("feature",):
            finite |= never_observed
        if not finite.all():
            raise StoreError(f"{output}: {field.name} holds values that are not finite; fit again")


def _never_observed(model: Any) -> Array | None:
    """Return the mask of the features that were never observed in the fit, if there are any."""
    views = [kind.of(model) for kind in ROW_OUTPUTS if kind.imputes and kind.supported_by(type(model))]
    return views[0].never_observed if views else None
