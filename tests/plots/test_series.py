"""Scores are drawn over the times of their rows: each interval of them has its mean, and its range."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray
from embeddings import write_embedding

import streamdr
from streamdr import plots
from streamdr.core.blocks import Array
from streamdr.core.cf_time import TimeAxis
from streamdr.errors import DataError, StoreError
from streamdr.plots.time_labels import time_labels

DAYS = {"units": "days since 1990-01-01", "calendar": "noleap"}


def scores(n: int, k: int = 2) -> Array:
    return np.random.default_rng(0).normal(size=(n, k)) * np.arange(k, 0, -1)


def line(axes: Any) -> tuple[Array, Array]:
    """The positions and the means that are drawn."""
    x, y = axes.lines[0].get_data()
    return np.asarray(x), np.asarray(y)


def envelope(axes: Any) -> list[tuple[float, float, float]]:
    """The position, the least and the greatest score of each interval."""
    (area,) = axes.collections
    corners = area.get_paths()[0].vertices
    found: dict[float, list[float]] = {}
    for x, y in corners:
        found.setdefault(float(x), []).append(float(y))
    return [(x, min(values), max(values)) for x, values in sorted(found.items())]


def labels(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.axes[-1].get_xticklabels()]


def title(axes: Any) -> str:
    return str(axes.get_title(loc="left"))


def test_few_rows_are_drawn_as_they_are(tmp_path: Path) -> None:
    values, times = scores(120), np.arange(120) * 30.0
    place = write_embedding(tmp_path / "z.zarr", values, {"time": (times, DAYS)}, dim="time", chunk_rows=50)
    figure = plots.series(place)
    assert len(figure.axes) == 2
    for number, axes in enumerate(figure.axes):
        x, y = line(axes)
        np.testing.assert_allclose(x, times, rtol=1e-12)
        np.testing.assert_array_equal(y, values[:, number])
        assert not axes.collections  # no interval has two rows
    assert labels(figure) == [str(year) for year in range(1990, 2000, 2)]
    np.testing.assert_array_equal(figure.axes[1].get_xticks(), [0, 730, 1460, 2190, 2920])
    assert figure.get_suptitle() == "120 samples"


def test_rows_that_share_pixels_are_their_mean_and_their_range() -> None:
    n = 2_000 * 5
    values = scores(n)
    figure = plots.series(values)
    for number, axes in enumerate(figure.axes):
        grouped = values[:, number].reshape(2000, 5)
        x, y = line(axes)
        np.testing.assert_allclose(x, np.arange(n).reshape(2000, 5).mean(axis=1), atol=0.5)
        np.testing.assert_allclose(y, grouped.mean(axis=1), rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose([low for _, low, _ in envelope(axes)], grouped.min(axis=1))
        np.testing.assert_allclose([high for _, _, high in envelope(axes)], grouped.max(axis=1))
    assert figure.axes[1].get_xlabel() == "row"


def test_members_of_an_ensemble_meet_at_their_times_in_any_order_of_rows(tmp_path: Path) -> None:
    times, members = np.repeat(np.arange(40), 7), np.tile(np.arange(7), 40)
    values = scores(280)
    for name, order in (("steps", np.arange(280)), ("members", np.argsort(members, kind="stable"))):
        coordinates = {"member": (members[order], {}), "time": (times[order].astype("i8"), DAYS)}
        figure = plots.series(write_embedding(tmp_path / name, values[order], coordinates, chunk_rows=64))
        x, y = line(figure.axes[0])
        np.testing.assert_array_equal(x, np.arange(40))
        np.testing.assert_allclose(y, values[:, 0].reshape(40, 7).mean(axis=1), rtol=1e-12)
        assert [low for _, low, _ in envelope(figure.axes[0])] == list(
            values[:, 0].reshape(40, 7).min(axis=1)
        )


@pytest.mark.parametrize(
    ("units", "low", "high", "expected"),
    [
        ("days since 1850-01-01", 0, 50_000, "1860 1880 1900 1920 1940 1960 1980"),
        ("days since 1999-11-01", 0, 600, "2000-01 2000-04 2000-07 2000-10 2001-01 2001-04"),
        ("hours since 2001-12-20", 0, 600, "2001-12-21 2001-12-26 2002-01-01 2002-01-06 2002-01-11"),
        ("hours since 2001-12-31", 21, 25, "2001-12-31T21:00 2001-12-31T22:00 2001-12-31T23:00 "
                                           "2002-01-01T00:00 2002-01-01T01:00"),
        ("seconds since 2001-01-01", 10, 15, "2001-01-01T00:00:10 2001-01-01T00:00:15"),
        ("days since 2001-01-01", 3, 3, "2001-01-04"),
    ],
)  # fmt: skip
def test_times_are_labelled_in_their_calendar(units: str, low: float, high: float, expected: str) -> None:
    axis = TimeAxis(units, "noleap")
    positions, texts = time_labels(axis, low, high)
    assert [text.replace("\n", "T") for text in texts] == expected.split()
    assert positions == [axis.interval(date)[0] for date in expected.split()]


def test_a_coordinate_of_the_rows_that_is_no_time_is_used_too(tmp_path: Path) -> None:
    years = {"year": (np.arange(1900, 1950), {"units": "year"})}
    figure = plots.series(write_embedding(tmp_path / "z.zarr", scores(50), years, dim="year"))
    np.testing.assert_allclose(line(figure.axes[0])[0], np.arange(1900, 1950))
    assert figure.axes[1].get_xlabel() == "year (year)"
    # Months since a date differ in length: they are numbers, and not dates.
    months = {"time": (np.arange(50), {"units": "months since 1990-01-01"})}
    figure = plots.series(write_embedding(tmp_path / "m.zarr", scores(50), months, dim="time"))
    assert figure.axes[1].get_xlabel() == "time (months since 1990-01-01)"


@pytest.mark.parametrize("dim", ["time", "sample"])
def test_a_labelled_array_has_its_times_with_it(dim: str) -> None:
    times = np.datetime64("2000-01-01", "s") + np.arange(50) * np.timedelta64(31, "D")
    array = xarray.DataArray(scores(50), dims=(dim, "component"), coords={"time": (dim, times)})
    figure = plots.series(array)
    assert labels(figure) == ["2000", "2001", "2002", "2003", "2004"]
    x, y = line(figure.axes[0])
    np.testing.assert_allclose(x, times.astype("datetime64[ns]").astype("i8"), rtol=1e-15)
    np.testing.assert_array_equal(y, array.values[:, 0])
    depths = xarray.DataArray(scores(3), dims=("depth", "component"), coords={"depth": [5.0, 10.0, 20.0]})
    assert plots.series(depths).axes[1].get_xlabel() == "depth"
    assert plots.series(depths.drop_vars("depth")).axes[1].get_xlabel() == "row"


def test_coordinates_that_are_not_along_the_rows_are_not_used(tmp_path: Path) -> None:
    place = write_embedding(tmp_path / "z.zarr", scores(50), {"member": (np.arange(50), {})})
    assert plots.series(place).axes[1].get_xlabel() == "row"


@pytest.mark.parametrize("given", ["model", "estimator", "saved"])
def test_titles_have_the_share_that_a_component_explains(tmp_path: Path, given: str) -> None:
    X = np.random.default_rng(0).normal(size=(60, 4)) * [4, 3, 2, 1]
    estimator = streamdr.PCA(2).fit(X)
    estimator.save(tmp_path / "model.zarr")
    saved = streamdr.store.load_model(tmp_path / "model.zarr")
    model = {"model": estimator.model_, "estimator": estimator, "saved": saved}[given]
    figure = plots.series(estimator.transform(X), model=model)
    shares = 100 * estimator.explained_variance_ratio_
    assert [title(axes) for axes in figure.axes] == [
        f"component {n + 1}: {shares[n]:.1f} %" for n in range(2)
    ]


def test_names_are_text_and_no_formula(tmp_path: Path) -> None:
    place = write_embedding(tmp_path / "z.zarr", scores(50), names=["a$^2$\nb", "c" * 100])
    figure = plots.series(place, tmp_path / "series.svg")
    assert title(figure.axes[0]) == r"a\$^2\$\nb"
    assert len(title(figure.axes[1])) == 40


def test_of_many_components_the_first_are_drawn() -> None:
    figure = plots.series(scores(30, 9))
    assert len(figure.axes) == plots.MOST_SERIES
    assert figure.get_suptitle() == "30 samples: 6 of 9 components"


def test_rows_that_are_not_finite_are_left_out(tmp_path: Path) -> None:
    values, times = scores(30), np.arange(30)
    values[3, 1] = np.nan
    times[7] = np.iinfo(np.int64).min  # NaT
    figure = plots.series(write_embedding(tmp_path / "z.zarr", values, {"time": (times, DAYS)}, dim="time"))
    kept = np.delete(np.arange(30), [3, 7])
    np.testing.assert_allclose(line(figure.axes[0])[0], kept, rtol=1e-12)
    np.testing.assert_array_equal(line(figure.axes[0])[1], values[kept, 0])
    assert figure.get_suptitle() == "28 samples (2 not finite, left out)"


@pytest.mark.parametrize("kind", ["numpy", "float32", "dask", "one row", "one time"])
def test_rows_of_every_kind_are_drawn(tmp_path: Path, kind: str) -> None:
    values: Any = scores(30)
    if kind == "one row":
        values = values[:1]
    figure = plots.series(
        {
            "numpy": values,
            "float32": values.astype("f4"),
            "dask": da.from_array(values, chunks=(7, 2)),
            "one row": values,
            "one time": write_embedding(
                tmp_path / "z.zarr", scores(30), {"time": (np.full(30, 5.0), DAYS)}, dim="time"
            ),
        }[kind],
        tmp_path / "series.png",
    )
    expected = values[:, 0] if kind != "one time" else [values[:, 0].mean()]
    np.testing.assert_allclose(line(figure.axes[0])[1], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros(5), r"has the shape \(5,\); a series needs samples x components"),
        (np.zeros((0, 2)), "a series needs samples x components"),
        (np.full((4, 2), np.nan), "none of its 4 samples is finite"),
    ],
)
def test_what_cannot_be_drawn_is_refused(tmp_path: Path, values: Array, message: str) -> None:
    with pytest.raises(DataError, match=message):
        plots.series(values, tmp_path / "series.png")
    assert list(tmp_path.iterdir()) == []


def test_times_that_are_all_missing_are_refused(tmp_path: Path) -> None:
    times = {"time": (np.full(9, np.nan), DAYS)}
    place = write_embedding(tmp_path / "z.zarr", scores(9), times, dim="time")
    with pytest.raises(DataError, match=r"z\.zarr: no time of its 9 samples is a number"):
        plots.series(place)


def test_a_damaged_chunk_is_named(tmp_path: Path) -> None:
    place = write_embedding(tmp_path / "z.zarr", scores(300))
    chunk = place / "embedding" / "c" / "1" / "0"
    damaged = bytearray(chunk.read_bytes())
    damaged[10] ^= 1
    chunk.write_bytes(damaged)
    with pytest.raises(StoreError, match="rows 0-299"):
        plots.series(place)


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    code = textwrap.dedent("""
        import resource, sys
        import numpy as np
        from streamdr import plots

        class Rows:
            shape, dtype = (int(sys.argv[1]), 4), np.dtype("f4")
            def __getitem__(self, part):
                rows = np.arange(part[0].start, part[0].stop, dtype="f4")
                return np.sin(rows[:, None] * [1, 2, 3, 4])[:, part[1]]

        plots.series(Rows())
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    """)
    peaks = [
        int(subprocess.run([sys.executable, "-c", code, n], capture_output=True, check=True).stdout)
        for n in ("200000", "2000000")
    ]
    assert peaks[1] - peaks[0] < 8 * 1024  # KiB; the rows are 29 MB more
