"""What an input was like at one moment, so that it can be told later what has changed, and what was added."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

DIGEST_BYTES = 20


class Snapshot(Protocol):
    """Digests of an input's beginning, for any number of rows. No data is read for them."""

    def digest(self, rows: int) -> str:
        """What the first so many rows were. Rows that are appended later do not change it."""


@dataclass(frozen=True)
class WholeSnapshot:
    """An input that is known only as a whole: whatever happens to it changes all of it."""

    fingerprint: str

    def digest(self, rows: int) -> str:
        """The digest of everything."""
        return f"{self.fingerprint}-{rows}"


@dataclass(frozen=True)
class ChunkSnapshot:
    """The stamps of an array's chunks, sorted by the rows that they hold."""

    meaning: bytes
    """How the chunks are to be read: whatever of the metadata does not change when rows are appended."""
    chunk_rows: int
    positions: NDArray[np.int64]
    """Where along the sample axis each chunk lies, counted in chunks."""
    stamps: NDArray[np.int64]
    """Of each chunk its place along the other axes, and the two numbers that change when it does."""
    contents: Callable[[int, int], bytes] | None = None
    """The values of some rows, where reading them is cheap: then a chunk that is filled up is still known."""

    def digest(self, rows: int) -> str:
        """A digest of the metadata and of the stamps of the chunks that hold these rows."""
        whole, rest = divmod(rows, self.chunk_rows)
        by_stamp = whole if rest == 0 or self.contents is not None else whole + 1
        digest = hashlib.blake2b(self.meaning, digest_size=DIGEST_BYTES)
        digest.update(np.ascontiguousarray(self.stamps[: np.searchsorted(self.positions, by_stamp)]).data)
        digest.update(str(rows).encode())
        if rest and self.contents is not None:
            digest.update(self.contents(rows - rest, rows))
        return digest.hexdigest()


@dataclass(frozen=True)
class JoinedSnapshot:
    """The values, and what comes with each row: its weight, its label."""

    parts: tuple[Snapshot, ...]

    def digest(self, rows: int) -> str:
        """One digest of all."""
        joined = " ".join(part.digest(rows) for part in self.parts)
        return hashlib.blake2b(joined.encode(), digest_size=DIGEST_BYTES).hexdigest()
