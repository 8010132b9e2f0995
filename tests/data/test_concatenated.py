"""Several stores as one: the values and the bits of one store with all rows. A new file is appended rows."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import zarr
from fits import bits, fit, grown, stored

from streamdr.core.axes import Coordinate, FeatureAxes
from streamdr.core.blocks import Part, Span
from streamdr.data import open_source
from streamdr.data.concatenated import ConcatenatedSource
from streamdr.data.row_subset import RowSubset
from streamdr.data.zarr.stores import Directory
from streamdr.errors import DataError, MissingValuesError
from streamdr.methods.pca import PCA
from streamdr.methods.ppca import PPCA

LENGTHS = (100, 37, 1, 80, 63)
"""Not multiples of a chunk: blocks go across the ends of files."""


def values_of(n_rows=281, n_cols=12, dtype="f4", seed=0):
    rng = np.random.default_rng(seed)
    axes = rng.standard_normal((4, n_cols)) * 5
    return (rng.standard_normal((n_rows, 4)) @ axes + rng.standard_normal((n_rows, n_cols)) + 20).astype(
        dtype
    )


def written(folder: Path, values, lengths=LENGTHS, chunks=(10, 5)):
    """Write rows to a store each, and return where they are."""
    places, start = [], 0
    for number, length in enumerate(lengths):
        places.append(stored(folder / f"x_{number}.zarr", values[start : start + length], chunks))
        start += length
    return places


def joined(places, name="x_*.zarr"):
    return ConcatenatedSource([open_source(place) for place in places], name)


def everything(source):
    return source.read(Span(0, source.spec.n_rows), Span(0, source.spec.n_cols))


def with_axes(source, coords, dims=("lat",), **given):
    source.axes = FeatureAxes(
        dims,
        tuple(len(values) for values in coords.values()),
        tuple(Coordinate(name, (name,), np.asarray(values)) for name, values in coords.items()),
        **given,
    )
    return source


def test_every_region_has_the_values_of_one_store(tmp_path):
    values = values_of()
    source = joined(written(tmp_path, values))
    assert (source.spec.n_rows, source.spec.n_cols, source.chunks) == (281, 12, (10, 5))
    rng = np.random.default_rng(1)
    for _ in range(60):
        a, b = sorted(rng.choice(282, 2, replace=False))
        c, d = sorted(rng.choice(13, 2, replace=False))
        for read in (source.read, source.read_scratch):
            assert np.array_equal(read(Span(a, b), Span(c, d)), values[a:b, c:d])


def test_its_pickle_is_small_and_reads_the_same(tmp_path):
    values = values_of(200, 3)
    source = joined(written(tmp_path, values, [1] * 200))
    data = pickle.dumps(source)
    assert len(data) < sum(len(pickle.dumps(part)) for part in source._parts) / 4
    assert np.array_equal(everything(pickle.loads(data)), values)


@pytest.mark.parametrize(
    "method",
    [
        PCA(3, solver="covariance"),
        PCA(3, solver="gram"),
        PCA(3, solver="krylov"),
        PPCA(3),
        PPCA(3, method="em", max_iter=5),
    ],
    ids=["covariance", "gram", "krylov", "closed form", "em"],
)
@pytest.mark.parametrize("lengths", [LENGTHS, (100, 100, 81)])
@pytest.mark.filterwarnings("ignore")  # about convergence
def test_a_fit_has_the_bits_of_one_store(method, lengths, tmp_path, small_blocks):
    values = values_of()
    one = stored(tmp_path / "one.zarr", values, (10, 5))
    many = joined(written(tmp_path, values, lengths))
    assert bits(fit(method, many).model) == bits(fit(method, one).model)


def test_a_part_of_the_rows_has_the_rows_of_one_store(tmp_path):
    values = values_of()
    one = open_source(stored(tmp_path / "one.zarr", values, (10, 5)))
    many = joined(written(tmp_path, values))
    for part in (Part(0, 3), Part(1, 3, rest=True)):
        mine, its = RowSubset(many, part), RowSubset(one, part)
        assert np.array_equal(everything(mine), everything(its))
        assert mine.identity == its.identity.replace(one.name, many.name)


def test_types_are_promoted(tmp_path):
    first = stored(tmp_path / "a.zarr", values_of(7, 3, "f4"), (4, 3))
    second = stored(tmp_path / "b.zarr", values_of(6, 3, "f8"), (4, 3))
    source = joined([first, second])
    assert source.spec.dtype == np.float64
    assert np.array_equal(everything(source), np.concatenate([values_of(7, 3, "f4"), values_of(6, 3, "f8")]))
    assert source.read(Span(0, 2), Span(0, 3)).dtype == np.float64
    assert source.read_scratch(Span(0, 2), Span(0, 3)).dtype == np.float64


@pytest.mark.parametrize(("one", "other"), [("f4", "?"), ("i8", "u8")])
def test_types_without_a_common_one_are_refused(one, other, tmp_path):
    places = [stored(tmp_path / f"{t}.zarr", np.ones((4, 3), t), (4, 3)) for t in (one, other) if t != "?"]
    places += [stored(tmp_path / "flags.zarr", np.ones((4, 3), "?"), (4, 3))] * (other == "?")
    with pytest.raises(DataError, match=r": its type is (bool|uint64), and (float32|int64) in .*; make them"):
        joined(places)


def test_a_bad_value_is_located_in_its_file(tmp_path):
    values = values_of()
    values[150, 7] = np.nan
    source = joined(written(tmp_path, values))
    where = r"x_3\.zarr: nan at row 12, column 7 \(1 such values in rows "
    with pytest.raises(MissingValuesError, match=where):
        source.block(Span(90, 160))
    with pytest.raises(MissingValuesError, match=r"x_3\.zarr: nan at row 12, column 7"):
        source.block(Span(6, 9), "columns")
    with pytest.raises(MissingValuesError, match=where):
        source.scratch_block(Span(0, 281)).locate_nonfinite()
    assert np.isnan(source.block(Span(90, 160), allow_nan=True).values).sum() == 1
    with pytest.raises(MissingValuesError, match=where):
        fit(PCA(2), source)


def test_a_missing_chunk_is_named_with_its_file(tmp_path):
    places = written(tmp_path, values_of())
    (places[1] / "c/3/0").unlink()
    source = joined(places)
    for validate in (source.validate, lambda: source.validate(source.snapshot())):
        with pytest.raises(DataError, match=r"x_1\.zarr: chunk c/3/0 is missing, rows 30-36"):
            validate()


def test_files_that_are_added_do_not_change_the_digest_of_the_rows_before(tmp_path):
    places = written(tmp_path, values_of())
    few, all_ = joined(places[:3]).snapshot(), joined(places).snapshot()
    ends = (1, 10, 50, 100, 105, 137, 138)
    assert [few.digest(rows) for rows in ends] == [all_.digest(rows) for rows in ends]
    assert len({all_.digest(rows) for rows in range(282)}) == 282


def test_rows_that_are_appended_to_the_last_file_do_not_change_the_digest_of_those_before(tmp_path):
    places = written(tmp_path, values_of(60), [30, 20, 10])
    before = joined(places).snapshot()
    grown(places[2], np.concatenate([values_of(60)[50:], values_of(15, seed=1)]))
    after = joined(places).snapshot()
    assert [before.digest(rows) for rows in (30, 35, 60)] == [after.digest(rows) for rows in (30, 35, 60)]


def test_two_variables_that_were_written_at_the_same_time_have_other_digests(tmp_path):
    snapshots = []
    for name in ("a", "b"):
        place = stored(tmp_path / "x.zarr" / name, values_of(20), (10, 12))
        for file in place.rglob("*"):
            os.utime(file, (0, 0))
        snapshots.append(joined([place]).snapshot())
    assert snapshots[0].parts[0].digest(20) == snapshots[1].parts[0].digest(20), "as it is for one store"
    assert snapshots[0].digest(20) != snapshots[1].digest(20)


@pytest.mark.parametrize("change", ["another order", "removed", "touched"])
def test_any_other_change_changes_the_digest(change, tmp_path):
    places = written(tmp_path, values_of())
    before = joined(places).snapshot()
    if change == "another order":
        places[1], places[2] = places[2], places[1]
    elif change == "removed":
        del places[1]
    else:
        array = zarr.open_array(places[1], mode="r+")
        array[3, 3] = 7
    after = joined(places).snapshot()
    assert before.digest(100) == after.digest(100)
    assert before.digest(150) != after.digest(150)


def test_only_a_file_that_was_added_is_read(tmp_path, monkeypatch, small_blocks):
    read: list[str] = []
    original = Directory.read_scratch

    def counting(self, key, limit):
        if self.root.name != "x_0.zarr" or int(key.split("/")[1]) > 6:  # which features have a value at first
            read.append(self.root.name)
        return original(self, key, limit)

    monkeypatch.setattr(Directory, "read_scratch", counting)
    values = values_of(1000)
    lengths = (240, 250, 230, 270, 10)
    places = written(tmp_path, values, lengths)
    method, ledger = PCA(3, solver="covariance"), tmp_path / "ledger"
    fit(method, joined(places[:4]), ledger=ledger)
    assert {"x_0.zarr", "x_1.zarr", "x_2.zarr", "x_3.zarr"} == set(read)
    read.clear()
    appended = fit(method, joined(places), ledger=ledger)
    assert set(read) <= {"x_3.zarr", "x_4.zarr"}, "the rest of the last segment, and the new file"
    assert len(read) < 30
    assert bits(appended.model) == bits(fit(method, joined(places)).model)
    read.clear()
    assert bits(fit(method, joined(places), ledger=ledger).model) == bits(appended.model)
    assert read == []


def test_bytes_are_counted_in_whole_grains_of_each_file(tmp_path):
    source = joined(written(tmp_path, values_of(40, 3), [15, 25], (10, 3)))
    row = 3 * 4
    assert source.stored_bytes([Span(0, 40)]) == 40 * row
    assert source.stored_bytes([Span(12, 18)]) == (5 + 10) * row
    assert source.stored_bytes([Span(0, 1)], "columns") == 40 * row


def test_files_with_other_numbers_of_features_are_refused(tmp_path):
    places = [stored(tmp_path / f"{n}.zarr", np.ones((4, n)), (4, n)) for n in (3, 5)]
    with pytest.raises(DataError, match=r"5\.zarr: its number of features is 5, and 3 in .*3\.zarr; make"):
        joined(places)


LATITUDES = np.linspace(-60, 60, 6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"coords": {"lat": LATITUDES + 0.25 * (np.arange(6) == 3)}},
            r"b: its coordinate 'lat' is 12.25 at position 3, and 12.0 in a \(1 of 6 values differ\)",
        ),
        ({"coords": {"lat": LATITUDES[::-1]}}, r"'lat' is 60.0 at position 0, and -60.0 in a \(6 of 6"),
        ({"coords": {"lat": LATITUDES[:5]}}, r"b: its coordinate 'lat' has 5 values, and 6 in a; make"),
        ({"coords": {"lon": LATITUDES}, "dims": ("lon",)}, r"b: its feature dimensions is lon, and lat in a"),
        ({"coords": {"lon": LATITUDES}}, r"b: has no coordinate 'lat', which a has; make"),
        ({"name": "sst"}, r"b: its variable is sst, and none in a"),
        ({"attributes": {"units": "K"}}, r"b: its units is K, and none in a"),
    ],
)
def test_coordinates_that_differ_are_refused(change, message):
    parts = []
    for name, given in (("a", {}), ("b", change)):
        part = open_source(np.ones((4, 6)))
        part.name = name
        parts.append(with_axes(part, **{"coords": {"lat": LATITUDES}, **given}))
    with pytest.raises(DataError, match=message):
        ConcatenatedSource(parts, "x")


def test_coordinates_in_single_precision_are_the_same():
    parts = [open_source(np.ones((4, 6))) for _ in range(2)]
    parts[1].name = "other"
    fine = LATITUDES / 7
    with_axes(parts[0], {"lat": fine})
    with_axes(parts[1], {"lat": fine.astype("f4")})
    assert ConcatenatedSource(parts, "x").axes is parts[0].axes


def test_column_names_that_differ_are_refused():
    parts = [open_source(np.ones((4, 3))) for _ in range(2)]
    parts[1].name = "other"
    parts[0].feature_names, parts[1].feature_names = ("a", "b", "c"), ("a", "c", "b")
    with pytest.raises(DataError, match="other: column 1 is 'c', and 'b' in array; write all files with the"):
        ConcatenatedSource(parts, "x")
