"""Rows by groups, those of each about a row near their own mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamdr.accumulators.centred import shifted
from streamdr.accumulators.centres import Centres
from streamdr.blocks import Array, Block, widen
from streamdr.linalg import slabs
from streamdr.scratch import room_for, scratch

_FEW = 12
"""So many groups are told apart faster by a product than by sorting rows."""
_PICKED = 128
_FEWEST, _MOST = 4, 64


@dataclass(frozen=True)
class Grouped:
    """The rows of a block, each about its group's origin, scaled by the root of their weights.

    The values are the block's own memory if it may be overwritten and rows stay in their places, or the
    thread's scratch: they last until it moves another block.
    """

    groups: Array
    """The number of each group that weighs anything, ascending."""
    centres: Centres
    """Of each of them how many rows there are, of what weight, and their mean; rows are about its origin."""
    values: Array
    spans: list[slice]
    """Where the rows of each group are, if those of one lie side by side."""


def coded(block: Block, known: Array) -> tuple[Array, Array]:
    """The classes of a block's rows, sorted, and for each row the number of its class.

    Rows of no weight are as good as not there: they have a number that is no class's, the next one. Where
    the classes that are known already do, these are given, as finding new ones costs a sort.
    """
    labels = block.labels
    assert labels is not None  # no method that needs labels is run without
    there = np.ones(len(labels), bool) if block.weights is None else block.weights > 0
    if there.all():
        return _found(labels, known)
    classes, some = _found(labels[there], known)
    codes = np.full(len(labels), len(classes))
    codes[there] = some
    return classes, codes


def _found(labels: Array, known: Array) -> tuple[Array, Array]:
    if len(known):
        codes = np.minimum(np.searchsorted(known, labels), len(known) - 1)
        if np.array_equal(known[codes], labels):
            return known, codes
    classes, codes = np.unique(labels, return_inverse=True)
    return classes, codes


def grouped(block: Block, codes: Array, *, double: bool, together: bool = True) -> Grouped:
    """Move the rows of each group near the origin, by a shift of the group's own.

    If they are to be `together`, rows of a group are brought side by side, in their order. Otherwise that is
    done only if there are many groups. A block of one group is not copied.
    """
    counts = np.bincount(codes)
    present = np.flatnonzero(counts)
    if len(present) == 1:
        return _alone(block, present, double=double)
    counts = counts[present]
    values = widen(block.values)
    if double:
        values = values.astype(np.float64, copy=False)
    order = np.argsort(codes.astype(np.uint16), kind="stable")  # short numbers are sorted by their digits
    stops = np.cumsum(counts)
    spans = [slice(stop - count, stop) for stop, count in zip(stops, counts, strict=True)]
    shifts = _near_means(values, order, stops, counts)
    if together or len(present) > _FEW:
        moved = scratch("moved", values.shape, values.dtype)
        heavy = None if block.weights is None else block.weights[order]
        sums = np.array(
            [
                _brought(values, order[span], None if heavy is None else heavy[span], shift, moved[span])
                for span, shift in zip(spans, shifts, strict=True)
            ]
        )
    else:
        moved = room_for(values, block)
        sums = _in_place(values, _dense(codes, present), block.weights, shifts, moved)
    if not np.isfinite(sums).all():
        block.suspect()
    weights: Array = counts.astype(np.float64)
    if block.weights is not None:
        weights = np.bincount(codes, block.weights)[present]
        counts = np.bincount(codes, block.weights > 0)[present].astype(np.int64)
    offsets = sums / np.where(weights > 0, weights, 1.0)[:, None]
    return _weighing(present, Centres(counts, weights, shifts.astype(np.float64), offsets), moved, spans)


def _alone(block: Block, group: Array, *, double: bool) -> Grouped:
    """A block of one group."""
    rows = shifted(block, double=double)
    n_rows, centre = len(rows.values), rows.centre
    count = n_rows if block.weights is None else np.count_nonzero(block.weights)
    numbers = np.array([count]), np.array([centre.weight])
    return _weighing(
        group, Centres(*numbers, centre.origin[None], centre.offset[None]), rows.values, [slice(0, n_rows)]
    )


def _weighing(present: Array, centres: Centres, values: Array, spans: list[slice]) -> Grouped:
    """Without groups of no weight."""
    kept = np.flatnonzero(centres.weights > 0)
    if len(kept) < len(present):
        present, centres, spans = present[kept], centres.some(kept), [spans[n] for n in kept]
    return Grouped(present, centres, values, spans)


def _near_means(values: Array, order: Array, stops: Array, counts: Array) -> Array:
    """A row close to the mean of each group's, exact in the block's own type: that of a few of its rows."""
    number = int(np.clip(_PICKED // len(counts), _FEWEST, _MOST))
    among = (np.arange(number) * counts[:, None]) // number
    picked = values[order[(stops - counts)[:, None] + among]]
    shifts: Array = picked.mean(axis=1, dtype=np.float64).astype(values.dtype)
    return shifts


def _dense(codes: Array, present: Array) -> Array:
    """Numbers of groups among those that are present."""
    return codes if present[-1] == len(present) - 1 else np.searchsorted(present, codes)


def _in_place(values: Array, codes: Array, weights: Array | None, shifts: Array, out: Array) -> Array:
    """Take its group's shift off each row, and sum the rows of each group."""
    sums = np.zeros(shifts.shape)
    heavy = np.ones(len(values), out.dtype) if weights is None else weights.astype(out.dtype)
    # A slab at a time, so that it is summed while it is still in cache.
    for slab in slabs(out):
        numbers, here = codes[slab], out[slab]
        np.subtract(values[slab], np.take(shifts, numbers, axis=0), out=here)
        members = np.zeros((len(numbers), len(shifts)), out.dtype)
        members[np.arange(len(numbers)), numbers] = heavy[slab]
        sums += members.T @ here
        if weights is not None:
            here *= np.sqrt(weights[slab]).astype(out.dtype)[:, None]
    return sums


def _brought(values: Array, rows: Array, weights: Array | None, shift: Array, out: Array) -> Array:
    """Copy rows of one group, less its shift, and sum them."""
    sums = np.zeros(values.shape[1])
    heavy = np.ones(len(rows), out.dtype) if weights is None else weights.astype(out.dtype)
    for slab in slabs(out):
        here = np.take(values, rows[slab], axis=0, out=out[slab], mode="clip")  # "raise" would buffer
        here -= shift
        sums += heavy[slab] @ here
        if weights is not None:
            here *= np.sqrt(weights[slab]).astype(out.dtype)[:, None]
    return sums
