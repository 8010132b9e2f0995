"""Estimators put their scores into AnnData objects, where scanpy finds them."""

from __future__ import annotations

import anndata
import numpy as np
import pandas as pd
import pytest
import scanpy

import streamdr
from streamdr.errors import InputError

N, D = 60, 12


def cells() -> anndata.AnnData:
    values = np.random.default_rng(8).standard_normal((N, D)) @ np.diag(np.arange(1.0, D + 1))
    names = pd.Index([f"gene {i}" for i in range(D)], dtype=object)
    return anndata.AnnData(values, var=pd.DataFrame(index=names))


def test_scores_loadings_and_variances_are_those_of_scanpy():
    adata, theirs = cells(), cells()
    pca = streamdr.PCA(3).fit(adata.X)
    assert pca.to_anndata(adata) is adata
    scanpy.pp.pca(theirs, n_comps=3)
    np.testing.assert_array_equal(adata.obsm["X_pca"], pca.transform(adata.X))
    signs = np.sign((adata.varm["PCs"] * theirs.varm["PCs"]).sum(axis=0))
    np.testing.assert_allclose(adata.varm["PCs"], theirs.varm["PCs"] * signs, atol=1e-8)
    np.testing.assert_allclose(adata.obsm["X_pca"], theirs.obsm["X_pca"] * signs, atol=1e-6)
    for name in ("variance", "variance_ratio"):
        np.testing.assert_allclose(adata.uns["pca"][name], theirs.uns["pca"][name], rtol=1e-8)
    scanpy.pp.neighbors(adata, n_neighbors=5, use_rep="X_pca")


def test_other_methods_have_scores_only():
    adata = cells()
    streamdr.KernelPCA(2).fit(adata.X).to_anndata(adata)
    assert adata.obsm["X_kernel_pca"].shape == (N, 2)
    assert not adata.varm
    assert not adata.uns


def test_variables_that_the_model_leaves_out_have_loadings_of_zero():
    adata = cells()
    adata.X[:, 4] = np.nan
    pca = streamdr.PCA(2).fit(adata.X, min_observed=0.5)
    pca.to_anndata(adata)
    assert adata.varm["PCs"].shape == (D, 2)
    assert not adata.varm["PCs"][4].any()


def test_other_variables_are_refused():
    adata = cells()
    pca = streamdr.PCA(2).fit(pd.DataFrame(adata.X, columns=list(adata.var_names)))
    with pytest.raises(InputError, match="its variables are not those of the fit"):
        pca.to_anndata(adata[:, ::-1])
    assert pca.to_anndata(adata).obsm["X_pca"].shape == (N, 2)
