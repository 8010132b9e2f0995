"""Folders for the processes of a cluster, which nobody else on the machine can put anything into.

A dask worker imports from its folder before all others. Where anybody can write there, anybody runs code.
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
    """A folder of this user alone, in `parent` or among the temporary files.

    It is the same every time, so that dask finds what killed workers left in it, and clears that away.
    """
    above = Path(tempfile.gettempdir() if parent is None else parent).absolute()
    if not above.is_dir():
        raise ParameterError("cluster", f"{above}: is not a folder; give local_directory one that exists")
    if os.name != "posix":
        return above
    _require_trusted(above)
    folder = above / f"streamdr-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077:
        return folder
    # Somebody else was there first, or opened it to others: nobody can foresee the name of this one.
    other = Path(tempfile.mkdtemp(prefix="streamdr-", dir=above))
    stack.callback(shutil.rmtree, other, ignore_errors=True)
    return other


def _require_trusted(above: Path) -> None:
    """Refuse folders in which somebody else could put another folder into the place of ours."""
    administrator = os.stat("/").st_uid
    for folder in (above.resolve(), *above.resolve().parents):
        found = folder.stat()
        shared = found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and not _is_own(found.st_gid))
        replaceable = shared and not found.st_mode & stat.S_ISVTX
        if found.st_uid not in (0, administrator, os.getuid()) or replaceable:
            raise ParameterError(
                "cluster",
                f"{folder}: others could put their code there, and workers import from below it; give "
                "local_directory a folder of your own, or set TMPDIR",
            )


def _is_own(group: int) -> bool:
    """Whether a group is the administrator's, or this user's alone."""
    import grp
    import pwd

    with suppress(KeyError):
        return group == 0 or grp.getgrgid(group).gr_name == pwd.getpwuid(os.getuid()).pw_name
    return False


def main() -> None:
    """Print such a folder: the shell of a job asks for one where it runs."""
    above = sys.argv[1] if len(sys.argv) > 1 else None
    if above is not None:
        os.makedirs(above, exist_ok=True)
    try:
        sys.stdout.write(f"{private_folder(above, ExitStack())}\n")
    except ParameterError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
