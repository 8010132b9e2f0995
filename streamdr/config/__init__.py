"""Configuration: from YAML to a typed run, and the JSON Schema that editors use."""

from __future__ import annotations

from streamdr.config.comparisons import Comparison, ComparisonOutput
from streamdr.config.loading import (
    load,
    load_all,
    load_comparison,
    parse,
    parse_comparison,
    read,
    read_comparison,
)
from streamdr.config.row_selection import RowSelection
from streamdr.config.run import Run
from streamdr.config.schema import comparison_schema, schema
from streamdr.config.sections import ExecutionSection, Input, Output

__all__ = [
    "Comparison",
    "ComparisonOutput",
    "ExecutionSection",
    "Input",
    "Output",
    "RowSelection",
    "Run",
    "comparison_schema",
    "load",
    "load_all",
    "load_comparison",
    "parse",
    "parse_comparison",
    "read",
    "read_comparison",
    "schema",
]
