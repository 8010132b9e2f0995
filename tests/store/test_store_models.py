"""A model is loaded bit for bit as it was saved, or not at all."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray
import zarr
from hypothesis import given
from hypothesis import strategies as st
from narrowing import checked

from streamdr.core.blocks import Array
from streamdr.errors import StoreError
from streamdr.store import SavedModel, Staging, create_embedding, finish, load_model, save_model, write_rows
from streamdr.store.arrays import CHUNK_BYTES, ArrayLayout
from streamdr.store.record import from_json, to_json


@dataclass(frozen=True, eq=False)
class Toy:
    mean: Array = field(metadata={"dims": ("feature",)})
    components: Array = field(metadata={"dims": ("component", "feature")})
    rank: int
    noise: float
    centred: bool
    solver: str
    whiten: str | None = None
    scale: Array | None = field(default=None, metadata={"dims": ("feature",)})


MODELS = {"toy": Toy}


def toy(*, k: int = 2, d: int = 3, dtype: str = "f8", noise: float = 0.1, scaled: bool = False) -> Toy:
    random = np.random.default_rng(0)
    return Toy(
        mean=random.normal(size=d).astype(dtype),
        components=random.normal(size=(k, d)).astype(dtype),
        rank=k,
        noise=noise,
        centred=True,
        solver="gram",
        scale=random.normal(size=d).astype(dtype) if scaled else None,
    )


def save(path: Path, model: Any, **changes: Any) -> Path:
    settings: dict[str, Any] = {
        "method": "toy",
        "parameters": {"n_components": 2, "tol": math.inf},
        "feature_names": None,
        "input_fingerprint": "abc",
        "n_rows": 10,
    }
    return checked(Path, save_model(path, model, **(settings | changes)))


def same(one: Any, other: Any) -> bool:
    """Return whether two values have the same type and the same bits. NaN equals itself."""
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    return type(one) is type(other) and repr(one) == repr(other)


def same_model(one: Any, other: Any) -> bool:
    return type(one) is type(other) and all(
        same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one)
    )


def attempt(path: Path) -> SavedModel | str:
    """Return the loaded model, or the message of the error."""
    try:
        return load_model(path, models=MODELS)
    except StoreError as error:
        return str(error)


def digest(document: dict[str, Any]) -> str:
    """Return the digest as the format defines it: sha256 of the canonical JSON of the root without it."""
    bare = json.loads(json.dumps(document))
    bare["attributes"]["streamdr"].pop("digest", None)
    return hashlib.sha256(json.dumps(bare, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def edit(path: Path, change: Callable[[dict[str, Any], dict[str, Any]], object]) -> None:
    """Change (root document, record) and seal it again, as a hostile or a future writer could."""
    root = path / "zarr.json"
    document = json.loads(root.read_text())
    change(document, document["attributes"]["streamdr"])
    document["attributes"]["streamdr"]["digest"] = digest(document)
    root.write_text(json.dumps(document))


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f8", "c16", "i8", "u1", "?"])
def test_a_model_round_trips_to_the_bit(tmp_path: Path, dtype: str, scaled: bool) -> None:
    model = toy(dtype=dtype, scaled=scaled)
    assert save(tmp_path / "m", model, feature_names=["a", "é\n", "\udc80"]) == tmp_path / "m"
    saved = load_model(tmp_path / "m", models=MODELS)
    for f in fields(model):
        before = getattr(model, f.name)
        native = before.astype(before.dtype.newbyteorder("=")) if isinstance(before, np.ndarray) else before
        assert same(getattr(saved.model, f.name), native), f.name
    assert saved.method == "toy"
    assert saved.parameters == {"n_components": 2, "tol": math.inf}
    assert saved.feature_names == ("a", "é\n", "\udc80")
    assert saved.input_fingerprint == "abc"
    assert saved.n_rows == 10
    assert saved.record["complete"] is True


@pytest.mark.parametrize(
    "value", [0.1, -0.0, 5e-324, 1 / 3, 1e308, math.inf, -math.inf, math.nan, 1.0, 2.0**70]
)
def test_a_float_scalar_round_trips_to_the_bit(tmp_path: Path, value: float) -> None:
    save(tmp_path / "m", toy(noise=value))
    loaded = load_model(tmp_path / "m", models=MODELS).model.noise
    assert type(loaded) is float
    assert loaded.hex() == value.hex()


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_parameters_survive_json(value: Any) -> None:
    text = json.dumps(to_json(value), allow_nan=False)
    assert repr(from_json(json.loads(text))) == repr(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.float64("nan"), math.nan),
        ((1, 2), [1, 2]),
    ],
)
def test_numpy_scalars_and_tuples_become_plain(value: Any, expected: Any) -> None:
    assert same(from_json(to_json(value)), expected)


@pytest.mark.parametrize(
    ("shape", "chunks"),
    [
        ((), ()),
        ((0,), (1,)),
        ((0, 5), (1, 5)),
        ((7,), (7,)),
        ((2**22,), (2**21,)),
        ((3, 2**21), (1, 2**21)),
        ((3, 2**21 + 1), (1, 2**21)),
        ((2**21, 3), (699050, 3)),
        ((2, 2, 2**20), (1, 2, 2**20)),
    ],
)
def test_chunks_are_whole_rows_of_at_most_16_mb(shape: tuple[int, ...], chunks: tuple[int, ...]) -> None:
    values = np.broadcast_to(np.float64(0), shape)
    assert ArrayLayout.of(values, ("x",) * len(shape)).chunks == chunks
    assert math.prod(chunks) * 8 <= CHUNK_BYTES


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (2**20 * 5 + 3,), (3, 2**21 + 5)])
def test_arrays_of_any_shape_round_trip_over_many_chunks(tmp_path: Path, shape: tuple[int, ...]) -> None:
    dims = tuple(f"d{i}" for i in range(len(shape)))

    @dataclass(frozen=True)
    class One:
        x: Array = field(metadata={"dims": dims})

    values = np.arange(math.prod(shape), dtype="f4").reshape(shape)
    save(tmp_path / "m", One(values), method="one")
    assert same(load_model(tmp_path / "m", models={"one": One}).model.x, values)
    assert np.asarray(zarr.open_array(tmp_path / "m" / "x", mode="r")[...]).tobytes() == values.tobytes()


@pytest.mark.parametrize("view", [np.asfortranarray, lambda x: x[::-1, ::2], lambda x: x.T])
def test_the_memory_layout_of_an_array_does_not_matter(
    tmp_path: Path, view: Callable[[Array], Array]
) -> None:
    components = view(np.arange(24.0).reshape(4, 6))
    k, d = components.shape
    save(tmp_path / "m", Toy(np.zeros(d), components, k, 0.0, True, "x"))
    np.testing.assert_array_equal(load_model(tmp_path / "m", models=MODELS).model.components, components)


def test_xarray_shows_named_dimensions_without_a_warning(tmp_path: Path) -> None:
    model = toy(scaled=True)
    save(tmp_path / "m", model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset = xarray.open_zarr(tmp_path / "m")
        assert dataset.sizes == {"component": 2, "feature": 3}
        np.testing.assert_array_equal(dataset.components.values, model.components)
        assert set(dataset.data_vars) == {"mean", "components", "scale"}
        assert dataset.attrs["streamdr"]["method"] == "toy"


def test_every_chunk_is_plain_bytes_and_its_checksum(tmp_path: Path) -> None:
    save(tmp_path / "m", toy())
    for metadata in (tmp_path / "m").glob("*/zarr.json"):
        names = [codec["name"] for codec in json.loads(metadata.read_text())["codecs"]]
        assert names == ["bytes", "crc32c"]


def test_the_digest_is_that_of_the_format(tmp_path: Path) -> None:
    save(tmp_path / "m", toy())
    document = json.loads((tmp_path / "m" / "zarr.json").read_text())
    assert document["attributes"]["streamdr"]["digest"] == digest(document)
    files = document["attributes"]["streamdr"]["files"]
    on_disk = {
        p.relative_to(tmp_path / "m").as_posix(): p for p in (tmp_path / "m").rglob("*") if p.is_file()
    }
    del on_disk["zarr.json"]
    assert files == {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in on_disk.items()}


def test_a_flipped_bit_anywhere_is_detected(tmp_path: Path) -> None:
    path = save(tmp_path / "m", toy(scaled=True), feature_names=["a", "b", "ü"])
    root = path / "zarr.json"
    saved = load_model(path, models=MODELS)
    flips = 0
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        good = file.read_bytes()
        for offset in range(0, len(good), max(1, len(good) // 97)):
            bad = bytearray(good)
            bad[offset] ^= 1 << (offset % 8)
            file.write_bytes(bad)
            outcome = attempt(path)
            if isinstance(outcome, str):
                assert outcome.startswith(str(path if file == root else file))
            else:
                # JSON has several spellings of some values, such as é: the document is still the same.
                assert file == root
                assert same_model(outcome.model, saved.model)
                assert outcome.record == saved.record
            flips += 1
        file.write_bytes(good)
    assert flips > 400


def test_exchanged_chunks_are_detected(tmp_path: Path) -> None:
    path = save(tmp_path / "m", toy(scaled=True))
    shutil.copy(path / "scale" / "c" / "0", path / "mean" / "c" / "0")
    with pytest.raises(StoreError, match=re.escape(f"{path}/mean/c/0: is not what was saved")):
        load_model(path, models=MODELS)


@pytest.mark.parametrize("file", ["mean/c/0", "mean/zarr.json", "components"])
def test_a_missing_file_is_named(tmp_path: Path, file: str) -> None:
    path = save(tmp_path / "m", toy())
    if (path / file).is_dir():
        shutil.rmtree(path / file)
    else:
        (path / file).unlink()
    with pytest.raises(StoreError, match=re.escape(str(path / file))):
        load_model(path, models=MODELS)


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    path = save(tmp_path / "m", toy())
    chunk = path / "mean" / "c" / "0"
    chunk.write_bytes(chunk.read_bytes()[:-1])
    with pytest.raises(StoreError, match=re.escape(f"{chunk}: has the wrong size")):
        load_model(path, models=MODELS)


def test_anything_that_is_not_a_model_is_refused(tmp_path: Path) -> None:
    zarr.create_group(tmp_path / "group")
    zarr.create_array(tmp_path / "array", shape=(3,), dtype="f8")
    (tmp_path / "file").write_text("text")
    (tmp_path / "empty").mkdir()
    for name in ("group", "array", "file", "empty"):
        with pytest.raises(StoreError, match=re.escape(f"{tmp_path / name}: not a streamdr model")):
            load_model(tmp_path / name, models=MODELS)
    with pytest.raises(StoreError, match="no such file"):
        load_model(tmp_path / "nothing", models=MODELS)


def test_an_embedding_is_not_a_model(tmp_path: Path) -> None:
    with Staging(tmp_path / "z", kind="embedding", overwrite=False) as staging:
        create_embedding(staging.path, n_rows=3, n_outputs=2, dtype="f4", chunk_rows=3, attributes={})
        write_rows(staging.path, 0, np.zeros((3, 2)))
        finish(staging.path)
        staging.publish()
    with pytest.raises(StoreError, match="this is a streamdr embedding, not a model"):
        load_model(tmp_path / "z", models=MODELS)


def array_of(document: dict[str, Any]) -> dict[str, Any]:
    return dict(document["consolidated_metadata"]["metadata"])["mean"]


PICKLE = {"name": "numcodecs.pickle", "configuration": {}}
ZSTD = {"name": "zstd", "configuration": {"level": 0}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda doc, rec: rec.update(schema=2), "written in schema 2 .*upgrade streamdr"),
        (lambda doc, rec: rec.update(method="umap"), r"method 'umap', unknown here \(known: toy\)"),
        (lambda doc, rec: rec.update(method=["toy"]), "not as streamdr writes a model"),
        (lambda doc, rec: rec.update(complete=False), "never finished"),
        (lambda doc, rec: rec.pop("parameters"), "not as streamdr writes a model"),
        (lambda doc, rec: rec.update(files=[]), "not as streamdr writes a model"),
        (lambda doc, rec: rec["scalars"].pop("rank"), "'rank' of the model is missing"),
        (
            lambda doc, rec: doc["consolidated_metadata"]["metadata"].pop("mean"),
            "'mean' of the model is missing",
        ),
        (lambda doc, rec: doc.pop("consolidated_metadata"), "'mean' of the model is missing"),
        (lambda doc, rec: array_of(doc)["codecs"].append(PICKLE), "codecs .* are refused"),
        (lambda doc, rec: array_of(doc)["codecs"].insert(1, ZSTD), "codecs .* are refused"),
        (lambda doc, rec: array_of(doc)["codecs"].pop(), "codecs .* are refused"),
        (lambda doc, rec: array_of(doc).update(codecs=None), "codecs None are refused"),
        (lambda doc, rec: array_of(doc).update(data_type="object"), "data type 'object' is refused"),
        (lambda doc, rec: array_of(doc).update(data_type={"name": "string"}), "data type .* is refused"),
        (lambda doc, rec: array_of(doc).update(data_type="float32"), "mean/c/0: has the wrong size"),
        (lambda doc, rec: array_of(doc).update(shape=[10**15]), "mean: 1 chunks are recorded for the shape"),
        (
            lambda doc, rec: array_of(doc).update(shape=[2]),
            "'feature' is 3 long in 'components', but 2 in 'mean'",
        ),
        (lambda doc, rec: array_of(doc).update(shape=[3, 1]), "not as streamdr writes them"),
        (lambda doc, rec: array_of(doc).update(shape=[-3]), "not as streamdr writes them"),
        (lambda doc, rec: array_of(doc).update(shape="abc"), "not as streamdr writes them"),
        (lambda doc, rec: array_of(doc).update(shape=None), "not as streamdr writes them"),
        (lambda doc, rec: array_of(doc).update(storage_transformers=[{}]), "not as streamdr writes them"),
        (
            lambda doc, rec: array_of(doc).update(dimension_names=["component"]),
            "mean: has dimensions|is 2 long",
        ),
        (lambda doc, rec: doc["consolidated_metadata"]["metadata"].update(mean=7), "has no array metadata"),
    ],
)
def test_a_sealed_store_that_streamdr_would_not_write_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any], dict[str, Any]], object], message: str
) -> None:
    path = save(tmp_path / "m", toy())
    edit(path, change)
    with pytest.raises(StoreError, match=message) as refusal:
        load_model(path, models=MODELS)
    assert str(refusal.value).startswith(str(path))


def test_an_impossibly_large_chunk_is_refused_before_it_is_allocated(tmp_path: Path) -> None:
    path = save(tmp_path / "m", toy())

    def inflate(document: dict[str, Any], record: dict[str, Any]) -> None:
        array_of(document).update(shape=[10**15])
        array_of(document)["chunk_grid"]["configuration"]["chunk_shape"] = [10**15]

    edit(path, inflate)
    with pytest.raises(StoreError, match="wrong size"):
        load_model(path, models=MODELS)


def test_a_field_added_with_a_default_leaves_older_models_loadable(tmp_path: Path) -> None:
    @dataclass(frozen=True, eq=False)
    class Newer(Toy):
        added: float = 2.5

    path = save(tmp_path / "m", toy())
    assert load_model(path, models={"toy": Newer}).model.added == 2.5


def test_edited_metadata_is_detected(tmp_path: Path) -> None:
    path = save(tmp_path / "m", toy())
    root = path / "zarr.json"
    root.write_text(root.read_text().replace('"n_rows": 10', '"n_rows": 11'))
    with pytest.raises(StoreError, match=re.escape(f"{root}: does not match its digest")):
        load_model(path, models=MODELS)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Toy(np.zeros(3), np.zeros((2, 4)), 1, 0.0, True, "x"), "'feature' is 3 long in 'mean', but 4"),
        (Toy(np.zeros((3, 1)), np.zeros((2, 3)), 1, 0.0, True, "x"), "cannot save the shape"),
        (Toy(np.array(["a"]), np.zeros((2, 1)), 1, 0.0, True, "x"), "only arrays of numbers"),
        (Toy(np.array([None]), np.zeros((2, 1)), 1, 0.0, True, "x"), "only arrays of numbers"),
        (Toy([1.0], np.zeros((2, 1)), 1, 0.0, True, "x"), "only arrays of numbers"),  # type: ignore[arg-type]
        (Toy(np.zeros(3), np.zeros((2, 3)), {1}, 0.0, True, "x"), "cannot record a set"),  # type: ignore[arg-type]
    ],
)
def test_a_model_that_cannot_be_saved_leaves_nothing_behind(tmp_path: Path, model: Toy, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        save(tmp_path / "m", model)
    assert list(tmp_path.iterdir()) == []


def test_saving_twice_needs_overwrite(tmp_path: Path) -> None:
    save(tmp_path / "m", toy(noise=1.0))
    with pytest.raises(StoreError, match=r"output\.overwrite: true"):
        save(tmp_path / "m", toy(noise=2.0))
    save(tmp_path / "m", toy(noise=2.0), overwrite=True)
    assert load_model(tmp_path / "m", models=MODELS).model.noise == 2.0


PEAK = """
    import resource, sys
    from dataclasses import dataclass, field
    from pathlib import Path
    import numpy as np
    from streamdr.store import load_model, save_model

    @dataclass(frozen=True)
    class One:
        x: np.ndarray = field(metadata={"dims": ("a", "b")})

    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def save(name, values):
        save_model(Path(sys.argv[1], name), One(values), method="one", parameters={}, feature_names=None,
                   input_fingerprint="", n_rows=1)

    small = np.ones((2, 2**21))
    save("small", small)
    load_model(Path(sys.argv[1], "small"), models={"one": One})
    values = np.ones((8, 2**21))
    before = peak()
    save("large", values)
    written = peak()
    del values
    loaded = load_model(Path(sys.argv[1], "large"), models={"one": One})
    print(written - before, peak() - written, loaded.model.x.nbytes)
"""


def test_saving_and_loading_need_only_a_few_chunks_of_memory_besides_the_model(tmp_path: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(PEAK), str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    saving, loading, size = map(int, result.stdout.split())
    assert size == 8 * CHUNK_BYTES
    assert saving < 4 * CHUNK_BYTES
    assert loading < 4 * CHUNK_BYTES
