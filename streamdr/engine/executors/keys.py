"""Keys by which the parts of one cluster know each other: made for it, and forgotten with it.

They stay in memory, or in a folder of this user alone where other machines have to find them.
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
    """The keys that were given, or new ones, for processes that this one starts."""
    return Security.temporary() if tls is None else certificates(tls)


def keys_in_files(tls: TLS | None, shared: str, stack: ExitStack) -> Security:
    """The keys that were given, or new ones, for jobs on other machines that see the folder `shared`."""
    if tls is None:
        above = Path(os.path.expanduser(os.path.expandvars(shared)))
        _sweep(above)
        tls = _made(above, stack)
    for file in asdict(tls).values():
        # The script of a job is shell, and has these paths in it as they are.
        if not _PLAIN.fullmatch(file):
            raise ParameterError(
                "tls",
                f"{file}: has characters in it that mean something to the shell of a job; give keys a path "
                "of letters, digits and @%+=:,./-_",
            )
    return certificates(tls)


def _made(above: Path, stack: ExitStack) -> TLS:
    made = Security.temporary()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=above))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    files = {name: folder / f"{name}.pem" for name in _FILES}
    texts = {files["ca"]: made.tls_ca_file, files["cert"]: made.tls_worker_cert}
    texts |= {files["key"]: made.tls_worker_key, folder / _OWNER: json.dumps(asdict(Process.here()))}
    for file, text in texts.items():
        file.touch(mode=0o600)
        file.write_text(text, encoding="utf-8")
    return TLS(**{name: str(file) for name, file in files.items()})


def _sweep(above: Path) -> None:
    """Remove the keys of runs that were killed on this machine. Those of another are left to it."""
    for folder in above.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if folder.is_symlink() or not _is_abandoned(read_regular(folder / _OWNER, _LARGEST_OWNER)):
                continue
            for name in (*(f"{name}.pem" for name in _FILES), _OWNER):
                (folder / name).unlink(missing_ok=True)
            folder.rmdir()


def _is_abandoned(owner: bytes) -> bool:
    try:
        said = json.loads(owner)
        if not isinstance(said, Mapping) or type(said.get("pid")) is not int:
            return False
        process = Process(**said)
        return process.is_near and not process.is_running
    except (ValueError, TypeError, OverflowError, RecursionError):
        return False
