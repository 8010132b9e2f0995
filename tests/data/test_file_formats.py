"""Files are recognised by their suffix, and a package that is missing is named with its extra."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from streamdr.data.file_formats import is_hdf5, is_parquet, open_hdf5, open_parquet
from streamdr.errors import DataError


@pytest.mark.parametrize("name", ["x.nc", "x.nc4", "x.H5", "x.hdf5", "era5_2000.01.nc"])
def test_hdf5_is_recognised(name):
    assert is_hdf5(Path(name))
    assert not is_parquet(Path(name))


@pytest.mark.parametrize("name", ["x.parquet", "x.pq", "part-0.snappy.parquet"])
def test_parquet_is_recognised(name):
    assert is_parquet(Path(name))
    assert not is_hdf5(Path(name))


@pytest.mark.parametrize(
    ("read", "package", "extra"), [(open_hdf5, "h5py", "hdf5"), (open_parquet, "pyarrow", "parquet")]
)
def test_a_missing_package_is_named_with_its_extra(read, package, extra, monkeypatch):
    for name in [
        name for name in sys.modules if name.startswith(("streamdr.data.hdf5", "streamdr.data.parquet"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    message = (
        rf"x: reading this kind of file needs {package}.*; install it with: pip install 'streamdr\[{extra}\]'"
    )
    with pytest.raises(DataError, match=message):
        read(Path("x"))
