"""Which files in the folder of an output streamdr has written, and which are foreign.

Nothing is deleted by the name of its folder alone. An output is replaced only if its record has the same
kind, and if its folder contains only files that streamdr writes. Of a replaced output, only files with such
names are removed. Names are relative to the folder, with slashes, so they are also keys of objects.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from streamdr.errors import StoreError
from streamdr.store.record import ROOT, OutputKind, arrays_in, find_record, is_sealed, parse_json, peek

_ARRAY = r"[A-Za-z_]\w*"
_KILLED = r"\.[0-9a-f]{32}\.partial"
"""The suffix that zarr adds to the name of a file while it writes it."""
_NODE = rf"{_ARRAY}(?:/{_ARRAY}){{0,2}}?"
"""An array, or a group in a group, such as a model of a chain or a table of AnnData, or an array in that."""
_ROOT = r"(?:zarr\.json|\.zarr\.json\.partial)"
"""The metadata of a group or an array, and what it is written to first."""
_FILE = re.compile(
    rf"{_ROOT}|(?P<array>{_NODE})/(?:{_ROOT}|zarr{_KILLED}|c(?:/\d+)*(?:{_KILLED})?)",
    re.ASCII,
)
_FOLDER = re.compile(rf"(?P<array>{_NODE})(?:/c(?:/\d+)*)?", re.ASCII)
_DATA_ARRAYS = frozenset({"X", "complete", "y", "labels"})
_ATTRIBUTES = frozenset({"streamdr", "feature_names"})
_NAMED = 3

_WORDS = {
    "model": "a model",
    "ingested": "data that was ingested",
    "synthetic": "synthetic data",
    "example": "an example data set",
}


def kind_reason(record: dict[str, Any] | None, kind: OutputKind) -> str | None:
    """Return why an output with this record must not be replaced by one of a kind, or None if it may be."""
    if record is None:
        return "it is not a streamdr output"
    there = record.get("kind")
    if there != kind:
        return f"it is {_named(there)}, and this would be {_named(kind)}"
    return None


def how_to_replace(kind: OutputKind) -> str:
    """Return which option allows an output of a kind to be replaced, for error messages."""
    if kind == "ingested":
        return "pass --overwrite (in Python, overwrite=True)"
    return "set output.overwrite: true (in Python, save with overwrite=True)"


def own_arrays(document: dict[str, Any], record: dict[str, Any]) -> set[str]:
    """Return the names of the arrays that streamdr wrote into a group.

    If the record was edited since, for example by zarr when a user added an array, the result is the arrays
    that outputs of this kind have.
    """
    files = record.get("files")
    if isinstance(files, dict):
        return {str(name).removesuffix(f"/{ROOT}") for name in files if str(name).endswith(f"/{ROOT}")}
    if is_sealed(document):
        names = record.get("arrays")
        if arrays := arrays_in(document) or (names if isinstance(names, list) else []):
            return set(map(str, arrays))
    kind = record.get("kind")
    if kind not in _WORDS:
        beside = record.get("coordinates")
        return {str(kind), *map(str, beside if isinstance(beside, list) else [])}
    return set(_DATA_ARRAYS if "labels" in record else _DATA_ARRAYS - {"labels"})


def is_own(name: str, arrays: Collection[str] | None = None) -> bool:
    """Return whether streamdr writes a file of this name. `arrays` are its arrays' names (None: any)."""
    return _matches(_FILE, name, arrays)


def is_own_folder(name: str, arrays: Collection[str] | None = None) -> bool:
    """Return whether streamdr writes files into a folder of this name."""
    return _matches(_FOLDER, name, arrays)


def foreign_names(names: Iterable[str], arrays: Collection[str] | None = None) -> list[str]:
    """Return the names of files that streamdr does not write."""
    return sorted(name for name in names if not is_own(name, arrays))


def foreign_files(folder: Path, arrays: Collection[str] | None = None) -> list[str]:
    """Return what streamdr did not write in a folder: other files and folders, links, devices."""
    found: list[str] = []
    for directory, names, files in os.walk(folder):
        here = "" if directory == str(folder) else f"{Path(directory).relative_to(folder).as_posix()}/"
        for name in list(names):
            if Path(directory, name).is_symlink() or not is_own_folder(here + name, arrays):
                names.remove(name)
                found.append(here + name)
        found += [
            here + name
            for name in files
            if not (is_own(here + name, arrays) and _is_regular(Path(directory, name)))
        ]
    return sorted(found)


def foreign_in_staging(folder: Path, kind: OutputKind) -> list[str]:
    """Return what streamdr did not write in a folder where an output of a kind is, or was, staged."""
    found = foreign_files(folder)
    if not found and os.path.lexists(folder / ROOT) and not is_staged_root(_parsed(folder / ROOT), kind):
        return [ROOT]
    return found


def is_staged_root(document: Any, kind: OutputKind) -> bool:
    """Return whether a parsed root (None if it is damaged) may belong to a staged output of a kind."""
    if document is None:
        return True
    record = find_record(document)[1]
    return record is not None and record["kind"] == kind


def _parsed(root: Path) -> Any:
    try:
        return parse_json(root)
    except StoreError:
        return None


def foreign_content(target: Path, kind: OutputKind) -> str | None:
    """Return why the content of a path must not be replaced by an output of a kind, or None if it may be."""
    document, record = peek(target)
    reason = kind_reason(record, kind)
    if reason is not None or record is None:
        return reason
    arrays = own_arrays(document, record)
    found = foreign_files(target, arrays)
    if found:
        return foreign_reason(found)
    metadata = {None: document} | {name: _parsed(target / name / ROOT) for name in sorted(arrays)}
    sealed = arrays_in(document) if is_sealed(document) else {}
    notes = (
        attribute_reason(found, name, sealed.get(str(name)))
        for name, found in metadata.items()
        if isinstance(found, dict)
    )
    return next(filter(None, notes), None)


def attribute_reason(
    document: dict[str, Any], array: str | None = None, sealed: dict[str, Any] | None = None
) -> str | None:
    """Return a reason that names an attribute added by a user to a group or an array, or None.

    `sealed` is the metadata that streamdr wrote for the array, if that is known: with the attributes of
    coordinates and of variables.
    """
    attributes, written = document.get("attributes"), (sealed or {}).get("attributes") or {}
    found = sorted(set(attributes) - _ATTRIBUTES - set(written)) if isinstance(attributes, dict) else []
    where = "" if array is None else f" of {array!r}"
    return f"it also holds the attribute{where} {found[0]!r}, which streamdr did not write" if found else None


def foreign_reason(found: list[str]) -> str:
    """Return a reason that names foreign files."""
    more = f" and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
    names = ", ".join(map(repr, found[:_NAMED]))
    return f"it also holds {names}{more}, which streamdr did not write"


def remove(folder: Path) -> None:
    """Remove what streamdr wrote in a folder, and the folder if nothing else is left in it."""
    clear(folder)
    with suppress(OSError):
        folder.rmdir()


def clear(folder: Path) -> None:
    """Remove what streamdr wrote in a folder.

    What cannot be removed stays. Links are not followed, even if they are created meanwhile.
    """
    with suppress(OSError):
        for directory, names, files, descriptor in os.fwalk(folder, topdown=False, follow_symlinks=False):
            here = "" if directory == str(folder) else f"{Path(directory).relative_to(folder).as_posix()}/"
            for name in filter(lambda name: is_own(here + name), files):
                with suppress(OSError):
                    if stat.S_ISREG(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode):
                        os.unlink(name, dir_fd=descriptor)
            for name in filter(lambda name: is_own_folder(here + name), names):
                with suppress(OSError):
                    os.rmdir(name, dir_fd=descriptor)


def _matches(pattern: re.Pattern[str], name: str, arrays: Collection[str] | None) -> bool:
    match = pattern.fullmatch(name)
    return match is not None and (arrays is None or match["array"] is None or match["array"] in arrays)


def _is_regular(path: Path) -> bool:
    return stat.S_ISREG(path.lstat().st_mode)


def _named(kind: Any) -> str:
    if not isinstance(kind, str):
        return "of no kind that its record names"
    return _WORDS.get(kind, f"an output of rows ({kind})")
