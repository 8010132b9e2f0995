"""What `--json` prints, key by key and in order: programs rely on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from command_line import succeed, write_config, write_store

PLAN = """
    command input n_rows n_cols n_left_out dtype solver reason workers counting_passes passes seconds
    least_seconds most_seconds speeds if_values_are_missing axis block_rows block_columns block_bytes segments
    peak limit parts fits transforms up_to_date stages predicted
"""
STAGE = "name state reason bytes_to_read least_bytes_to_read in_the_way"
FIT = "command n_rows n_cols n_left_out method summary bytes_read seconds peak_rss model reused because"
FITTED = f"{FIT} workers planned_peak memory_limit reason"
TRANSFORM = "command n_rows bytes_read seconds peak_rss model embedding reused outputs"
EMBEDDED = (
    "command n_rows n_outputs rows_written because bytes_read seconds peak_rss model embedding reused outputs"
)
EMBEDDED_NOW = EMBEDDED.replace("because", "because model_moved")
ROWS = "title path n_rows n_outputs rows_written bytes_read seconds peak_rss reused because"
RUN = "command n_rows bytes_read seconds peak_rss model embedding reused fit"
VERIFY = """
    command n_rows sampled_rows bytes_read seconds model model_digest embedding outputs
    reconstruction_error checks
"""
COMPARE = "command input n_rows n_cols sample rows tables bytes_read reused"
COMPARED = """
    name method parameters n_outputs trustworthiness stress accuracy seconds bytes_read peak_rss model
    embedding reused
"""
MODEL = "kind path method parameters n_features n_left_out n_outputs summary input n_rows created version"
FOUND_ROWS = "kind path n_rows n_outputs shape dims dtype chunks stored_bytes model method created version"
STORE = "kind path origin arrays"
ARRAY = """
    name problem stale_copy shape dtype bytes zarr_format dims chunks shards codecs stored_bytes missing
    n_rows n_cols blocks
"""
INGEST = "command path n_rows n_cols dtype chunks bytes_written seconds appended_rows labels left_out"
SUMMARIES = {
    "pca": "solver n_components rank explained_variance_ratio reconstruction_error total_variance",
    "ppca": """
        solver n_components explained_variance_ratio noise_variance total_variance log_likelihood n_iter
        converged missing notes
    """,
    "kernel_pca": """
        solver n_components explained_variance_ratio total_variance kernel n_landmarks captured_trace
        trace_error notes
    """,
    "lda": "solver n_components explained_variance_ratio n_classes total_variance notes",
    "select_f_score": "task kept statistic columns",
    "select_forward": "task kept statistic columns learner cross_validated",
    "classical_mds": "solver n_components stress goodness_of_fit explained_squares",
}


def has(report: dict[str, Any], keys: str) -> bool:
    return list(report) == keys.split()


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """Rows with labels, and a configuration that asks for two outputs of them."""
    place = tmp_path_factory.mktemp("keys")
    rng = np.random.default_rng(0)
    write_store(place / "x.zarr", rng.normal(size=(200, 5)) * [9, 7, 5, 3, 1])
    zarr.create_array(place / "y.zarr", data=rng.integers(0, 3, size=200), chunks=(50,))
    output = {"embedding": "out/z.zarr", "denoised": "out/d.zarr"}
    write_config(place, input={"path": "x.zarr"}, output=output)
    return place


@pytest.fixture(scope="module")
def printed(place):
    """What a command prints, once for all tests that look at it."""
    known: dict[tuple[str, ...], dict[str, Any]] = {}

    def ask(*words: str) -> dict[str, Any]:
        if words not in known:
            known[words] = succeed(*words, "--json", cwd=place).report
        return known[words]

    return ask


@pytest.fixture(scope="module")
def planned(printed):
    return printed("plan", "config.yaml")


@pytest.fixture(scope="module")
def ran(planned, printed):
    return printed("run", "config.yaml")


def test_plan(planned):
    assert has(planned, PLAN)
    assert all(has(stage, STAGE) for stage in planned["stages"])
    assert [stage["name"] for stage in planned["stages"]] == ["fit", "transform", "denoised"]
    assert list(planned["transforms"]) == ["embedding", "denoised"]
    assert all(has(each, "title peak workers axis seconds") for each in planned["transforms"].values())


def test_what_a_plan_says_of_missing_values(ran, printed):
    plan = printed("plan", "config.yaml", "--set", "method.name=ppca", "--set", "output.denoised=null")
    assert has(plan["if_values_are_missing"], "solver passes seconds")


def test_run(ran):
    assert has(ran, f"{RUN} transform")
    assert has(ran["fit"], FITTED)
    assert has(ran["transform"], EMBEDDED_NOW)
    assert list(ran["transform"]["outputs"]) == ["embedding", "denoised"]
    assert all(has(each, f"{ROWS} model_moved") for each in ran["transform"]["outputs"].values())


def test_what_is_up_to_date(ran, printed):
    fit, transform = printed("fit", "config.yaml"), printed("transform", "config.yaml")
    assert has(fit, FIT)
    assert has(transform, EMBEDDED)
    assert all(has(each, ROWS) for each in transform["outputs"].values())


def test_a_run_without_an_embedding(ran, printed):
    alone = printed("run", "config.yaml", "--set", "output={model: out/model.zarr, denoised: out/d.zarr}")
    assert has(alone["transform"], TRANSFORM)
    assert alone["embedding"] is None
    assert has(printed("run", "config.yaml", "--set", "output={model: out/model.zarr}"), RUN)


def test_reprocess(ran, printed):
    report = printed("reprocess", "config.yaml")
    assert has(report, "command bytes_read seconds peak_rss reused runs")
    assert all(has(run, f"config {RUN} transform") for run in report["runs"])


def test_verify(ran, printed):
    report = printed("verify", "config.yaml")
    assert has(report, VERIFY)
    assert report["outputs"] == {"embedding": "out/z.zarr", "denoised": "out/d.zarr"}


def test_compare(place, printed):
    methods = [{"name": "pca", "n_components": 2}]
    given = {"input": {"path": "x.zarr", "labels": "y.zarr"}, "methods": methods}
    (place / "all.yaml").write_text(json.dumps({**given, "output": {"folder": "all", "table": ["all/a.md"]}}))
    report = printed("compare", "all.yaml")
    assert has(report, COMPARE)
    assert has(report["sample"], "rows accuracy")
    assert all(has(row, COMPARED) for row in report["rows"])


def test_inspect(place, ran, printed):
    assert has(printed("inspect", "out/model.zarr"), MODEL)
    assert has(printed("inspect", "out/z.zarr"), FOUND_ROWS)
    np.save(place / "x.npy", np.ones((4, 3)))
    for path, array in {"x.zarr": ARRAY, "x.npy": ARRAY.replace("stale_copy ", "")}.items():
        report = printed("inspect", path)
        assert has(report, STORE)
        (found,) = report["arrays"]
        assert has(found, array)
        assert all(has(blocks, "count lines bytes") for blocks in found["blocks"].values())
    assert has(printed("inspect", "x.zarr")["arrays"][0]["missing"], "count total first")


def test_inspect_of_what_is_no_matrix(place, printed):
    (place / "t.csv").write_text("a,b,kind\n" + "".join(f"{n},{n * n},k{n % 2}\n" for n in range(20)))
    assert has(printed("ingest", "t.csv", "t.zarr", "--labels", "kind"), INGEST)
    group = zarr.open_group(place / "t.zarr", mode="r+", use_consolidated=False)
    group.create_array("empty", shape=(0, 3), dtype="f8")
    arrays = {array["name"]: array for array in printed("inspect", "t.zarr")["arrays"]}
    assert has(arrays["labels"], "name problem labels")
    assert has(arrays["empty"], "name problem")
    assert has(arrays["X"], ARRAY)


def test_plot(ran, printed):
    assert has(printed("plot", "out/model.zarr", "--out", "p.png"), "command kind path bytes model method")


@pytest.mark.parametrize("example", [{"missing": 0.1}, {"noise": 0.3}], ids=str)
def test_a_run_on_an_example_of_which_the_truth_is_known(example, place, printed):
    (kind,) = example
    method, output, key, amount = {
        "missing": ("ppca", "imputed", "filling", "holes"),
        "noise": ("pca", "denoised", "denoising", "noise"),
    }[kind]
    config = {
        "input": {"path": f"{kind}.zarr", "example": {"dataset": "iris", **example}},
        "method": {"name": method, "n_components": 2},
        "output": {"model": f"out/{kind}/m.zarr", output: f"out/{kind}/rows.zarr"},
    }
    (place / f"{kind}.yaml").write_text(json.dumps(config))
    report = printed("run", f"{kind}.yaml")["transform"]["outputs"][output]
    assert has(report, f"{ROWS} model_moved {key}")
    assert has(report[key], f"dataset {amount} rms_error")


@pytest.mark.parametrize("name", SUMMARIES)
def test_what_a_fit_says_of_a_model(name, printed):
    labels = "null" if name in ("pca", "ppca", "kernel_pca", "classical_mds") else "y.zarr"
    sets = {
        "input": f"{{path: x.zarr, labels: {labels}}}",
        "method": f"{{name: {name}}}",
        "output": f"{{model: out/{name}.zarr}}",
    }
    words = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
    assert has(printed("fit", "config.yaml", *words)["summary"], SUMMARIES[name])
