"""Bad input, through the command line: one clear error, the right exit code, and nothing half-written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from command_line import Outcome, streamdr, succeed, write_config, write_store
from zarr.codecs import Crc32cCodec, ZstdCodec

ROWS, COLS = 40, 6
X = np.random.default_rng(0).normal(size=(ROWS, COLS)).astype(np.float32)


def with_value(value: float) -> np.ndarray:
    values = X.copy()
    values[13, 4] = value
    return values


def with_column(column: int, replacement: np.ndarray | float) -> np.ndarray:
    values = X.copy()
    values[:, column] = replacement
    return values


def without(path: Path, key: str, **options: Any) -> None:
    write_store(path, X, **options)
    (path / key).unlink()


def with_a_chunk_of_zeros_in_a_shard(path: Path) -> None:
    array = write_store(path, X, shards=(20, COLS))
    array[10:20] = 0


def truncated(path: Path) -> None:
    write_store(path, X)
    chunk = path / "c" / "1" / "0"
    chunk.write_bytes(chunk.read_bytes()[:-7])


def with_a_flipped_bit(path: Path) -> None:
    write_store(path, X, compressors=[ZstdCodec(), Crc32cCodec()])
    chunk = path / "c" / "1" / "0"
    content = bytearray(chunk.read_bytes())
    content[20] ^= 4
    chunk.write_bytes(content)


def with_a_file_beside(path: Path, name: str, values: np.ndarray) -> None:
    write_store(path, X)
    np.save(path.with_name(name), values)


def with_a_group_beside(path: Path, name: str) -> None:
    write_store(path, X)
    with_two_arrays(path.with_name(name))


def with_two_arrays(path: Path) -> None:
    zarr.open_group(path, mode="w")
    for name in ("a", "b"):
        zarr.create_array(path / name, data=X[:, 0], chunks=(10,))


def declaring(path: Path, **changes: Any) -> None:
    path.mkdir()
    document = {
        "zarr_format": 2,
        "shape": [ROWS, COLS],
        "chunks": [10, COLS],
        "dtype": "<f4",
        "compressor": None,
        "fill_value": 0,
        "order": "C",
        "filters": None,
    }
    (path / ".zarray").write_text(json.dumps(document | changes))


# What is in the store, what the configuration says, and what the error must say.
CASES: dict[str, tuple[Callable[[Path], Any], dict[str, Any], list[str]]] = {
    "a missing chunk, v3": (lambda p: without(p, "c/2/0"), {}, ["x.zarr", "c/2/0", "rows 20-29"]),
    "a missing chunk, v2": (lambda p: without(p, "2.0", zarr_format=2), {}, ["x.zarr", "2.0", "rows 20-29"]),
    "a missing shard": (
        lambda p: without(p, "c/1/0", shards=(20, COLS)),
        {},
        ["x.zarr", "c/1/0", "rows 20-39", "allow_missing_chunks"],
    ),
    "a missing chunk in a shard": (
        with_a_chunk_of_zeros_in_a_shard,
        {},
        ["x.zarr", "(1, 0) of shard c/0/0", "rows 10-19"],
    ),
    "a truncated chunk": (truncated, {}, ["x.zarr", "c/1/0", "rows 10-19"]),
    "a flipped bit": (with_a_flipped_bit, {}, ["x.zarr", "c/1/0", "rows 10-19", "checksum"]),
    "NaN": (lambda p: write_store(p, with_value(np.nan)), {}, ["x.zarr", "nan", "row 13", "column 4"]),
    "Inf": (lambda p: write_store(p, with_value(-np.inf)), {}, ["x.zarr", "-inf", "row 13", "column 4"]),
    "objects": (lambda p: declaring(p, dtype="|O"), {}, ["x.zarr/.zarray", "|O"]),
    "a pickle codec": (
        lambda p: declaring(p, filters=[{"id": "pickle", "protocol": 5}]),
        {},
        ["x.zarr/.zarray", "pickle"],
    ),
    "an absurd shape": (
        lambda p: declaring(p, shape=[10**12, 10**9]),
        {},
        ["x.zarr/.zarray", "1000000000000", "absurd"],
    ),
    "an absurd chunk": (
        lambda p: declaring(p, shape=[10**9, 10**6], chunks=[10**8, 10**6]),
        {},
        ["x.zarr/.zarray", "chunk of (100000000, 1000000)"],
    ),
    "a large shape with nothing in it": (
        lambda p: declaring(p, shape=[10**9, 10**6], chunks=[10**3, 10**3]),
        {},
        ["x.zarr", "0.0 is missing"],
    ),
    "no rows": (lambda p: write_store(p, X[:0]), {}, ["x.zarr", "empty", "(0, 6)"]),
    "one row": (lambda p: write_store(p, X[:1]), {}, ["x.zarr", "at least 2 rows"]),
    "fewer rows than components": (
        lambda p: write_store(p, X[:3]),
        {"method": {"n_components": 5}},
        ["config.yaml:5:17: method.n_components", "3 x 6"],
    ),
    "a constant column, scaled": (
        lambda p: write_store(p, with_column(3, 7.0)),
        {"method": {"scale": True}},
        ["config.yaml:6:10: method.scale", "column 3"],
    ),
    "only constant columns": (lambda p: write_store(p, np.full_like(X, 7)), {}, ["x.zarr", "constant"]),
    "a lack of rank, whitened": (
        lambda p: write_store(p, with_column(3, X[:, 2])),
        {"method": {"n_components": 6, "whiten": "pca"}},
        ["config.yaml:6:11: method.whiten", "rank 5"],
    ),
    "a path that does not exist": (
        lambda p: None,
        {},
        ["config.yaml:2:9: input.path: x.zarr: no such file or directory in ", "where relative paths begin"],
    ),
    "a sample axis that does not exist": (
        lambda p: write_store(p, X),
        {"input": {"path": "x.zarr", "sample_axis": 2}},
        ["config.yaml:3:16: input.sample_axis", "x.zarr"],
    ),
    "a folder that is no store": (
        lambda p: p.mkdir(),
        {},
        ["config.yaml:2:9: input.path: x.zarr: not a zarr store"],
    ),
    "weights in a group of several arrays": (
        lambda p: with_a_group_beside(p, "g.zarr"),
        {"input": {"path": "x.zarr", "weights": "g.zarr"}},
        ["config.yaml:3:12: input.weights: ", "the arrays a, b", "as in g.zarr/a"],
    ),
    "weights of another length": (
        lambda p: with_a_file_beside(p, "w.npy", np.ones(ROWS - 1)),
        {"input": {"path": "x.zarr", "weights": "w.npy"}},
        ["config.yaml:3:12: input.weights: ", "w.npy", "39", "40 rows"],
    ),
    "a negative weight": (
        lambda p: with_a_file_beside(p, "w.npy", np.linspace(1, -0.1, ROWS)),
        {"input": {"path": "x.zarr", "weights": "w.npy"}},
        ["w.npy: row 36"],
    ),
    "a mask of another shape": (
        lambda p: with_a_file_beside(p, "m.npy", np.zeros((COLS, ROWS), bool)),
        {"input": {"path": "x.zarr", "mask": "m.npy"}},
        ["config.yaml:3:9: input.mask: ", "m.npy: a mask of shape (6, 40) for x.zarr of shape (40, 6)"],
    ),
    "a mask of fractions": (
        lambda p: with_a_file_beside(p, "m.npy", X),
        {"input": {"path": "x.zarr", "mask": "m.npy"}},
        ["config.yaml:3:9: input.mask: ", "m.npy: values of type float32 do not make a mask"],
    ),
    "a mask of other numbers": (
        lambda p: with_a_file_beside(p, "m.npy", np.full(X.shape, 255, "u1")),
        {"input": {"path": "x.zarr", "mask": "m.npy"}},
        ["m.npy: 255 at row 0, column 0", "0 and 1"],
    ),
    "a mask that is not there": (
        lambda p: write_store(p, X),
        {"input": {"path": "x.zarr", "mask": "m.npy"}},
        ["config.yaml:3:9: input.mask: m.npy: no such file or directory in "],
    ),
    "labels that are not there, and of no use": (
        lambda p: write_store(p, X),
        {"input": {"path": "x.zarr", "labels": "y.npy"}},
        ["config.yaml:3:11: input.labels: y.npy: no such file or directory in "],
    ),
    "labels of another length": (
        lambda p: with_a_file_beside(p, "y.npy", np.arange(ROWS - 1) % 2),
        {"input": {"path": "x.zarr", "labels": "y.npy"}, "method": {"name": "lda", "n_components": 1}},
        ["config.yaml:3:11: input.labels: ", "y.npy", "39", "40 rows"],
    ),
    "distances that are no square": (
        lambda p: write_store(p, X),
        {"method": {"name": "classical_mds", "metric": "precomputed"}},
        ["config.yaml:6:11: method.metric", "square", "40 x 6"],
    ),
    "a kernel that is no square": (
        lambda p: write_store(p, X),
        {"method": {"name": "kernel_pca", "kernel": "precomputed"}},
        ["config.yaml:6:11: method.kernel", "square", "40 x 6"],
    ),
    "an array of an array": (
        lambda p: write_store(p, X),
        {"input": {"path": "x.zarr", "array": "b"}},
        ["config.yaml:3:10: input.array: x.zarr: is an array itself"],
    ),
    "an array that the group does not have": (
        lambda p: write_store(p / "a", X),
        {"input": {"path": "x.zarr", "array": "b"}},
        ["config.yaml:3:10: input.array: x.zarr: no array 'b'"],
    ),
    "a missing value that cannot be stored": (
        lambda p: write_store(p, X.astype("u1")),
        {"input": {"path": "x.zarr", "missing_value": -9999}},
        ["config.yaml:3:18: input.missing_value: -9999 cannot be among the values of x.zarr", "uint8"],
    ),
    "an output inside the mask": (
        lambda p: (write_store(p, X), write_store(p.with_name("m.zarr"), np.ones_like(X, bool))),
        {"input": {"path": "x.zarr", "mask": "m.zarr"}, "output": {"model": "m.zarr/model"}},
        ["config.yaml:8:10: output.model: m.zarr/model", "inside the input"],
    ),
    "an output inside the input": (
        lambda p: write_store(p, X),
        {"output": {"model": "x.zarr/model"}},
        ["config.yaml:7:10: output.model: x.zarr/model", "inside the input"],
    ),
    "an output around the input": (
        lambda p: write_store(p, X),
        {"output": {"model": "."}},
        ["output.model", "contains the input"],
    ),
    "an output within another": (
        lambda p: write_store(p, X),
        {"output": {"embedding": "out/model.zarr/z"}},
        ["out/model.zarr", "overlaps"],
    ),
    "a memory limit that is too small": (
        lambda p: write_store(p, X),
        {"execution": {"memory_limit": "50MB"}},
        ["x.zarr", "47.7 MiB", "raise memory_limit to"],
    ),
}


def refusal(outcome: Outcome, code: int) -> str:
    """Return the one error, which is the same for people and for programs."""
    assert outcome.code == code, outcome.err
    assert "Traceback" not in outcome.err
    (message,) = outcome.errors
    assert outcome.report["error"]["message"] == message
    assert outcome.report["error"]["exit_code"] == code
    return message


def blame(outcome: Outcome) -> int:
    """Return the expected exit code: 2 if the error names a line of the configuration, otherwise 1."""
    return 2 if outcome.errors[0].startswith("config.yaml:") else 1


def files(place: Path) -> set[str]:
    """Return all files except those of the ledger."""
    names = (path.relative_to(place).as_posix() for path in place.rglob("*"))
    return {name for name in names if not name.startswith("out/.streamdr-ledger") and name != "out"}


@pytest.mark.parametrize("case", CASES)
def test_bad_data_is_refused_by_name_and_leaves_nothing_behind(case, tmp_path):
    make, sections, facts = CASES[case]
    make(tmp_path / "x.zarr")
    sections = {"input": {"path": "x.zarr"}, **sections}
    sections["output"] = {"embedding": "out/z.zarr", **sections.get("output", {})}
    write_config(tmp_path, **sections)
    before = files(tmp_path)
    outcome = streamdr("run", "config.yaml", "--json", cwd=tmp_path)
    message = refusal(outcome, blame(outcome))
    assert [fact for fact in facts if fact not in message] == []
    assert files(tmp_path) == before


@pytest.mark.parametrize(
    "case",
    [
        "a missing chunk, v3",
        "one row",
        "fewer rows than components",
        "an output inside the input",
        "a memory limit that is too small",
    ],
)
def test_plan_refuses_what_fit_would_refuse(case, tmp_path):
    make, sections, _ = CASES[case]
    make(tmp_path / "x.zarr")
    write_config(tmp_path, **{"input": {"path": "x.zarr"}, **sections})
    outcome = streamdr("plan", "config.yaml", "--json", cwd=tmp_path)
    planned = refusal(outcome, blame(outcome))
    assert planned == refusal(streamdr("fit", "config.yaml", "--json", cwd=tmp_path), outcome.code)


def test_an_output_that_exists_is_left_alone(tmp_path):
    write_store(tmp_path / "x.zarr", X)
    write_config(tmp_path, input={"path": "x.zarr"}, output={"embedding": "out/z.zarr"})
    succeed("run", "config.yaml", cwd=tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    changed = ["--set", "method.n_components=3", "--json"]
    message = refusal(streamdr("run", "config.yaml", *changed, cwd=tmp_path), 1)
    assert "out/model.zarr: exists" in message
    assert "overwrite" in message
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


@pytest.mark.parametrize("command", ["fit", "run"])
def test_what_is_not_a_streamdr_output_is_never_overwritten(command, tmp_path):
    write_store(tmp_path / "x.zarr", X)
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.tex").write_text("years of work")
    key = "model" if command == "fit" else "embedding"
    write_config(tmp_path, input={"path": "x.zarr"}, output={key: "precious", "overwrite": True})
    before = files(tmp_path)
    assert "precious" in refusal(streamdr(command, "config.yaml", "--json", cwd=tmp_path), 1)
    assert files(tmp_path) == before


def test_an_embedding_that_cannot_be_written_is_known_before_the_fit(tmp_path):
    write_store(tmp_path / "x.zarr", X)
    output = {"embedding": "out/z.zarr"}
    write_config(tmp_path, input={"path": "x.zarr"}, output=output)
    succeed("run", "config.yaml", cwd=tmp_path)
    shutil.rmtree(tmp_path / "out" / "model.zarr")
    other = ["--set", "method.n_components=1"]
    message = refusal(streamdr("run", "config.yaml", *other, "--json", cwd=tmp_path), 1)
    assert "out/z.zarr: exists" in message
    assert not (tmp_path / "out" / "model.zarr").exists()


@pytest.mark.parametrize(("where", "largest_file"), [("ledger", 2500), ("model", 2500), ("z", 100_000)])
def test_a_full_disk(where, largest_file, tmp_path):
    """A disk is full when a file may not grow: the checkpoint's, the model's, the embedding's."""
    values = np.random.default_rng(1).normal(size=(3000, 20))
    write_store(tmp_path / "x.zarr", values, chunks=values.shape)
    output = {"embedding": "out/z.zarr"}
    write_config(tmp_path, input={"path": "x.zarr"}, method={"n_components": 20}, output=output)
    words = ["run", "config.yaml", "--json"]
    if where != "ledger":
        succeed("fit", "config.yaml", cwd=tmp_path)
    if where == "model":
        shutil.rmtree(tmp_path / "out" / "model.zarr")
    message = refusal(streamdr(*words, cwd=tmp_path, largest_file=largest_file), 1)
    assert [
        fact for fact in ("out/", where, "File too large", "free some space") if fact not in message
    ] == []
    assert not (tmp_path / "out" / "z.zarr").exists()
    succeed(*words, cwd=tmp_path)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        ".streamdr-ledger",
        "model.zarr",
        "z.zarr",
    }


def test_a_model_applied_to_the_wrong_number_of_features(tmp_path):
    write_store(tmp_path / "x.zarr", X)
    write_store(tmp_path / "narrow.zarr", X[:, :-1])
    write_config(tmp_path, input={"path": "x.zarr"}, output={"embedding": "out/z.zarr"})
    succeed("fit", "config.yaml", cwd=tmp_path)
    before = files(tmp_path)
    other = streamdr("transform", "config.yaml", "--set", "input.path=narrow.zarr", "--json", cwd=tmp_path)
    message = refusal(other, 1)
    assert [fact for fact in ("narrow.zarr", "5 features", "6") if fact not in message] == []
    assert files(tmp_path) == before


@pytest.mark.parametrize("file", ["zarr.json", "components/zarr.json", "components/c/0/0", "mean/c/0"])
def test_a_model_with_a_flipped_bit(file, tmp_path):
    write_store(tmp_path / "x.zarr", X)
    write_config(tmp_path, input={"path": "x.zarr"}, output={"embedding": "out/z.zarr"})
    succeed("fit", "config.yaml", cwd=tmp_path)
    damaged = tmp_path / "out" / "model.zarr" / file
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    before = files(tmp_path)
    for words in (["transform", "config.yaml"], ["inspect", "out/model.zarr"]):
        message = refusal(streamdr(*words, "--json", cwd=tmp_path), 1)
        assert f"out/model.zarr/{file}" in message
    assert files(tmp_path) == before


def test_data_that_changed_between_two_runs_is_read_anew(tmp_path):
    write_store(tmp_path / "x.zarr", X)
    write_config(tmp_path, input={"path": "x.zarr"}, output={"overwrite": True})
    succeed("fit", "config.yaml", cwd=tmp_path)
    zarr.open_array(tmp_path / "x.zarr")[:10] = X[10:20]
    report = succeed("fit", "config.yaml", "--json", cwd=tmp_path).report
    assert (report["reused"], report["bytes_read"]) == (False, X.nbytes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "config.yaml: cannot be read"),
        ("input: [", "config.yaml:1:9"),
        ("just words", "config.yaml:1:1"),
        ("input: !!python/object/apply:os.system [ls]", "config.yaml:1:8"),
    ],
)
def test_a_configuration_that_is_none_ends_with_2(text, said, tmp_path):
    if text is not None:
        (tmp_path / "config.yaml").write_text(text)
    assert said in refusal(streamdr("run", "config.yaml", "--json", cwd=tmp_path), 2)
