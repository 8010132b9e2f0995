"""What is predicted of a run is what is left of it to do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import zarr

from streamdr.core.execution import Execution
from streamdr.core.row_outputs import EMBEDDING
from streamdr.core.work import KINDS
from streamdr.data import open_source
from streamdr.engine import planner
from streamdr.engine.calibration import Calibrated, Calibration, Speed
from streamdr.engine.work_stages import total
from streamdr.methods.pca import PCA
from streamdr.workflow import report_text
from streamdr.workflow.predicting import predicted
from streamdr.workflow.reports import StageState

SPEEDS = Calibrated(Calibration(1, dict.fromkeys(KINDS, Speed(1e6, 1e6)), start=0.5), "measured earlier")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A store without chunks: a plan reads none."""
    path = tmp_path_factory.mktemp("stores") / "rows.zarr"
    zarr.create_array(path, shape=(8192, 16), chunks=(1024, 16), dtype="f4", compressors=None)
    return open_source(path)


@pytest.fixture(scope="module")
def chosen(source):
    return planner.plan(PCA(2, solver="covariance"), source, Execution())


WHOLE = 8192 * 16 * 4


def state(least, most, *, name="fit", state="stale"):
    return StageState(name, state, "because", most, least, in_the_way=False)


def test_a_fit_that_reads_everything_takes_all_of_its_stages(chosen, source):
    found = predicted(chosen, {}, [state(WHOLE, WHOLE)], source, SPEEDS)
    assert found.seconds == found.fit_seconds == pytest.approx(total(chosen.stages, SPEEDS.speeds).usual)


def test_a_fit_that_is_up_to_date_takes_no_time(chosen, source):
    found = predicted(chosen, {}, [state(0, 0, state="fresh")], source, SPEEDS)
    assert found.seconds == found.least_seconds == found.most_seconds == 0.0
    assert "nothing to do" in dict(report_text._run_time(found))["run"]


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_a_fit_that_reads_a_part_divides_that_part_only(chosen, source, share):
    reads = int(share * WHOLE)
    found = predicted(chosen, {}, [state(reads, reads)], source, SPEEDS)
    stages = [replace(each, divided=each.divided * share) if each.reads else each for each in chosen.stages]
    assert found.fit_seconds == pytest.approx(total(stages, SPEEDS.speeds).usual)


def test_what_may_be_read_counts_where_it_is_not_known(chosen, source):
    found = predicted(chosen, {}, [state(0, WHOLE)], source, SPEEDS)
    assert found.fit_seconds == pytest.approx(total(chosen.stages, SPEEDS.speeds).usual)


def test_outputs_are_added(chosen, source):
    model = PCA(2, solver="covariance").outlines(source.spec)[0]
    kind = EMBEDDING
    view, read = planner.view_and_source(model, source, kind)
    plan = planner.plan_transform(view, read, Execution(), np.dtype("f4"))
    states = [state(0, 0, state="fresh"), state(WHOLE, WHOLE, name="transform")]
    found = predicted(chosen, {kind: plan}, states, source, SPEEDS)
    assert found.fit_seconds == 0.0
    assert found.output_seconds == {"embedding": pytest.approx(plan.stage.seconds(SPEEDS.speeds).usual)}
    assert found.seconds == pytest.approx(found.output_seconds["embedding"])
