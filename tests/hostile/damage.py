"""What can be done to a file, what must stay as it is, and how long anything may take."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Damage = Callable[[Path, random.Random, Path], None]
"""Harms a file; told where something precious lies, and where another file is to be had."""

PRECIOUS = b"precious"
SECONDS = 120
"""Nothing here takes a second on an idle machine: what takes so long hangs."""


class Hung(BaseException):
    """Something waited for what never comes."""


@contextmanager
def watchdog(seconds: int = SECONDS) -> Iterator[None]:
    """End what hangs, by an error that nobody catches."""

    def bark(number: int, frame: object) -> None:
        raise Hung(f"still at it after {seconds} seconds")

    before = signal.signal(signal.SIGALRM, bark)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def census(directory: Path) -> dict[str, object]:
    """Everything below a directory: what files hold, where links lead, what kind the rest is of."""
    found: dict[str, object] = {}
    for folder, names, files in os.walk(directory):
        for name in (*names, *files):
            path = Path(folder, name)
            key = path.relative_to(directory).as_posix()
            if path.is_symlink():
                found[key] = ("link", os.readlink(path))
            else:
                found[key] = path.read_bytes() if path.is_file() else path.lstat().st_mode
    return found


def is_kept(before: dict[str, object], directory: Path) -> bool:
    """Whether all that was there is there, and as it was."""
    after = census(directory)
    return all(after.get(name) == value for name, value in before.items())


def make_precious(directory: Path) -> Path:
    """Somebody's own files, near what streamdr writes."""
    (directory / "precious" / "deep").mkdir(parents=True)
    (directory / "precious" / "notes.txt").write_bytes(PRECIOUS)
    (directory / "precious" / "deep" / "zarr.json").write_bytes(b"{}")
    return directory / "precious"


def _flip(path: Path, chance: random.Random, precious: Path) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    _put(path, bytes(data))


def _cut(path: Path, chance: random.Random, precious: Path) -> None:
    data = path.read_bytes()
    _put(path, data[: chance.randrange(len(data))] if data else b"")


def _empty(path: Path, chance: random.Random, precious: Path) -> None:
    _put(path, b"")


def _noise(path: Path, chance: random.Random, precious: Path) -> None:
    _put(path, chance.randbytes(path.stat().st_size))


def _nest(path: Path, chance: random.Random, precious: Path) -> None:
    _put(path, b"[" * 20_000 + b"]" * 20_000)


def _swell(path: Path, chance: random.Random, precious: Path) -> None:
    """A file of a terabyte, of which there is next to nothing on the disk."""
    _put(path, path.read_bytes())
    os.truncate(path, 1 << 40)


def _swap(path: Path, chance: random.Random, precious: Path) -> None:
    others = sorted(other for other in path.parent.parent.rglob("*") if other.is_file() and other != path)
    data = chance.choice(others).read_bytes() if others else PRECIOUS
    _put(path, data)


def _link(path: Path, chance: random.Random, precious: Path) -> None:
    _replace_by_link(path, precious / "notes.txt")


def _link_to_folder(path: Path, chance: random.Random, precious: Path) -> None:
    _replace_by_link(path, precious)


def _loop(path: Path, chance: random.Random, precious: Path) -> None:
    _replace_by_link(path, path)


def _broken(path: Path, chance: random.Random, precious: Path) -> None:
    _replace_by_link(path, precious / "nowhere")


def _device(path: Path, chance: random.Random, precious: Path) -> None:
    _replace_by_link(path, Path("/dev/zero"))


def _pipe(path: Path, chance: random.Random, precious: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _folder(path: Path, chance: random.Random, precious: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "notes.txt").write_bytes(PRECIOUS)


def _gone(path: Path, chance: random.Random, precious: Path) -> None:
    path.unlink()


def _put(path: Path, data: bytes) -> None:
    path.unlink()  # it may be another's, too, by a link
    path.write_bytes(data)


def _replace_by_link(path: Path, to: Path) -> None:
    path.unlink()
    path.symlink_to(to)


DAMAGES: dict[str, Damage] = {
    "flipped": _flip,
    "cut": _cut,
    "emptied": _empty,
    "noise": _noise,
    "nested": _nest,
    "swollen": _swell,
    "swapped": _swap,
    "link": _link,
    "link to a folder": _link_to_folder,
    "loop": _loop,
    "broken link": _broken,
    "device": _device,
    "pipe": _pipe,
    "folder": _folder,
    "gone": _gone,
}


def copy_world(world: Path, to: Path) -> Path:
    """A copy to do harm in."""
    shutil.copytree(world, to, symlinks=True)
    return to
