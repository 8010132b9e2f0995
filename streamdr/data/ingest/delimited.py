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
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from streamdr.core.blocks import Array
from streamdr.core.files import open_regular
from streamdr.data.ingest.columns import choose_columns, leading_unnamed
from streamdr.data.ingest.table import Batch, Options, Stream
from streamdr.errors import ConfigError, DataError
from streamdr.store.labels import LabelKind, as_labels

_BATCH_CHARACTERS = 4 * 2**20
_LONGEST_LINE = 2**26
_SNIFFED_LINES = 20
_SAMPLED_ROWS = 1000
_DELIMITERS = (",", "\t", ";", "|")
_GUESSED = "the first line is taken for the names of columns; `--no-header` takes it for a row"
_UNLIKELY = 8
"""So many numbers that count from 0 are no row of data by chance."""
_MISSING = frozenset({"", "NA", "N/A", "NULL", "null"})
_TRUTHS = {"True": 1, "TRUE": 1, "true": 1, "False": 0, "FALSE": 0, "false": 0}
"""Booleans, as pandas, R and others write them, are the numbers that they are in other formats."""


@contextmanager
def open_delimited(path: Path, options: Options) -> Iterator[Stream]:
    """Open a .csv or .tsv file, gzipped or not. The delimiter and the header are found unless told."""
    with open_regular(path) as raw, _text(path, raw) as text:
        with _naming(path):
            lines = [text.readline(_LONGEST_LINE), *_lines(path, text)]
            _require_line(path, lines[0])
            delimiter = _delimiter(path, lines, options.delimiter)
            reader = csv.reader(lines, delimiter=delimiter)
            first = next((row for row in reader if not _is_blank(row)), None)
            if first is None:
                raise DataError(f"{path}: has no rows; check that this is the right file")
            sample = _Sample.of(lines[reader.line_num :], delimiter, len(first))
        has_header = options.header if options.header is not None else _is_header(first, sample.rows)
        names = tuple(name.strip() for name in first) if has_header else None
        guessed = has_header and options.header is None and all(map(_is_number, first))
        doubts = (_GUESSED,) if guessed else ()
        start = reader.line_num if has_header else 0
        if not has_header:
            sample = _Sample([first, *sample.rows])
        n_index = leading_unnamed(names) if names else 0
        chosen = choose_columns(
            path,
            names,
            len(first),
            options,
            is_number=sample.is_number,
            is_index=range(n_index).__contains__,
            counts_rows=sample.counts_rows,
        )
        used, labels = chosen.used, chosen.labels
        label_kind = None if labels is None else options.label_kind or sample.label_kind(labels)
        dtype = np.dtype(np.float64)
        if options.dtype is not None and options.dtype.kind in "iu":
            dtype = options.dtype  # long ones are not exact as doubles
        parser = _Parser(path, delimiter, len(first), used, names, dtype, labels, label_kind)
        size = path.stat().st_size

        def batches() -> Iterator[Batch]:
            batch, first_line, done = lines[start:], start + 1, 0
            while batch:
                values, found = parser.parse(batch, first_line)
                yield Batch(values, raw.tell() - done, found)
                first_line, done = first_line + len(batch), raw.tell()
                with _naming(path):
                    batch = _lines(path, text)
            values, found = parser.parse([], first_line)
            yield Batch(values, size - done, found)

        kept = {*used, labels}
        yield Stream(
            len(used),
            dtype,
            batches(),
            total=size,
            unit="bytes",
            feature_names=tuple(names[i] for i in used) if names else None,
            label_kind=label_kind,
            left_out=chosen.left_out,
            not_used=tuple(name for i, name in enumerate(names or ()) if i not in kept),
            remarks=(*doubts, *chosen.remarks),
        )


@dataclass(frozen=True)
class _Sample:
    """The first lines of a file, by which is told what its columns are."""

    rows: list[list[str]]

    @classmethod
    def of(cls, lines: list[str], delimiter: str, n_fields: int) -> _Sample:
        rows = islice(csv.reader(lines, delimiter=delimiter), _SAMPLED_ROWS)
        return cls([row for row in rows if len(row) == n_fields and not _is_blank(row)])

    def is_number(self, column: int) -> bool:
        return all(_is_number(row[column]) for row in self.rows)

    def counts_rows(self, column: int) -> bool:
        """Whether a column counts the rows, from 0 or from 1."""
        fields = [row[column].strip() for row in self.rows]
        return len(fields) > 1 and fields[0] in ("0", "1") and _counts(fields)

    def label_kind(self, column: int) -> LabelKind:
        fields = [row[column].strip() for row in self.rows]
        if not all(map(_is_number, fields)) or not _TRUTHS.keys().isdisjoint(fields):
            return "text"
        return "int64" if all(field.lstrip("+-").isdecimal() for field in fields) else "float64"


@dataclass(frozen=True)
class _Parser:
    path: Path
    delimiter: str
    n_fields: int
    used: list[int]
    names: Sequence[str] | None
    dtype: np.dtype[Any]
    labels: int | None = None
    label_kind: LabelKind | None = None

    def parse(self, lines: list[str], first_line: int) -> tuple[Array, Array | None]:
        """The numbers in consecutive lines: numpy takes plain ones, others are looked at field by field.

        And the labels, where a column holds them.
        """
        if lines and self.dtype.kind == "f" and all(map(self._is_plain, lines)):
            usecols = None if self.used == list(range(self.n_fields)) else self.used
            try:
                values = np.loadtxt(
                    lines, self.dtype, comments=None, delimiter=self.delimiter, usecols=usecols, ndmin=2
                )
                fields = (line.split(self.delimiter) for line in lines)
                return values, self._labels(list(enumerate(fields, first_line)))
            except ValueError:
                pass  # there is a missing value, or something that is no number: find out which, and where
        return self._parse_carefully(lines, first_line)

    def _is_plain(self, line: str) -> bool:
        return line.count(self.delimiter) == self.n_fields - 1 and '"' not in line and not line.isspace()

    def _labels(self, rows: list[tuple[int, list[str]]]) -> Array | None:
        if self.labels is None or self.label_kind is None:
            return None
        found: list[str | float] = []
        for line, fields in rows:
            field = fields[self.labels].strip()
            if field in _MISSING:
                raise DataError(f"{self.path}: line {line} has no label; give it one, or leave the row out")
            try:
                if self.label_kind == "text":
                    found.append(field)
                else:
                    found.append(int(field) if self.label_kind == "int64" else float(field))
            except ValueError:
                raise DataError(
                    f"{self.path}: line {line}: the label {field!r} is no {self.label_kind}; mend it"
                ) from None
        return as_labels(found, self.label_kind)

    def _parse_carefully(self, lines: list[str], first_line: int) -> tuple[Array, Array | None]:
        reader = csv.reader(lines, delimiter=self.delimiter)
        rows, read = [], []
        with _naming(self.path):
            for fields in reader:
                line = first_line + reader.line_num - 1
                if _is_blank(fields):
                    continue
                if len(fields) != self.n_fields:
                    raise DataError(
                        f"{self.path}: line {line} has {len(fields)} fields where the first line has "
                        f"{self.n_fields}; mend or remove this line, or give the `--delimiter`"
                    )
                rows.append([self._number(fields[column], line, column) for column in self.used])
                if self.labels is not None:
                    read.append((line, fields))
        return np.array(rows, self.dtype).reshape(-1, len(self.used)), self._labels(read)

    def _number(self, field: str, line: int, column: int) -> float:
        try:
            return _parse_float(field) if self.dtype.kind == "f" else _parse_integer(field, self.dtype)
        except ValueError:
            name = f"column {column}" + (f" ({self.names[column]!r})" if self.names else "")
            text = field if len(field) <= 40 else f"{field[:40]}..."
            raise DataError(
                f"{self.path}: line {line}, {name}: {text!r} cannot be read as {self.dtype}; "
                "mend it, leave the column out with `--exclude` (or with `--numeric-only` every one that is "
                f"not of numbers in the first {_SAMPLED_ROWS:,} rows), or make it the `--labels`"
            ) from None


def _parse_float(field: str) -> float:
    text = field.strip()
    if text in _TRUTHS:
        return float(_TRUTHS[text])
    if text in _MISSING:
        return math.nan
    if "_" in text:  # Python's spelling of long numbers, nobody else's
        raise ValueError
    return float(text)


def _parse_integer(field: str, dtype: np.dtype[Any]) -> int:
    number = _TRUTHS[field.strip()] if field.strip() in _TRUTHS else int(field)
    if "_" in field or not np.iinfo(dtype).min <= number <= np.iinfo(dtype).max:
        raise ValueError
    return number


def _is_number(field: str) -> bool:
    try:
        _parse_float(field)
    except ValueError:
        return False
    return True


def _is_header(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether a line has names: words, or the numbers that pandas gives to columns without names.

    These are 0, 1, 2, ..., more of them than chance makes or above fractions; or any that count up, such as
    years, behind a field that is empty in no other line.
    """
    if not all(map(_is_number, first)):
        return True
    fields = [field.strip() for field in first]
    index = next((i for i, field in enumerate(fields) if field), len(fields))
    numbers = fields[index:]
    if not rows or not numbers or not _counts(numbers):
        return False
    if index:
        alone = len(numbers) == 1 and numbers != ["0"]
        return not alone and all(row[i].strip() for row in rows for i in range(index))
    goes_on = _counts([*numbers, *(field.strip() for field in rows[0])])
    unlike = len(numbers) >= _UNLIKELY or any("." in field for row in rows for field in row)
    return numbers[0] == "0" and len(numbers) > 1 and unlike and not goes_on


def _counts(fields: Sequence[str]) -> bool:
    """Whether each is one more than the one before it."""
    return fields[0].isdecimal() and list(fields) == [str(int(fields[0]) + i) for i in range(len(fields))]


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
        try:
            rows = list(csv.reader(sample, delimiter=delimiter))
        except csv.Error:  # whole lines that are too long to be a field
            return 0, 0
        agreeing = sum(1 < len(row) == len(rows[0]) for row in rows)
        return agreeing, sum(map(_is_number, rows[-1])) if rows else 0

    found = max(_DELIMITERS, key=agreement)
    by_spaces = not agreement(found)[0] and 0 < len(sample) == agreement(" ")[0]  # as numpy.savetxt writes
    return " " if by_spaces else found


def _text(path: Path, raw: IO[bytes]) -> io.TextIOWrapper:
    data = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
    return io.TextIOWrapper(data, encoding="utf-8-sig")  # spreadsheets put a byte order mark first


def _lines(path: Path, text: io.TextIOWrapper) -> list[str]:
    """The next lines, a few megabytes of them, each of them bounded: a small file may decompress to one."""
    lines: list[str] = []
    left = _BATCH_CHARACTERS
    while left > 0 and (line := text.readline(_LONGEST_LINE)):
        _require_line(path, line)
        lines.append(line)
        left -= len(line)
    return lines


def _require_line(path: Path, line: str) -> None:
    if len(line) == _LONGEST_LINE:
        raise DataError(f"{path}: has a line that does not end; check that it is delimited text")


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8 text ({error.reason}); convert it, say with iconv") from error
    except csv.Error as error:
        raise DataError(
            f"{path}: cannot be split into fields ({error}); is a quote not closed, or is the delimiter "
            "another one (`--delimiter`)?"
        ) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: cannot be decompressed ({error}); copy or compress it again") from error
