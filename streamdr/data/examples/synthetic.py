"""Synthetic data: a few cosines, with geometrically decreasing variances, in white noise.

Row i is  offset + sum_k sqrt(lambda_k) z_ik v_k + noise e_i,  where z and e are independent, of mean 0 and
variance 1, and the v_k are orthonormal cosines. The covariance is sum_k lambda_k v_k v_k' + noise^2 I.
"""

from __future__ import annotations

import math
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from streamdr.core.blocks import Array
from streamdr.core.byte_sizes import format_bytes
from streamdr.core.progress import Progress
from streamdr.errors import DataError, ParameterError
from streamdr.store.arrays import Index
from streamdr.store.matrix import create_matrix, fill, plan_layout
from streamdr.store.publish import Staging
from streamdr.store.record import draft, write_record

_REVISION = 1
"""Increased when the same recipe makes other data. A store of an older revision is not reused."""

_WEAKEST = 0.01
_CLUSTERING = 0.95


@dataclass(frozen=True)
class Synthetic:
    """Synthetic data: a low-rank signal in noise, for trying things out.

    Parameters
    ----------
    n_rows : int
        The number of samples.
    n_cols : int
        The number of features.
    rank : int
        The dimension of the signal.
    noise : float
        The standard deviation of the noise.
    offset : float
        A constant added to every value.
    dtype : "float16", "float32" or "float64"
        The type in which values are stored.
    seed : int
        The seed of the random numbers.
    """

    n_rows: Annotated[int, Field(ge=1)]
    n_cols: Annotated[int, Field(ge=1)]
    rank: Annotated[int, Field(ge=1)] = 10
    noise: Annotated[float, Field(ge=0)] = 0.1
    offset: float = 0.0
    dtype: Literal["float16", "float32", "float64"] = "float32"
    seed: Annotated[int, Field(ge=0)] = 0

    def __post_init__(self) -> None:
        if self.dtype not in ("float16", "float32", "float64"):
            raise ParameterError("dtype", f"dtype is {self.dtype!r}, but must be float16, float32 or float64")
        if not 0 <= self.noise < math.inf:
            raise ParameterError("noise", f"noise is {self.noise}, but must be finite and not negative")
        limit = min(self.n_rows, self.n_cols)
        if not 1 <= self.rank <= limit:
            raise ParameterError(
                "rank",
                f"a matrix of {self.n_rows} x {self.n_cols} has a rank of at most {limit}, not {self.rank}",
            )

    @property
    def variances(self) -> Array:
        """The variance of each component, decreasing geometrically to a hundredth of the first.

        They add up to one per column, so that `noise` is the noise-to-signal ratio.
        """
        relative = np.geomspace(1.0, _WEAKEST, self.rank)
        return np.asarray(self.n_cols * relative / relative.sum())

    def components(self, columns: slice) -> Array:
        """Return columns of the orthonormal components (rank x columns): cosines of increasing frequency."""
        # The discrete cosine basis, with the constant last. It is orthonormal by definition, so any columns
        # can be computed without the others.
        frequency = np.arange(1, self.rank + 1) % self.n_cols
        position = (np.arange(columns.start, columns.stop) + 0.5) / self.n_cols
        scale = np.where(frequency == 0, 1.0, math.sqrt(2.0)) / math.sqrt(self.n_cols)
        return np.asarray(scale[:, None] * np.cos(math.pi * np.outer(frequency, position)))

    def scores(self, chunk: int, n_rows: int) -> Array:
        """Return the scores of the rows of a chunk (rows x rank): uncorrelated, mean 0, variance 1."""
        rng = np.random.default_rng([self.seed, 0, chunk])
        scores = rng.standard_normal((n_rows, self.rank))
        # The first two components are random signs with a small spread, so that a scatter plot of them
        # shows four clusters. Their mean and variance do not change.
        sides = rng.choice((-1.0, 1.0), scores[:, :2].shape)
        scores[:, :2] *= math.sqrt(1 - _CLUSTERING**2)
        scores[:, :2] += _CLUSTERING * sides
        return scores

    def values(self, region: Index, chunks: tuple[int, ...]) -> Array:
        """Return the data of a chunk. It does not depend on other chunks or on their order."""
        rows, columns = region
        i, j = rows.start // chunks[0], columns.start // chunks[1]
        working = np.float64 if self.dtype == "float64" else np.float32
        loadings = np.sqrt(self.variances)[:, None] * self.components(columns)
        signal = self.scores(i, rows.stop - rows.start).astype(working) @ loadings.astype(working)
        values = np.random.default_rng([self.seed, 1, i, j]).standard_normal(signal.shape, working)
        values *= self.noise
        values += signal
        values += self.offset
        return np.asarray(values, self.dtype)


def create(path: Path, recipe: Synthetic, *, progress: Progress) -> None:
    """Create a store of synthetic data, one chunk at a time, if there is enough disk space."""
    needed = recipe.n_rows * recipe.n_cols * np.dtype(recipe.dtype).itemsize
    directory = next(parent for parent in path.absolute().parents if parent.exists())
    free = shutil.disk_usage(directory).free
    if needed > free:
        raise DataError(
            f"{path}: {recipe.n_rows:,} x {recipe.n_cols:,} values take {format_bytes(needed)}, and "
            f"its disk has {format_bytes(free)} left; ask for fewer rows, or choose another path"
        )
    layout = plan_layout((recipe.n_rows, recipe.n_cols), np.dtype(recipe.dtype))
    with Staging(path, kind="synthetic", overwrite=False) as staging:
        array = create_matrix(staging.path, layout)
        fill(
            array,
            layout,
            lambda region: recipe.values(region, layout.chunks),
            label=f"Making {path.name}",
            progress=progress,
        )
        write_record(staging.path, "synthetic", {"recipe": _recorded(recipe)}, complete=True)
        staging.publish()


def ensure(path: Path, recipe: Synthetic, *, progress: Progress) -> None:
    """Create the store unless it exists. A store with other data at this path is an error."""
    if not path.exists():
        create(path, recipe, progress=progress)
        return
    record = draft(path)
    if record is None or record.get("kind") != "synthetic":
        raise DataError(f"{path}: exists, but is not synthetic data; choose another path")
    made, wanted = record.get("recipe"), _recorded(recipe)
    if not isinstance(made, dict):
        raise DataError(f"{path}: exists, but its record was damaged; delete it, or choose another path")
    others = [f"{key} {made.get(key)}" for key, value in wanted.items() if made.get(key) != value]
    if others:
        raise DataError(
            f"{path}: exists, but was made from another recipe ({', '.join(others)}); "
            "delete it, or choose another path"
        )


def _recorded(recipe: Synthetic) -> dict[str, int | float | str]:
    """Return the recipe as it is recorded in the store."""
    return {**asdict(recipe), "revision": _REVISION}
