"""Private folders for the processes of a cluster, in which no other user can write.

A dask worker imports modules from its folder first. A user who can write there can run code in the worker.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path

from streamdr.errors import ParameterError


def private_folder(parent: str | None, stack: ExitStack) -> Path:
    """Return a private folder of this user, in `parent` or in the directory for temporary files.

    It is the same folder every time, so that dask finds and removes the files of killed workers.
    """
    directory = Path(tempfile.gettempdir() if parent is None else parent).absolute()
    if not directory.is_dir():
        raise ParameterError(
            "cluster", f"{directory}: is not a folder; give local_directory an existing folder"
        )
    if os.name != "posix":
        return directory
    _require_trusted(directory)
    folder = directory / f"streamdr-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077:
        return folder
    # Another user created it, or it is open to others. The name of a new folder cannot be predicted.
    other = Path(tempfile.mkdtemp(prefix="streamdr-", dir=directory))
    stack.callback(shutil.rmtree, other, ignore_errors=True)
    return other


def _require_trusted(directory: Path) -> None:
    """Refuse a directory in which another user could replace our folder by a different one."""
    administrator = os.stat("/").st_uid
    for folder in (directory.resolve(), *directory.resolve().parents):
        found = folder.stat()
        shared = found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and not _is_own(found.st_gid))
        replaceable = shared and not found.st_mode & stat.S_ISVTX
        if found.st_uid not in (0, administrator, os.getuid()) or replaceable:
            raise ParameterError(
                "cluster",
                f"{folder}: other users can write there, and workers import code from below it; give "
                "local_directory a folder of your own, or set TMPDIR",
            )


def _is_own(group: int) -> bool:
    """Return whether a group is that of the administrator, or the private group of this user."""
    import grp
    import pwd

    with suppress(KeyError):
        return group == 0 or grp.getgrgid(group).gr_name == pwd.getpwuid(os.getuid()).pw_name
    return False


def main() -> None:
    """Print the path of a private folder. The shell of a job calls this on its machine."""
    parent = sys.argv[1] if len(sys.argv) > 1 else None
    if parent is not None:
        os.makedirs(parent, exist_ok=True)
    try:
        sys.stdout.write(f"{private_folder(parent, ExitStack())}\n")
    except ParameterError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
