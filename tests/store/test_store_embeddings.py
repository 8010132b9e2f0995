"""An embedding is written by many tasks, in any order, and sealed when it is complete."""

from __future__ import annotations

import json
import re
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

from streamdr.core.blocks import Array
from streamdr.errors import StoreError
from streamdr.store import Staging, create_embedding, existing_chunks, finish, open_embedding, write_rows

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


def test_xarray_shows_named_dimensions_without_a_warning(tmp_path: Path) -> None:
    written(tmp_path / "z")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = xarray.open_zarr(tmp_path / "z")
        assert dataset.embedding.dims == ("sample", "component")
        np.testing.assert_array_equal(dataset.embedding.values, values())


def test_writing_where_nothing_is_being_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no embedding is being written here"):
        write_rows(tmp_path / "gone", 0, values())


def test_a_staging_directory_that_is_created_again_is_not_confused_with_the_old_one(tmp_path: Path) -> None:
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


KILLED = """
    import os, signal, sys
    from pathlib import Path
    from test_store_embeddings import create, fill, values
    from streamdr.store import Staging

    with Staging(Path(sys.argv[1]), kind="embedding", overwrite=False, key="k1") as staging:
        create(staging.path)
        fill(staging.path, values(), [0, 10])
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_run_is_continued(tmp_path: Path) -> None:
    target = tmp_path / "z"
    here = Path(__file__).parent
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


def test_what_is_not_an_embedding_is_refused(tmp_path: Path) -> None:
    zarr.create_group(tmp_path / "group")
    with pytest.raises(StoreError, match="not a streamdr embedding"):
        open_embedding(tmp_path / "group")
    with pytest.raises(StoreError, match="no such file"):
        open_embedding(tmp_path / "nothing")
    with pytest.raises(StoreError, match="cannot be read"):
        finish(tmp_path / "nothing")
