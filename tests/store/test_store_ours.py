"""Only what streamdr wrote is replaced or removed, and only by an output of the same kind."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import zarr

from streamdr import PCA, store
from streamdr.core.addresses import parse_location
from streamdr.core.progress import Silent
from streamdr.data.ingest import ingest
from streamdr.errors import StoreError
from streamdr.store import Staging
from streamdr.store.ours import clear, foreign_files, is_own, remove
from streamdr.store.publish import sweep
from streamdr.store.record import OutputKind, write_record

ROWS = np.random.default_rng(0).normal(size=(20, 4))


def save_model(path: Path, *, overwrite: bool = True) -> None:
    PCA(n_components=2).fit(ROWS).save(str(path), overwrite=overwrite)


def embed(path: Path, *, overwrite: bool = True, notes: str | None = None) -> None:
    """Write an embedding. With `notes`, a foreign file is put into the target just before publishing."""
    with store.stage(path, kind="embedding", overwrite=overwrite, key="k1") as staging:
        store.create_embedding(
            staging.path, n_rows=20, n_outputs=4, dtype="f8", chunk_rows=8, attributes={"model": "m"}
        )
        store.write_rows(staging.path, 0, ROWS)
        store.finish(staging.path)
        if notes is not None:
            (path / notes).write_text("precious")
        staging.publish()


def bring_in(path: Path, *, overwrite: bool = True) -> None:
    np.save(path.with_name("rows.npy"), ROWS)
    ingest(path.with_name("rows.npy"), path, overwrite=overwrite, progress=Silent())


def write_bare(path: Path, kind: OutputKind) -> None:
    with Staging(path, kind=kind, overwrite=True) as staging:
        write_record(staging.path, kind, {}, complete=True)
        staging.publish()


WRITERS = {"model": save_model, "embedding": embed, "ingested": bring_in}


def census(directory: Path) -> dict[str, object]:
    """Return everything below a directory: contents of files, targets of links, modes of the rest."""
    found: dict[str, object] = {}
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if path.is_symlink():
            found[name] = ("link", os.readlink(path))
        else:
            found[name] = path.read_bytes() if path.is_file() else path.stat().st_mode
    return found


@pytest.mark.parametrize("there", [*WRITERS, "synthetic", "example", "imputed"])
@pytest.mark.parametrize("new", WRITERS)
def test_an_output_is_replaced_by_one_of_its_kind_only(tmp_path: Path, there: OutputKind, new: str) -> None:
    path = tmp_path / "out.zarr"
    if there in WRITERS:
        WRITERS[there](path)
    else:
        write_bare(path, there)
    before, first = census(path), path.stat().st_ino
    if there == new:
        WRITERS[new](path)
        assert path.stat().st_ino != first
        return
    with pytest.raises(StoreError, match=r"never overwritten, since it is .*, and this would be "):
        WRITERS[new](path)
    assert census(path) == before
    assert sorted(item.name for item in tmp_path.iterdir() if item.name.startswith(".")) == []


@pytest.mark.parametrize(
    "name",
    [
        "notes.txt",
        ".hidden",
        "{array}/notes.txt",
        "{array}/c/notes.txt",
        "{array}/c/0/notes.txt",
        "{array}/c/0/0.npy",
        "{array}/c/0/0.partial",
        "{array}/.zattrs",
        "mine/zarr.json",
        "mine/c/0",
    ],
)
@pytest.mark.parametrize("kind", WRITERS)
def test_foreign_files_in_an_output_are_kept(tmp_path: Path, kind: str, name: str) -> None:
    path = tmp_path / "out.zarr"
    WRITERS[kind](path)
    array = {"model": "components", "embedding": "embedding", "ingested": "X"}[kind]
    notes = path / name.format(array=array)
    notes.parent.mkdir(parents=True, exist_ok=True)
    if not notes.parent.is_dir():
        pytest.fail("the folder of the notes is a file")
    notes.write_text("precious")
    before = census(path)
    shown = "mine" if name.startswith("mine") else name.format(array=array)
    with pytest.raises(StoreError, match=f"it also holds '{shown}', which streamdr did not write; move that"):
        WRITERS[kind](path)
    assert census(path) == before


def test_an_array_that_a_user_adds_with_zarr_is_kept(tmp_path: Path) -> None:
    """zarr rewrites the root when it consolidates, and lists the new array among the others."""
    path = tmp_path / "x.zarr"
    bring_in(path)
    zarr.open_group(path).create_array("labels", shape=(3,), dtype="i8")
    zarr.consolidate_metadata(path)
    before = census(path)
    with pytest.raises(StoreError, match="'labels'"):
        bring_in(path)
    assert census(path) == before


@pytest.mark.parametrize(
    "what", ["folder", "link to a folder", "link to a file", "loop", "pipe", "chunk is a link"]
)
def test_links_pipes_and_folders_in_an_output_are_kept(tmp_path: Path, what: str) -> None:
    path, elsewhere = tmp_path / "out.zarr", tmp_path / "elsewhere"
    embed(path)
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("precious")
    if what == "folder":
        (path / "empty").mkdir()
    elif what == "link to a folder":
        (path / "link").symlink_to(elsewhere)
    elif what == "link to a file":
        (path / "link").symlink_to(elsewhere / "precious")
    elif what == "loop":
        (path / "loop").symlink_to("loop")
    elif what == "pipe":
        os.mkfifo(path / "pipe")
    else:
        (path / "embedding/c/0/0").unlink()
        (path / "embedding/c/0/0").symlink_to(elsewhere / "precious")
    before = census(tmp_path)
    with pytest.raises(StoreError, match="which streamdr did not write"):
        embed(path)
    del before["out.zarr"]
    after = census(tmp_path)
    assert {name: after[name] for name in before} == before


def test_a_foreign_file_that_is_added_while_a_run_writes_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "out.zarr"
    embed(path)
    with pytest.raises(StoreError, match=r"never overwritten, since it also holds 'notes.txt'"):
        embed(path, notes="notes.txt")
    assert (path / "notes.txt").read_text() == "precious"
    (path / "notes.txt").unlink()
    embed(path)  # the staged work is continued and published
    assert [item.name for item in tmp_path.iterdir()] == ["out.zarr"]


@pytest.mark.parametrize(
    "name", [".out.zarr.k1.partial", ".out.zarr.other.partial", ".out.zarr.k1.partial.old"]
)
@pytest.mark.parametrize("what", ["files", "link", "pipe", "file"])
def test_a_foreign_folder_with_the_name_of_a_staging_directory_is_not_touched(
    tmp_path: Path, name: str, what: str
) -> None:
    path, elsewhere = tmp_path / "out.zarr", tmp_path / "elsewhere"
    (elsewhere / "embedding").mkdir(parents=True)
    (elsewhere / "embedding" / "precious").write_text("precious")
    if what == "files":
        (tmp_path / name / "embedding" / "c").mkdir(parents=True)
        (tmp_path / name / "embedding" / "c" / "precious").write_text("precious")
    elif what == "link":
        (tmp_path / name).symlink_to(elsewhere)
    elif what == "pipe":
        os.mkfifo(tmp_path / name)
    else:
        (tmp_path / name).write_text("precious")
    before = census(tmp_path)
    if name.endswith("k1.partial"):
        with pytest.raises(StoreError, match=r"which streamdr did not write|cannot be written"):
            embed(path)
    else:
        embed(path)
        sweep(path)
    after = census(tmp_path)
    assert {name: after[name] for name in before} == before


def test_remove_keeps_foreign_files(tmp_path: Path) -> None:
    path = tmp_path / "out.zarr"
    embed(path)
    (path / "embedding/c/1/notes").write_text("precious")
    (path / "link").symlink_to(tmp_path)
    assert foreign_files(path) == ["embedding/c/1/notes", "link"]
    remove(path)
    assert [item.relative_to(path).as_posix() for item in sorted(path.rglob("*")) if item.is_file()] == [
        "embedding/c/1/notes"
    ]
    assert (path / "link").is_symlink()


def test_clear_keeps_the_folder_itself(tmp_path: Path) -> None:
    path = tmp_path / "out.zarr"
    embed(path)
    clear(path)
    assert list(path.iterdir()) == []


def test_a_circle_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    for act in (embed, save_model, bring_in):
        with pytest.raises(StoreError, match="circle of links"):
            act(tmp_path / "a")
    with pytest.raises(StoreError, match="circle of links"):
        store.check_output(tmp_path / "a", kind="model", inputs=[], overwrite=True)


@pytest.mark.parametrize("name", ["x/zarr.json", "x/c", "x/c/0/12", f"x/c/0.{'a' * 32}.partial", "zarr.json"])
def test_names_that_streamdr_writes_are_recognised(name: str) -> None:
    assert is_own(name)
    assert is_own(name, {"x"})
    assert is_own(name, {"y"}) == (name == "zarr.json")


class TestInABucket:
    """The same guarantees for objects."""

    @pytest.fixture
    def place(self, bucket):
        return parse_location(f"{bucket.url}/out/result.zarr")

    def test_an_output_is_replaced_by_one_of_its_kind_only(self, bucket, place):
        embed(place)
        before = bucket.contents()
        with pytest.raises(
            StoreError, match=r"since it is an output of rows \(embedding\), and this would be a"
        ):
            save_model(place)
        assert bucket.contents() == before

    @pytest.mark.parametrize(
        "name", ["notes.txt", "embedding/notes.txt", "embedding/c/0/notes", "mine/zarr.json"]
    )
    def test_foreign_objects_in_an_output_are_kept(self, bucket, place, name):
        embed(place)
        bucket.put(f"out/result.zarr/{name}", b"precious")
        before = bucket.contents("out/result.zarr")
        with pytest.raises(StoreError, match="which streamdr did not write"):
            embed(place)
        assert bucket.contents("out/result.zarr") == before

    @pytest.mark.parametrize("kind", [b"model", b"embedding", b""])
    def test_foreign_objects_are_kept_after_a_run_was_killed_while_publishing(self, bucket, place, kind):
        embed(place)
        bucket.delete("out/result.zarr/zarr.json")
        bucket.put("out/result.zarr/.streamdr-publishing", kind)
        if kind == b"model":
            with pytest.raises(StoreError, match="since it is a model"):
                embed(place)
            return
        bucket.put("out/result.zarr/embedding/notes", b"precious")
        with pytest.raises(StoreError, match="'embedding/notes', which streamdr did not write"):
            embed(place)
        bucket.delete("out/result.zarr/embedding/notes")
        embed(place)
        assert np.array_equal(store.open_embedding(place)[:], ROWS)

    def test_a_foreign_prefix_with_the_name_of_a_staging_is_not_touched(self, bucket, place):
        bucket.put("out/.result.zarr.mine.partial/precious", b"precious")
        bucket.put("out/.result.zarr.left.partial/embedding/c/0/0", b"left")
        embed(place)
        store.sweep(place)
        names = bucket.names()
        assert "out/.result.zarr.mine.partial/precious" in names
        assert not [name for name in names if "left" in name]
