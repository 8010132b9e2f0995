"""One listing shows which chunks are stored, with their stamps, whatever else is in the directories."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from streamdr.data.zarr.grid import ChunkGrid, KeyEncoding
from streamdr.data.zarr.stored_chunks import chunks_in_directory

GRIDS = [
    ChunkGrid((0, 4), (1, 4)),
    ChunkGrid((5,), (1,)),
    ChunkGrid((120, 4), (10, 4)),
    ChunkGrid((120, 9), (10, 4)),
    ChunkGrid((4, 1, 1), (1, 1, 1)),
    ChunkGrid((6, 1, 7), (2, 1, 3)),
]
ENCODINGS = [KeyEncoding(prefix, separator) for prefix in ("", "c") for separator in ("/", ".")]
NOT_POSITIONS = ("03", "-1", "+1", "1 ", "٣", "x", "1.partial", "c", "9" * 30)


def put(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(size))
    os.utime(path, ns=(0, 10**18 + size))


def listed(root: Path, grid: ChunkGrid, keys: KeyEncoding) -> dict[int, tuple[int, int]]:
    found = chunks_in_directory(str(root), grid, keys)
    assert found.numbers.tolist() == sorted(set(found.numbers.tolist()))
    return {int(number): (int(a), int(b)) for number, (a, b) in zip(*found, strict=True)}


@pytest.mark.parametrize("keys", ENCODINGS, ids=lambda keys: f"{keys.prefix}{keys.separator}")
@pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: str(grid.counts))
def test_stored_chunks_are_found_among_other_files(tmp_path, grid, keys):
    rng = np.random.default_rng(0)
    expected = {}
    for number in range(grid.n_chunks):
        if rng.random() < 0.7:
            put(tmp_path / keys.key(grid.coords(number)), 100 + number)
            expected[number] = (100 + number, 10**18 + 100 + number)
    put(tmp_path / "zarr.json", 1)
    coords = [str(count // 2) for count in grid.counts]
    for axis, name in product(range(len(coords)), NOT_POSITIONS):
        parts = [*coords[:axis], name, *coords[axis + 1 :]]
        path = tmp_path / keys.separator.join([*([keys.prefix] if keys.prefix else []), *parts])
        if not path.exists() and all(not above.is_file() for above in path.parents):
            put(path, 5)
    outside = [str(count + 3) for count in grid.counts]
    put(tmp_path / keys.separator.join([*([keys.prefix] if keys.prefix else []), *outside]), 6)
    absent = [number for number in range(grid.n_chunks) if number not in expected]
    for number in absent[:1]:
        (tmp_path / keys.key(grid.coords(number))).mkdir(parents=True, exist_ok=True)
    assert listed(tmp_path, grid, keys) == expected


@pytest.mark.parametrize("keys", ENCODINGS, ids=lambda keys: f"{keys.prefix}{keys.separator}")
def test_the_number_of_a_key_is_that_of_its_chunk(keys):
    for grid in GRIDS:
        number_of = keys.reader(grid)
        for number in range(grid.n_chunks):
            assert number_of(keys.key(grid.coords(number))) == number
        assert number_of(keys.key(grid.counts)) is None
        assert number_of(keys.key([0] * (len(grid.shape) + 1))) is None


def test_an_array_without_chunks_and_one_that_is_gone(tmp_path):
    grid, keys = GRIDS[2], KeyEncoding("c", "/")
    assert listed(tmp_path, grid, keys) == {}
    with pytest.raises(FileNotFoundError):
        listed(tmp_path / "gone", grid, keys)


@pytest.mark.parametrize("grid", GRIDS[2:4], ids=lambda grid: str(grid.counts))
def test_links_to_chunks_are_followed_and_links_to_nothing_are_errors(tmp_path, grid):
    keys, root = KeyEncoding("c", "/"), tmp_path / "x"
    put(tmp_path / "elsewhere/0", 7)
    put(root / "c/0/0", 8)
    (root / "c/1").symlink_to(tmp_path / "elsewhere")
    (root / "c/2").mkdir()
    (root / "c/2/0").symlink_to(root / "c/0/0")
    wide = grid.counts[1]
    assert {number: size for number, (size, _) in listed(root, grid, keys).items()} == {
        0: 8,
        wide: 7,
        2 * wide: 8,
    }
    (root / "c/3").mkdir()
    (root / "c/3/0").symlink_to("nowhere")
    with pytest.raises(OSError, match="No such file"):
        listed(root, grid, keys)
