"""The time that is expected of each pass of a fit, and of what follows it."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import zarr

from streamdr.core.blocks import Block, Part, Span
from streamdr.core.execution import Execution
from streamdr.core.method import Pass
from streamdr.core.work import KINDS, Count, Work
from streamdr.data import open_source
from streamdr.engine import fitting
from streamdr.engine.calibration import Calibration, Speed
from streamdr.engine.forecast import Expected, Forecast
from streamdr.engine.work_stages import Stage
from streamdr.methods.pca import PCA
from streamdr.methods.ppca import PPCA, PPCAMixture
from streamdr.methods.som import SOM
from streamdr.statistics.moments import Moments

ONE = Calibration(1, dict.fromkeys(KINDS, Speed(1.0, 1.0)), start=1.0)
SAMPLE = Stage(Work(moved=2.0), Work(moved=1.0), part=True)
ALL = Stage(Work(moved=10.0), Work(moved=3.0), count=Count(2, 4, 9))
LAST = Stage(Work(moved=5.0), axis="columns")
KEPT = Stage(Work(moved=7.0), reads=False)

SOME_ROWS = Pass(Moments(2), part=Part(0, 4))
ROWS = Pass(Moments(2))
COLUMNS = Pass(Moments(2), axis="columns")
IN_MEMORY = Pass(Moments(2), in_memory=Block(Span(0, 1), np.zeros((1, 2))))


def test_passes_are_followed_through_their_stages():
    forecast = Forecast([SAMPLE, ALL, LAST], speeds=ONE)
    assert forecast.begin(SOME_ROWS) == Expected(2.0, 1.0 + 4 * 13.0 + 5.0)
    assert forecast.begin(ROWS) == Expected(10.0, 3.0 + 3 * 13.0 + 5.0)
    assert forecast.begin(ROWS) == Expected(10.0, 3.0 + 2 * 13.0 + 5.0)
    assert forecast.begin(COLUMNS) == Expected(5.0, 0.0)


def test_more_passes_than_usual_are_expected_one_at_a_time():
    forecast = Forecast([ALL, LAST], speeds=ONE)
    expected = [forecast.begin(ROWS) for _ in range(9)]
    assert expected[4:] == [Expected(10.0, 3.0 + 5.0)] * 5
    assert forecast.begin(ROWS) == Expected()


def test_stages_that_are_skipped_are_not_expected_any_more():
    forecast = Forecast([SAMPLE, ALL, LAST], speeds=ONE)
    assert forecast.begin(COLUMNS) == Expected(5.0, 0.0)
    assert forecast.begin(ROWS) == Expected()


def test_rows_in_memory_have_stages_of_their_own():
    forecast = Forecast([ALL, KEPT], speeds=ONE)
    assert forecast.begin(ROWS).seconds == 10.0
    assert forecast.begin(IN_MEMORY) == Expected(7.0, 0.0)


def test_after_a_missing_value_the_fallback_is_expected():
    forecast = Forecast([ALL], [SAMPLE, LAST], ONE)
    forecast.begin(ROWS)
    forecast.missing()
    assert forecast.begin(SOME_ROWS) == Expected(2.0, 1.0 + 5.0)


def test_without_speeds_nothing_is_expected():
    assert Forecast([ALL]).begin(ROWS) == Expected()
    assert Forecast().begin(ROWS) == Expected()


class Starts:
    """Keeps what passes begin with."""

    def __init__(self):
        self.passes = []

    def start(self, begun):
        self.passes.append(begun)

    def advance(self, rows):
        pass

    def finish(self):
        pass

    def message(self, text):
        pass


METHODS = {
    "covariance": PCA(2, solver="covariance"),
    "gram": PCA(2, solver="gram"),
    "krylov": PCA(2, solver="krylov"),
    "em": PPCA(2, method="em", max_iter=3),
    "mixture": PPCAMixture(2, n_mixtures=2, max_iter=3),
    "som": SOM(3, 3, n_epochs=3),
}


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())
def test_every_pass_of_a_fit_is_predicted(tmp_path, method):
    rows = np.random.default_rng(0).standard_normal((600, 8)).astype("f4")
    zarr.create_array(tmp_path / "x.zarr", data=rows, chunks=(50, 8))
    progress = Starts()
    fitting.fit(method, open_source(tmp_path / "x.zarr"), Execution(workers=1), progress=progress)
    assert progress.passes
    assert all(begun.seconds > 0 for begun in progress.passes)
    assert all(begun.later_seconds >= 0 for begun in progress.passes)
    assert progress.passes[0].later_seconds > progress.passes[-1].later_seconds or len(progress.passes) == 1


def test_a_fallback_is_predicted_where_values_are_missing(tmp_path):
    rows = np.random.default_rng(0).standard_normal((600, 8)).astype("f4")
    rows[::7, 3] = np.nan
    zarr.create_array(tmp_path / "x.zarr", data=rows, chunks=(50, 8))
    progress = Starts()
    source = open_source(tmp_path / "x.zarr")
    fitting.fit(PPCA(2, max_iter=3), source, Execution(), progress=progress, stop=threading.Event())
    assert all(begun.seconds > 0 for begun in progress.passes)
