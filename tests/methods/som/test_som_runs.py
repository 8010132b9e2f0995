"""Whole runs of self-organising maps: resumed, appended to, on a cluster, and drawn."""

from __future__ import annotations

import json
import threading
import weakref

import numpy as np
import pytest
import zarr
from nightly import Heard, Nights, arrays_of, assert_same_bits, correlated

from streamdr import SOM, load_model, plots, store
from streamdr.config import parse
from streamdr.core.execution import Execution
from streamdr.data import open_source
from streamdr.engine import fitting
from streamdr.methods.som import som
from streamdr.methods.som.statistics import UnitSums
from streamdr.methods.som.training import stepped
from streamdr.workflow import pipeline
from streamdr.workflow.verification import verify

METHOD = {"name": "som", "height": 4, "width": 5, "n_epochs": 3}


class MapNights(Nights):
    """Nights of a map."""

    def stage(self, **sections):
        config = {"input": {"path": str(self.root / "x.zarr")}} | self.config | sections
        return pipeline.RunContext(parse(json.dumps(config)), Heard(), threading.Event())


def nights(place, values, **method):
    outputs = {name: str(place / f"out/{name}.zarr") for name in ("model", "embedding", "predicted")}
    return MapNights(place, values, {"method": METHOD | method, "output": outputs})


def test_a_run_writes_the_unit_and_the_place_of_every_row(tmp_path):
    values = correlated(500, 6)
    made = nights(tmp_path, values)
    made.write(500)
    made.run()
    model = load_model(tmp_path / "out/model.zarr")
    units = store.open_rows(tmp_path / "out/predicted.zarr", "predicted")[:]
    assert units.dtype == np.int64
    np.testing.assert_array_equal(units, model.predict(values))
    np.testing.assert_array_equal(np.bincount(units, minlength=20), model.hits_)
    places = store.open_rows(tmp_path / "out/embedding.zarr", "embedding")[:]
    np.testing.assert_array_equal(places, model.coordinates_[units])
    assert made.run().fit.reused
    verify(made.stage())


def test_no_accumulator_of_an_earlier_epoch_is_kept(tmp_path, monkeypatch):
    zarr.create_array(tmp_path / "x.zarr", data=correlated(500, 6), chunks=(100, 6))
    alive: weakref.WeakSet[UnitSums] = weakref.WeakSet()
    counts: list[int] = []

    class Counted(UnitSums):
        """Knows of all that there are."""

        def __init__(self, *arguments, **options) -> None:
            super().__init__(*arguments, **options)
            alive.add(self)

    def counting(full, *rest):
        counts.append(len(alive))
        return stepped(full, *rest)

    monkeypatch.setattr(som, "UnitSums", Counted)
    monkeypatch.setattr(som, "stepped", counting)
    ledger = Execution(workers=1, ledger=tmp_path / "ledger", checkpoint_seconds=0.0)
    fitting.fit(som.SOM(4, 5, n_epochs=6), open_source(tmp_path / "x.zarr"), ledger)
    assert counts == counts[:1] * 6


def _arrays(model):
    return {name: value for name, value in vars(model).items() if isinstance(value, np.ndarray)}


def test_rows_that_hardly_move_the_map_are_read_alone_and_it_stays(tmp_path):
    values = correlated(2100, 6)
    made = nights(tmp_path, values, n_epochs=30, append_tol=0.2)
    made.write(2000)
    made.run()
    before = load_model(tmp_path / "out/model.zarr")
    made.grow(2100)
    planned = pipeline.plan(made.stage()).stages[0]
    report = made.run()
    assert report.fit.bytes_read <= 2 * 100 * 6 * 4
    assert planned.least_bytes_to_read <= report.fit.bytes_read <= planned.bytes_to_read
    after = load_model(tmp_path / "out/model.zarr")
    np.testing.assert_array_equal(after.codebook_, before.codebook_)
    assert after.hits_.sum() == 2100
    units = after.predict(values)
    np.testing.assert_array_equal(np.bincount(units, minlength=20), after.hits_)
    distances = np.linalg.norm(values.astype(np.float64) - after.codebook_[units], axis=1)
    assert after.quantization_error_ == pytest.approx(distances.mean(), rel=1e-5)


def test_rows_that_move_the_map_cost_one_epoch_at_the_last_radius(tmp_path):
    values = np.concatenate([correlated(1000, 6), correlated(500, 6, seed=1) + 20]).astype(np.float32)
    made = nights(tmp_path, values)
    made.write(1000)
    made.run()
    before = load_model(tmp_path / "out/model.zarr")
    made.grow(1500)
    report = made.run()
    # New rows for the map as it was, and all rows for the one that it becomes.
    assert report.fit.bytes_read == pytest.approx((500 + 1500) * 6 * 4, rel=0.2)
    after = load_model(tmp_path / "out/model.zarr")
    assert after.radii_.tolist() == [*before.radii_.tolist(), 0.2]
    assert len(after.quantization_errors_) == len(before.quantization_errors_) + 1
    assert after.quantization_errors_[-1] < after.quantization_errors_[-2]
    units = after.predict(values)
    np.testing.assert_array_equal(np.bincount(units, minlength=20), after.hits_)
    once = arrays_of(tmp_path / "out/model.zarr")
    assert made.run().fit.reused
    assert_same_bits(arrays_of(tmp_path / "out/model.zarr"), once)


@pytest.mark.parametrize("topology", ["rectangular", "hexagonal"])
@pytest.mark.parametrize("kind", ["u_matrix", "component_planes", "hits", "quantization"])
def test_pictures_are_drawn_with_a_cell_for_each_unit(tmp_path, kind, topology):
    model = SOM(3, 4, topology=topology, n_epochs=2).fit(correlated(200, 5)).model_
    figure = getattr(plots, kind)(model, tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size > 1000
    cells = [cells for axes in figure.axes for cells in axes.collections if len(cells.get_paths()) == 12]
    assert len(cells) == {"u_matrix": 1, "hits": 1, "component_planes": 5, "quantization": 0}[kind]
    for drawn in cells:
        corners = {"rectangular": 4, "hexagonal": 6}[topology]
        assert all(len(path.vertices) == corners + 1 for path in drawn.get_paths())


def test_the_u_matrix_shows_the_mean_distance_from_neighbours():
    model = SOM(3, 4, n_epochs=2).fit(correlated(200, 5)).model_
    (axes, _) = plots.u_matrix(model).axes
    shown = np.asarray(axes.collections[0].get_array()).reshape(3, 4)
    codebook = model.codebook.reshape(3, 4, 5)
    around = [
        np.linalg.norm(codebook[1, 1] - codebook[row, column])
        for row in (0, 1, 2)
        for column in (0, 1, 2)
        if (row, column) != (1, 1)
    ]
    assert shown[1, 1] == pytest.approx(np.mean(around))
    assert shown[0, 0] == pytest.approx(
        np.mean([np.linalg.norm(codebook[0, 0] - codebook[at]) for at in ((0, 1), (1, 0), (1, 1))])
    )
