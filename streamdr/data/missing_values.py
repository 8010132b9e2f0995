"""Missing values, given by a mask or by a number that stands for them, are read as NaN."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any

import numpy as np

from streamdr.core.blocks import Array, Span, SparseRows
from streamdr.core.buffers import scratch
from streamdr.core.linalg import slabs
from streamdr.data.layout import MatrixLayout
from streamdr.data.snapshot import DIGEST_BYTES, Snapshot
from streamdr.data.source import Source
from streamdr.data.zarr.source import ZarrSource
from streamdr.errors import DataError, InputError, ParameterError

_BOOL = np.dtype(np.bool_)


class MissingValuesSource(Source):
    """A source as floats, with NaN where its mask is true or where it equals the missing value."""

    private_buffers = True

    def __init__(
        self, base: Source, *, mask: Source | None = None, missing_value: np.generic | None = None
    ) -> None:
        if mask is not None:
            _require_mask(mask, base)
        self.name = base.name
        # A value that is not stored is 0, and not missing, unless 0 stands for missing values.
        zeros_stay = mask is None and missing_value != 0
        self.spec = replace(
            base.spec, dtype=base.spec.working, density=base.spec.density if zeros_stay else None
        )
        self.layout = layout_of(base)
        self.chunks = base.chunks
        self.grain = base.grain
        self.take_labels(base)
        self.weights = base.weights
        self.mask = mask
        self.missing_value = missing_value
        self._base = copy.copy(base)
        self._base.weights = None

    @property
    def identity(self) -> str:
        """The name in keys of the ledger: that of the base, the missing value and the mask."""
        identity = self._base.identity
        if self.missing_value is not None:
            identity += f" without {self.missing_value}"
        if self.mask is not None:
            identity += f" masked by {self.mask.identity}"
        return identity + self._companion_names

    @property
    def complete_rows(self) -> int:
        """How many of the first rows are in complete chunks of the base."""
        return self._base.complete_rows

    def stored_row(self, row: int) -> tuple[str, int]:
        """Return the file or array of a row, and its number there."""
        return self._base.stored_row(row)

    @property
    def _reads_from(self) -> tuple[Source | None, ...]:
        return (*super()._reads_from, self._base, self.mask)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the source, its weights, its labels and its mask."""
        return super().names if self.mask is None else (*super().names, self.mask.name)

    @property
    def stored_itemsize(self) -> int:
        """The bytes that are read per value, with its mask."""
        return self._base.stored_itemsize + (0 if self.mask is None else self.mask.stored_itemsize)

    def read(self, rows: Span, cols: Span) -> Array:
        """Return the region."""
        return self._with_nan(self._base.read(rows, cols), rows, cols, np.empty)

    def read_scratch(self, rows: Span, cols: Span) -> Array:
        """Return the region, in memory that this thread's next call overwrites."""
        return self._with_nan(
            self._base.read_scratch(rows, cols), rows, cols, partial(scratch, "missing values")
        )

    def _with_nan(
        self, stored: Array, rows: Span, cols: Span, memory: Callable[[tuple[int, ...], np.dtype[Any]], Array]
    ) -> Array:
        """Return the stored values as floats, with NaN for those that are missing."""
        if self._base.private_buffers and stored.dtype == self.spec.dtype:
            values = stored
        else:
            values = memory(stored.shape, self.spec.dtype)
            values[...] = stored
        flags = None
        if self.mask is not None:
            # Not into scratch memory, which may already hold the values of the base.
            flags = self.mask.read(rows, cols)
            self._require_flags(flags, self.mask, rows, cols)
        for slab in slabs(values):
            if self.missing_value is not None:  # compared as stored: large integers are not exact in floats
                np.copyto(values[slab], np.nan, where=stored[slab] == self.missing_value)
            if flags is not None:
                np.copyto(values[slab], np.nan, where=flags[slab] != 0)
        return values

    def read_sparse(self, rows: Span) -> SparseRows:
        """Return sparse rows as floats, with NaN for values that are missing."""
        found = self._base.read_sparse(rows)
        values = found.data.astype(self.spec.dtype)
        if self.missing_value is not None:
            values[found.data == self.missing_value] = np.nan
        return SparseRows((values, found.indices, found.indptr), shape=found.shape)

    def sparse_lengths(self, rows: Span) -> Iterator[Array]:
        """Yield how many values of each row are stored."""
        return self._base.sparse_lengths(rows)

    def sparse_bytes(self, n_rows: int) -> int:
        """Return the bytes of sparse rows of the base, and of a copy of their values."""
        return 2 * self._base.sparse_bytes(n_rows)

    def _require_flags(self, flags: Array, mask: Source, rows: Span, cols: Span) -> None:
        """Raise an error if the mask has values other than 0 and 1."""
        if flags.dtype == _BOOL or (flags.max() <= 1 and flags.min() >= 0):
            return
        row, col = np.argwhere((flags > 1) | (flags < 0))[0]
        where = f"row {rows.start + row}, {self.described_column(cols.start + col)}"
        raise DataError(
            f"{mask.name}: {flags[row, col]} at {where}; "
            "make it a mask of 0 and 1, with 1 where a value is missing"
        )

    def overhead(self, n_rows: int, n_cols: int) -> int:
        """Return the overhead of the values and of their mask."""
        total = self._base.overhead(n_rows, n_cols) + (1 << 20)
        if self._base.spec.dtype == self.spec.dtype and not self._base.private_buffers:
            total += n_rows * n_cols * self.spec.dtype.itemsize
        return total if self.mask is None else total + self.mask.overhead(n_rows, n_cols)

    def _require_chunks(self) -> None:
        super()._require_chunks()
        self._base._require_chunks()
        if self.mask is not None:
            self.mask._require_chunks()

    def _snapshot(self) -> Snapshot:
        mask = None if self.mask is None else self.mask.snapshot()
        return MaskedSnapshot(self._base.snapshot(), mask, str(self.missing_value))


@dataclass(frozen=True)
class MaskedSnapshot:
    """A snapshot of the values and their mask, and the missing value."""

    values: Snapshot
    mask: Snapshot | None
    missing_value: str

    def digest(self, rows: int) -> str:
        """Return one digest of all three."""
        mask = "unmasked" if self.mask is None else self.mask.digest(rows)
        everything = f"{self.values.digest(rows)} {mask} {self.missing_value}"
        return hashlib.blake2b(everything.encode(), digest_size=DIGEST_BYTES).hexdigest()

    def require_chunks(self) -> None:
        """Raise an error if chunks of the values or of the mask were missing."""
        self.values.require_chunks()
        if self.mask is not None:
            self.mask.require_chunks()


def layout_of(source: Source) -> MatrixLayout:
    """Return the layout of the array of a source; of the matrix if there is no such array."""
    layout: MatrixLayout | None = getattr(source, "layout", None)
    return layout or MatrixLayout((source.spec.n_rows, source.spec.n_cols), 0)


def stored_value(given: Any, source: Source) -> np.generic | None:
    """Return the missing value in the type of the source; None for NaN, which is always missing."""
    if isinstance(given, str) and given == "fill_value":
        given = source.fill_value if isinstance(source, ZarrSource) else None
        if given is None:
            raise ParameterError(
                "missing_value",
                f"{source.name}: has no fill value (only zarr stores may have one); give the number itself",
            )
    elif not isinstance(given, Real) or isinstance(given, bool):
        raise ParameterError("missing_value", f"{given!r} is neither a number nor 'fill_value'")
    dtype = source.spec.dtype
    value = _cast(given, dtype)
    if value is None:
        raise ParameterError(
            "missing_value", f"{given} cannot be among the values of {source.name}, whose type is {dtype}"
        )
    return None if np.isnan(value) else value


def _cast(number: Any, dtype: np.dtype[Any]) -> np.generic | None:
    """Return a number in another type, or None if it does not fit. Floats are rounded, like the data."""
    try:
        with np.errstate(over="raise"):
            value: np.generic = dtype.type(number if dtype.kind == "f" else int(number))
    except (OverflowError, FloatingPointError, ValueError):
        return None
    return value if dtype.kind == "f" or value == number else None


def _require_mask(mask: Source, base: Source) -> None:
    """Raise an error if the mask has another shape than the data, or is not boolean or integer."""
    if mask.spec.dtype.kind not in "biu":
        raise InputError(
            "mask",
            f"{mask.name}: values of type {mask.spec.dtype} do not make a mask; use booleans, or "
            "integers 0 and 1, with 1 where a value is missing",
        )
    own, its = layout_of(mask), layout_of(base)
    if (own.n_rows, own.features) != (its.n_rows, its.features):
        raise InputError(
            "mask",
            f"{mask.name}: a mask of shape {own.shape} for {base.name} of shape {its.shape}; "
            "give it the shape of the data",
        )
