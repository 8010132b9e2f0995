"""Snapshots of an input, to detect later whether it has changed or rows were appended."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from streamdr.errors import DataError

DIGEST_BYTES = 20
_STEP = 1 << 16
"""After so many chunks, the digest of those before is kept: a pass asks for many prefixes."""


class Snapshot(Protocol):
    """The state of an input at one time: its chunks, and a digest of the first rows for any number of them.

    It is made without reading data, where that is possible.
    """

    def digest(self, rows: int) -> str:
        """Return a digest of the first `rows` rows. Rows that are appended later do not change it."""

    def require_chunks(self) -> None:
        """Raise an error if chunks were missing, unless that is allowed. Chunks are not listed again."""


@dataclass(frozen=True)
class WholeSnapshot:
    """An input with one digest of everything: any change changes it."""

    fingerprint: str

    def digest(self, rows: int) -> str:
        """Return the digest of everything, with the number of rows."""
        return f"{self.fingerprint}-{rows}"

    def require_chunks(self) -> None:
        """Do nothing: there are no chunks that could be missing."""


@dataclass(frozen=True)
class FileSnapshot(WholeSnapshot):
    """An input that is in one file: any change of the file changes the digest of everything."""

    require: Callable[[], None]
    """Raises an error if chunks are missing in the file."""

    @classmethod
    def of(cls, path: Path, name: str, meaning: str, require: Callable[[], None]) -> FileSnapshot:
        """Return a digest of the path, size and modification time of a file, and of what is read of it."""
        try:
            status = os.stat(path)
        except OSError as error:
            raise DataError(f"{name}: cannot be read: {error}") from error
        identity = f"{os.path.abspath(path)} {status.st_size} {status.st_mtime_ns} {meaning}"
        return cls(hashlib.blake2b(identity.encode(), digest_size=DIGEST_BYTES).hexdigest(), require)

    def require_chunks(self) -> None:
        """Raise an error if chunks are missing."""
        self.require()


@dataclass(frozen=True)
class ChunkSnapshot:
    """The stamps of the chunks of an array, sorted by rows."""

    meaning: bytes
    """How chunks are decoded: the metadata that does not change when rows are appended."""
    chunk_rows: int
    positions: NDArray[np.int64]
    """The position of each chunk along the sample axis, counted in chunks."""
    stamps: NDArray[np.int64]
    """For each chunk, its position along all axes and the two numbers that change when it changes."""
    require: Callable[[], None]
    """Raises an error if chunks were missing."""
    contents: Callable[[int, int], bytes] | None = None
    """Returns the values of rows, if that is cheap: then rows of a chunk that was extended are recognised."""

    def digest(self, rows: int) -> str:
        """Return a digest of the metadata and of the stamps of the chunks that contain these rows."""
        whole, rest = divmod(rows, self.chunk_rows)
        by_stamp = whole if rest == 0 or self.contents is not None else whole + 1
        digest = self._digest_of(int(np.searchsorted(self.positions, by_stamp)))
        digest.update(str(rows).encode())
        if rest and self.contents is not None:
            digest.update(self.contents(rows - rest, rows))
        return digest.hexdigest()

    def _digest_of(self, count: int) -> hashlib.blake2b:
        """Return a digest of the metadata and the first stamps, continued from one of fewer stamps."""
        known, steps = self._digests, count // _STEP
        for start in range((len(known) - 1) * _STEP, steps * _STEP, _STEP):
            known.append(_continued(known[-1], self.stamps[start : start + _STEP]))
        return _continued(known[steps], self.stamps[steps * _STEP : count])

    @cached_property
    def _digests(self) -> list[hashlib.blake2b]:
        """The digests of the metadata and the first stamps, in steps of a fixed number of them."""
        return [hashlib.blake2b(self.meaning, digest_size=DIGEST_BYTES)]

    def require_chunks(self) -> None:
        """Raise an error if chunks were missing."""
        self.require()


def _continued(digest: hashlib.blake2b, stamps: NDArray[np.int64]) -> hashlib.blake2b:
    longer = digest.copy()
    longer.update(np.ascontiguousarray(stamps).data)
    return longer


@dataclass(frozen=True)
class JoinedSnapshot:
    """A snapshot of the values, with those of weights and labels."""

    values: Snapshot
    weights: Snapshot | None
    labels: Snapshot | None

    @classmethod
    def of(cls, values: Snapshot, weights: Snapshot | None, labels: Snapshot | None) -> Snapshot:
        """Return the joined snapshot; that of the values if there are neither weights nor labels."""
        return values if weights is None and labels is None else cls(values, weights, labels)

    def digest(self, rows: int) -> str:
        """Return one digest of all."""
        joined = " ".join(part.digest(rows) for part in (self.values, *self._companions))
        return hashlib.blake2b(joined.encode(), digest_size=DIGEST_BYTES).hexdigest()

    def require_chunks(self) -> None:
        """Raise an error if chunks of the values, weights or labels were missing."""
        for part in (*self._companions, self.values):
            part.require_chunks()

    @property
    def _companions(self) -> list[Snapshot]:
        return [part for part in (self.weights, self.labels) if part is not None]


def unlabelled(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot of the same source without its labels."""
    if not isinstance(snapshot, JoinedSnapshot):
        return snapshot
    return JoinedSnapshot.of(snapshot.values, snapshot.weights, None)
