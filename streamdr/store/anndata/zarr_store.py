"""Scores in an AnnData store in zarr: entries are moved into it one after another, the scores last."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from streamdr.errors import StoreError
from streamdr.store.anndata.backend import AnnDataBackend, is_made, require_written
from streamdr.store.anndata.elements import TABLES, Reader, Writer
from streamdr.store.anndata.hidden import Hidden
from streamdr.store.anndata.zarr_nodes import (
    Metadata,
    ZarrReader,
    ZarrWriter,
    has_foreign_files,
    require_nodes_only,
)
from streamdr.store.locking import locked
from streamdr.store.publish import Fence, exchange, resolved, sync, sync_tree

_NEW_FORMAT = 3
"""The zarr format of new stores, as of all outputs."""


class ZarrAnnData(AnnDataBackend):
    """The scores of one method in an AnnData store in zarr."""

    def reader(self) -> ZarrReader:
        """Open the store for reading."""
        try:
            found = ZarrReader(self.place)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{self}: is not an AnnData store ({error}); choose another path") from error
        if not _is_anndata(found):
            raise StoreError(
                f"{self}: is a zarr group, but not an AnnData store with obs and var; choose another path"
            )
        return found

    def folders(self) -> Sequence[Path]:
        """Return the store, and its tables."""
        place = resolved(self.place)
        inside = (place / table for table in ("", "var", *TABLES))
        return [folder for folder in inside if folder.is_dir()]

    def require_visible(self) -> None:
        """Refuse a store whose consolidated metadata, which readers use, does not have the scores."""
        if not self._metadata(self.reader()).is_current(self.scores):
            raise StoreError(
                f"{self}: its consolidated metadata does not have {self.scores}; transform again"
            )

    def is_ours_alone(self, reader: Reader) -> bool:
        """Return whether streamdr has made the store, and nothing was added since."""
        if not is_made(reader) or has_foreign_files(resolved(self.place)):
            return False
        own = {"obs/_index", "var/_index", self.scores}
        record = self.read_group().record if reader.attributes(self.scores) else {"entries": {}}
        own |= set(record["entries"])
        tables = {name for name in reader.members("") if name not in ("obs", "var")}
        found = {f"{table}/{name}" for table in ("obs", "var", *tables) for name in reader.members(table)}
        return found <= own and all(reader.array(table) is None for table in tables)

    def create(self, hidden: Hidden, write: Callable[[Writer], None], fence: Fence) -> None:
        """Make a new store, and make it the target in one step."""
        place, root = resolved(self.place), hidden.folder / "store"
        there = os.path.lexists(place)
        zarr_format = self.reader().zarr_format if there else _NEW_FORMAT
        write(ZarrWriter(root, zarr_format))
        require_written(ZarrReader(root), self.scores, self)
        Metadata(root, zarr_format).consolidate(hidden.folder)
        sync_tree(root)
        with locked(place.parent):
            fence()
            if there:
                exchange(root, place)
            else:
                root.rename(place)
        sync(place.parent)

    def add(
        self,
        hidden: Hidden,
        paths: Sequence[str],
        columns: Sequence[str],
        write: Callable[[Writer], None],
        fence: Fence,
    ) -> None:
        """Move what `write` writes at some paths into the store, in this order."""
        place, root = resolved(self.place), hidden.folder / "entries"
        zarr_format = self.reader().zarr_format
        writer = ZarrWriter(root, zarr_format)
        writer.group("", {})  # so that it can be read back
        write(writer)
        require_written(ZarrReader(root), self.scores, self)
        sync_tree(root)
        replaced = [path for path in paths if os.path.lexists(place / path)]
        for path in replaced:
            require_nodes_only(place / path, f"{self}: {path}")
        metadata = Metadata(place, zarr_format)
        with locked(place.parent):
            fence()
            consolidated = metadata.exists()
            if consolidated and replaced:
                metadata.forget(hidden.folder)  # it would describe entries that are replaced
            waiting = list(columns)
            for path in paths:
                if waiting and not path.startswith("var/"):
                    metadata.add_columns("var", waiting, hidden.folder)
                    waiting = []
                _move(root / path, place / path)
            if consolidated:
                metadata.consolidate(hidden.folder)
            sync(place)

    def _metadata(self, reader: ZarrReader) -> Metadata:
        return Metadata(resolved(self.place), reader.zarr_format)


def _move(staged: Path, target: Path) -> None:
    """Make a staged folder the target in one step. The folder that was there is then the staged one."""
    if os.path.lexists(target):
        exchange(staged, target)
    else:
        staged.rename(target)
    sync(target.parent)


def _is_anndata(reader: Any) -> bool:
    """Return whether a group is an AnnData store, which older versions did not mark."""
    if (reader.attributes("") or {}).get("encoding-type") == "anndata":
        return True
    return all("_index" in (reader.attributes(table) or {}) for table in ("obs", "var"))
