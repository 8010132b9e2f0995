"""Data sets that ship with scikit-learn, for trying things out: with holes to fill, and noise to take away.

A store holds the data as `X`, what it was before that as `complete`, and the labels as `y`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from streamdr.blocks import Array
from streamdr.distances import point_distances
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
    noise : float
        The standard deviation of normal noise to add to every value. The store keeps what was there as the
        array `complete`, and the error of denoising is reported.
    distances : "euclidean", "cityblock", "cosine" or None
        Store how far rows are from each other instead of the rows: a square matrix, for methods that scale
        distances.
    seed : int
        The same seed makes the same holes and the same noise.
    """

    dataset: Literal["digits", "iris", "wine", "breast_cancer", "diabetes"]
    missing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    noise: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    distances: Literal["euclidean", "cityblock", "cosine"] | None = None
    seed: Annotated[int, Field(ge=0)] = 0

    def __post_init__(self) -> None:
        if not 0 <= self.missing < 1:
            raise ParameterError("missing", f"{self.missing} is not a part of 1, at least 0 and below 1")
        if not 0 <= self.noise < float("inf"):
            raise ParameterError("noise", f"{self.noise} is not a standard deviation: 0 or more")
        if self.distances is not None and (self.missing or self.noise):
            raise ParameterError("distances", "are those of rows as they are: leave out missing and noise")


def ensure(path: Path, example: Example) -> None:
    """Make the store unless it is there already. A store of anything else in its place is an error."""
    if not path.exists():
        _create(path, example)
        return
    record = draft(path)
    recipe = None if record is None or record.get("kind") != "example" else record.get("recipe")
    if not isinstance(recipe, dict) or {"distances": None, **recipe} != asdict(example):
        raise DataError(f"{path}: exists, but is not this example; delete it, or choose another path")


def filling_errors(example: Example, filled: Array) -> dict[str, Any]:
    """How far filled values are from what was taken away, beside what column means and scikit-learn give.

    Root mean square errors, over the holes.
    """
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    complete, _ = _loaded(example)
    pierced = _spoilt(example, complete)
    holes = np.isnan(pierced)
    others = {
        "column means": np.where(holes, np.nanmean(pierced, axis=0), pierced),
        "scikit-learn IterativeImputer": IterativeImputer(random_state=0).fit_transform(pierced),
    }
    errors = {
        name: _root_mean_square((values - complete)[holes])
        for name, values in {"streamdr": filled, **others}.items()
    }
    return {"dataset": example.dataset, "holes": int(holes.sum()), "rms_error": errors}


def denoising_errors(example: Example, denoised: Array, n_components: int) -> dict[str, Any]:
    """How far denoised values are from what was there before the noise, beside linear PCA.

    Root mean square errors, over all values: of the noise itself, and of PCA with as many components and
    with the number that serves it best, which only those know who know the answer.
    """
    complete, _ = _loaded(example)
    noisy = _spoilt(example, complete)
    mean = noisy.mean(axis=0)
    left, sizes, axes = np.linalg.svd(noisy - mean, full_matrices=False)
    rows, linear = np.tile(mean, (len(noisy), 1)), []
    for number in range(len(sizes)):
        rows += np.outer(left[:, number] * sizes[number], axes[number])
        linear.append(_root_mean_square(rows - complete))
    same, best = min(n_components, len(linear)), int(np.argmin(linear)) + 1
    errors = {
        "streamdr": _root_mean_square(denoised - complete),
        f"linear PCA, {same} components": linear[same - 1],
        f"linear PCA, {best} components, its best": linear[best - 1],
        "as it was given": _root_mean_square(noisy - complete),
    }
    return {"dataset": example.dataset, "noise": example.noise, "rms_error": errors}


def _create(path: Path, example: Example) -> None:
    complete, labels = _loaded(example)
    with Staging(path, kind="example", overwrite=False) as staging:
        given = _spoilt(example, complete)
        if example.distances is not None:
            given = point_distances(example.distances, complete).between(complete)
        for name, values in ((NAME, given), (COMPLETE, complete), (LABELS, labels)):
            layout = plan_layout(values.shape, values.dtype, chunk_rows=_CHUNK_ROWS)
            create_matrix(staging.path, layout, name=name)[...] = values
        write_record(staging.path, "example", {"recipe": asdict(example)}, complete=True)
        staging.publish()


def _loaded(example: Example) -> tuple[Array, Array]:
    bunch = getattr(import_module("sklearn.datasets"), f"load_{example.dataset}")()
    return np.asarray(bunch.data, np.float64), np.asarray(bunch.target)[:, None]


def _spoilt(example: Example, complete: Array) -> Array:
    """The data with its noise, and NaN for its holes."""
    holes = np.random.default_rng(example.seed).random(complete.shape) < example.missing
    noise = np.random.default_rng([example.seed, 1]).normal(0.0, example.noise, complete.shape)
    spoilt: Array = np.where(holes, np.nan, complete + noise)
    return spoilt


def _root_mean_square(values: Array) -> float:
    return float(np.sqrt(np.mean(values**2)))
