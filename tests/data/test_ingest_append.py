"""Appending rows to an ingested store is atomic, also if others append or a run is killed."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import shlex
import warnings
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr
from command_line import streamdr, succeed
from narrowing import array_in, present

from streamdr.core.blocks import Span
from streamdr.core.progress import Silent
from streamdr.data import open_source
from streamdr.data.ingest import ingest
from streamdr.errors import BusyError, ConfigError, DataError, StoreError
from streamdr.store.locking import try_lock

quiet = Silent()


def values(n_rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n_rows, 3)).round(3)


def written(path: Path, rows: np.ndarray, names=("a", "b", "c")) -> Path:
    """Write rows to a file, in the format of its suffix."""
    if path.suffix == ".npy":
        np.save(path, rows)
    elif path.suffix == ".h5":
        with h5py.File(path, "w") as file:
            file["x"] = rows
    elif path.suffix == ".parquet":
        pd.DataFrame(rows, columns=list(names)).to_parquet(path)
    else:
        pd.DataFrame(rows, columns=list(names)).to_csv(path, index=False)
    return path


def stored(path: Path, name: str = "X") -> np.ndarray:
    return np.asarray(zarr.open_array(path / name, mode="r")[:])


@pytest.mark.parametrize("first", [".npy", ".h5", ".csv", ".parquet"])
@pytest.mark.parametrize("then", [".npy", ".h5", ".csv", ".parquet"])
def test_rows_of_any_format_are_appended_to_those_of_any_other(tmp_path, first, then):
    rows, dest = values(40), tmp_path / "x.zarr"
    ingest(written(tmp_path / f"0{first}", rows[:9]), dest, chunk_rows=4, progress=quiet)
    at = 9
    for number, count in enumerate((1, 7, 4, 19), start=1):
        report = ingest(
            written(tmp_path / f"{number}{then}", rows[at : at + count]), dest, append=True, progress=quiet
        )
        at += count
        assert (report.n_rows, report.appended_rows) == (at, count)
        np.testing.assert_array_equal(stored(dest), rows[:at])
    source = open_source(dest)
    source.validate()
    assert source.feature_names == (("a", "b", "c") if first in (".csv", ".parquet") else None)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_rows_are_appended_to_arrays_of_many_dimensions(tmp_path):
    cube = np.arange(10 * 2 * 3.0).reshape(10, 2, 3)
    for name, rows in (("a", cube[:3]), ("b", cube[3:])):
        np.save(tmp_path / f"{name}.npy", rows)
    ingest(tmp_path / "a.npy", tmp_path / "x.zarr", chunk_rows=2, progress=quiet)
    ingest(tmp_path / "b.npy", tmp_path / "x.zarr", append=True, progress=quiet)
    np.testing.assert_array_equal(stored(tmp_path / "x.zarr"), cube)


def test_columns_are_matched_by_name(tmp_path):
    rows, dest = values(6), tmp_path / "x.zarr"
    ingest(written(tmp_path / "0.csv", rows[:3]), dest, progress=quiet)
    ingest(written(tmp_path / "1.csv", rows[3:, [2, 0, 1]], "cab"), dest, append=True, progress=quiet)
    np.testing.assert_array_equal(stored(dest), rows)
    ingest(tmp_path / "0.csv", dest, append=True, columns=["b", "c", "a"], progress=quiet)
    np.testing.assert_array_equal(stored(dest), np.concatenate([rows, rows[:3]]))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_columns_that_were_left_out_are_left_out_again(tmp_path, suffix):
    rows, dest = values(6), tmp_path / "x.zarr"
    frame = pd.DataFrame(rows, columns=list("abc")).assign(note=range(6), id=range(6), name=list("uvwxyz"))
    frame = frame[["id", *"abc", "note", "name"]]
    for number, part in enumerate((frame[:4], frame[4:])):
        file = tmp_path / f"{number}.{suffix}"
        part.to_csv(file) if suffix == "csv" else part.to_parquet(file)
    ingest(tmp_path / f"0.{suffix}", dest, exclude=["note"], numeric_only=True, progress=quiet)
    ingest(tmp_path / f"1.{suffix}", dest, append=True, progress=quiet)
    np.testing.assert_array_equal(stored(dest), rows)


@pytest.mark.parametrize(
    ("name", "content", "options", "kind", "message"),
    [
        ("1.csv", "a,b\n1,2\n", {}, DataError, "lacks the column 'c'"),
        ("1.csv", "a,b,c,d\n1,2,3,4\n", {}, DataError, "the column 'd', which the store does not have"),
        ("1.csv", "1,2\n", {}, DataError, "a row is 2 values, and in .* it is 3 values"),
        ("1.csv", "a,b,c\n", {}, DataError, "no rows"),
        ("1.csv", "a,b,c\n1,2,3\n4,x,6\n", {}, DataError, "line 3"),
        ("1.csv", "a,b,c\n1,2,3\n", {"dtype": "float32"}, ConfigError, "holds float64"),
        ("1.csv", "a,b,c\n1,2,3\n", {"chunk_rows": 5}, ConfigError, "leave out --overwrite and --chunk-rows"),
        (
            "1.csv",
            "a,b,c\n1,2,3\n",
            {"overwrite": True},
            ConfigError,
            "leave out --overwrite and --chunk-rows",
        ),
        ("1.csv", "a,b,c\n1,2,3\n", {"labels": "c"}, ConfigError, "has no labels"),
    ],
)
def test_rows_that_do_not_match_leave_the_store_unchanged(tmp_path, name, content, options, kind, message):
    rows, dest = values(5), tmp_path / "x.zarr"
    ingest(written(tmp_path / "0.csv", rows), dest, chunk_rows=2, progress=quiet)
    before = {path: path.read_bytes() for path in dest.rglob("*") if path.is_file()}
    (tmp_path / name).write_text(content)
    with pytest.raises(kind, match=message):
        ingest(tmp_path / name, dest, append=True, progress=quiet, **options)
    assert {path: path.read_bytes() for path in dest.rglob("*") if path.is_file()} == before


def test_values_that_the_stored_type_cannot_represent_are_refused(tmp_path):
    np.save(tmp_path / "0.npy", np.ones((3, 2), "u1"))
    ingest(tmp_path / "0.npy", tmp_path / "x.zarr", progress=quiet)
    for bad, message in ((np.full((2, 2), 300), "out of range"), (np.full((2, 2), 0.5), "fractions")):
        np.save(tmp_path / "1.npy", bad)
        with pytest.raises(DataError, match=message):
            ingest(tmp_path / "1.npy", tmp_path / "x.zarr", append=True, progress=quiet)
    assert len(stored(tmp_path / "x.zarr")) == 3


def test_rows_are_appended_only_to_ingested_stores(tmp_path):
    file = written(tmp_path / "1.npy", values(2))
    with pytest.raises(StoreError, match="no store to append to"):
        ingest(file, tmp_path / "none.zarr", append=True, progress=quiet)
    zarr.create_group(tmp_path / "other.zarr").create_array("X", data=values(3))
    with pytest.raises(StoreError, match="was not made by `streamdr ingest`"):
        ingest(file, tmp_path / "other.zarr", append=True, progress=quiet)


def test_arrays_and_attributes_of_others_are_kept(tmp_path):
    file, dest = written(tmp_path / "1.npy", values(4)), tmp_path / "x.zarr"
    ingest(file, dest, progress=quiet)
    zarr.open_group(dest).create_array("mine", data=np.ones(3))
    zarr.open_group(dest).attrs["note"] = "by hand"
    zarr.open_array(dest / "X").attrs["units"] = "K"
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # zarr warns that other programs may not support consolidated metadata
        zarr.consolidate_metadata(dest)
    (tmp_path / "link.zarr").symlink_to(dest)
    for path in (dest, tmp_path / "link.zarr"):
        ingest(file, path, append=True, progress=quiet)
    group = zarr.open_group(dest)
    assert array_in(group, "X").shape == (12, 3)
    assert (group.attrs["note"], array_in(group, "X").attrs["units"], array_in(group, "mine").shape[0]) == (
        "by hand",
        "K",
        3,
    )
    with pytest.raises(StoreError, match="mine"):
        ingest(file, dest, overwrite=True, progress=quiet)
    assert array_in(group, "mine").shape[0] == 3


def test_a_store_with_an_array_of_others_is_not_replaced_after_an_append(tmp_path):
    file, dest = written(tmp_path / "1.npy", values(4)), tmp_path / "x.zarr"
    ingest(file, dest, progress=quiet)
    zarr.open_group(dest).create_array("mine", data=np.ones(3))
    ingest(file, dest, append=True, progress=quiet)
    with pytest.raises(StoreError, match="mine"):
        ingest(file, dest, overwrite=True, progress=quiet)


def test_two_processes_do_not_append_concurrently(tmp_path):
    file, dest = written(tmp_path / "1.npy", values(2)), tmp_path / "x.zarr"
    ingest(file, dest, progress=quiet)
    held = try_lock(dest)
    with pytest.raises(BusyError, match="another process"):
        ingest(file, dest, append=True, progress=quiet)
    os.close(held)


# Others append as well


def test_no_row_is_lost_if_others_append(tmp_path):
    rows, dest = values(60), tmp_path / "x.zarr"
    ingest(written(tmp_path / "0.csv", rows[:20]), dest, chunk_rows=8, progress=quiet)
    for start in (20, 30, 40):
        array_in(zarr.open_group(dest), "X").append(rows[start : start + 10])
    np.testing.assert_array_equal(stored(dest), rows[:50])
    ingest(written(tmp_path / "1.csv", rows[50:55]), dest, append=True, progress=quiet)
    more = xr.Dataset({"X": (("sample", "feature"), rows[55:])})
    more.to_zarr(dest, append_dim="sample", consolidated=False)
    np.testing.assert_array_equal(stored(dest), rows)
    np.testing.assert_array_equal(open_source(dest).block(Span(0, 60)).values, rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert xr.open_zarr(dest, consolidated=False)["X"].shape == (60, 3)


def consolidated(dest: Path) -> None:
    """Change a store to the format of earlier versions: with consolidated metadata, sealed."""
    from streamdr.store import record

    document = json.loads((dest / "zarr.json").read_text())
    arrays = {path.parent.name: json.loads(path.read_text()) for path in dest.glob("*/zarr.json")}
    document["consolidated_metadata"] = {"kind": "inline", "must_understand": False, "metadata": arrays}
    document["attributes"]["streamdr"].pop("arrays")
    document["attributes"]["streamdr"]["digest"] = record.seal_of(document)
    (dest / "zarr.json").write_text(json.dumps(document))


def test_the_examples_of_the_guide_work(tmp_path, monkeypatch):
    guide = (Path(__file__).parents[2] / "docs/DATA.md").read_text()
    section = guide.partition("## Appending rows\n")[2].partition("\n## ")[0]
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "monday.csv", values(50))
    written(tmp_path / "tuesday.csv", values(20, 1))
    blocks = re.findall(r"```(\w+)\n(.*?)```", section, re.DOTALL)
    assert [language for language, _ in blocks] == ["sh", "python", "python"]
    for language, code in blocks:
        if language == "sh":
            for line in code.splitlines():
                assert succeed(*shlex.split(line)[1:], cwd=tmp_path).code == 0
        else:
            exec(code, {})
    succeed("ingest", "tuesday.csv", "days.zarr", "--append", cwd=tmp_path)
    assert zarr.open_array("days.zarr/X").shape == (94, 3)
    assert open_source("days.zarr").spec.n_rows == 94


def test_stale_consolidated_metadata_is_not_used(tmp_path):
    rows, dest = values(30), tmp_path / "x.zarr"
    ingest(written(tmp_path / "0.npy", rows[:20]), dest, progress=quiet)
    consolidated(dest)
    array_in(zarr.open_group(dest), "X").append(rows[20:])
    assert array_in(zarr.open_group(dest), "X").shape == (20, 3)  # the stale shape
    assert "20 x 3 to zarr and xarray" in succeed("inspect", dest, cwd=tmp_path).out
    for given in (dest, zarr.open_group(dest), zarr.open_group(dest)["X"]):
        assert open_source(given).spec.n_rows == 30
    ingest(written(tmp_path / "1.npy", rows[:5]), dest, append=True, progress=quiet)
    assert array_in(zarr.open_group(dest), "X").shape == (35, 3)


# Kills


def child(source: Path, dest: Path, after: int) -> None:
    """Append, and exit after `after` changes to the file system."""
    left = [after]

    def limited(function):
        def call(*arguments, **options):
            left[0] -= 1
            if left[0] < 0:
                os._exit(9)
            return function(*arguments, **options)

        return call

    os.replace, os.mkdir, os.unlink, os.fsync = map(limited, (os.replace, os.mkdir, os.unlink, os.fsync))
    ingest(source, dest, append=True, progress=quiet)


@pytest.mark.parametrize("step", [13, pytest.param(1, marks=pytest.mark.slow)])
def test_a_kill_leaves_the_old_rows_or_the_new_ones(tmp_path, step):
    rows = pd.DataFrame(values(23), columns=list("abc")).assign(kind=[f"k{i % 3}" for i in range(23)])
    rows[:13].to_csv(tmp_path / "0.csv", index=False)
    rows[13:].to_csv(tmp_path / "1.csv", index=False)
    fork = multiprocessing.get_context("fork")
    lengths = []
    for after in range(0, 500, step):
        dest = tmp_path / f"x{after}.zarr"
        ingest(tmp_path / "0.csv", dest, labels="kind", chunk_rows=4, progress=quiet)
        process = fork.Process(target=child, args=(tmp_path / "1.csv", dest, after))
        process.start()
        process.join()
        found = stored(dest)
        lengths.append(len(found))
        np.testing.assert_array_equal(found, rows.iloc[: len(found), :3])
        if process.exitcode == 0:
            break
        assert len(found) in (13, 23)
        if len(found) == 13:  # the next run succeeds
            ingest(tmp_path / "1.csv", dest, append=True, progress=quiet)
        np.testing.assert_array_equal(stored(dest), rows.iloc[:, :3])
        assert stored(dest, "labels").tolist() == rows["kind"].tolist()
        open_source(dest, labels=dest / "labels").validate()
    assert lengths[0] == 13
    assert lengths[-1] == 23


# Labels, and columns that are left out


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize(
    ("labels", "expected"), [(["x", "é", "x"], None), ([3, 1, 3], "int64"), ([0.5, 1.0, 0.5], "float64")]
)
def test_a_column_becomes_labels(tmp_path, suffix, labels, expected):
    frame = pd.DataFrame(values(3), columns=list("abc")).assign(kind=labels)
    save = {".csv": lambda path: frame.to_csv(path, index=False), ".parquet": frame.to_parquet}[suffix]
    save(tmp_path / f"x{suffix}")
    dest = tmp_path / "x.zarr"
    report = ingest(tmp_path / f"x{suffix}", dest, labels="kind", progress=quiet)
    assert (report.n_cols, report.labels) == (3, "kind")
    ingest(tmp_path / f"x{suffix}", dest, append=True, progress=quiet)
    assert stored(dest, "labels").tolist() == labels * 2
    assert expected is None or stored(dest, "labels").dtype == expected
    block = open_source(dest, labels=dest / "labels").block(Span(0, 6))
    assert present(block.labels).tolist() == labels * 2
    np.testing.assert_array_equal(block.values, np.tile(frame[["a", "b", "c"]], (2, 1)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,y\n1,x\n2,\n", "line 3 has no label"),
        ("a,y\n1,7\n2,\n", "line 3 has no label"),
        ("a,y\n" + "1,2\n" * 1500 + "1,z\n", "line 1502: the label 'z'"),
    ],
)
def test_missing_and_invalid_labels_are_refused(tmp_path, content, message):
    (tmp_path / "x.csv").write_text(content)
    with pytest.raises(DataError, match=message):
        ingest(tmp_path / "x.csv", tmp_path / "x.zarr", labels="y", progress=quiet)


def test_text_columns_are_left_out_on_request(tmp_path):
    frame = pd.DataFrame(values(4), columns=list("abc")).assign(name=list("wxyz"), id_1=[7, 8, 9, 9])
    frame.to_csv(tmp_path / "x.csv")  # with the index of pandas, in a column without a name
    frame.to_parquet(tmp_path / "x.parquet")
    for file in ("x.csv", "x.parquet"):
        dest = tmp_path / f"{file}.zarr"
        with pytest.raises(DataError, match=r"`--exclude`.*`--numeric-only`.*`--labels`"):
            ingest(tmp_path / file, dest, progress=quiet)
        report = ingest(tmp_path / file, dest, numeric_only=True, progress=quiet)
        assert report.left_out == (("", "name") if file == "x.csv" else ("name",))
        assert open_source(dest).feature_names == ("a", "b", "c", "id_1")
        ingest(tmp_path / file, dest, exclude=["name", "id_*"], overwrite=True, progress=quiet)
        assert open_source(dest).feature_names == ("a", "b", "c")
        with pytest.raises(DataError, match="no column 'q\\*' to exclude"):
            ingest(tmp_path / file, dest, exclude=["q*"], overwrite=True, progress=quiet)


def test_text_after_the_first_thousand_rows_is_an_error(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n" + "1.5,2\n" * 1001 + "1.5,oops\n")
    with pytest.raises(DataError, match=r"line 1003, .*'oops'.*`--exclude`.*in the first 1,000 rows"):
        ingest(tmp_path / "x.csv", tmp_path / "x.zarr", numeric_only=True, progress=quiet)


@pytest.mark.parametrize("first", [0, 1])
def test_a_column_that_numbers_the_rows_is_left_out(tmp_path, first):
    frame = pd.DataFrame(values(5), columns=list("abc"), index=range(first, first + 5))
    frame.to_csv(tmp_path / "x.csv")
    pd.read_csv(tmp_path / "x.csv").to_parquet(tmp_path / "x.parquet")  # as "Unnamed: 0"
    for file in ("x.csv", "x.parquet"):
        report = ingest(tmp_path / file, tmp_path / f"{file}.zarr", progress=quiet)
        assert (report.n_cols, len(report.left_out)) == (3, 1)
    kept = ingest(tmp_path / "x.parquet", tmp_path / "k.zarr", columns=["Unnamed: 0", "a"], progress=quiet)
    assert (kept.n_cols, kept.left_out) == (2, ())


def test_csv_of_many_columns_is_read(tmp_path):
    rows = np.random.default_rng(0).normal(size=(3, 40_000))
    (tmp_path / "x.csv").write_text("\n".join(",".join(map(repr, row)) for row in rows.tolist()))
    report = ingest(tmp_path / "x.csv", tmp_path / "x.zarr", progress=quiet)
    assert (report.n_rows, report.n_cols) == (3, 40_000)
    np.testing.assert_array_equal(stored(tmp_path / "x.zarr"), rows)


def test_ingest_append_and_fit_from_the_command_line(tmp_path):
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 2, 80)
    frame = pd.DataFrame(rng.normal(size=(80, 2)) + kind[:, None], columns=["a", "b"])
    frame = frame.assign(note="text", tree=np.array(["oak", "ash"])[kind])
    frame[:50].to_csv(tmp_path / "0.csv")
    frame[50:].to_csv(tmp_path / "1.csv", index=False)
    options = ("--labels", "tree", "--exclude", "note")
    made = succeed("ingest", "0.csv", "x.zarr", *options, cwd=tmp_path)
    assert "left out  ''" in made.out
    assert "appended" not in made.out
    more = succeed("ingest", "1.csv", "x.zarr", "--append", "--exclude", "note", cwd=tmp_path)
    assert "appended  30 rows" in more.out
    config = {
        "input": {"path": "x.zarr", "labels": "x.zarr/labels"},
        "method": {"name": "lda"},
        "output": {"model": "m.zarr"},
    }
    (tmp_path / "c.yaml").write_text(json.dumps(config))
    assert "80, text; input.labels can name them" in succeed("inspect", "x.zarr", cwd=tmp_path).out
    report = succeed("fit", "c.yaml", "--json", cwd=tmp_path).report
    assert (report["n_rows"], report["summary"]["n_classes"]) == (80, 2)
    again = streamdr("ingest", "0.csv", "x.zarr", "--labels", "tree", "--exclude", "note", cwd=tmp_path)
    assert again.code == 1
    assert "output." not in again.err
    assert "exists; pass --overwrite" in again.err
