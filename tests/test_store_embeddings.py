"""An embedding is written by many tasks, in any order, and sealed when all of it is there."""

from __future__ import annotations

import json
import re
import secrets
import shutil
import subprocess
import sys
import textwrap
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray
import zarr

from streamdr.blocks import Array
from streamdr.errors import StoreError
from streamdr.store import (
    Staging,
    create_embedding,
    existing_chunks,
    finish,
    open_embedding,
    read_group,
    write_rows,
)

ROWS, COLS, CHUNK = 23, 3, 5
STARTS = range(0, ROWS, CHUNK)


def values(dtype: str = "f4") -> Array:
    return np.random.default_rng(0).normal(size=(ROWS, COLS)).astype(dtype)


def create(path: Path, **changes: Any) -> None:
    settings: dict[str, Any] = {
        "n_rows": ROWS,
        "n_outputs": COLS,
        "dtype": "f4",
        "chunk_rows": CHUNK,
        "attributes": {"method": "toy", "parameters": {"tol": float("inf")}, "model": "abc"},
    }
    create_embedding(path, **(settings | changes))


def fill(path: Path, rows: Array, starts: Any = STARTS) -> None:
    for start in starts:
        write_rows(path, start, rows[start : start + CHUNK])


def written(target: Path, **changes: Any) -> Path:
    with Staging(target, kind="embedding", overwrite=False) as staging:
        create(staging.path, **changes)
        fill(staging.path, values())
        finish(staging.path)
        staging.publish()
    return target


def chunk_file(path: Path, number: int) -> Path:
    return path / "embedding" / "c" / str(number) / "0"


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("chunk_rows", [1, 5, 23, 1000])
def test_what_is_written_is_what_is_read(tmp_path: Path, dtype: str, chunk_rows: int) -> None:
    with Staging(tmp_path / "z", kind="embedding", overwrite=False) as staging:
        create(staging.path, dtype=dtype, chunk_rows=chunk_rows)
        for start in reversed(range(0, ROWS, chunk_rows)):
            write_rows(staging.path, start, values(dtype)[start : start + chunk_rows])
        finish(staging.path)
        staging.publish()
    array = open_embedding(tmp_path / "z")
    assert array.dtype == np.dtype(dtype)
    assert array[:].tobytes() == values(dtype).tobytes()
    with pytest.raises(TypeError):
        array[0] = 0  # it is to be read


def test_the_record_says_what_it_is(tmp_path: Path) -> None:
    record = read_group(written(tmp_path / "z", output_names=["a", "b", "c"]), "embedding").record
    assert record["method"] == "toy"
    assert record["parameters"] == {"tol": float("inf")}
    assert record["n_rows"] == ROWS
    assert record["output_names"] == ["a", "b", "c"]
    assert record["complete"] is True


def test_xarray_shows_named_dimensions_without_a_warning(tmp_path: Path) -> None:
    written(tmp_path / "z")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = xarray.open_zarr(tmp_path / "z")
        assert dataset.embedding.dims == ("sample", "component")
        np.testing.assert_array_equal(dataset.embedding.values, values())


def test_rows_of_zeros_are_written_too(tmp_path: Path) -> None:
    create(tmp_path)
    fill(tmp_path, np.zeros((ROWS, COLS), "f4"))
    finish(tmp_path)
    assert not open_embedding(tmp_path)[:].any()


def test_several_chunks_may_be_written_at_once_and_twice(tmp_path: Path) -> None:
    create(tmp_path)
    write_rows(tmp_path, 0, np.ones((2 * CHUNK, COLS)))
    write_rows(tmp_path, 0, values()[: 3 * CHUNK])
    write_rows(tmp_path, 3 * CHUNK, values()[3 * CHUNK :])
    finish(tmp_path)
    np.testing.assert_array_equal(open_embedding(tmp_path)[:], values())


@pytest.mark.parametrize(
    ("start", "count", "message"),
    [
        (1, CHUNK, "not whole chunks of 5 of its 23 rows"),
        (0, CHUNK - 1, "not whole chunks"),
        (20, CHUNK, "not whole chunks"),
        (25, CHUNK, "not whole chunks"),
        (20, 2, "not whole chunks"),
    ],
)
def test_part_of_a_chunk_is_refused(tmp_path: Path, start: int, count: int, message: str) -> None:
    create(tmp_path)
    with pytest.raises(StoreError, match=message):
        write_rows(tmp_path, start, np.zeros((count, COLS)))
    assert existing_chunks(tmp_path) == set()


@pytest.mark.parametrize("shape", [(CHUNK, COLS + 1), (CHUNK, 1), (CHUNK,)])
def test_rows_of_another_width_are_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    create(tmp_path)
    with pytest.raises(StoreError, match=r"where \(3,\) are expected"):
        write_rows(tmp_path, 0, np.zeros(shape))


def test_writing_where_nothing_is_being_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no embedding is being written here"):
        write_rows(tmp_path / "gone", 0, values())


def test_a_staging_made_anew_is_not_confused_with_the_old_one(tmp_path: Path) -> None:
    create(tmp_path)
    fill(tmp_path, values())
    create(tmp_path, n_outputs=2, dtype="f8")
    fill(tmp_path, values("f8")[:, :2])
    finish(tmp_path)
    assert open_embedding(tmp_path)[:].tobytes() == values("f8")[:, :2].tobytes()


@pytest.mark.parametrize("executor", ["threads", "processes"])
def test_chunks_are_written_concurrently(tmp_path: Path, executor: str) -> None:
    threads = executor == "threads"
    pool = ThreadPoolExecutor(4) if threads else ProcessPoolExecutor(2, get_context("spawn"))
    create(tmp_path)
    with pool:
        jobs = [
            pool.submit(write_rows, tmp_path, i, values()[i : i + CHUNK]) for i in STARTS for _ in range(3)
        ]
        for job in jobs:
            job.result()
    finish(tmp_path)
    np.testing.assert_array_equal(open_embedding(tmp_path)[:], values())


def damage(file: Path, how: str) -> None:
    raw = bytearray(file.read_bytes())
    if how == "missing":
        file.unlink()
    elif how == "truncated":
        file.write_bytes(raw[:-1])
    elif how == "empty":
        file.write_bytes(b"")
    else:
        raw[7] ^= 4
        file.write_bytes(raw)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("missing", "is missing"),
        ("truncated", "has 63 bytes where 64 were written"),
        ("empty", "has 0 bytes where 64 were written"),
        ("flipped", "fails its checksum"),
    ],
)
def test_a_bad_chunk_is_written_again_or_stops_the_finish(tmp_path: Path, how: str, message: str) -> None:
    create(tmp_path)
    assert existing_chunks(tmp_path) == set()
    fill(tmp_path, values())
    assert existing_chunks(tmp_path) == {0, 1, 2, 3, 4}
    damage(chunk_file(tmp_path, 4), how)
    assert existing_chunks(tmp_path) == {0, 1, 2, 3}
    with pytest.raises(StoreError, match=re.escape(f"{chunk_file(tmp_path, 4)}: {message} (rows 20-22)")):
        finish(tmp_path)
    with pytest.raises(StoreError, match="never finished"):
        open_embedding(tmp_path)
    fill(tmp_path, values(), [20])
    finish(tmp_path)
    np.testing.assert_array_equal(open_embedding(tmp_path)[:], values())


def test_temporary_files_of_killed_writes_are_not_published(tmp_path: Path) -> None:
    create(tmp_path)
    fill(tmp_path, values())
    left = chunk_file(tmp_path, 2).with_name(f"0.{secrets.token_hex(16)}.partial")
    left.write_bytes(b"half")
    assert existing_chunks(tmp_path) == {0, 1, 2, 3, 4}
    finish(tmp_path)
    assert not left.exists()


KILLED = """
    import os, signal, sys
    from pathlib import Path
    from tests.test_store_embeddings import create, fill, values
    from streamdr.store import Staging

    with Staging(Path(sys.argv[1]), kind="embedding", overwrite=False, key="k1") as staging:
        create(staging.path)
        fill(staging.path, values(), [0, 10])
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_run_is_continued(tmp_path: Path) -> None:
    target = tmp_path / "z"
    here = Path(__file__).parents[1]
    code = textwrap.dedent(KILLED)
    assert subprocess.run([sys.executable, "-c", code, str(target)], cwd=here).returncode == -9
    with Staging(target, kind="embedding", overwrite=False, key="k1") as staging:
        create(staging.path)
        assert existing_chunks(staging.path) == {0, 2}
        fill(staging.path, values(), [5, 15, 20])
        finish(staging.path)
        staging.publish()
    np.testing.assert_array_equal(open_embedding(target)[:], values())
    assert [path.name for path in tmp_path.iterdir()] == ["z"]


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({}, {0, 1, 2, 3, 4}),
        ({"attributes": {"method": "toy", "parameters": {}, "model": "abc"}}, set()),
        ({"output_names": ["a", "b", "c"]}, set()),
        ({"dtype": "f8"}, set()),
        ({"chunk_rows": 10}, set()),
        ({"n_rows": 20}, set()),
    ],
)
def test_rows_are_kept_only_for_an_equal_embedding(
    tmp_path: Path, changes: dict[str, Any], kept: set[int]
) -> None:
    create(tmp_path)
    fill(tmp_path, values())
    create(tmp_path, **changes)
    assert existing_chunks(tmp_path) == kept


@pytest.mark.parametrize("lost", ["zarr.json", "embedding/zarr.json"])
@pytest.mark.parametrize("how", ["missing", "truncated"])
def test_a_staging_with_damaged_metadata_is_begun_again(tmp_path: Path, lost: str, how: str) -> None:
    create(tmp_path)
    fill(tmp_path, values())
    damage(tmp_path / lost, how)
    create(tmp_path)
    assert existing_chunks(tmp_path) == set()


@pytest.mark.parametrize("file", ["zarr.json", "embedding/zarr.json"])
def test_a_flipped_bit_in_the_metadata_of_a_staging_is_not_published(tmp_path: Path, file: str) -> None:
    create(tmp_path / "staged")
    metadata = json.loads((tmp_path / "staged/embedding/zarr.json").read_bytes())
    whole = (tmp_path / "staged" / file).read_bytes()
    for place in range(0, len(whole), 23):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << place % 8
        again = tmp_path / f"flipped at {place}"
        shutil.copytree(tmp_path / "staged", again)
        (again / file).write_bytes(flipped)
        create(again)
        fill(again, values())
        finish(again)
        assert json.loads((again / "embedding/zarr.json").read_bytes()) == metadata
        np.testing.assert_array_equal(open_embedding(again)[:], values())


def test_finishing_twice_is_harmless(tmp_path: Path) -> None:
    create(tmp_path)
    fill(tmp_path, values())
    finish(tmp_path)
    create(tmp_path)
    assert existing_chunks(tmp_path) == {0, 1, 2, 3, 4}
    finish(tmp_path)
    np.testing.assert_array_equal(open_embedding(tmp_path)[:], values())


@pytest.mark.parametrize(
    ("how", "message"), [("missing", "is missing"), ("truncated", "has 63 bytes, not 64")]
)
def test_opening_notices_a_chunk_that_went_missing(tmp_path: Path, how: str, message: str) -> None:
    path = written(tmp_path / "z")
    damage(chunk_file(path, 1), how)
    with pytest.raises(StoreError, match=re.escape(f"{chunk_file(path, 1)}: {message} (rows 5-9)")):
        open_embedding(path)


def test_a_flipped_bit_in_the_data_is_an_error_when_it_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "z")
    damage(chunk_file(path, 1), "flipped")
    array = open_embedding(path)
    np.testing.assert_array_equal(array[:5], values()[:5])
    with pytest.raises(StoreError, match=r"z: rows 5-9: .*checksum do not match.*transform again"):
        array[5:10]


@pytest.mark.parametrize("file", ["zarr.json", "embedding/zarr.json"])
def test_edited_metadata_is_noticed(tmp_path: Path, file: str) -> None:
    path = written(tmp_path / "z")
    document = json.loads((path / file).read_text())
    document["attributes"]["edited"] = True
    (path / file).write_text(json.dumps(document))
    with pytest.raises(StoreError, match=re.escape(f"{path / file}: ")):
        open_embedding(path)


def test_what_is_not_an_embedding_is_refused(tmp_path: Path) -> None:
    zarr.create_group(tmp_path / "group")
    with pytest.raises(StoreError, match="not a streamdr embedding"):
        open_embedding(tmp_path / "group")
    with pytest.raises(StoreError, match="no such file"):
        open_embedding(tmp_path / "nothing")
    with pytest.raises(StoreError, match="cannot be read"):
        finish(tmp_path / "nothing")
