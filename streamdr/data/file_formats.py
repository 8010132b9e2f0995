"""Files that are read in place, by their suffix: HDF5 and netCDF-4, and Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from streamdr.errors import DataError

if TYPE_CHECKING:
    from streamdr.data.hdf5 import Hdf5File
    from streamdr.data.parquet import ParquetSource
    from streamdr.data.sparse.hdf5_groups import Hdf5Groups

NETCDF = (".nc", ".nc4", ".netcdf")
HDF5 = (".h5", ".hdf5", ".h5ad", *NETCDF)
PARQUET = (".parquet", ".pq")
_STORES = ("zarr.json", ".zarray", ".zgroup", ".zmetadata")
"""The files of which a folder that is a zarr store has one."""


class NoRowsError(DataError):
    """A table has no rows. It is left out beside tables with rows."""


def is_hdf5(path: Path) -> bool:
    """Whether a file has a suffix of HDF5 or netCDF."""
    return path.name.lower().endswith(HDF5)


def is_netcdf(path: Path) -> bool:
    """Whether a file has a suffix of netCDF, so that its dimensions have names."""
    return path.name.lower().endswith(NETCDF)


def is_parquet(path: Path) -> bool:
    """Whether a file has a suffix of Parquet."""
    return path.name.lower().endswith(PARQUET)


def within_hdf5(place: object) -> tuple[Path, str] | None:
    """Return a file of HDF5 and the path in it, of a path that goes on within one; None for other paths."""
    if not isinstance(place, Path):
        return None
    for parent in place.parents:
        if is_hdf5(parent) and parent.is_file():
            return parent, place.relative_to(parent).as_posix()
    return None


def tables_in(folder: Path) -> list[Path]:
    """Return the Parquet files in a folder, and in folders such as `year=2020`; none for a store."""
    if not folder.is_dir() or any((folder / name).exists() for name in _STORES):
        return []
    found = []
    for entry in folder.iterdir():
        if entry.name.startswith((".", "_")):  # such as _metadata
            continue
        if "=" in entry.name and entry.is_dir():
            found += tables_in(entry)
        elif is_parquet(entry) and not entry.is_dir():
            found.append(entry)
    return found


def open_hdf5(path: Path, *, allow_missing: bool = False) -> Hdf5File:
    """Return the arrays in a file of HDF5 or netCDF-4; say what to install if h5py is not there."""
    try:
        from streamdr.data.hdf5 import Hdf5File
    except ModuleNotFoundError as error:
        raise _not_installed(path, error, "hdf5") from error
    return Hdf5File(path, allow_missing=allow_missing)


def groups_in_hdf5(path: Path, *, allow_missing: bool = False) -> Hdf5Groups:
    """Return the groups of a file of HDF5."""
    file = open_hdf5(path, allow_missing=allow_missing)
    from streamdr.data.sparse.hdf5_groups import Hdf5Groups

    return Hdf5Groups(file, path)


def open_parquet(path: Path, columns: Sequence[str] | None = None) -> ParquetSource:
    """Return the rows of a Parquet file, or columns of them; say what to install if pyarrow is not there."""
    try:
        from streamdr.data.parquet import ParquetSource
    except ModuleNotFoundError as error:
        raise _not_installed(path, error, "parquet") from error
    return ParquetSource(path, columns)


def _not_installed(path: Path, error: ModuleNotFoundError, extra: str) -> DataError:
    return DataError(
        f"{path}: reading this kind of file needs {error.name}; "
        f"install it with: pip install 'streamdr[{extra}]'"
    )
