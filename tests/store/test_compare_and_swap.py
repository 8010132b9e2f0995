"""A slot is replaced only by those who know what is in it, and by one of them at a time."""

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
def slot(tmp_path: Path) -> CompareAndSwapFile:
    return CompareAndSwapFile(tmp_path / "made" / "for it" / "slot")


def test_what_was_put_is_read_until_it_is_removed(slot: CompareAndSwapFile, tmp_path: Path) -> None:
    assert slot.read() is None
    first = slot.replace(b"one", None)
    assert slot.read() == (b"one", first)
    second = slot.replace(b"two", first)
    assert slot.read() == (b"two", second)
    assert [path.name for path in slot.path.parent.iterdir()] == ["slot"]
    slot.remove(second)
    assert slot.read() is None
    assert list(tmp_path.iterdir()) == []


def test_whoever_expects_something_else_changes_nothing(slot: CompareAndSwapFile) -> None:
    with pytest.raises(Conflict):
        slot.replace(b"new", "what never was")
    old = slot.replace(b"one", None)
    now = slot.replace(b"two", old)
    for expected in (None, old):
        with pytest.raises(Conflict):
            slot.replace(b"three", expected)
    with pytest.raises(Conflict):
        slot.remove(old)
    assert slot.read() == (b"two", now)


def test_of_many_that_expect_the_same_one_succeeds(slot: CompareAndSwapFile) -> None:
    contestants = 8
    ready = threading.Barrier(contestants)

    def contest(number: int) -> bool:
        ready.wait()
        try:
            CompareAndSwapFile(slot.path).replace(str(number).encode(), None)
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(contestants) as pool:
        won = list(pool.map(contest, range(contestants)))
    assert sum(won) == 1
    assert present(slot.read())[0] == str(won.index(True)).encode()


def test_what_a_killed_writer_left_is_used_up(slot: CompareAndSwapFile) -> None:
    slot.path.parent.mkdir(parents=True)
    version = None
    for left in (b"", b"who", b"whole of an earlier one", bytes(10)):
        slot.path.with_name("slot.new").write_bytes(left)
        version = slot.replace(b"whole", version)
        assert [path.name for path in slot.path.parent.iterdir()] == ["slot"]


def test_what_somebody_put_where_a_writer_writes_is_left(slot: CompareAndSwapFile) -> None:
    slot.path.parent.mkdir(parents=True)
    slot.path.with_name("slot.new").write_bytes(b"notes")
    with pytest.raises(StoreError, match=r"slot\.new: streamdr did not write it"):
        slot.replace(b"whole", None)
    assert slot.path.with_name("slot.new").read_bytes() == b"notes"
    assert not slot.path.exists()


def test_a_full_disk_keeps_the_old_content(slot: CompareAndSwapFile) -> None:
    version = slot.replace(b"one", None)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            slot.replace(bytes(1000), version)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert slot.read() == (b"one", version)
    assert [path.name for path in slot.path.parent.iterdir()] == ["slot"]


def test_a_directory_that_stays_locked_is_an_error_and_no_endless_wait(tmp_path: Path) -> None:
    held = try_lock(tmp_path)
    with (
        pytest.raises(BusyError, match="has long been locked by another process"),
        locked(tmp_path, patience=0.05),
    ):
        pytest.fail("the directory is locked twice")
    os.close(held)
    with locked(tmp_path, patience=0.05):
        pass


def test_a_lock_is_on_the_directory_that_is_there(tmp_path: Path) -> None:
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
