"""Runs of chains: what is read again and why, outputs of steps, selected rows, and what is refused."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray as xr
import zarr
from narrowing import array_in, checked, present
from nightly import Heard
from sklearn.feature_selection import f_classif

from streamdr import store
from streamdr.config import parse
from streamdr.errors import ConfigError, DataError, ParameterError, StreamdrError
from streamdr.methods.chain import ChainModel
from streamdr.store import SavedModel
from streamdr.workflow import pipeline, report_text
from streamdr.workflow.inspection import inspect
from streamdr.workflow.plotting import PlotRequest, draw
from streamdr.workflow.verification import verify

ROWS, MORE, COLUMNS = 400, 480, 6
ROW_BYTES = 4 * COLUMNS
SCALED: list[dict[str, Any]] = [
    {"name": "normalize_total", "target_sum": 100.0},
    {"name": "log1p"},
    {"name": "standardise"},
]
CHAIN: list[dict[str, Any]] = [*SCALED, {"name": "pca", "n_components": 2, "solver": "covariance"}]


def counts(n_rows: int = MORE) -> np.ndarray:
    """Counts of genes in cells, the first rows of a fixed matrix."""
    rng = np.random.default_rng(0)
    means = rng.gamma(2.0, 2.0, (1, COLUMNS)) * rng.gamma(3.0, 1.0, (MORE, 1))
    return (rng.poisson(means) + 1)[:n_rows].astype(np.float32)


def quality(n_rows: int = MORE) -> np.ndarray:
    """A number for each cell, by which cells are selected."""
    return np.random.default_rng(1).integers(0, 10, MORE)[:n_rows]


def scaled(rows: np.ndarray) -> np.ndarray:
    """What the steps before PCA make of rows, by numpy."""
    rows = rows.astype(np.float64)
    logged = np.log1p(rows / rows.sum(axis=1, keepdims=True) * 100)
    return (logged - logged.mean(axis=0)) / logged.std(axis=0)


def scores(rows: np.ndarray) -> np.ndarray:
    """The scores of these rows on two components, by numpy, up to sign."""
    left, values, _ = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    return (left * values)[:, :2]


def close(found: np.ndarray, expected: np.ndarray, signs: bool = False) -> None:
    """Compare values of float32 rows; of components, up to their signs."""
    one, other = (np.abs(each) if signs else each for each in (np.asarray(found), expected))
    np.testing.assert_allclose(one, other, rtol=0, atol=2e-5 * np.abs(other).max())


class Lab:
    """A directory with cells, and runs over them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.input: dict[str, Any] = {"path": self.path("x.zarr"), "variable": "x"}
        self.method: list[dict[str, Any]] = [dict(step) for step in CHAIN]
        self.output: dict[str, Any] = {"embedding": self.path("z.zarr")}
        self.execution: dict[str, Any] = {"workers": 1}

    def path(self, name: str) -> str:
        return str(self.root / name)

    def write(self, rows: np.ndarray) -> None:
        n_rows = len(rows)
        cells = xr.Dataset(
            {"x": (("cell", "gene"), rows)},
            coords={
                "quality": ("cell", quality(n_rows)),
                "gene": [f"g{number}" for number in range(rows.shape[1])],
            },
        )
        chunks = {"x": {"chunks": (50, rows.shape[1])}, "quality": {"chunks": (50,)}}
        cells.to_zarr(self.path("x.zarr"), mode="w", encoding=chunks, consolidated=False)

    def grow(self) -> None:
        group = zarr.open_group(self.path("x.zarr"), mode="r+")
        array_in(group, "x").append(counts()[ROWS:])
        array_in(group, "quality").append(quality()[ROWS:])

    def context(self, **given: Any) -> pipeline.RunContext:
        sections = {
            "input": self.input,
            "method": self.method,
            "output": {"model": self.path("m.zarr"), **self.output},
            "execution": self.execution,
        }
        return pipeline.RunContext(parse(json.dumps(sections)), Heard(), threading.Event(), **given)

    def run(self, **given: Any) -> Any:
        return pipeline.run_all(self.context(**given))

    def plan(self) -> dict[str, Any]:
        """The stages of the plan by name, and the steps of the fit below `fit`."""
        stages = pipeline.plan(self.context()).stages
        return {stage.name: stage for stage in stages} | {step.name: step for step in stages[0].steps}

    def rows(self, name: str) -> np.ndarray:
        return store.open_rows(self.path(name), "embedding")[...]

    @property
    def saved(self) -> SavedModel:
        return store.load_model(self.path("m.zarr"))


@pytest.fixture
def lab(tmp_path) -> Lab:
    made = Lab(tmp_path)
    made.write(counts(ROWS))
    return made


# What a run gives


def test_a_run_gives_what_numpy_gives_step_by_step(lab):
    lab.output["steps"] = {"log1p": lab.path("log.zarr"), "standardise": lab.path("std.zarr")}
    report = lab.run()
    expected = scaled(counts(ROWS))
    close(lab.rows("std.zarr"), expected)
    close(lab.rows("z.zarr"), scores(expected), signs=True)
    close(lab.rows("log.zarr"), np.log1p(counts(ROWS) / counts(ROWS).sum(axis=1, keepdims=True) * 100))
    assert report.fit.bytes_read == 2 * ROWS * ROW_BYTES, "one pass for each step that learns"
    assert report.transform.outputs.keys() == {"embedding", "steps.log1p", "steps.standardise"}
    checks = verify(lab.context()).checks
    assert {"steps.log1p", "sample of steps.log1p", "steps.standardise", "scores"} <= checks.keys()


def test_rows_of_a_step_that_keeps_the_features_have_their_names(lab):
    lab.output["steps"] = {"log1p": lab.path("log.zarr")}
    lab.run()
    opened = xr.open_zarr(lab.path("log.zarr"), consolidated=False)
    assert opened["embedding"].dims == ("cell", "gene")
    assert opened["gene"].values.tolist() == [f"g{number}" for number in range(COLUMNS)]
    np.testing.assert_array_equal(opened["quality"].values, quality(ROWS))
    assert report_text.inspected(inspect(Path(lab.path("log.zarr")))).count("log1p") == 1


def test_a_step_may_be_the_only_output_of_rows(lab):
    lab.output = {"steps": {"standardise": lab.path("std.zarr")}}
    lab.run()
    close(lab.rows("std.zarr"), scaled(counts(ROWS)))
    assert lab.run().reused


def test_reports_and_pictures_show_the_steps_and_the_last_model(lab, tmp_path):
    text = report_text.fitted(lab.run().fit)
    assert "normalize_total -> log1p -> standardise -> pca" in text
    found = inspect(Path(lab.path("m.zarr")))
    assert "step 1" in report_text.inspected(found)
    assert "normalize_total: target_sum=100.0" in report_text.inspected(found)
    json.dumps(found.to_json())
    assert lab.saved.last.feature_names == tuple(f"g{number}" for number in range(COLUMNS))
    for kind in ("explained_variance", "maps"):
        assert draw(PlotRequest(Path(lab.path("m.zarr")), tmp_path / f"{kind}.png", kind)).bytes > 0
    member = inspect(Path(lab.path("m.zarr/log1p")))
    assert "None" not in report_text.inspected(member)


def test_a_plot_of_a_step_is_drawn_of_its_model_in_the_group_of_the_chain(lab, tmp_path):
    lab.method[2:3] = [{"name": "select_variance", "as": "chosen_ones", "n_features": 3}]
    lab.output["steps"] = {"chosen_ones": lab.path("chosen.zarr")}
    text = report_text.ran(lab.run())
    assert "steps.chosen_ones" in text
    model, picture = Path(lab.path("m.zarr")), tmp_path / "chosen.png"
    with pytest.raises(ConfigError, match=r"; give the model of a step: .*m.zarr/chosen_ones$"):
        draw(PlotRequest(model, picture, "selected_variance"))
    assert draw(PlotRequest(model / "chosen_ones", picture, "selected_variance")).bytes > 0


def test_the_plan_names_the_routes_that_there_are_to_choose_from(lab):
    assert pipeline.plan(lab.context()).fit.reason == "covariance: the only way for these parameters"
    lab.method[-1] = {"name": "pca", "n_components": 2}
    reason = pipeline.plan(lab.context()).fit.reason
    assert reason.startswith("covariance: ")
    assert "; krylov takes" in reason


# What is read again, and why


def test_changing_the_last_step_reads_nothing_that_was_read(lab):
    lab.output = {"steps": {"standardise": lab.path("std.zarr")}}
    lab.run()
    lab.method[-1]["n_components"] = 3
    plan = lab.plan()
    assert [plan[name].state for name in ("normalize_total", "log1p", "standardise", "pca")] == [
        *["fresh"] * 3,
        "stale",
    ]
    assert plan["pca"].reason == plan["fit"].reason == "pca.n_components was 2 and is 3"
    assert (plan["pca"].bytes_to_read, plan["fit"].bytes_to_read) == (0, 0)
    assert plan["steps.standardise"].state == "fresh"
    report = lab.run(replace=True)
    assert report.bytes_read == 0
    assert report.transform.outputs["steps.standardise"].reused


def test_another_last_method_reads_its_own_passes_only(lab):
    lab.run()
    lab.method[-1] = {"name": "pca", "n_components": 2, "solver": "gram"}
    plan = lab.plan()
    assert plan["standardise"].bytes_to_read == 0
    assert plan["pca"].least_bytes_to_read == 2 * ROWS * ROW_BYTES
    assert lab.run(replace=True).fit.bytes_read == 2 * ROWS * ROW_BYTES


def test_a_step_that_changes_makes_those_after_it_stale(lab):
    lab.output["steps"] = {"log1p": lab.path("log.zarr"), "standardise": lab.path("std.zarr")}
    lab.run()
    lab.method[2]["max_value"] = 2.0
    plan = lab.plan()
    assert plan["standardise"].reason == "standardise.max_value was None and is 2.0"
    assert plan["standardise"].bytes_to_read == 0, "the same means and variances"
    assert plan["pca"].reason == "the steps before it have changed"
    assert plan["pca"].bytes_to_read == ROWS * ROW_BYTES
    assert plan["steps.log1p"].state == "fresh"
    assert plan["steps.standardise"].state == "stale"
    report = lab.run(replace=True)
    assert report.fit.bytes_read == ROWS * ROW_BYTES
    close(lab.rows("std.zarr"), np.clip(scaled(counts(ROWS)), -2, 2))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda steps: steps.insert(2, {"name": "clip", "max": 3.0}), "clip was added"),
        (lambda steps: steps.pop(1), "log1p was removed"),
        (lambda steps: steps[0].update(target_sum=50.0), "normalize_total.target_sum was 100.0 and is 50.0"),
        (lambda steps: steps[1].update({"as": "log"}), "log was added"),
        (
            lambda steps: steps.__setitem__(1, {"name": "unit_norm", "as": "log1p"}),
            "log1p was log1p and is unit_norm",
        ),
        (
            lambda steps: steps.__setitem__(slice(0, 2), steps[1::-1]),
            "the steps were normalize_total -> log1p -> standardise -> pca "
            "and are log1p -> normalize_total -> standardise -> pca",
        ),
        (
            lambda steps: steps.insert(0, {"name": "select_rows", "where": {"quality": "> 2"}}),
            "select_rows.where was None and is {'quality': '> 2'}",
        ),
    ],
)
def test_the_reason_names_the_step(lab, change, reason):
    lab.output = {}
    lab.run()
    change(lab.method)
    assert lab.plan()["fit"].reason == reason


def test_a_single_method_and_a_chain_are_told_apart(lab):
    lab.output = {}
    lab.run()
    lab.method = {"name": "pca", "n_components": 2}
    assert lab.plan()["fit"].reason == (
        "the method was normalize_total -> log1p -> standardise -> pca and is pca"
    )
    assert lab.plan()["fit"].steps == ()


def test_the_plan_of_a_chain_is_text_and_json(lab):
    report = pipeline.plan(lab.context())
    text = report_text.planned(report)
    assert "  standardise" in text
    assert "reads 9.38 KiB" in text
    steps = report.to_json()["stages"][0]["steps"]
    assert [step["name"] for step in steps] == ["normalize_total", "log1p", "standardise", "pca"]
    json.dumps(report.to_json())
    assert "steps" not in report.to_json()["stages"][1]


def test_what_a_step_learned_is_read_again_if_the_ledger_is_gone(lab):
    lab.execution["ledger"] = lab.path("ledger")
    lab.run()
    lab.method[-1]["n_components"] = 3
    lab.execution["ledger"] = lab.path("another")
    plan = lab.plan()
    assert plan["standardise"].reason == "what it learned is no longer in the ledger"
    assert plan["log1p"].state == "fresh"


def test_appended_rows_alone_are_read_if_the_steps_before_learn_nothing(lab):
    lab.method = [*CHAIN[:2], CHAIN[3]]
    lab.output = {"steps": {"log1p": lab.path("log.zarr")}}
    lab.run()
    lab.grow()
    assert lab.plan()["fit"].reason == "80 rows were appended to the input"
    report = lab.run()
    assert report.fit.bytes_read < 1.5 * (MORE - ROWS) * ROW_BYTES
    written = report.transform.outputs["steps.log1p"]
    assert written.rows_written == MORE - ROWS
    rows = counts().astype(np.float64)
    close(lab.rows("log.zarr"), np.log1p(rows / rows.sum(axis=1, keepdims=True) * 100))
    grown = lab.saved.model
    pipeline.fit(lab.context(fresh=True))
    np.testing.assert_array_equal(lab.saved.last.model.components, checked(ChainModel, grown).last.components)
    verify(lab.context())


def test_an_iterative_last_step_goes_on_from_its_model_if_those_before_it_are_the_same(lab):
    lab.method = [{"name": "log1p"}, {"name": "ppca", "n_components": 2, "method": "em", "tol": 1e-8}]
    lab.output = {}
    first = lab.run().fit
    lab.grow()
    again = lab.run().fit
    assert again.bytes_read < first.bytes_read / 2


# Which rows are read


def select(**given: Any) -> dict[str, Any]:
    return {"name": "select_rows", **given}


def test_selected_rows_alone_are_fitted_and_written(lab):
    keep = quality(ROWS) >= 3
    zarr.create_array(lab.path("good.zarr"), data=(np.arange(ROWS) % 5 > 0), chunks=(ROWS,))
    keep &= np.arange(ROWS) % 5 > 0
    lab.method.insert(0, select(where={"quality": ">= 3"}, mask=lab.path("good.zarr")))
    lab.output["steps"] = {"standardise": lab.path("std.zarr")}
    report = lab.run()
    assert report.fit.n_rows == keep.sum()
    expected = scaled(counts(ROWS)[keep])
    close(lab.rows("std.zarr"), expected)
    close(lab.rows("z.zarr"), scores(expected), signs=True)
    assert lab.run().reused
    verify(lab.context())
    opened = xr.open_zarr(lab.path("std.zarr"), consolidated=False)
    np.testing.assert_array_equal(opened["quality"].values, quality(ROWS)[keep])


def test_selected_rows_are_appended(lab):
    lab.method = [select(where={"quality": ">= 3"}), *CHAIN[:2], CHAIN[3]]
    lab.run()
    lab.grow()
    report = lab.run()
    keep = quality() >= 3
    assert report.fit.n_rows == keep.sum()
    assert report.fit.bytes_read < MORE * ROW_BYTES / 2
    grown = lab.saved.last.model
    pipeline.fit(lab.context(fresh=True))
    np.testing.assert_array_equal(lab.saved.last.model.components, grown.components)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"where": {"qualty": 1}}, "method.0.where: .*no coordinate .* 'qualty' .*'quality'"),
        ({"where": {"quality": ">= many"}}, "method.0.where: .*'many' is not a number"),
        ({"where": {"quality": "> 99"}}, "none of the 400 rows satisfies quality > 99"),
        ({"mask": "nowhere.zarr"}, "method.0.mask: .*no such file"),
    ],
)
def test_rows_that_cannot_be_selected_are_an_error_at_their_line(lab, given, message):
    lab.method.insert(0, select(**given))
    with pytest.raises(StreamdrError, match=message):
        lab.run()
    assert not Path(lab.path("m.zarr")).exists()


# What is refused


def refused(lab: Lab, kind: type[StreamdrError], message: str) -> None:
    """The run is refused, by one error, and nothing of it is left."""
    with pytest.raises(kind, match=message) as caught:
        lab.run()
    assert "\n" not in str(caught.value)
    left = {path.name for path in lab.root.iterdir()} - {"x.zarr", ".streamdr-ledger"}
    assert not left, "half of an output"


def test_negative_counts_before_a_logarithm_name_the_file_the_row_and_the_step(lab):
    rows = counts(ROWS)
    rows[123, 2] = -1
    lab.write(rows)
    lab.method = [CHAIN[1], CHAIN[3]]
    refused(lab, DataError, r"x.zarr/x: row 123: log1p: the value -1 in column 2 \('g2'\) is negative")


def test_errors_name_the_step_by_its_own_name_and_the_column_of_the_data(lab):
    rows = counts(ROWS)
    rows[123, 4] = -3
    lab.write(rows)
    first, last = {"name": "log1p", "as": "first"}, {"name": "log1p", "as": "second"}
    for before in ([], [{"name": "clip", "max": 1e3}], [{"name": "select_columns", "columns": ["g1", "g4"]}]):
        lab.method = [*before, first, last, CHAIN[3]]
        refused(lab, DataError, r"x.zarr/x: row 123: first: the value -3 in column 4 \('g4'\) is negative")
    lab.method = [{"name": "pca", "n_components": 3}, first, CHAIN[3]]
    refused(
        lab, DataError, r"x.zarr/x: row \d+: first: the value -[\d.]+ in column \d at this step is negative"
    )


def test_errors_of_several_files_name_the_one_with_the_row(lab):
    rows = counts(ROWS)
    rows[123, 2] = -1
    for number, span in enumerate((slice(0, 100), slice(100, ROWS))):
        zarr.create_array(lab.path(f"part{number}.zarr"), data=rows[span], chunks=(50, COLUMNS))
    lab.input = {"path": lab.path("part*.zarr")}
    lab.method = [{"name": "clip", "max": 1e3}, CHAIN[1], CHAIN[3]]
    with pytest.raises(DataError, match=r"/part1.zarr: row 23: log1p: the value -1 in column 2 is negative"):
        lab.run()
    with pytest.raises(DataError, match=r"/part1.zarr: row 23: log1p: the value -1 in column 2 is negative"):
        lab.method = CHAIN[1]
        lab.run()


def test_values_that_are_missing_are_refused_by_a_step_with_a_name(lab):
    rows = counts(ROWS)
    rows[77, 3] = np.nan
    lab.write(rows)
    lab.method = [{"name": "clip", "max": 1e3}, {"name": "unit_norm", "as": "unit"}, CHAIN[3]]
    refused(lab, DataError, r"x.zarr/x: nan at row 77, .*\(unit takes none\)")
    lab.method = [SCALED[2], CHAIN[3]]
    refused(lab, DataError, r"x.zarr/x: nan at row 77, .*\(pca takes none\)")


def test_what_a_step_cannot_learn_names_the_step(lab):
    lab.method = [{"name": "clip", "min": 0.0, "max": 0.0}, {"name": "pca", "as": "components"}]
    refused(lab, DataError, r"x.zarr/x: components: every column is constant")
    lab.method = [{"name": "select_variance", "min_variance": 1e9}, CHAIN[3]]
    refused(lab, DataError, r"x.zarr/x: select_variance: none of the 6 columns has a variance above")
    lab.write(counts(ROWS) * 1000)
    lab.method = [CHAIN[3] | {"n_components": 3}, {"name": "select_variance", "as": "chosen"}, CHAIN[3]]
    lab.method[1]["flavor"] = "seurat"
    refused(lab, DataError, r"x.zarr/x: chosen: .*exponentials of the values overflow")


def test_a_total_of_zero_names_the_file_the_row_and_the_step(lab):
    rows = counts(ROWS)
    rows[77] = 0
    lab.write(rows)
    refused(lab, DataError, r"x.zarr/x: row 77: normalize_total: .*total")


def test_errors_of_selected_rows_give_the_row_in_the_file(lab):
    rows = counts(ROWS)
    row = int(np.flatnonzero(quality(ROWS) >= 3)[100])
    rows[row, 2] = -1
    lab.write(rows)
    lab.method = [select(where={"quality": ">= 3"}), CHAIN[1], CHAIN[3]]
    refused(lab, DataError, rf"x.zarr/x: row {row}: log1p: the value -1")


def test_a_parameter_that_the_rows_before_it_do_not_allow_is_an_error_at_its_line(lab):
    lab.method = [{"name": "pca", "n_components": 2}, {"name": "pca", "as": "again", "n_components": 5}]
    refused(lab, ParameterError, r"method\.1\.n_components: ")


def test_a_model_without_the_step_is_refused_by_a_transform(lab):
    lab.output = {}
    lab.run()
    lab.method.insert(2, {"name": "clip", "max": 3.0})
    lab.output = {"steps": {"clip": lab.path("clip.zarr")}}
    with pytest.raises(ParameterError, match=r"output.steps.clip: .*has no step 'clip'; fit it again"):
        pipeline.transform(lab.context())


def test_an_output_of_a_step_is_not_written_over_another_one(lab):
    lab.run()
    lab.output = {"steps": {"log1p": lab.path("z.zarr")}}
    with pytest.raises(StreamdrError, match=r"z.zarr: exists"):
        lab.run()
    close(lab.rows("z.zarr"), scores(scaled(counts(ROWS))), signs=True)


def test_two_outputs_of_one_path_are_refused(lab):
    lab.output["steps"] = {"log1p": lab.path("z.zarr")}
    with pytest.raises(ConfigError, match=r"output.steps.log1p: .*is where the embedding goes"):
        lab.context()


def test_rows_that_are_written_for_a_step_are_as_planned(lab):
    lab.output["steps"] = {"log1p": lab.path("log.zarr")}
    planned = pipeline.plan(lab.context())
    assert planned.transforms.keys() == {"embedding", "steps.log1p"}
    stages = {stage.name: stage for stage in planned.stages}
    report = lab.run()
    written = present(report.transform).outputs["steps.log1p"]
    assert stages["steps.log1p"].bytes_to_read == written.bytes_read


@pytest.mark.parametrize("before", [[], [{"name": "clip", "max": 1e3}]], ids=["first", "second"])
def test_rows_of_a_step_that_selects_columns_have_the_names_of_those(lab, before):
    frame = {f"g{number}": counts(ROWS)[:, number].astype(np.float64) for number in range(COLUMNS)}
    table = pa.table(frame | {"kind": (counts(ROWS)[:, 2] + counts(ROWS)[:, 4] > 10).astype(np.float64)})
    pq.write_table(table, lab.path("cells.parquet"), row_group_size=100)
    lab.input = {"path": lab.path("cells.parquet"), "label_column": "kind"}
    lab.method = [select(where={"g1": "> 2"}), *before, {"name": "select_f_score", "k": 2}, {"name": "pca"}]
    lab.output = {"steps": {"select_f_score": lab.path("kept.zarr")}}
    lab.run()
    opened = xr.open_zarr(lab.path("kept.zarr"), consolidated=False)
    kept: Any = checked(ChainModel, lab.saved.model)["select_f_score"]
    assert opened["embedding"].dims == ("sample", "feature")
    chosen = counts(ROWS)[counts(ROWS)[:, 1] > 2]
    columns = sorted(np.argsort(f_classif(chosen, chosen[:, 2] + chosen[:, 4] > 10)[0])[-2:])
    assert np.flatnonzero(kept.support).tolist() == columns
    assert opened["feature"].values.tolist() == [f"g{column}" for column in columns]
    np.testing.assert_array_equal(opened["embedding"].values, chosen[:, columns])
    verify(lab.context())
