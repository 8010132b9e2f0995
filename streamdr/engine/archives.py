"""`.npz` archives of plain arrays, with a layout that says what they are. Large arrays are not copied."""

from __future__ import annotations

import json
import math
import struct
import warnings
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from streamdr.core.blocks import Array

_LAYOUT = "layout"
_MAGIC, _NAME_OFFSET = b"PK\x03\x04", 30
_FIRST_NAME = f"{_LAYOUT}.npy".encode()
START_BYTES = _NAME_OFFSET + len(_FIRST_NAME)
"""The length of the start of an archive by which `is_archive` recognises it."""
_PIECE = 1 << 20
"""A checksum is computed of so many bytes at a time, while they are in cache."""
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def is_archive(start: bytes) -> bool:
    """Return whether a file that starts like this is an archive with a layout."""
    return start.startswith(_MAGIC) and start[_NAME_OFFSET:START_BYTES] == _FIRST_NAME


def write_archive(file: BinaryIO, layout: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Write a layout, which is JSON, and arrays. The number of arrays is added to the layout."""
    described = {**layout, "arrays": len(arrays)}
    with zipfile.ZipFile(file, "w") as archive:
        # The layout comes first: an archive is recognised by its first file.
        for name, array in {_LAYOUT: np.array(json.dumps(described)), **arrays}.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array_header_1_0(member, np.lib.format.header_data_from_array_1_0(array))
                values = array.T if array.flags.f_contiguous and not array.flags.c_contiguous else array
                contents = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
                for start in range(0, contents.size, _PIECE):
                    member.write(contents[start : start + _PIECE].data)


class Archive:
    """An archive that is open. Arrays are read on request; damage raises an error of any type."""

    def __init__(self, file: BinaryIO) -> None:
        size = file.seek(0, 2)
        self._file = file
        with zipfile.ZipFile(file) as archive:
            files = archive.infolist()
        if sum(info.file_size for info in files) > size:
            raise ValueError("the archive says that it holds more than it does")
        self._files = {info.filename.removesuffix(".npy"): info for info in files}
        layout = json.loads(str(self._array(self._files.pop(_LAYOUT))))
        # Archives of earlier versions do not have the number of their arrays.
        if layout.get("arrays", len(self._files)) != len(self._files):
            raise ValueError("the archive is not complete")
        self.layout: dict[str, Any] = layout

    def arrays(self, prefix: str = "") -> dict[str, Array]:
        """Return the arrays whose names begin with a prefix, by the rest of their names."""
        return {
            name.removeprefix(prefix): self._array(info)
            for name, info in self._files.items()
            if name.startswith(prefix)
        }

    def _array(self, info: zipfile.ZipInfo) -> Array:
        """Return one array. Nothing is allocated before the size of the file is checked."""
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            raise ValueError(f"{info.filename} is compressed")
        self._file.seek(info.header_offset)
        name_length, extra_length = struct.unpack_from("<HH", self._file.read(_NAME_OFFSET), 26)
        start = self._file.seek(info.header_offset + _NAME_OFFSET + name_length + extra_length)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns when it parses a damaged header
            read_header = _HEADERS[np.lib.format.read_magic(self._file)]
            shape, in_columns, dtype = read_header(self._file)
        header_bytes = self._file.tell() - start
        if dtype.hasobject or math.prod(shape) * dtype.itemsize != info.file_size - header_bytes:
            raise ValueError(f"{info.filename} is not as long as its header says")
        self._file.seek(start)
        checksum = zlib.crc32(self._file.read(header_bytes))
        array: Array = np.empty(shape, dtype, order="F" if in_columns else "C")
        contents = array.reshape(-1, order="A").view(np.uint8)
        for first in range(0, contents.size, _PIECE):
            piece = contents[first : first + _PIECE].data
            if self._file.readinto(piece) != len(piece):  # type: ignore[attr-defined]
                raise ValueError(f"{info.filename} ends early")
            checksum = zlib.crc32(piece, checksum)
        if checksum != info.CRC:
            raise ValueError(f"{info.filename} is damaged")
        return array
