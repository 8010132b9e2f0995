"""The table of peaks, where pytest looks for fixtures and hooks."""

from memory_table import pytest_terminal_summary, table

__all__ = ["pytest_terminal_summary", "table"]
