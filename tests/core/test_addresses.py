"""Addresses: their parsing, their options, and the redaction of secrets."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from narrowing import checked

from streamdr import config
from streamdr.core.addresses import Address, is_remote, parse_location, storage_options
from streamdr.core.safe_text import redact
from streamdr.errors import ConfigError


@pytest.mark.parametrize("text", ["data/x.zarr", "/data/x.zarr", "a:b", "c:/x", "..", "x://"[:1]])
def test_a_path_stays_a_path(text):
    assert parse_location(text) == Path(text)
    assert not is_remote(text)


def test_a_file_url_is_a_path():
    assert parse_location("file:" + "///data/my%20x.zarr") == Path("/data/my x.zarr")


@pytest.mark.parametrize(
    "text", ["s3://b/x.zarr", "gs://b/x", "az://c/x", "https://host:8080/x", "memory://x"]
)
def test_a_url_is_an_address(text):
    assert is_remote(text)
    assert parse_location(text) == Address(text)
    assert str(parse_location(f"{text}/")) == text


def remote(text: str) -> Address:
    return checked(Address, parse_location(text))


def test_a_parsed_location_is_returned_unchanged():
    for place in (Path("x"), Address("s3://b/x")):
        assert parse_location(place) is place


def test_addresses_have_names_and_parents_like_paths():
    address = Address("s3://bucket/a/b.zarr", (("region", "x"),))
    assert address.name == "b.zarr"
    assert str(address.parent) == "s3://bucket/a"
    assert str(address.with_name(".c")) == "s3://bucket/a/.c"
    assert str(address / "d/e") == "s3://bucket/a/b.zarr/d/e"
    assert (address / "d").options == address.parent.options == address.options
    bucket = address.parent.parent
    assert bucket.url == "s3://bucket"
    assert bucket.parent == bucket


def test_an_address_contains_those_below_it_and_not_those_with_the_same_beginning():
    address = Address("s3://b/x")
    assert address.contains(Address("s3://b/x"))
    assert address.contains(Address("s3://b/x/y"))
    assert not address.contains(Address("s3://b/xy"))


def test_credentials_in_a_url_become_options_and_are_not_shown():
    address = remote("s3://AKID:s%2Fcret@bucket/x.zarr?endpoint=http://h:9&region=eu")
    assert str(address) == "s3://bucket/x.zarr"
    assert repr(address) == "Address(url='s3://bucket/x.zarr')"
    assert dict(address.options) == {
        "access_key_id": "AKID",
        "secret_access_key": "s/cret",
        "endpoint": "http://h:9",
        "region": "eu",
    }
    assert pickle.loads(pickle.dumps(address)) == address


def test_the_container_of_azure_is_not_a_user():
    address = remote("abfss://container@account.dfs.core.windows.net/x.zarr")
    assert str(address) == "abfss://container@account.dfs.core.windows.net/x.zarr"
    assert address.options == ()


@pytest.mark.parametrize("text", ["s3://", "s3:///x", "s3://b/../x", "s3://b//x", "s3://b/./x"])
def test_an_address_with_an_empty_part_is_refused(text):
    with pytest.raises(ConfigError, match=r"s3://bucket/name.zarr"):
        parse_location(text)


def test_a_secret_that_was_not_encoded_is_refused_and_not_repeated():
    with pytest.raises(ConfigError, match="%2F") as refusal:
        parse_location("s3://AKID:sec/ret@bucket/x.zarr")
    assert "sec" not in str(refusal.value).replace("secret", "")


def test_options_apply_within_a_block_and_those_of_the_url_take_precedence():
    with storage_options({"region": "eu", "endpoint": "http://h", "token": None}):
        with storage_options({"region": "us"}):
            inner = remote("s3://b/x?endpoint=http://other")
        outer = remote("s3://b/x")
    assert dict(inner.options) == {"region": "us", "endpoint": "http://other"}
    assert dict(outer.options) == {"region": "eu", "endpoint": "http://h"}
    assert remote("s3://b/x").options == ()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://AKID:secret@bucket/x.zarr is gone", "s3://***@bucket/x.zarr is gone"),
        ("s3://AKID:sec/r+et@bucket/x.zarr", "s3://***@bucket/x.zarr"),
        ("https://h/x?sig=abc&se=2026 failed", "https://h/x?*** failed"),
        ("--set x.secret_access_key=abc --set y=1", "--set x.secret_access_key=*** --set y=1"),
        ('{"session_token": "abc", "n": "1"}', '{"session_token": "***", "n": "1"}'),
        ("password=abc, user=me", "password=***, user=me"),
        ("abfss://container@account/x", "abfss://container@account/x"),
        ("data/x.zarr: chunk c/0 is missing", "data/x.zarr: chunk c/0 is missing"),
    ],
)
def test_redaction_removes_secrets_and_nothing_else(text, shown):
    assert redact(text) == shown


def test_a_configuration_shows_addresses_without_credentials_and_opens_them_with_credentials():
    run = config.parse(
        "input: {path: 's3://AKID:cret@b/x.zarr?region=eu'}\nmethod: {name: pca}\noutput: {model: m.zarr}"
    )
    assert run.input.path == run.to_dict()["input"]["path"] == "s3://b/x.zarr"
    for text in (repr(run), str(run), f"{run.input.path}", json.dumps(run.to_dict())):
        assert "cret" not in text
    for copied in (run.input, pickle.loads(pickle.dumps(run.input))):
        assert dict(remote(copied.paths[0]).options)["secret_access_key"] == "cret"
