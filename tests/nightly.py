"""An input that grows between runs, as if it were processed every night."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from narrowing import checked

from streamdr import store
from streamdr.config import parse
from streamdr.core.addresses import Location
from streamdr.core.progress import Silent
from streamdr.store.backend import Backend
from streamdr.workflow import pipeline
from streamdr.workflow.reports import RunReport


class Heard(Silent):
    """Records the messages of a run."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def message(self, text: str) -> None:
        self.lines.append(text)


def correlated(n_rows: int, n_cols: int, seed: int = 0, dtype: str = "f4") -> np.ndarray:
    """Return rows with a few strong directions, so that more rows hardly change a model."""
    rng = np.random.default_rng(seed)
    strong = rng.normal(size=(n_rows, 3)) @ (rng.normal(size=(3, n_cols)) * [[9.0], [6.0], [3.0]])
    return (strong + 0.1 * rng.normal(size=(n_rows, n_cols)) + 5.0).astype(dtype)


@dataclass
class Nights:
    """A directory with an input, its configuration, and its outputs."""

    root: Path
    values: np.ndarray
    config: dict[str, dict[str, Any]] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    def write(self, rows: int, **layout: Any) -> None:
        """Write the first `rows` rows."""
        layout = {"chunks": (100, self.values.shape[1])} | layout
        array = zarr.create_array(
            self.root / "x.zarr", shape=(rows, *self.values.shape[1:]), dtype=self.values.dtype, **layout
        )
        array[:] = self.values[:rows]

    def grow(self, rows: int) -> None:
        """Append until there are `rows` rows."""
        array = zarr.open_array(self.root / "x.zarr", mode="r+")
        before = array.shape[0]
        array.resize((rows, *self.values.shape[1:]))
        array[before:] = self.values[before:rows]

    def stage(self, **sections: dict[str, Any]) -> pipeline.RunContext:
        """Return the run context of the configuration, with some sections changed."""
        config: dict[str, dict[str, Any]] = {
            "input": {"path": str(self.root / "x.zarr")},
            "method": {"name": "pca", "n_components": 3},
            "output": {"model": str(self.root / "out/model.zarr")},
        }
        for given in (self.config, sections):
            for name, section in given.items():
                config[name] = config.get(name, {}) | section
        return pipeline.RunContext(parse(json.dumps(config)), Heard(), threading.Event())

    def run(self, **sections: dict[str, Any]) -> RunReport:
        """Run all stages once."""
        stage = self.stage(**sections)
        report = pipeline.run_all(stage)
        self.said = checked(Heard, stage.progress).lines
        return report

    def model(self) -> dict[str, np.ndarray]:
        """Return the arrays of the saved model."""
        return arrays_of(self.root / "out/model.zarr")


def arrays_of(place: Location | Backend) -> dict[str, np.ndarray]:
    """Return the arrays of a saved model."""
    model = store.load_model(place).model
    return {name: value for name, value in vars(model).items() if isinstance(value, np.ndarray)}


def assert_same_bits(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    for name, values in one.items():
        np.testing.assert_array_equal(values, other[name], err_msg=name)
