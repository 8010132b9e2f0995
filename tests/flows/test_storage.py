"""Remote stores are opened by what a block holds, and nobody sees that."""

from __future__ import annotations

import json
import uuid

import numpy as np
import pydantic
import pytest
from command_line import write_store
from narrowing import checked, present
from prefect.blocks.system import Secret
from prefect.filesystems import RemoteFileSystem
from prefect_server import until
from s3_server import KEY, SECRET

from streamdr.cli.supervisor import StageError
from streamdr.flows.fit import fit
from streamdr.flows.parameters import Configuration
from streamdr.workflow.reports import StagesReport


def test_a_flow_opens_a_bucket_by_a_block_and_says_nothing_of_its_keys(reporting, s3_server, tmp_path):
    bucket = s3_server.make_bucket(f"flow-{uuid.uuid4().hex}")
    write_store(tmp_path / "x.zarr", np.random.default_rng(0).normal(size=(200, 5)))
    bucket.upload(tmp_path / "x.zarr")
    settings = {
        "endpoint": s3_server.url,
        "access_key_id": KEY,
        "secret_access_key": SECRET,
        "region": "us-east-1",
    }
    RemoteFileSystem(basepath=bucket.url, settings=settings).save("bucket", overwrite=True)
    Secret(value=pydantic.Secret(settings)).save("keys", overwrite=True)
    config = Configuration(
        {
            "input": {"path": f"{bucket.url}/x.zarr"},
            "method": {"name": "pca", "n_components": 2},
            "output": {"model": f"{bucket.url}/model.zarr"},
        }
    )
    assert (
        present(checked(StagesReport, fit(config, storage_block="remote-file-system/bucket")).verify).n_rows
        == 200
    )
    assert present(checked(StagesReport, fit(config, storage_block="secret/keys")).fit).reused
    assert "model.zarr/zarr.json" in bucket.names("model.zarr")

    run = reporting.runs(name="fit")[0]
    mine = {"id": {"any_": [run["id"]]}}
    logs = until(
        lambda: reporting.ask("/logs/filter", logs={"flow_run_id": {"any_": [run["id"]]}}), "no logs"
    )
    shown = [run, logs, reporting.ask("/task_runs/filter", flow_runs=mine), reporting.artifacts(run["id"])]
    assert SECRET not in json.dumps(shown)


@pytest.mark.parametrize("block", ["remote-file-system/nobody", "nonsense"])
def test_a_block_that_is_not_there_is_named(block, reporting, place):
    with pytest.raises(StageError, match=f"storage_block: '{block}' cannot be loaded"):
        fit(Configuration.load("config.yaml", []), storage_block=block)
    assert reporting.runs(name="fit")[0]["state"]["message"].startswith(f"storage_block: '{block}'")
