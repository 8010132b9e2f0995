"""CSV and its kin: delimited text, parsed a few megabytes of lines at a time."""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from streamdr.blocks import Array
from streamdr.errors import ConfigError, DataError
from streamdr.ingest.table import Batch, Options, Stream, select_columns

_BATCH_CHARACTERS = 4 * 2**20
_LONGEST_FIRST_LINE = 2**28
_SNIFFED_LINES = 20
_DELIMITERS = (",", "\t", ";", "|")
_MISSING = frozenset({"", "NA", "N/A", "NULL", "null"})


@contextmanager
def open_delimited(path: Path, options: Options) -> Iterator[Stream]:
    """Open a .csv or .tsv file, gzipped or not. The delimiter and the header are found unless told."""
    with path.open("rb") as raw, _text(path, raw) as text:
        with _naming(path):
            lines = [text.readline(_LONGEST_FIRST_LINE), *text.readlines(_BATCH_CHARACTERS)]
            if len(lines[0]) == _LONGEST_FIRST_LINE:
                raise DataError(f"{path}: its first line does not end; check that it is delimited text")
            delimiter = _delimiter(path, lines, options.delimiter)
            reader = csv.reader(lines, delimiter=delimiter)
            first = next((row for row in reader if not _is_blank(row)), None)
        if first is None:
            raise DataError(f"{path}: has no rows; check that this is the right file")
        has_header = options.header if options.header is not None else not all(map(_is_number, first))
        names = tuple(name.strip() for name in first) if has_header else None
        used = select_columns(path, names or [str(i) for i in range(len(first))], options.columns)
        dtype = np.dtype(np.float64)
        if options.dtype is not None and options.dtype.kind in "iu":
            dtype = options.dtype  # long ones are not exact as doubles
        parser = _Parser(path, delimiter, len(first), used, names, dtype)
        start = reader.line_num if has_header else 0
        size = path.stat().st_size

        def batches() -> Iterator[Batch]:
            batch, first_line, done = lines[start:], start + 1, 0
            while batch:
                yield Batch(parser.parse(batch, first_line), raw.tell() - done)
                first_line, done = first_line + len(batch), raw.tell()
                with _naming(path):
                    batch = text.readlines(_BATCH_CHARACTERS)
            yield Batch(parser.parse([], first_line), size - done)

        chosen = tuple(names[i] for i in used) if names else None
        yield Stream(len(used), dtype, batches(), total=size, unit="bytes", feature_names=chosen)


@dataclass(frozen=True)
class _Parser:
    path: Path
    delimiter: str
    n_fields: int
    used: list[int]
    names: Sequence[str] | None
    dtype: np.dtype[Any]

    def parse(self, lines: list[str], first_line: int) -> Array:
        """The numbers in consecutive lines: numpy takes plain ones, others are looked at field by field."""
        if lines and self.dtype.kind == "f" and all(map(self._is_plain, lines)):
            usecols = None if self.used == list(range(self.n_fields)) else self.used
            try:
                return np.loadtxt(
                    lines, self.dtype, comments=None, delimiter=self.delimiter, usecols=usecols, ndmin=2
                )
            except ValueError:
                pass  # there is a missing value, or something that is no number: find out which, and where
        return self._parse_carefully(lines, first_line)

    def _is_plain(self, line: str) -> bool:
        return line.count(self.delimiter) == self.n_fields - 1 and '"' not in line and not line.isspace()

    def _parse_carefully(self, lines: list[str], first_line: int) -> Array:
        reader = csv.reader(lines, delimiter=self.delimiter)
        rows = []
        with _naming(self.path):
            for fields in reader:
                line = first_line + reader.line_num - 1
                if _is_blank(fields):
                    continue
                if len(fields) != self.n_fields:
                    raise DataError(
                        f"{self.path}: line {line} has {len(fields)} fields where the first line has "
                        f"{self.n_fields}; mend or remove this line, or say what the delimiter is"
                    )
                rows.append([self._number(fields[column], line, column) for column in self.used])
        return np.array(rows, self.dtype).reshape(-1, len(self.used))

    def _number(self, field: str, line: int, column: int) -> float:
        try:
            return _parse_float(field) if self.dtype.kind == "f" else _parse_integer(field, self.dtype)
        except ValueError:
            name = f"column {column}" + (f" ({self.names[column]!r})" if self.names else "")
            text = field if len(field) <= 40 else f"{field[:40]}..."
            raise DataError(
                f"{self.path}: line {line}, {name}: {text!r} cannot be read as {self.dtype}; "
                "mend it, or leave this column out by naming the others in `columns`"
            ) from None


def _parse_float(field: str) -> float:
    text = field.strip()
    if text in _MISSING:
        return math.nan
    if "_" in text:  # Python's spelling of long numbers, nobody else's
        raise ValueError
    return float(text)


def _parse_integer(field: str, dtype: np.dtype[Any]) -> int:
    number = int(field)
    if "_" in field or not np.iinfo(dtype).min <= number <= np.iinfo(dtype).max:
        raise ValueError
    return number


def _is_number(field: str) -> bool:
    try:
        _parse_float(field)
    except ValueError:
        return False
    return True


def _is_blank(row: Sequence[str]) -> bool:
    return len(row) <= 1 and not "".join(row).strip()


def _delimiter(path: Path, lines: Sequence[str], told: str | None) -> str:
    """The delimiter that was told, or the one by which most lines agree with the first on their fields."""
    if told is not None:
        told = "\t" if told == r"\t" else told
        if len(told) != 1 or told in '"\r\n':
            raise ConfigError(f"delimiter is {told!r}, but must be a single character, other than a quote")
        return told
    if ".tsv" in path.suffixes:
        return "\t"
    sample = [line for line in lines if not line.isspace()][:_SNIFFED_LINES]

    def agreement(delimiter: str) -> tuple[int, int]:
        rows = list(csv.reader(sample, delimiter=delimiter))
        agreeing = sum(1 < len(row) == len(rows[0]) for row in rows)
        return agreeing, sum(map(_is_number, rows[-1])) if rows else 0

    return max(_DELIMITERS, key=agreement)


def _text(path: Path, raw: IO[bytes]) -> io.TextIOWrapper:
    data = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
    return io.TextIOWrapper(data, encoding="utf-8-sig")  # spreadsheets put a byte order mark first


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8 text ({error.reason}); convert it, say with iconv") from error
    except csv.Error as error:
        raise DataError(f"{path}: cannot be split into fields ({error}); is a quote not closed?") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: cannot be decompressed ({error}); copy or compress it again") from error
