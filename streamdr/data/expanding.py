"""Patterns such as `era5_*.zarr`, and folders of tables, become the files that they stand for."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeGuard

from streamdr.core.addresses import Address, Location, parse_location
from streamdr.data.file_formats import tables_in
from streamdr.data.ordering import natural_order
from streamdr.errors import ConfigError, DataError, InputError
from streamdr.store.remote import RemoteError, open_objects

_ADVICE = "check the pattern"
_HAS_PATTERN = re.compile(r"[*?\[]")


def is_path_list(data: Any) -> TypeGuard[Sequence[str]]:
    """Whether data is a list of paths, and not of rows."""
    is_list = isinstance(data, list | tuple) and len(data) > 0
    return is_list and all(isinstance(place, str | Path | Address) for place in data)


def is_several(paths: str | Sequence[str]) -> bool:
    """Whether an input is several files: a list of paths, a folder of tables, or a pattern.

    A file whose name looks like a pattern is one.
    """
    if not isinstance(paths, str):
        return True
    place = parse_location(paths)
    if isinstance(place, Address):
        return "*" in place.url
    if os.path.lexists(place):
        return bool(tables_in(place))
    return bool(_HAS_PATTERN.search(str(place)))


def several_name(paths: str | Path | Sequence[str]) -> str:
    """Return the name of several files, in errors and keys. It does not change when files are added."""
    if isinstance(paths, str | Path):
        return str(parse_location(paths))
    return f"{parse_location(paths[0])}, ..." if paths else "an empty list"


def expand(paths: str | Path | Sequence[str]) -> list[Location]:
    """Return the files and stores of a path, a pattern, or a list of them, in natural order of their names.

    `~` and `$NAME` have been expanded before. Hidden files are not matched: a store that is being written
    is one of them.
    """
    paths = str(paths) if isinstance(paths, Path) else paths
    texts = [paths] if isinstance(paths, str) else list(paths)
    if not texts:
        raise InputError("path", "the list of paths is empty; give at least one")
    found: dict[str, Location] = {}
    for text in texts:
        for place in _matches(text):
            key = str(place) if isinstance(place, Address) else os.path.realpath(place)
            if key in found:
                raise InputError("path", f"{place}: is given twice; its rows would count twice")
            found[key] = place
    return sorted(found.values(), key=lambda place: natural_order(str(place)))


def _matches(text: str) -> list[Location]:
    """Return what one path or pattern matches."""
    if not is_several(text):
        return [parse_location(text)]
    place = parse_location(text)
    matches: list[Location]
    if isinstance(place, Path) and (tables := tables_in(place)):
        return list(tables)
    if isinstance(place, Address):
        matches = list(_matching_addresses(place))
    else:
        found = [Path(name) for name in glob.glob(str(place), recursive=True)]
        matches = [file for match in found for file in tables_in(match) or [match]]
    if not matches:
        searched = ""
        if isinstance(place, Path) and not place.is_absolute():
            searched = f" in {Path.cwd()}, where relative paths begin"
        raise InputError("path", f"{place}: no file matches this pattern{searched}; {_ADVICE}")
    return matches


def _matching_addresses(pattern: Address) -> Iterable[Address]:
    """Return the addresses that match a pattern: the folder of each `*` is listed."""
    scheme, _, place = pattern.url.partition("://")
    bucket, *names = place.split("/")
    if "*" in bucket or "**" in names:
        raise ConfigError(f"{pattern}: a pattern in an address may have * in the names below the bucket only")
    found = [Address(f"{scheme}://{bucket}", pattern.options)]
    for name in names:
        if "*" not in name:
            found = [address / name for address in found]
            continue
        found = [
            address / child
            for address in found
            for child in _children(address)
            if fnmatchcase(child, name) and not child.startswith(".")
        ]
    return found


def _children(address: Address) -> list[str]:
    """Return the names directly below an address."""
    try:
        return open_objects(address).children()
    except FileNotFoundError:
        return []
    except RemoteError as error:
        raise DataError(f"{address}: cannot be listed: {error}") from error
