"""Rows of one group brought together, each group about a row near its own mean."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from streamdr.accumulators.centred import Centre, shifted
from streamdr.blocks import Array, Block, widen
from streamdr.linalg import slabs
from streamdr.scratch import scratch

_PICKED = 512
_FEWEST, _MOST = 4, 64


@dataclass(frozen=True)
class Grouped:
    """The rows of a block by groups, scaled by the root of their weights: those of one lie side by side.

    The values are the block's own memory if it may be overwritten and has one group only, or the thread's
    scratch: they last until it moves another block.
    """

    groups: Array
    """The number of each group that weighs anything, ascending."""
    centres: list[Centre]
    """Of each of them how many rows there are, of what weight, and their mean; rows are about its origin."""
    spans: list[slice]
    values: Array


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


def grouped(block: Block, codes: Array, *, double: bool) -> Grouped:
    """Bring the rows of each group together, and move them near the origin, by a shift of the group's own.

    Within a group rows stay in their order. A block of one group is not copied.
    """
    counts = np.bincount(codes)
    present = np.flatnonzero(counts)
    if len(present) == 1:
        rows = shifted(block, double=double)
        count = len(codes) if block.weights is None else np.count_nonzero(block.weights)
        whole = [replace(rows.centre, count=int(count))], [slice(0, len(codes))]
        return _weighing(present, *whole, rows.values)
    values = widen(block.values)
    if double:
        values = values.astype(np.float64, copy=False)
    order = np.argsort(codes.astype(np.uint16), kind="stable")  # short numbers are sorted by their digits
    stops = np.cumsum(counts[present])
    spans = [slice(stop - count, stop) for stop, count in zip(stops, counts[present], strict=True)]
    shifts = _near_means(values, order, stops, counts[present])
    moved = scratch("moved", values.shape, values.dtype)
    weights = None if block.weights is None else block.weights[order]
    centres = [
        _moved(values, order[span], None if weights is None else weights[span], shift, moved[span])
        for span, shift in zip(spans, shifts, strict=True)
    ]
    if not all(np.isfinite(centre.offset).all() for centre in centres):
        block.suspect()
    return _weighing(present, centres, spans, moved)


def _weighing(present: Array, centres: list[Centre], spans: list[slice], values: Array) -> Grouped:
    """Without groups of no weight."""
    kept = [n for n, centre in enumerate(centres) if centre.weight > 0]
    return Grouped(present[kept], [centres[n] for n in kept], [spans[n] for n in kept], values)


def _near_means(values: Array, order: Array, stops: Array, counts: Array) -> Array:
    """A row close to the mean of each group's, exact in the block's own type: that of a few of its rows."""
    number = int(np.clip(_PICKED // len(counts), _FEWEST, _MOST))
    among = (np.arange(number) * counts[:, None]) // number
    picked = values[order[(stops - counts)[:, None] + among]]
    shifts: Array = picked.mean(axis=1, dtype=np.float64).astype(values.dtype)
    return shifts


def _moved(values: Array, rows: Array, weights: Array | None, shift: Array, out: Array) -> Centre:
    """Copy rows of one group, less its shift."""
    sums = np.zeros(values.shape[1])
    heavy = np.ones(len(rows)) if weights is None else weights
    # A slab at a time, so that it is summed while it is still in cache.
    for slab in slabs(out):
        here = np.take(values, rows[slab], axis=0, out=out[slab], mode="clip")  # "raise" would buffer
        here -= shift
        sums += heavy[slab].astype(out.dtype) @ here
        if weights is not None:
            here *= np.sqrt(weights[slab]).astype(out.dtype)[:, None]
    weight = float(heavy.sum())
    count = int(np.count_nonzero(heavy))
    return Centre(len(sums), count, weight, shift.astype(np.float64), sums / (weight or 1.0))
