"""No secret is shown, wherever it was written: addresses with keys, by every command and every failure."""

from __future__ import annotations

import json
import os
import shlex

import numpy as np
import pytest
from command_line import streamdr, write_config, write_store
from secret_addresses import ADDRESSES, SECRET

from streamdr.cli import console
from streamdr.core.addresses import parse_location, storage_options
from streamdr.core.safe_text import redact, redact_value
from streamdr.errors import ConfigError, DataError

# Nothing answers at this port, and nobody is asked twice.
AWAY = {
    "AWS_ENDPOINT": "http://127.0.0.1:9",
    "AWS_ALLOW_HTTP": "true",
    "AWS_MAX_RETRIES": "0",
    "AWS_RETRY_TIMEOUT": "1s",
    "NO_PROXY": "*",
}
KEYS = [
    *(("input", key) for key in ("path", "weights", "labels", "mask", "array")),
    *(("output", key) for key in ("model", "embedding", "imputed")),
    *(("execution", key) for key in ("ledger", "scheduler", "memory_limit", "workers")),
    ("method", "n_components"),
]
COMMANDS = ("fit", "transform", "verify", "reprocess", "compare")
TRACED = {"STREAMDR_TRACEBACK": "1"}


def assert_not_shown(outcome, place):
    assert SECRET not in outcome.out
    assert SECRET not in outcome.err
    assert outcome.out.replace("\n", "").isprintable()
    for folder, folders, files in os.walk(place):
        for name in [*folders, *files]:
            assert SECRET not in name
        for name in files:
            if name not in ("config.yaml", "c.yaml"):
                with open(os.path.join(folder, name), "rb") as file:
                    assert SECRET.encode() not in file.read(), name


def prepared(tmp_path, section=None, key=None, address=None):
    write_store(tmp_path / "x.zarr", np.random.default_rng(0).normal(size=(40, 4)))
    given = {"input": {"path": "x.zarr"}, "output": {"model": "m.zarr", "embedding": "e.zarr"}}
    if section is not None:
        given[section] = {**given.get(section, {}), key: address}
    return write_config(tmp_path, **given)


@pytest.mark.parametrize("kind", ["user", "space", "signed", "one slash"])
def test_a_run_never_shows_what_opens_a_store(tmp_path, kind):
    config = prepared(tmp_path, "input", "path", ADDRESSES[kind])
    for words in (["plan", config, "--json"], ["run", config]):
        outcome = streamdr(*words, cwd=tmp_path, environment=AWAY)
        assert outcome.code != 0
        assert_not_shown(outcome, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ADDRESSES)
def test_no_key_of_a_configuration_shows_it(tmp_path, kind):
    for number, (section, key) in enumerate(KEYS):
        place = tmp_path / str(number)
        place.mkdir()
        config = prepared(place, section, key, ADDRESSES[kind])
        for words in (["plan", config, "--json"], ["run", config]):
            outcome = streamdr(*words, cwd=place, environment=AWAY | TRACED)
            assert_not_shown(outcome, place)
        if key == "path":
            for command in COMMANDS:
                assert_not_shown(streamdr(command, config, cwd=place, environment=AWAY), place)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ADDRESSES)
def test_no_word_of_a_command_line_shows_it(tmp_path, kind):
    config, address = prepared(tmp_path), ADDRESSES[kind]
    lines = [
        *(["plan", config, "--set", f"{section}.{key}={json.dumps(address)}"] for section, key in KEYS),
        ["plan", config, "--set", f"input.path={address}"],
        ["plan", config, "--set", address],
        ["plan", config, "--set", f"{address}=1"],
        ["plan", config, "--set", f"execution.cluster.arguments.env={SECRET}"],
        ["plan", config, "--set", f"execution.cluster={{name: LocalCluster, arguments: {{env: {SECRET}}}}}"],
        ["plan", config, "--set", f"execution.cluster={{name: LocalCluster, arguments: {SECRET}}}"],
        ["plan", address],
        ["reprocess", address],
        ["compare", config, "--out", address],
        ["inspect", address],
        ["plot", address, "--out", "x.png"],
        ["plot", "m.zarr", "--out", address],
        ["plot", "m.zarr", "--out", "x.png", "--data", address],
        ["ingest", address, "y.zarr"],
        ["ingest", "x.csv", address],
        ["ingest", "x.csv", "y.zarr", "--chunk-rows", address],
        ["inspect", "x.zarr", address],
        [address],
        ["inspect", f"--nosuch={address}", "x.zarr"],
    ]
    for words in lines:
        outcome = streamdr(*words, "--json", cwd=tmp_path, environment=AWAY | TRACED)
        assert_not_shown(outcome, tmp_path)


def test_a_command_line_is_repeated_without_them(monkeypatch):
    words = ["streamdr", "run", "c.yaml", "--fresh", "--set", f"input.path={ADDRESSES['space']}"]
    words += ["--set", f"execution.cluster={{name: SLURMCluster, arguments: {{account: {SECRET}}}}}"]
    words += ["--set", "method.n_components=3"]
    monkeypatch.setattr("sys.argv", words)
    again = console.resume_command()
    assert SECRET not in again
    assert shlex.split(again)[:3] == ["streamdr", "run", "c.yaml"]
    assert "method.n_components=3" in again
    assert "--fresh" not in again


@pytest.mark.parametrize("kind", ADDRESSES)
def test_an_address_is_shown_without_its_keys(kind):
    address = ADDRESSES[kind]
    assert SECRET not in redact_value(address)
    if kind not in ("space", "quote"):  # within a sentence, the end of these is ambiguous
        assert SECRET not in redact(f"Generic error: {address}: not found (see {address!r})")
    assert SECRET not in str(DataError(f"{redact_value(address)}: is not there"))
    if kind not in ("slash", "mark", "hash", "fragment", "one slash", "file", "nowhere", "dots"):
        place = parse_location(address)
        assert SECRET not in str(place) + repr(place)
    else:
        with pytest.raises(ConfigError) as refused:
            parse_location(address)
        assert SECRET not in str(refused.value) + repr(refused.value)


def test_a_key_that_was_given_once_is_never_shown_in_any_message():
    parse_location("s3://AKID:very%2Fsecret%2Fword@bucket/x")
    with storage_options({"secret_access_key": "another-secret-word", "region": "eu-central-1"}):
        parse_location("s3://bucket/y")
    said = "it was very/secret/word, very%2Fsecret%2Fword, another-secret-word in eu-central-1"
    assert str(DataError(said)) == "it was ***, ***, *** in eu-central-1"


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/data@v2.zarr: not found",
        "https://host:8080/data@v2.zarr",
        "abfs://container@account.dfs.core.windows.net/x.zarr",
        "tcp://127.0.0.1:8786: no dask scheduler answers there",
        "see https://distributed.dask.org/en/latest/tls.html#usage.",
        "C:/data/x.zarr",
        "unknown key; did you mean 'n_components'?",
        "rows 3:4 of a@b",
    ],
)
def test_what_is_no_secret_stays(text):
    assert redact(text) == text


@pytest.mark.parametrize(
    "word",
    [
        "execution.cluster.arguments.account={}",
        "--set=execution.cluster.arguments.account={}",
        "execution={{cluster: {{name: SLURMCluster, arguments: {{account: {}}}}}}}",
        "--set=execution={{cluster: {{arguments: {{account: {}}}}}}}",
        "Execution.Cluster.arguments.account={}",
        "execution . cluster . arguments . account={}",
        "execution.cluster.arguments.account:{}",
        "execution.cluster.arguments.account {}",
        "execution.clusters.argument.account={}",
        "cluster.arguments.account={}",
        "arguments={{account: {}}}",
        "execution.tls.key={}",
        "storage_options={{key: {}}}",
    ],
)
def test_what_is_said_to_a_cluster_is_not_repeated_however_it_was_written(word, tmp_path):
    word = word.format(SECRET)
    assert SECRET not in console.shown_word(word)
    write_config(tmp_path, input={"path": "x.zarr"})
    for words in ([word], ["--set", word], ["--sett", word]):
        outcome = streamdr("plan", "config.yaml", *words, cwd=tmp_path, environment=TRACED)
        assert outcome.code != 0
        assert_not_shown(outcome, tmp_path)


@pytest.mark.parametrize(
    "word",
    [
        "configs/cluster.yaml",
        "my cluster runs/c.yaml",
        "out/tls/x.zarr",
        "execution.workers=4",
        "execution.scheduler=tcp://head:8786",
        "input.path=/data/cluster one/x.zarr",
        "--set=method.name=pca",
    ],
)
def test_other_words_are_repeated_as_they_are(word):
    assert console.shown_word(word) == word


def test_what_stands_in_the_wrong_place_of_a_configuration_is_not_repeated(tmp_path):
    key = f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----"
    for execution in (
        [{"cluster": {"arguments": {"token": SECRET}}}],
        {"cluster": [{"arguments": {"token": SECRET}}]},
        {"tls": {"ca": {"a": SECRET}, "cert": "b", "key": "c"}},
        {"cluster": {"name": "LocalCluster"}, "tls": {"ca": "a", "cert": "b", "key": key}},
        {"tls": key},
    ):
        config = write_config(tmp_path, input={"path": "x.zarr"})
        text = config.read_text().partition("execution:")[0]
        config.write_text(f"{text}execution: {json.dumps(execution)}\n")
        outcome = streamdr("plan", "config.yaml", cwd=tmp_path, environment=TRACED)
        assert outcome.code == 2
        assert_not_shown(outcome, tmp_path)
