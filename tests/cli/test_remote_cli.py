"""The commands with addresses: the same bits as with files, resumed after a kill, and nothing secret said."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
import xarray
import zarr
from command_line import SCRIPT, Outcome, streamdr, write_config, write_store
from s3_server import KEY, SECRET
from zarr.storage import ObjectStore

from streamdr import store
from streamdr.core.addresses import parse_location

VALUES = np.random.default_rng(0).normal(size=(400, 6)).astype(np.float32)
WEIGHTS = np.random.default_rng(1).uniform(0.5, 2.0, size=400)


@pytest.fixture
def there(bucket, tmp_path):
    """Data and weights in the bucket and on disk, and configurations for both."""
    write_store(tmp_path / "x.zarr", VALUES, chunks=(50, 6))
    zarr.create_array(tmp_path / "w.zarr", data=WEIGHTS, chunks=(70,))
    for name in ("x.zarr", "w.zarr"):
        bucket.upload(tmp_path / name)
    return bucket.url


def configure(place: Path, url: str) -> None:
    place.mkdir(exist_ok=True)
    write_config(
        place,
        input={"path": f"{url}/x.zarr", "weights": f"{url}/w.zarr"},
        output={"model": f"{url}/out/model.zarr", "embedding": f"{url}/out/z.zarr"},
    )


def command(*words: str, bucket, cwd: Path) -> Outcome:
    return streamdr(*words, cwd=cwd, environment=bucket.server.environment)


def test_a_run_from_bucket_to_bucket_gives_the_bits_of_a_run_on_disk(bucket, there, tmp_path):
    configure(tmp_path / "a", there)
    configure(tmp_path / "b", str(tmp_path))
    remote = command("run", "config.yaml", "--json", bucket=bucket, cwd=tmp_path / "a")
    assert remote.code == 0, remote.err
    local = command("run", "config.yaml", "--json", bucket=bucket, cwd=tmp_path / "b")
    assert local.code == 0, local.err
    assert remote.report["model"] == f"{there}/out/model.zarr"
    assert remote.report["bytes_read"] == local.report["bytes_read"] > 0
    objects = bucket.contents("out")
    files = {f.relative_to(tmp_path).as_posix(): f for f in (tmp_path / "out").glob("*.zarr/*/c/**/*")}
    chunks = {key: data for key, data in objects.items() if "/c/" in key}
    assert chunks == {name: file.read_bytes() for name, file in files.items() if file.is_file()}
    assert not [key for key in objects if ".partial" in key or ".lease" in key]

    again = command("run", "config.yaml", "--json", bucket=bucket, cwd=tmp_path / "a")
    assert again.code == 0, again.err
    assert again.report["reused"]
    assert again.report["bytes_read"] == 0
    scores = xarray.open_zarr(ObjectStore(bucket.below("out/z.zarr"), read_only=True))
    assert np.array_equal(scores["embedding"], store.open_embedding(tmp_path / "out" / "z.zarr")[:])


def test_processes_of_a_cluster_read_and_write_for_themselves(bucket, there, tmp_path):
    with_keys = there.replace("s3://", f"s3://{KEY}:{SECRET}@")
    query = f"endpoint={bucket.server.url}&region=us-east-1"
    write_config(
        tmp_path,
        input={"path": f"{with_keys}/x.zarr?{query}"},
        output={"model": f"{with_keys}/m.zarr?{query}", "embedding": f"{with_keys}/z.zarr?{query}"},
        execution={"scheduler": "processes", "workers": 1},
    )
    remote = streamdr("run", "config.yaml", cwd=tmp_path)  # with nothing in the environment: keys travel
    assert remote.code == 0, remote.err
    write_config(tmp_path, input={"path": "x.zarr"}, output={"model": "m.zarr", "embedding": "z.zarr"})
    assert streamdr("run", "config.yaml", cwd=tmp_path).code == 0
    for name in ("m.zarr", "z.zarr"):
        files = {f.relative_to(tmp_path).as_posix(): f for f in (tmp_path / name).glob("*/c/**/*")}
        chunks = {key: data for key, data in bucket.contents(name).items() if "/c/" in key}
        assert chunks == {key: file.read_bytes() for key, file in files.items() if file.is_file()}


def test_rows_that_were_appended_are_all_that_is_read(bucket, there, tmp_path):
    configure(tmp_path / "a", there)
    assert command("run", "config.yaml", bucket=bucket, cwd=tmp_path / "a").code == 0
    longer = np.concatenate([VALUES, VALUES[:50] * 2])
    write_store(tmp_path / "more" / "x.zarr", longer, chunks=(50, 6))
    longer_weights = np.concatenate([WEIGHTS, np.ones(50)])
    zarr.create_array(tmp_path / "more" / "w.zarr", data=longer_weights, chunks=(70,))
    bucket.put("x.zarr/c/8/0", (tmp_path / "more" / "x.zarr" / "c" / "8" / "0").read_bytes())
    for number in (5, 6):
        file = tmp_path / "more" / "w.zarr" / "c" / str(number)
        bucket.put(f"w.zarr/c/{number}", file.read_bytes())
    for name in ("x.zarr", "w.zarr"):
        bucket.put(f"{name}/zarr.json", (tmp_path / "more" / name / "zarr.json").read_bytes())
    words = ["run", "config.yaml", "--json", "--set", "output.refresh_tolerance=10"]
    appended = command(*words, bucket=bucket, cwd=tmp_path / "a")
    assert appended.code == 0, appended.err
    assert appended.report["fit"]["bytes_read"] < longer.nbytes / 2
    assert store.open_embedding(parse_location(f"{there}/out/z.zarr")).shape == (450, 2)


@pytest.mark.parametrize(
    ("path", "kind"),
    [("x.zarr", "zarr array"), ("out/model.zarr", "model"), ("out/z.zarr", "embedding")],
)
def test_inspect_looks_at_addresses(bucket, there, tmp_path, path, kind):
    configure(tmp_path / "a", there)
    assert command("run", "config.yaml", bucket=bucket, cwd=tmp_path / "a").code == 0
    outcome = command("inspect", f"{there}/{path}", "--json", bucket=bucket, cwd=tmp_path)
    assert outcome.code == 0, outcome.err
    assert outcome.report["kind"] == kind
    assert outcome.report["path"] == f"{there}/{path}"
    assert command("inspect", f"{there}/{path}", bucket=bucket, cwd=tmp_path).code == 0


def test_the_secret_is_nowhere_to_be_found(bucket, there, tmp_path):
    with_keys = there.replace("s3://", f"s3://{KEY}:{SECRET}@")
    query = f"endpoint={bucket.server.url}"
    place = tmp_path / "a"
    place.mkdir()
    write_config(
        place,
        input={"path": f"{with_keys}/x.zarr?{query}"},
        output={"model": f"{with_keys}/m.zarr?{query}", "embedding": f"{with_keys}/z.zarr?{query}"},
    )
    elsewhere = {**bucket.server.environment, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    elsewhere |= {"AWS_ACCESS_KEY_ID": "another", "AWS_SECRET_ACCESS_KEY": "another"}
    said = []
    for words in (
        ["run", "config.yaml"],
        ["run", "config.yaml", "--json"],
        ["plan", "config.yaml", "--json"],
        ["transform", "config.yaml", "--json", "--fresh"],
        ["inspect", f"{with_keys}/m.zarr?{query}", "--json"],
    ):
        outcome = streamdr(*words, cwd=place, environment=elsewhere)
        assert outcome.code == 0, outcome.err
        said.append(outcome)
    for words in (
        ["fit", "config.yaml", "--set", f"input.path={with_keys}/nothing.zarr?{query}"],
        ["fit", "config.yaml", "--set", f"input.path={with_keys}/../x.zarr?{query}"],
        ["fit", "config.yaml", "--set", f"output.model={with_keys}/m.zarr?{query}&secret={SECRET}"],
        ["fit", "config.yaml", "--set", f"input.weights={with_keys}/x.zarr?{query}"],
        ["fit", "config.yaml", "--set", f"output.modle={with_keys}/m.zarr?{query}"],
        ["inspect", f"{with_keys}/nothing.zarr?{query}"],
    ):
        outcome = streamdr(*words, cwd=place, environment={**elsewhere, "STREAMDR_TRACEBACK": "1"})
        assert outcome.code in (1, 2), outcome.err
        said.append(outcome)
    written = b"".join(data for key, data in bucket.contents().items() if not key.startswith("x.zarr"))
    for secret in (SECRET, KEY):
        assert secret.encode() not in written
        for outcome in said:
            assert secret not in outcome.out + outcome.err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("input.path=s3://no-such-bucket/x.zarr", "s3://no-such-bucket/x.zarr: .*no such bucket"),
        ("output.model=s3://no-such-bucket/m.zarr", "s3://no-such-bucket/m.zarr: .*no such bucket"),
        ("input.path=s4://bucket/x.zarr", "s4:// is not known"),
        ("input.path=s3://b//x.zarr", "input.path: 's3://b//x.zarr' has an empty part"),
    ],
)
def test_an_address_that_leads_nowhere_is_one_clear_error(bucket, there, tmp_path, change, message):
    configure(tmp_path / "a", there)
    outcome = command("fit", "config.yaml", "--set", change, bucket=bucket, cwd=tmp_path / "a")
    assert outcome.code in (1, 2)
    [error] = outcome.errors
    assert re.search(message, error), error


def test_a_killed_transform_resumes_and_ends_with_the_same_bits(bucket, tmp_path):
    rows, chunks = 16_384, 6
    pattern = np.random.default_rng(2).normal(size=(64, 128)).astype(np.float32)
    values = np.tile(pattern, (rows * chunks // 64, 1))
    write_store(tmp_path / "x.zarr", values, chunks=(rows, 128))
    bucket.upload(tmp_path / "x.zarr")
    method = {"n_components": 16}
    there, here = (
        {"model": f"{base}/out/m.zarr", "embedding": f"{base}/out/z.zarr"} for base in (bucket.url, tmp_path)
    )
    for name, base, output in (("a", bucket.url, there), ("b", tmp_path, here)):
        (tmp_path / name).mkdir()
        execution = {"workers": 1}
        source = {"path": f"{base}/x.zarr"}
        write_config(tmp_path / name, input=source, method=method, output=output, execution=execution)
        assert command("fit", "config.yaml", bucket=bucket, cwd=tmp_path / name).code == 0
    assert command("transform", "config.yaml", bucket=bucket, cwd=tmp_path / "b").code == 0

    process = subprocess.Popen(
        [SCRIPT, "transform", "config.yaml"],
        cwd=tmp_path / "a",
        env={**os.environ, **bucket.server.environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while not any(".partial/embedding/c/" in key for key in bucket.names("out")):
        assert process.poll() is None, "it ended before it could be killed"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not [key for key in bucket.names("out") if key.startswith("out/z.zarr")]

    resumed = command("transform", "config.yaml", "--json", bucket=bucket, cwd=tmp_path / "a")
    assert resumed.code == 0, resumed.err
    assert 0 < resumed.report["bytes_read"] < values.nbytes
    ended = store.open_embedding(parse_location(there["embedding"]))
    assert np.array_equal(ended[:], store.open_embedding(Path(here["embedding"]))[:])
    assert not [key for key in bucket.names("out") if ".partial" in key or ".lease" in key]


def test_ingestion_stays_on_this_machine(tmp_path):
    np.save(tmp_path / "x.npy", VALUES)
    outcome = streamdr("ingest", "x.npy", f"s3://{KEY}:{SECRET}@bucket/x.zarr", cwd=tmp_path)
    assert outcome.code == 2
    assert outcome.errors == ["s3://bucket/x.zarr: must be on this machine; copy it here, and give its path"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.npy"]
