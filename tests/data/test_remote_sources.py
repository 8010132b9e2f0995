"""Input in an object store is read like files, with few requests, and with clear errors."""

from __future__ import annotations

import pickle
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from command_line import write_store
from narrowing import present
from s3_server import KEY, SECRET, serve

from streamdr.core.addresses import parse_location, storage_options
from streamdr.core.blocks import Span
from streamdr.data import open_source
from streamdr.errors import ConfigError, DataError, can_pass
from streamdr.store.remote import RemoteError

VALUES = np.random.default_rng(0).normal(size=(53, 6)).astype(np.float32)
LAYOUTS: dict[str, dict[str, Any]] = {
    "v3": {"zarr_format": 3},
    "v2": {"zarr_format": 2},
    "with checksums": {"compressors": [zarr.codecs.ZstdCodec(), zarr.codecs.Crc32cCodec()]},
    "sharded": {"zarr_format": 3, "shards": (20, 6)},
    "with a filter": {"zarr_format": 2, "filters": [numcodecs.Shuffle(4)]},
}


def everything(source):
    return source.read(Span(0, source.spec.n_rows), Span(0, source.spec.n_cols))


@pytest.fixture
def stored(bucket, tmp_path):
    write_store(tmp_path / "x.zarr", VALUES)
    return bucket.upload(tmp_path / "x.zarr")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_arrays_of_every_kind_are_read_as_from_files(bucket, tmp_path, layout):
    write_store(tmp_path / "x.zarr", VALUES, **LAYOUTS[layout])
    source = open_source(bucket.upload(tmp_path / "x.zarr"))
    source.validate()
    assert np.array_equal(everything(source), VALUES)
    assert np.array_equal(source.read(Span(7, 31), Span(2, 5)), VALUES[7:31, 2:5])


def test_arrays_in_groups_are_found(bucket, tmp_path):
    group = zarr.open_group(tmp_path / "g.zarr", mode="w")
    for name in ("a", "b/c"):
        group.create_array(name, data=VALUES, chunks=(10, 6))
    url = bucket.upload(tmp_path / "g.zarr")
    assert np.array_equal(everything(open_source(url, array="b/c")), VALUES)
    with pytest.raises(DataError, match="the group has the arrays a, b/c; say which"):
        open_source(url)


def test_weights_are_read_from_an_address(bucket, stored, tmp_path):
    weights = np.arange(53.0)
    zarr.create_array(tmp_path / "w.zarr", data=weights)
    source = open_source(stored, weights=bucket.upload(tmp_path / "w.zarr"))
    assert np.array_equal(present(source.block(Span(5, 9)).weights), weights[5:9])


def test_a_mask_is_read_from_an_address(bucket, stored, tmp_path):
    missing = np.random.default_rng(1).random(VALUES.shape) < 0.5
    write_store(tmp_path / "m.zarr", missing)
    source = open_source(stored, mask=bucket.upload(tmp_path / "m.zarr"))
    source.validate()
    assert np.array_equal(everything(source), np.where(missing, np.nan, VALUES), equal_nan=True)


def test_the_fingerprint_changes_with_an_object(bucket, stored):
    before = open_source(stored).fingerprint()
    assert open_source(stored).fingerprint() == before
    chunks = bucket.contents("x.zarr/c")
    bucket.put("x.zarr/c/2/0", chunks["x.zarr/c/3/0"])
    assert open_source(stored).fingerprint() != before
    bucket.put("x.zarr/c/2/0", chunks["x.zarr/c/2/0"])
    assert open_source(stored).fingerprint() == before


def test_the_stamps_of_all_chunks_come_from_one_listing(bucket, stored):
    source = open_source(stored)
    before = len(bucket.server.requests())
    source.fingerprint()
    source.validate()
    requests = bucket.server.requests()[before:]
    assert len([request for request in requests if "list-type=2" in request]) == 2
    # The metadata is read again, to check that it has not changed.
    assert all(
        request.split()[1].endswith("zarr.json") for request in requests if "list-type=2" not in request
    )


def test_reading_a_chunk_is_one_request(bucket, stored):
    source = open_source(stored)
    before = len(bucket.server.requests())
    source.read(Span(10, 30), Span(0, 6))
    requests = bucket.server.requests()[before:]
    assert [request.split()[1].rpartition("x.zarr/")[2] for request in requests] == ["c/1/0", "c/2/0"]


def test_only_the_needed_parts_of_a_shard_are_read(bucket, tmp_path):
    wide = np.random.default_rng(1).normal(size=(64, 256))
    write_store(tmp_path / "x.zarr", wide, chunks=(8, 256), shards=(64, 256), compressors=None)
    source = open_source(bucket.upload(tmp_path / "x.zarr"))
    before = len(bucket.server.requests())
    assert np.array_equal(source.read(Span(8, 16), Span(0, 256)), wide[8:16])
    requests = [request.split()[0] for request in bucket.server.requests()[before:]]
    assert requests == ["HEAD", "GET", "GET"]  # its size, its index, and one chunk of eight


def test_a_missing_chunk_is_found_before_anything_is_read(bucket, stored):
    bucket.delete("x.zarr/c/3/0")
    with pytest.raises(DataError, match=f"{stored}: chunk c/3/0 is missing, rows 30-39"):
        open_source(stored).validate()
    filled = open_source(stored, allow_missing_chunks=True)
    filled.validate()
    assert not filled.read(Span(30, 40), Span(0, 6)).any()


def test_a_damaged_chunk_is_named(bucket, stored):
    bucket.put("x.zarr/c/3/0", b"damaged")
    with pytest.raises(DataError, match=f"{stored}: chunk c/3/0 cannot be read, rows 30-39"):
        everything(open_source(stored))


@pytest.mark.parametrize("name", ["nothing.zarr", "x.zarr/nothing"])
def test_an_address_without_data_is_named(bucket, stored, name):
    with pytest.raises(DataError, match=f"{bucket.url}/{name}: there is nothing at this address; check it"):
        open_source(f"{bucket.url}/{name}")


def test_a_bucket_that_does_not_exist_is_named(bucket):
    with pytest.raises(DataError, match=r"s3://no-such-bucket/x.zarr: .*no such bucket.*check the address"):
        open_source("s3://no-such-bucket/x.zarr")


def test_an_endpoint_that_does_not_answer_is_named(bucket):
    with (
        storage_options({"endpoint": "http://127.0.0.1:9"}),
        pytest.raises(
            DataError, match=r"s3://bucket/x.zarr: .*the server does not answer; check the endpoint"
        ),
    ):
        open_source("s3://bucket/x.zarr")


def test_denied_access_is_reported_without_the_keys(bucket, tmp_path):
    with (
        serve(tmp_path, {"INITIAL_NO_AUTH_ACTION_COUNT": "0"}) as strict,
        storage_options({"endpoint": strict.url}),
        pytest.raises(DataError) as refusal,
    ):
        open_source("s3://bucket/x.zarr")
    assert not can_pass(refusal.value)
    advice = "access is denied; check the credentials, and what they are allowed to do"
    assert str(refusal.value) == f"s3://bucket/x.zarr: cannot be read: {advice}"


def test_a_server_that_stops_during_a_read_is_an_error_that_names_the_chunk(bucket, tmp_path, monkeypatch):
    write_store(tmp_path / "x.zarr", VALUES)
    with serve(tmp_path) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        url = server.make_bucket("lost").upload(tmp_path / "x.zarr")
        source = open_source(url)
        source.read(Span(0, 20), Span(0, 6))
        server.stop()
        with pytest.raises(DataError, match=r"lost/x.zarr: chunk c/2/0 cannot be read, rows 20-29: ") as lost:
            source.read(Span(20, 30), Span(0, 6))
    advice = "the server does not answer; check the endpoint (AWS_ENDPOINT_URL) and the network"
    assert str(lost.value).endswith(advice)
    assert can_pass(lost.value)


def test_remote_errors_can_be_pickled():
    error = pickle.loads(pickle.dumps(RemoteError("the server does not answer", 5)))
    assert (str(error), error.errno) == ("the server does not answer", 5)


def test_a_source_pickles_small_and_opens_its_own_store(stored):
    source = open_source(stored)
    pickled = pickle.dumps(source)
    assert len(pickled) < 4000
    assert np.array_equal(everything(pickle.loads(pickled)), VALUES)


def test_options_are_pickled_with_the_source_and_not_shown(bucket, stored, monkeypatch):
    for name in bucket.server.environment:
        monkeypatch.delenv(name)
    options = {"endpoint": bucket.server.url, "access_key_id": KEY, "secret_access_key": SECRET}
    with storage_options(options):
        source = open_source(stored)
    assert np.array_equal(everything(pickle.loads(pickle.dumps(source))), VALUES)
    assert SECRET not in repr(source) + repr(vars(source)) + source.name


def test_keys_in_the_address_work_and_are_not_shown(bucket, stored, monkeypatch):
    for name in bucket.server.environment:
        monkeypatch.delenv(name)
    url = stored.replace("s3://", f"s3://{KEY}:{SECRET}@") + f"?endpoint={bucket.server.url}"
    source = open_source(url)
    assert np.array_equal(everything(source), VALUES)
    assert source.name == stored


def test_an_unknown_option_is_refused_without_its_value():
    with pytest.raises(ConfigError, match=r"s3://bucket/x.zarr: .*sekret_key") as refusal:
        open_source(f"s3://bucket/x.zarr?sekret_key={SECRET}")
    assert SECRET not in str(refusal.value)


def test_a_web_server_that_does_not_list_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/x.zarr"
        with pytest.raises(DataError, match=f"{url}: .*does not list its files"):
            open_source(url)
        server.shutdown()


def test_an_unknown_scheme_is_refused():
    with pytest.raises(ConfigError, match=r"s4://bucket/x.zarr: s4:// is not known"):
        open_source("s4://bucket/x.zarr")


def test_schemes_that_obstore_does_not_support_use_fsspec(tmp_path):
    import fsspec

    write_store(tmp_path / "x.zarr", VALUES)
    fsspec.filesystem("memory").put(str(tmp_path / "x.zarr"), "/sources/x.zarr", recursive=True)
    source = open_source("memory://sources/x.zarr")
    source.validate()
    before = source.fingerprint()
    assert np.array_equal(everything(source), VALUES)
    fsspec.filesystem("memory").pipe("/sources/x.zarr/c/0/0", b"other")
    assert open_source("memory://sources/x.zarr").fingerprint() != before


def test_an_address_object_is_opened(stored):
    assert open_source(parse_location(stored)).name == stored


def test_an_array_opened_with_obstore_gets_its_stamps_from_one_listing(bucket, stored):
    array = zarr.open_array(zarr.storage.ObjectStore(bucket.below("x.zarr")), mode="r")
    source = open_source(array)
    before = len(bucket.server.requests())
    assert source.fingerprint() == open_source(array).fingerprint()
    requests = bucket.server.requests()[before:]
    assert len([request for request in requests if "/c/" in request]) == 0
    assert np.array_equal(everything(pickle.loads(pickle.dumps(source))), VALUES)
    assert SECRET not in source.name + repr(source)
