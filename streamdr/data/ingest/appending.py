"""Rows at the end of a store that was ingested: all of them appear in one step, or none do.

New chunks are written beside the store, the last chunk anew if it was not full. They take their places under
names that nobody reads yet, or with the old rows in them. Then the array's metadata, which has its length, is
replaced in one step. A kill before that leaves the old number of rows, and a kill after it the new one.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streamdr.core.blocks import Array
from streamdr.data import open_source
from streamdr.errors import BusyError, DataError, StoreError
from streamdr.store.arrays import ArrayLayout
from streamdr.store.labels import LABELS, LabelKind
from streamdr.store.locking import try_lock
from streamdr.store.matrix import NAME, rows_from
from streamdr.store.publish import sweep, sync, sync_tree
from streamdr.store.record import ROOT, draft, forget_copies, parse_json

_NUMBER = re.compile("[0-9]+")
_UNUSED = re.compile(r"zarr\.[0-9a-f]{32}\.partial")


@dataclass(frozen=True)
class StoredArray:
    """An array of the store, and where new rows of it begin."""

    path: Path
    metadata: Mapping[str, Any]

    @classmethod
    def at(cls, path: Path) -> StoredArray:
        """The array at a path, by its own metadata."""
        return cls(path, parse_json(path / ROOT))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, the rows first."""
        return tuple(self.metadata["shape"])

    @property
    def chunks(self) -> tuple[int, ...]:
        """The shape of a chunk."""
        return tuple(self.metadata["chunk_grid"]["configuration"]["chunk_shape"])

    @property
    def whole_rows(self) -> int:
        """The rows that fill chunks: those that follow are written again, with the new ones."""
        return self.shape[0] - self.shape[0] % self.chunks[0]

    def require_like(self, staged: Path) -> None:
        """Refuse an array that is not stored as this version stores it: its chunks would not fit."""
        own, new = ({**parse_json(path / ROOT), "shape": 0, "attributes": 0} for path in (self.path, staged))
        if own != new:
            raise StoreError(
                f"{self.path}: is not stored as this version of streamdr stores it; ingest all rows anew"
            )

    def tail(self) -> Array:
        """The rows that do not fill a chunk. The metadata has been compared with our own before."""
        return rows_from(self.path, self.whole_rows)

    def clear_beyond(self) -> None:
        """Remove what a killed run left: chunks behind the last row, and metadata that was never used."""
        last = -(-self.shape[0] // self.chunks[0])
        for entry in (self.path / "c").iterdir():
            if _NUMBER.fullmatch(entry.name) and int(entry.name) >= last:
                _remove_chunks(entry)
        for left in self.path.glob("zarr.*.partial"):
            if _UNUSED.fullmatch(left.name):
                _remove_chunks(left)

    def take(self, staged: Path) -> None:
        """Put the chunks of a staged array into their places."""
        first = self.whole_rows // self.chunks[0]
        for file in sorted((staged / "c").rglob("*")):
            if file.is_file():
                number, *rest = file.relative_to(staged / "c").parts
                place = self.path.joinpath("c", str(int(number) + first), *rest)
                place.parent.mkdir(parents=True, exist_ok=True)
                os.replace(file, place)
        for directory in ((self.path / "c"), *(self.path / "c").rglob("*")):
            if directory.is_dir() and not directory.is_symlink():
                sync(directory)

    def grow(self, rows: int) -> None:
        """Let the array have so many rows, in one step."""
        document = {**self.metadata, "shape": [rows, *self.shape[1:]]}
        beside = self.path / f"zarr.{secrets.token_hex(16)}.partial"
        beside.write_text(json.dumps(document, indent=2), encoding="ascii")
        sync(beside)
        os.replace(beside, self.path / ROOT)
        sync(self.path)


@dataclass(frozen=True)
class Appending:
    """A store that rows are being appended to."""

    dest: Path
    staging: Path
    record: Mapping[str, Any]
    matrix: StoredArray
    labels: StoredArray | None

    @property
    def layout(self) -> ArrayLayout:
        """How the matrix is stored."""
        dims = self.matrix.metadata["dimension_names"]
        dtype = np.dtype(self.matrix.metadata["data_type"])
        return ArrayLayout(self.matrix.shape, self.matrix.chunks, dtype, tuple(dims))

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """What its columns are called."""
        names = self.matrix.metadata.get("attributes", {}).get("feature_names")
        return None if names is None else tuple(names)

    @property
    def label_kind(self) -> LabelKind | None:
        """What its labels are, if it has any."""
        if self.labels is None:
            return None
        kind: LabelKind = {"string": "text"}.get(declared := self.labels.metadata["data_type"], declared)
        return kind

    def commit(self, rows: int) -> int:
        """Let the store have the staged rows, and return the bytes that they take."""
        parts = [(self.labels, self.staging / LABELS)] if self.labels is not None else []
        sync_tree(self.staging)
        written = sum(file.stat().st_size for file in self.staging.rglob("c/**/*") if file.is_file())
        # A copy of the metadata, of an earlier version or of xarray, would hide the new rows from others.
        forget_copies(self.dest)
        for part, staged in [*parts, (self.matrix, self.staging / NAME)]:
            part.take(staged)
        # The matrix last: its length is that of the store.
        for part, _ in [*parts, (self.matrix, None)]:
            part.grow(rows)
        return written


@contextmanager
def appending(dest: Path) -> Iterator[Appending]:
    """Open a store that was ingested, for this process alone, with a folder beside it for new chunks."""
    record = _record(dest)
    place = dest.resolve()
    try:
        held = try_lock(place)
    except BlockingIOError:
        raise BusyError(f"{dest}: rows are being appended by another process; wait for it") from None
    staging = place.with_name(f".{place.name}.{secrets.token_hex(8)}.partial")
    claim = -1
    try:
        sweep(place)
        staging.mkdir()
        claim = try_lock(staging)
        open_source(dest, array=NAME)  # which refuses metadata that makes no sense
        matrix = StoredArray.at(dest / NAME)
        labels = StoredArray.at(dest / LABELS) if "labels" in record else None
        matrix.clear_beyond()
        if labels is not None:
            labels.clear_beyond()
            if labels.shape != matrix.shape[:1]:  # a kill came between the two
                labels.grow(matrix.shape[0])
                labels = StoredArray.at(dest / LABELS)
        yield Appending(dest, staging, record, matrix, labels)
    except (LookupError, TypeError) as error:
        raise StoreError(f"{dest}: not as `streamdr ingest` writes it ({error!r}); ingest anew") from error
    except OSError as error:
        raise StoreError(
            f"{dest}: rows cannot be appended ({error.strerror}: {error.filename}); mend that and run again"
        ) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        if claim >= 0:
            os.close(claim)
        os.close(held)


def _remove_chunks(path: Path) -> None:
    """Remove a file, or the chunks in a folder of them. Whatever else lies there stays, and so do links."""
    with suppress(OSError):
        if stat.S_ISDIR(path.lstat().st_mode):
            for below in path.iterdir():
                if _NUMBER.fullmatch(below.name):
                    _remove_chunks(below)
            path.rmdir()  # unless something else is in it
        elif stat.S_ISREG(path.lstat().st_mode):
            path.unlink()


def _record(dest: Path) -> Mapping[str, Any]:
    """The record of a store that was ingested, whatever others have noted down in it since."""
    if not dest.exists():
        raise StoreError(f"{dest}: there is no store to append to; ingest without append first")
    record = draft(dest)
    if record is None or record.get("kind") != "ingested":
        raise StoreError(f"{dest}: was not made by `streamdr ingest`; append to it by zarr or xarray")
    return record


def require_columns(source: Path, sample: tuple[int, ...], target: Appending) -> None:
    """Refuse rows of another shape than those of the store."""
    wanted = target.matrix.shape[1:]
    if sample != wanted:
        raise DataError(
            f"{source}: a row is {_shape(sample)}, and in {target.dest} it is {_shape(wanted)}; only rows "
            "with the same columns can be appended"
        )


def _shape(sample: tuple[int, ...]) -> str:
    return " x ".join(f"{length:,}" for length in sample) + " values" if sample else "a single value"
