"""Comparisons: a run for each method that is not up to date, and one table of costs and measures."""

from __future__ import annotations

import csv
import json
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from command_line import streamdr, succeed, write_store
from nightly import Heard
from sklearn.decomposition import PCA
from sklearn.manifold import trustworthiness
from sklearn.preprocessing import StandardScaler

from streamdr.config import load_comparison, read_comparison
from streamdr.engine import planner
from streamdr.errors import ConfigError, DataError, ParameterError, StoreError
from streamdr.methods import METHODS
from streamdr.store import load_model, open_embedding
from streamdr.workflow import report_tables
from streamdr.workflow.comparison import RECORD, compare
from streamdr.workflow.metrics import measure

GALLERY = Path(__file__).parents[2] / "configs" / "gallery.yaml"
ROWS, COLS = 150, 6
CLASSES = np.arange(ROWS) % 3
PCA2 = {"name": "pca", "n_components": 2}
WHITE = {**PCA2, "as": "white", "whiten": "pca"}
PPCA2 = {"name": "ppca", "n_components": 2}
SIZE = ROWS * COLS * 8


def values(n: int = ROWS) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, COLS)) * [5, 4, 3, 2, 1, 1] + 3 * (np.arange(n) % 3)[:, None]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_store(tmp_path / "x.zarr", values())
    zarr.create_array(tmp_path / "y.zarr", data=CLASSES, chunks=(50,))
    return tmp_path


def sections(place: Path, *methods: dict[str, Any], **more: dict[str, Any]) -> dict[str, Any]:
    tables = [str(place / "out" / name) for name in ("all.md", "all.csv")]
    given: dict[str, Any] = {
        "input": {"path": str(place / "x.zarr"), "labels": str(place / "y.zarr")},
        "output": {"folder": str(place / "out"), "table": tables},
    }
    for name, keys in more.items():
        given[name] = {**given.get(name, {}), **keys}
    return {**given, "methods": list(methods)}


def compared(place: Path, *methods: dict[str, Any], fresh: bool = False, **more: Any) -> dict[str, Any]:
    given = read_comparison(sections(place, *methods, **more))
    return compare(given, Heard(), threading.Event(), fresh=fresh).to_json()


def files(place: Path) -> dict[str, bytes]:
    tables = ("all.md", "all.csv")
    return {name: (place / "out" / name).read_bytes() for name in tables if (place / "out" / name).exists()}


def test_every_method_has_a_row_of_what_it_took_and_how_good_it_is(place):
    report = compared(place, PCA2, WHITE, PPCA2)
    assert [row["name"] for row in report["rows"]] == ["pca", "white", "ppca"]
    for row in report["rows"]:
        scores = open_embedding(place / "out" / f"{row['name']}-embedding.zarr")[:]
        assert load_model(place / "out" / f"{row['name']}.zarr").method == row["method"]
        assert row["n_outputs"] == scores.shape[1]
        expected = measure(values(), scores, CLASSES).to_dict()
        assert {name: row[name] for name in expected} == expected
        assert row["trustworthiness"] == trustworthiness(values(), scores, n_neighbors=10)
        assert row["seconds"] > 0
        assert row["peak_rss"] > 0
    assert report["rows"][1]["parameters"] == {"n_components": 2, "whiten": "pca"}
    assert report["sample"]["rows"] == ROWS
    assert report["sample"]["accuracy"] == measure(values(), values(), CLASSES).accuracy


def test_a_chain_has_a_row_with_the_parameters_of_its_steps(place):
    steps = {"as": "scaled", "steps": [{"name": "standardise"}, PCA2]}
    report = compared(place, PCA2, steps)
    row = report["rows"][1]
    assert (row["name"], row["method"], row["n_outputs"]) == ("scaled", "chain", 2)
    assert row["parameters"] == {"standardise": {}, "pca": {"n_components": 2}}
    expected = PCA(2, svd_solver="full").fit_transform(StandardScaler().fit_transform(values()))
    found = open_embedding(place / "out/scaled-embedding.zarr")[:]
    np.testing.assert_allclose(np.abs(found), np.abs(expected), rtol=0, atol=1e-9)
    assert "scaled" in files(place)["all.md"].decode()
    assert compared(place, PCA2, steps)["reused"]


def test_what_several_need_is_read_once(place):
    report = compared(place, PCA2, WHITE, PPCA2)
    # The moments are read for the first; each transforms; the sample is read once.
    assert [row["bytes_read"] for row in report["rows"]] == [2 * SIZE, SIZE, SIZE]
    assert report["bytes_read"] == 5 * SIZE


def test_the_table_is_written_as_its_name_ends(place):
    report = compared(place, PCA2, WHITE)
    written = files(place)
    heading, rule, *lines = written["all.md"].decode().splitlines()
    titles = [cell.strip() for cell in heading.strip("|").split("|")]
    assert titles == [column.title for column in report_tables.COLUMNS]
    assert set(rule) == set("|-: ")
    assert [line.split(" | ")[0] for line in lines] == ["| pca", "| white"]
    assert "n_components=2, whiten=pca" in lines[1]
    read = list(csv.DictReader(written["all.csv"].decode().splitlines()))
    for row, expected in zip(read, report["rows"], strict=True):
        for key in ("seconds", "bytes_read", "peak_rss", "trustworthiness", "stress", "accuracy"):
            assert float(row[key]) == expected[key]
        assert json.loads(row["parameters"]) == expected["parameters"]
    beside = {path.name for path in (place / "out").iterdir() if not path.name.endswith(".zarr")}
    assert beside == {"all.md", "all.csv", RECORD, ".streamdr-ledger"}


def test_a_repeated_comparison_reads_nothing_and_reports_the_same(place):
    first = compared(place, PCA2, WHITE)
    before = files(place)
    again = compared(place, PCA2, WHITE)
    assert files(place) == before
    assert again["bytes_read"] == 0
    assert again["reused"]
    assert not first["reused"]
    assert [{**row, "reused": False} for row in again["rows"]] == first["rows"]


def test_only_what_is_new_or_changed_is_carried_out(place):
    first = compared(place, PCA2, WHITE)
    changed = {**WHITE, "n_components": 3}
    report = compared(place, PCA2, changed, PPCA2, output={"overwrite": True})
    assert [row["reused"] for row in report["rows"]] == [True, False, False]
    assert report["rows"][0] == {**first["rows"][0], "reused": True}
    assert report["rows"][1]["n_outputs"] == 3
    assert b"ppca" in files(place)["all.csv"]


def test_a_fresh_start_does_everything_again(place):
    compared(place, PCA2)
    report = compared(place, PCA2, fresh=True)
    assert report["rows"][0]["bytes_read"] == 2 * SIZE
    assert not report["reused"]


def test_other_labels_are_measured_anew_by_the_embeddings_that_are_there(place):
    before = compared(place, PCA2)["rows"][0]
    labels = zarr.open_array(place / "y.zarr", mode="r+")
    labels[:] = (values()[:, 0] > 4).astype(labels.dtype)
    row = compared(place, PCA2)["rows"][0]
    assert row["reused"]
    assert row["accuracy"] > before["accuracy"]
    assert row["stress"] == before["stress"]
    assert row["seconds"] == before["seconds"]


def test_when_rows_are_appended_all_is_measured_again(place):
    more = values(3_000)
    for name, rows in (("x.zarr", more), ("y.zarr", np.arange(3_000) % 3)):
        array = zarr.open_array(place / name, mode="r+")
        array.resize(rows.shape)
        array[:] = rows
    report = compared(place, PCA2)
    assert 1_900 <= report["sample"]["rows"] <= 2_000
    scores = open_embedding(place / "out" / "pca-embedding.zarr")[:]
    everything = measure(more, scores, np.arange(3_000) % 3)
    (row,) = report["rows"]
    assert row["stress"] == pytest.approx(everything.stress, rel=0.05)
    assert row["accuracy"] == pytest.approx(everything.accuracy, abs=0.05)


def test_labels_in_a_floating_type_are_classes_if_a_method_says_so(place):
    zarr.create_array(place / "f.zarr", data=CLASSES.astype(float), chunks=(50,))
    for methods in ([PCA2], [PCA2, {"name": "lda"}]):
        report = compared(place, *methods, input={"labels": str(place / "f.zarr")})
        for facts in (*report["rows"], report["sample"]):
            assert (facts["accuracy"] is not None) == (len(methods) == 2)


def test_without_labels_there_is_no_accuracy(place):
    report = compared(place, PCA2, input={"labels": None})
    assert report["rows"][0]["accuracy"] is None
    assert report["sample"]["accuracy"] is None
    assert " - |" in files(place)["all.md"].decode()
    assert next(csv.DictReader(files(place)["all.csv"].decode().splitlines()))["accuracy"] == ""


def test_labels_may_be_text_or_a_column(place):
    named = np.array(["low", "middle", "high"], dtype=np.dtypes.StringDType())[CLASSES]
    zarr.create_array(place / "t.zarr", data=named, chunks=(50,))
    by_text = compared(place, PCA2, input={"labels": str(place / "t.zarr")})
    write_store(place / "xy.zarr", np.column_stack([values(), CLASSES]))
    column = {"path": str(place / "xy.zarr"), "labels": None, "label_column": COLS}
    by_column = compared(place, PCA2, {"name": "lda"}, input=column, output={"overwrite": True})
    by_number = compared(place, PCA2, output={"overwrite": True})
    found = {report["rows"][0]["accuracy"] for report in (by_text, by_column, by_number)}
    assert len(found) == 1


def test_rows_with_missing_values_are_embedded_but_not_measured(place):
    array = zarr.open_array(place / "x.zarr", mode="r+")
    array[::5, 2] = np.nan
    report = compared(place, PPCA2)
    assert report["sample"]["rows"] == ROWS - ROWS // 5
    complete = np.arange(ROWS) % 5 != 0
    scores = open_embedding(place / "out" / "ppca-embedding.zarr")[:]
    expected = measure(values()[complete], scores[complete], CLASSES[complete])
    assert report["rows"][0]["stress"] == expected.stress


def test_an_error_says_whose_it_is_and_leaves_the_table_as_it_was(place):
    compared(place, PCA2)
    before = files(place)
    with pytest.raises(ParameterError, match=r"methods\.1\.n_components: 99"):
        compared(place, PPCA2, {**WHITE, "n_components": 99})
    array = zarr.open_array(place / "x.zarr", mode="r+")
    array[3, 2] = np.nan
    with pytest.raises(DataError, match=r"^pca: .*x\.zarr: nan at row 3, column 2"):
        compared(place, PPCA2, PCA2)
    assert files(place) == before
    array[3, 2] = 1.0
    compared(place, PPCA2, PCA2)
    assert files(place) != before


def test_a_record_that_is_damaged_costs_no_more_than_measuring_again(place):
    # The costs of the existing outputs are lost with the record.
    first = compared(place, PCA2)["rows"][0]
    whole = (place / "out" / RECORD).read_text()
    for text in (
        "",
        whole[: len(whole) // 2],
        '{"version": 0}',
        '{"version": 1}',
        '{"version": 1, "kept": 3}',
        '{"version": 1, "kept": {"took": [], "measured": {"pca": 1}}}',
        whole.replace('"found": {', '"found": {"more": [1], '),
        whole.replace('"of"', '"off"'),
        '{"version": 1, "kept": ' + "[" * 9999 + "]" * 9999 + "}",
    ):
        (place / "out" / RECORD).write_text(text)
        row = compared(place, PCA2)["rows"][0]
        assert row["stress"] == first["stress"]
        assert row["seconds"] is None


@pytest.mark.parametrize("name", ["out/all.md", "out/all.csv", f"out/{RECORD}"])
@pytest.mark.parametrize(
    "what", ["notes", "other table", "longer", "empty", "pipe", "directory", "device", "loop"]
)
def test_nothing_is_replaced_but_the_tables_of_comparisons(place, name, what):
    if what in ("longer", "empty"):
        compared(place, PCA2)
    path = place / name
    path.parent.mkdir(exist_ok=True)
    if what == "pipe":
        os.mkfifo(path)
    elif what == "directory":
        path.mkdir()
    elif what in ("device", "loop"):
        path.symlink_to("/dev/zero" if what == "device" else path)
    else:
        there = {
            "notes": '{"version": 3, "notes": "precious"}' if name.endswith(RECORD) else "precious notes\n",
            "other table": "| name | method |\n| --- | --- |\n"
            if name.endswith(".md")
            else "name,method\na,b\n",
            "longer": (path.read_text() if path.exists() else "") + "\nWhat I make of it: precious.\n",
            "empty": "",
        }
        if what == "longer" and name.endswith(RECORD):
            return  # a record with something after it is damaged, and measured anew
        path.write_text(there[what])
    before = path.lstat().st_ino
    if what == "empty" and name.endswith(RECORD):
        compared(place, PCA2)
        return
    with pytest.raises(StoreError, match=r"never overwritten|did not write|cannot be written"):
        compared(place, PCA2, output={"overwrite": True})
    assert path.lstat().st_ino == before
    assert what in ("longer", "empty") or not (place / "out" / "pca.zarr").exists(), (
        "it is said before the run"
    )


def test_through_a_link_a_table_is_written_where_it_leads(place):
    (place / "out").mkdir()
    (place / "out" / "all.md").symlink_to(place / "elsewhere.md")
    for _ in range(2):
        compared(place, PCA2)
        assert (place / "elsewhere.md").read_text().startswith("| name | method |")
        assert (place / "out" / "all.md").is_symlink()


@pytest.mark.parametrize(
    "inside", ["x.zarr/all.md", "out/pca.zarr/all.md", "out/pca-embedding.zarr/all.csv", "y.zarr/a.md"]
)
def test_a_table_is_never_written_into_a_store(place, inside):
    with pytest.raises(ConfigError, match="write the table elsewhere"):
        compared(place, PCA2, output={"table": str(place / inside)})
    assert not (place / "out").exists()


def test_a_table_that_cannot_be_written_is_named(place):
    (place / "file").write_text("text")
    with pytest.raises(StoreError, match=r"file/all\.md: cannot be written"):
        compared(place, PCA2, output={"table": str(place / "file" / "all.md")})


def test_from_bucket_to_bucket(bucket, place):
    url = bucket.url
    for name in ("x.zarr", "y.zarr"):
        bucket.upload(place / name)
    there = {"path": f"{url}/x.zarr", "labels": f"{url}/y.zarr"}
    remote = compared(place, PCA2, input=there, output={"folder": f"{url}/out", "table": f"{url}/t/all.md"})
    local = compared(place, PCA2)
    for key in ("trustworthiness", "stress", "accuracy", "bytes_read"):
        assert remote["rows"][0][key] == local["rows"][0][key]
    assert bucket.contents("t")["t/all.md"].startswith(b"| name | method |")
    again = compared(place, PCA2, input=there, output={"folder": f"{url}/out", "table": f"{url}/t/all.md"})
    assert again["bytes_read"] == 0


def test_the_peak_is_that_of_each_method_alone():
    kept = np.ones(20_000_000)
    before = planner.peak_resident()
    del kept
    planner.give_back()
    planner.forget_peak()
    assert planner.resident() <= planner.peak_resident() < before - 100_000_000


@pytest.fixture
def configured(place: Path) -> Path:
    given = sections(place, PCA2, WHITE, output={"folder": "out", "table": "out/all.md"})
    (place / "all.yaml").write_text(json.dumps(given))
    return place


def test_the_command_prints_the_table(configured):
    said = succeed("compare", "all.yaml", cwd=configured).out
    heading, first, second, *rest = said.splitlines()
    assert heading.split()[:3] == ["name", "method", "dimensions"]
    assert first.split()[:3] == ["pca", "pca", "2"]
    assert second.split()[:3] == ["white", "pca", "2"]
    expected = "\n".join(rest)
    assert f"2 methods on {configured / 'x.zarr'}, 150 x 6" in expected
    assert "out/all.md" in expected
    assert "% in the input itself" in expected
    assert "nothing: everything was up to date" in succeed("compare", "all.yaml", cwd=configured).out


def test_the_command_takes_tables_overrides_and_json(configured):
    words = ["--out", "a.csv", "--out", "deep/b.md", "--set", "methods.1.n_components=3", "--json"]
    report = succeed("compare", "all.yaml", *words, cwd=configured).report
    assert report["command"] == "compare"
    assert report["tables"] == ["a.csv", "deep/b.md"]
    assert [row["n_outputs"] for row in report["rows"]] == [2, 3]
    assert (configured / "a.csv").exists()
    assert (configured / "deep" / "b.md").exists()
    assert not (configured / "out" / "all.md").exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["compare", "all.yaml", "--out", "a.txt"], "output.table: 'a.txt' does not end in .md or .csv"),
        (["run", "all.yaml"], "`streamdr compare` runs several methods"),
        (["plan", "all.yaml"], "`streamdr compare` runs several methods"),
        (["compare", "all.yaml", "--set", "methods.0.n_components=0"], "methods.0.n_components"),
    ],
)
def test_the_command_refuses_invalid_configurations(configured, words, expected):
    outcome = streamdr(*words, cwd=configured)
    assert outcome.code == 2
    assert expected in outcome.errors[0]
    assert not (configured / "out").exists()


def test_a_comparison_can_be_reprocessed_like_the_runs_that_it_is(configured):
    report = succeed("reprocess", "all.yaml", "--json", cwd=configured).report
    assert [run["model"] for run in report["runs"]] == ["out/pca.zarr", "out/white.zarr"]
    assert succeed("compare", "all.yaml", "--json", cwd=configured).report["reused"]


def test_the_gallery_has_every_method_and_runs_as_it_stands(tmp_path):
    entries = load_comparison(GALLERY).methods
    shown = {name for name, method in METHODS.items() if not method.tags.step}
    assert {entry.method.name for entry in entries} == shown, "add the new one to configs/gallery.yaml"
    report = succeed("compare", GALLERY, "--json", cwd=tmp_path).report
    assert [row["name"] for row in report["rows"]] == [entry.name for entry in entries]
    for row in report["rows"]:
        # Better than chance, which is a tenth, and no better than the pixels themselves by much.
        assert 0.2 < row["accuracy"] < report["sample"]["accuracy"] + 0.02, row
        assert 0.6 < row["trustworthiness"] <= 1, row
        assert 0 < row["stress"] < 0.7, row
    again = succeed("compare", GALLERY, "--json", cwd=tmp_path).report
    assert again["bytes_read"] == 0
    assert [{**row, "reused": False} for row in again["rows"]] == report["rows"]
