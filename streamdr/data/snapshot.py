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
    """One look at an input: which chunks there were, and digests of its beginning, for any number of rows.

    No data is read for it.
    """

    def digest(self, rows: int) -> str:
        """What the first so many rows were. Rows that are appended later do not change it."""

    def require_chunks(self) -> None:
        """Refuse an input of which chunks were missing, unless that is allowed. Nothing is listed again."""


@dataclass(frozen=True)
class WholeSnapshot:
    """An input that is known only as a whole: whatever happens to it changes all of it."""

    fingerprint: str

    def digest(self, rows: int) -> str:
        """The digest of everything."""
        return f"{self.fingerprint}-{rows}"

    def require_chunks(self) -> None:
        """There are no chunks that could be missing."""


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
    require: Callable[[], None]
    """Refuses the array if chunks were missing."""
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

    def require_chunks(self) -> None:
        """Refuse the array if chunks were missing."""
        self.require()


@dataclass(frozen=True)
class JoinedSnapshot:
    """The values, and what comes with each row: its weight, its label."""

    values: Snapshot
    weights: Snapshot | None
    labels: Snapshot | None

    @classmethod
    def of(cls, values: Snapshot, weights: Snapshot | None, labels: Snapshot | None) -> Snapshot:
        """All together; the values by themselves where nothing comes with them."""
        return values if weights is None and labels is None else cls(values, weights, labels)

    def digest(self, rows: int) -> str:
        """One digest of all."""
        joined = " ".join(part.digest(rows) for part in (self.values, *self._beside))
        return hashlib.blake2b(joined.encode(), digest_size=DIGEST_BYTES).hexdigest()

    def require_chunks(self) -> None:
        """Refuse whatever chunks of were missing."""
        for part in (*self._beside, self.values):
            part.require_chunks()

    @property
    def _beside(self) -> list[Snapshot]:
        return [part for part in (self.weights, self.labels) if part is not None]


def unlabelled(snapshot: Snapshot) -> Snapshot:
    """What a snapshot says of the same source without its labels."""
    if not isinstance(snapshot, JoinedSnapshot):
        return snapshot
    return JoinedSnapshot.of(snapshot.values, snapshot.weights, None)
