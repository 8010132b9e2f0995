"""Scores in AnnData stores, in zarr and in .h5ad files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streamdr.core.addresses import Location
from streamdr.errors import ParameterError
from streamdr.store.anndata.backend import AnnDataBackend
from streamdr.store.anndata.contents import AnnDataContents
from streamdr.store.anndata.zarr_store import ZarrAnnData

__all__ = ["AnnDataBackend", "AnnDataContents", "open_anndata"]

_HDF5 = (".h5ad", ".h5")


def open_anndata(
    place: Location, method: str, expected: Sequence[str] = (), *, replaces_foreign: bool = False
) -> AnnDataBackend:
    """Return the scores of a method in an AnnData store, as an output. Nothing is read.

    Parameters
    ----------
    place : Path or Address
        The store: a folder for zarr, or an .h5ad file.
    method : str
        The name of the method, after which the scores are named: `obsm/X_pca`.
    expected : sequence of str
        The places of further entries that the model will have.
    replaces_foreign : bool
        Whether entries with these names that streamdr did not write are replaced.
    """
    if not isinstance(place, Path):
        raise ParameterError(
            "anndata",
            f"{place} is in an object store, where no entry can be replaced in one step: write to a path "
            "on this machine and copy it there, or write output.embedding to the object store",
        )
    scores = f"obsm/X_{method}"
    if place.suffix in _HDF5:
        from streamdr.store.anndata.hdf5_file import Hdf5AnnData  # h5py is installed with streamdr[hdf5]

        return Hdf5AnnData(place, scores, expected, replaces_foreign=replaces_foreign)
    return ZarrAnnData(place, scores, expected, replaces_foreign=replaces_foreign)
