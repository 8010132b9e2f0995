"""How good an embedding is, by measures that mean the same whatever made it. They are taken of a sample."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import ceil

import numpy as np
from sklearn import manifold
from sklearn.neighbors import NearestNeighbors

from streamdr.core.blocks import Array, MatrixSpec, Span
from streamdr.methods.mds.parameters import kruskal, lengths, some_pairs

MOST_ROWS = 2_000
"""A sample has no more rows: trustworthiness takes all distances between them."""
NEIGHBOURS = 10
N_PAIRS = 20_000
"""So many distances are compared."""

_MOST_BANDS, _LEAST_BANDS = 50, 8
"""How many regions of the input are read for a sample: many where they are small."""
_MOST_READ = 1 << 24
"""So many values are read for it, unless that would be fewer regions."""
_MOST_VALUES = 1 << 23
"""Neither a sample nor a region has more, however wide rows are."""
_TILE = 1_024


@dataclass(frozen=True)
class Measures:
    """What is measured of an embedding; None where it cannot be."""

    trustworthiness: float | None = None
    """1 if the nearest rows of every point are near in the input, too; 0.5 or so for points at random."""
    stress: float | None = None
    """Kruskal's stress-1 of distances in the embedding, at their best scale; 0 if all are in proportion."""
    accuracy: float | None = None
    """How many rows are of the class of the nearest other row."""

    def to_dict(self) -> dict[str, float | None]:
        """The measures by name."""
        return asdict(self)


def sampled_rows(data: MatrixSpec, chunk: int) -> list[tuple[Span, Array]]:
    """Which rows to measure by: regions to read, of whole chunks, and the numbers of the rows to keep.

    All rows, if they are few; else as many at random of each of several regions, at even distances. Where a
    chunk of rows is too wide to be held, a region is some rows of it. The same shape gives the same rows.
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
    """Measure what became of rows (samples x features), with a class each where there are any."""
    complete = np.isfinite(rows).all(axis=1) & np.isfinite(embedded).all(axis=1)
    rows, embedded = rows[complete].astype(np.float64), embedded[complete].astype(np.float64)
    accuracy = None
    if classes is not None and len(rows) > 1:
        accuracy = nearest_neighbour_accuracy(embedded, classes[complete])
    return Measures(trustworthiness(rows, embedded), scaled_stress(rows, embedded), accuracy)


def trustworthiness(rows: Array, embedded: Array) -> float | None:
    """By ten neighbours, or as many as there can be in fewer than 21 rows; None for fewer than 3."""
    neighbours = min(NEIGHBOURS, (len(rows) - 1) // 2)
    if neighbours < 1:
        return None
    return float(manifold.trustworthiness(rows, embedded, n_neighbors=neighbours))


def scaled_stress(rows: Array, embedded: Array) -> float | None:
    """Kruskal's stress-1 of pairs, distances in the input being multiplied by what makes it least.

    It is the same if those in the embedding are, beside the input's: the sine of the angle between the two.
    """
    if len(rows) < 2:
        return None
    pairs, wanted, reached = some_pairs(len(rows), 0, N_PAIRS), [], []
    for start in range(0, len(pairs), _TILE):
        left, right = pairs[start : start + _TILE].T
        wanted.append(lengths(rows[left], rows[right]))
        reached.append(lengths(embedded[left], embedded[right]))
    apart, put = np.concatenate(wanted), np.concatenate(reached)
    if not (apart.any() and put.any()):
        return float(
            apart.any() or put.any()
        )  # all in one place: that shows all there is to show, or nothing
    return kruskal(apart * (float(apart @ put) / float(apart @ apart)), put)


def nearest_neighbour_accuracy(embedded: Array, classes: Array) -> float:
    """How many rows have the class of the row that is nearest, themselves left out."""
    nearest = NearestNeighbors(n_neighbors=1).fit(embedded).kneighbors(return_distance=False)[:, 0]
    return float(np.mean(classes[nearest] == classes))
