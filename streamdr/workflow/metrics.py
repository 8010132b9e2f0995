"""Measures of how good an embedding is. They are taken on a sample, and are comparable between methods."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import ceil

import numpy as np
from sklearn import manifold
from sklearn.neighbors import NearestNeighbors

from streamdr.core.blocks import Array, MatrixSpec, Span
from streamdr.methods.mds.parameters import kruskal, lengths, some_pairs

MOST_ROWS = 2_000
"""The largest sample: trustworthiness needs all distances between its rows."""
NEIGHBOURS = 10
N_PAIRS = 20_000
"""The number of distances that are compared."""

_MOST_BANDS, _LEAST_BANDS = 50, 8
"""The number of regions of the input that are read for a sample: more where they are small."""
_MOST_READ = 1 << 24
"""The number of values that are read for a sample, unless that would be too few regions."""
_MOST_VALUES = 1 << 23
"""The largest number of values of a sample, and of a region, however wide the rows are."""
_TILE = 1_024


@dataclass(frozen=True)
class Measures:
    """The measures of an embedding; None where one cannot be taken."""

    trustworthiness: float | None = None
    """1 if the nearest neighbours of every point are near in the input too; about 0.5 for random points."""
    stress: float | None = None
    """Kruskal's stress-1 of distances in the embedding, at their best scale; 0 if all are proportional."""
    accuracy: float | None = None
    """The share of rows that have the class of their nearest neighbour."""

    def to_dict(self) -> dict[str, float | None]:
        """Return the measures by name."""
        return asdict(self)


def sampled_rows(data: MatrixSpec, chunk: int) -> list[tuple[Span, Array]]:
    """Return the rows to measure on: regions of whole chunks to read, and the numbers of the rows to keep.

    If there are few rows, all are taken. Otherwise several evenly spaced regions each give the same number
    of random rows. Where a chunk of rows is too large for memory, a region is a part of it. The same shape
    gives the same rows.
    """
    most = min(MOST_ROWS, max(2 * NEIGHBOURS + 1, _MOST_VALUES // data.n_cols))
    run = ceil(most / _MOST_BANDS)
    whole = chunk * ceil(run / chunk)
    length = whole if whole * data.n_cols <= _MOST_VALUES else run
    if data.n_rows <= most:
        return [(band, np.arange(band.start, band.stop)) for band in Span(0, data.n_rows).split(length)]
    n_bands = ceil(data.n_rows / length)
    cheap = max(_LEAST_BANDS, _MOST_READ // (length * data.n_cols))
    taken = np.linspace(0, n_bands - 1, min(n_bands, cheap, _MOST_BANDS, most)).round().astype(int).tolist()
    rng, each, chosen = np.random.default_rng(0), most // len(taken), []
    for number in taken:
        band = Span(number * length, min((number + 1) * length, data.n_rows))
        kept = rng.choice(len(band), min(each, len(band)), replace=False)
        chosen.append((band, band.start + np.sort(kept)))
    return chosen


def measure(rows: Array, embedded: Array, classes: Array | None) -> Measures:
    """Measure the embedding of rows (samples x features); `classes` has one class per row, if any."""
    complete = np.isfinite(rows).all(axis=1) & np.isfinite(embedded).all(axis=1)
    rows, embedded = rows[complete].astype(np.float64), embedded[complete].astype(np.float64)
    accuracy = None
    if classes is not None and len(rows) > 1:
        accuracy = nearest_neighbour_accuracy(embedded, classes[complete])
    return Measures(trustworthiness(rows, embedded), scaled_stress(rows, embedded), accuracy)


def trustworthiness(rows: Array, embedded: Array) -> float | None:
    """Return the trustworthiness for ten neighbours, or fewer for fewer than 21 rows; None below 3 rows."""
    neighbours = min(NEIGHBOURS, (len(rows) - 1) // 2)
    if neighbours < 1:
        return None
    return float(manifold.trustworthiness(rows, embedded, n_neighbors=neighbours))


def scaled_stress(rows: Array, embedded: Array) -> float | None:
    """Return Kruskal's stress-1 of pairs, with the distances of the input at the best scale.

    Scaling the distances of the embedding instead gives the same value, relative to those of the input: the
    sine of the angle between the two vectors of distances.
    """
    if len(rows) < 2:
        return None
    pairs, wanted, reached = some_pairs(len(rows), 0, N_PAIRS), [], []
    for start in range(0, len(pairs), _TILE):
        left, right = pairs[start : start + _TILE].T
        wanted.append(lengths(rows[left], rows[right]))
        reached.append(lengths(embedded[left], embedded[right]))
    original, embedded_distances = np.concatenate(wanted), np.concatenate(reached)
    if not (original.any() and embedded_distances.any()):
        # All points coincide: in both spaces, which is exact, or in one of them, which is as bad as can be.
        return float(original.any() or embedded_distances.any())
    scale = float(original @ embedded_distances) / float(original @ original)
    return kruskal(original * scale, embedded_distances)


def nearest_neighbour_accuracy(embedded: Array, classes: Array) -> float:
    """Return the share of rows that have the class of their nearest neighbour."""
    nearest = NearestNeighbors(n_neighbors=1).fit(embedded).kneighbors(return_distance=False)[:, 0]
    return float(np.mean(classes[nearest] == classes))
