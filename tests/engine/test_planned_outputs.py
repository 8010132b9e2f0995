"""The plan has the memory of every output of rows, and refuses outputs that do not fit before the fit."""

from __future__ import annotations

import numpy as np
import pytest
from command_line import streamdr, succeed, write_config, write_store
from narrowing import present

from streamdr.core.execution import Execution
from streamdr.core.row_outputs import ROW_OUTPUTS
from streamdr.data import open_source
from streamdr.engine import planner
from streamdr.errors import MemoryLimitError
from streamdr.methods.lda.lda import LDA

METHOD = {"name": "pca", "n_components": 3}
WIDE = {"denoised": "out/d.zarr", "embedding": "out/z.zarr"}


@pytest.fixture
def wide(tmp_path):
    """Rows so wide, in chunks of columns, that a fit and an embedding by columns need less memory."""
    rng = np.random.default_rng(0)
    write_store(tmp_path / "x.zarr", rng.integers(0, 100, (400, 60_000)).astype("u1"), chunks=(400, 1000))
    return tmp_path


def plan(place, limit, **output):
    write_config(
        place, input={"path": "x.zarr"}, method=METHOD, output=output, execution={"memory_limit": limit}
    )
    return streamdr("plan", "config.yaml", "--json", cwd=place)


def advice(error):
    return int(error.split("raise memory_limit to ")[1].split(" MiB")[0])


def test_the_plan_has_the_peak_of_every_output(wide):
    report = plan(wide, "2GiB", **WIDE).report
    assert report["transforms"].keys() == {"embedding", "denoised"}
    for each in report["transforms"].values():
        assert 0 < each["peak"] <= report["limit"]
        assert each["workers"] >= 1
    assert report["transforms"]["denoised"]["peak"] > report["transforms"]["embedding"]["peak"]
    text = succeed("plan", "config.yaml", cwd=wide).out
    assert "denoised" in text
    succeed("run", "config.yaml", cwd=wide)
    after = succeed("plan", "config.yaml", "--json", cwd=wide).report
    assert after["transforms"] == {}, "all outputs are up to date"


def test_an_output_that_does_not_fit_is_refused_by_plan_and_by_run_before_the_fit(wide):
    planned = plan(wide, "400MiB", **WIDE)
    assert planned.code != 0
    (error,) = planned.errors
    assert "denoised values" in error
    assert "raise memory_limit to" in error
    ran = streamdr("run", "config.yaml", cwd=wide)
    assert (ran.code, ran.errors) == (planned.code, planned.errors)
    assert not (wide / "out").exists(), "nothing was fitted"
    assert plan(wide, "400MiB", embedding="out/z.zarr").code == 0


def test_the_limit_advised_by_a_refusal_is_enough_for_the_whole_run(wide):
    (error,) = plan(wide, "400MiB", **WIDE).errors
    assert plan(wide, f"{advice(error)}MiB", **WIDE).code == 0
    report = succeed("run", "config.yaml", "--json", cwd=wide).report
    assert report["peak_rss"] <= advice(error) << 20


def test_the_limit_advised_for_a_refused_fit_is_enough_for_its_outputs(wide):
    alone = plan(wide, "150MiB").errors[0]
    (error,) = plan(wide, "150MiB", **WIDE).errors
    assert "does not fit in the memory limit" in error, "it is the fit that is refused"
    ran = streamdr("run", "config.yaml", cwd=wide)
    assert ran.errors == [error]
    assert advice(error) > advice(alone), "here outputs need more than the fit"
    assert plan(wide, f"{advice(error)}MiB", **WIDE).code == 0


def test_an_unknown_number_of_classes_limits_only_the_plan_for_probabilities():
    rows = np.random.default_rng(0).integers(0, 100, (40_000, 64)).astype("u1")
    source = open_source(rows, labels=np.arange(len(rows)) % 10)
    base = max(planner.BASELINE, planner.resident())  # other tests may have made this process large
    execution = Execution(memory_limit=base + (300 << 20), workers=1)
    peaks = {}
    for kind in (kind for kind in ROW_OUTPUTS if kind.supported_by(LDA.model)):
        few = present(planner.foresee_transform(LDA(max_classes=10), source, execution, kind, None))
        peaks[kind.name] = few.peak
        if kind.name != "probabilities":
            many = present(planner.foresee_transform(LDA(), source, execution, kind, None))
            assert many.peak <= 1.6 * few.peak, kind.name
        else:
            with pytest.raises(MemoryLimitError, match="or set max_classes to the number of classes"):
                planner.foresee_transform(LDA(), source, execution, kind, None)
    assert peaks.keys() == {"embedding", "predicted", "probabilities", "anndata"}
