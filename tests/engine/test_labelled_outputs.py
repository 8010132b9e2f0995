"""Outputs of labelled inputs: embeddings with their times, and maps with their coordinates."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import xarray
import zarr
from distributed import Client, LocalCluster
from fits import StopAfter, bits
from grids import AREA, LAND, LAT, LON, labelled, open_grid, sst, write_grid
from narrowing import checked
from zarr.storage import ObjectStore

from streamdr import store
from streamdr.core.addresses import Location, parse_location
from streamdr.core.axes import FeatureAxes, named_features
from streamdr.core.blocks import Span
from streamdr.core.execution import Execution
from streamdr.core.method import Method, in_memory
from streamdr.core.row_outputs import ROW_OUTPUTS, RowKind, RowOutput
from streamdr.data import open_source
from streamdr.data.in_memory import ArraySource
from streamdr.data.labels import LabelColumnSource
from streamdr.data.missing_values import MissingValuesSource
from streamdr.data.source import SampleCoordinate, Source
from streamdr.engine import coordinates, fitting, planner
from streamdr.errors import DataError, Interrupted
from streamdr.methods.lda import LDA
from streamdr.methods.pca import PCA
from streamdr.methods.pca.model import PCAModel
from streamdr.methods.ppca import PPCA
from streamdr.methods.selection import SelectFScore
from streamdr.store.local import LocalBackend

pytestmark = pytest.mark.usefixtures("small_blocks")

KINDS: dict[str, RowOutput] = {kind.name: kind for kind in ROW_OUTPUTS}
ROWS = 300
FIRST = np.datetime64("2000-01-01", "ns")
TIMES = FIRST + np.arange(ROWS) * np.timedelta64(6, "h")
SEA = ~LAND
THREADS = {
    "one thread": Execution(workers=1),
    "two threads": Execution(workers=2),
}


def write(
    place: Location, fitted: fitting.Fitted, source: Source, kind: RowKind, **given: Any
) -> fitting.Transformed:
    execution = given.pop("execution", Execution(workers=2))
    return fitting.transform(
        fitted.model, source, place, execution, kind=KINDS[kind], attributes={}, axes=fitted.axes, **given
    )


def fit(method: Method, source: Source, **settings: Any) -> fitting.Fitted:
    return fitting.fit(method, source, Execution(**{"workers": 2, **settings}))


def opened(path: Path) -> xarray.Dataset:
    """Open an output with xarray, which must not warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return xarray.open_zarr(path).load()


@pytest.fixture
def grid(tmp_path):
    return write_grid(tmp_path / "sst.zarr", sst(ROWS))


# What is written


def test_an_embedding_has_the_times_of_its_rows(grid, tmp_path):
    fitted = fit(PCA(2), open_grid(grid))
    write(tmp_path / "z.zarr", fitted, open_grid(grid), "embedding")
    dataset = opened(tmp_path / "z.zarr")
    assert dataset.embedding.dims == ("time", "component")
    np.testing.assert_array_equal(dataset.time, TIMES)
    assert dataset.season[:5].values.tolist() == ["djf", "mam", "jja", "són", "djf"]
    assert set(dataset.coords) == {"time", "season", "level"}
    assert dataset.embedding.attrs == {}, "scores have no units"
    one = dataset.embedding.sel(time="2000-01-02T06", component=1)
    assert one.item() == store.open_embedding(tmp_path / "z.zarr")[5, 1]


def test_outputs_in_a_bucket_have_their_coordinates(grid, bucket):
    fitted = fit(PCA(2), open_grid(grid))
    kinds: tuple[RowKind, ...] = ("embedding", "denoised")
    places = {kind: parse_location(f"{bucket.url}/{kind}.zarr") for kind in kinds}
    for kind, place in places.items():
        write(place, fitted, open_grid(grid), kind)
        dataset = xarray.open_zarr(ObjectStore(bucket.below(f"{kind}.zarr"), read_only=True)).load()
        np.testing.assert_array_equal(dataset.time, TIMES)
        np.testing.assert_array_equal(dataset[kind], store.open_rows(place, kind)[:])
    np.testing.assert_array_equal(dataset.lat, LAT)
    place = places["embedding"]
    kept = fitting.Kept(place, ROWS, store.open_embedding(place).chunks[0])
    again = write(place, fitted, open_grid(grid), "embedding", kept=kept, overwrite=True)
    assert again.bytes_read == 0
    assert store.open_backend(place).open_coordinates("embedding").keys() == {"time", "season", "level"}


def test_samples_along_two_dimensions_have_both_as_coordinates(grid, tmp_path):
    source = open_grid(grid, sample_dims=("time", "member"))
    write(tmp_path / "z.zarr", fit(PCA(2), source), source, "embedding")
    dataset = opened(tmp_path / "z.zarr")
    assert dataset.embedding.dims == ("sample", "component")
    assert (dataset.time.dims, dataset.member.dims) == (("sample",), ("sample",))
    np.testing.assert_array_equal(dataset.time, FIRST + np.arange(ROWS) // 4 * 4 * 6 * np.timedelta64(1, "h"))
    cube = dataset.set_index(sample=["time", "member"]).unstack("sample").embedding
    assert cube.sizes == {"component": 2, "time": ROWS // 4, "member": 4}


@pytest.mark.parametrize("kind", ["denoised", "imputed", "imputed_variance"])
@pytest.mark.parametrize("sample_dims", [("time",), ("time", "member")])
def test_values_of_features_are_maps_with_coordinates_and_units(tmp_path, kind, sample_dims):
    values = sst(ROWS, missing=0.0 if kind == "denoised" else 0.2)
    source = open_grid(write_grid(tmp_path / "x.zarr", values), sample_dims=sample_dims)
    method = PCA(2) if kind == "denoised" else PPCA(2, max_iter=5)
    write(tmp_path / "z.zarr", fit(method, source), source, kind)
    dataset = opened(tmp_path / "z.zarr")
    maps = dataset[kind]
    assert maps.dims == ("time" if len(sample_dims) == 1 else "sample", "lat", "lon")
    np.testing.assert_array_equal(maps.lat, LAT)
    np.testing.assert_array_equal(maps.lon, LON)
    np.testing.assert_array_equal(maps.area, AREA)
    assert maps.region.values.tolist() == ["south", "", "nörd", "north"]
    assert (maps.level.item(), maps.lat.attrs["units"]) == (500, "degrees_north")
    assert np.isnan(maps.values[:, LAND]).all(), "land is blank"
    assert np.isfinite(maps.values[:, SEA]).all()
    in_units = {"units": "K", "long_name": "sea surface temperature"}
    assert maps.attrs == (in_units if kind != "imputed_variance" else {})
    if kind == "imputed":
        known = ~np.isnan(values)
        np.testing.assert_array_equal(maps.values[known], values[known])
    read_back = open_source(tmp_path / "z.zarr")
    assert (read_back.spec.n_cols, read_back.sample_shape) == (24, (4, 6)), "it can replace the input"


def test_the_rows_have_the_bits_of_those_of_a_plain_input(tmp_path):
    grid = write_grid(tmp_path / "sst.zarr", np.nan_to_num(sst(ROWS), nan=280))
    of_labelled = fit(PCA(3), open_grid(grid, weights=None))
    plain = fit(PCA(3), open_source(grid))
    assert bits(of_labelled.model) == bits(plain.model)
    for kind in ("embedding", "denoised"):
        write(tmp_path / "labelled.zarr", of_labelled, open_grid(grid, weights=None), kind, overwrite=True)
        write(tmp_path / "plain.zarr", plain, open_source(grid), kind, overwrite=True)
        one, other = (store.open_rows(tmp_path / f"{name}.zarr", kind) for name in ("labelled", "plain"))
        assert one[:].tobytes() == other[:].tobytes()
        assert {name.partition("/")[0] for name in store.open_backend(tmp_path / "plain.zarr").sizes()} == {
            kind,
            "zarr.json",
        }
        (tmp_path / "plain.zarr").rename(tmp_path / f"plain {kind}")
        (tmp_path / "labelled.zarr").rename(tmp_path / f"labelled {kind}")


def test_one_value_per_row_has_its_time(grid, tmp_path):
    source = open_grid(grid)
    write(tmp_path / "z.zarr", fit(PCA(2), source), source, "log_likelihood")
    found = opened(tmp_path / "z.zarr").log_likelihood
    assert found.dims == ("time",)
    assert np.isfinite(found.sel(time=TIMES[7]))


def test_a_component_of_a_saved_model_is_a_map_that_xarray_plots(grid, tmp_path):
    fitted = fit(PCA(2), open_grid(grid))
    store.save_model(
        tmp_path / "model.zarr",
        fitted.model,
        method="pca",
        parameters={"n_components": 2},
        feature_names=None,
        input_fingerprint="",
        n_rows=ROWS,
        axes=fitted.axes,
    )
    model = opened(tmp_path / "model.zarr")
    one = model.components.sel(component=0)
    assert one.dims == ("lat", "lon")
    np.testing.assert_array_equal(np.isnan(one), LAND)
    np.testing.assert_array_equal(one.values[SEA], checked(PCAModel, fitted.model).components[0])
    assert model["mean"].attrs == {"units": "K", "long_name": "sea surface temperature"}
    assert model.components.attrs == {}
    np.testing.assert_array_equal(model.feature_kept, SEA)
    np.testing.assert_array_equal(model.feature_weights, AREA)
    matplotlib.use("agg")
    drawn = one.plot()
    assert drawn.axes.get_xlabel() == "lon [degrees_east]"
    scores = tmp_path / "z.zarr"
    write(scores, fitted, open_grid(grid), "embedding")
    assert opened(scores).embedding.sel(component=0).plot()[0].axes.get_xlabel() == "time"


def test_names_of_the_columns_of_a_table_are_a_coordinate(tmp_path):
    values = sst(ROWS).reshape(ROWS, 24)[:, SEA.ravel()][:, :5]
    source = open_source(values)
    source.feature_names = ("a", "b", "ç", "d", "e")
    write(tmp_path / "z.zarr", fit(PPCA(2, max_iter=5), source), source, "imputed")
    found = opened(tmp_path / "z.zarr").imputed
    assert found.dims == ("sample", "feature")
    assert found.feature.values.tolist() == ["a", "b", "ç", "d", "e"]
    np.testing.assert_array_equal(found.sel(feature="ç"), values[:, 2])


def test_columns_that_are_left_out_keep_their_names(tmp_path):
    source = open_source(sst(ROWS).reshape(ROWS, 24)[:, 6:12])
    source.axes = FeatureAxes(("feature",), (6,), named_features("feature", tuple("abcdef")))
    write(tmp_path / "z.zarr", fit(PCA(2), source), source, "denoised")
    found = opened(tmp_path / "z.zarr").denoised
    assert np.isnan(found.sel(feature=["c", "d"])).all()
    assert np.isfinite(found.sel(feature=["a", "b", "e", "f"])).all()


# Names that are taken, and coordinates that do not fit


def test_coordinates_whose_names_are_taken_are_left_out(grid, tmp_path):
    source = open_grid(grid)
    ones = open_source(np.ones((ROWS, 1)))
    taken = ("component", "embedding", "imputed", "two words", "größe")
    source.sample_coords += tuple(SampleCoordinate(name, ones) for name in taken)
    write(tmp_path / "z.zarr", fit(PCA(2), source), source, "embedding")
    assert set(opened(tmp_path / "z.zarr").coords) == {"time", "season", "level"}


@pytest.mark.parametrize("name", ["component", "embedding"])
def test_a_sample_dimension_whose_name_is_taken_is_called_sample(grid, tmp_path, name):
    source = open_grid(grid, sample_dims=(name,))
    write(tmp_path / "z.zarr", fit(PCA(2), source), source, "embedding")
    dataset = opened(tmp_path / "z.zarr")
    assert dataset.embedding.dims == ("sample", "component")
    assert dataset.time.dims == ("sample",)


def test_a_coordinate_of_another_length_is_an_error(grid, tmp_path):
    source = open_grid(grid)
    fitted = fit(PCA(2), source)
    source.sample_coords = (SampleCoordinate("time", ArraySource(np.ones((ROWS - 1, 1)), name="t.zarr")),)
    with pytest.raises(DataError, match=r"t\.zarr: has 299 values of the coordinate 'time' for 300 samples"):
        write(tmp_path / "z.zarr", fitted, source, "embedding")
    assert not (tmp_path / "z.zarr").exists()


def test_sources_around_a_labelled_one_keep_its_coordinates(tmp_path):
    values = np.nan_to_num(sst(ROWS), nan=-9)
    around = MissingValuesSource(labelled(open_source(values)), missing_value=np.float32(-9))
    write(tmp_path / "z.zarr", fit(PPCA(2, max_iter=5), around), around, "imputed")
    maps = opened(tmp_path / "z.zarr").imputed
    assert (maps.dims, maps.attrs["units"]) == (("time", "lat", "lon"), "K")
    np.testing.assert_array_equal(np.isnan(maps[0]), LAND)

    table = labelled(open_source(sst(ROWS)[:, SEA]))
    table.axes, table.labels = None, open_source(np.arange(ROWS)[:, None] % 3)
    table.spec = replace(table.spec, labels=np.dtype("i8"))
    selected = fit(SelectFScore(k=2), table)
    write(tmp_path / "selected.zarr", selected, table.unlabelled(), "embedding")
    np.testing.assert_array_equal(opened(tmp_path / "selected.zarr").time, TIMES)

    rows = labelled(open_source(np.column_stack([sst(ROWS)[:, SEA][:, :4], np.arange(ROWS) % 3])))
    rows.axes = None
    classes = LabelColumnSource(rows, 4)
    write(tmp_path / "predicted.zarr", fit(LDA(1), classes), classes, "predicted")
    np.testing.assert_array_equal(opened(tmp_path / "predicted.zarr").predicted.time, TIMES)


# Memory


class Watched(ArraySource):
    """A coordinate that records which rows are read together."""

    asked: list[Span]

    def read(self, rows, cols):
        self.asked.append(rows)
        return super().read(rows, cols)


def test_coordinates_of_samples_are_read_and_written_in_chunks(grid, tmp_path, monkeypatch):
    monkeypatch.setattr(coordinates, "_CHUNK_BYTES", 8 * 64)
    source = open_grid(grid)
    time = Watched(np.arange(ROWS)[:, None], name="time")
    time.asked = []
    source.sample_coords = (SampleCoordinate("time", time),)
    write(tmp_path / "z.zarr", fit(PCA(2), source), source, "embedding")
    assert time.asked == list(Span(0, ROWS).split(64))
    np.testing.assert_array_equal(opened(tmp_path / "z.zarr").time, np.arange(ROWS))


@pytest.mark.parametrize(("stored", "together"), [(1, 64), (30, 60), (100, 100), (300, 300), (2000, 64)])
def test_whole_chunks_of_a_coordinate_are_read_unless_they_are_large(tmp_path, monkeypatch, stored, together):
    monkeypatch.setattr(coordinates, "_CHUNK_BYTES", 8 * 64)
    time = zarr.create_array(tmp_path / "time", shape=(2100,), chunks=(stored,), dtype="i8")
    time[...] = np.arange(2100)
    source = open_source(np.zeros((2100, 2)))
    source.sample_dims = ("time",)
    source.sample_coords = (SampleCoordinate("time", open_source(time)),)
    frame = coordinates.row_frame(
        KINDS["embedding"].of(in_memory(PCA(1, solver="covariance"), np.eye(2))), source
    )
    (coordinate,) = frame.coordinates
    assert coordinate.layout.chunks == (together,)
    np.testing.assert_array_equal(coordinate.read(Span(50, 70)), np.arange(50, 70))


# Resuming, and rows that are kept


def test_a_transform_that_was_stopped_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(planner, "_OUTPUT_CHUNK", 1 << 12)
    grid = write_grid(tmp_path / "sst.zarr", sst(2000))
    fitted = fit(PCA(2), open_grid(grid))
    write(tmp_path / "whole.zarr", fitted, open_grid(grid), "denoised")
    stops = StopAfter(150)
    with pytest.raises(Interrupted):
        write(tmp_path / "z.zarr", fitted, open_grid(grid), "denoised", progress=stops, stop=stops.stop)
    done = write(tmp_path / "z.zarr", fitted, open_grid(grid), "denoised")
    assert 0 < done.rows_written < 2000
    same = opened(tmp_path / "z.zarr").drop_attrs(deep=False)
    assert same.identical(opened(tmp_path / "whole.zarr").drop_attrs(deep=False))


@pytest.mark.parametrize("failing", range(3))
def test_a_transform_that_was_killed_while_it_wrote_coordinates_reads_nothing_again(
    grid, tmp_path, monkeypatch, failing
):
    fitted = fit(PCA(2), open_grid(grid))
    write_coordinate, done = LocalBackend.write_coordinate, list[str]()

    def kill(self, coordinate):
        if len(done) == failing:
            raise Interrupted("killed")
        done.append(coordinate.name)
        write_coordinate(self, coordinate)

    with monkeypatch.context() as killed:
        killed.setattr(LocalBackend, "write_coordinate", kill)
        with pytest.raises(Interrupted):
            write(tmp_path / "z.zarr", fitted, open_grid(grid), "embedding")
    assert not (tmp_path / "z.zarr").exists()
    again = write(tmp_path / "z.zarr", fitted, open_grid(grid), "embedding")
    assert (again.rows_written, again.bytes_read) == (0, 0)
    np.testing.assert_array_equal(opened(tmp_path / "z.zarr").time, TIMES)


@pytest.mark.parametrize("was_labelled", [False, True])
def test_rows_that_are_kept_get_their_coordinates(tmp_path, was_labelled):
    values = np.nan_to_num(sst(500), nan=280)
    path = write_grid(tmp_path / "x.zarr", values[:ROWS], chunk=50)
    before = open_grid(path) if was_labelled else open_source(path)
    weights = before.axes.weights if before.axes is not None else None
    fitted = fit(PCA(2), open_grid(path, weights=None if weights is None else AREA))
    write(tmp_path / "z.zarr", fitted, before, "embedding")
    first = store.open_embedding(tmp_path / "z.zarr")[:]
    array = zarr.open_array(path, mode="r+")
    array.resize(values.shape)
    array[ROWS:] = values[ROWS:]
    grown = open_grid(path, weights=None if weights is None else AREA)
    chunk_rows = store.open_embedding(tmp_path / "z.zarr").chunks[0]
    kept = fitting.Kept(tmp_path / "z.zarr", ROWS, chunk_rows)
    done = write(tmp_path / "z.zarr", fitted, grown, "embedding", kept=kept, overwrite=True)
    assert done.rows_written == 200
    dataset = opened(tmp_path / "z.zarr")
    np.testing.assert_array_equal(dataset.embedding[:ROWS], first)
    np.testing.assert_array_equal(dataset.time, FIRST + np.arange(500) * np.timedelta64(6, "h"))


# The same bits everywhere


@pytest.fixture(scope="module")
def cluster():
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as started,
        Client(started, set_as_default=False) as client,
    ):
        yield client


@pytest.mark.parametrize("weights", [None, AREA], ids=["land", "land and weights"])
def test_a_cluster_writes_the_bits_of_threads(tmp_path, cluster, weights):
    executions = THREADS | {"cluster": Execution(scheduler=cluster)}
    pca = write_grid(tmp_path / "x.zarr", sst(ROWS))
    ppca = write_grid(tmp_path / "missing.zarr", sst(ROWS, missing=0.1))
    cases: list[tuple[Path, Method, tuple[RowKind, ...]]] = [
        (pca, PCA(2), ("embedding", "denoised")),
        (ppca, PPCA(2, max_iter=4), ("embedding", "imputed")),
    ]
    for path, method, kinds in cases:
        found = set()
        for name, execution in executions.items():
            fitted = fitting.fit(method, open_grid(path, weights=weights), execution)
            written = []
            for kind in kinds:
                target, source = tmp_path / f"{method.name} {kind} {name}", open_grid(path, weights=weights)
                write(target, fitted, source, kind, execution=execution)
                written.append(store.open_rows(target, kind)[:].tobytes())
            found.add((*written, *map(str, bits(fitted.model).values())))
        assert len(found) == 1
