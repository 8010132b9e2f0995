"""What people see of a fit: the facts and tables of its model, whatever the method."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from streamdr.core.facts import Column, Fact, Table, explained_variances, notes
from streamdr.workflow import report_text
from streamdr.workflow.findings import ModelInspection
from streamdr.workflow.reports import FitReport, RunReport

KERNELS = Table(
    "kernels",
    (Column("kernel"), Column("unexplained", "%", bars=True), Column("spread", "%")),
    (
        ("rbf gamma=0.1", 0.2, 0.0123),
        ("poly degree=3 coef0=1", 0.4, 0.03),
        ("linear", 0.8, 0.002),
    ),
)
FACTS = (
    Fact("solver", "nystrom"),
    Fact("components", 1234),
    Fact("explained", 0.75, "% of the variance"),
    Fact("likelihood", -1.23456789, "nats a row"),
    Fact("converged", True),
    Fact("kernel", "rbf gamma=0.1"),
    *notes(["the first", "the second"]),
)
TABLES = (KERNELS, *explained_variances(np.array([0.5, 0.25]), 8.0))
FIT = FitReport(
    n_rows=1000,
    n_cols=5,
    n_left_out=0,
    method="kernel_pca",
    summary={"kernels": "are not read"},
    bytes_read=0,
    seconds=0.0,
    peak_rss=0,
    model="out/model.zarr",
    reused=True,
    because="it was fitted to this input with these parameters",
    planned=None,
    facts=FACTS,
    tables=TABLES,
)
MODEL = ModelInspection(
    path="out/model.zarr",
    method="kernel_pca",
    parameters={"n_components": 2},
    n_features=5,
    n_left_out=0,
    n_outputs=2,
    summary={"kernels": "are not read"},
    input="x.zarr",
    n_rows=1000,
    created="today",
    version="0",
    facts=FACTS,
    tables=TABLES,
)
RUN = RunReport(peak_rss=0, model="out/model.zarr", embedding=None, fit=FIT, transform=None)
LISTED = """
  kernel                 unexplained    spread
  rbf gamma=0.1              20.000%    1.230%  ██████
  poly degree=3 coef0=1      40.000%    3.000%  ████████████
  linear                     80.000%    0.200%  ████████████████████████

  component  variance     ratio  cumulative
          1         4   50.000%     50.000%  ████████████████████████
          2         2   25.000%     75.000%  ████████████"""
SAID = {
    "solver": "nystrom",
    "components": "1,234",
    "explained": "75.00% of the variance",
    "likelihood": "-1.23457 nats a row",
    "converged": "yes",
    "kernel": "rbf gamma=0.1",
}


@pytest.mark.parametrize(
    "text", [report_text.fitted(FIT), report_text.ran(RUN), report_text.inspected(MODEL)], ids=len
)
def test_facts_are_lines_and_tables_follow(text):
    assert text.endswith(LISTED)
    lines = [line.split(maxsplit=1) for line in text.removesuffix(LISTED).splitlines()[1:]]
    assert {name: value for name, value in lines if name in SAID} == SAID
    assert [value for name, value in lines if name == "note"] == ["the first", "the second"]
    assert "are not read" not in text


def test_no_bar_is_longer_than_the_longest():
    text = report_text.fitted(replace(FIT, tables=explained_variances(np.array([0.25, 0.5]), 8.0)))
    assert text.endswith(f"25.000%  {'█' * 12}\n          2         4   50.000%     75.000%  {'█' * 24}")


def test_a_long_table_ends():
    many = tuple((f"rbf gamma={n}", 0.1 + n / 100, 0.0) for n in range(25))
    text = report_text.fitted(replace(FIT, tables=(replace(KERNELS, rows=many, left_out=1000), *TABLES[1:])))
    assert "rbf gamma=19 " in text
    assert "rbf gamma=20 " not in text
    assert "  ... and 1,005 more\n" in text


def test_what_is_zero_has_no_bar():
    text = report_text.fitted(replace(FIT, tables=(replace(KERNELS, rows=(("linear", 0.0, 0.0),)),)))
    assert text.endswith("\n  linear       0.000%    0.000%")


def test_a_number_below_zero_has_a_bar_of_its_size():
    table = Table("scores", (Column("column"), Column("score", bars=True)), ((3, -0.5), (14, 1.0)))
    text = report_text.fitted(replace(FIT, tables=(table,)))
    assert text.endswith(f"  column  score\n       3   -0.5  {'█' * 12}\n      14      1  {'█' * 24}")


def test_a_table_without_rows_is_not_shown():
    assert "unexplained" not in report_text.fitted(
        replace(FIT, tables=(replace(KERNELS, rows=()), *TABLES[1:]))
    )


def test_what_a_model_says_is_kept_on_its_line():
    hostile = "a\nINJECTED \x1b[2J"
    facts, table = (Fact(hostile, hostile, hostile),), replace(KERNELS, rows=((hostile, 0.1, 0.1),))
    text = report_text.fitted(replace(FIT, facts=facts, tables=(table,)))
    assert "\x1b" not in text
    assert "\nINJECTED" not in text
