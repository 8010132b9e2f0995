"""A compare-and-swap file is replaced only by a writer that expects its content, and by one at a time."""

from __future__ import annotations

import os
import resource
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from narrowing import present

from streamdr.errors import BusyError, StoreError
from streamdr.store.compare_and_swap import CompareAndSwapFile, Conflict
from streamdr.store.locking import locked, try_lock


@pytest.fixture
def shared(tmp_path: Path) -> CompareAndSwapFile:
    return CompareAndSwapFile(tmp_path / "created" / "for it" / "shared")


def test_the_content_is_read_until_the_file_is_removed(shared: CompareAndSwapFile, tmp_path: Path) -> None:
    assert shared.read() is None
    first = shared.replace(b"one", None)
    assert shared.read() == (b"one", first)
    second = shared.replace(b"two", first)
    assert shared.read() == (b"two", second)
    assert [path.name for path in shared.path.parent.iterdir()] == ["shared"]
    shared.remove(second)
    assert shared.read() is None
    assert list(tmp_path.iterdir()) == []


def test_a_writer_that_expects_another_version_changes_nothing(shared: CompareAndSwapFile) -> None:
    with pytest.raises(Conflict):
        shared.replace(b"new", "an unknown version")
    old = shared.replace(b"one", None)
    now = shared.replace(b"two", old)
    for expected in (None, old):
        with pytest.raises(Conflict):
            shared.replace(b"three", expected)
    with pytest.raises(Conflict):
        shared.remove(old)
    assert shared.read() == (b"two", now)


def test_one_of_many_writers_that_expect_the_same_version_succeeds(shared: CompareAndSwapFile) -> None:
    contestants = 8
    ready = threading.Barrier(contestants)

    def contest(number: int) -> bool:
        ready.wait()
        try:
            CompareAndSwapFile(shared.path).replace(str(number).encode(), None)
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(contestants) as pool:
        won = list(pool.map(contest, range(contestants)))
    assert sum(won) == 1
    assert present(shared.read())[0] == str(won.index(True)).encode()


def test_the_unfinished_file_of_a_killed_writer_is_replaced(shared: CompareAndSwapFile) -> None:
    shared.path.parent.mkdir(parents=True)
    version = None
    for left in (b"", b"who", b"whole of an earlier one", bytes(10)):
        shared.path.with_name("shared.new").write_bytes(left)
        version = shared.replace(b"whole", version)
        assert [path.name for path in shared.path.parent.iterdir()] == ["shared"]


def test_a_foreign_file_at_the_temporary_path_is_kept(shared: CompareAndSwapFile) -> None:
    shared.path.parent.mkdir(parents=True)
    shared.path.with_name("shared.new").write_bytes(b"notes")
    with pytest.raises(StoreError, match=r"shared\.new: streamdr did not write it"):
        shared.replace(b"whole", None)
    assert shared.path.with_name("shared.new").read_bytes() == b"notes"
    assert not shared.path.exists()


def test_a_full_disk_keeps_the_old_content(shared: CompareAndSwapFile) -> None:
    version = shared.replace(b"one", None)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            shared.replace(bytes(1000), version)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert shared.read() == (b"one", version)
    assert [path.name for path in shared.path.parent.iterdir()] == ["shared"]


def test_a_directory_that_stays_locked_is_an_error_after_a_bounded_wait(tmp_path: Path) -> None:
    held = try_lock(tmp_path)
    with (
        pytest.raises(BusyError, match="has long been locked by another process"),
        locked(tmp_path, patience=0.05),
    ):
        pytest.fail("the directory is locked twice")
    os.close(held)
    with locked(tmp_path, patience=0.05):
        pass


def test_a_lock_holds_the_directory_that_is_at_the_path_now(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    held, entered = try_lock(place), threading.Event()

    def enter() -> None:
        with locked(place), pytest.raises(BlockingIOError):
            entered.set()
            try_lock(place)

    waiting = threading.Thread(target=enter)
    waiting.start()
    place.rmdir()
    os.close(held)
    waiting.join()
    assert entered.is_set()
