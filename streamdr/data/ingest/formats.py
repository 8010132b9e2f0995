"""The formats that can be ingested, by suffix."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from streamdr.core.files import require_regular
from streamdr.data.ingest.table import Options, Table
from streamdr.errors import ConfigError, DataError, InputError

Opener = Callable[[Path, Options], AbstractContextManager[Table]]


@dataclass(frozen=True)
class Format:
    """A file format: its reader, the options that it uses, and the extra that must be installed for it."""

    module: str
    opener: str
    options: frozenset[str]
    extra: str | None = None


_COLUMN_OPTIONS = ("exclude", "numeric_only", "labels")
NPY = Format("streamdr.data.ingest.npy", "open_npy", frozenset())
DELIMITED = Format(
    "streamdr.data.ingest.delimited",
    "open_delimited",
    frozenset({"columns", "delimiter", "header", *_COLUMN_OPTIONS}),
)
PARQUET = Format(
    "streamdr.data.ingest.parquet", "open_parquet", frozenset({"columns", *_COLUMN_OPTIONS}), extra="parquet"
)
HDF5 = Format("streamdr.data.ingest.hdf5", "open_hdf5", frozenset({"dataset"}), extra="hdf5")

FORMATS = {
    ".npy": NPY,
    ".csv": DELIMITED,
    ".csv.gz": DELIMITED,
    ".tsv": DELIMITED,
    ".tsv.gz": DELIMITED,
    ".parquet": PARQUET,
    ".pq": PARQUET,
    ".h5": HDF5,
    ".hdf5": HDF5,
}


def open_table(source: Path, options: Options) -> AbstractContextManager[Table]:
    """Open a file, or a directory of Parquet files, with the reader for its suffix."""
    if not source.is_dir():
        try:
            require_regular(source)
        except FileNotFoundError:
            raise InputError(
                "source", f"{source}: no such file or directory; check the path", located=True
            ) from None
        except (OSError, ValueError) as error:
            raise DataError(f"{source}: cannot be read: {error}") from error
    file_format = _format(source)
    for name in ("dataset", "columns", "delimiter", "header", *_COLUMN_OPTIONS):
        if getattr(options, name) is not None and name not in file_format.options:
            raise ConfigError(f"{source}: `{name}` has no meaning for this kind of file; leave it out")
    if source.is_file() and source.stat().st_size == 0:
        raise DataError(f"{source}: is empty; check that it was copied whole")
    try:
        opener: Opener = getattr(import_module(file_format.module), file_format.opener)
    except ModuleNotFoundError as error:
        raise DataError(
            f"{source}: reading this kind of file needs {error.name}; "
            f"install it with: pip install 'streamdr[{file_format.extra}]'"
        ) from error
    return opener(source, options)


def _format(source: Path) -> Format:
    """Return the format of a file, by its suffix."""
    name = source.name.lower()
    if name.endswith(".zarr") or (source / "zarr.json").exists() or (source / ".zgroup").exists():
        raise DataError(f"{source}: is a zarr store already, which streamdr reads directly")
    if source.is_dir():
        return PARQUET
    if name.endswith(".npz"):
        raise DataError(
            f"{source}: is an archive of arrays; save one array as .npy first: "
            "numpy.save('x.npy', numpy.load('x.npz')['name'])"
        )
    for suffix, file_format in FORMATS.items():
        if name.endswith(suffix):
            return file_format
    raise DataError(f"{source}: this format cannot be ingested; supported are: {', '.join(FORMATS)}")
