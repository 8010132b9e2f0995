"""Runs that write their scores into AnnData stores, read back by anndata and scanpy."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pytest
import scanpy
import scipy.sparse as sp
import zarr
from command_line import Outcome, streamdr, succeed, write_config
from killing import Started, tree

import streamdr as package
from streamdr.store import open_backend

N, D, K = 60, 12, 3
OVERWRITE = "output.overwrite=true"

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def plain_strings() -> Iterator[None]:
    """Names are Python strings, which anndata writes."""
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


def run(config: Path, *more: str) -> Any:
    return succeed("run", config, "--json", *more, cwd=config.parent).report


def refused(config: Path, *more: str) -> str:
    outcome: Outcome = streamdr("run", config, *more, cwd=config.parent)
    assert outcome.code, outcome.out
    return outcome.err


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_scanpy_goes_on_from_the_input_store(tmp_path, zarr_format):
    before = cells()
    write(tmp_path, zarr_format)
    config = configured(tmp_path)
    run(config)
    assert zarr.open_group(tmp_path / "cells.zarr").metadata.zarr_format == zarr_format
    found = anndata.read_zarr(tmp_path / "cells.zarr")
    np.testing.assert_array_equal(found.obsm["X_pca"], scores(tmp_path))
    model = package.load_model(tmp_path / "model")
    np.testing.assert_array_equal(found.varm["PCs"], model.components_.T)
    np.testing.assert_array_equal(found.uns["pca"]["variance"], model.explained_variance_)
    np.testing.assert_array_equal(found.uns["pca"]["variance_ratio"], model.explained_variance_ratio_)
    assert found.uns["pca"]["params"] == {"zero_center": True, "use_highly_variable": False}
    scanpy.pp.pca(before, n_comps=K, svd_solver="covariance_eigh", dtype="float64")
    np.testing.assert_allclose(np.abs(found.obsm["X_pca"]), np.abs(before.obsm["X_pca"]), atol=1e-4)
    np.testing.assert_allclose(found.uns["pca"]["variance"], before.uns["pca"]["variance"], rtol=1e-5)
    scanpy.pp.neighbors(found, n_neighbors=5)
    assert found.obsp["distances"].shape == (N, N)
    assert list(found.obs["batch"]) == list(before.obs["batch"]) and (found.X != before.X).nnz == 0
    consolidated = zarr.open_consolidated(tmp_path / "cells.zarr")
    np.testing.assert_array_equal(consolidated["obsm/X_pca"][:], scores(tmp_path))
    assert "uns/pca/variance" in consolidated and "varm/PCs" in consolidated


@pytest.mark.parametrize("target", ["cells.zarr", "new.zarr", "new.h5ad"])
def test_a_second_run_is_fresh_and_is_verified(tmp_path, target):
    write(tmp_path)
    config = configured(tmp_path, target)
    run(config)
    before = tree(tmp_path)
    again = run(config)["transform"]["outputs"]["anndata"]
    assert again["reused"] and again["bytes_read"] == 0
    assert tree(tmp_path) == before
    assert not [name for name in before if Path(name).name.startswith(".cells") or ".new" in name]
    plan = succeed("plan", config, "--json", cwd=tmp_path).report
    assert {stage["state"] for stage in plan["stages"]} == {"fresh"}
    checks = succeed("verify", config, "--json", cwd=tmp_path).report["checks"]
    assert "sha256" in checks["anndata"] and "varm/PCs" in checks["anndata"]


@pytest.mark.parametrize("target", ["new.zarr", "new.h5ad"])
def test_a_new_store_has_the_names_and_no_matrix(tmp_path, target):
    write(tmp_path)
    run(configured(tmp_path, target))
    path = tmp_path / target
    found = anndata.read_h5ad(path) if path.suffix == ".h5ad" else anndata.read_zarr(path)
    assert found.X is None and found.shape == (N, D)
    assert list(found.obs_names) == list(cells().obs_names)
    assert list(found.var_names) == list(cells().var_names)
    np.testing.assert_array_equal(found.obsm["X_pca"], scores(tmp_path))
    assert found.varm["PCs"].shape == (D, K)
    scanpy.pp.neighbors(found, n_neighbors=5)


def test_nameless_rows_are_numbered(tmp_path):
    zarr.save_array(tmp_path / "cells.zarr", counts().toarray())
    run(configured(tmp_path, "new.zarr"))
    found = anndata.read_zarr(tmp_path / "new.zarr")
    assert list(found.obs_names[:2]) == ["0", "1"] and list(found.var_names) == list(map(str, range(D)))
