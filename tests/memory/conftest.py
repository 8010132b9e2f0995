"""The fixture and the hook for the table of memory peaks."""

from memory_table import pytest_terminal_summary, table

__all__ = ["pytest_terminal_summary", "table"]
