"""Every file of every input array, damaged in every way: correct values or one clear error.

No code is executed, nothing hangs, memory stays bounded. By default a seeded selection of cases runs, all of them
with `pytest -m slow`.
"""
# ruff: noqa: E501, RUF043, T201

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import pickle
import random
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import h5py
import numcodecs
import numpy as np
import pytest
import zarr
from damage import DAMAGES, copy_world, make_precious, watchdog
from narrowing import values_of

from streamdr import config
from streamdr.core.blocks import Span
from streamdr.core.progress import Silent
from streamdr.data import open_source
from streamdr.data.ingest import ingest
from streamdr.errors import StreamdrError

SELECTED = 200
N, D = 48, 6
RNG = np.random.default_rng(0)
VALUES = RNG.normal(size=(N, D))
MASK = RNG.random((N, D)) < 0.1
WEIGHTS = RNG.random(N) + 0.5
WORDS = np.array(["ant", "bee", "crayfish"])[np.arange(N) % 3]

CRC_V2 = [numcodecs.CRC32()]
STORES: dict[str, dict[str, Any]] = {
    "v3": {"chunks": (16, D), "compressors": zarr.codecs.ZstdCodec(checksum=True)},
    "v3 sharded": {"chunks": (8, D), "shards": (16, D), "compressors": zarr.codecs.Crc32cCodec()},
    "v3 filtered": {
        "chunks": (16, D),
        "filters": zarr.codecs.TransposeCodec(order=(1, 0)),
        "compressors": zarr.codecs.Crc32cCodec(),
    },
    "v2": {"chunks": (16, D), "zarr_format": 2, "compressors": numcodecs.Zlib()},
    "v2 filtered": {
        "chunks": (16, D),
        "zarr_format": 2,
        "filters": [numcodecs.Shuffle(8)],
        "compressors": numcodecs.GZip(),
    },
}
TEXTS: dict[str, dict[str, Any]] = {
    "v3": {"dtype": str, "compressors": zarr.codecs.Crc32cCodec()},
    "v3 fixed": {"dtype": "<U8", "compressors": zarr.codecs.Crc32cCodec()},
    "v2": {"dtype": "<U8", "zarr_format": 2, "compressors": numcodecs.Zlib()},
    "v2 any": {"dtype": str, "zarr_format": 2, "compressors": numcodecs.Zlib()},
}


def write(path: Path, values: Any, **options: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = values.ndim == 1
        if one:
            options |= {name: options[name][:1] for name in ("chunks", "shards") if name in options}
            options.pop("filters", None) if options.get("zarr_format") != 2 else None
        options.setdefault("dtype", values.dtype)
        array = zarr.create_array(path, shape=values.shape, config={"write_empty_chunks": True}, **options)
        array[...] = values


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, mask, weights and labels in every kind of store, and files of others beside them."""
    root = tmp_path_factory.mktemp("inputs")
    for kind, options in STORES.items():
        world = root / kind / "world"
        world.mkdir(parents=True)
        group = zarr.create_group(world / "x.zarr", zarr_format=options.get("zarr_format", 3))
        assert group is not None
        write(world / "x.zarr/X", VALUES, **options)
        numeric = {k: v for k, v in options.items() if k != "filters" or "v2" not in kind}
        write(world / "mask.zarr", MASK, **numeric)
        write(world / "weights.zarr", WEIGHTS, **numeric)
        text = TEXTS["v2" if "v2" in kind else "v3"]
        write(world / "labels.zarr", WORDS, chunks=(16,), **text)
        make_precious(world)
    for kind, options in TEXTS.items():
        world = root / f"text {kind}" / "world"
        world.mkdir(parents=True)
        write(world / "labels.zarr", WORDS, chunks=(8,), **options)
        make_precious(world)
    return root


def read(world: Path) -> tuple[Any, ...]:
    """Read all that a run would read: values with their mask, weights and labels."""
    if not (world / "x.zarr").exists():
        source = open_source(VALUES, labels=str(world / "labels.zarr"))
    else:
        source = open_source(
            str(world / "x.zarr"),
            array="X",
            mask=str(world / "mask.zarr"),
            weights=str(world / "weights.zarr"),
            labels=str(world / "labels.zarr"),
        )
    source.validate()
    before = source.fingerprint()
    block = source.block(Span(0, source.spec.n_rows), allow_nan=True)
    assert source.fingerprint() == before
    return block.values, block.labels, block.weights


def cases(root: Path, only: str = "") -> Iterator[tuple[str, str, str]]:
    for kind in sorted(path.name for path in root.iterdir()):
        world = root / kind / "world"
        files = sorted(p.relative_to(world).as_posix() for p in world.rglob("*") if p.is_file())
        for name in files:
            if not name.startswith("precious") and kind.startswith(only):
                for damage in DAMAGES:
                    yield kind, name, damage


def attempt(root: Path, scratch: Path, kind: str, name: str, damage: str, number: int = 0) -> str | None:
    """Return what went wrong in one case, or None."""
    expected = read(root / kind / "world")
    here = copy_world(root / kind / "world", scratch)
    DAMAGES[damage](here / name, random.Random(f"{kind} {name} {damage} {number}"), here / "precious")
    try:
        with watchdog(60):
            found = read(here)
    except StreamdrError as error:
        return None if str(error) and "\n" not in str(error) else f"an error that is not one line: {error!r}"
    except Exception as error:
        return f"another exception: {error!r}"
    if damage == "swapped":
        return None  # chunks that were swapped are valid
    same = all(
        np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
        for a, b in zip(expected, found, strict=True)
        if a is not None
    )
    return None if same else "other values, silently"


def failures(root: Path, tmp_path: Path, chosen: list[tuple[str, str, str]], number: int = 0) -> list[str]:
    wrong = []
    for i, case in enumerate(chosen):
        fault = attempt(root, tmp_path / f"{number} {i}", *case, number)
        if fault is not None:
            wrong.append(f"{' / '.join(case)}: {fault}")
    return wrong


def test_a_selection_of_damage_gives_correct_values_or_clear_errors(worlds: Path, tmp_path: Path) -> None:
    chosen = random.Random(12).sample(list(cases(worlds)), SELECTED)
    assert failures(worlds, tmp_path, chosen) == []


@pytest.mark.slow
def test_all_damage_gives_correct_values_or_clear_errors(worlds: Path, tmp_path: Path) -> None:
    chosen = list(cases(worlds))
    print(f"{len(chosen)} damaged stores")
    assert failures(worlds, tmp_path, chosen) == []


@pytest.mark.slow
def test_damaged_text_labels_give_correct_values_or_clear_errors(worlds: Path, tmp_path: Path) -> None:
    chosen = list(cases(worlds, "text"))
    print(f"{3 * len(chosen)} damaged stores of text")
    assert [fault for n in range(3) for fault in failures(worlds, tmp_path, chosen, n + 1)] == []


# Decompression bombs

BOMB = 256 << 20
PACKED = {
    "zstd": lambda data: numcodecs.Zstd().encode(data),
    "gzip": lambda data: gzip.compress(data, 9),
    "zlib": lambda data: zlib.compress(data, 9),
    "bz2": lambda data: bz2.compress(data),
    "lzma": lambda data: lzma.compress(data, preset=0),
    "blosc": lambda data: numcodecs.Blosc().encode(data),
    "lz4": lambda data: numcodecs.LZ4().encode(data),
}


def peak() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) << 10


@pytest.mark.parametrize("codec", sorted(PACKED))
def test_a_bomb_is_not_decoded(tmp_path: Path, codec: str) -> None:
    kind = {"gzip": "GZip", "blosc": "Blosc", "lz4": "LZ4", "bz2": "BZ2", "lzma": "LZMA"}.get(
        codec, codec.title()
    )
    write(tmp_path / "x.zarr", VALUES, zarr_format=2, chunks=(16, D), compressors=getattr(numcodecs, kind)())
    bomb = bytes(PACKED[codec](bytes(BOMB)))
    assert len(bomb) < BOMB // 50
    (tmp_path / "x.zarr/1.0").write_bytes(bomb)
    write(
        tmp_path / "nested.zarr",
        VALUES,
        zarr_format=2,
        chunks=(16, D),
        filters=[getattr(numcodecs, kind)()],
        compressors=numcodecs.Zstd(),
    )
    (tmp_path / "nested.zarr/1.0").write_bytes(bytes(numcodecs.Zstd().encode(bomb)))
    for name in ("x.zarr", "nested.zarr"):
        source = open_source(tmp_path / name)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        before = peak()
        with pytest.raises(StreamdrError, match="expected|Memory|damaged|cannot be read"):
            source.read(Span(0, N), Span(0, D))
        assert peak() - before < 100 << 20


def test_a_bomb_in_a_shard_is_not_decoded(tmp_path: Path) -> None:
    write(tmp_path / "x.zarr", VALUES, chunks=(8, D), shards=(N, D), compressors=zarr.codecs.ZstdCodec())
    file = tmp_path / "x.zarr/c/0/0"
    data, bomb = file.read_bytes(), bytes(numcodecs.Zstd().encode(bytes(BOMB)))
    index = np.frombuffer(data[-(16 * 6 + 4) : -4], "<u8").copy().reshape(-1, 2)
    index[0] = (len(data), len(bomb))
    body = data + bomb + index.tobytes()
    import google_crc32c

    file.write_bytes(body + google_crc32c.value(index.tobytes()).to_bytes(4, "little"))
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = peak()
    with pytest.raises(StreamdrError, match="expected"):
        open_source(tmp_path / "x.zarr").read(Span(0, N), Span(0, D))
    assert peak() - before < 100 << 20


# Code in pickles


class Canary:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("where", ["data", "labels", "weights", "mask"])
@pytest.mark.parametrize("kind", ["filter", "compressor", "v3", "shard", "nested shard", "object"])
def test_no_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, kind: str) -> None:
    monkeypatch.setattr("numcodecs.pickles.ALLOW_UNSAFE_PICKLE_DECODE", True)  # as in older versions
    canary = tmp_path / "canary"
    payload = pickle.dumps(Canary(canary))
    path = tmp_path / "x.zarr"
    values = VALUES if where in ("data", "mask") else WEIGHTS
    write(
        path, values, chunks=values.shape, zarr_format=2 if kind in ("filter", "compressor", "object") else 3
    )
    file = path / (".zarray" if (path / ".zarray").exists() else "zarr.json")
    document = json.loads(file.read_text())
    pickled = [{"name": "numcodecs.pickle", "configuration": {}}]
    if kind == "filter":
        document |= {"filters": [{"id": "pickle"}], "compressor": None}
    elif kind in ("compressor", "object"):
        document |= {"compressor": {"id": "pickle"}} | ({"dtype": "|O"} if kind == "object" else {})
    elif kind == "v3":
        document["codecs"] += pickled
    else:
        for _ in range(1 + (kind == "nested shard")):
            shard = {
                "chunk_shape": list(values.shape),
                "index_codecs": [{"name": "bytes"}],
                "codecs": document["codecs"] + pickled,
            }
            document["codecs"], pickled = [{"name": "sharding_indexed", "configuration": shard}], []
    file.write_text(json.dumps(document))
    for chunk in [p for p in path.rglob("*") if p.is_file() and p.name not in (file.name, ".zattrs")]:
        chunk.write_bytes(payload)
    with pytest.raises(StreamdrError, match="safe to run|cannot be used"):
        companion: dict[str, Any] = {where: path}
        source = open_source(path) if where == "data" else open_source(VALUES, **companion)
        source.block(Span(0, N), allow_nan=True)
    assert not canary.exists()


# Metadata


@pytest.mark.parametrize("file", ["zarr.json", ".zgroup"])
@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"zarr_format": 4, "node_type": "group"}',
        '{"node_type": "group"}',
        '{"zarr_format": "3", "node_type": "group"}',
    ],
)
def test_the_metadata_of_a_group_is_checked(tmp_path: Path, file: str, text: str) -> None:
    version: Literal[2, 3] = 3 if file == "zarr.json" else 2
    zarr.create_group(tmp_path / "x.zarr", zarr_format=version)
    write(tmp_path / "x.zarr/X", VALUES, chunks=(16, D), zarr_format=version)
    open_source(tmp_path / "x.zarr", array="X")
    (tmp_path / "x.zarr" / file).write_text(text)
    for array in ("X", None):
        with pytest.raises(StreamdrError, match="JSON|zarr_format"):
            open_source(tmp_path / "x.zarr", array=array)


@pytest.mark.parametrize(
    "change",
    [{"data_type": "int64"}, {"shape": [N - 1, D]}, {"shape": [N, D + 1]}, {"fill_value": 1.0}, None],
)
def test_metadata_that_changes_during_a_run_is_detected(
    tmp_path: Path, change: dict[str, Any] | None
) -> None:
    write(tmp_path / "x.zarr", VALUES, chunks=(16, D))
    write(tmp_path / "w.zarr", WEIGHTS, chunks=(16,))
    for name in ("x.zarr", "w.zarr"):
        source = open_source(tmp_path / "x.zarr", weights=tmp_path / "w.zarr")
        source.fingerprint()
        file = tmp_path / name / "zarr.json"
        document = json.loads(file.read_text())
        if change is None:
            file.unlink()
        else:
            altered = {k: v[: len(document["shape"])] if k == "shape" else v for k, v in change.items()}
            if altered.get("shape") == document["shape"]:
                continue
            file.write_text(json.dumps(document | altered))
        with pytest.raises(StreamdrError, match="changed since it was opened|is gone"):
            source.fingerprint()
        file.write_text(json.dumps(document))


def test_groups_in_a_loop_of_links_are_refused(tmp_path: Path) -> None:
    zarr.create_group(tmp_path / "x.zarr")
    for name in ("a", "b", "c"):
        (tmp_path / "x.zarr" / name).symlink_to(tmp_path / "x.zarr", target_is_directory=True)
    with watchdog(60), pytest.raises(StreamdrError, match="no end to its groups"):
        open_source(tmp_path / "x.zarr")


def test_chunks_in_a_loop_of_links_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "x.zarr", VALUES, chunks=(16, D))
    for name in ("7", "8"):
        (tmp_path / "x.zarr/c" / name).symlink_to(tmp_path / "x.zarr/c", target_is_directory=True)
    with watchdog(60), pytest.raises(StreamdrError, match="same directory twice"):
        open_source(tmp_path / "x.zarr").validate()


@pytest.mark.parametrize("shape", [[1] * 65, [1] * 33])
def test_too_many_dimensions_are_refused(tmp_path: Path, shape: list[int]) -> None:
    write(tmp_path / "x.zarr", VALUES, chunks=(16, D))
    file = tmp_path / "x.zarr/zarr.json"
    grid = {"name": "regular", "configuration": {"chunk_shape": shape}}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"shape": shape, "chunk_grid": grid}))
    with pytest.raises(StreamdrError, match="dimensions"):
        open_source(tmp_path / "x.zarr")


def test_rows_without_a_label_are_named(tmp_path: Path) -> None:
    write(tmp_path / "y.zarr", WORDS, chunks=(16,), dtype=str)
    (tmp_path / "y.zarr/c/1").unlink()
    with pytest.raises(StreamdrError, match="c/1 is missing, rows 16-31"):
        open_source(VALUES, labels=tmp_path / "y.zarr").validate()
    with pytest.raises(StreamdrError, match="row 3 has an empty label"):
        open_source(VALUES, labels=np.where(np.arange(N) == 3, "", WORDS)).block(Span(0, N))


# Other files


def test_a_file_that_blocks_is_refused(tmp_path: Path) -> None:
    """`/proc/kmsg` is a regular file by its mode, but a read waits for the next message of the kernel."""
    (tmp_path / "x.npy").symlink_to("/proc/kmsg")
    with watchdog(60), pytest.raises(StreamdrError, match="x.npy"):
        open_source(tmp_path / "x.npy")


def test_parquet_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(
        pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], ["a", "a"]), tmp_path / "x.parquet"
    )
    with pytest.raises(StreamdrError, match="2 of its columns are called 'a'"):
        ingest(tmp_path / "x.parquet", tmp_path / "y.zarr", progress=Silent())


@pytest.mark.parametrize(
    "damage", ["device", "pipe", "folder", "loop", "broken link", "swollen", "emptied", "nested"]
)
@pytest.mark.parametrize("name", ["x.npy", "x.csv", "x.csv.gz", "x.parquet", "x.h5", "run.yaml"])
def test_damaged_and_irregular_files_are_refused(tmp_path: Path, name: str, damage: str) -> None:
    path = tmp_path / name
    np.save(tmp_path / "x.npy", VALUES)
    if name != "x.npy":
        path.write_bytes(b"1,2\n3,4\n")
    if (name, damage) == ("x.npy", "swollen"):
        return  # data after the array is ignored
    DAMAGES[damage](path, random.Random(0), make_precious(tmp_path))
    with watchdog(60), pytest.raises(StreamdrError):
        if name == "run.yaml":
            config.load(path)
        else:
            ingest(path, tmp_path / "out.zarr", progress=Silent())
    if name == "x.npy":
        with watchdog(60), pytest.raises(StreamdrError):
            open_source(path).read(Span(0, N), Span(0, D))


def test_hdf5_links_to_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "secret.bin").write_bytes(VALUES.tobytes())
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["X"] = VALUES
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["inside"] = VALUES
        file.create_dataset(
            "external",
            VALUES.shape,
            VALUES.dtype,
            external=[(str(tmp_path / "secret.bin"), 0, VALUES.nbytes)],
        )
        layout = h5py.VirtualLayout(VALUES.shape, VALUES.dtype)
        layout[...] = h5py.VirtualSource(str(tmp_path / "other.h5"), "X", VALUES.shape)
        file.create_virtual_dataset("virtual", layout)
        file["link"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "/X")
        file["far"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "/")
        file["soft"] = h5py.SoftLink("/far/X")
        file["round"] = h5py.SoftLink("/round")
        file["near"] = h5py.SoftLink("/inside")
    for name in ("external", "virtual", "link", "far/X", "soft", "round"):
        with pytest.raises(StreamdrError, match="other files|another file|form a loop"):
            ingest(tmp_path / "x.h5", tmp_path / "out.zarr", dataset=name, progress=Silent())
    ingest(tmp_path / "x.h5", tmp_path / "out.zarr", dataset="near", progress=Silent())
    assert np.array_equal(values_of(zarr.open_array(tmp_path / "out.zarr/X")), VALUES)


def _deflated(zeros: int) -> bytes:
    packer = zlib.compressobj(9)
    return b"".join(packer.compress(bytes(1 << 20)) for _ in range(zeros >> 20)) + packer.flush()


@pytest.mark.parametrize("kind", ["deflate", "long", "nested", "scale-offset"])
def test_a_bomb_in_an_hdf5_file_is_not_decoded(tmp_path: Path, kind: str) -> None:
    size, path = {"deflate": 80 << 20, "long": 2 * BOMB}.get(kind, BOMB), tmp_path / "bomb.h5"
    with h5py.File(path, "w") as file:
        if kind == "scale-offset":
            file.create_dataset("X", data=np.zeros((1001, 10), int), chunks=(1001, 10), scaleoffset=0)
        else:
            properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            properties.set_chunk((1000, 10))
            for _ in range(2 if kind == "nested" else 1):
                properties.set_filter(h5py.h5z.FILTER_DEFLATE, 0, (9,))
            space = h5py.h5s.create_simple((1000, 10))
            made = h5py.h5d.create(file.id, b"X", h5py.h5t.NATIVE_DOUBLE, space, properties)
            data = _deflated(size)
            made.write_direct_chunk((0, 0), zlib.compress(data, 9) if kind == "nested" else data)
    if kind == "scale-offset":
        data, values = path.read_bytes(), np.array([10010], "<u4").tobytes()
        assert data.count(values) == 1
        path.write_bytes(data.replace(values, np.array([size // 8], "<u4").tobytes()))
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = peak()
    with watchdog(), pytest.raises(StreamdrError, match="bomb.h5"):
        ingest(path, tmp_path / "y.zarr", progress=Silent())
    assert peak() - before < 64 << 20
    assert not (tmp_path / "y.zarr").exists()


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "gzip", "shuffle": True, "fletcher32": True},
        {"compression": "gzip", "scaleoffset": 0},
        {"compression": "lzf", "shuffle": True},
        {"scaleoffset": 0},
    ],
)
def test_valid_filters_of_hdf5_are_read(tmp_path: Path, options: dict[str, Any]) -> None:
    values = RNG.integers(-1000, 1000, (70, 9)).astype(np.int32)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        made = file.create_dataset("X", (100, 9), np.int32, chunks=(16, 4), **options)
        made[:70] = values
        if options == {"compression": "gzip", "shuffle": True, "fletcher32": True}:
            # Chunks may be stored without any of the filters.
            made.id.write_direct_chunk((0, 0), np.ascontiguousarray(values[:16, :4]).tobytes(), 0b111)
    ingest(tmp_path / "x.h5", tmp_path / "y.zarr", progress=Silent())
    found = values_of(zarr.open_array(tmp_path / "y.zarr/X"))
    assert np.array_equal(found[:70], values)
    assert not found[70:].any()
