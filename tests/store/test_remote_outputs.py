"""Outputs in an object store: published atomically, resumed, never mixed, and the same as files."""

from __future__ import annotations

from functools import partial
from typing import BinaryIO

import numpy as np
import pytest
from fits import bits, fit, grown, stored
from narrowing import present
from s3_server import KEY, SECRET, serve

import streamdr
from streamdr import PCA, store
from streamdr.core.addresses import parse_location, storage_options
from streamdr.errors import StoreError, can_pass
from streamdr.methods import pca
from streamdr.store.compare_and_swap import Conflict
from streamdr.store.remote import open_objects
from streamdr.store.remote.key_value_folder import open_folder
from streamdr.store.remote_publish import MARK

VALUES = np.random.default_rng(0).normal(size=(40, 5))
ROWS = np.random.default_rng(1).normal(size=(23, 3))


@pytest.fixture
def fitted():
    return PCA(n_components=2).fit(VALUES)


@pytest.fixture
def place(bucket):
    return parse_location(f"{bucket.url}/out/result.zarr")


def begin(place, **changes):
    given = {"n_rows": 23, "n_outputs": 3, "dtype": "float64", "chunk_rows": 10, "attributes": {"model": "m"}}
    store.create_embedding(place, **{**given, **changes})


def embed(target, rows=ROWS, *, overwrite=False, key="k", **changes):
    """Write an embedding as a transform does. Return the chunks that existed before."""
    with store.stage(target, kind="embedding", overwrite=overwrite, key=key) as staging:
        begin(staging.path, n_rows=len(rows), **changes)
        done = store.existing_chunks(staging.path)
        for start in range(0, len(rows), 10):
            if start // 10 not in done:
                store.write_rows(staging.path, start, rows[start : start + 10])
        store.finish(staging.path)
        staging.publish()
    return done


def test_a_loaded_model_equals_the_saved_one(bucket, place, fitted):
    fitted.save(str(place))
    loaded = streamdr.load_model(str(place))
    for name in ("components_", "mean_", "explained_variance_"):
        assert np.array_equal(getattr(loaded, name), getattr(fitted, name))
    assert not [key for key in bucket.contents() if "partial" in key or MARK in key]


def test_a_run_that_was_killed_while_publishing_is_published_by_the_next(bucket, place):
    embed(place)
    with store.stage(place, kind="embedding", overwrite=True, key="new") as staging:
        begin(staging.path, attributes={"model": "new"})
        store.write_rows(staging.path, 0, -ROWS)
        store.finish(staging.path)
    # The state when it was killed: the root is removed, and one new chunk is among the old ones.
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


def test_a_whole_bucket_cannot_be_an_output(bucket):
    bucket.put("in.zarr/zarr.json", b"{}")
    bucket.put("in.zarr/x/zarr.json", b"{}")
    inputs = [parse_location(f"{bucket.url}/in.zarr/x")]
    with pytest.raises(StoreError, match="is a whole bucket"):
        store.check_output(f"{bucket.url}/", kind="embedding", inputs=inputs, overwrite=True)


def test_a_bucket_that_cannot_be_written_is_refused_before_anything_is_read(bucket, tmp_path):
    with pytest.raises(StoreError, match="s3://no-such-bucket/m: cannot be written: there is no such bucket"):
        store.check_output(
            parse_location("s3://no-such-bucket/m"), kind="embedding", inputs=[], overwrite=False
        )
    with (
        serve(tmp_path, {"INITIAL_NO_AUTH_ACTION_COUNT": "0"}) as strict,
        storage_options({"endpoint": strict.url}),
        pytest.raises(StoreError, match="s3://b/m: cannot be written: access is denied") as refusal,
    ):
        store.check_output(parse_location("s3://b/m"), kind="embedding", inputs=[], overwrite=False)
    assert SECRET not in str(refusal.value)
    assert KEY not in str(refusal.value)


def put(data: bytes, file: BinaryIO) -> None:
    file.write(data)


def test_a_folder_keeps_files(bucket, place):
    folder = open_folder(place)
    assert folder.items() == []
    with folder.open("a.npz") as file:
        assert file is None
    for name, data in (("a.npz", b"one"), ("b.npz", b"two"), ("a.npz", b"three")):
        folder.write(name, partial(put, data))
    with folder.open("a.npz") as file:
        assert present(file).read() == b"three"
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
    assert [item.name for item in open_folder(place).items() if item.name.endswith(".npz")]


def test_only_states_that_have_changed_are_sent_to_an_address(bucket, place, tmp_path, monkeypatch):
    monkeypatch.setattr("streamdr.engine.ledger._OWN_FILE_BYTES", 0)
    rng = np.random.default_rng(0)
    values = rng.normal(size=(80_000, 64))
    path = stored(tmp_path / "x.zarr", values[:70_000], (2000, 64))
    fit(pca.PCA(2), path, ledger=place)
    before = {item.key for item in open_objects(place).listed() if "-" in item.key}
    puts = len([one for one in bucket.server.requests() if one.startswith("PUT")])
    grown(path, values[:71_000])
    fit(pca.PCA(2), path, ledger=place)
    written = [one for one in bucket.server.requests() if one.startswith("PUT")][puts:]
    after = {item.key for item in open_objects(place).listed() if "-" in item.key}
    assert before & after, "a digit stays"
    sent = {one.split()[1].rpartition("/")[2] for one in written}
    assert {name for name in sent if "-" in name} == after - before
    grown(path, values)
    appended = fit(pca.PCA(2), path, ledger=place)
    assert bits(appended.model) == bits(fit(pca.PCA(2), path).model)


def test_models_embeddings_and_leases_work_through_fsspec(fitted):
    place = parse_location("memory://outputs/m.zarr")
    fitted.save(str(place))
    assert np.array_equal(streamdr.load_model(str(place)).components_, fitted.components_)
    scores = place.with_name("scores.zarr")
    embed(scores)
    embed(scores, -ROWS, overwrite=True, key="again")
    assert np.array_equal(store.open_embedding(scores)[:], -ROWS)
    lease_file = store.open_backend(place).lease_file()
    version = lease_file.replace(b"one", None)
    with pytest.raises(Conflict):
        lease_file.replace(b"two", None)
    lease_file.remove(version)


def test_rows_of_an_embedding_that_was_never_begun_are_refused(place):
    with pytest.raises(StoreError, match=f"{place}/embedding/zarr.json: cannot be read"):
        store.write_rows(place, 0, ROWS)


def test_a_server_that_is_lost_while_rows_are_written_is_named(bucket, tmp_path):
    with serve(tmp_path) as server:
        server.make_bucket("lost")
        with storage_options({"endpoint": server.url}):
            place = parse_location("s3://lost/z.zarr")
        begin(place)
        store.write_rows(place, 0, ROWS[:10])
        server.stop()
        with pytest.raises(
            StoreError, match=r"z.zarr: cannot be written: the server does not answer"
        ) as lost:
            store.write_rows(place, 10, ROWS[10:20])
    assert can_pass(lost.value)
