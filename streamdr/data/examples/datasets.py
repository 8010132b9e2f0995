"""Data sets that ship with scikit-learn, with missing values to impute and noise to remove.

A store holds the data as `X`, what it was before that as `complete`, and the labels as `y`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from streamdr.core.blocks import Array
from streamdr.errors import DataError, ParameterError
from streamdr.methods.mds.distances import point_distances
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
        The name of the data set.
    missing : float
        The fraction of its values that are removed at random, so that there is something to impute. The
        store keeps the complete data as the array `complete`, and the error of filling is reported.
    noise : float
        The standard deviation of normal noise to add to every value. The store keeps the original data as
        the array `complete`, and the error of denoising is reported.
    distances : "euclidean", "cityblock", "cosine" or None
        Store the square matrix of distances between rows instead of the rows, for multidimensional scaling.
    seed : int
        The same seed makes the same missing values and the same noise.
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


@dataclass(frozen=True)
class Filling:
    """How far filled values are from what was taken away: root mean square errors, over what was missing."""

    name: ClassVar[str] = "filling"

    dataset: str
    holes: int
    rms_error: Mapping[str, float]
    """By what filled them."""

    @property
    def of(self) -> str:
        """What the errors are of."""
        return f"{self.holes:,} values that were taken from {self.dataset}"


@dataclass(frozen=True)
class Denoising:
    """How far denoised values are from what was there before the noise: root mean square errors."""

    name: ClassVar[str] = "denoising"

    dataset: str
    noise: float
    rms_error: Mapping[str, float]
    """By what took the noise away."""

    @property
    def of(self) -> str:
        """What the errors are of."""
        return f"{self.dataset}, with noise of standard deviation {self.noise:g}"


@dataclass(frozen=True)
class Comparison:
    """How what a run writes of an example is compared with what was there before."""

    errors: Callable[[Example, Array, Any], Filling | Denoising]
    """Given the rows that were written, and the model that made them."""
    message: str = ""
    """What to say before it, where it takes long."""


def comparison(example: Example, output: str) -> Comparison | None:
    """How an output is compared with the truth; None where there is no truth for it."""
    if output == "imputed" and example.missing:
        return Comparison(
            lambda example, rows, model: filling_errors(example, rows),
            "the missing values are imputed; comparing with column means and with scikit-learn's "
            "IterativeImputer, which takes a minute or more",
        )
    if output == "denoised" and example.noise:
        return Comparison(lambda example, rows, model: denoising_errors(example, rows, model.n_components))
    return None


def ensure(path: Path, example: Example) -> None:
    """Make the store unless it is there already. A store of anything else in its place is an error."""
    if not path.exists():
        _create(path, example)
        return
    record = draft(path)
    recipe = None if record is None or record.get("kind") != "example" else record.get("recipe")
    if not isinstance(recipe, dict) or {"distances": None, **recipe} != asdict(example):
        raise DataError(f"{path}: exists, but is not this example; delete it, or choose another path")


def filling_errors(example: Example, filled: Array) -> Filling:
    """How far filled values are from what was taken away, beside what column means and scikit-learn give.

    Root mean square errors, over the missing values.
    """
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    complete, _ = _loaded(example)
    incomplete = _corrupted(example, complete)
    missing = np.isnan(incomplete)
    others = {
        "column means": np.where(missing, np.nanmean(incomplete, axis=0), incomplete),
        "scikit-learn IterativeImputer": IterativeImputer(random_state=0).fit_transform(incomplete),
    }
    errors = {
        name: _root_mean_square((values - complete)[missing])
        for name, values in {"streamdr": filled, **others}.items()
    }
    return Filling(example.dataset, int(missing.sum()), errors)


def denoising_errors(example: Example, denoised: Array, n_components: int) -> Denoising:
    """How far denoised values are from what was there before the noise, beside linear PCA.

    Root mean square errors, over all values: of the noise itself, and of PCA with as many components and
    with the number that serves it best, which only those know who know the answer.
    """
    complete, _ = _loaded(example)
    noisy = _corrupted(example, complete)
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
    return Denoising(example.dataset, example.noise, errors)


def _create(path: Path, example: Example) -> None:
    complete, labels = _loaded(example)
    with Staging(path, kind="example", overwrite=False) as staging:
        given = _corrupted(example, complete)
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


def _corrupted(example: Example, complete: Array) -> Array:
    """The data with its noise, and NaN for its missing values."""
    missing = np.random.default_rng(example.seed).random(complete.shape) < example.missing
    noise = np.random.default_rng([example.seed, 1]).normal(0.0, example.noise, complete.shape)
    corrupted: Array = np.where(missing, np.nan, complete + noise)
    return corrupted


def _root_mean_square(values: Array) -> float:
    return float(np.sqrt(np.mean(values**2)))
