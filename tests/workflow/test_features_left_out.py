"""Runs over labelled data: plan, run, verify and inspect say what was left out, and outputs have all features."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
import zarr
from fits import grown
from labelled import Grid, labelled

from streamdr import config
from streamdr.core.addresses import parse_location
from streamdr.core.progress import Silent
from streamdr.data.source import Source
from streamdr.store import load_model
from streamdr.workflow import pipeline, report_text
from streamdr.workflow.inspection import inspect
from streamdr.workflow.run_context import RunContext
from streamdr.workflow.verification import verify

WISHES: dict[str, Any] = {"min_observed": 0.5, "balanced": True}


@dataclass(frozen=True)
class Labelled(RunContext):
    """A run whose input has axes."""

    wishes: Any = None

    def _rows(self) -> Source:
        source = super()._rows()
        return labelled(source, (4, 6), 0.5 + np.arange(24) / 24, **(self.wishes or {}))


def context(folder: Path, method: dict[str, Any], **wishes: Any) -> Labelled:
    """Return a run over the store of a folder."""
    feature_kind = "imputed" if method["name"] == "ppca" else "denoised"
    document = {
        "input": {"path": str(folder / "x.zarr")},
        "method": method,
        "output": {
            "model": str(folder / "model.zarr"),
            "embedding": str(folder / "scores.zarr"),
            feature_kind: str(folder / "features.zarr"),
        },
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(document))
    return Labelled(config.load(path), Silent(), threading.Event(), wishes=wishes)


@pytest.fixture
def grid(tmp_path):
    made = Grid.made(300, 24)
    made.store(tmp_path, (50, 12))
    return made


@pytest.mark.parametrize("wishes", [{}, WISHES])
@pytest.mark.parametrize("name", ["pca", "ppca"])
def test_a_run_says_what_it_leaves_out_and_verifies(name, wishes, grid, tmp_path):
    run = context(tmp_path, {"name": name, "n_components": 3}, **wishes)
    counts = bool(wishes) or name == "ppca"
    planned = pipeline.plan(run)
    assert (planned.fit.n_cols, planned.fit.n_left_out, planned.fit.counting_passes) == (24, 4, counts)
    text = report_text.planned(planned)
    assert "20 of 24, 4 left out" in text
    assert ("1 pass that counts observed values, then 1 pass over the rows" in text) == counts
    assert planned.stages[0].bytes_to_read >= (1 + counts) * grid.values.nbytes
    done = pipeline.run_all(run)
    assert done.fit.n_left_out == 4
    assert done.fit.bytes_read == (1 + counts) * grid.values.nbytes
    assert "20 of 24, 4 left out" in report_text.ran(done)
    assert done.to_json()["fit"]["n_left_out"] == 4
    found = inspect(parse_location(run.run.output.model))
    assert found.to_json()["n_features"] == 24
    assert found.to_json()["n_left_out"] == 4
    assert "20 of 24, 4 left out" in report_text.inspected(found)
    checks = verify(run).checks
    assert (
        "except those of 4 features that were never observed"
        in checks["imputed" if name == "ppca" else "denoised"]
    )
    rows = np.asarray(
        zarr.open_group(tmp_path / "features.zarr")[("imputed" if name == "ppca" else "denoised")]
    )
    np.testing.assert_array_equal(np.isnan(rows), np.broadcast_to(grid.land, rows.shape))
    assert pipeline.run_all(run).reused
    assert [stage.state for stage in pipeline.plan(run).stages] == ["fresh"] * 3


def test_balanced_weights_are_recorded_with_the_model(grid, tmp_path):
    run = context(tmp_path, {"name": "pca", "n_components": 3}, **WISHES)
    pipeline.run_all(run)
    saved = load_model(parse_location(run.run.output.model))
    assert saved.axes is not None
    assert saved.axes.weights is not None
    weights = 0.5 + np.arange(24) / 24
    total = float((np.nanvar(grid.values[:, ~grid.land], axis=0) * weights[~grid.land] ** 2).sum())
    np.testing.assert_allclose(saved.axes.weights, weights / np.sqrt(total), rtol=1e-12)
    np.testing.assert_array_equal(saved.axes.kept, ~grid.land)


def test_appended_rows_are_counted_and_the_rest_is_not_read_again(grid, tmp_path):
    run = context(tmp_path, {"name": "pca", "n_components": 3, "solver": "covariance"}, **WISHES)
    pipeline.run_all(run)
    more = np.concatenate([grid.values, grid.values[:100] + 0.1])
    grown(tmp_path / "x.zarr", more)
    done = pipeline.run_all(run)
    assert done.fit.bytes_read == 2 * grid.values[:100].nbytes
    (tmp_path / "whole").mkdir()
    Grid(more, grid.land, grid.weights).store(tmp_path / "whole", (50, 12))
    whole = context(tmp_path / "whole", {"name": "pca", "n_components": 3, "solver": "covariance"}, **WISHES)
    pipeline.run_all(whole)
    one, other = (load_model(parse_location(each.run.output.model)).model for each in (run, whole))
    np.testing.assert_array_equal(one.components, other.components)
