"""An output appears completely or not at all, and never replaces foreign data."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import zarr
from narrowing import checked

from streamdr.errors import StoreError
from streamdr.store import Staging, check_output, require_space, sweep
from streamdr.store.locking import try_lock
from streamdr.store.publish import _exchange_by_renames, exchange
from streamdr.store.record import write_record


def write_output(path: Path, word: str) -> None:
    """Write a minimal output, which is identified by a word."""
    write_record(path, "embedding", {"word": word}, complete=True)


def word(path: Path) -> str:
    return str(checked(dict, zarr.open_group(path, mode="r").attrs["streamdr"])["word"])


def publish(target: Path, text: str, *, overwrite: bool = False) -> None:
    with Staging(target, kind="embedding", overwrite=overwrite) as staging:
        write_output(staging.path, text)
        staging.publish()


def contents(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_publishing_makes_the_target_and_its_parents_and_leaves_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "new" / "deep" / "out.zarr"
    publish(target, "first")
    assert word(target) == "first"
    assert contents(target.parent) == ["out.zarr"]


def test_nothing_is_visible_before_publish(tmp_path: Path) -> None:
    target = tmp_path / "out.zarr"
    with Staging(target, kind="embedding", overwrite=False) as staging:
        write_output(staging.path, "first")
        assert not target.exists()
        assert staging.path.parent == tmp_path
        assert staging.path.name.startswith(".")
        staging.publish()


@pytest.mark.parametrize("error", [RuntimeError("boom"), KeyboardInterrupt()])
def test_a_failure_leaves_no_trace(tmp_path: Path, error: BaseException) -> None:
    with (
        pytest.raises(type(error)),
        Staging(tmp_path / "out.zarr", kind="embedding", overwrite=False) as staging,
    ):
        write_output(staging.path, "half")
        raise error
    assert contents(tmp_path) == []


def test_leaving_without_publishing_leaves_no_trace(tmp_path: Path) -> None:
    with Staging(tmp_path / "out.zarr", kind="embedding", overwrite=False) as staging:
        write_output(staging.path, "forgotten")
    assert contents(tmp_path) == []


def test_with_a_key_unfinished_work_is_continued_by_the_next_run(tmp_path: Path) -> None:
    target = tmp_path / "out.zarr"
    with pytest.raises(RuntimeError), Staging(target, kind="embedding", overwrite=False, key="k1") as staging:
        write_output(staging.path, "begun")
        raise RuntimeError
    with Staging(target, kind="embedding", overwrite=False, key="other") as staging:
        assert contents(staging.path) == []
    with Staging(target, kind="embedding", overwrite=False, key="k1") as staging:
        assert word(staging.path) == "begun"
        staging.publish()
    assert word(target) == "begun"
    assert contents(tmp_path) == ["out.zarr"]


def test_two_runs_with_one_key_do_not_share_a_staging_directory(tmp_path: Path) -> None:
    target = tmp_path / "out.zarr"
    with Staging(target, kind="embedding", overwrite=False, key="k1") as first:
        write_output(first.path, "first")
        with pytest.raises(StoreError, match=r"another run is writing"):
            Staging(target, kind="embedding", overwrite=False, key="k1").__enter__()
        first.publish()
    assert word(target) == "first"


def test_publishing_removes_what_killed_runs_left_beside_this_target_only(tmp_path: Path) -> None:
    for name in (".out.killed.partial", ".out.zarr.killed.partial", ".outer.killed.partial"):
        write = tmp_path / name / "embedding" / "c" / "0"
        write.parent.mkdir(parents=True)
        write.write_text("left")
    with Staging(tmp_path / "out", kind="embedding", overwrite=False, key="alive") as alive:
        write_output(alive.path, "alive")
        publish(tmp_path / "out", "done")
        assert contents(tmp_path) == [
            ".out.alive.partial",
            ".out.zarr.killed.partial",
            ".outer.killed.partial",
            "out",
        ]


def test_sweep_removes_what_a_run_that_was_killed_after_publishing_left(tmp_path: Path) -> None:
    publish(tmp_path / "out", "done")
    for name in (".out.a1.partial", ".out.b2.partial.old", ".out.zarr.c3.partial", ".out.lease"):
        (tmp_path / name).mkdir()
    with Staging(tmp_path / "out", kind="embedding", overwrite=True, key="alive"):
        sweep(tmp_path / "out")
        assert contents(tmp_path) == [".out.alive.partial", ".out.lease", ".out.zarr.c3.partial", "out"]


@pytest.mark.parametrize("key", [None, "k1"])
def test_a_fence_that_raises_leaves_the_output_unchanged(tmp_path: Path, key: str | None) -> None:
    target = tmp_path / "out.zarr"
    publish(target, "first")

    def fence() -> None:
        with pytest.raises(BlockingIOError):
            try_lock(tmp_path)  # no other run can publish between this check and the rename
        raise StoreError("taken over")

    with (
        pytest.raises(StoreError, match="taken over"),
        Staging(target, kind="embedding", overwrite=True, key=key, fence=fence) as staging,
    ):
        write_output(staging.path, "second")
        staging.publish()
    assert word(target) == "first"
    assert contents(tmp_path) == ["out.zarr"]


def test_the_holder_of_the_lease_does_not_share_the_staging_of_a_run_that_lost_it(tmp_path: Path) -> None:
    target = tmp_path / "out.zarr"
    with Staging(target, kind="embedding", overwrite=False, key="k1") as lost:
        write_output(lost.path, "lost")
        with Staging(target, kind="embedding", overwrite=False, key="k1", fence=lambda: None) as held:
            assert contents(held.path) == []
            write_output(held.path, "held")
            held.publish()
        with pytest.raises(StoreError, match="was written by another run meanwhile"):
            lost.publish()
    assert word(target) == "held"
    assert contents(tmp_path) == ["out.zarr"]


def test_an_output_at_a_link_is_written_where_the_link_points(tmp_path: Path) -> None:
    real, link = tmp_path / "real.zarr", tmp_path / "link.zarr"
    link.symlink_to(real)
    publish(link, "first")
    publish(link, "second", overwrite=True)
    assert link.is_symlink()
    assert word(real) == "second"


def make_foreign(target: Path, what: str) -> None:
    if what == "file":
        target.write_text("precious")
    elif what == "directory":
        target.mkdir()
        (target / "notes.txt").write_text("precious")
    elif what == "empty directory":
        target.mkdir()
    elif what == "zarr group":
        zarr.create_group(target).create_array("precious", shape=(3,), dtype="f8")
    elif what == "damaged metadata":
        target.mkdir()
        (target / "zarr.json").write_text("{")
    else:
        publish(target, "ours")
        (target / "notes.txt").write_text("precious")


@pytest.mark.parametrize(
    "what", ["file", "directory", "empty directory", "zarr group", "damaged metadata", "output with notes"]
)
@pytest.mark.parametrize("overwrite", [False, True])
def test_foreign_content_is_never_replaced(tmp_path: Path, what: str, overwrite: bool) -> None:
    target = tmp_path / "out.zarr"
    make_foreign(target, what)
    before = sorted((path, path.is_file() and path.read_bytes()) for path in tmp_path.rglob("*"))
    with pytest.raises(StoreError, match="never overwritten"):
        publish(target, "new", overwrite=overwrite)
    with pytest.raises(StoreError, match="never overwritten"):
        check_output(target, kind="embedding", inputs=[], overwrite=overwrite)
    assert sorted((path, path.is_file() and path.read_bytes()) for path in tmp_path.rglob("*")) == before


@pytest.mark.parametrize("overwrite", [False, True])
def test_exactly_one_of_many_publishers_wins(tmp_path: Path, overwrite: bool) -> None:
    target = tmp_path / "out.zarr"
    if overwrite:
        publish(target, "old")
    contestants = 8
    ready = threading.Barrier(contestants)

    def contest(number: int) -> str:
        try:
            with Staging(target, kind="embedding", overwrite=overwrite) as staging:
                write_output(staging.path, str(number))
                ready.wait()
                staging.publish()
        except StoreError as error:
            return str(error)
        return str(number)

    with ThreadPoolExecutor(contestants) as pool:
        said = list(pool.map(contest, range(contestants)))
    late = f"{target}: was written by another run meanwhile, and is left as that run made it"
    assert sorted(said) == sorted([word(target)] + [late] * (contestants - 1))
    assert contents(tmp_path) == ["out.zarr"]


@pytest.mark.parametrize("swap", [exchange, _exchange_by_renames])
def test_directories_are_exchanged(tmp_path: Path, swap: object) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    assert callable(exchange)
    exchange(tmp_path / "one", tmp_path / "other")
    assert contents(tmp_path / "one") == ["other"]
    assert contents(tmp_path / "other") == ["one"]
    assert contents(tmp_path) == ["one", "other"]


def test_a_failed_exchange_by_renames_is_undone(tmp_path: Path) -> None:
    (tmp_path / "other" / "kept").mkdir(parents=True)
    with pytest.raises(FileNotFoundError):
        _exchange_by_renames(tmp_path / "gone", tmp_path / "other")
    assert contents(tmp_path) == ["other"]
    assert contents(tmp_path / "other") == ["kept"]


FULL_DISK = """
    import resource, sys
    from pathlib import Path
    import numpy as np
    from streamdr.errors import StoreError
    from streamdr.store import Staging
    from streamdr.store.arrays import write_array

    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
    try:
        target, key = Path(sys.argv[1]), sys.argv[2] or None
        with Staging(target, kind="embedding", overwrite=False, key=key) as staging:
            write_array(staging.path / "small", np.zeros(1000), ("x",))
            write_array(staging.path / "large", np.zeros(1_000_000), ("x",))
            staging.publish()
    except StoreError as error:
        print(error)
"""


@pytest.mark.parametrize(("key", "left"), [("", []), ("k1", [".out.zarr.k1.partial"])])
def test_a_full_disk_is_reported_and_nothing_is_published(tmp_path: Path, key: str, left: list[str]) -> None:
    target = tmp_path / "out.zarr"
    command = [sys.executable, "-c", textwrap.dedent(FULL_DISK), str(target), key]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"{target}: cannot be written: {os.strerror(errno.EFBIG)}; free some space")
    assert ("run again to continue" in said) == bool(key)
    assert contents(tmp_path) == left


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_or_quota_is_a_store_error(tmp_path: Path, code: int) -> None:
    with (
        pytest.raises(StoreError, match=os.strerror(code)),
        Staging(tmp_path / "out", kind="embedding", overwrite=False),
    ):
        raise OSError(code, os.strerror(code))


def test_other_errors_pass_unchanged(tmp_path: Path) -> None:
    with pytest.raises(ConnectionError), Staging(tmp_path / "out", kind="embedding", overwrite=False):
        raise ConnectionError("lost")


def test_check_output_accepts_a_free_path_and_leaves_no_trace(tmp_path: Path) -> None:
    zarr.create_group(tmp_path / "in.zarr")
    check_output(tmp_path / "a" / "b.zarr", kind="embedding", inputs=[tmp_path / "in.zarr"], overwrite=False)
    assert contents(tmp_path) == ["in.zarr"]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("in.zarr", "lies inside the input"),
        ("in.zarr/X", "lies inside the input"),
        ("in.zarr/X/out", "lies inside the input"),
        ("in.zarr/out.zarr", "lies inside the input"),
        ("other/../in.zarr/out.zarr", "lies inside the input"),
        ("link.zarr/out.zarr", "lies inside the input"),
        (".", "contains the input"),
        ("model.zarr", "overlaps another output"),
        ("model.zarr/z", "overlaps another output"),
        ("plain.txt/out.zarr", "plain.txt is a file"),
        ("plain.txt/a/b/out.zarr", "plain.txt is a file"),
        ("/proc/streamdr/out.zarr", "cannot be written"),
    ],
)
def test_check_output_refuses_overlapping_and_unwritable_paths(
    tmp_path: Path, target: str, message: str
) -> None:
    zarr.create_group(tmp_path / "in.zarr").create_array("X", shape=(3, 2), dtype="f8")
    (tmp_path / "link.zarr").symlink_to(tmp_path / "in.zarr")
    (tmp_path / "plain.txt").write_text("text")
    before = contents(tmp_path)
    with pytest.raises(StoreError, match=message) as refusal:
        check_output(
            tmp_path / target,
            kind="embedding",
            inputs=[tmp_path / "in.zarr" / "X"],
            overwrite=True,
            other_outputs=[tmp_path / "model.zarr"],
        )
    assert str(refusal.value).startswith(f"{tmp_path / target}: ")
    assert contents(tmp_path) == before


@pytest.mark.parametrize("target", ["plain.txt/out.zarr", "/proc/streamdr/out.zarr"])
def test_staging_where_nothing_can_be_written_is_a_store_error(tmp_path: Path, target: str) -> None:
    (tmp_path / "plain.txt").write_text("text")
    with pytest.raises(StoreError, match="cannot be written"):
        Staging(tmp_path / target, kind="embedding", overwrite=False).__enter__()


def test_space_is_checked_on_the_filesystem_of_the_path(tmp_path: Path) -> None:
    require_space(tmp_path / "a" / "b.zarr", 1)
    with pytest.raises(StoreError, match=r"needs 1e\+09 GB, but its filesystem has .* GB free"):
        require_space(tmp_path / "a" / "b.zarr", 10**18)
