"""Reading CSV and other delimited text, a few megabytes of lines at a time."""

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
_MAX_LINE = 2**26
_DETECTION_LINES = 20
_SAMPLED_ROWS = 1000
_DELIMITERS = (",", "\t", ";", "|")
_HEADER_REMARK = "the first line is read as the names of columns; `--no-header` reads it as a row"
_MIN_COUNTING = 8
"""A first line with at least this many numbers 0, 1, 2, ... is a header: data rarely starts like this."""
_MISSING = frozenset({"", "NA", "N/A", "NULL", "null"})
_BOOLEANS = {"True": 1, "TRUE": 1, "true": 1, "False": 0, "FALSE": 0, "false": 0}
"""Booleans as pandas, R and others write them. They are read as numbers, as in other formats."""


@contextmanager
def open_delimited(path: Path, options: Options) -> Iterator[Stream]:
    """Open a .csv or .tsv file, gzipped or not. Delimiter and header are detected unless they are given."""
    with open_regular(path) as raw, _text(path, raw) as text:
        with _naming(path):
            lines = [text.readline(_MAX_LINE), *_lines(path, text)]
            _require_line(path, lines[0])
            delimiter = _delimiter(path, lines, options.delimiter)
            reader = csv.reader(lines, delimiter=delimiter)
            first = next((row for row in reader if not _is_empty_line(row)), None)
            if first is None:
                raise DataError(f"{path}: has no rows; check that this is the right file")
            sample = _Sample.of(lines[reader.line_num :], delimiter, len(first))
        has_header = options.header if options.header is not None else _is_header(first, sample.rows)
        names = tuple(name.strip() for name in first) if has_header else None
        guessed = has_header and options.header is None and all(map(_is_number, first))
        header_remarks = (_HEADER_REMARK,) if guessed else ()
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
            dtype = options.dtype  # long integers are not exact in float64
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
            remarks=(*header_remarks, *chosen.remarks),
        )


@dataclass(frozen=True)
class _Sample:
    """The first rows of a file, from which the types of its columns are determined."""

    rows: list[list[str]]

    @classmethod
    def of(cls, lines: list[str], delimiter: str, n_fields: int) -> _Sample:
        """Return the sample of the first rows in lines."""
        rows = islice(csv.reader(lines, delimiter=delimiter), _SAMPLED_ROWS)
        return cls([row for row in rows if len(row) == n_fields and not _is_empty_line(row)])

    def is_number(self, column: int) -> bool:
        """Whether all fields of a column are numbers."""
        return all(_is_number(row[column]) for row in self.rows)

    def counts_rows(self, column: int) -> bool:
        """Whether a column numbers the rows, from 0 or from 1."""
        fields = [row[column].strip() for row in self.rows]
        return len(fields) > 1 and fields[0] in ("0", "1") and _counts(fields)

    def label_kind(self, column: int) -> LabelKind:
        """Return the type of labels in a column."""
        fields = [row[column].strip() for row in self.rows]
        if not all(map(_is_number, fields)) or not _BOOLEANS.keys().isdisjoint(fields):
            return "text"
        return "int64" if all(field.lstrip("+-").isdecimal() for field in fields) else "float64"


@dataclass(frozen=True)
class _Parser:
    """Parses lines to numbers and labels."""

    path: Path
    delimiter: str
    n_fields: int
    used: list[int]
    names: Sequence[str] | None
    dtype: np.dtype[Any]
    labels: int | None = None
    label_kind: LabelKind | None = None

    def parse(self, lines: list[str], first_line: int) -> tuple[Array, Array | None]:
        """Return the numbers in consecutive lines, and the labels if a column has them.

        numpy parses plain lines. Others are parsed field by field.
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
                pass  # a field is missing or not a number: parse field by field to locate it
        return self._parse_fields(lines, first_line)

    def _is_plain(self, line: str) -> bool:
        """Whether numpy can parse a line: all fields, without quotes."""
        return line.count(self.delimiter) == self.n_fields - 1 and '"' not in line and not line.isspace()

    def _labels(self, rows: list[tuple[int, list[str]]]) -> Array | None:
        """Return the labels of rows, which are given with their line numbers."""
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
                    f"{self.path}: line {line}: the label {field!r} is not {self.label_kind}; correct it"
                ) from None
        return as_labels(found, self.label_kind)

    def _parse_fields(self, lines: list[str], first_line: int) -> tuple[Array, Array | None]:
        """Return the numbers and labels of lines, parsed field by field."""
        reader = csv.reader(lines, delimiter=self.delimiter)
        rows, read = [], []
        with _naming(self.path):
            for fields in reader:
                line = first_line + reader.line_num - 1
                if _is_empty_line(fields):
                    continue
                if len(fields) != self.n_fields:
                    raise DataError(
                        f"{self.path}: line {line} has {len(fields)} fields where the first line has "
                        f"{self.n_fields}; correct or remove this line, or give the `--delimiter`"
                    )
                rows.append([self._number(fields[column], line, column) for column in self.used])
                if self.labels is not None:
                    read.append((line, fields))
        return np.array(rows, self.dtype).reshape(-1, len(self.used)), self._labels(read)

    def _number(self, field: str, line: int, column: int) -> float:
        """Return a field as a number. Errors name the line and the column."""
        try:
            return _parse_float(field) if self.dtype.kind == "f" else _parse_integer(field, self.dtype)
        except ValueError:
            name = f"column {column}" + (f" ({self.names[column]!r})" if self.names else "")
            text = field if len(field) <= 40 else f"{field[:40]}..."
            raise DataError(
                f"{self.path}: line {line}, {name}: {text!r} cannot be read as {self.dtype}; "
                "correct it, leave the column out with `--exclude` (or with `--numeric-only` every one that "
                f"is not numeric in the first {_SAMPLED_ROWS:,} rows), or make it the `--labels`"
            ) from None


def _parse_float(field: str) -> float:
    """Return a field as a float, NaN if it is missing."""
    text = field.strip()
    if text in _BOOLEANS:
        return float(_BOOLEANS[text])
    if text in _MISSING:
        return math.nan
    if "_" in text:  # only Python writes numbers like this
        raise ValueError
    return float(text)


def _parse_integer(field: str, dtype: np.dtype[Any]) -> int:
    """Return a field as an integer in the range of a type."""
    number = _BOOLEANS[field.strip()] if field.strip() in _BOOLEANS else int(field)
    if "_" in field or not np.iinfo(dtype).min <= number <= np.iinfo(dtype).max:
        raise ValueError
    return number


def _is_number(field: str) -> bool:
    """Whether a field is a number, a boolean or missing."""
    try:
        _parse_float(field)
    except ValueError:
        return False
    return True


def _is_header(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether a line is a header: words, or the numbers that pandas gives to columns without names.

    Such numbers are 0, 1, 2, ..., if there are many of them or if fractions follow below. They may also be
    any consecutive numbers, such as years, after a field that is empty in this line only.
    """
    if not all(map(_is_number, first)):
        return True
    fields = [field.strip() for field in first]
    index = next((i for i, field in enumerate(fields) if field), len(fields))
    numbers = fields[index:]
    if not rows or not numbers or not _counts(numbers):
        return False
    if index:
        single = len(numbers) == 1 and numbers != ["0"]
        return not single and all(row[i].strip() for row in rows for i in range(index))
    continues = _counts([*numbers, *(field.strip() for field in rows[0])])
    unlike_data = len(numbers) >= _MIN_COUNTING or any("." in field for row in rows for field in row)
    return numbers[0] == "0" and len(numbers) > 1 and unlike_data and not continues


def _counts(fields: Sequence[str]) -> bool:
    """Whether fields are consecutive integers."""
    return fields[0].isdecimal() and list(fields) == [str(int(fields[0]) + i) for i in range(len(fields))]


def _is_empty_line(row: Sequence[str]) -> bool:
    """Whether the fields are those of an empty line."""
    return len(row) <= 1 and not "".join(row).strip()


def _delimiter(path: Path, lines: Sequence[str], given: str | None) -> str:
    """Return the given delimiter, or the one with which most lines have as many fields as the first."""
    if given is not None:
        given = "\t" if given == r"\t" else given
        if len(given) != 1 or given in '"\r\n':
            raise ConfigError(f"delimiter is {given!r}, but must be a single character, other than a quote")
        return given
    if ".tsv" in path.suffixes:
        return "\t"
    sample = [line for line in lines if not line.isspace()][:_DETECTION_LINES]

    def agreement(delimiter: str) -> tuple[int, int]:
        try:
            rows = list(csv.reader(sample, delimiter=delimiter))
        except csv.Error:  # a line is too long for one field
            return 0, 0
        agreeing = sum(1 < len(row) == len(rows[0]) for row in rows)
        return agreeing, sum(map(_is_number, rows[-1])) if rows else 0

    found = max(_DELIMITERS, key=agreement)
    by_spaces = (
        not agreement(found)[0] and 0 < len(sample) == agreement(" ")[0]
    )  # as written by numpy.savetxt
    return " " if by_spaces else found


def _text(path: Path, raw: IO[bytes]) -> io.TextIOWrapper:
    """Return the decoded text of a file, decompressed if it is gzipped."""
    data = gzip.GzipFile(fileobj=raw) if path.suffix == ".gz" else raw
    return io.TextIOWrapper(data, encoding="utf-8-sig")  # spreadsheets write a byte order mark first


def _lines(path: Path, text: io.TextIOWrapper) -> list[str]:
    """Return the next lines, a few megabytes. Their length is limited: a small file may decompress to one."""
    lines: list[str] = []
    left = _BATCH_CHARACTERS
    while left > 0 and (line := text.readline(_MAX_LINE)):
        _require_line(path, line)
        lines.append(line)
        left -= len(line)
    return lines


def _require_line(path: Path, line: str) -> None:
    """Raise an error if a line has reached the maximum length."""
    if len(line) == _MAX_LINE:
        raise DataError(f"{path}: has a line that is too long; check that it is delimited text")


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Convert errors of decoding and parsing to a DataError that names the file."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: is not UTF-8 text ({error.reason}); convert it, for example with iconv"
        ) from error
    except csv.Error as error:
        raise DataError(
            f"{path}: cannot be split into fields ({error}); is a quote not closed, or is the delimiter "
            "another one (`--delimiter`)?"
        ) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: cannot be decompressed ({error}); copy or compress it again") from error
