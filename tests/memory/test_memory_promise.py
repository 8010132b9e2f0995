"""The memory limit holds: peak <= planned <= limit, for every method, on data of every shape.

Limits are multiples of the smallest limit that a refusal advises, which must be sufficient.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import memory_measure
import numpy as np
import pytest
from fits import suited
from memory_cases import CASES, Case, built
from memory_limits import LIMITED, SLOW
from memory_stores import STORES, make, make_feature_weights, make_labels, options

from streamdr.core.execution import Execution
from streamdr.core.method import ConditionalOutputs, HasOutlines
from streamdr.core.row_outputs import ROW_OUTPUTS, RowOutput, of_step
from streamdr.data import open_source
from streamdr.engine import fitting, planner
from streamdr.engine.narrowing import narrowed
from streamdr.errors import MemoryLimitError
from streamdr.methods import METHODS, mds
from streamdr.methods.chain import Chain

MIB = 1 << 20
FACTORS = {"least": 1.0, "half as much more": 1.5, "four times": 4.0}
QUICK = [case for case in CASES if case.quick]


@pytest.fixture(scope="session")
def stores(tmp_path_factory):
    """Stores that are written when they are first requested."""
    root = tmp_path_factory.mktemp("stores")

    def opened(case: Case) -> tuple[Path, dict]:
        path = root / case.store.replace(" ", "-")
        if not path.exists():
            make(path, case.store)
        given = options(case.store)
        for what in ("labels", "weights"):
            kind = getattr(case, what)
            if kind is None:
                continue
            beside = root / f"{path.name}-{kind}"
            if not beside.exists():
                make_labels(beside, STORES[case.store].shape[0], kind)
            given[what] = str(beside)
        if STORES[case.store].land:
            beside = root / f"{path.name}-feature-weights"
            if not beside.exists():
                make_feature_weights(beside, STORES[case.store].shape[1])
            given["feature_weights"] = str(beside)
        return path, given

    return opened


def outputs(method) -> list[RowOutput]:
    """The row outputs of a method. PCA that keeps all components of low-rank data has no likelihood."""
    lacks = method.lacks if isinstance(method, ConditionalOutputs) else lambda what: None
    able = [kind for kind in ROW_OUTPUTS if kind.supported_by(method.model) and lacks(kind.method) is None]
    steps = map(of_step, method.names[:-1]) if isinstance(method, Chain) else ()
    everything = method.name == "pca" and method.n_components is None
    return [*(kind for kind in able if not (everything and kind.name == "log_likelihood")), *steps]


def advised(refused: MemoryLimitError) -> int:
    return int(str(refused).split("raise memory_limit to ")[1].split(" MiB")[0]) * MIB


def least(method, source) -> int:
    """The limit that refusals advise, for the fit and for each output, in a fresh process."""
    with pytest.raises(MemoryLimitError) as refused:
        planner.plan(method, source, Execution(memory_limit=1, workers=2))
    limit = advised(refused.value)
    for kind in outputs(method):
        while True:
            execution = Execution(memory_limit=limit, workers=2)
            try:
                route = planner.plan(method, source, execution).route
                assert planner.foresee_transform(route.method, source, execution, kind, None) is not None
                break
            except MemoryLimitError as refusal:
                limit = max(advised(refusal), limit + MIB)
    return limit


def check_limit(case: Case, factor: float, stores, tmp_path, table) -> None:
    path, given = stores(case)
    method = built(case.method, case.parameters)
    seen = narrowed(method, open_source(path, **given), Execution())
    limit = int(factor * least(method, seen))
    kinds = [kind.key for kind in outputs(method)]
    check_stages(case, limit, kinds, measured(case, limit, kinds, stores, tmp_path), table)


def measured(case: Case, limit: int, kinds: Sequence[str], stores, place: Path) -> dict[str, dict[str, int]]:
    """The planned and the measured memory of each stage, in a process of its own."""
    path, given = stores(case)
    request = {
        "store": str(path),
        "options": given,
        "method": case.method,
        "parameters": case.parameters,
        "outputs": kinds,
        "workers": case.workers,
        "limit": limit,
        "place": str(place),
    }
    words = [sys.executable, memory_measure.__file__, json.dumps(request)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    stages: dict[str, dict[str, int]] = json.loads(done.stdout)
    return stages


def check_stages(case: Case, limit: int, kinds: Sequence[str], stages, table) -> None:
    assert list(stages) == ["fit", *kinds]
    for name, stage in stages.items():
        table.append((case.name, name, limit, stage["planned"], stage["peak"]))
    for name, stage in stages.items():
        assert stage["planned"] <= limit, name
        assert stage["peak"] <= stage["planned"], f"{name}: the plan was too low"


@pytest.fixture(autouse=True)
def fresh_interpreter(monkeypatch):
    """Plan as in a fresh process, whatever earlier tests have left in this one."""
    monkeypatch.setattr(planner, "resident", lambda: 0)


@pytest.mark.parametrize("case", QUICK, ids=[case.name for case in QUICK])
def test_a_few_cases_stay_within_the_limit(case, stores, tmp_path, table):
    check_limit(case, 1.0, stores, tmp_path, table)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=[pytest.mark.slow] if case.name in SLOW else [])
        for case in LIMITED
    ],
)
def test_a_fresh_process_stays_within_plan_and_limit(case, stores, tmp_path, table):
    limit = case.limit * MIB
    stages = measured(case, limit, case.outputs, stores, tmp_path)
    check_stages(case, limit, case.outputs, stages, table)
    if case.planned_workers is not None:
        assert stages["fit"]["workers"] == case.planned_workers


def test_distances_may_need_more_memory_than_the_limit():
    beyond = [case for case in LIMITED if case.store == "distances beyond the limit"]
    assert {case.method for case in beyond} == {method.name for method in mds.METHODS}
    assert all(case.limit * MIB < 8 * STORES[case.store].shape[0] ** 2 for case in beyond)


def test_every_method_has_a_limit_of_its_own():
    assert {case.method for case in LIMITED} == set(METHODS)


def test_memory_does_not_grow_with_rows(stores, tmp_path):
    peaks = []
    for name in ("large tall", "four times as tall"):
        case = Case(name, name, "pca", {"n_components": 10, "solver": "covariance"})
        place = tmp_path / name.replace(" ", "-")
        place.mkdir()
        peaks.append(measured(case, 500 * MIB, (), stores, place)["fit"]["peak"])
    assert peaks[1] < 1.1 * peaks[0]


@pytest.mark.memory
@pytest.mark.parametrize("factor", FACTORS.values(), ids=FACTORS.keys())
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_every_method_stays_within_the_limit(case, factor, stores, tmp_path, table):
    check_limit(case, factor, stores, tmp_path, table)


def test_every_method_is_tried_on_tall_wide_and_large_data():
    shapes = {name: {case.shape for case in CASES if case.method == name} for name in METHODS}
    assert all(tried >= {"tall", "wide", "both"} for tried in shapes.values()), shapes


@pytest.mark.parametrize("name", METHODS)
def test_a_model_is_no_larger_than_its_outline(name):
    case = next(case for case in CASES if case.method == name)
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((90, 12)) @ rng.standard_normal((12, 12))
    labels = rng.integers(0, 3, 90) if case.labels == "classes" else rng.standard_normal(90)
    rows = suited(METHODS[name](**case.parameters), rows)
    source = open_source(rows, labels=labels if case.labels else None)
    small = {key: min(value, 5) if key.startswith("n_") else value for key, value in case.parameters.items()}
    method = METHODS[name](**small)
    fitted = fitting.fit(method, source, Execution(workers=1))
    chosen = fitted.plan.route.method
    assert isinstance(chosen, HasOutlines)
    outlines = chosen.outlines(source.spec)
    for key, each in vars(fitted.model).items():
        if getattr(each, "ndim", 0) > 1 and 12 in each.shape:
            most = max(getattr(getattr(outline, key), "nbytes", 0) for outline in outlines)
            assert each.nbytes <= most, key
    for kind in outputs(method):
        view, seen = planner.view_and_source(fitted.model, source, kind)
        views = [planner.view_and_source(outline, source, kind)[0] for outline in outlines]
        assert view.n_outputs <= max(each.n_outputs for each in views)
        rows_bytes = seen.spec.line_bytes("rows")
        most = max(each.scratch_bytes(90, rows_bytes) for each in views)
        assert view.scratch_bytes(90, rows_bytes) <= most
        assert view.maps_by_columns == views[0].maps_by_columns
