"""The laws of accumulators and methods, as checks. Users can run them over their own classes.

Examples
--------
>>> from streamdr.statistics.moments import Moments
>>> from streamdr.testing import HOSTILE, check_accumulator, hostile_data
>>> for kind in HOSTILE:
...     check_accumulator(Moments(5), hostile_data(kind, 40, 5))
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Sequence
from itertools import pairwise
from threading import Event
from typing import Any, cast

import numpy as np

from streamdr.core.accumulator import Accumulator, UpdatesSparse, takes_sparse
from streamdr.core.blocks import Array, Axis, Block, MatrixSpec, Span, SparseBlock, SparseRows, widen
from streamdr.core.method import MapsColumnsThrough, Method, Model, Pass, Passes, in_memory
from streamdr.errors import MissingValuesError

HOSTILE: dict[str, Callable[[np.random.Generator, int, int], Array]] = {
    "kind": lambda rng, n, d: rng.normal(size=(n, d)),
    "big offset": lambda rng, n, d: rng.normal(size=(n, d)) + 1e8,
    "tiny variance": lambda rng, n, d: 3.0 + 1e-9 * rng.normal(size=(n, d)),
    "drifting": lambda rng, n, d: rng.normal(size=(n, d)) + 1e4 * np.arange(n)[:, None],
    "rank one": lambda rng, n, d: np.outer(rng.normal(size=n), rng.normal(size=d)),
    "constant column": lambda rng, n, d: np.where(np.arange(d) == 0, 7.0, rng.normal(size=(n, d))),
    "uneven scales": lambda rng, n, d: rng.normal(size=(n, d)) * np.logspace(-6, 6, d),
    "float32": lambda rng, n, d: rng.normal(size=(n, d)).astype(np.float32),
    "float32 offset": lambda rng, n, d: (rng.normal(size=(n, d)) + 1e4).astype(np.float32),
    "float16": lambda rng, n, d: rng.normal(size=(n, d)).astype(np.float16),
    "bytes": lambda rng, n, d: rng.integers(180, 256, size=(n, d), dtype=np.uint8),
    "int64": lambda rng, n, d: rng.integers(-(10**9), 10**9, size=(n, d)),
    "big endian": lambda rng, n, d: rng.normal(size=(n, d)).astype(">f8"),
}
"""Data sets that break careless sums. Plain random data hides wrong merges."""

MISSING: dict[str, Callable[[np.random.Generator, int, int], Array]] = {
    "some": lambda rng, n, d: rng.random((n, d)) < 0.1,
    "most": lambda rng, n, d: rng.random((n, d)) < 0.6,
    "a row": lambda rng, n, d: np.broadcast_to(np.arange(n)[:, None] == n // 2, (n, d)),
    "a column": lambda rng, n, d: np.broadcast_to(np.arange(d) == d // 2, (n, d)),
}
"""Patterns of missing values, for accumulators and methods that allow them."""


def hostile_data(kind: str, n: int, d: int, seed: int = 0, missing: str | None = None) -> Array:
    """Return one of the data sets that break careless sums.

    Parameters
    ----------
    kind : str
        One of `HOSTILE`.
    n : int
        The number of rows.
    d : int
        The number of columns.
    seed : int
        The seed of the random numbers.
    missing : str or None
        The pattern of missing values (NaN), one of `MISSING`. The data then has a floating type.

    Returns
    -------
    data : ndarray (n, d)
        The rows.

    Examples
    --------
    >>> from streamdr.testing import hostile_data
    >>> hostile_data("float32 offset", 4, 3).dtype
    dtype('float32')
    """
    rng = np.random.default_rng(seed)
    data = HOSTILE[kind](rng, n, d)
    if missing is None:
        return data
    data = data if data.dtype.kind == "f" else widen(data)
    data[MISSING[missing](rng, n, d)] = np.nan
    return data


def check_accumulator(
    empty: Accumulator,
    data: Array,
    *,
    axis: Axis = "rows",
    weights: Array | None = None,
    labels: Array | None = None,
    amplification: float = 1.0,
    zeros_amplification: float = 1.0,
) -> None:
    """Check every law of an accumulator, on one data set that is partitioned along `axis`.

    The results of different orders of summation may differ by 64 `amplification` times the eps of the data's
    type, relative to the largest value of each array.

    Parameters
    ----------
    empty : Accumulator
        An empty accumulator.
    data : ndarray
        Rows x columns.
    axis : "rows" or "columns"
        The axis along which the data is partitioned.
    weights : ndarray or None
        A weight for each row.
    labels : ndarray or None
        A label for each row.
    amplification : float
        The relative rounding error of a summand, in units of that of a value. It is 1 for sums of products. A
        weight exp(l) has as relative error the absolute error of l, which an error analysis of l gives.
    zeros_amplification : float
        The same for sparse rows, where zeros may be far from the other values.

    Raises
    ------
    AssertionError
        If a law does not hold. The message names the law.

    Examples
    --------
    >>> from streamdr.statistics.moments import Moments
    >>> from streamdr.testing import check_accumulator, hostile_data
    >>> check_accumulator(Moments(5), hostile_data("big offset", 40, 5))
    """
    before, saved = data.copy(), _value(empty)
    length = data.shape[0 if axis == "rows" else 1]
    whole = _folded(empty, data, [Span(0, length)], axis, weights, labels)
    scale = {name: float(np.nanmax(np.abs(array), initial=0.0)) for name, array in _value(whole).items()}
    eps = float(np.finfo(widen(data).dtype).eps)

    def same(got: Accumulator, law: str) -> None:
        _require_close(_value(got), _value(whole), scale, 64 * amplification * eps, law)

    for pieces in _splits(length):
        parts = [_folded(empty, data, [piece], axis, weights, labels) for piece in pieces]
        same(_folded(empty, data, pieces, axis, weights, labels), "any split of the data equals the whole")
        same(_merged(parts, "left"), "merging the parts, first to last, equals the whole")
        same(_merged(parts, "right"), "merging is associative")
    with_empty = _folded(empty, data, [Span(0, length)], axis, weights, labels)
    with_empty.merge(empty.empty_like())
    _require_equal(_value(with_empty), _value(whole), "merging an empty one changes nothing")
    from_empty = empty.empty_like()
    from_empty.merge(whole)
    _require_equal(_value(from_empty), _value(whole), "empty is the identity")
    restored = empty.empty_like()
    restored.restore({name: array.copy() for name, array in whole.arrays().items()})
    _require_equal(_value(restored), _value(whole), "a state that was saved and restored is the same bits")
    travelled: Accumulator = pickle.loads(pickle.dumps(whole))
    _require_equal(_value(travelled), _value(whole), "an accumulator travels to another process unchanged")
    arrived = _folded(_from_network(empty), data, [Span(0, length)], axis, weights, labels)
    _require_equal(_value(arrived), _value(whole), "wherever its arrays lie in memory, the bits are the same")
    _require_equal({"block": data}, {"block": before}, "the block is not touched")
    spent = empty.empty_like()
    spent.update(Block(Span(0, length), np.array(widen(data)), labels, weights, disposable=True))
    _require_equal(_value(spent), _value(whole), "a block that may be overwritten gives the same bits")
    _require_located(empty, data, length, weights, labels)
    if axis == "rows" and takes_sparse(empty, _sparse_spec(data), axis):
        _require_sparse_rows(
            empty, data, weights, labels, scale, 64 * amplification * zeros_amplification * eps
        )
    _require_equal(_value(empty), saved, "the empty accumulator is not touched")


def _require_sparse_rows(
    empty: Accumulator,
    data: Array,
    weights: Array | None,
    labels: Array | None,
    least_scale: dict[str, float],
    tolerance: float,
) -> None:
    """Require that sparse rows give the result of dense ones: of all values, of few, and of rows of zeros."""
    kept = np.random.default_rng(0).random(data.shape)
    for share in (1.0, 0.3, 0.0):
        rows = np.where(kept < share, widen(data), 0)
        rows[-1:] = widen(data)[-1:]
        whole = _folded(empty, rows, [Span(0, len(rows))], "rows", weights, labels)
        # The sum of a few values, some of them negative, may be far smaller than they are.
        sizes = _value(_folded(empty, np.abs(rows), [Span(0, len(rows))], "rows", weights, labels))
        scale = {
            name: max(
                least_scale[name],
                *(float(np.nanmax(np.abs(array), initial=0.0)) for array in (array, sizes[name])),
            )
            for name, array in _value(whole).items()
        }
        stored = SparseRows(rows)
        before = [part.copy() for part in (stored.data, stored.indices, stored.indptr)]
        for pieces in _splits(len(rows)):
            got = empty.empty_like()
            for piece in pieces:
                some, few = (None if each is None else each[piece.slice] for each in (labels, weights))
                cast(UpdatesSparse, got).update_sparse(SparseBlock(piece, stored[piece.slice], some, few))
            _require_close(_value(got), _value(whole), scale, tolerance, "sparse rows count as dense ones do")
        after = [stored.data, stored.indices, stored.indptr]
        _require_equal(
            {"block": np.concatenate(after)}, {"block": np.concatenate(before)}, "sparse rows are not touched"
        )


def _sparse_spec(data: Array) -> MatrixSpec:
    return MatrixSpec(data.shape[0], data.shape[1], data.dtype, density=0.1)


def check_bounded(
    empty: Accumulator, data: Array, *, axis: Axis = "rows", labels: Array | None = None
) -> None:
    """Check that the state of an accumulator does not grow with the number of rows or columns.

    Parameters
    ----------
    empty : Accumulator
        An empty accumulator.
    data : ndarray
        Rows x columns.
    axis : "rows" or "columns"
        The axis along which the data is partitioned.
    labels : ndarray or None
        A label for each row.

    Raises
    ------
    AssertionError
        If a law does not hold. The message names the law.

    Examples
    --------
    >>> from streamdr.statistics.moments import Moments
    >>> from streamdr.testing import check_bounded, hostile_data
    >>> check_bounded(Moments(5), hostile_data("big offset", 40, 5))
    """
    length = data.shape[0 if axis == "rows" else 1]
    once = _folded(empty, data, [Span(0, length)], axis, None, labels)
    again = _folded(empty, data, [Span(0, length)] * 20, axis, None, labels)
    sizes = [sum(array.nbytes for array in part.arrays().values()) for part in (once, again)]
    assert sizes[0] == sizes[1], f"the state grew from {sizes[0]} to {sizes[1]} bytes"


def check_method(method: Method, data: Array, *, labels: Array | None = None) -> None:
    """Check every law of a method: its passes are deterministic, and its model maps blocks like all rows.

    `check_passes` checks its accumulators.

    Parameters
    ----------
    method : Method
        The method with its parameters.
    data : ndarray
        Rows x columns.
    labels : ndarray or None
        A label for each row.

    Raises
    ------
    AssertionError
        If a law does not hold. The message names the law.

    Examples
    --------
    >>> from streamdr.methods.pca import PCA
    >>> from streamdr.testing import check_method, hostile_data
    >>> check_method(PCA(2), hostile_data("big offset", 40, 5))
    """
    spec = _spec(data, labels)
    for route in method.routes(spec):
        first, second = (in_memory(route.method, data, labels=labels) for _ in range(2))
        _require_equal(_arrays_of(first), _arrays_of(second), f"{route.name}: the same data, the same bits")
        whole = first.transform(data)
        elsewhere = _from_network(first).transform(data)
        _require_equal({"rows": elsewhere}, {"rows": whole}, f"{route.name}: a model maps alike anywhere")
        assert whole.shape == (len(data), first.n_outputs), f"{route.name}: the embedding has another shape"
        assert first.n_features == data.shape[1], f"{route.name}: n_features is not the data's"
        _require_plain(first, route.name)
        one = first.transform(data[:1])
        tolerance = 64 * np.finfo(whole.dtype).eps * float(np.nanmax(np.abs(whole), initial=1.0))
        np.testing.assert_allclose(
            one, whole[:1], rtol=0, atol=tolerance, err_msg="a block maps as the whole"
        )
        by_columns = first.scores_by_columns(len(data))
        if by_columns is not None:
            through = first.columns_through if isinstance(first, MapsColumnsThrough) else None
            mapped = data if through is None else through.transform(data)
            by_columns.update(Block(Span(0, mapped.shape[1]), mapped))
            scores = by_columns.arrays()["scores"]
            np.testing.assert_allclose(
                scores, whole, rtol=0, atol=tolerance, err_msg="columns map as rows do"
            )


def check_passes(method: Method, data: Array, *, labels: Array | None = None) -> set[str]:
    """Check every law of an accumulator, for one accumulator of each kind in the passes of a method.

    Parameters
    ----------
    method : Method
        The method with its parameters.
    data : ndarray
        Rows x columns.
    labels : ndarray or None
        A label for each row.

    Returns
    -------
    kinds : set of str
        The kinds of the accumulators that were checked.

    Raises
    ------
    AssertionError
        If a law does not hold. The message names the law.

    Examples
    --------
    >>> from streamdr.methods.pca import PCA
    >>> from streamdr.testing import check_passes, hostile_data
    >>> sorted(check_passes(PCA(2), hostile_data("big offset", 40, 5)))
    ['gram', 'loadings', 'moments', 'products']
    """
    kinds: set[str] = set()
    for route in method.routes(_spec(data, labels)):
        recorder = _PassRecorder(route.method)
        in_memory(recorder, data, labels=labels)  # type: ignore[arg-type]  # it only needs `passes`
        for request in {request.empty.kind: request for request in recorder.requests}.values():
            check_accumulator(request.empty, data, axis=request.axis, labels=labels)
            kinds.add(request.empty.kind)
    return kinds


class _PassRecorder:
    """A method that records the passes that it requests over all of the data."""

    def __init__(self, method: Method) -> None:
        self._method = method
        self.requests: list[Pass] = []

    def passes(self, data: MatrixSpec) -> Passes:
        passes = self._method.passes(data)
        try:
            request = next(passes)
            while True:
                if request.part is None and request.in_memory is None:
                    self.requests.append(request)
                try:
                    full = yield request
                except MissingValuesError as missing:
                    request = passes.throw(missing)
                else:
                    request = passes.send(full)
        except StopIteration as finished:
            model: Model = finished.value
            return model


def _require_plain(model: Model, route: str) -> None:
    """Require that facts and tables of a model are plain values, which can be sent to other processes."""
    facts, tables = model.facts(), model.tables()
    assert facts, f"{route}: the model has no facts"
    values: list[object] = [text for fact in facts for text in (fact.name, fact.value, fact.unit)]
    for table in tables:
        assert table.rows, f"{route}: the table {table.title!r} has no row"
        assert {len(row) for row in table.rows} == {len(table.columns)}, (
            f"{route}: rows and columns do not match"
        )
        values += [value for row in table.rows for value in row]
    strange = [value for value in values if type(value) not in (str, int, float, bool)]
    assert not strange, f"{route}: {strange[0]!r} is not a plain value"
    json.dumps(model.summary())


def _spec(data: Array, labels: Array | None) -> MatrixSpec:
    return MatrixSpec(data.shape[0], data.shape[1], data.dtype, None if labels is None else labels.dtype)


def _splits(length: int) -> list[list[Span]]:
    """Return three partitions: single lines, ragged with empty blocks, and blocks of one length."""
    ragged = [0, 0, min(1, length), length // 3, length - length // 7, length, length]
    return [
        [Span(i, i + 1) for i in range(length)],
        [Span(a, b) for a, b in pairwise(ragged)],
        list(Span(0, length).split(max(1, length // 4))),
    ]


def _folded(
    empty: Accumulator,
    data: Array,
    spans: Sequence[Span],
    axis: Axis,
    weights: Array | None,
    labels: Array | None,
) -> Accumulator:
    accumulator = empty.empty_like()
    for span in spans:
        values = data[span.slice] if axis == "rows" else data[:, span.slice]
        block_weights, block_labels = (
            each if each is None or axis == "columns" else each[span.slice] for each in (weights, labels)
        )
        accumulator.update(Block(span, values, block_labels, block_weights))
    return accumulator


def _from_network(value: Any) -> Any:
    """Return the value as a network delivers it: arrays are unaligned, and parts of a larger message."""
    buffers: list[pickle.PickleBuffer] = []
    message = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    arrived = []
    for buffer in buffers:
        whole = bytearray(3) + bytearray(buffer.raw())
        arrived.append(memoryview(whole)[3:])
    return pickle.loads(message, buffers=arrived)


def _merged(parts: Sequence[Accumulator], order: str) -> Accumulator:
    total = _copy(parts[0])
    if order == "left":
        for part in parts[1:]:
            total.merge(part)
        return total
    rest = _copy(parts[-1])
    for part in reversed(parts[:-1]):
        earlier = _copy(part)
        earlier.merge(rest)
        rest = earlier
    return rest


def _require_located(
    empty: Accumulator, data: Array, length: int, weights: Array | None, labels: Array | None
) -> None:
    """Require that the accumulator reports a block with a value that is not finite."""
    for value in (np.inf, -np.inf) if empty.allow_nan else (np.nan, np.inf, -np.inf):
        broken = np.array(widen(data))
        broken[-1, -1] = value
        located = Event()
        with np.errstate(invalid="ignore"):
            empty.empty_like().update(
                Block(Span(0, length), broken, labels, weights, locate_nonfinite=located.set)
            )
        assert located.is_set(), f"the value {value} is not detected"


def _copy(accumulator: Accumulator) -> Accumulator:
    copy = accumulator.empty_like()
    copy.merge(accumulator)
    return copy


def _value(accumulator: Accumulator) -> dict[str, Array]:
    return {name: np.array(array) for name, array in accumulator.value().items()}


def _arrays_of(model: Any) -> dict[str, Array]:
    return {name: value for name, value in vars(model).items() if isinstance(value, np.ndarray)}


def _require_close(
    got: dict[str, Array], want: dict[str, Array], scale: dict[str, float], tolerance: float, law: str
) -> None:
    assert got.keys() == want.keys(), law
    for name in want:
        np.testing.assert_allclose(
            got[name], want[name], rtol=0, atol=tolerance * scale[name], err_msg=f"{law}: {name}"
        )


def _require_equal(got: dict[str, Array], want: dict[str, Array], law: str) -> None:
    assert got.keys() == want.keys(), law
    for name in want:
        np.testing.assert_array_equal(got[name], want[name], err_msg=f"{law}: {name}")
