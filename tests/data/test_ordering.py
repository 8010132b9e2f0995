"""Files in the order of their rows, and patterns that become files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fits import stored
from hypothesis import given
from hypothesis import strategies as st

from streamdr.core.blocks import Span
from streamdr.data import open_source
from streamdr.data.concatenated import ConcatenatedSource
from streamdr.data.expanding import expand, is_several, several_name
from streamdr.data.in_memory import ArraySource
from streamdr.data.ordering import ordered
from streamdr.data.source import SampleCoordinate
from streamdr.data.text_labels import TextArray
from streamdr.errors import ConfigError, DataError, InputError

DAYS = {"units": "days since 2000-01-01"}


def a_file(name, times, attributes=DAYS, coordinate="time", dims=("time",)):
    """Rows whose values are their times."""
    times = np.asarray(times)
    rows = np.zeros((len(times), 2)) if times.dtype.kind == "U" else np.tile(times[:, None], 2).astype("f8")
    part = open_source(rows)
    part.name, part.sample_dims = name, dims
    values = TextArray(times, "t") if times.dtype.kind == "U" else ArraySource(times, name=f"{name}/time")
    part.sample_coords = (SampleCoordinate(coordinate, values, attributes),)
    return part


def names(parts):
    return [part.name for part in parts]


def coordinate_of(source, name="time"):
    found = next(one for one in source.sample_coords if one.name == name)
    n_rows = found.values.spec.n_rows
    return found, found.values.read(Span(0, n_rows), Span(0, 1))[:, 0]


@given(st.permutations(range(6)))
def test_files_are_ordered_by_the_coordinate_of_the_samples(order):
    files = [a_file(f"{9 - i}.nc", np.arange(10 * i, 10 * i + 10 - i)) for i in range(6)]
    assert names(ordered([files[i] for i in order])) == [f"{9 - i}.nc" for i in range(6)]


def test_files_without_a_coordinate_are_ordered_by_name():
    parts = [open_source(np.ones((2, 2))) for _ in range(3)]
    for part, name in zip(parts, ("part.10", "part.9", "part.1"), strict=True):
        part.name = name
    assert names(ordered(parts)) == ["part.1", "part.9", "part.10"]


def test_the_name_can_be_asked_for():
    parts = [a_file("b.nc", [0, 1]), a_file("a.nc", [0, 5]), a_file("c.nc", [3, 2])]
    assert names(ordered(parts, "name")) == ["a.nc", "b.nc", "c.nc"]


def test_files_are_ordered_by_another_coordinate_and_by_text():
    parts = [a_file("a", np.array(["f", "k"]), {}, "member"), a_file("b", np.array(["a", "e"]), {}, "member")]
    assert names(ordered(parts, "member")) == ["b", "a"]
    _, values = coordinate_of(ConcatenatedSource(ordered(parts, "member"), "x"), "member")
    assert values.tolist() == ["a", "e", "f", "k"]


def test_times_with_other_reference_dates_are_converted():
    later = a_file("a.nc", np.arange(3), {"units": "hours since 2000-01-03", "calendar": "standard"})
    parts = ordered([later, a_file("b.nc", [0, 1])])
    assert names(parts) == ["b.nc", "a.nc"]
    found, times = coordinate_of(ConcatenatedSource(parts, "x"))
    assert found.attributes == DAYS
    assert np.allclose(times, [0, 1, 2, 2 + 1 / 24, 2 + 2 / 24], rtol=0, atol=1e-12)


def test_whole_times_stay_whole():
    parts = ordered([a_file("a.nc", [0, 1]), a_file("b.nc", [0, 24], {"units": "hours since 2000-02-01"})])
    _, times = coordinate_of(ConcatenatedSource(parts, "x"))
    assert times.dtype == np.int64
    assert times.tolist() == [0, 1, 31, 32]


@pytest.mark.parametrize(
    ("parts", "order_by", "message"),
    [
        (
            [a_file("a.nc", [0, 40]), a_file("b.nc", [31, 60])],
            None,
            r"b.nc: its time begins at 2000-02-01, and a.nc goes on until 2000-02-10: rows of two files",
        ),
        (
            [a_file("a.nc", [0, 40]), a_file("b.nc", [0, 40])],
            None,
            r"b.nc: its time begins at 2000-01-01, and a.nc goes on until 2000-02-10",
        ),
        (
            [a_file("a.nc", [0, 1]), a_file("b.nc", [40, 31])],
            None,
            r"b.nc: its time descends, from 2000-02-10 to 2000-02-01; sort its rows",
        ),
        ([a_file("a.nc", [0.0, np.nan])] * 1, None, r"a.nc: its time has no value in row 1"),
        (
            [a_file("a.nc", [0, 1]), a_file("b.nc", [2, 3], coordinate="t")],
            None,
            r"b.nc: has no coordinate 'time', which a.nc has; write it to this file too",
        ),
        (
            [a_file("a.nc", [0, 1]), a_file("b.nc", [2, 3])],
            "level",
            r"a.nc: has no coordinate 'level' of its samples; it has time; give one that all files have",
        ),
        ([a_file("a.nc", [0, 1]), a_file("a.nc", [2, 3])], None, r"a.nc: is given twice"),
        (
            [a_file("a.nc", [0, 1]), a_file("b.nc", [2, 3], {"units": "m"})],
            None,
            r"b.nc: coordinate 'time': its units are m, and days since 2000-01-01 in the first file",
        ),
        (
            [a_file("a.nc", [0, 1]), a_file("b.nc", [2, 3], {**DAYS, "calendar": "noleap"})],
            None,
            r"b.nc: coordinate 'time': times of the calendars (noleap|standard) and (noleap|standard)",
        ),
    ],
)
def test_files_that_cannot_be_ordered_are_refused(parts, order_by, message):
    with pytest.raises(DataError, match=message):
        ordered(parts, order_by)


def test_a_coordinate_beside_that_of_the_rows_may_be_in_some_files_only():
    first = a_file("a.nc", [0, 1])
    extra = SampleCoordinate("number", ArraySource(np.arange(2)))
    first.sample_coords = (*first.sample_coords, extra)
    source = ConcatenatedSource([first, a_file("b.nc", [2, 3])], "x")
    assert [one.name for one in source.sample_coords] == ["time"]


def test_a_pattern_matches_files_in_natural_order(tmp_path, monkeypatch):
    for name in ("x_10.zarr", "x_9.zarr", ".x_1.zarr.partial", "y_1.zarr"):
        stored(tmp_path / name, np.ones((2, 2)), (2, 2))
    assert expand(str(tmp_path / "x_*.zarr")) == [tmp_path / "x_9.zarr", tmp_path / "x_10.zarr"]
    assert expand(tmp_path / "x_*.zarr") == expand(str(tmp_path / "x_*.zarr"))
    assert len(expand([str(tmp_path / "*.zarr")])) == 3
    assert len(expand(str(tmp_path / "*"))) == 3
    monkeypatch.chdir(tmp_path)
    assert expand(["y_1.zarr", "x_?.zarr"]) == [Path("x_9.zarr"), Path("y_1.zarr")]


def test_a_file_whose_name_has_the_signs_of_a_pattern_is_that_file(tmp_path):
    stored(tmp_path / "x[1].zarr", np.ones((2, 2)), (2, 2))
    path = str(tmp_path / "x[1].zarr")
    assert not is_several(path)
    assert expand(path) == [tmp_path / "x[1].zarr"]
    assert is_several([path])
    assert is_several(str(tmp_path / "x_[12].zarr"))
    assert not is_several("/data/x.zarr")


def test_the_name_does_not_change_when_files_are_added(tmp_path):
    assert several_name("~nobody/../x_*.zarr".replace("~nobody/../", "")) == "x_*.zarr"
    assert several_name(["a.zarr"]) == several_name(["a.zarr", "b.zarr"]) == "a.zarr, ..."
    assert several_name("s3://key:secret@bucket/x_*.zarr") == "s3://bucket/x_*.zarr"


def test_patterns_without_matches_and_files_given_twice_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x_1.nc").touch()
    with pytest.raises(
        InputError, match=r"path: y_\*.nc: no file matches this pattern in .*, where relative"
    ):
        expand("y_*.nc")
    with pytest.raises(
        InputError, match=r"path: /.*y_\*.nc: no file matches this pattern; check the pattern"
    ):
        expand(["x_1.nc", str(tmp_path / "y_*.nc")])
    with pytest.raises(InputError, match=r"x_1.nc: is given twice; its rows would count twice"):
        expand(["x_*.nc", str(tmp_path / "x_1.nc")])
    with pytest.raises(InputError, match=r"the list of paths is empty"):
        expand([])


def test_a_pattern_in_an_address_lists_a_bucket(bucket, tmp_path):
    for name in ("x_10.zarr", "x_9.zarr", "y.zarr"):
        bucket.upload(stored(tmp_path / name, np.ones((2, 2)), (2, 2)))
    url = bucket.upload(tmp_path / "y.zarr").rpartition("/")[0]
    assert is_several(f"{url}/x_*.zarr")
    assert [str(place) for place in expand(f"{url}/x_*.zarr")] == [f"{url}/x_9.zarr", f"{url}/x_10.zarr"]
    assert open_source(expand(f"{url}/x_*.zarr")[0]).spec.n_rows == 2
    with pytest.raises(InputError, match=r"/z_\*.zarr: no file matches this pattern"):
        expand(f"{url}/z_*.zarr")
    with pytest.raises(ConfigError, match="names below the bucket only"):
        expand("s3://bucket*/x.zarr")
