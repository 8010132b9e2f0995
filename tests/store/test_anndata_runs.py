"""Runs that write their scores into AnnData stores, read back by anndata and scanpy."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import scanpy
import scipy.sparse as sp
import zarr
from command_line import write_config
from killing import tree
from narrowing import checked, values_of

import streamdr
from streamdr.config import load
from streamdr.core.progress import Silent
from streamdr.data import Source, open_source
from streamdr.data.selected_rows import RowMask, SelectedRows
from streamdr.errors import StreamdrError
from streamdr.store import open_backend
from streamdr.store.anndata import zarr_store
from streamdr.store.anndata.hidden import Hidden
from streamdr.workflow.pipeline import RunContext, plan, run_all
from streamdr.workflow.verification import verify

N, D, K = 60, 12, 3
OVERWRITE = "output.overwrite=true"

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Paths are relative, and names are Python strings, which anndata writes."""
    monkeypatch.chdir(tmp_path)
    with pd.option_context("future.infer_string", False):
        yield


def counts(n: int = N) -> sp.csr_matrix:
    rng = np.random.default_rng(5)
    return sp.csr_matrix(rng.poisson(np.linspace(0.2, 2, D), (n, D)).astype(np.float32))


def cells(n: int = N) -> anndata.AnnData:
    index = pd.Index([f"cell {i}" for i in range(n)], dtype=object)
    obs = pd.DataFrame({"batch": pd.Categorical(list("abc") * (n // 3))}, index=index)
    var = pd.DataFrame(
        {"length": np.arange(D)}, index=pd.Index([f"gene {i}" for i in range(D)], dtype=object)
    )
    return anndata.AnnData(counts(n), obs, var)


def write(place: Path, zarr_format: int = 2, n: int = N, made: anndata.AnnData | None = None) -> Path:
    with anndata.settings.override(zarr_write_format=zarr_format):
        (made or cells(n)).write_zarr(place / "cells.zarr")
    return place / "cells.zarr"


def configured(place: Path, target: str = "cells.zarr", **method: Any) -> Path:
    return write_config(
        place,
        input={"path": "cells.zarr"},
        method={"name": "pca", "n_components": K} | method,
        output={"model": "model", "embedding": "embedding", "anndata": target},
    )


def scores(place: Path) -> np.ndarray:
    return np.asarray(open_backend(place / "embedding").open_embedding())


def context(config: Path, *overrides: str) -> RunContext:
    return RunContext(load(config, overrides), Silent(), threading.Event())


def run(config: Path, *overrides: str) -> dict[str, Any]:
    return run_all(context(config, *overrides)).to_json()


def refusal(config: Path, *overrides: str) -> str:
    with pytest.raises(StreamdrError) as caught:
        run(config, *overrides)
    return str(caught.value)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_scanpy_goes_on_from_the_input_store(tmp_path, zarr_format):
    before = cells()
    write(tmp_path, zarr_format)
    config = configured(tmp_path)
    run(config)
    assert zarr.open_group(tmp_path / "cells.zarr").metadata.zarr_format == zarr_format
    found = anndata.read_zarr(tmp_path / "cells.zarr")
    np.testing.assert_array_equal(found.obsm["X_pca"], scores(tmp_path))
    model = streamdr.load_model(tmp_path / "model")
    np.testing.assert_array_equal(found.varm["PCs"], model.components_.T)
    np.testing.assert_array_equal(found.uns["pca"]["variance"], model.explained_variance_)
    np.testing.assert_array_equal(found.uns["pca"]["variance_ratio"], model.explained_variance_ratio_)
    assert found.uns["pca"]["params"] == {"zero_center": True, "use_highly_variable": False}
    scanpy.pp.pca(before, n_comps=K, svd_solver="covariance_eigh", dtype="float64")
    np.testing.assert_allclose(np.abs(found.obsm["X_pca"]), np.abs(before.obsm["X_pca"]), atol=1e-4)
    np.testing.assert_allclose(found.uns["pca"]["variance"], before.uns["pca"]["variance"], rtol=1e-5)
    scanpy.pp.neighbors(found, n_neighbors=5)
    assert found.obsp["distances"].shape == (N, N)
    assert list(found.obs["batch"]) == list(before.obs["batch"])
    assert (found.X != before.X).nnz == 0
    consolidated = zarr.open_consolidated(tmp_path / "cells.zarr")
    np.testing.assert_array_equal(
        values_of(checked(zarr.Array, consolidated["obsm/X_pca"])), scores(tmp_path)
    )
    assert "uns/pca/variance" in consolidated
    assert "varm/PCs" in consolidated


@pytest.mark.parametrize("target", ["cells.zarr", "new.zarr", "new.h5ad"])
def test_a_second_run_is_fresh_and_is_verified(tmp_path, target):
    write(tmp_path)
    config = configured(tmp_path, target)
    run(config)
    before = tree(tmp_path)
    again = run(config)["transform"]["outputs"]["anndata"]
    assert again["reused"]
    assert again["bytes_read"] == 0
    assert tree(tmp_path) == before
    assert not [name for name in before if Path(name).name.startswith(".cells") or ".new" in name]
    assert {stage.state for stage in plan(context(config)).stages} == {"fresh"}
    checks = verify(context(config)).checks
    assert "sha256" in checks["anndata"]
    assert "varm/PCs" in checks["anndata"]


@pytest.mark.parametrize("target", ["new.zarr", "new.h5ad"])
def test_a_new_store_has_the_names_and_no_matrix(tmp_path, target):
    write(tmp_path)
    run(configured(tmp_path, target))
    path = tmp_path / target
    found = anndata.read_h5ad(path) if path.suffix == ".h5ad" else anndata.read_zarr(path)
    assert found.X is None
    assert found.shape == (N, D)
    assert list(found.obs_names) == list(cells().obs_names)
    assert list(found.var_names) == list(cells().var_names)
    np.testing.assert_array_equal(found.obsm["X_pca"], scores(tmp_path))
    assert found.varm["PCs"].shape == (D, K)
    scanpy.pp.neighbors(found, n_neighbors=5, use_rep="X_pca")


def test_nameless_rows_are_numbered(tmp_path):
    zarr.save_array(tmp_path / "cells.zarr", counts().toarray())
    run(configured(tmp_path, "new.zarr"))
    found = anndata.read_zarr(tmp_path / "new.zarr")
    assert list(found.obs_names[:2]) == ["0", "1"]
    assert list(found.var_names) == list(map(str, range(D)))


def test_entries_of_others_are_replaced_on_request_only(tmp_path):
    made = cells()
    scanpy.pp.pca(made, n_comps=4)
    write(tmp_path, made=made)
    before = tree(tmp_path)
    config = configured(tmp_path)
    said = refusal(config)
    assert "uns/pca exists, and streamdr did not write it; set output.overwrite: true" in said
    assert tree(tmp_path) == before | {"config.yaml"}
    run(config, OVERWRITE)
    found = anndata.read_zarr(tmp_path / "cells.zarr")
    np.testing.assert_array_equal(found.obsm["X_pca"], scores(tmp_path))
    assert found.uns["pca"]["variance"].shape == (K,)
    assert not [name for name in tree(tmp_path) if name.startswith(".cells")]


@pytest.mark.parametrize("target", ["cells.zarr", "new.zarr", "new.h5ad"])
def test_another_recipe_needs_overwrite_and_then_replaces_everything(tmp_path, target):
    write(tmp_path, 3)
    run(configured(tmp_path, target))
    other = configured(tmp_path, target, n_components=2)
    assert "exists" in refusal(other)
    run(other, OVERWRITE)
    found = anndata.read_h5ad(target) if target.endswith("h5ad") else anndata.read_zarr(target)
    assert found.obsm["X_pca"].shape == (N, 2)
    assert found.varm["PCs"].shape == (D, 2)
    assert len(values_of(zarr.open_array("cells.zarr/X/data"))) == counts().nnz


def test_appended_rows_refresh_the_scores(tmp_path):
    values = zarr.create_array(tmp_path / "cells.zarr", shape=(N, D), chunks=(10, D), dtype="f4")
    values[:] = counts().toarray()
    config = configured(tmp_path, "new.zarr")
    run(config)
    values.append(counts(N).toarray()[::-1])
    assert (
        "rows were appended"
        in run(config, "output.refresh_tolerance=0")["transform"]["outputs"]["anndata"]["because"]
    )
    found = anndata.read_zarr("new.zarr")
    assert found.n_obs == 2 * N
    np.testing.assert_array_equal(found.obsm["X_pca"], scores(tmp_path))
    assert len(set(found.obs_names)) == 2 * N


def test_scores_are_added_to_another_store_of_the_same_cells(tmp_path):
    write(tmp_path)
    made = cells()
    made.layers["more"] = made.X
    made.write_h5ad("other.h5ad")
    config = configured(tmp_path, "other.h5ad")
    run(config)
    found = anndata.read_h5ad("other.h5ad")
    np.testing.assert_array_equal(found.obsm["X_pca"], scores(tmp_path))
    assert (found.layers["more"] != made.X).nnz == 0
    assert found.varm["PCs"].shape == (D, K)
    run(config, OVERWRITE, "method.n_components=2")
    assert anndata.read_h5ad("other.h5ad").obsm["X_pca"].shape == (N, 2)


NAMES = {
    "numbers": pd.Index(7 * np.arange(N)),
    "categories": pd.CategoricalIndex(pd.Index([f"cell {i}" for i in range(N)], dtype=object)),
    "empty": pd.Index([""] * N, dtype=object),
}


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("target", ["new.zarr", "new.h5ad", "other.zarr", "other.h5ad"])
def test_names_of_any_encoding_come_along(tmp_path, kind, target):
    made = cells()
    made.obs.index = NAMES[kind]
    if kind != "empty":
        made.var.index = NAMES[kind][:D]
    made.write_h5ad("cells.h5ad")
    made.write_h5ad("other.h5ad")
    with zarr.config.set({"array.write_empty_chunks": True}):
        made.write_zarr("other.zarr")
    output = {"model": "model", "embedding": "embedding", "anndata": target}
    run(write_config(tmp_path, input={"path": "cells.h5ad"}, method={"name": "pca"}, output=output))
    found = anndata.read_h5ad(target) if target.endswith("h5ad") else anndata.read_zarr(target)
    assert list(found.obs_names) == list(map(str, NAMES[kind]))
    assert list(found.var_names) == list(map(str, made.var_names))
    np.testing.assert_array_equal(found.obsm["X_pca"], scores(tmp_path))
    assert "PCs" in found.varm


def test_a_store_of_other_cells_is_refused(tmp_path):
    write(tmp_path)
    cells(30).write_h5ad("other.h5ad")
    content = Path("other.h5ad").read_bytes()
    said = refusal(configured(tmp_path, "other.h5ad"))
    assert "other.h5ad: has 30 observations where the input has 60 rows" in said
    assert Path("other.h5ad").read_bytes() == content
    assert not Path("model").exists()  # it is refused before the fit


@pytest.mark.parametrize("target", ["other.h5ad", "other.zarr"])
def test_cells_in_another_order_and_other_genes_are_noticed(tmp_path, target):
    write(tmp_path)
    save = anndata.AnnData.write_h5ad if target.endswith("h5ad") else anndata.AnnData.write_zarr
    save(cells()[::-1].copy(), target)
    said = refusal(configured(tmp_path, target))
    assert f"{target}: observation 0 is 'cell {N - 1}', and row 0 of the input is 'cell 0'" in said
    assert not Path("model").exists()
    save(cells()[:, ::-1].copy(), target)
    run(configured(tmp_path, target))
    found = anndata.read_h5ad(target) if target.endswith("h5ad") else anndata.read_zarr(target)
    np.testing.assert_array_equal(found.obsm["X_pca"], scores(tmp_path))
    assert "pca" in found.uns
    assert not found.varm


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("cells.h5ad", "is the input. An .h5ad file is replaced as a whole"),
        ("plain.zarr", "is a zarr group, but not an AnnData store"),
        ("text.h5ad", "text.h5ad: is not an HDF5 file"),
        ("pipe.h5ad", "pipe.h5ad: is not an HDF5 file"),
        ("text.h5ad/below.zarr", "text.h5ad/below.zarr: cannot be written, since"),
        ("s3://bucket/cells.zarr", "write output.embedding to the object store"),
        ("cells.h5ad/below", "lies inside the input"),
    ],
)
def test_impossible_targets_are_refused_before_anything_is_read(tmp_path, target, message):
    cells().write_h5ad("cells.h5ad")
    zarr.create_group("plain.zarr")
    Path("text.h5ad").write_text("no HDF5")
    os.mkfifo("pipe.h5ad")
    output = {"model": "model", "anndata": target}
    config = write_config(tmp_path, input={"path": "cells.h5ad"}, method={"name": "pca"}, output=output)
    assert message in refusal(config)
    assert not Path("model").exists()


def test_the_scores_of_other_methods_have_their_names(tmp_path):
    write(tmp_path)
    for method in ("ppca", "kernel_pca"):
        run(
            write_config(
                tmp_path,
                input={"path": "cells.zarr"},
                method={"name": method, "n_components": 2},
                output={"model": method, "anndata": "cells.zarr"},
            )
        )
    found = anndata.read_zarr("cells.zarr")
    assert set(found.obsm) == {"X_ppca", "X_kernel_pca"}
    assert not found.varm
    assert found.obsm["X_ppca"].shape == (N, 2)


def test_rows_left_out_are_nan_in_the_input_and_absent_in_a_new_store(tmp_path):
    write(tmp_path)
    source = open_source("cells.zarr")
    chosen = np.arange(N) % 3 > 0
    selected = SelectedRows(source, RowMask(N, [chosen]), "two of three")
    for target in ("cells.zarr", "new.zarr", "new.h5ad"):
        opened = context(configured(tmp_path, target))
        input_ = opened.reuse_input(selected, selected.snapshot())
        run_all(Selecting(opened.run, opened.progress, opened.stop, selected=selected), opened=input_)
    expected = np.full((N, K), np.nan, np.float32)
    expected[chosen] = scores(tmp_path)
    np.testing.assert_array_equal(anndata.read_zarr("cells.zarr").obsm["X_pca"], expected)
    for found in (anndata.read_zarr("new.zarr"), anndata.read_h5ad("new.h5ad")):
        np.testing.assert_array_equal(found.obsm["X_pca"], scores(tmp_path))
        assert list(found.obs_names) == [f"cell {i}" for i in np.flatnonzero(chosen)]
    opened = context(configured(tmp_path))
    verify(Selecting(opened.run, opened.progress, opened.stop, selected=selected))


@dataclass(frozen=True)
class Selecting(RunContext):
    """A run over some of the rows."""

    selected: Source | None = None

    def open_input(self, model: Any = None) -> Any:
        """Return the selected rows."""
        assert self.selected is not None
        return self.reuse_input(self.selected, self.selected.snapshot())


def test_damage_is_found(tmp_path):
    write(tmp_path)
    config = configured(tmp_path)
    run(config)
    store = zarr.open_group("cells.zarr")
    loadings: Any = store["varm/PCs"]
    loadings[0, 0] = 7.0
    with pytest.raises(StreamdrError, match="the values of varm/PCs are not those that were written"):
        verify(context(config))
    shutil.rmtree("cells.zarr/varm/PCs")
    assert "varm/PCs was removed" in run(config)["transform"]["outputs"]["anndata"]["because"]
    assert anndata.read_zarr("cells.zarr").varm["PCs"].shape == (D, K)
    verify(context(config))


class Killed(BaseException):
    """A kill: nothing is tidied up."""


def die_after(steps: int, patched: pytest.MonkeyPatch) -> None:
    """Die before the change of the store that comes after so many changes."""
    left = iter(range(steps))

    def counted(change: Any) -> Any:
        def step(*given: Any) -> Any:
            if next(left, None) is None:
                raise Killed
            return change(*given)

        return step

    patched.setattr(zarr_store, "exchange", counted(zarr_store.exchange))
    patched.setattr(zarr_store, "_move", counted(zarr_store._move))
    for name in ("forget", "consolidate", "add_columns"):
        patched.setattr(zarr_store.Metadata, name, counted(getattr(zarr_store.Metadata, name)))
    patched.setattr(Hidden, "__exit__", lambda self, *error: os.close(self._lock))


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_kill_at_any_step_of_publishing_leaves_the_old_or_the_new(tmp_path, monkeypatch, zarr_format):
    (tmp_path / "kept").mkdir()
    monkeypatch.chdir(tmp_path / "kept")
    write(Path.cwd(), zarr_format)
    config = configured(Path.cwd())
    run(config, "method.n_components=2")
    run(config, OVERWRITE, "output.anndata=null")  # so that only the scores are left to do
    before, expected = anndata.read_zarr("cells.zarr").obsm["X_pca"], scores(Path.cwd())
    assert before.shape == (N, 2)
    for step in range(100):
        here = shutil.copytree(tmp_path / "kept", tmp_path / str(step))
        monkeypatch.chdir(here)
        with pytest.MonkeyPatch.context() as patched:
            die_after(step, patched)
            try:
                run(here / config.name, OVERWRITE)
                break
            except Killed:
                pass
        found = anndata.read_zarr("cells.zarr")
        published = found.obsm["X_pca"].shape[1] == K
        np.testing.assert_array_equal(found.obsm["X_pca"], expected if published else before)
        assert found.varm["PCs"].shape[1] in (2, K)
        again = run(here / config.name, *([] if published else [OVERWRITE]))["transform"]["outputs"][
            "anndata"
        ]
        after = anndata.read_zarr("cells.zarr")
        np.testing.assert_array_equal(after.obsm["X_pca"], expected)
        assert after.varm["PCs"].shape == (D, K)
        assert again["reused"] or not [name for name in tree(here) if name.startswith(".cells")]
        shutil.rmtree(here)
    assert step >= 6
