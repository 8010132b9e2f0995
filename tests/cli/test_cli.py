"""The command line, as people and scripts use it: what it prints where, and how it ends."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys

import jsonschema
import numpy as np
import pytest
import yaml
from command_line import SCRIPT, streamdr, succeed, write_config, write_store
from sklearn import decomposition

from streamdr import __version__, load_model
from streamdr.config import schema
from streamdr.store import open_embedding

COMMANDS = ["run", "fit", "transform", "plan", "inspect", "plot", "schema", "completion", "ingest"]
HEAVY = {
    "numpy",
    "scipy",
    "zarr",
    "dask",
    "distributed",
    "sklearn",
    "xarray",
    "pydantic",
    "yaml",
    "rich",
    "matplotlib",
}
ROWS, COLS = 60, 8


@pytest.fixture(scope="module")
def values() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(ROWS, COLS)) @ rng.normal(size=(COLS, COLS)) + 5


@pytest.fixture(scope="module")
def place(tmp_path_factory, values):
    """A directory with a store, a configuration, and the outputs of a run of it."""
    directory = tmp_path_factory.mktemp("place")
    write_store(directory / "x.zarr", values)
    output = {"embedding": "out/z.zarr", "overwrite": True}
    write_config(directory, input={"path": "x.zarr"}, method={"n_components": 3}, output=output)
    succeed("run", "config.yaml", cwd=directory)
    return directory


# ---- getting help


@pytest.mark.parametrize("words", [["--help"], *([command, "--help"] for command in COMMANDS)])
def test_help_imports_none_of_the_heavy_packages(words, tmp_path):
    program = (
        "import sys; from streamdr.cli.app import main\n"
        "try: main()\n"
        "finally: print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "Usage: streamdr" in done.stdout
    assert not HEAVY & set(done.stderr.split())


def test_help_lists_every_command(tmp_path):
    assert all(f"\n  {command} " in succeed("--help", cwd=tmp_path).out for command in COMMANDS)


def test_version(tmp_path):
    assert succeed("--version", cwd=tmp_path).out == f"streamdr {__version__}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fti", "config.yaml"], "Did you mean 'fit'"),
        (["fit"], "CONFIG"),
        (["fit", "config.yaml", "--frehs"], "--fresh"),
        (["ingest", "x.npy", "y.zarr", "--chunk-rows", "many"], "--chunk-rows"),
    ],
)
def test_an_invalid_command_line_ends_with_2(words, said, tmp_path):
    outcome = streamdr(*words, "--json", cwd=tmp_path)
    (message,) = outcome.errors
    assert outcome.code == 2
    assert said in message
    assert "--help" in message
    assert outcome.report == {"error": {"kind": "UsageError", "message": message, "exit_code": 2}}


# ---- results


def test_run_fits_and_transforms(place, values):
    report = succeed("run", "config.yaml", "--fresh", "--json", cwd=place).report
    exact = decomposition.PCA(3).fit(values)
    assert report["n_rows"] == ROWS
    assert report["bytes_read"] == 2 * values.nbytes
    assert report["seconds"] == pytest.approx(report["fit"]["seconds"] + report["transform"]["seconds"])
    assert report["peak_rss"] > 10 * 2**20
    assert (report["model"], report["embedding"]) == ("out/model.zarr", "out/z.zarr")
    np.testing.assert_allclose(
        report["fit"]["summary"]["explained_variance_ratio"], exact.explained_variance_ratio_
    )
    scores, signs = open_embedding(place / "out" / "z.zarr")[:], np.sign(exact.components_.max(axis=1))
    model = load_model(place / "out" / "model.zarr")
    np.testing.assert_array_equal(scores, model.transform(values))
    np.testing.assert_allclose(np.abs(scores), np.abs(exact.transform(values) * signs), atol=1e-9)


@pytest.mark.parametrize("command", ["fit", "transform"])
def test_each_stage_reports_what_it_took_and_wrote(command, place, values):
    report = succeed(command, "config.yaml", "--fresh", "--json", cwd=place).report
    assert (report["n_rows"], report["bytes_read"], report["reused"]) == (ROWS, values.nbytes, False)
    assert report["seconds"] > 0
    assert report["peak_rss"] > 10 * 2**20
    assert (place / report["model"]).is_dir()
    assert command == "fit" or (place / report["embedding"]).is_dir()


def test_what_is_up_to_date_is_not_done_again(place):
    outcome = succeed("run", "config.yaml", "--json", cwd=place)
    assert (outcome.report["bytes_read"], outcome.report["reused"]) == (0, True)
    assert "up to date" in outcome.err


def test_changed_parameters_read_nothing_where_the_statistics_are_known(place, values):
    words = [
        "--set",
        "method.n_components=5",
        "--set",
        "method.whiten=pca",
        "--set",
        "output.model=out/w.zarr",
    ]
    report = succeed("fit", "config.yaml", *words, "--json", cwd=place).report
    assert (report["bytes_read"], report["reused"]) == (0, False)
    assert report["summary"]["n_components"] == 5
    words[-1] = "output.model=elsewhere/w.zarr"
    report = succeed("fit", "config.yaml", *words, "--json", cwd=place).report
    assert report["bytes_read"] == values.nbytes, "another directory has another ledger"


def test_people_see_the_plan_and_progress_on_stderr_and_the_result_on_stdout(place):
    outcome = succeed("run", "config.yaml", "--fresh", "--set", "execution.memory_limit=1GB", cwd=place)
    for said in ("covariance", "worker", "blocks", "limit 954 MiB", "interpreter", "moments: 60 rows"):
        assert said in outcome.err
    for said in ("pca of 60 x 8", "component", "out/model.zarr", "embedding of 60 rows", "out/z.zarr"):
        assert said in outcome.out
    assert len(outcome.out.splitlines()) < 30


def test_transform_needs_a_place_for_the_embedding_and_a_model(tmp_path, values):
    write_store(tmp_path / "x.zarr", values)
    write_config(tmp_path, input={"path": "x.zarr"})
    outcome = streamdr("transform", "config.yaml", cwd=tmp_path)
    assert outcome.code == 2
    assert "config.yaml: output.embedding" in outcome.errors[0]
    outcome = streamdr("transform", "config.yaml", "--set", "output.embedding=z.zarr", cwd=tmp_path)
    assert outcome.code == 1
    assert "out/model.zarr" in outcome.errors[0]
    assert "fit it first" in outcome.errors[0]


# ---- planning


def test_plan_says_what_a_fit_would_do_and_does_nothing(tmp_path):
    write_store(tmp_path / "x.zarr", np.zeros((3000, 20), np.float32), chunks=(1000, 20), fill_value=1)
    write_config(tmp_path, input={"path": "x.zarr"}, execution={"memory_limit": "500MB", "workers": 2})
    report = succeed("plan", "config.yaml", "--json", cwd=tmp_path).report
    assert report["solver"] == "covariance"
    assert report["reason"].startswith("covariance: ")
    assert "krylov" in report["reason"]
    assert (report["n_rows"], report["n_cols"], report["dtype"]) == (3000, 20, "float32")
    assert (report["workers"], report["passes"], report["segments"]) == (2, 1, 1)
    assert (report["block_rows"], report["block_columns"]) == (3000, 20)
    assert report["block_bytes"] == 3000 * 20 * 4
    assert report["peak"] == sum(report["parts"].values()) <= report["limit"] == 500_000_000
    assert (report["fits"], report["up_to_date"]) == (True, False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.yaml", "x.zarr"]
    text = succeed("plan", "config.yaml", cwd=tmp_path).out
    assert "limit 477 MiB" in text
    assert "3,000 x 20" in text


def test_plan_knows_when_there_is_nothing_to_do(place):
    assert succeed("plan", "config.yaml", "--json", cwd=place).report["up_to_date"] is True


def test_plan_predicts_the_time_by_the_speeds_of_this_machine(tmp_path):
    write_store(tmp_path / "x.zarr", np.zeros((3000, 20), np.float32), chunks=(1000, 20), fill_value=1)
    write_config(tmp_path, input={"path": "x.zarr"})
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    first = succeed("plan", "config.yaml", "--calibrate", cwd=tmp_path, environment=cache)
    assert "measuring the speeds of this machine" in first.err
    assert "by the speeds of this machine, which were measured just now" in first.out
    report = succeed("plan", "config.yaml", "--json", cwd=tmp_path, environment=cache).report
    assert report["speeds"] == report["predicted"]["speeds"] == "measured earlier"
    assert 0 < report["least_seconds"] <= report["seconds"] <= report["most_seconds"]
    assert report["predicted"]["seconds"] == pytest.approx(report["seconds"])
    assert report["predicted"]["problem"] == ""
    assert len(list((tmp_path / "cache" / "streamdr").iterdir())) == 1


def test_plan_tells_why_speeds_cannot_be_kept(tmp_path):
    write_store(tmp_path / "x.zarr", np.zeros((300, 20), np.float32), chunks=(100, 20), fill_value=1)
    write_config(tmp_path, input={"path": "x.zarr"})
    (tmp_path / "cache").write_text("a file")
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    text = succeed("plan", "config.yaml", cwd=tmp_path, environment=cache).out
    assert "the speeds could not be kept, and are measured each time" in text


# ---- looking


def test_inspect_shows_a_store_a_model_and_an_embedding(place, values):
    for path, said in {
        "x.zarr": ["60 x 8 float64", "10 x 8", "zstd", "none of 6 chunks", "60 samples x 8 features"],
        "out/model.zarr": ["streamdr model", "pca", "n_components=3", "8 features to 3", "x.zarr"],
        "out/z.zarr": ["streamdr embedding", "60 x 3 float64", "out/model.zarr"],
    }.items():
        text = succeed("inspect", path, cwd=place).out
        assert [words for words in said if words not in text] == []
    report = succeed("inspect", "out/model.zarr", "--json", cwd=place).report
    exact = decomposition.PCA(3).fit(values)
    assert (report["kind"], report["method"], report["n_rows"]) == ("model", "pca", ROWS)
    np.testing.assert_allclose(report["summary"]["explained_variance_ratio"], exact.explained_variance_ratio_)


def test_schema_is_what_editors_check_configurations_by(place):
    printed = succeed("schema", cwd=place).out
    assert json.loads(printed) == succeed("schema", "--json", cwd=place).report == schema()
    jsonschema.validate(yaml.safe_load((place / "config.yaml").read_text()), json.loads(printed))


# ---- bringing data in


def test_ingest_makes_a_store_that_can_be_fitted(tmp_path):
    lines = ["a;b;c", *(f"{i};{i * i % 7};{-i}" for i in range(50))]
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    words = ["--columns", "c,b", "--dtype", "float32", "--chunk-rows", "20", "--delimiter", ";", "--header"]
    outcome = succeed("ingest", "table.csv", "x.zarr", *words, "--json", cwd=tmp_path)
    report = outcome.report
    assert (report["command"], report["path"], report["dtype"]) == ("ingest", "x.zarr", "float32")
    assert (report["n_rows"], report["n_cols"], report["chunks"]) == (50, 2, [20, 2])
    assert "Ingesting table.csv" in outcome.err
    write_config(tmp_path, input={"path": "x.zarr"})
    assert succeed("fit", "config.yaml", "--json", cwd=tmp_path).report["n_rows"] == 50
    assert "ingested from table.csv" in succeed("inspect", "x.zarr", cwd=tmp_path).out


def test_ingest_refuses_what_it_cannot_read_and_what_exists(tmp_path):
    np.save(tmp_path / "x.npy", np.eye(4))
    assert "x.zarr" in succeed("ingest", "x.npy", "x.zarr", cwd=tmp_path).out
    exists = streamdr("ingest", "x.npy", "x.zarr", cwd=tmp_path)
    assert (exists.code, "x.zarr: exists" in exists.errors[0]) == (1, True)
    succeed("ingest", "x.npy", "x.zarr", "--overwrite", cwd=tmp_path)
    meaningless = streamdr("ingest", "x.npy", "y.zarr", "--dataset", "d", cwd=tmp_path)
    assert (meaningless.code, "dataset" in meaningless.errors[0]) == (2, True)
    absent = streamdr("ingest", "y.npy", "y.zarr", "--json", cwd=tmp_path)
    assert absent.code == absent.report["error"]["exit_code"] == 2
    assert absent.report["error"]["message"] == absent.errors[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.npy", "x.zarr"]


# ---- when things go wrong


def test_every_problem_of_a_configuration_is_reported_with_its_position(place):
    write = place / "wrong.yaml"
    write.write_text("input: {path: x.zarr}\nmethod:\n  name: pca\n  n_componets: 3\n  whiten: zac\n")
    outcome = streamdr("run", "wrong.yaml", "--json", cwd=place)
    assert outcome.code == 2
    assert outcome.errors == [
        "wrong.yaml:1:1: output.model: required key is missing",
        "wrong.yaml:4:3: method.n_componets: unknown key; did you mean 'n_components'?",
        "wrong.yaml:5:11: method.whiten: expected 'pca', 'zca', true or false or null, not 'zac'; "
        "did you mean 'zca'?",
    ]
    assert outcome.report["error"]["kind"] == "ConfigError"
    assert outcome.report["error"]["message"].splitlines() == outcome.errors


@pytest.mark.parametrize(
    ("words", "where"),
    [([], "config.yaml:5:17"), (["--set", "method.n_components=9"], "--set method.n_components")],
)
def test_a_parameter_that_does_not_suit_the_data_is_reported_with_its_line(words, where, tmp_path, values):
    write_store(tmp_path / "x.zarr", values)
    write_config(tmp_path, input={"path": "x.zarr"}, method={"n_components": 10})
    for command in ("fit", "plan"):
        outcome = streamdr(command, "config.yaml", *words, cwd=tmp_path)
        assert outcome.code == 2
        assert outcome.errors[0].startswith(f"{where}: method.n_components: ")
        assert "60 x 8" in outcome.errors[0]


def test_paths_may_begin_at_home_or_in_a_variable(tmp_path, values):
    write_store(tmp_path / "home" / "x.zarr", values)
    write_config(tmp_path, input={"path": "~/x.zarr"}, output={"model": "${ROOM}/$NAME.zarr"})
    variables = {"HOME": str(tmp_path / "home"), "ROOM": "out", "NAME": "m"}
    done = streamdr("fit", "config.yaml", "--json", cwd=tmp_path, environment=variables)
    assert (done.code, done.report["model"]) == (0, "out/m.zarr")
    unset = streamdr("fit", "config.yaml", cwd=tmp_path)
    assert (unset.code, len(unset.errors)) == (2, 1)
    assert unset.errors[0].startswith("config.yaml:7:10: output.model: '${ROOM}/$NAME.zarr': ")
    assert "the environment variable ROOM is not set; set it" in unset.errors[0]


def test_the_package_runs_as_a_module_and_help_has_a_short_name(tmp_path):
    words = [[sys.executable, "-m", "streamdr", "-h"], [SCRIPT, "--help"], [SCRIPT]]
    said = [subprocess.run(one, capture_output=True, text=True, check=True).stdout for one in words]
    assert said[0] == said[1] == said[2]
    assert succeed("plan", "-h", cwd=tmp_path).out == succeed("plan", "--help", cwd=tmp_path).out


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["pl"], {"plan", "plot"}),
        (["--v"], {"--version"}),
        (["fit", "--f"], {"--fresh"}),
        (["plot", "m.zarr", "--emb"], {"--embedding"}),
    ],
)
def test_bash_completes_commands_and_options(typed, offered, tmp_path):
    (tmp_path / "completion.sh").write_text(succeed("completion", "bash", cwd=tmp_path).out)
    words = " ".join(map(shlex.quote, ["streamdr", *typed]))
    state = f"COMP_WORDS=({words}); COMP_CWORD={len(typed)}"
    asked = f"source ./completion.sh; {state}; _streamdr; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", asked], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_every_command(shell, tmp_path):
    script = succeed("completion", shell, cwd=tmp_path).out
    assert [command for command in COMMANDS if command not in script] == []


def test_a_traceback_is_shown_only_when_asked_for(place):
    words = ["inspect", "nowhere.zarr"]
    assert "Traceback" not in streamdr(*words, cwd=place).err
    asked = streamdr(*words, cwd=place, environment={"STREAMDR_TRACEBACK": "1"})
    assert "Traceback" in asked.err
    assert "Traceback" in streamdr("--traceback", *words, cwd=place).err
    assert asked.code == 2


def test_an_unexpected_error_is_one_line_and_ends_with_1(tmp_path):
    broken = (
        "from streamdr.cli import app; from streamdr.workflow import inspection; "
        "inspection.inspect = lambda path: 1 / 0; app.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", broken, "inspect", "x", "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == (
        "error: unexpected ZeroDivisionError: division by zero; "
        "run with STREAMDR_TRACEBACK=1 to see where it came from\n"
    )
    assert json.loads(done.stdout)["error"]["kind"] == "ZeroDivisionError"


@pytest.mark.parametrize(
    "words", ["inspect x.zarr --json", "run config.yaml", "-h", "run --help", "--version", "completion bash"]
)
def test_a_closed_pipe_is_not_an_error(words, place):
    piped = f"{{ {shlex.quote(SCRIPT)} {words}; echo $? >&2; }} | true"
    done = subprocess.run(["bash", "-c", piped], cwd=place, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "0", "what was asked for is done"
    assert "error" not in done.stderr.lower()
    assert "Traceback" not in done.stderr


def test_a_result_that_cannot_be_written_is_an_error(place):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [SCRIPT, "inspect", "x.zarr"],
            cwd=place,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "error: standard output: No space left on device\n")


def test_a_run_continues_when_the_reader_of_its_messages_is_gone(place):
    command = f"{shlex.quote(SCRIPT)} fit config.yaml --fresh --json"
    done = subprocess.run(
        ["bash", "-c", f"{command} 2> >(true)"], cwd=place, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["n_rows"] == ROWS
