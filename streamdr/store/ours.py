"""What streamdr writes into the folder of an output, told from everything else that may lie there.

Nothing is deleted by the name of its folder alone. An output is replaced when its record is of the same kind,
and when all that its folder holds is what streamdr writes there; and of what it replaces, only files of such
names are removed. Names are relative to the folder, with slashes, so that they are keys of objects, too.
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
"""What zarr adds to a file's name while it writes it."""
_FILE = re.compile(
    rf"zarr\.json|\.zarr\.json\.partial|(?P<array>{_ARRAY})/(?:zarr\.json|zarr{_KILLED}|c(?:/\d+)*(?:{_KILLED})?)",
    re.ASCII,
)
_FOLDER = re.compile(rf"(?P<array>{_ARRAY})(?:/c(?:/\d+)*)?", re.ASCII)
_DATA_ARRAYS = frozenset({"X", "complete", "y", "labels"})
_ATTRIBUTES = frozenset({"streamdr", "feature_names"})
_NAMED = 3

_WORDS = {
    "model": "a model",
    "ingested": "data that was ingested",
    "synthetic": "synthetic data",
    "example": "an example data set",
}


def objection(record: dict[str, Any] | None, kind: OutputKind) -> str | None:
    """Why what has this record is not replaced by an output of a kind, as words; None when it may be."""
    if record is None:
        return "it is not a streamdr output"
    there = record.get("kind")
    if there != kind:
        return f"it is {_named(there)}, and this would be {_named(kind)}"
    return None


def how_to_replace(kind: OutputKind) -> str:
    """What to do to have an output of a kind replaced, in the words of those who make such outputs."""
    if kind == "ingested":
        return "pass --overwrite (in Python, overwrite=True)"
    return "set output.overwrite: true (in Python, save with overwrite=True)"


def own_arrays(document: dict[str, Any], record: dict[str, Any]) -> set[str]:
    """The names of the arrays that streamdr wrote into a group.

    A record that was edited since, as by zarr when somebody adds an array, is not asked: then they are those
    that outputs of this kind have.
    """
    files = record.get("files")
    if isinstance(files, dict):
        return {str(name).partition("/")[0] for name in files}
    if is_sealed(document):
        names = record.get("arrays")
        if arrays := arrays_in(document) or (names if isinstance(names, list) else []):
            return set(map(str, arrays))
    kind = record.get("kind")
    if kind not in _WORDS:
        return {str(kind)}
    return set(_DATA_ARRAYS if "labels" in record else _DATA_ARRAYS - {"labels"})


def is_own(name: str, arrays: Collection[str] | None = None) -> bool:
    """Whether streamdr writes a file of this name; `arrays` are those that there are (None: any)."""
    return _matches(_FILE, name, arrays)


def strange_names(names: Iterable[str], arrays: Collection[str] | None = None) -> list[str]:
    """Of the names of files, those that streamdr does not write."""
    return sorted(name for name in names if not is_own(name, arrays))


def strangers(folder: Path, arrays: Collection[str] | None = None) -> list[str]:
    """What streamdr did not write in a folder: other files and folders, links, devices."""
    found: list[str] = []
    for directory, names, files in os.walk(folder):
        here = "" if directory == str(folder) else f"{Path(directory).relative_to(folder).as_posix()}/"
        for name in list(names):
            if Path(directory, name).is_symlink() or not _matches(_FOLDER, here + name, arrays):
                names.remove(name)
                found.append(here + name)
        found += [
            here + name
            for name in files
            if not (is_own(here + name, arrays) and _is_regular(Path(directory, name)))
        ]
    return sorted(found)


def staged_strangers(folder: Path, kind: OutputKind) -> list[str]:
    """What streamdr did not write in a folder where an output of a kind is, or was, staged."""
    found = strangers(folder)
    if not found and os.path.lexists(folder / ROOT) and not is_staged_root(_parsed(folder / ROOT), kind):
        return [ROOT]
    return found


def is_staged_root(document: Any, kind: OutputKind) -> bool:
    """Whether a root, parsed, may be that of an output of a kind that was staged: None if it is damaged."""
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
    """Why what lies at a path is not replaced by an output of a kind, as words; None when it may be."""
    document, record = peek(target)
    reason = objection(record, kind)
    if reason is not None or record is None:
        return reason
    arrays = own_arrays(document, record)
    found = strangers(target, arrays)
    if found:
        return in_words(found)
    metadata = {None: document} | {name: _parsed(target / name / ROOT) for name in sorted(arrays)}
    notes = (noted(found, name) for name, found in metadata.items() if isinstance(found, dict))
    return next(filter(None, notes), None)


def noted(document: dict[str, Any], array: str | None = None) -> str | None:
    """The reason that attributes are which somebody has added to a group, or to an array in it."""
    attributes = document.get("attributes")
    found = sorted(set(attributes) - _ATTRIBUTES) if isinstance(attributes, dict) else []
    where = "" if array is None else f" of {array!r}"
    return f"it also holds the attribute{where} {found[0]!r}, which streamdr did not write" if found else None


def in_words(found: list[str]) -> str:
    """The reason that strange names are."""
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

    What cannot be removed stays. Links are not followed, whoever puts one there meanwhile.
    """
    with suppress(OSError):
        for directory, names, files, descriptor in os.fwalk(folder, topdown=False, follow_symlinks=False):
            here = "" if directory == str(folder) else f"{Path(directory).relative_to(folder).as_posix()}/"
            for name in filter(lambda name: is_own(here + name), files):
                with suppress(OSError):
                    if stat.S_ISREG(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode):
                        os.unlink(name, dir_fd=descriptor)
            for name in filter(lambda name: _matches(_FOLDER, here + name, None), names):
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
