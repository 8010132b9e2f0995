"""Atomic append of rows to an ingested store: either all rows appear, or none.

New chunks are written to a staging directory beside the store. If the last chunk was incomplete, it is
written again. The chunks are then moved into the store: they have keys that are not read yet, or contain the
old rows too. Finally the metadata of the array, which has its length, is replaced atomically. A run that is
killed before that leaves the old number of rows, and one that is killed after it the new number.
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
_STAGED_METADATA = re.compile(r"zarr\.[0-9a-f]{32}\.partial")


@dataclass(frozen=True)
class StoredArray:
    """An array of the store that rows are appended to."""

    path: Path
    metadata: Mapping[str, Any]

    @classmethod
    def at(cls, path: Path) -> StoredArray:
        """Return the array at a path, from its metadata."""
        return cls(path, parse_json(path / ROOT))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, with the number of rows first."""
        return tuple(self.metadata["shape"])

    @property
    def chunks(self) -> tuple[int, ...]:
        """The shape of a chunk."""
        return tuple(self.metadata["chunk_grid"]["configuration"]["chunk_shape"])

    @property
    def whole_rows(self) -> int:
        """The number of rows in complete chunks. The rows after them are written again, with the new ones."""
        return self.shape[0] - self.shape[0] % self.chunks[0]

    def require_like(self, staged: Path) -> None:
        """Raise an error if this version stores the array differently: its chunks would not be compatible."""
        own, new = ({**parse_json(path / ROOT), "shape": 0, "attributes": 0} for path in (self.path, staged))
        if own != new:
            raise StoreError(
                f"{self.path}: is not stored as this version of streamdr stores it; ingest all rows again"
            )

    def tail(self) -> Array:
        """Return the rows of the incomplete chunk. Call `require_like` first."""
        return rows_from(self.path, self.whole_rows)

    def clear_beyond(self) -> None:
        """Remove what a killed run left: chunks after the last row, and staged metadata."""
        last = -(-self.shape[0] // self.chunks[0])
        for entry in (self.path / "c").iterdir():
            if _NUMBER.fullmatch(entry.name) and int(entry.name) >= last:
                _remove_chunks(entry)
        for staged in self.path.glob("zarr.*.partial"):
            if _STAGED_METADATA.fullmatch(staged.name):
                _remove_chunks(staged)

    def take(self, staged: Path) -> None:
        """Move the chunks of a staged array into the store."""
        first = self.whole_rows // self.chunks[0]
        for file in sorted((staged / "c").rglob("*")):
            if file.is_file():
                number, *rest = file.relative_to(staged / "c").parts
                target = self.path.joinpath("c", str(int(number) + first), *rest)
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(file, target)
        for directory in ((self.path / "c"), *(self.path / "c").rglob("*")):
            if directory.is_dir() and not directory.is_symlink():
                sync(directory)

    def grow(self, rows: int) -> None:
        """Set the number of rows of the array, atomically."""
        document = {**self.metadata, "shape": [rows, *self.shape[1:]]}
        staged = self.path / f"zarr.{secrets.token_hex(16)}.partial"
        staged.write_text(json.dumps(document, indent=2), encoding="ascii")
        sync(staged)
        os.replace(staged, self.path / ROOT)
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
        """The names of the columns, if they have names."""
        names = self.matrix.metadata.get("attributes", {}).get("feature_names")
        return None if names is None else tuple(names)

    @property
    def label_kind(self) -> LabelKind | None:
        """The type of the labels, if there are labels."""
        if self.labels is None:
            return None
        kind: LabelKind = {"string": "text"}.get(declared := self.labels.metadata["data_type"], declared)
        return kind

    def commit(self, rows: int) -> int:
        """Add the staged rows to the store, and return their size in bytes."""
        parts = [(self.labels, self.staging / LABELS)] if self.labels is not None else []
        sync_tree(self.staging)
        written = sum(file.stat().st_size for file in self.staging.rglob("c/**/*") if file.is_file())
        # Consolidated metadata, from an earlier version or from xarray, would hide the new rows.
        forget_copies(self.dest)
        for part, staged in [*parts, (self.matrix, self.staging / NAME)]:
            part.take(staged)
        # The matrix is last: it determines the number of rows of the store.
        for part, _ in [*parts, (self.matrix, None)]:
            part.grow(rows)
        return written


@contextmanager
def appending(dest: Path) -> Iterator[Appending]:
    """Lock an ingested store, and create a staging directory beside it for new chunks."""
    record = _record(dest)
    target = dest.resolve()
    try:
        held = try_lock(target)
    except BlockingIOError:
        raise BusyError(f"{dest}: another process is appending rows; wait until it has finished") from None
    staging = target.with_name(f".{target.name}.{secrets.token_hex(8)}.partial")
    claim = -1
    try:
        sweep(target)
        staging.mkdir()
        claim = try_lock(staging)
        open_source(dest, array=NAME)  # raises an error if the metadata is invalid
        matrix = StoredArray.at(dest / NAME)
        labels = StoredArray.at(dest / LABELS) if "labels" in record else None
        matrix.clear_beyond()
        if labels is not None:
            labels.clear_beyond()
            if labels.shape != matrix.shape[:1]:  # a run was killed between the two steps
                labels.grow(matrix.shape[0])
                labels = StoredArray.at(dest / LABELS)
        yield Appending(dest, staging, record, matrix, labels)
    except (LookupError, TypeError) as error:
        raise StoreError(
            f"{dest}: not as `streamdr ingest` writes it ({error!r}); ingest all rows again"
        ) from error
    except OSError as error:
        raise StoreError(
            f"{dest}: rows cannot be appended ({error.strerror}: {error.filename}); fix this and run again"
        ) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        if claim >= 0:
            os.close(claim)
        os.close(held)


def _remove_chunks(path: Path) -> None:
    """Remove a file, or the chunks in a directory. Other files and links are kept."""
    with suppress(OSError):
        if stat.S_ISDIR(path.lstat().st_mode):
            for below in path.iterdir():
                if _NUMBER.fullmatch(below.name):
                    _remove_chunks(below)
            path.rmdir()  # fails if there are other files in it
        elif stat.S_ISREG(path.lstat().st_mode):
            path.unlink()


def _record(dest: Path) -> Mapping[str, Any]:
    """Return the record of an ingested store, even if others have added attributes to it since."""
    if not dest.exists():
        raise StoreError(f"{dest}: there is no store to append to; ingest without `--append` first")
    record = draft(dest)
    if record is None or record.get("kind") != "ingested":
        raise StoreError(f"{dest}: was not made by `streamdr ingest`; append to it with zarr or xarray")
    return record


def require_columns(source: Path, sample: tuple[int, ...], target: Appending) -> None:
    """Raise an error if rows have another shape than those of the store."""
    wanted = target.matrix.shape[1:]
    if sample != wanted:
        raise DataError(
            f"{source}: a row is {_shape(sample)}, and in {target.dest} it is {_shape(wanted)}; only rows "
            "with the same columns can be appended"
        )


def _shape(sample: tuple[int, ...]) -> str:
    """Return the shape of a row, for a message."""
    return " x ".join(f"{length:,}" for length in sample) + " values" if sample else "a single value"
