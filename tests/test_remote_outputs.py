"""Outputs in an object store: whole or not at all, resumed, never mixed, and the same as files."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xarray
from s3_server import KEY, SECRET, serve
from zarr.storage import ObjectStore

import streamdr
from streamdr import PCA, store
from streamdr.addresses import parse_place, storage_options
from streamdr.errors import BusyError, StoreError
from streamdr.remote.folder import folder_at
from streamdr.store.remote_publish import MARK
from streamdr.store.slots import Conflict, slot_beside
from streamdr.workshop import can_pass

VALUES = np.random.default_rng(0).normal(size=(40, 5))
ROWS = np.random.default_rng(1).normal(size=(23, 3))


@pytest.fixture
def fitted():
    return PCA(n_components=2).fit(VALUES)


@pytest.fixture
def place(bucket):
    return parse_place(f"{bucket.url}/out/result.zarr")


def begin(place, **changes):
    told = {"n_rows": 23, "n_outputs": 3, "dtype": "float64", "chunk_rows": 10, "attributes": {"model": "m"}}
    store.create_embedding(place, **{**told, **changes})


def embed(target, rows=ROWS, *, overwrite=False, key="k", **changes):
    """The whole of a transform but for the arithmetic."""
    with store.stage(target, kind="embedding", overwrite=overwrite, key=key) as staging:
        begin(staging.path, n_rows=len(rows), **changes)
        done = store.existing_chunks(staging.path)
        for start in range(0, len(rows), 10):
            if start // 10 not in done:
                store.write_rows(staging.path, start, rows[start : start + 10])
        store.finish(staging.path)
        staging.publish()
    return done


def test_a_model_comes_back_as_it_was(bucket, place, fitted):
    fitted.save(str(place))
    loaded = streamdr.load_model(str(place))
    for name in ("components_", "mean_", "explained_variance_"):
        assert np.array_equal(getattr(loaded, name), getattr(fitted, name))
    assert not [key for key in bucket.contents() if "partial" in key or MARK in key]


def test_a_model_is_the_same_bytes_as_on_disk(bucket, place, fitted, tmp_path):
    fitted.save(str(place))
    fitted.save(tmp_path / "m.zarr")
    files = {f.relative_to(tmp_path / "m.zarr").as_posix(): f for f in (tmp_path / "m.zarr").rglob("*")}
    contents = bucket.contents("out/result.zarr")
    for name, file in files.items():
        if file.is_file() and name != "zarr.json":  # which holds the time of writing
            assert contents[f"out/result.zarr/{name}"] == file.read_bytes()


def test_xarray_opens_what_was_written(bucket, place, fitted):
    fitted.save(str(place))
    embed(place.with_name("scores.zarr"))
    model = xarray.open_zarr(ObjectStore(bucket.below("out/result.zarr"), read_only=True))
    scores = xarray.open_zarr(ObjectStore(bucket.below("out/scores.zarr"), read_only=True))
    assert np.array_equal(model["components"], fitted.components_)
    assert np.array_equal(scores["embedding"], ROWS)


def test_what_exists_is_replaced_only_when_that_is_asked_for(place, fitted):
    fitted.save(str(place))
    other = PCA(n_components=3).fit(VALUES)
    with pytest.raises(StoreError, match=r"result.zarr: exists; set output.overwrite: true"):
        other.save(str(place))
    other.save(str(place), overwrite=True)
    assert streamdr.load_model(str(place)).components_.shape == (3, 5)


def test_what_streamdr_did_not_write_is_never_replaced(bucket, place, fitted):
    bucket.put("out/result.zarr/notes.txt", b"mine")
    with pytest.raises(StoreError, match="never overwritten, since it is not a streamdr output"):
        fitted.save(str(place), overwrite=True)
    assert bucket.contents() == {"out/result.zarr/notes.txt": b"mine"}


def test_a_damaged_model_is_noticed_and_named_by_its_address(bucket, place, fitted):
    fitted.save(str(place))
    key = "out/result.zarr/mean/c/0"
    flipped = bytearray(bucket.contents()[key])
    flipped[3] ^= 1
    bucket.put(key, bytes(flipped))
    with pytest.raises(StoreError, match=f"{place}/mean/c/0: is not what was saved"):
        streamdr.load_model(str(place))
    bucket.delete(key)
    with pytest.raises(StoreError, match=f"{place}/mean/c/0: is missing"):
        streamdr.load_model(str(place))


def test_a_record_cannot_make_files_outside_of_it_be_read(bucket, place, fitted, tmp_path):
    fitted.save(str(place))
    key = "out/result.zarr/zarr.json"
    root = json.loads(bucket.contents("out/result.zarr")[key])
    root["attributes"]["streamdr"]["files"]["../../../../escape"] = "0" * 64
    bucket.put(key, json.dumps(root).encode())
    with pytest.raises(StoreError, match="does not match its digest"):
        streamdr.load_model(str(place))


def test_no_model_is_said_to_be_there_when_there_is_none(place):
    with pytest.raises(StoreError, match=f"{place}: no such file or directory"):
        streamdr.load_model(str(place))


def test_an_embedding_comes_back_as_it_was(bucket, place, tmp_path):
    assert not store.exists(place)
    embed(place)
    assert store.exists(place)
    assert np.array_equal(store.open_embedding(place)[:], ROWS)
    assert store.read_group(place, "embedding").record["model"] == "m"
    embed(tmp_path / "here.zarr")
    for number in range(3):
        there = bucket.contents("out/result.zarr")[f"out/result.zarr/embedding/c/{number}/0"]
        assert there == (tmp_path / f"here.zarr/embedding/c/{number}/0").read_bytes()


def test_nothing_is_visible_before_all_is_written(bucket, place):
    with store.stage(place, kind="embedding", overwrite=False, key="k") as staging:
        begin(staging.path)
        store.write_rows(staging.path, 0, ROWS[:10])
        assert not store.exists(place)
    assert not store.exists(place)
    with pytest.raises(StoreError, match=r"embedding/c/1/0: is missing \(rows 10-19\)"):
        store.finish(staging.path)


def test_a_killed_transform_is_continued(bucket, place):
    with store.stage(place, kind="embedding", overwrite=False, key="k") as staging:
        begin(staging.path)
        store.write_rows(staging.path, 0, ROWS[:20])
    assert embed(place) == {0, 1}
    assert np.array_equal(store.open_embedding(place)[:], ROWS)
    assert not [key for key in bucket.contents() if "partial" in key]


def test_chunks_that_are_damaged_or_cut_short_are_written_again(bucket, place):
    with store.stage(place, kind="embedding", overwrite=False, key="k") as staging:
        begin(staging.path)
        store.write_rows(staging.path, 0, ROWS)
    chunks = sorted(key for key in bucket.contents() if "/c/" in key)
    flipped = bytearray(bucket.contents()[chunks[0]])
    flipped[5] ^= 1
    bucket.put(chunks[0], bytes(flipped))
    bucket.put(chunks[1], bucket.contents()[chunks[1]][:-1])
    assert embed(place) == {2}
    assert np.array_equal(store.open_embedding(place)[:], ROWS)


def test_rows_of_another_model_are_not_continued(place):
    with store.stage(place, kind="embedding", overwrite=False, key="k") as staging:
        begin(staging.path)
        store.write_rows(staging.path, 0, ROWS)
    assert embed(place, attributes={"model": "other"}) == set()


def test_rows_must_be_whole_chunks(place):
    begin(place)
    with pytest.raises(StoreError, match=f"{place}: rows 5-14 are not whole chunks of 10"):
        store.write_rows(place, 5, ROWS[:10])


def test_a_run_that_was_killed_while_publishing_is_published_by_the_next(bucket, place):
    embed(place)
    with store.stage(place, kind="embedding", overwrite=True, key="new") as staging:
        begin(staging.path, attributes={"model": "new"})
        store.write_rows(staging.path, 0, -ROWS)
        store.finish(staging.path)
    # This is how far it came: the root is gone, and one chunk of the new is among those of the old.
    new = bucket.contents(f"out/{staging.path.name}")
    bucket.put(f"out/result.zarr/{MARK}", b"")
    bucket.delete("out/result.zarr/zarr.json")
    bucket.put("out/result.zarr/embedding/c/0/0", new[f"out/{staging.path.name}/embedding/c/0/0"])
    with pytest.raises(StoreError):
        store.open_embedding(place)
    assert embed(place, -ROWS, key="new", attributes={"model": "new"}) == {0, 1, 2}
    assert np.array_equal(store.open_embedding(place)[:], -ROWS)


def test_a_run_that_was_killed_after_publishing_has_published(bucket, place):
    embed(place)
    bucket.put(f"out/result.zarr/{MARK}", b"")
    assert np.array_equal(store.open_embedding(place)[:], ROWS)
    with pytest.raises(StoreError, match=r"exists; set output.overwrite: true"):
        embed(place, key="other")
    embed(place, -ROWS, overwrite=True, key="other")
    assert not [key for key in bucket.names() if MARK in key]


def test_a_longer_embedding_leaves_nothing_behind_when_a_shorter_one_replaces_it(bucket, place):
    embed(place)
    embed(place, ROWS[:8], overwrite=True, key="short")
    assert np.array_equal(store.open_embedding(place)[:], ROWS[:8])
    assert not [key for key in bucket.contents("out/result.zarr") if "/c/1/" in key]


def test_rows_that_did_not_change_are_taken_over(place):
    embed(place)
    longer = np.concatenate([ROWS, ROWS + 1])
    with store.stage(place, kind="embedding", overwrite=True, key="longer") as staging:
        begin(staging.path, n_rows=46)
        store.adopt_rows(staging.path, place, 23)
        assert store.existing_chunks(staging.path) == {0, 1}
        store.write_rows(staging.path, 20, longer[20:])
        store.finish(staging.path)
        staging.publish()
    assert np.array_equal(store.open_embedding(place)[:], longer)


def test_of_two_that_publish_the_first_wins(place):
    with store.stage(place, kind="embedding", overwrite=False, key="slow") as slow:
        begin(slow.path)
        store.write_rows(slow.path, 0, -ROWS)
        store.finish(slow.path)
        embed(place, key="fast")
        with pytest.raises(StoreError, match="was written by another run meanwhile"):
            slow.publish()
    assert np.array_equal(store.open_embedding(place)[:], ROWS)


def test_a_fence_is_asked_before_anything_is_replaced(place):
    def fence():
        raise StoreError("another run has taken over")

    embed(place)
    with store.stage(place, kind="embedding", overwrite=True, key="zombie", fence=fence) as staging:
        begin(staging.path)
        store.write_rows(staging.path, 0, -ROWS)
        store.finish(staging.path)
        with pytest.raises(StoreError, match="taken over"):
            staging.publish()
    assert np.array_equal(store.open_embedding(place)[:], ROWS)


def test_a_damaged_embedding_is_refused(bucket, place):
    embed(place)
    bucket.delete("out/result.zarr/embedding/c/1/0")
    with pytest.raises(StoreError, match=f"{place}/embedding/c/1/0: is missing"):
        store.open_embedding(place)


@pytest.mark.parametrize(
    ("target", "other", "message"),
    [
        ("in.zarr/out.zarr", None, "lies inside the input"),
        ("in.zarr", None, "lies inside the input"),
        ("", None, "is a whole bucket"),
        ("out", "out/b", "overlaps another output"),
    ],
)
def test_outputs_in_the_way_of_others_are_refused(bucket, target, other, message):
    bucket.put("in.zarr/zarr.json", b"{}")
    bucket.put("in.zarr/x/zarr.json", b"{}")
    with pytest.raises(StoreError, match=message):
        store.check_output(
            parse_place(f"{bucket.url}/{target}"),
            kind="embedding",
            inputs=[parse_place(f"{bucket.url}/in.zarr/x")],
            overwrite=True,
            other_outputs=[] if other is None else [parse_place(f"{bucket.url}/{other}")],
        )


def test_checking_an_output_leaves_nothing_behind(bucket, place, tmp_path):
    store.check_output(
        place, kind="embedding", inputs=[tmp_path], overwrite=False, other_outputs=[tmp_path / "o"]
    )
    assert bucket.contents() == {}


def test_a_bucket_that_cannot_be_written_is_refused_before_anything_is_read(bucket, tmp_path):
    with pytest.raises(StoreError, match="s3://no-such-bucket/m: cannot be written: there is no such bucket"):
        store.check_output(parse_place("s3://no-such-bucket/m"), kind="embedding", inputs=[], overwrite=False)
    with (
        serve(tmp_path, {"INITIAL_NO_AUTH_ACTION_COUNT": "0"}) as strict,
        storage_options({"endpoint": strict.url}),
        pytest.raises(StoreError, match="s3://b/m: cannot be written: access is denied") as refusal,
    ):
        store.check_output(parse_place("s3://b/m"), kind="embedding", inputs=[], overwrite=False)
    assert SECRET not in str(refusal.value)
    assert KEY not in str(refusal.value)


def test_one_run_holds_the_lease(bucket, place, tmp_path):
    busy = pytest.raises(BusyError, match=f"{place}: is being written")
    with store.leased([place, tmp_path / "o"]), busy, store.leased([place]):
        pytest.fail("two runs hold one lease")
    assert bucket.contents() == {}


def test_a_slot_is_replaced_only_by_those_who_know_what_is_in_it(place):
    slot, rival = slot_beside(place), slot_beside(place)
    assert slot.read() is None
    first = slot.replace(b"one", None)
    with pytest.raises(Conflict):
        rival.replace(b"rival", None)
    second = rival.replace(b"two", first)
    assert slot.read() == (b"two", second)
    with pytest.raises(Conflict):
        slot.replace(b"three", first)
    with pytest.raises(Conflict):
        slot.remove(first)
    slot.remove(second)
    assert slot.read() is None
    with pytest.raises(Conflict):
        slot.replace(b"four", second)


def test_a_folder_keeps_files(bucket, place):
    folder = folder_at(place)
    assert folder.items() == []
    with folder.open("a.npz") as file:
        assert file is None
    for name, data in (("a.npz", b"one"), ("b.npz", b"two"), ("a.npz", b"three")):
        folder.write(name, lambda file, data=data: file.write(data))
    with folder.open("a.npz") as file:
        assert file.read() == b"three"
    folder.touch("b.npz")
    assert sorted(folder.items()) == [("a.npz", 5), ("b.npz", 3)]
    folder.delete("b.npz")
    folder.delete("b.npz")
    assert folder.items() == [("a.npz", 5)]
    assert sorted(bucket.contents()) == ["out/result.zarr/a.npz"]


def test_the_ledger_is_kept_at_an_address(bucket, place, fitted):
    with streamdr.execution(ledger=str(place)):
        first = PCA(n_components=2).fit(VALUES)
        again = PCA(n_components=2).fit(VALUES)
    assert np.array_equal(first.components_, again.components_)
    assert [item.name for item in folder_at(place).items() if item.name.endswith(".npz")]


def test_a_folder_of_fsspec_and_an_output_there(fitted):
    place = parse_place("memory://outputs/m.zarr")
    fitted.save(str(place))
    assert np.array_equal(streamdr.load_model(str(place)).components_, fitted.components_)
    scores = place.with_name("scores.zarr")
    embed(scores)
    embed(scores, -ROWS, overwrite=True, key="again")
    assert np.array_equal(store.open_embedding(scores)[:], -ROWS)
    slot = slot_beside(place)
    version = slot.replace(b"one", None)
    with pytest.raises(Conflict):
        slot.replace(b"two", None)
    slot.remove(version)


def test_rows_of_an_embedding_that_was_never_begun_are_refused(place):
    with pytest.raises(StoreError, match=f"{place}/embedding/zarr.json: cannot be read"):
        store.write_rows(place, 0, ROWS)


def test_a_server_that_is_lost_while_rows_are_written_is_named(bucket, tmp_path):
    with serve(tmp_path) as server:
        server.make_bucket("lost")
        with storage_options({"endpoint": server.url}):
            place = parse_place("s3://lost/z.zarr")
        begin(place)
        store.write_rows(place, 0, ROWS[:10])
        server.stop()
        with pytest.raises(
            StoreError, match=r"z.zarr: cannot be written: the server does not answer"
        ) as lost:
            store.write_rows(place, 10, ROWS[10:20])
    assert can_pass(lost.value)
