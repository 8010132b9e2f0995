"""A table of planned and measured memory at the end of the tests."""

from __future__ import annotations

import pytest

MIB = 1 << 20
_TABLE: list[tuple[str, str, int, int, int]] = []


@pytest.fixture
def table():
    """The rows of the table: case, stage, limit, planned and peak, in bytes."""
    return _TABLE


def pytest_terminal_summary(terminalreporter):
    if not _TABLE:
        return
    terminalreporter.section("memory, in MiB")
    terminalreporter.write_line(f"{'case':38} {'stage':17} {'limit':>7} {'planned':>8} {'peak':>7}")
    for case, stage, *sizes in _TABLE:
        limit, planned, peak = (round(size / MIB) for size in sizes)
        over = "  over the plan" if sizes[2] > sizes[1] else "  over the limit" if sizes[1] > sizes[0] else ""
        terminalreporter.write_line(f"{case:38} {stage:17} {limit:7} {planned:8} {peak:7}{over}")
    within = sum(peak <= planned <= limit for _, _, limit, planned, peak in _TABLE)
    terminalreporter.write_line(f"{within} of {len(_TABLE)} stages stayed within plan and limit")
