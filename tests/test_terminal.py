"""What people see of a search for a kernel: every candidate, from the best to the worst, with its spread."""

from __future__ import annotations

import pytest

from streamdr import terminal

KERNELS = [
    {"kernel": "rbf gamma=0.1", "error": 0.2, "spread": 0.0123},
    {"kernel": "poly degree=3 coef0=1", "error": 0.4, "spread": 0.03},
    {"kernel": "linear", "error": 0.8, "spread": 0.002},
]
SUMMARY = {
    "solver": "nystrom",
    "n_components": 2,
    "explained_variance_ratio": [0.5, 0.25],
    "kernel": "rbf gamma=0.1",
    "kernels": KERNELS,
    "notes": [],
}
FIT = {
    "method": "kernel_pca",
    "n_rows": 1000,
    "n_cols": 5,
    "reused": True,
    "model": "out/model.zarr",
    "summary": SUMMARY,
}
MODEL = {
    "kind": "model",
    "path": "out/model.zarr",
    "method": "kernel_pca",
    "parameters": {"n_components": 2},
    "n_features": 5,
    "n_outputs": 2,
    "summary": SUMMARY,
    "input": "x.zarr",
    "n_rows": 1000,
    "created": "today",
    "version": "0",
}
TABLE = """
  kernel                 unexplained    spread
  rbf gamma=0.1              20.000%    1.230%  ██████
  poly degree=3 coef0=1      40.000%    3.000%  ████████████
  linear                     80.000%    0.200%  ████████████████████████

  component  variance    in all
          1   50.000%   50.000%  ████████████████████████
          2   25.000%   75.000%  ████████████"""


@pytest.mark.parametrize(
    "text", [terminal.fitted(FIT), terminal.ran({"fit": FIT}), terminal.inspected(MODEL)], ids=len
)
def test_the_kernels_of_a_search_are_a_table(text):
    assert text.endswith(TABLE)
    assert "kernels" not in text.removesuffix(TABLE), "what the table says is not said twice"
    assert "rbf gamma=0.1" in text.removesuffix(TABLE)


def test_no_bar_is_longer_than_the_longest():
    text = terminal.fitted({**FIT, "summary": {**SUMMARY, "explained_variance_ratio": [0.25, 0.5]}})
    assert text.endswith(f"25.000%  {'█' * 12}\n          2   50.000%   75.000%  {'█' * 24}")


def test_a_long_table_ends():
    many = [{"kernel": f"rbf gamma={n}", "error": 0.1 + n / 100, "spread": 0.0} for n in range(25)]
    text = terminal.fitted({**FIT, "summary": {**SUMMARY, "kernels": many}})
    assert "rbf gamma=19 " in text
    assert "rbf gamma=20 " not in text
    assert "  ... and 5 more\n" in text


def test_kernels_that_explain_everything_have_no_bar():
    kernels = [{"kernel": "linear", "error": 0.0, "spread": 0.0}]
    text = terminal.fitted({**FIT, "summary": {**SUMMARY, "kernels": kernels}})
    assert "  linear       0.000%    0.000%\n" in text


def test_a_fit_without_a_search_has_no_such_table():
    summary = {name: value for name, value in SUMMARY.items() if name != "kernels"}
    assert "unexplained" not in terminal.fitted({**FIT, "summary": summary})
