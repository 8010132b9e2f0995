"""The table of a comparison: as text for the terminal, as Markdown, and as comma-separated values."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any

from streamdr.core.byte_sizes import format_bytes
from streamdr.core.safe_text import one_line

if TYPE_CHECKING:
    from streamdr.workflow.reports import ComparedMethod

_ABSENT = "-"
_MARKUP = re.compile(r"[|<`\[]")
"""Characters that have a meaning in a cell of a Markdown table."""


@dataclass(frozen=True)
class ComparisonColumn:
    """One column: its key for programs, its title, its value, and how the value is formatted for people."""

    key: str
    title: str
    value: Callable[[ComparedMethod], Any]
    show: Callable[[Any], str] = str
    words: bool = False
    """Whether it is text, which is aligned left."""

    def cell(self, row: ComparedMethod) -> str:
        """Return the value of a row, formatted for people."""
        value = self.value(row)
        return _ABSENT if value is None else one_line(self.show(value))


def format_parameters(parameters: Mapping[str, Any]) -> str:
    """Return the parameters on one line."""
    shown = (
        (name, value if isinstance(value, str) else json.dumps(value)) for name, value in parameters.items()
    )
    return ", ".join(f"{name}={value}" for name, value in shown)


COLUMNS = (
    ComparisonColumn("name", "name", lambda row: row.name, words=True),
    ComparisonColumn("method", "method", lambda row: row.method, words=True),
    ComparisonColumn("n_outputs", "dimensions", lambda row: row.n_outputs, "{:,}".format),
    ComparisonColumn("seconds", "seconds", lambda row: row.seconds, "{:.2f}".format),
    ComparisonColumn("bytes_read", "read", lambda row: row.bytes_read, format_bytes),
    ComparisonColumn("peak_rss", "peak memory", lambda row: row.peak_rss, format_bytes),
    ComparisonColumn("trustworthiness", "trustworthiness", lambda row: row.trustworthiness, "{:.3f}".format),
    ComparisonColumn("stress", "stress-1", lambda row: row.stress, "{:.3f}".format),
    ComparisonColumn("accuracy", "1-NN accuracy", lambda row: row.accuracy, "{:.1%}".format),
    ComparisonColumn("parameters", "parameters", lambda row: row.parameters, format_parameters, words=True),
)

_IDENTIFYING = [
    column for column in COLUMNS if column.key in ("name", "method", "peak_rss", "trustworthiness")
]
"""The columns that every version has written. Their titles identify a table."""


def text(rows: Sequence[ComparedMethod]) -> str:
    """Return the table as aligned text. The method is left out where every name is that of its method."""
    columns = [column for column in COLUMNS if column.key != "method" or _renamed(rows)]
    lines = [
        [column.title for column in columns],
        *([column.cell(row) for column in columns] for row in rows),
    ]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column.words else cell.rjust(width)
            for column, cell, width in zip(columns, line, widths, strict=True)
        ).rstrip()
        for line in lines
    )


def cells(rows: Sequence[ComparedMethod]) -> list[dict[str, str]]:
    """Return the table formatted for people: one mapping from titles to cells per row."""
    return [{column.title: column.cell(row) for column in COLUMNS} for row in rows]


def markdown(rows: Sequence[ComparedMethod]) -> str:
    """Return the table as Markdown."""
    lines = [
        [column.title for column in COLUMNS],
        ["---" if column.words else "---:" for column in COLUMNS],
        *([_MARKUP.sub(r"\\\g<0>", column.cell(row)) for column in COLUMNS] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def comma_separated(rows: Sequence[ComparedMethod]) -> str:
    """Return the table for programs: plain numbers, parameters as JSON, empty cells for missing values."""
    file = StringIO()
    table = csv.writer(file, lineterminator="\n")
    table.writerow([column.key for column in COLUMNS])
    for row in rows:
        values = [column.value(row) for column in COLUMNS]
        table.writerow([json.dumps(value) if isinstance(value, dict) else value for value in values])
    return file.getvalue()


def is_comparison(text: str) -> bool:
    """Whether a text is the table of a comparison, as Markdown or CSV, and nothing else."""
    if text.startswith("|"):
        lines = text.removesuffix("\n").split("\n")
        titles = [cell.strip() for cell in lines[0].strip("|").split("|")]
        return {column.title for column in _IDENTIFYING} <= set(titles) and all(
            line.startswith("| ") and line.endswith(" |") for line in lines
        )
    try:
        head, *rows = csv.reader(StringIO(text))
    except (ValueError, csv.Error):
        return False
    return {column.key for column in _IDENTIFYING} <= set(head) and all(len(row) == len(head) for row in rows)


def _renamed(rows: Sequence[ComparedMethod]) -> bool:
    """Whether any row has another name than its method."""
    return any(row.name != row.method for row in rows)
