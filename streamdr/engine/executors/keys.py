"""TLS keys of one cluster: created for it, and removed with it.

They stay in memory, or in a private folder of this user if other machines need them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path

from distributed import Security

from streamdr.core.execution import TLS
from streamdr.core.files import read_regular
from streamdr.engine.executors.connecting import certificates
from streamdr.errors import ParameterError
from streamdr.store.process_identity import Process

_PREFIX = ".streamdr-keys-"
_OWNER = "owner.json"
_FILES = ("ca", "cert", "key")
_LARGEST_OWNER = 1 << 12
_PLAIN = re.compile(r"[\w@%+=:,./-]+")


def keys_in_memory(tls: TLS | None) -> Security:
    """Return the given keys, or new ones, for processes that this process starts."""
    return Security.temporary() if tls is None else certificates(tls)


def keys_in_files(tls: TLS | None, shared: str, stack: ExitStack) -> Security:
    """Return the given keys, or new ones, for jobs on other machines that can read the folder `shared`."""
    if tls is None:
        parent = Path(os.path.expanduser(os.path.expandvars(shared)))
        _sweep(parent)
        tls = _created(parent, stack)
    for file in asdict(tls).values():
        # The script of a job is a shell script, and contains these paths without quoting.
        if not _PLAIN.fullmatch(file):
            raise ParameterError(
                "tls",
                f"{file}: has characters that are special in the shell of a job; give the keys a path of "
                "letters, digits and @%+=:,./-_",
            )
    return certificates(tls)


def _created(parent: Path, stack: ExitStack) -> TLS:
    """Create keys in a private folder, which is removed with the stack."""
    security = Security.temporary()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    files = {name: folder / f"{name}.pem" for name in _FILES}
    texts = {files["ca"]: security.tls_ca_file, files["cert"]: security.tls_worker_cert}
    texts |= {files["key"]: security.tls_worker_key, folder / _OWNER: json.dumps(asdict(Process.here()))}
    for file, text in texts.items():
        file.touch(mode=0o600)
        file.write_text(text, encoding="utf-8")
    return TLS(**{name: str(file) for name, file in files.items()})


def _sweep(parent: Path) -> None:
    """Remove the keys of runs that were killed on this machine. Those of other machines stay."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if folder.is_symlink() or not _is_abandoned(read_regular(folder / _OWNER, _LARGEST_OWNER)):
                continue
            for name in (*(f"{name}.pem" for name in _FILES), _OWNER):
                (folder / name).unlink(missing_ok=True)
            folder.rmdir()


def _is_abandoned(owner: bytes) -> bool:
    try:
        entries = json.loads(owner)
        if not isinstance(entries, Mapping) or type(entries.get("pid")) is not int:
            return False
        process = Process(**entries)
        return process.is_near and not process.is_running
    except (ValueError, TypeError, OverflowError, RecursionError):
        return False
