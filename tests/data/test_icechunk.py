"""Icechunk repositories: a snapshot is read, and rows that later ones append are recognised."""

from __future__ import annotations

import pickle
import shutil

import icechunk
import numpy as np
import pytest
import zarr
from fits import bits, fit, stored
from s3_server import KEY, SECRET

import streamdr
from streamdr.core.blocks import Span
from streamdr.data import open_source
from streamdr.data.concatenated import ConcatenatedSource
from streamdr.data.zarr.icechunk_node import IcechunkNode, repository_at
from streamdr.errors import ConfigError, DataError, InputError
from streamdr.methods.pca import PCA

VALUES = np.random.default_rng(0).standard_normal((400, 6)).astype("f4")
icechunk.set_logs_filter("error")


class Repository:
    """A repository with one array `x`."""

    def __init__(self, storage, values=VALUES[:300]):
        self.repository = icechunk.Repository.create(storage)
        with self.changing() as group:
            array = group.create_array("x", shape=values.shape, chunks=(10, 6), dtype="f4")
            array[...] = values

    def changing(self, branch="main"):
        return Commit(self.repository, branch)

    def append(self, values, branch="main"):
        with self.changing(branch) as group:
            group["x"].append(values)
        return self.repository.lookup_branch(branch)


class Commit:
    def __init__(self, repository, branch):
        self.session = repository.writable_session(branch)

    def __enter__(self):
        return zarr.open_group(self.session.store, mode="a")

    def __exit__(self, *error):
        self.session.commit("a change")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "days.icechunk"


@pytest.fixture
def repository(path):
    return Repository(icechunk.local_filesystem_storage(str(path)))


def everything(source):
    return source.read(Span(0, source.spec.n_rows), Span(0, source.spec.n_cols))


def test_the_newest_snapshot_of_main_is_read(repository, path):
    source = open_source(path)
    source.validate()
    assert source.name == f"{path}/x"
    assert np.array_equal(everything(source), VALUES[:300])
    repository.append(VALUES[300:])
    assert np.array_equal(everything(source), VALUES[:300]), "a source stays at its snapshot"
    assert np.array_equal(everything(open_source(path, array="x")), VALUES)
    assert np.array_equal(everything(open_source(str(path))), VALUES)


def test_a_branch_a_tag_and_a_snapshot_can_be_named(repository, path):
    first = repository.repository.lookup_branch("main")
    repository.repository.create_tag("v1", first)
    repository.repository.create_branch("dev", first)
    repository.append(VALUES[300:350], "dev")
    repository.append(VALUES[300:])
    rows = {"main": 400, "dev": 350, "v1": 300, first: 300}
    for ref, n_rows in rows.items():
        assert open_source(f"{path}@{ref}").spec.n_rows == n_rows
    assert open_source(f"{path}@dev").name == open_source(path).name
    message = rf"path: {path}@v2: there is no branch, tag or snapshot 'v2'; there are dev, main, v1"
    with pytest.raises(InputError, match=message):
        open_source(f"{path}@v2")


def test_other_directories_are_no_repositories(repository, path, tmp_path):
    assert isinstance(repository_at(path), IcechunkNode)
    store = stored(tmp_path / "x.zarr", VALUES)
    (tmp_path / "x.zarr/snapshots").mkdir()
    (tmp_path / "x.zarr/refs").mkdir()
    odd = stored(tmp_path / "x@1.zarr", VALUES)
    for place in (store, odd, tmp_path, tmp_path / "none", tmp_path / "none@main"):
        assert repository_at(place) is None
    assert open_source(odd).spec.n_rows == 400


def test_a_worker_opens_the_same_snapshot(repository, path):
    data = pickle.dumps(open_source(path))
    repository.append(VALUES[300:])
    assert len(data) < 3000
    assert np.array_equal(everything(pickle.loads(data)), VALUES[:300])


def test_the_fingerprint_is_that_of_the_snapshot(repository, path):
    before = open_source(path).fingerprint()
    assert open_source(path).fingerprint() == before
    with repository.changing() as group:
        group.attrs["title"] = "nothing of the array"
    assert open_source(path).fingerprint() == before
    with repository.changing() as group:
        group["x"][7, 3] = 1
    assert open_source(path).fingerprint() != before


def test_arrays_of_one_snapshot_have_other_fingerprints(repository, path):
    with repository.changing() as group:
        for name in ("a", "b"):
            group.create_array(name, shape=(20, 6), chunks=(10, 6), dtype="f4")[...] = 1
    assert open_source(path, array="a").fingerprint() != open_source(path, array="b").fingerprint()


def test_appended_rows_keep_the_digests_of_the_rows_before(repository, path):
    digests = [open_source(path).snapshot()]
    for start in range(300, 400, 20):
        repository.append(VALUES[start : start + 20])
        digests.append(open_source(path).snapshot())
    for rows in (10, 150, 300):
        assert len({snapshot.digest(rows) for snapshot in digests}) == 1
    assert digests[3].digest(340) == digests[5].digest(340)


@pytest.mark.parametrize("change", ["a chunk", "rewritten", "reset"])
def test_a_change_of_earlier_rows_is_detected(change, repository, path):
    start = repository.repository.lookup_branch("main")
    repository.append(VALUES[300:])
    before = open_source(path).snapshot()
    if change == "a chunk":
        with repository.changing() as group:
            group["x"][200] = 3
    elif change == "rewritten":
        with repository.changing() as group:
            group.create_array("x", shape=(400, 6), chunks=(10, 6), dtype="f4", overwrite=True)[...] = VALUES
    else:
        repository.repository.reset_branch("main", start)
        repository.append(VALUES[300:][::-1])
    after = open_source(path).snapshot()
    assert before.digest(400) != after.digest(400)
    assert (before.digest(200) == after.digest(200)) == (change != "rewritten")


def test_only_appended_rows_are_read(repository, path, tmp_path, monkeypatch, small_blocks):
    read: list[str] = []
    original = IcechunkNode.read

    def counting(self, key, limit):
        if key.startswith("c/") and int(key.split("/")[1]) > 6:  # which features have a value at first
            read.append(key)
        return original(self, key, limit)

    monkeypatch.setattr(IcechunkNode, "read", counting)
    ledger, method = tmp_path / "ledger", PCA(2, solver="covariance")
    first = fit(method, path, ledger=ledger)
    assert len(read) == 30 - 7
    assert bits(first.model) == bits(fit(method, stored(tmp_path / "1.zarr", VALUES[:300], (10, 6))).model)
    read.clear()
    repository.append(VALUES[300:])
    second = fit(method, path, ledger=ledger)
    assert len(read) <= 10 + 7, "the new chunks, and those that did not fill a block"
    assert min(int(key.split("/")[1]) for key in read) >= 23
    assert bits(second.model) == bits(fit(method, stored(tmp_path / "2.zarr", VALUES, (10, 6))).model)


def test_an_estimator_takes_a_repository(repository, path):
    assert streamdr.PCA(2).fit(path).mean_.shape == (6,)


def test_repositories_one_after_another_are_one_source(repository, path, tmp_path):
    other = tmp_path / "later.icechunk"
    Repository(icechunk.local_filesystem_storage(str(other)), VALUES[300:])
    source = ConcatenatedSource([open_source(path), open_source(other)], "*.icechunk")
    assert np.array_equal(everything(source), VALUES)


def test_a_missing_chunk_is_named(path):
    repository = Repository(icechunk.local_filesystem_storage(str(path)))
    with repository.changing() as group:
        group["x"].resize((340, 6))
    with pytest.raises(DataError, match=rf"{path}/x: chunk c/30/0 is missing, rows 300-309 \(4 of 34 are\)"):
        open_source(path).validate()


def test_a_damaged_repository_is_an_error(repository, path):
    shutil.rmtree(path / "manifests")
    source = open_source(path)
    with pytest.raises(DataError, match=rf"{path}.*"):
        everything(source)
    for file in (path / "snapshots").iterdir():
        file.write_bytes(b"nothing")
    path.rename(path.with_name("other"))
    with pytest.raises(DataError, match=r"/other: cannot be read as an Icechunk repository: "):
        open_source(path.with_name("other"))


def test_a_repository_in_a_bucket_is_read(bucket, monkeypatch):
    storage = icechunk.s3_storage(
        bucket=bucket.name,
        prefix="days",
        region="us-east-1",
        endpoint_url=bucket.server.url,
        allow_http=True,
        force_path_style=True,
        access_key_id=KEY,
        secret_access_key=SECRET,
    )
    repository = Repository(storage, VALUES[:30])
    source = open_source(f"{bucket.url}/days")
    assert (source.name, source.spec.n_rows) == (f"{bucket.url}/days/x", 30)
    assert np.array_equal(everything(pickle.loads(pickle.dumps(source))), VALUES[:30])
    before = source.snapshot()
    repository.append(VALUES[30:50])
    assert open_source(f"{bucket.url}/days@main").snapshot().digest(30) == before.digest(30)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name)
    options = {"endpoint": bucket.server.url, "access_key_id": KEY, "secret_access_key": SECRET}
    with streamdr.storage_options(options):
        given = open_source(f"{bucket.url}/days")
    assert np.array_equal(everything(given), VALUES[:50])
    assert SECRET not in repr(given.__dict__)


def test_other_remote_stores_are_refused(tmp_path):
    from streamdr.core.addresses import Address
    from streamdr.data.zarr.icechunk_node import _storage

    with pytest.raises(ConfigError, match=r"gs://bucket/x: Icechunk repositories are read from this machine"):
        _storage(Address("gs://bucket/x"))
