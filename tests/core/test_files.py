"""Files are opened without blocking and read up to a limit, whatever the path is."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from streamdr.core.files import (
    FileTooLargeError,
    NotRegularError,
    open_regular,
    read_piped,
    read_regular,
    require_regular,
)


@pytest.fixture(params=["fifo", "device", "directory", "socket", "link to a device"])
def irregular(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "irregular"
    if request.param == "fifo":
        os.mkfifo(path)
    elif request.param == "device":
        path = Path("/dev/zero")
    elif request.param == "directory":
        path.mkdir()
    elif request.param == "socket":
        monkeypatch.chdir(tmp_path)  # the path of a socket must be short
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("irregular")
    else:
        path.symlink_to("/dev/zero")
    return path


def test_only_regular_files_are_opened(irregular: Path) -> None:
    for read in (open_regular, lambda path: read_regular(path, 10), require_regular):
        with pytest.raises(NotRegularError, match="in the place of a file"):
            read(irregular)


def test_a_cycle_of_links_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        read_regular(tmp_path / "a", 10)


def test_no_more_is_read_than_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for size in (0, 1, 99, 100):
        path.write_bytes(b"x" * size)
        assert read_regular(path, 100) == b"x" * size
    path.write_bytes(b"x" * 101)
    with pytest.raises(FileTooLargeError, match="101 bytes or more where at most 100"):
        read_regular(path, 100)
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(FileTooLargeError):
        read_regular(path, 1 << 20)


def test_the_reported_size_is_not_trusted() -> None:
    """Files of the kernel report a size of zero."""
    assert os.stat("/proc/self/status").st_size == 0
    assert b"VmPeak" in read_regular("/proc/self/status", 1 << 16)
    with pytest.raises(FileTooLargeError):
        read_regular("/proc/self/status", 10)


def test_links_to_files_are_followed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"here")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link", 4) == b"here"
    with open_regular(tmp_path / "link") as file:
        assert file.read() == b"here"


def test_a_pipe_is_read_where_pipes_are_allowed(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(NotRegularError, match="no process writes"):
        read_piped(pipe, 100, 5)
    reader, writer = os.pipe()
    try:
        with pytest.raises(NotRegularError, match=r"no process wrote to this pipe for 0\.1 seconds"):
            read_piped(f"/dev/fd/{reader}", 100, 0.1)
        os.write(writer, b"here")
        os.close(os.dup(writer))

        def write_the_rest() -> None:
            os.write(writer, b" and there")
            os.close(writer)

        thread = threading.Timer(0.1, write_the_rest)
        thread.start()
        assert read_piped(f"/dev/fd/{reader}", 100, 5) == b"here and there"
        thread.join()
    finally:
        os.close(reader)
    reader, writer = os.pipe()
    os.write(writer, b"x" * 101)
    with pytest.raises(FileTooLargeError):
        read_piped(f"/dev/fd/{reader}", 100, 5)
    os.close(reader)
    os.close(writer)
