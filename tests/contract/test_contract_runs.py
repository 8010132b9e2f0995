"""Every registered method by configuration: runs, runs after an append, and runs that are killed."""

from __future__ import annotations

import json
import threading
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from command_line import succeed
from contract_cases import MORE, ROWS, RUNS, Case, outputs_of
from fits import bits, fit
from killing import Started, chunks, tree
from nightly import Heard

from streamdr import store
from streamdr.config import parse
from streamdr.core.method import Method, Model
from streamdr.core.row_outputs import RowOutput
from streamdr.estimators import ESTIMATORS
from streamdr.methods import METHODS
from streamdr.methods.chain import Chain
from streamdr.store.anndata import open_anndata
from streamdr.workflow import pipeline
from streamdr.workflow.verification import verify


def parameters(method: Method) -> dict[str, Any]:
    """The parameters of an example in a configuration, without those that are None."""
    given = {field.name: getattr(method, field.name) for field in fields(cast(Any, method))}
    return {name: value for name, value in given.items() if value is not None and not name.startswith("_")}


def section(method: Method) -> Any:
    """The section of a method, or the list of a chain."""
    if not isinstance(method, Chain):
        return {"name": method.name, **parameters(method)}
    steps = zip(method.names, method.steps, strict=True)
    return [{"name": step.name, "as": name, **parameters(step)} for name, step in steps]


def outputs(case: Case, root: str) -> dict[str, Any]:
    """The section with every possible output of rows."""
    found: dict[str, Any] = {"model": f"{root}out/model.zarr"}
    for kind in outputs_of(case.method):
        place = f"{root}out/{kind.key}.zarr"
        if kind.step is None:
            found[kind.name] = place
        else:
            found.setdefault("steps", {})[kind.step] = place
    return found


def configuration(case: Case, root: str, **execution: Any) -> dict[str, Any]:
    """The configuration of a run with every possible row output, with paths below a root."""
    labels = {} if case.labels is None else {"labels": f"{root}y.zarr"}
    return {
        "input": {"path": f"{root}x.zarr", **labels},
        "method": section(case.method),
        "output": outputs(case, root),
        "execution": execution,
    }


def context(case: Case, place: Path) -> pipeline.RunContext:
    run = parse(json.dumps(configuration(case, f"{place}/", workers=2)))
    return pipeline.RunContext(run, Heard(), threading.Event())


def written(case: Case, kind: RowOutput, place: Path) -> Any:
    """The rows of an output, opened as what it is: a group of its own, or scores in an AnnData store."""
    path = place / f"out/{kind.key}.zarr"
    if kind.name != "anndata":
        return store.open_rows(path, kind.name)
    last = case.method.steps[-1] if isinstance(case.method, Chain) else case.method
    return open_anndata(path, last.name).open_rows(kind.name)


def assert_written(case: Case, kind: RowOutput, place: Path, n_rows: int) -> None:
    """Check a stored row output against the model in memory, up to rounding of its type."""
    model = store.load_model(place / "out/model.zarr").model
    expected = np.asarray(kind.of(model).transform(case.rows(n_rows)))
    found = written(case, kind, place)[:n_rows]
    assert len(found) == n_rows
    atol = 1e-4 * np.nanmax(np.abs(expected))
    np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=0, atol=atol, err_msg=kind.key)


def fitted_in_python(case: Case, place: Path) -> Model:
    """The model of the estimator; of a chain, which has none, that of its method."""
    if isinstance(case.method, Chain):
        return fit(case.method, case.source(place), workers=1).model
    estimator = ESTIMATORS[case.method.name](**parameters(case.method))
    labels = () if case.labels is None else (place / "y.zarr",)
    model: Model = estimator.fit(place / "x.zarr", *labels).model_
    return model


@pytest.fixture(params=RUNS)
def case(request) -> Case:
    return RUNS[request.param]


def test_every_method_has_runs():
    assert {case.method.name for case in RUNS.values()} == {*METHODS, Chain.name}


def test_a_run_writes_the_model_and_the_outputs_of_the_estimator_and_then_all_is_up_to_date(
    case, own_store_of, tmp_path
):
    own_store_of(case)
    report = pipeline.run_all(context(case, tmp_path))
    assert report.fit.n_rows == ROWS
    here = fitted_in_python(case, tmp_path)
    assert bits(store.load_model(tmp_path / "out/model.zarr").model) == bits(here)
    for kind in outputs_of(case.method):
        assert_written(case, kind, tmp_path, ROWS)
    verify(context(case, tmp_path))
    again = pipeline.run_all(context(case, tmp_path))
    assert again.reused
    assert again.bytes_read == 0


@pytest.mark.parametrize("name", [name for name, case in RUNS.items() if not case.of_pairs])
def test_a_run_over_appended_rows_leaves_a_model_and_outputs_of_all_rows(name, own_store_of, tmp_path):
    case = RUNS[name]
    own_store_of(case)
    pipeline.run_all(context(case, tmp_path))
    case.grow(tmp_path)
    planned = pipeline.plan(context(case, tmp_path)).stages[0]
    report = pipeline.run_all(context(case, tmp_path))
    assert report.fit.n_rows == MORE
    assert planned.least_bytes_to_read <= report.fit.bytes_read <= planned.bytes_to_read
    for kind in outputs_of(case.method):
        assert written(case, kind, tmp_path).shape[0] == MORE
    verify(context(case, tmp_path))
    assert pipeline.run_all(context(case, tmp_path)).bytes_read == 0


def test_a_run_that_is_killed_at_any_step_ends_with_the_same_when_it_is_started_again(case, tmp_path):
    """The process is killed before a change of the file system."""
    for place in ("whole", "killed"):
        case.write(tmp_path / place, chunks=(60, ROWS))
        written = configuration(case, "", checkpoint_seconds=0.001)
        (tmp_path / place / "config.yaml").write_text(json.dumps(written))
    succeed("run", "config.yaml", cwd=tmp_path / "whole")
    kills = 0
    for last_step in (8, 22, 40):
        with Started("run", "config.yaml", cwd=tmp_path / "killed", last_step=last_step) as run:
            kills += run.outcome().code == -9
    assert kills >= 2
    succeed("run", "config.yaml", cwd=tmp_path / "killed")
    assert tree(tmp_path / "killed") == tree(tmp_path / "whole")
    assert chunks(tmp_path / "killed/out") == chunks(tmp_path / "whole/out")
