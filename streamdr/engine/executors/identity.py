"""What a process computes with: its versions, and a digest of streamdr's own code.

Two processes that differ here may differ in the last bits of what they compute, or altogether. A worker may
join at any time, and have the code of another day under the same version: so every task brings along what
it was made for, and refuses to run elsewhere. A process whose code was changed on disk after it was imported
may run either: it is like no other.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sys
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import streamdr
from streamdr.errors import EngineError

Identity = tuple[tuple[str, str], ...]
"""Names, and what they stand for here."""

_PACKAGES = ("streamdr", "numpy", "scipy", "zarr", "numcodecs")
"""Those that bits depend on."""
_CODE = "code"
_CHANGED = "changed "


class ForeignWorkerError(EngineError):
    """A worker that computes with other code than this process does."""


@cache
def identity() -> Identity:
    """What this process computes with: worked out once, when what it computes with has been imported."""
    return identity_now()


def identity_now() -> Identity:
    """What this process would compute with, as far as it has been imported."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    versions = ((name, _version(name)) for name in _PACKAGES)
    return (("python", python), *versions, (_CODE, _source_digest(Path(streamdr.__file__).parent)))


def run_as(expected: Identity, function: Callable[..., Any], *arguments: Any) -> Any:
    """Run a task, if this process is one of those that it was made for."""
    if (found := identity()) != expected:
        raise ForeignWorkerError(difference(_here(), found, expected))
    return function(*arguments)


def difference(worker: str, there: Identity, here: Identity) -> str:
    """How a worker differs from this process, in words."""
    theirs = dict(there)
    differing = [name for name, ours in here if theirs.get(name) != ours and name != _CODE]
    differences = [
        f"{name} {theirs.get(name) or 'not at all'} (here {dict(here)[name]})" for name in differing
    ]
    code, ours = theirs.get(_CODE, ""), dict(here)[_CODE]
    if ours.startswith(_CHANGED):
        return "the code of streamdr was changed after this process imported it: start this process again"
    if code.startswith(_CHANGED):
        differences.append("code of streamdr that was changed after it was imported there")
    if not differences:
        differences = [f"other code of streamdr under the same version ({code[:12]}, here {ours[:12]})"]
    return (
        f"{worker}: this worker has {', '.join(differences)}, and results would not be the same bits; "
        "install the same versions on every worker, start it again, and run again: work goes on at the last "
        "checkpoint"
    )


def _here() -> str:
    """The address of this worker, or the number of a process that is none of a cluster."""
    from distributed import get_worker

    try:
        return str(get_worker().address)
    except ValueError:
        return f"process {os.getpid()}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _source_digest(package: Path) -> str:
    """A digest of the source of a package: every module's name and text. Flows compute nothing themselves."""
    digest = hashlib.sha256()
    flows = package / "flows"
    for file in sorted(file for file in package.rglob("*.py") if not file.is_relative_to(flows)):
        if file.stat().st_ctime > streamdr.IMPORTED_AT:
            return _CHANGED + secrets.token_hex()
        name = file.relative_to(package).as_posix().encode()
        text = file.read_bytes()
        digest.update(b"%d %d " % (len(name), len(text)) + name + text)
    return digest.hexdigest()
