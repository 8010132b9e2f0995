"""Ways to damage a file, checks that other files are unchanged, and a time limit."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Damage = Callable[[Path, random.Random, Path], None]
"""Damages a file, given random numbers and a directory of files that must not change."""

PRECIOUS = b"precious"
SECONDS = 120
"""Every action takes less than a second on an idle machine. One that takes this long hangs."""


class Hung(BaseException):
    """An action did not end in time."""


@contextmanager
def watchdog(seconds: int = SECONDS) -> Iterator[None]:
    """Raise `Hung` after a time limit. It is a BaseException, so that no handler catches it."""

    def expire(number: int, frame: object) -> None:
        raise Hung(f"not finished after {seconds} seconds")

    before = signal.signal(signal.SIGALRM, expire)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def census(directory: Path) -> dict[str, object]:
    """Return everything below a directory: contents of files, targets of links, modes of others."""
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
    """Whether everything that existed before exists and is unchanged."""
    after = census(directory)
    return all(after.get(name) == value for name, value in before.items())


def make_precious(directory: Path) -> Path:
    """Create files of a user near the outputs of streamdr."""
    (directory / "precious" / "deep").mkdir(parents=True)
    (directory / "precious" / "notes.txt").write_bytes(PRECIOUS)
    (directory / "precious" / "deep" / "zarr.json").write_bytes(b"{}")
    return directory / "precious"


def _flip(path: Path, rng: random.Random, precious: Path) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    _put(path, bytes(data))


def _cut(path: Path, rng: random.Random, precious: Path) -> None:
    data = path.read_bytes()
    _put(path, data[: rng.randrange(len(data))] if data else b"")


def _empty(path: Path, rng: random.Random, precious: Path) -> None:
    _put(path, b"")


def _noise(path: Path, rng: random.Random, precious: Path) -> None:
    _put(path, rng.randbytes(path.stat().st_size))


def _nest(path: Path, rng: random.Random, precious: Path) -> None:
    _put(path, b"[" * 20_000 + b"]" * 20_000)


def _swell(path: Path, rng: random.Random, precious: Path) -> None:
    """Extend a file to a terabyte, as a sparse file."""
    _put(path, path.read_bytes())
    os.truncate(path, 1 << 40)


def _swap(path: Path, rng: random.Random, precious: Path) -> None:
    others = sorted(other for other in path.parent.parent.rglob("*") if other.is_file() and other != path)
    data = rng.choice(others).read_bytes() if others else PRECIOUS
    _put(path, data)


def _link(path: Path, rng: random.Random, precious: Path) -> None:
    _replace_by_link(path, precious / "notes.txt")


def _link_to_folder(path: Path, rng: random.Random, precious: Path) -> None:
    _replace_by_link(path, precious)


def _loop(path: Path, rng: random.Random, precious: Path) -> None:
    _replace_by_link(path, path)


def _broken(path: Path, rng: random.Random, precious: Path) -> None:
    _replace_by_link(path, precious / "nowhere")


def _device(path: Path, rng: random.Random, precious: Path) -> None:
    _replace_by_link(path, Path("/dev/zero"))


def _pipe(path: Path, rng: random.Random, precious: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _folder(path: Path, rng: random.Random, precious: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "notes.txt").write_bytes(PRECIOUS)


def _gone(path: Path, rng: random.Random, precious: Path) -> None:
    path.unlink()


def _put(path: Path, data: bytes) -> None:
    path.unlink()  # it may be a hard link to another file
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
    """Return a copy that a test may damage."""
    shutil.copytree(world, to, symlinks=True)
    return to
