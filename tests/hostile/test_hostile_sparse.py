"""Every file of a sparse matrix, damaged in every way: values, or one clear error, and no hang."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import sparse_stores as stores
from damage import DAMAGES, copy_world, make_precious, watchdog

from streamdr.core.blocks import Span
from streamdr.data import open_source
from streamdr.data.row_conditions import select_rows
from streamdr.errors import StreamdrError

KINDS = ("v2.zarr", "v3.zarr")
SELECTED = 40


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    """Stores of anndata, and files of others beside them."""
    root = tmp_path_factory.mktemp("sparse")
    for kind in (*KINDS, "h5ad"):
        world = root / kind / "world"
        world.mkdir(parents=True)
        data = stores.annotated(stores.counts())
        del data.layers["dense"]
        data.raw = None
        stores.written(data, world, kind).rename(world / "x.h5ad" if kind == "h5ad" else world / "x.zarr")
        make_precious(world)
    return root


def read(world: Path) -> None:
    """Read all that a run would read: values, labels, names and columns."""
    path = world / ("x.h5ad" if (world / "x.h5ad").exists() else "x.zarr")
    for array in ("X", "layers/by columns"):
        source = open_source(path, array=array, label_column="cell_type")
        source.validate()
        source.fingerprint()
        source.block(Span(0, source.spec.n_rows))
        for piece in source.sparse_pieces(Span(0, source.spec.n_rows)):
            source.read_sparse(piece)
        if source.sample_columns is not None:
            select_rows(source, {"cell_type": "T", "n_counts": "> 0"})


def attempt(world: Path, scratch: Path, name: str, damage: str, number: int = 0) -> str:
    """Return the error of reading a damaged store, if there is one. Other exceptions are not caught."""
    here = copy_world(world, scratch)
    DAMAGES[damage](here / name, random.Random(f"{name} {damage} {number}"), here / "precious")
    try:
        with watchdog():
            read(here)
    except StreamdrError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_of_a_store_is_one_clear_error(worlds, kind, tmp_path):
    world = worlds / kind / "world"
    files = [path.relative_to(world).as_posix() for path in world.rglob("*") if path.is_file()]
    cases = [(name, damage) for name in sorted(files) if "precious" not in name for damage in DAMAGES]
    for number, (name, damage) in enumerate(random.Random(0).sample(cases, SELECTED)):
        error = attempt(world, tmp_path / str(number), name, damage)
        assert "\n" not in error
        assert len(error) < 1200


@pytest.mark.parametrize("damage", ["flipped", "cut", "noise", "emptied"])
def test_a_damaged_h5ad_is_one_clear_error(worlds, damage, tmp_path):
    world = worlds / "h5ad" / "world"
    for number in range(6):
        assert "\n" not in attempt(world, tmp_path / str(number), "x.h5ad", damage, number)
