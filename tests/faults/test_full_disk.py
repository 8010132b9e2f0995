"""A disk that is full from any write on gives one clear error, and the next run with free space succeeds."""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command_line import Outcome, streamdr, succeed
from fault_counts import pieces
from killing import Started
from preloading import Shim
from surviving import PUBLISHING, require_same, undisturbed

STRIDE = 10


@pytest.fixture(scope="module")
def shim(tmp_path_factory) -> Iterator[Shim]:
    with Shim(tmp_path_factory.mktemp("shim")) as shim:
        yield shim


def require_one_clear_error(outcome: Outcome, about: object) -> None:
    assert outcome.code == 1, (about, outcome)
    assert len(outcome.errors) == 1, (about, outcome)
    assert "No space left on device" in outcome.errors[0], (about, outcome)
    assert "Traceback" not in outcome.err, (about, outcome)


@pieces("full disks in steps", few=[1, 1], full=30, size=10)
def test_a_disk_that_is_full_from_some_file_system_change_on_gives_one_clear_error(
    count, seed, tmp_path, tally
):
    chance = random.Random(seed)
    words, make = PUBLISHING[chance.choice(list(PUBLISHING))]
    whole = undisturbed(words, make, tmp_path / "undisturbed").place
    for step in chance.sample(range(80), count):
        place = tmp_path / f"full from step {step}"
        place.mkdir()
        make(place)
        with Started(*words, cwd=place, last_step=step, failing=errno.ENOSPC) as run:
            outcome = run.outcome()
        if outcome.code != 0:
            require_one_clear_error(outcome, step)
            tally("full disks")
        succeed(*words, cwd=place)
        require_same(place, whole, step)
        shutil.rmtree(place)


@pytest.mark.faults
@pytest.mark.parametrize("command", PUBLISHING)
@pytest.mark.parametrize("first", range(1, STRIDE + 1))
def test_a_disk_that_is_full_from_some_write_on_gives_one_clear_error(command, first, shim, tmp_path, tally):
    """All parametrizations of a command together fill the disk at each of its writes."""
    words, make = PUBLISHING[command]
    whole = undisturbed(words, make, tmp_path / "undisturbed").place
    (tmp_path / "counted").mkdir()
    make(tmp_path / "counted")
    counted = tmp_path / "counted"
    _, writes = shim.run(*words, cwd=counted, calls="write", error=errno.ENOSPC)
    assert writes > 80
    for at in range(first, writes + 1, STRIDE):
        place = tmp_path / f"full from write {at}"
        place.mkdir()
        make(place)
        outcome, _ = shim.run(*words, cwd=place, calls="write", error=errno.ENOSPC, at=at)
        if outcome.code != 0:
            require_one_clear_error(outcome, at)
        tally("full disks")
        succeed(*words, cwd=place)
        require_same(place, whole, at)
        shutil.rmtree(place)


@contextmanager
def mounted(place: Path, kilobytes: int) -> Iterator[None]:
    """Mount a small file system at a directory."""
    if os.geteuid() != 0:
        pytest.fail("only root can mount a file system: run this test as root")
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "none", place], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", place], check=True)


@pieces("full file systems", few=[], full=12, size=4)
def test_a_file_system_that_is_really_full_gives_one_clear_error(count, seed, tmp_path, tally):
    words, make = PUBLISHING["small"]
    whole = undisturbed(words, make, tmp_path / "undisturbed").place
    needed = sum(file.stat().st_blocks for file in whole.rglob("*") if file.is_file()) // 2
    chance, place = random.Random(seed), tmp_path / "disk"
    for _ in range(count):
        size = needed - 4 * chance.randrange(1, needed // 8)
        with mounted(place, 100 + 2 * needed):
            make(place)
            subprocess.run(["mount", "-o", f"remount,size={size}k", place], check=True)
            outcome = streamdr(*words, cwd=place)
            if outcome.code != 0:
                require_one_clear_error(outcome, size)
            tally("full disks")
            subprocess.run(["mount", "-o", f"remount,size={100 + 4 * needed}k", place], check=True)
            succeed(*words, cwd=place)
            require_same(place, whole, size)
        place.rmdir()
