"""Reading ahead: which files the system is asked for, and that values and errors are those without it."""

from __future__ import annotations

import ctypes
import mmap
import os
import pickle
import time

import numpy as np
import pytest
import zarr

from streamdr.core.blocks import Span
from streamdr.data import open_source

N_ROWS, N_COLS, HEIGHT = 1000, 6, 100
COLUMNS = Span(0, N_COLS)


@pytest.fixture
def store(tmp_path):
    """Ten chunks of rows, in files that are not in the page cache."""
    path = tmp_path / "x.zarr"
    array = zarr.create_array(path, shape=(N_ROWS, N_COLS), chunks=(HEIGHT, N_COLS), dtype="f8")
    array[...] = np.arange(N_ROWS * N_COLS).reshape(N_ROWS, N_COLS)
    return path


@pytest.fixture
def asked(monkeypatch, store):
    """The chunks that the system was asked to read."""
    found: list[int] = []

    def note(descriptor: int, offset: int, length: int, advice: int) -> None:
        assert (offset, length, advice) == (0, 0, os.POSIX_FADV_WILLNEED)
        found.append(int(os.readlink(f"/proc/self/fd/{descriptor}").split("/")[-2]))

    def not_in_memory(*arguments: object) -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "posix_fadvise", note)
    monkeypatch.setattr(os, "preadv", not_in_memory)
    return found


def read(source, first, last):
    """Read chunks `first` to `last`, the last one excluded."""
    return source.read(Span(first * HEIGHT, last * HEIGHT), COLUMNS)


def test_what_follows_two_regions_in_a_row_is_read_ahead(store, asked):
    source = open_source(store)
    read(source, 0, 2)
    assert asked == []
    read(source, 2, 4)
    assert asked == [4, 5]


def test_two_workers_that_take_turns_are_followed_both(store, asked):
    source = open_source(store)
    for first in (0, 4, 1, 5, 2):
        read(source, first, first + 1)
    assert asked == [2, 6, 3]


def test_a_file_is_asked_for_once_and_not_if_it_was_read(store, asked):
    source = open_source(store)
    for first in (0, 1, 1, 4, 3, 2):
        read(source, first, first + 1)
    assert asked == [2]


def test_scattered_regions_are_not_followed(store, asked):
    source = open_source(store)
    for first in (8, 3, 6, 1, 5):
        read(source, first, first + 1)
    assert asked == []


def test_nothing_is_asked_for_beyond_the_end(store, asked):
    source = open_source(store)
    read(source, 6, 8)
    read(source, 8, 10)
    assert asked == []


def test_whole_columns_have_nothing_after_them(store, asked):
    source = open_source(store)
    for _ in range(2):
        source.read(Span(0, N_ROWS), Span(0, 2))
    assert asked == []


def test_files_in_memory_are_left_alone(store, asked, monkeypatch):
    monkeypatch.setattr(os, "preadv", lambda *arguments: 1)
    source = open_source(store)
    read(source, 0, 1)
    read(source, 1, 2)
    assert asked == []


def test_a_file_system_that_cannot_say_what_is_in_memory_is_asked_for_nothing(store, asked, monkeypatch):
    def unsupported(*arguments: object) -> int:
        raise OSError(95, "not supported")

    monkeypatch.setattr(os, "preadv", unsupported)
    source = open_source(store)
    read(source, 0, 1)
    assert (read(source, 1, 2) == np.arange(600, 1200).reshape(100, 6)).all()
    assert asked == []


def test_a_missing_file_is_an_error_only_when_it_is_read(store, asked):
    (store / "c/2/0").unlink()
    source = open_source(store, allow_missing_chunks=True)
    read(source, 0, 1)
    read(source, 1, 2)
    assert (read(source, 2, 3) == 0.0).all()


def test_the_next_file_comes_into_memory_while_nobody_reads_it(store):
    files = [store / f"c/{chunk}/0" for chunk in range(10)]
    for path in files:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    source = open_source(store)
    expected = np.arange(N_ROWS * N_COLS).reshape(N_ROWS, N_COLS)
    assert (read(source, 0, 1) == expected[:100]).all()
    assert (read(source, 1, 2) == expected[100:200]).all()
    deadline = time.monotonic() + 30
    while not is_in_memory(files[2]):
        assert time.monotonic() < deadline
    assert (read(source, 2, 3) == expected[200:300]).all()


def is_in_memory(path) -> bool:
    """Whether the first page of a file is in the page cache."""
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_WRITE, flags=mmap.MAP_PRIVATE) as mapped,
    ):
        found = ctypes.create_string_buffer(-(-len(mapped) // mmap.PAGESIZE))
        anchor = ctypes.c_char.from_buffer(mapped)
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mincore(ctypes.c_void_p(ctypes.addressof(anchor)), len(mapped), found) == 0
        del anchor
    return bool(found.raw[0] & 1)


def test_a_worker_begins_with_no_memory_of_regions(store, asked):
    source = open_source(store)
    read(source, 0, 1)
    there = pickle.loads(pickle.dumps(source))
    read(there, 1, 2)
    assert asked == []
    read(there, 2, 3)
    assert asked == [3]
