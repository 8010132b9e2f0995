"""Flows do what the commands do, to the bit, and the server's pages show it."""

from __future__ import annotations

import base64
import os
import re
import signal
import threading

import numpy as np
import pytest
import zarr
from command_line import succeed, write_config
from flow_fixtures import CHUNK_ROWS, CHUNKS
from narrowing import checked, present
from prefect_server import until

from streamdr.cli.supervisor import StageError
from streamdr.flows.fit import fit
from streamdr.flows.fit_transform import fit_transform
from streamdr.flows.parameters import Configuration
from streamdr.flows.stages import RETRIES
from streamdr.flows.transform import transform
from streamdr.workflow.reports import StagesReport


def configured(place, *sets: str) -> Configuration:
    return Configuration.load(str(place / "config.yaml"), list(sets))


def latest(server, flow: str) -> dict:
    return server.runs(name=flow)[0]


def test_a_run_of_five_stages_and_what_the_server_shows_of_it(reporting, place):
    report = checked(StagesReport, fit_transform(configured(place)))
    assert list(report.to_json()) == ["plan", "fit", "transform", "verify"]

    run = latest(reporting, "fit-transform")
    assert run["state"]["type"] == "COMPLETED"
    assert run["parameters"]["config"] == configured(place).root
    tasks = reporting.tasks(run["id"], expected=5)
    assert set(tasks) == {"plan", "fit", "transform", "verify", "summarise"}
    assert {task["state_type"] for task in tasks.values()} == {"COMPLETED"}

    artifacts = reporting.artifacts(run["id"])
    tables = {"explained-variance", "errors-of-the-variances"}
    assert set(artifacts) == {"fit", "transform", "verify", "verified", "summary"} | tables
    for key in ("fit", "transform", "verify"):
        assert artifacts[key]["type"] == "progress"
        assert artifacts[key]["data"] == 100.0
    assert '"component": 2' in artifacts["explained-variance"]["data"]
    pictures = re.findall(r"data:image/png;base64,([\w+/=]+)", artifacts["summary"]["data"])
    assert len(pictures) == 2
    assert all(base64.b64decode(picture).startswith(b"\x89PNG") for picture in pictures)


def test_the_bits_are_those_of_the_command_which_finds_them_up_to_date(reporting, place):
    succeed("run", "config.yaml", "--set", "output={model: m.zarr, embedding: z.zarr}", cwd=place)
    fit_transform(configured(place))
    for theirs, ours in {"m.zarr/components": "out/model.zarr/components", "z.zarr": "out/z.zarr"}.items():
        array = "" if "components" in ours else "embedding"
        assert np.array_equal(
            np.asarray(zarr.open_array(place / ours / array)[:]),
            np.asarray(zarr.open_array(place / theirs / array)[:]),
        )
    again = succeed("run", "config.yaml", "--json", cwd=place).report
    assert again["fit"]["reused"]
    assert again["transform"]["reused"]


def test_without_an_embedding_there_is_nothing_to_transform(reporting, place):
    report = checked(StagesReport, fit_transform(configured(place, "output.embedding=null")))
    assert list(report.to_json()) == ["plan", "fit", "verify"]
    assert set(reporting.tasks(latest(reporting, "fit-transform")["id"], expected=4)) == {
        "plan",
        "fit",
        "verify",
        "summarise",
    }


def test_what_else_is_asked_for_of_rows_is_written_verified_and_shown(reporting, place):
    zarr.open_array(place / "x.zarr", mode="r+")[7, 3] = np.nan
    asked = "output={model: out/model.zarr, imputed: out/filled.zarr, log_likelihood: out/likely.zarr}"
    config = configured(place, "method={name: ppca, n_components: 2}", asked)
    assert list(checked(StagesReport, fit(config)).to_json()) == ["plan", "fit", "verify"]
    assert not (place / "out" / "filled.zarr").exists()
    report = checked(StagesReport, fit_transform(config))
    assert [stage.name for stage in present(report.plan).stages] == ["fit", "imputed", "log_likelihood"]
    assert present(report.fit).reused
    assert list(present(report.transform).outputs) == ["imputed", "log_likelihood"]
    assert np.isfinite(np.asarray(zarr.open_array(place / "out/filled.zarr/imputed")[:])).all()
    artifacts = reporting.artifacts(latest(reporting, "fit-transform")["id"])
    assert "sample of imputed" in artifacts["verified"]["data"]
    assert "imputed values of 200 rows, 5 columns" in artifacts["summary"]["data"]


def test_the_halves_of_it(reporting, place):
    assert list(checked(StagesReport, fit(configured(place))).to_json()) == ["plan", "fit", "verify"]
    assert not (place / "out" / "z.zarr").exists()
    assert list(checked(StagesReport, transform(configured(place))).to_json()) == ["transform", "verify"]
    assert (place / "out" / "z.zarr").exists()


def failed(server, flow, config) -> tuple[dict, StageError]:
    with pytest.raises(StageError) as caught:
        flow(config)
    return latest(server, flow.name), caught.value


def test_bad_data_fails_at_once_with_a_message_that_says_where(reporting, place):
    zarr.open_array(place / "x.zarr", mode="r+")[7, 3] = np.nan
    run, error = failed(reporting, fit_transform, configured(place))
    assert (run["state"]["type"], error.kind) == ("FAILED", "MissingValuesError")
    assert run["state"]["message"] == str(error)
    assert "x.zarr: nan at row 7, column 3" in run["state"]["message"]
    tasks = reporting.tasks(run["id"], expected=2)
    assert tasks["fit"]["run_count"] == 1
    assert tasks["fit"]["state_type"] == "FAILED"


def test_too_little_memory_fails_before_anything_is_read(reporting, place):
    run, error = failed(reporting, fit_transform, configured(place, "execution.memory_limit=1MB"))
    assert (run["state"]["type"], error.kind) == ("FAILED", "MemoryLimitError")
    assert set(reporting.tasks(run["id"], expected=1)) == {"plan"}


def test_an_output_that_is_not_ours_is_never_overwritten(reporting, place):
    (place / "out" / "z.zarr").mkdir(parents=True)
    (place / "out" / "z.zarr" / "diary.txt").write_text("dear diary")
    run, _ = failed(reporting, fit_transform, configured(place, "output.overwrite=true"))
    assert "is never overwritten" in run["state"]["message"]


def begin(flow, config) -> tuple[threading.Thread, list]:
    """The flow in a thread, as one that runs meanwhile, and what it gives."""
    outcome: list = []

    def work() -> None:
        outcome.append(flow(config, return_state=True))

    from contextvars import copy_context

    thread = threading.Thread(target=copy_context().run, args=(work,))
    thread.start()
    return thread, outcome


def children(name: str) -> list[int]:
    """The processes of this one whose command line has the name."""
    found = []
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{number}/stat") as stat, open(f"/proc/{number}/cmdline") as command:
                parent = int(stat.read().rpartition(")")[2].split()[1])
                if parent == os.getpid() and name in command.read():
                    found.append(int(number))
        except FileNotFoundError:
            continue
    return found


def large_configuration(place, large) -> Configuration:
    execution = {"workers": 1, "checkpoint_seconds": 0.001}
    write_config(place, input={"path": str(large)}, output={"embedding": "out/z.zarr"}, execution=execution)
    return configured(place)


def checkpoints(place) -> list:
    return [path for path in place.glob("out/.*ledger*/**/*") if path.is_file()]


def test_a_process_that_is_killed_is_tried_again_and_goes_on(reporting, place, large):
    thread, outcome = begin(fit_transform, large_configuration(place, large))
    until(lambda: checkpoints(place), "no checkpoint was written")
    (worker,) = children("streamdr.cli.worker")
    os.kill(worker, signal.SIGKILL)
    thread.join()
    report = outcome[0].result()
    assert report.fit.n_rows == CHUNK_ROWS * CHUNKS
    tasks = reporting.tasks(latest(reporting, "fit-transform")["id"], expected=5)
    assert tasks["fit"]["run_count"] == 2 <= RETRIES


def test_the_second_of_two_runs_is_cancelled_and_says_who_is_at_it(reporting, place, large):
    config = large_configuration(place, large)
    thread, outcome = begin(fit_transform, config)
    until(lambda: checkpoints(place), "no checkpoint was written")
    (worker,) = children("streamdr.cli.worker")
    os.kill(worker, signal.SIGSTOP)  # so that the first is under way for as long as the second takes
    second = fit_transform(config, return_state=True)
    os.kill(worker, signal.SIGCONT)
    thread.join()
    assert outcome[0].is_completed()
    assert second.is_cancelled()
    assert re.search(r"is being written by another run \(process \d+ on ", present(second.message))
    assert children("streamdr.cli.worker") == []
