"""Data sets that ship with scikit-learn, for trying things out: with holes, where filling them is the thing.

A store holds the data as `X`, what it was before holes were made in it as `complete`, and the labels as `y`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from streamdr.blocks import Array
from streamdr.errors import DataError, ParameterError
from streamdr.store.matrix import NAME, create_matrix, plan_layout
from streamdr.store.publish import Staging
from streamdr.store.record import draft, write_record

COMPLETE, LABELS = "complete", "y"
_CHUNK_ROWS = 256


@dataclass(frozen=True)
class Example:
    """A data set that ships with scikit-learn, for trying things out.

    Parameters
    ----------
    dataset : "digits", "iris", "wine", "breast_cancer" or "diabetes"
        Which one.
    missing : float
        The part of its values to take away at random, so that there are holes to fill. The store keeps what
        was there as the array `complete`, and the error of filling is reported.
    seed : int
        The same seed makes the same holes.
    """

    dataset: Literal["digits", "iris", "wine", "breast_cancer", "diabetes"]
    missing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    seed: Annotated[int, Field(ge=0)] = 0

    def __post_init__(self) -> None:
        if not 0 <= self.missing < 1:
            raise ParameterError("missing", f"{self.missing} is not a part of 1, at least 0 and below 1")


def ensure(path: Path, example: Example) -> None:
    """Make the store unless it is there already. A store of anything else in its place is an error."""
    if not path.exists():
        _create(path, example)
        return
    record = draft(path)
    if record is None or record.get("kind") != "example" or record.get("recipe") != asdict(example):
        raise DataError(f"{path}: exists, but is not this example; delete it, or choose another path")


def filling_errors(example: Example, filled: Array) -> dict[str, Any]:
    """How far filled values are from what was taken away, beside what column means and scikit-learn give.

    Root mean square errors, over the holes.
    """
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    complete, _ = _loaded(example)
    holes = _holes(example, complete.shape)
    pierced = np.where(holes, np.nan, complete)
    others = {
        "column means": np.where(holes, np.nanmean(pierced, axis=0), pierced),
        "scikit-learn IterativeImputer": IterativeImputer(random_state=0).fit_transform(pierced),
    }
    errors = {
        name: float(np.sqrt(np.mean((values - complete)[holes] ** 2)))
        for name, values in {"streamdr": filled, **others}.items()
    }
    return {"dataset": example.dataset, "holes": int(holes.sum()), "rms_error": errors}


def _create(path: Path, example: Example) -> None:
    complete, labels = _loaded(example)
    pierced = np.where(_holes(example, complete.shape), np.nan, complete)
    with Staging(path, overwrite=False) as staging:
        for name, values in ((NAME, pierced), (COMPLETE, complete), (LABELS, labels)):
            layout = plan_layout(values.shape, values.dtype, chunk_rows=_CHUNK_ROWS)
            create_matrix(staging.path, layout, name=name)[...] = values
        write_record(staging.path, "example", {"recipe": asdict(example)}, complete=True)
        staging.publish()


def _loaded(example: Example) -> tuple[Array, Array]:
    bunch = getattr(import_module("sklearn.datasets"), f"load_{example.dataset}")()
    return np.asarray(bunch.data, np.float64), np.asarray(bunch.target, np.float64)[:, None]


def _holes(example: Example, shape: tuple[int, ...]) -> Array:
    holes: Array = np.random.default_rng(example.seed).random(shape) < example.missing
    return holes
