"""AnnData in zarr: groups and arrays written to files, and the metadata of a store that exists."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from streamdr.core.blocks import Array
from streamdr.core.files import write_new
from streamdr.errors import StoreError
from streamdr.store.anndata.elements import Rows
from streamdr.store.record import parse_json

_DOCUMENTS = {2: (".zgroup", ".zarray", ".zattrs"), 3: ("zarr.json",)}
_CONSOLIDATED = {2: ".zmetadata", 3: "zarr.json"}
_FILE = re.compile(r"zarr\.json|\.z(array|attrs|group|metadata)|\d+(\.\d+)*|c", re.ASCII)
_SEPARATED = "consolidated_metadata"


class ZarrWriter:
    """Writes groups and arrays of one zarr format below a folder."""

    def __init__(self, root: Path, zarr_format: int) -> None:
        self.root = root
        self._format: Any = zarr_format

    def group(self, path: str, attributes: Mapping[str, Any]) -> None:
        """Create a group."""
        zarr.create_group(self.root / path, zarr_format=self._format, attributes=dict(attributes))

    def array(self, path: str, values: Array, attributes: Mapping[str, Any]) -> None:
        """Write an array as one chunk."""
        self._created(path, values.shape, values.shape, values.dtype, attributes)[...] = values

    def rows(self, path: str, rows: Rows, attributes: Mapping[str, Any]) -> None:
        """Write an array piece by piece."""
        chunks = (rows.chunk_rows, *rows.shape[1:])
        array, start = self._created(path, rows.shape, chunks, rows.dtype, attributes), 0
        for piece in rows.pieces:
            array[start : start + len(piece)] = piece
            start += len(piece)

    def describe(self, path: str, attributes: Mapping[str, Any]) -> None:
        """Add attributes to an array."""
        zarr.open_array(self.root / path, mode="r+").attrs.update(dict(attributes))

    def _created(
        self,
        path: str,
        shape: tuple[int, ...],
        chunks: tuple[int, ...],
        dtype: np.dtype[Any],
        attributes: Mapping[str, Any],
    ) -> zarr.Array[Any]:
        kind: Any = str if dtype.kind == "U" else dtype.newbyteorder("<")
        return zarr.create_array(
            self.root / path,
            shape=shape,
            chunks=tuple(max(1, length) for length in chunks),
            dtype=kind,
            compressors=None,
            fill_value="" if dtype.kind == "U" else 0,
            zarr_format=self._format,
            attributes=dict(attributes),
            config={"write_empty_chunks": True},
        )


class ZarrReader:
    """Reads a store. Consolidated metadata is not used, since it may be older than what it describes."""

    def __init__(self, root: Path) -> None:
        self._root = zarr.open_group(root, mode="r", use_consolidated=False)

    @property
    def zarr_format(self) -> int:
        """The version of the format of the store."""
        return int(self._root.metadata.zarr_format)

    def attributes(self, path: str) -> Mapping[str, Any] | None:
        """Return the attributes of a group or an array; None if there is none."""
        node = self._root if not path else self._root.get(path)
        return None if node is None else dict(node.attrs)

    def array(self, path: str) -> Any:
        """Return an array; None if there is none."""
        node = self._root.get(path)
        return node if isinstance(node, zarr.Array) else None

    def members(self, path: str) -> Sequence[str]:
        """Return the names of what is in a group, sorted."""
        node = self._root if not path else self._root.get(path)
        return sorted(node.keys()) if isinstance(node, zarr.Group) else []

    def close(self) -> None:
        """Close nothing: files are open while they are read only."""


def require_nodes_only(folder: Path, name: str) -> None:
    """Refuse a folder that contains anything that zarr does not write."""
    for _, _, files in os.walk(folder):
        for file in files:
            if not _FILE.fullmatch(file):
                raise StoreError(f"{name}: holds {file!r}, which is no file of zarr; move that elsewhere")


def has_foreign_files(root: Path) -> bool:
    """Return whether there are files below a folder that zarr does not write."""
    return any(not _FILE.fullmatch(file) for _, _, files in os.walk(root) for file in files)


class Metadata:
    """The metadata documents of a store on disk, with its consolidated copy of them, if there is one."""

    def __init__(self, root: Path, zarr_format: int) -> None:
        self._root = root
        self._format = zarr_format

    def exists(self) -> bool:
        """Return whether there is consolidated metadata."""
        return self._consolidated() is not None

    def is_current(self, path: str) -> bool:
        """Return whether consolidated metadata, if there is any, has what is stored at a path."""
        known = self._consolidated()
        return known is None or all(known.get(key) == value for key, value in self._documents(path).items())

    def forget(self, scratch: Path) -> None:
        """Remove the consolidated metadata."""
        if self._format == 2:
            (self._root / _CONSOLIDATED[2]).unlink()
        else:
            document = parse_json(self._root / "zarr.json")
            del document[_SEPARATED]
            self._replace("zarr.json", document, scratch)

    def consolidate(self, scratch: Path) -> None:
        """Write consolidated metadata of all groups and arrays."""
        known: dict[str, Any] = {}
        for path in sorted(_nodes_in(self._root)):
            known |= self._documents(path)
        if self._format == 2:
            document = {"metadata": known, "zarr_consolidated_format": 1}
            self._replace(_CONSOLIDATED[2], document, scratch)
        else:
            known.pop("", None)
            root = parse_json(self._root / "zarr.json")
            inline = {"kind": "inline", "must_understand": False, "metadata": known}
            self._replace("zarr.json", {**root, _SEPARATED: inline}, scratch)

    def add_columns(self, table: str, columns: Sequence[str], scratch: Path) -> None:
        """Add columns, whose arrays exist, to the order of the columns of a table."""
        file = f"{table}/{'.zattrs' if self._format == 2 else 'zarr.json'}"
        document = parse_json(self._root / file)
        attributes = document if self._format == 2 else document["attributes"]
        order = list(attributes.get("column-order", []))
        attributes["column-order"] = [*order, *(name for name in columns if name not in order)]
        self._replace(file, document, scratch)

    def _consolidated(self) -> dict[str, Any] | None:
        file = self._root / _CONSOLIDATED[self._format]
        document = parse_json(file) if file.is_file() else {}
        if self._format == 3:
            document = document.get(_SEPARATED) or {}
        known = document.get("metadata")
        return known if isinstance(known, dict) else None

    def _documents(self, path: str) -> dict[str, Any]:
        """Return the documents of the node at a path, under the keys of consolidated metadata."""
        folder = self._root / path
        path = "" if path == "." else path
        if self._format == 3:
            found = parse_json(folder / "zarr.json")
            found.pop(_SEPARATED, None)
            if found.get("node_type") == "group":
                found[_SEPARATED] = {"kind": "inline", "must_understand": False, "metadata": {}}
            return {path: found}
        files = (name for name in _DOCUMENTS[2] if (folder / name).is_file())
        return {f"{path}/{name}".lstrip("/"): parse_json(folder / name) for name in files}

    def _replace(self, file: str, document: Any, scratch: Path) -> None:
        """Replace a document in one step."""
        beside = scratch / "document.json"
        beside.unlink(missing_ok=True)
        write_new(beside, json.dumps(document, indent=2).encode("ascii"))
        descriptor = os.open(beside, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
        os.replace(beside, self._root / file)


def _nodes_in(root: Path) -> list[str]:
    """Return the paths of all groups and arrays below a folder. Chunks of arrays are not listed."""
    found = []
    for directory, folders, files in os.walk(root):
        if ".zarray" in files or ("zarr.json" in files and _is_array(Path(directory, "zarr.json"))):
            folders.clear()
        if any(file in ("zarr.json", ".zarray", ".zgroup") for file in files):
            found.append(Path(directory).relative_to(root).as_posix())
    return found


def _is_array(file: Path) -> bool:
    return bool(parse_json(file).get("node_type") == "array")
