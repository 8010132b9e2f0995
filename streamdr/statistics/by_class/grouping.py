"""Rows by group, each group shifted by a row near its own mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamdr.core.blocks import Array, Block, SparseBlock, widen
from streamdr.core.buffers import output_buffer, scratch
from streamdr.core.linalg import slabs
from streamdr.statistics.centring import shifted
from streamdr.statistics.group_centring import Centres

_FEW_GROUPS = 12
"""Up to this many groups, a matrix product is faster than sorting the rows."""
_ROWS_PICKED = 128
"""The number of rows of all groups from which the shifts are computed."""
_MIN_PICKED, _MAX_PICKED = 4, 64
"""Bounds of the number of these rows for each group."""


@dataclass(frozen=True)
class Grouped:
    """The rows of a block minus the origin of their group, times their root weights.

    The values are in the block's own memory if it is disposable and rows are not reordered, else in a scratch
    buffer of the thread. They are valid until the thread shifts another block.
    """

    groups: Array
    """The indices of the groups of positive weight, ascending."""
    centres: Centres
    """The centre of each of these groups. Rows are relative to its origin."""
    values: Array
    spans: list[slice]
    """The rows of each group, if those of a group are contiguous."""


def coded(block: Block | SparseBlock, known: Array) -> tuple[Array, Array]:
    """The classes of a block's rows, sorted, and for each row the index of its class.

    Rows of weight zero are ignored: their index is the number of classes. If all labels are among the `known`
    classes, these are returned, since finding the classes takes a sort.
    """
    labels = block.labels
    assert labels is not None  # methods that need labels are never run without them
    positive = np.ones(len(labels), bool) if block.weights is None else block.weights > 0
    if positive.all():
        return _found(labels, known)
    classes, positive_codes = _found(labels[positive], known)
    codes = np.full(len(labels), len(classes))
    codes[positive] = positive_codes
    return classes, codes


def _found(labels: Array, known: Array) -> tuple[Array, Array]:
    """The classes, and for each label the index of its class."""
    if len(known):
        codes = np.minimum(np.searchsorted(known, labels), len(known) - 1)
        if np.array_equal(known[codes], labels):
            return known, codes
    classes, codes = np.unique(labels, return_inverse=True)
    return classes, codes


def grouped(block: Block, codes: Array, *, double: bool, together: bool = True) -> Grouped:
    """Shift the rows of each group by a row near the mean of the group.

    With `together`, the rows of a group are made contiguous, in their order. Otherwise that is done only if
    there are many groups. A block of one group is not copied.
    """
    counts = np.bincount(codes)
    present = np.flatnonzero(counts)
    if len(present) == 1:
        return _single_group(block, present, double=double)
    counts = counts[present]
    values = widen(block.values)
    if double:
        values = values.astype(np.float64, copy=False)
    order = np.argsort(codes.astype(np.uint16), kind="stable")  # numpy sorts 16-bit integers by radix
    stops = np.cumsum(counts)
    spans = [slice(stop - count, stop) for stop, count in zip(stops, counts, strict=True)]
    shifts = _near_means(values, order, stops, counts)
    if together or len(present) > _FEW_GROUPS:
        moved = scratch("moved", values.shape, values.dtype)
        row_weights = None if block.weights is None else block.weights[order]
        sums = np.array(
            [
                _gathered(
                    values,
                    order[span],
                    None if row_weights is None else row_weights[span],
                    shift,
                    moved[span],
                )
                for span, shift in zip(spans, shifts, strict=True)
            ]
        )
    else:
        moved = output_buffer(values, block)
        sums = _shifted_in_place(values, _dense(codes, present), block.weights, shifts, moved)
    if not np.isfinite(sums).all():
        block.locate_nonfinite()
    weights: Array = counts.astype(np.float64)
    if block.weights is not None:
        weights = np.bincount(codes, block.weights)[present]
        counts = np.bincount(codes, block.weights > 0)[present].astype(np.int64)
    offsets = sums / np.where(weights > 0, weights, 1.0)[:, None]
    return _of_positive_weight(
        present, Centres(counts, weights, shifts.astype(np.float64), offsets), moved, spans
    )


def _single_group(block: Block, group: Array, *, double: bool) -> Grouped:
    """A block of one group."""
    rows = shifted(block, double=double)
    n_rows, centre = len(rows.values), rows.centre
    count = n_rows if block.weights is None else np.count_nonzero(block.weights)
    numbers = np.array([count]), np.array([centre.weight])
    return _of_positive_weight(
        group, Centres(*numbers, centre.origin[None], centre.offset[None]), rows.values, [slice(0, n_rows)]
    )


def _of_positive_weight(present: Array, centres: Centres, values: Array, spans: list[slice]) -> Grouped:
    """The grouped rows without groups of weight zero."""
    kept = np.flatnonzero(centres.weights > 0)
    if len(kept) < len(present):
        present, centres, spans = present[kept], centres.subset(kept), [spans[n] for n in kept]
    return Grouped(present, centres, values, spans)


def _near_means(values: Array, order: Array, stops: Array, counts: Array) -> Array:
    """A row close to the mean of each group, exact in the block's type: the mean of a few of its rows."""
    number = int(np.clip(_ROWS_PICKED // len(counts), _MIN_PICKED, _MAX_PICKED))
    among = (np.arange(number) * counts[:, None]) // number
    picked = values[order[(stops - counts)[:, None] + among]]
    shifts: Array = picked.mean(axis=1, dtype=np.float64).astype(values.dtype)
    return shifts


def _dense(codes: Array, present: Array) -> Array:
    """The index of each row's group among the groups that are present."""
    return codes if present[-1] == len(present) - 1 else np.searchsorted(present, codes)


def _shifted_in_place(values: Array, codes: Array, weights: Array | None, shifts: Array, out: Array) -> Array:
    """Subtract its group's shift from each row, and sum the rows of each group."""
    sums = np.zeros(shifts.shape)
    row_weights = np.ones(len(values), out.dtype) if weights is None else weights.astype(out.dtype)
    # A slab at a time, so that it is summed while it is still in cache.
    for slab in slabs(out):
        numbers, here = codes[slab], out[slab]
        np.subtract(values[slab], np.take(shifts, numbers, axis=0), out=here)
        members = np.zeros((len(numbers), len(shifts)), out.dtype)
        members[np.arange(len(numbers)), numbers] = row_weights[slab]
        sums += members.T @ here
        if weights is not None:
            here *= np.sqrt(weights[slab]).astype(out.dtype)[:, None]
    return sums


def _gathered(values: Array, rows: Array, weights: Array | None, shift: Array, out: Array) -> Array:
    """Copy the rows of one group minus its shift, and sum them."""
    sums = np.zeros(values.shape[1])
    row_weights = np.ones(len(rows), out.dtype) if weights is None else weights.astype(out.dtype)
    for slab in slabs(out):
        here = np.take(values, rows[slab], axis=0, out=out[slab], mode="clip")  # "raise" would buffer
        here -= shift
        sums += row_weights[slab] @ here
        if weights is not None:
            here *= np.sqrt(weights[slab]).astype(out.dtype)[:, None]
    return sums
