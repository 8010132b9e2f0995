"""The contract of backends: the same tests for files and for an object store."""

from __future__ import annotations

import json
import math
import pickle
import re
import secrets
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import xarray
from zarr.storage import LocalStore, ObjectStore

from streamdr import store
from streamdr.core.addresses import parse_location
from streamdr.core.blocks import Array, Span
from streamdr.errors import BusyError, OverlapError, StoreError
from streamdr.store import RowCoordinate, open_backend
from streamdr.store.arrays import ArrayLayout
from streamdr.store.compare_and_swap import Conflict
from streamdr.store.local import LocalBackend
from streamdr.store.objects import ObjectBackend
from streamdr.store.record import seal_of

N_ROWS, N_OUTPUTS, CHUNK = 23, 3, 10
ROWS = np.random.default_rng(1).normal(size=(N_ROWS, N_OUTPUTS))


@dataclass(frozen=True, eq=False)
class Toy:
    mean: np.ndarray = field(metadata={"dims": ("feature",)})
    components: np.ndarray = field(metadata={"dims": ("component", "feature")})
    rank: int


TOYS = {"toy": Toy}
ABOUT: dict[str, Any] = {
    "method": "toy",
    "parameters": {"n_components": 2, "tol": float("inf")},
    "feature_names": ["a", "é", "c"],
    "input_fingerprint": "abc",
    "n_rows": 10,
}


def toy(number: float = 1.0) -> Toy:
    return Toy(mean=np.arange(3.0) * number, components=np.full((2, 3), number), rank=2)


class Files:
    """A folder, with direct access to its files."""

    backend = LocalBackend

    def __init__(self, folder):
        self.folder = folder

    @property
    def url(self):
        return str(self.folder)

    def contents(self):
        files = (file for file in self.folder.rglob("*") if file.is_file())
        return {file.relative_to(self.folder).as_posix(): file.read_bytes() for file in files}

    def put(self, name, data):
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_bytes(data)

    def delete(self, name):
        (self.folder / name).unlink()

    def zarr_store(self, name):
        return LocalStore(self.folder / name, read_only=True)


class Objects:
    """A bucket, with direct access to its objects."""

    backend = ObjectBackend

    def __init__(self, bucket):
        self.bucket = bucket

    @property
    def url(self):
        return self.bucket.url

    def contents(self):
        return self.bucket.contents()

    def put(self, name, data):
        self.bucket.put(name, data)

    def delete(self, name):
        self.bucket.delete(name)

    def zarr_store(self, name):
        return ObjectStore(self.bucket.below(name), read_only=True)


@pytest.fixture(params=["files", "objects"])
def home(request, tmp_path):
    """The parent of the outputs: a folder that does not exist yet, or an empty bucket."""
    if request.param == "files":
        return Files(tmp_path / "home")
    return Objects(request.getfixturevalue("bucket"))


@pytest.fixture
def output(home):
    return open_backend(f"{home.url}/out/result.zarr")


def begin(staged, **changes):
    given = {
        "n_rows": N_ROWS,
        "n_outputs": N_OUTPUTS,
        "dtype": "float64",
        "chunk_rows": CHUNK,
        "attributes": {"model": "m"},
    }
    staged.create_embedding(**(given | changes))


def fill(staged, rows=ROWS, skip=()):
    for start in range(0, len(rows), CHUNK):
        if start // CHUNK not in skip:
            staged.write_rows(start, rows[start : start + CHUNK])


def embed(output, rows=ROWS, *, overwrite=False, key="k", **changes):
    """Write an embedding as a transform does. Return the chunks that existed before."""
    with output.stage(kind="embedding", overwrite=overwrite, key=key) as staging:
        staged = open_backend(staging.path)
        begin(staged, n_rows=len(rows), **changes)
        done = staged.existing_chunks()
        fill(staged, rows, skip=done)
        staged.finish()
        staging.publish()
    return done


def interrupted(output, rows=ROWS, *, key="k", **changes):
    """Write rows like a run that is killed afterwards. Return its staging."""
    with output.stage(kind="embedding", overwrite=False, key=key) as staging:
        staged = open_backend(staging.path)
        begin(staged, **changes)
        fill(staged, rows)
    return staged


def chunk(staged, number):
    """Return the name of the file of a chunk, relative to the parent of the outputs."""
    return f"out/{staged.place.name}/embedding/c/{number}/0"


def damage(home, name, how):
    content = bytearray(home.contents()[name])
    if how == "missing":
        home.delete(name)
    elif how == "truncated":
        home.put(name, bytes(content[:-1]))
    elif how == "empty":
        home.put(name, b"")
    else:
        content[7] ^= 4
        home.put(name, bytes(content))


def remains(home):
    """Return the names of the files beside the output."""
    return [name for name in home.contents() if not name.startswith("out/result.zarr/")]


# The choice of a backend


def test_the_address_determines_the_backend(home, output):
    assert type(output) is home.backend
    assert str(output) == str(output.place) == f"{home.url}/out/result.zarr"
    assert open_backend(output) is output
    assert open_backend(output.place).place == output.place


def test_a_backend_can_be_pickled(output):
    begin(output)
    fill(pickle.loads(pickle.dumps(output)))
    output.finish()
    assert np.array_equal(output.open_embedding()[:], ROWS)


def test_every_method_is_also_a_function_of_a_location(output):
    store.save_model(output.place, toy(), **ABOUT)
    assert store.exists(str(output))
    assert store.load_model(output.place, models=TOYS).n_rows == 10
    assert pickle.loads(pickle.dumps(store.load_model)) is store.load_model


# Models


def test_a_loaded_model_equals_the_saved_one(home, output):
    assert output.save_model(toy(), **ABOUT, extra={"why": "so"}) == output.place
    saved = output.load_model(models=TOYS)
    assert np.array_equal(saved.model.mean, toy().mean)
    assert np.array_equal(saved.model.components, toy().components)
    assert (saved.model.rank, saved.method, saved.n_rows) == (2, "toy", 10)
    assert saved.parameters == ABOUT["parameters"]
    assert saved.feature_names == ("a", "é", "c")
    assert saved.record["extra"] == {"why": "so"}
    assert remains(home) == []


def test_a_model_has_the_same_bytes_in_every_backend(home, output, tmp_path):
    output.save_model(toy(), **ABOUT)
    reference = tmp_path / "reference.zarr"
    open_backend(reference).save_model(toy(), **ABOUT)
    files = {file.relative_to(reference).as_posix(): file for file in reference.rglob("*")}
    there = home.contents()
    for name, file in files.items():
        if file.is_file() and name != "zarr.json":  # it contains the time of writing
            assert there[f"out/result.zarr/{name}"] == file.read_bytes()
    recorded = output.read_group("model").record
    expected = open_backend(reference).read_group("model").record
    assert list(recorded) == list(expected)
    assert recorded["files"] == expected["files"]


def test_a_model_that_cannot_be_saved_leaves_no_trace(home, output):
    wrong = Toy(mean=np.array([object()]), components=np.ones((2, 3)), rank=1)
    with pytest.raises(StoreError, match=re.escape(f"{output}/mean: cannot save object")):
        output.save_model(wrong, **ABOUT)
    uneven = Toy(mean=np.ones(4), components=np.ones((2, 3)), rank=1)
    with pytest.raises(StoreError, match=re.escape(f"{output}: 'feature' is 4 long in 'mean', but 3 in")):
        output.save_model(uneven, **ABOUT)
    assert home.contents() == {}


@pytest.mark.parametrize(
    ("how", "message"), [("missing", "is missing"), ("flipped", "is not what was saved")]
)
def test_a_damaged_model_is_an_error_that_names_the_file(home, output, how, message):
    output.save_model(toy(), **ABOUT)
    damage(home, "out/result.zarr/mean/c/0", how)
    with pytest.raises(StoreError, match=re.escape(f"{output}/mean/c/0: {message}")):
        output.load_model(models=TOYS)


def test_a_record_cannot_make_files_outside_of_it_be_read(home, output):
    output.save_model(toy(), **ABOUT)
    root = json.loads(home.contents()["out/result.zarr/zarr.json"])
    root["attributes"]["streamdr"]["files"]["../../../../escape"] = "0" * 64
    home.put("out/result.zarr/zarr.json", json.dumps(root).encode())
    with pytest.raises(StoreError, match=re.escape(f"{output}/zarr.json: does not match its digest")):
        output.load_model(models=TOYS)


# What exists


def test_a_missing_output_is_reported_as_missing(output):
    nothing = pytest.raises(StoreError, match=re.escape(f"{output}: no such file or directory"))
    assert not output.exists()
    assert output.draft() is None
    assert output.sizes() == {}
    assert output.stored_bytes() == 0
    with nothing:
        output.load_model()
    with nothing:
        output.open_embedding()
    with nothing:
        output.read_group()


def test_an_existing_output_is_described(home, output):
    embed(
        output, output_names=["a", "b", "c"], attributes={"model": "m", "parameters": {"tol": float("inf")}}
    )
    files = {name.removeprefix("out/result.zarr/"): data for name, data in home.contents().items()}
    assert output.exists()
    assert output.sizes() == {name: len(data) for name, data in files.items()}
    size_of = output.size_of()
    assert (size_of("zarr.json"), size_of("nothing")) == (len(files["zarr.json"]), None)
    assert output.stored_bytes() == sum(map(len, files.values()))
    group = output.read_group("embedding")
    assert group.path == output.place
    assert group.record["parameters"] == {"tol": float("inf")}
    assert group.record["output_names"] == ["a", "b", "c"]
    assert group.record["complete"] is True
    assert (group.record["n_rows"], group.record["n_outputs"]) == (N_ROWS, N_OUTPUTS)
    assert output.draft()["digest"] == group.record["digest"]
    with pytest.raises(StoreError, match=re.escape(f"{output}: this is a streamdr embedding, not a model")):
        output.read_group("model")
    with pytest.raises(StoreError, match=re.escape(f"{output}: this is a streamdr embedding, not a model")):
        output.load_model()


def test_xarray_opens_what_was_written(home, output):
    embed(output)
    open_backend(f"{home.url}/out/model.zarr").save_model(toy(), **ABOUT)
    assert np.array_equal(xarray.open_zarr(home.zarr_store("out/result.zarr"))["embedding"], ROWS)
    assert np.array_equal(xarray.open_zarr(home.zarr_store("out/model.zarr"))["mean"], toy().mean)


# Rows


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("chunk_rows", [1, 5, N_ROWS, 1000])
def test_rows_are_read_as_they_were_written(output, dtype, chunk_rows):
    rows = ROWS.astype(dtype)
    begin(output, dtype=dtype, chunk_rows=chunk_rows)
    for start in reversed(range(0, N_ROWS, chunk_rows)):
        output.write_rows(start, rows[start : start + chunk_rows])
    output.finish()
    written = output.open_embedding()
    assert (written.shape, written.dtype, written.dims) == (rows.shape, rows.dtype, ("sample", "component"))
    assert written[:].tobytes() == rows.tobytes()
    with pytest.raises(TypeError):
        written[0] = 0  # it is read-only


def test_rows_have_the_same_bytes_in_every_backend(home, output, tmp_path):
    embed(output)
    embed(open_backend(tmp_path / "reference.zarr"))
    for number in range(3):
        reference = tmp_path / f"reference.zarr/embedding/c/{number}/0"
        assert home.contents()[chunk(output, number)] == reference.read_bytes()


def test_rows_may_have_more_dimensions_than_one(output):
    cube = np.arange(4 * 2 * 3.0).reshape(4, 2, 3)
    given = {"shape": cube.shape, "dims": ("time", "lat", "lon"), "dtype": "f8", "attributes": {}}
    output.create_rows("imputed", chunk_rows=3, **given)
    output.write_rows(0, cube[:3], "imputed")
    output.write_rows(3, cube[3:], "imputed")
    assert output.existing_chunks("imputed") == {0, 1}
    output.finish("imputed")
    assert np.array_equal(output.open_rows("imputed")[:], cube)


@pytest.mark.parametrize(("dtype", "value"), [("f8", 0), ("f8", math.nan), ("i8", 0)])
def test_rows_of_one_value_are_written_too(output, dtype, value):
    rows = np.full_like(ROWS, value, dtype)  # such as the predictions for rows of the first class
    begin(output, dtype=dtype)
    fill(output, rows)
    output.finish()
    assert np.array_equal(output.open_embedding()[:], rows, equal_nan=True)


def test_several_chunks_may_be_written_at_once_and_twice(output):
    begin(output)
    output.write_rows(0, np.ones((CHUNK, N_OUTPUTS)))
    output.write_rows(0, ROWS[: 2 * CHUNK])
    output.write_rows(2 * CHUNK, ROWS[2 * CHUNK :])
    output.finish()
    assert np.array_equal(output.open_embedding()[:], ROWS)


@pytest.mark.parametrize(("start", "count"), [(5, CHUNK), (0, CHUNK - 1), (20, CHUNK), (30, CHUNK), (20, 2)])
def test_part_of_a_chunk_is_refused(output, start, count):
    begin(output)
    last = start + count - 1
    message = f"{output}: rows {start}-{last} are not whole chunks of {CHUNK} of its {N_ROWS} rows"
    with pytest.raises(StoreError, match=re.escape(message)):
        output.write_rows(start, np.zeros((count, N_OUTPUTS)))
    assert output.existing_chunks() == set()


@pytest.mark.parametrize("shape", [(CHUNK, N_OUTPUTS + 1), (CHUNK, 1), (CHUNK,)])
def test_rows_of_another_width_are_refused(output, shape):
    begin(output)
    with pytest.raises(StoreError, match=r"where \(3,\) are expected"):
        output.write_rows(0, np.zeros(shape))


def test_rows_that_were_never_begun_are_refused(output):
    with pytest.raises(StoreError, match=re.escape(str(output))):
        output.write_rows(0, ROWS)
    with pytest.raises(StoreError, match=re.escape(f"{output}/embedding/zarr.json: cannot be read")):
        output.finish()


@pytest.mark.parametrize("how", ["missing", "truncated", "empty", "flipped"])
def test_a_bad_chunk_is_written_again(home, output, how):
    staged = interrupted(output)
    damage(home, chunk(staged, 2), how)
    assert staged.existing_chunks() == {0, 1}
    assert embed(output) == {0, 1}
    assert np.array_equal(output.open_embedding()[:], ROWS)


@pytest.mark.parametrize(
    ("how", "message"), [("missing", "is missing"), ("truncated", "has 243 bytes"), ("empty", "has 0 bytes")]
)
def test_a_bad_chunk_stops_the_finish(home, output, how, message):
    staged = interrupted(output)
    damage(home, chunk(staged, 2), how)
    bad = re.escape(f"{staged}/embedding/c/2/0: {message}") + r".*\(rows 20-22\)"
    with pytest.raises(StoreError, match=bad):
        staged.finish()
    with pytest.raises(StoreError, match="never finished"):
        staged.open_embedding()


@pytest.mark.parametrize(
    ("how", "message"), [("missing", "is missing"), ("truncated", "has 243 bytes, not 244")]
)
def test_opening_detects_a_missing_or_truncated_chunk(home, output, how, message):
    embed(output)
    damage(home, chunk(output, 1), how)
    with pytest.raises(StoreError, match=re.escape(f"{output}/embedding/c/1/0: {message} (rows 10-19)")):
        output.open_embedding()


def test_a_flipped_bit_in_the_data_is_an_error_when_it_is_read(home, output):
    embed(output)
    damage(home, chunk(output, 1), "flipped")
    written, message = output.open_embedding(), ".*checksum do not match.*transform again"
    assert np.array_equal(written[:10], ROWS[:10])
    with pytest.raises(StoreError, match=re.escape(f"{output}: rows 10-19: ") + message):
        written[10:20]


@pytest.mark.parametrize("name", ["zarr.json", "embedding/zarr.json"])
def test_edited_metadata_is_detected(home, output, name):
    embed(output)
    document = json.loads(home.contents()[f"out/result.zarr/{name}"])
    document["attributes"]["edited"] = True
    home.put(f"out/result.zarr/{name}", json.dumps(document).encode())
    with pytest.raises(StoreError, match=re.escape(f"{output}/{name}: ")):
        output.open_embedding()


def test_metadata_that_declares_too_many_rows_is_refused_at_the_first_missing_chunk(home, output):
    embed(output)
    root = json.loads(home.contents()["out/result.zarr/zarr.json"])
    array = root["consolidated_metadata"]["metadata"]["embedding"]
    array["shape"][0] = root["attributes"]["streamdr"]["n_rows"] = 2**50
    root["attributes"]["streamdr"]["digest"] = seal_of(root)
    home.put("out/result.zarr/zarr.json", json.dumps(root).encode())
    home.put("out/result.zarr/embedding/zarr.json", json.dumps(array).encode())
    with pytest.raises(StoreError, match=re.escape(f"{output}/embedding/c/3/0: is missing (rows 30-39)")):
        output.open_embedding()


def test_finishing_twice_is_harmless(output):
    for _ in range(2):
        begin(output)
        fill(output, skip=output.existing_chunks())
        output.finish()
    assert np.array_equal(output.open_embedding()[:], ROWS)


def test_temporary_files_of_killed_writes_are_not_published(home, output):
    staged = interrupted(output)
    home.put(f"{chunk(staged, 2)}.{secrets.token_hex(16)}.partial", b"half")
    assert embed(output) == {0, 1, 2}
    assert not [name for name in home.contents() if "partial" in name]


# Resuming


def test_a_killed_transform_is_continued(home, output):
    interrupted(output, ROWS[:20])
    assert not output.exists()
    assert embed(output) == {0, 1}
    assert np.array_equal(output.open_embedding()[:], ROWS)
    assert remains(home) == []


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({}, {0, 1, 2}),
        ({"attributes": {"model": "other"}}, set()),
        ({"output_names": ["a", "b", "c"]}, set()),
        ({"dtype": "f4"}, set()),
        ({"chunk_rows": 20}, set()),
        ({"n_rows": 20}, set()),
    ],
)
def test_rows_are_kept_only_for_an_equal_embedding(output, changes, kept):
    begin(output)
    fill(output)
    begin(output, **changes)
    assert output.existing_chunks() == kept


@pytest.mark.parametrize("name", ["zarr.json", "embedding/zarr.json"])
@pytest.mark.parametrize("how", ["missing", "truncated"])
def test_a_staging_with_damaged_metadata_is_begun_again(home, output, name, how):
    begin(output)
    fill(output)
    damage(home, f"out/result.zarr/{name}", how)
    begin(output)
    assert output.existing_chunks() == set()


def test_unchanged_rows_of_an_earlier_output_are_reused(output):
    embed(output)
    longer = np.concatenate([ROWS, ROWS + 1])
    with output.stage(kind="embedding", overwrite=True, key="longer") as staging:
        staged = open_backend(staging.path)
        begin(staged, n_rows=46)
        staged.adopt_rows(output.place, N_ROWS)
        assert staged.existing_chunks() == {0, 1}
        staged.write_rows(20, longer[20:])
        staged.finish()
        staging.publish()
    assert np.array_equal(output.open_embedding()[:], longer)


def test_rows_in_chunks_of_another_shape_are_not_reused(output):
    embed(output)
    with output.stage(kind="embedding", overwrite=True, key="other") as staging:
        staged = open_backend(staging.path)
        begin(staged, chunk_rows=5)
        with pytest.raises(StoreError, match=re.escape(f"{output}: has chunks of another shape")):
            staged.adopt_rows(output.place, N_ROWS)


# Coordinates beside rows

DAYS = np.arange(N_ROWS, dtype="int64")
SEASONS = np.array(["djf", "mäm", "", "son"])[DAYS % 4]


def coordinate(name: str, values: Array, dims=("sample",), chunk=7, **attributes) -> RowCoordinate:
    """Return a coordinate that is read in parts of its first dimension."""
    chunks = () if not values.ndim else (min(chunk, len(values)), *values.shape[1:])
    dtype = np.dtype(np.str_) if values.dtype.kind == "U" else values.dtype

    def read(span: Span) -> Array:
        return values[span.slice] if values.ndim else values

    return RowCoordinate(name, ArrayLayout(values.shape, chunks, dtype, dims), read, attributes)


COORDINATES = (
    coordinate("time", DAYS, units="days since 2000-01-01", calendar="standard"),
    coordinate("season", SEASONS),
    coordinate("level", np.array(500.0), (), units="hPa", _FillValue=-1.0),
)


def begin_labelled(staged, coordinates=COORDINATES, **changes):
    given = {
        "shape": (N_ROWS, N_OUTPUTS),
        "dims": ("sample", "component"),
        "dtype": "float64",
        "chunk_rows": CHUNK,
        "attributes": {"model": "m"},
        "array_attributes": {"coordinates": "time season level", "units": "K"},
    }
    staged.create_rows("embedding", coordinates=coordinates, **(given | changes))


def embed_labelled(output, coordinates=COORDINATES, *, overwrite=False, key="k"):
    with output.stage(kind="embedding", overwrite=overwrite, key=key) as staging:
        staged = open_backend(staging.path)
        begin_labelled(staged, coordinates)
        fill(staged, skip=staged.existing_chunks())
        for one in coordinates:
            staged.write_coordinate(one)
        staged.finish()
        staging.publish()


def test_coordinates_are_read_by_xarray_as_they_were_written(home, output):
    embed_labelled(output)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        opened = xarray.open_zarr(home.zarr_store("out/result.zarr"))
    assert set(opened.coords) == {"time", "season", "level"}
    assert np.array_equal(opened.embedding, ROWS)
    assert np.array_equal(opened.time, np.datetime64("2000-01-01", "ns") + DAYS * np.timedelta64(1, "D"))
    assert opened.season.values.tolist() == SEASONS.tolist()
    assert (opened.level.item(), opened.level.attrs) == (500.0, {"units": "hPa"})
    assert opened.embedding.attrs == {"units": "K"}
    assert output.read_group("embedding").record["coordinates"] == ["time", "season", "level"]
    assert np.array_equal(output.open_embedding()[:], ROWS)


def test_fill_values_are_written_as_xarray_reads_them(home, output):
    numbers = np.where(DAYS % 5, DAYS, -9)
    coordinates = (
        coordinate("f", numbers.astype("f4"), _FillValue=-9.0, missing_value=math.nan),
        coordinate("g", np.where(DAYS % 5, DAYS, math.nan), _FillValue=math.nan),
        coordinate("i", numbers.astype("i2"), _FillValue=-9, scale_factor=0.5),
        coordinate("t", SEASONS, _FillValue=""),
    )
    embed_labelled(output, coordinates)
    opened = xarray.open_zarr(home.zarr_store("out/result.zarr"))
    known = np.where(DAYS % 5, DAYS, np.nan)
    for name, factor in {"f": 1, "g": 1, "i": 0.5}.items():
        assert np.array_equal(opened[name], known * factor, equal_nan=True)
    assert opened.t.values.tolist() == SEASONS.tolist()
    assert np.array_equal(output.open_embedding()[:], ROWS)
    embed_labelled(output, coordinates, overwrite=True)


def test_coordinates_have_the_same_bytes_in_every_backend(home, output, tmp_path):
    embed_labelled(output)
    embed_labelled(open_backend(tmp_path / "reference.zarr"))
    files = {path for path in (tmp_path / "reference.zarr").rglob("*") if path.is_file()}
    names = {path.relative_to(tmp_path / "reference.zarr").as_posix(): path for path in files}
    assert {"season/c/3", "level/c", "time/zarr.json"} <= names.keys() == output.sizes().keys()
    for name, path in names.items():
        if name != "zarr.json":  # it contains the time of writing
            assert home.contents()[f"out/result.zarr/{name}"] == path.read_bytes(), name


@pytest.mark.parametrize("value", ["", 0, math.nan])
def test_coordinates_of_one_value_are_written_too(output, value):
    values = np.full(N_ROWS, value)
    embed_labelled(output, [coordinate("one", values)])
    (read,) = output.open_coordinates("embedding").values()
    assert np.array_equal(np.asarray(read[:]).astype(values.dtype), values, equal_nan=bool(value))


def test_only_a_chunk_of_a_coordinate_is_read_at_a_time(output):
    asked = []

    def read(span):
        asked.append(span)
        return DAYS[span.slice]

    begin_labelled(output, [RowCoordinate("time", COORDINATES[0].layout, read)])
    output.write_coordinate(RowCoordinate("time", COORDINATES[0].layout, read))
    assert asked == [Span(0, 7), Span(7, 14), Span(14, 21), Span(21, 23)]


@pytest.mark.parametrize("name", ["time/c/3", "season/c/1", "level/c"])
def test_a_coordinate_that_was_not_written_stops_the_finish(home, output, name):
    begin_labelled(output)
    fill(output)
    for one in COORDINATES:
        output.write_coordinate(one)
    damage(home, f"out/result.zarr/{name}", "missing")
    with pytest.raises(StoreError, match=re.escape(f"{output}/{name}: is missing; transform again")):
        output.finish()
    output.write_coordinate(next(one for one in COORDINATES if one.name == name.partition("/")[0]))
    output.finish()
    assert np.array_equal(output.open_embedding()[:], ROWS)


def test_a_damaged_coordinate_stops_the_finish(output, tmp_path):
    files = Files(tmp_path)
    output = open_backend(tmp_path / "out/result.zarr")
    begin_labelled(output)
    fill(output)
    for one in COORDINATES:
        output.write_coordinate(one)
    for name in ("time/c/1", "season/c/2"):
        before = files.contents()[f"out/result.zarr/{name}"]
        damage(files, f"out/result.zarr/{name}", "flipped")
        with pytest.raises(StoreError, match=re.escape(f"{output}/{name}: fails its checksum; transform")):
            output.finish()
        files.put(f"out/result.zarr/{name}", before)
    output.finish()


@pytest.mark.parametrize(
    ("name", "how", "message"),
    [
        ("time/c/1", "missing", "is missing"),
        ("time/c/1", "truncated", "has 59 bytes, not 60"),
        ("season/c/0", "missing", "is missing"),
        ("season/zarr.json", "missing", "cannot be read"),
        ("time/zarr.json", "truncated", "not valid JSON"),
    ],
)
def test_opening_detects_a_damaged_coordinate(home, output, name, how, message):
    embed_labelled(output)
    damage(home, f"out/result.zarr/{name}", how)
    with pytest.raises(StoreError, match=re.escape(f"{output}/{name}: {message}")):
        output.open_embedding()


def test_edited_metadata_of_a_coordinate_is_detected(home, output):
    embed_labelled(output)
    document = json.loads(home.contents()["out/result.zarr/time/zarr.json"])
    document["attributes"]["units"] = "days since 1900-01-01"
    home.put("out/result.zarr/time/zarr.json", json.dumps(document).encode())
    with pytest.raises(StoreError, match=re.escape(f"{output}/time/zarr.json: is not what was written")):
        output.open_embedding()


def test_a_coordinate_may_not_be_of_another_type_than_streamdr_writes(home, output):
    embed_labelled(output)
    root = json.loads(home.contents()["out/result.zarr/zarr.json"])
    array = root["consolidated_metadata"]["metadata"]["season"]
    array["codecs"] = [{"name": "vlen-bytes"}]
    root["attributes"]["streamdr"]["digest"] = seal_of(root)
    home.put("out/result.zarr/zarr.json", json.dumps(root).encode())
    with pytest.raises(StoreError, match=re.escape(f"{output}/season/zarr.json: codecs")):
        output.open_embedding()


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({}, {0, 1, 2}),
        ({"coordinates": COORDINATES[:2]}, set()),
        ({"coordinates": ()}, set()),
        (
            {"coordinates": (coordinate("time", DAYS, units="hours since 2000-01-01"), *COORDINATES[1:])},
            set(),
        ),
        ({"coordinates": (coordinate("time", DAYS.astype("f8")), *COORDINATES[1:])}, set()),
        ({"array_attributes": {"units": "mK"}}, set()),
    ],
)
def test_rows_are_kept_only_beside_equal_coordinates(output, changes, kept):
    begin_labelled(output)
    fill(output)
    begin_labelled(output, **changes)
    assert output.existing_chunks() == kept


@pytest.mark.parametrize("written", range(4))
def test_a_transform_that_is_killed_between_two_coordinates_is_continued(home, output, written):
    with output.stage(kind="embedding", overwrite=False, key="k") as staging:
        staged = open_backend(staging.path)
        begin_labelled(staged)
        fill(staged)
        for one in COORDINATES[:written]:
            staged.write_coordinate(one)
    assert not output.exists()
    embed_labelled(output)
    assert output.open_embedding()[:].tobytes() == ROWS.tobytes()
    assert np.array_equal(output.open_array("time")[:], DAYS)
    assert remains(home) == []


def test_coordinates_are_replaced_with_their_rows(home, output):
    embed_labelled(output)
    later = (coordinate("time", DAYS + 1, units="days since 2000-01-01"), coordinate("member", DAYS % 3))
    embed_labelled(output, later, overwrite=True, key="later")
    assert np.array_equal(output.open_array("time")[:], DAYS + 1)
    assert not [name for name in output.sizes() if name.startswith(("season", "level"))]
    embed(output, overwrite=True, key="plain")
    assert {name.partition("/")[0] for name in output.sizes()} == {"embedding", "zarr.json"}
    assert remains(home) == []


def test_foreign_files_in_a_coordinate_are_kept(home, output):
    embed_labelled(output)
    home.put("out/result.zarr/time/notes.txt", b"mine")
    before = home.contents()
    with pytest.raises(StoreError, match=r"it also holds 'time/notes\.txt', which streamdr did not write"):
        embed_labelled(output, overwrite=True)
    assert home.contents() == before


def test_an_array_that_is_not_a_coordinate_of_the_record_is_foreign(home, output):
    embed_labelled(output)
    home.put("out/result.zarr/mine/c/0", b"precious")
    with pytest.raises(StoreError, match="it also holds 'mine', which streamdr did not write"):
        embed_labelled(output, overwrite=True)


def test_temporary_files_of_killed_writes_of_coordinates_are_not_published(home, output):
    with output.stage(kind="embedding", overwrite=False, key="k") as staging:
        begin_labelled(open_backend(staging.path))
    for name in ("time/c/1", "season/c/0", "level/c"):
        home.put(f"out/{staging.path.name}/{name}.{secrets.token_hex(16)}.partial", b"half")
    embed_labelled(output)
    assert not [name for name in home.contents() if "partial" in name]


def test_earlier_rows_are_reused_whatever_their_coordinates(output):
    embed(output)
    with output.stage(kind="embedding", overwrite=True, key="labelled") as staging:
        staged = open_backend(staging.path)
        begin_labelled(staged)
        staged.adopt_rows(output.place, N_ROWS)
        assert staged.existing_chunks() == {0, 1}
        staged.write_rows(20, ROWS[20:])
        for one in COORDINATES:
            staged.write_coordinate(one)
        staged.finish()
        staging.publish()
    assert np.array_equal(output.open_embedding()[:], ROWS)


# Publishing: atomic, once, and without touching foreign files


def test_nothing_is_visible_before_it_is_published(home, output):
    with output.stage(kind="embedding", overwrite=False) as staging:
        begin(open_backend(staging.path))
        fill(open_backend(staging.path))
        assert not output.exists()
    assert not output.exists()
    assert home.contents() == {}


def test_an_existing_output_is_replaced_only_with_overwrite(home, output):
    output.save_model(toy(), **ABOUT)
    with pytest.raises(StoreError, match=re.escape(f"{output}: exists; set output.overwrite: true")):
        output.save_model(toy(2), **ABOUT)
    assert output.load_model(models=TOYS).model.mean[1] == 1
    output.save_model(toy(2), **ABOUT, overwrite=True)
    assert output.load_model(models=TOYS).model.mean[1] == 2
    assert remains(home) == []


def test_a_shorter_embedding_leaves_nothing_of_a_longer_one(output):
    embed(output)
    embed(output, ROWS[:8], overwrite=True, key="short")
    assert np.array_equal(output.open_embedding()[:], ROWS[:8])
    assert sorted(output.sizes()) == ["embedding/c/0/0", "embedding/zarr.json", "zarr.json"]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    ("there", "message"),
    [
        ({"notes.txt": b"mine"}, "it is not a streamdr output"),
        ({"zarr.json": b"{"}, "it is not a streamdr output"),
        ({"zarr.json": b'{"zarr_format": 3, "node_type": "group"}'}, "it is not a streamdr output"),
    ],
)
def test_foreign_content_is_never_replaced(home, output, there, message, overwrite):
    for name, data in there.items():
        home.put(f"out/result.zarr/{name}", data)
    before = home.contents()
    with pytest.raises(StoreError, match=f"never overwritten, since {message}"):
        output.save_model(toy(), **ABOUT, overwrite=overwrite)
    with pytest.raises(StoreError, match=f"never overwritten, since {message}"):
        output.check_output(kind="model", inputs=[], overwrite=overwrite)
    assert home.contents() == before


def test_an_output_with_foreign_files_or_of_another_kind_is_never_replaced(home, output):
    output.save_model(toy(), **ABOUT)
    with pytest.raises(StoreError, match="never overwritten, since it is a model, and this would be"):
        embed(output, overwrite=True)
    home.put("out/result.zarr/notes.txt", b"mine")
    with pytest.raises(StoreError, match=r"never overwritten, since it also holds 'notes\.txt'"):
        output.save_model(toy(2), **ABOUT, overwrite=True)
    assert home.contents()["out/result.zarr/notes.txt"] == b"mine"
    assert output.load_model(models=TOYS).model.mean[1] == 1


def test_the_first_of_two_runs_to_publish_wins(output):
    with output.stage(kind="embedding", overwrite=False, key="slow") as slow:
        staged = open_backend(slow.path)
        begin(staged)
        fill(staged, -ROWS)
        staged.finish()
        embed(output, key="fast")
        with pytest.raises(StoreError, match="was written by another run meanwhile"):
            slow.publish()
    assert np.array_equal(output.open_embedding()[:], ROWS)


def test_the_fence_is_called_before_anything_is_replaced(output):
    def fence():
        raise StoreError("another run has taken over")

    embed(output)
    with output.stage(kind="embedding", overwrite=True, key="zombie", fence=fence) as staging:
        staged = open_backend(staging.path)
        begin(staged)
        fill(staged, -ROWS)
        staged.finish()
        with pytest.raises(StoreError, match="taken over"):
            staging.publish()
    assert np.array_equal(output.open_embedding()[:], ROWS)


@pytest.mark.parametrize("key", ["a.b", "a/b", ""])
def test_a_key_that_could_name_the_staging_of_another_target_is_refused(output, key):
    with pytest.raises(ValueError, match="staging key"):
        output.stage(kind="embedding", overwrite=False, key=key)


# What killed runs leave behind


def test_sweep_removes_what_killed_runs_left_beside_a_complete_output(home, output):
    embed(output)
    left = ["out/.result.zarr.a1.partial/embedding/c/0/0", "out/.result.zarr.b2.partial/zarr.json"]
    home.put(left[0], b"left")
    home.put(left[1], home.contents()["out/result.zarr/zarr.json"])
    others = {
        "out/.result.zarr.c3.partial/notes.txt": b"of a user",
        "out/.other.zarr.d4.partial/embedding/c/0/0": b"of another output",
        "out/.result.zarr.zarr.e5.partial/embedding/c/0/0": b"of another output",
        "out/.result.zarr.lease": b"a lease",
        "out/notes.txt": b"of a user",
    }
    for name, data in others.items():
        home.put(name, data)
    output.sweep()
    assert {name: home.contents()[name] for name in remains(home)} == others
    assert np.array_equal(output.open_embedding()[:], ROWS)


def test_sweep_keeps_staged_work_until_the_output_is_complete(home, output):
    interrupted(output)
    before = home.contents()
    output.sweep()
    assert home.contents() == before


# Checks before anything is read


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("in.zarr", "lies inside the input"),
        ("in.zarr/X", "lies inside the input"),
        ("in.zarr/X/out", "lies inside the input"),
        ("in.zarr/out.zarr", "lies inside the input"),
        ("deep", "contains the input"),
        ("model.zarr", "overlaps another output"),
        ("model.zarr/z", "overlaps another output"),
        ("group", "overlaps another output"),
    ],
)
def test_overlapping_outputs_are_refused(home, target, message):
    for name in ("in.zarr/zarr.json", "in.zarr/X/zarr.json", "deep/in.zarr/zarr.json"):
        home.put(name, b"{}")
    before = home.contents()
    output = open_backend(f"{home.url}/{target}")
    with pytest.raises(OverlapError, match=re.escape(f"{output}: {message}")):
        output.check_output(
            kind="embedding",
            inputs=[parse_location(f"{home.url}/{name}") for name in ("in.zarr/X", "deep/in.zarr")],
            overwrite=True,
            other_outputs=[
                parse_location(f"{home.url}/{name}") for name in ("model.zarr", "group/scores.zarr")
            ],
        )
    assert home.contents() == before


def test_a_free_location_is_accepted_and_nothing_is_left_there(home, output, tmp_path):
    home.put("in.zarr/zarr.json", b"{}")
    elsewhere = [tmp_path / "elsewhere.zarr", parse_location("memory://elsewhere/out/result.zarr")]
    output.check_output(
        kind="embedding",
        inputs=[parse_location(f"{home.url}/in.zarr"), *elsewhere],
        overwrite=False,
        other_outputs=[parse_location(f"{home.url}/out/result"), *elsewhere],
    )
    assert list(home.contents()) == ["in.zarr/zarr.json"]


def test_check_output_accepts_an_existing_output_only_with_overwrite(output):
    embed(output)
    with pytest.raises(StoreError, match=r"output\.overwrite: true"):
        output.check_output(kind="embedding", inputs=[], overwrite=False)
    output.check_output(kind="embedding", inputs=[], overwrite=True)


# Leases


def test_one_run_holds_the_lease(home, output, tmp_path):
    busy = pytest.raises(BusyError, match=re.escape(f"{output}: is being written"))
    with store.leased([output, tmp_path / "o"]) as lease:
        lease.check()
        with busy, store.leased([output.place]):
            pytest.fail("two runs hold one lease")
        assert not store.is_abandoned(output)
    assert home.contents() == {}


def test_a_lease_is_replaced_only_by_compare_and_swap(output):
    lease_file, rival = output.lease_file(), output.lease_file()
    assert lease_file.read() is None
    first = lease_file.replace(b"one", None)
    assert lease_file.read() == (b"one", first)
    with pytest.raises(Conflict):
        rival.replace(b"one, too", None)
    second = rival.replace(b"one, later", first)
    assert lease_file.read() == (b"one, later", second)
    for act in (lambda: lease_file.replace(b"one, late", first), lambda: lease_file.remove(first)):
        with pytest.raises(Conflict):
            act()
    lease_file.remove(second)
    assert lease_file.read() is None
    with pytest.raises(Conflict):
        lease_file.replace(b"one, again", second)
