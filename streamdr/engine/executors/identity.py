"""The identity of the code of a process: versions of packages, and a digest of the source of streamdr.

Two processes with different identities may compute different bits, or different results altogether. A worker
may join at any time, and may have other code under the same version. So every task carries the identity that
it was submitted with, and refuses to run in a process with another one. If the code on disk was changed after
a process imported it, it is unknown which code the process runs, and its identity equals no other.
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
"""Names of packages with their versions, and the digest of the code."""

_PACKAGES = ("streamdr", "numpy", "scipy", "zarr", "numcodecs")
"""The packages that the bits of results depend on."""
_CODE = "code"
_CHANGED = "changed "


class ForeignWorkerError(EngineError):
    """A worker runs other code than this process."""


@cache
def identity() -> Identity:
    """Return the identity of this process, computed once, after its code has been imported."""
    return identity_now()


def identity_now() -> Identity:
    """Return the identity of this process, computed now."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    versions = ((name, _version(name)) for name in _PACKAGES)
    return (("python", python), *versions, (_CODE, _source_digest(Path(streamdr.__file__).parent)))


def run_as(expected: Identity, function: Callable[..., Any], *arguments: Any) -> Any:
    """Run a task, if this process has the expected identity."""
    if (found := identity()) != expected:
        raise ForeignWorkerError(difference(_here(), found, expected))
    return function(*arguments)


def difference(worker: str, there: Identity, here: Identity) -> str:
    """Return a message that says how a worker differs from this process."""
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
        "install the same versions on every worker, restart it, and run again: the run continues from the "
        "last checkpoint"
    )


def _here() -> str:
    """Return the address of this worker, or the PID of a process outside of a cluster."""
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
    """Return a digest of the names and the source of all modules, except flows, which compute nothing."""
    digest = hashlib.sha256()
    flows = package / "flows"
    for file in sorted(file for file in package.rglob("*.py") if not file.is_relative_to(flows)):
        if file.stat().st_ctime > streamdr.IMPORTED_AT:
            return _CHANGED + secrets.token_hex()
        name = file.relative_to(package).as_posix().encode()
        text = file.read_bytes()
        digest.update(b"%d %d " % (len(name), len(text)) + name + text)
    return digest.hexdigest()
