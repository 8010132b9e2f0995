"""How much work a computation is, in units whose speeds differ from machine to machine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple

import numpy as np


@dataclass(frozen=True)
class Work:
    """Amounts of work of several kinds. They add up, and can be multiplied by a number.

    The work of one task is meant: that several threads do it at a time is the matter of whoever knows the
    machine.
    """

    product32: float = 0.0
    """Multiplications within products of large matrices in single precision."""
    product64: float = 0.0
    """The same in double precision."""
    square32: float = 0.0
    """Multiplications within products of a matrix with itself, of which BLAS takes half: n d d of X'X."""
    square64: float = 0.0
    """The same in double precision."""
    thin32: float = 0.0
    """Multiplications within products of a large matrix with few vectors, in single precision."""
    thin64: float = 0.0
    """The same in double precision."""
    moved: float = 0.0
    """Bytes that are read and written by operations on values that do not fit into caches."""
    cached: float = 0.0
    """Operations on values in double precision within caches."""
    functions: float = 0.0
    """Values of a function such as the exponential, in double precision."""
    eigen: float = 0.0
    """The cubes of the orders of symmetric matrices whose eigenvalues and eigenvectors are computed."""
    sparse: float = 0.0
    """Products of a stored value of sparse rows with a value of a dense row."""
    scattered: float = 0.0
    """Values that are read or written out of order."""
    calls: float = 0.0
    """Calls of numpy with few values, and steps of Python of about that length."""
    read: float = 0.0
    """Bytes read from files that the system has in memory."""
    disk: float = 0.0
    """Bytes read from files that it does not have in memory."""
    written: float = 0.0
    """Bytes written to files and flushed."""
    blosc: float = 0.0
    """Bytes decoded by blosc, with lz4 or a codec that is as fast."""
    blosc_zstd: float = 0.0
    """Bytes decoded by blosc with a slower codec."""
    lz4: float = 0.0
    """Bytes decoded by lz4."""
    zstd: float = 0.0
    """Bytes decoded by zstd."""
    zlib: float = 0.0
    """Bytes decoded by zlib, or by another of the slow codecs."""
    crc32c: float = 0.0
    """Bytes that are checked."""

    def __add__(self, other: Work) -> Work:
        return Work(*(a + b for a, b in zip(_amounts(self), _amounts(other), strict=True)))

    def __mul__(self, times: float) -> Work:
        return Work(*(amount * times for amount in _amounts(self)))

    @property
    def amounts(self) -> dict[str, float]:
        """The amounts that are not zero, by kind."""
        return {each.name: amount for each in fields(self) if (amount := getattr(self, each.name))}


class Count(NamedTuple):
    """How often something is done, as far as it is known before: at least, usually, at most."""

    least: int
    usual: int
    most: int


NO_WORK = Work()
ONCE = Count(1, 1, 1)
SELDOM = Count(0, 0, 1)


def exactly(number: int) -> Count:
    """Return the count of something that is done so often."""
    return Count(number, number, number)


def iterations(usual: int, most: int) -> Count:
    """Return the count of iterations that end when they have converged: after two at the earliest."""
    return Count(min(2, most), min(usual, most), most)


KINDS = tuple(each.name for each in fields(Work))
"""The kinds of work."""
_SLOW = frozenset({"zlib", "gzip", "bz2", "lzma"})


def reading(size: float, codecs: Iterable[str]) -> Work:
    """Return the work of reading and decoding so many bytes of values, from memory."""
    names = ("zlib" if codec in _SLOW else codec.replace("-", "_") for codec in codecs)
    decoded = {name: float(size) for name in names if name in KINDS}
    return Work(read=float(size), **decoded)


def products(number: float, dtype: np.dtype[Any], shape: Literal["product", "square", "thin"]) -> Work:
    """Return the work of so many multiplications in matrix products of one shape and type."""
    return Work(**{f"{shape}{32 if dtype == np.float32 else 64}": float(number)})


def _amounts(work: Work) -> tuple[float, ...]:
    return tuple(getattr(work, each.name) for each in fields(work))
