"""Example data: data sets that ship with scikit-learn, and data that is made.

The store of a data set of scikit-learn contains the data as `X`, the data without missing values and noise
as `complete`, and labels as `y`. Those that are made have stores of their own kinds: variables with named
dimensions (`sea_surface`), an AnnData store (`single_cells`), and a matrix with names (`genotypes`).
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
from streamdr.data.examples import genotypes, sea_surface, single_cells
from streamdr.errors import DataError, ParameterError
from streamdr.methods.mds.distances import point_distances
from streamdr.store.matrix import NAME, create_matrix, plan_layout
from streamdr.store.publish import Staging
from streamdr.store.record import draft, write_record

COMPLETE, LABELS = "complete", "y"
_CHUNK_ROWS = 256
_WITH_ROWS = (single_cells.NAME, genotypes.NAME)
_MADE = (sea_surface.NAME, *_WITH_ROWS)
"""The data sets that are made here. All others ship with scikit-learn."""
_ADDED = {"distances": None, "days": None, "rows": None}
"""The parameters that earlier versions did not have."""


@dataclass(frozen=True)
class Example:
    """A data set for trying things out: one that ships with scikit-learn, or one that is made.

    Parameters
    ----------
    dataset : "digits", "iris", "wine", "breast_cancer", "diabetes", "sea_surface", "single_cells", ...
        The name of the data set. Three are made: `sea_surface`, daily temperatures (`sst`) and sea ice
        (`ice`) on a small grid of latitudes and longitudes; `single_cells`, sparse counts of genes in cells,
        as an AnnData store; and `genotypes` of samples from four populations, where -1 is missing.
    missing : float
        The fraction of its values that are removed at random, so that there is something to impute. The
        store keeps the complete data as the array `complete`, and the error of filling is reported.
    noise : float
        The standard deviation of normal noise to add to every value. The store keeps the original data as
        the array `complete`, and the error of denoising is reported.
    distances : "euclidean", "cityblock", "cosine" or None
        Store the square matrix of distances between rows instead of the rows, for multidimensional scaling.
    days : int or None
        The number of days of `sea_surface`; None for two years.
    rows : int or None
        The number of cells of `single_cells`, or of samples of `genotypes`; None for 2,000 or 1,000.
    seed : int
        The same seed makes the same missing values and the same noise.
    """

    dataset: Literal[
        "digits", "iris", "wine", "breast_cancer", "diabetes", "sea_surface", "single_cells", "genotypes"
    ]
    missing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    noise: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    distances: Literal["euclidean", "cityblock", "cosine"] | None = None
    days: Annotated[int, Field(ge=1, le=100_000)] | None = None
    rows: Annotated[int, Field(ge=1, le=100_000)] | None = None
    seed: Annotated[int, Field(ge=0)] = 0

    def __post_init__(self) -> None:
        if not 0 <= self.missing < 1:
            raise ParameterError("missing", f"{self.missing} is not a fraction: at least 0 and below 1")
        if not 0 <= self.noise < float("inf"):
            raise ParameterError("noise", f"{self.noise} is not a standard deviation: 0 or more")
        if self.distances is not None and (self.missing or self.noise):
            raise ParameterError(
                "distances", "are computed from the original rows; leave out missing and noise"
            )
        if self.days is not None and self.dataset != sea_surface.NAME:
            raise ParameterError("days", f"{self.dataset} has no days; only {sea_surface.NAME} has")
        if self.rows is not None and self.dataset not in _WITH_ROWS:
            raise ParameterError("rows", f"are those of {' and '.join(_WITH_ROWS)}; leave it out")
        for name in ("missing", "noise", "distances"):
            if self.dataset in _MADE and getattr(self, name):
                raise ParameterError(name, f"is not possible for {self.dataset}; leave it out")


@dataclass(frozen=True)
class Filling:
    """Root mean square errors of filled values, over the values that were removed."""

    name: ClassVar[str] = "filling"

    dataset: str
    holes: int
    rms_error: Mapping[str, float]
    """The error of each way to fill the values."""

    @property
    def of(self) -> str:
        """A description of the data that the errors refer to."""
        return f"{self.holes:,} values that were removed from {self.dataset}"


@dataclass(frozen=True)
class Denoising:
    """Root mean square errors of denoised values, relative to the data before noise was added."""

    name: ClassVar[str] = "denoising"

    dataset: str
    noise: float
    rms_error: Mapping[str, float]
    """The error of each way to remove the noise."""

    @property
    def of(self) -> str:
        """A description of the data that the errors refer to."""
        return f"{self.dataset}, with noise of standard deviation {self.noise:g}"


@dataclass(frozen=True)
class ComparisonWithOriginal:
    """How the output of a run on an example is compared with the original data."""

    errors: Callable[[Example, Array, Any], Filling | Denoising]
    """Returns the errors, given the example, the rows that were written and the model."""
    message: str = ""
    """The message to show before a comparison that takes long."""


def comparison(example: Example, output: str) -> ComparisonWithOriginal | None:
    """Return how an output is compared with the original data; None if there is nothing to compare."""
    if output == "imputed" and example.missing:
        return ComparisonWithOriginal(
            lambda example, rows, model: filling_errors(example, rows),
            "the missing values are imputed; comparing with column means and with scikit-learn's "
            "IterativeImputer, which takes a minute or more",
        )
    if output == "denoised" and example.noise:
        return ComparisonWithOriginal(
            lambda example, rows, model: denoising_errors(example, rows, model.n_components)
        )
    return None


def ensure(path: Path, example: Example) -> None:
    """Create the store unless it exists. A store with other data at this path is an error."""
    if not path.exists():
        _create(path, example)
        return
    record = draft(path)
    recipe = None if record is None or record.get("kind") != "example" else record.get("recipe")
    if not isinstance(recipe, dict) or {**_ADDED, **recipe} != asdict(example):
        raise DataError(
            f"{path}: exists, but is not this example; remove input.example to read it, or "
            "choose another path for the example"
        )


def filling_errors(example: Example, filled: Array) -> Filling:
    """Return the errors of filled values, and for comparison those of column means and of scikit-learn.

    They are root mean square errors over the missing values.
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
    """Return the errors of denoised values, and for comparison those of linear PCA.

    They are root mean square errors over all values: also of the noisy data, of PCA with as many components,
    and of PCA with the best number of components, which can only be found with the original data.
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
    """Write an example to a new store."""
    recipe, seed = asdict(example), example.seed
    match example.dataset:
        case sea_surface.NAME:
            surface = sea_surface.SeaSurface(seed)
            sea_surface.write(path, surface, recipe, 0, example.days or sea_surface.DAYS)
        case single_cells.NAME:
            cells = single_cells.SingleCells(seed)
            single_cells.write(path, cells, recipe, example.rows or single_cells.CELLS)
        case genotypes.NAME:
            samples = genotypes.Genotypes(seed)
            genotypes.write(path, samples, recipe, example.rows or genotypes.SAMPLES)
        case _:
            _write_shipped(path, example, recipe)


def _write_shipped(path: Path, example: Example, recipe: Mapping[str, Any]) -> None:
    """Write the data, the complete data and the labels of a data set that ships with scikit-learn."""
    complete, labels = _loaded(example)
    with Staging(path, kind="example", overwrite=False) as staging:
        given = _corrupted(example, complete)
        if example.distances is not None:
            given = point_distances(example.distances, complete).between(complete)
        for name, values in ((NAME, given), (COMPLETE, complete), (LABELS, labels)):
            layout = plan_layout(values.shape, values.dtype, chunk_rows=_CHUNK_ROWS)
            create_matrix(staging.path, layout, name=name)[...] = values
        write_record(staging.path, "example", {"recipe": dict(recipe)}, complete=True)
        staging.publish()


def _loaded(example: Example) -> tuple[Array, Array]:
    """Return the values and labels of the data set."""
    bunch = getattr(import_module("sklearn.datasets"), f"load_{example.dataset}")()
    return np.asarray(bunch.data, np.float64), np.asarray(bunch.target)[:, None]


def _corrupted(example: Example, complete: Array) -> Array:
    """Return the data with noise added, and NaN for missing values."""
    missing = np.random.default_rng(example.seed).random(complete.shape) < example.missing
    noise = np.random.default_rng([example.seed, 1]).normal(0.0, example.noise, complete.shape)
    corrupted: Array = np.where(missing, np.nan, complete + noise)
    return corrupted


def _root_mean_square(values: Array) -> float:
    return float(np.sqrt(np.mean(values**2)))
