"""Every accumulator of the package obeys the laws, on every kind of hostile data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

import numpy as np
import pytest

import streamdr
from streamdr.core.accumulator import Accumulator
from streamdr.core.blocks import Axis
from streamdr.core.method import Supervised
from streamdr.methods.kernel_pca.features import (
    Features,
    FourierFeatures,
    FunctionColumns,
    KernelColumns,
    StoredColumns,
    Whitened,
)
from streamdr.methods.kernel_pca.kernels import Kernel
from streamdr.methods.kernel_pca.moments import KernelMoments
from streamdr.methods.mds.binned_distances import BinnedDistances
from streamdr.methods.mds.distance_check import DistanceCheck
from streamdr.methods.mds.distance_products import DistanceProducts
from streamdr.methods.mds.distances import PointDistances, StoredDistances
from streamdr.methods.mds.picked_distances import PickedDistances
from streamdr.methods.mds.stress import PairWeights, Stress
from streamdr.methods.mds.submatrix import Submatrix
from streamdr.methods.ppca.holdout import Holdout
from streamdr.methods.ppca.latent import Latent
from streamdr.methods.ppca.observed_counts import ObservedCounts
from streamdr.methods.ppca.pairwise import Pairwise
from streamdr.methods.ppca.posterior import Factors
from streamdr.methods.selection.histograms import Histograms
from streamdr.methods.steps.allele_counts import AlleleCounts
from streamdr.methods.steps.dispersions import Exponentials
from streamdr.statistics.by_class.lengths import ClassLengths
from streamdr.statistics.by_class.moments import ClassMoments
from streamdr.statistics.by_class.sums import ClassSums
from streamdr.statistics.column_products import ColumnProducts, TiledLoadings
from streamdr.statistics.composite import Composite
from streamdr.statistics.gram import Gram, Loadings, Scores
from streamdr.statistics.joint import JointMoments, JointSums
from streamdr.statistics.moments import Moments
from streamdr.statistics.observed import Observed
from streamdr.statistics.products import Products
from streamdr.statistics.row_blocks import BlockProducts
from streamdr.statistics.row_totals import RowTotals
from streamdr.statistics.sample import Sample
from streamdr.statistics.splits import ByFold
from streamdr.testing import HOSTILE, MISSING, check_accumulator, check_bounded, check_passes, hostile_data

N, D, K = 37, 6, 3
AXES: dict[str, Axis] = {
    "moments": "rows",
    "products": "rows",
    "block_products": "rows",
    "gram": "columns",
    "loadings": "columns",
    "column products": "columns",
    "tiled loadings": "columns",
    "scores": "columns",
    "pairwise": "rows",
    "visible": "rows",
    "latent": "rows",
    "sample": "rows",
    "several": "rows",
    "kernel_moments": "rows",
    "class_moments": "rows",
    "class_lengths": "rows",
    "class_sums": "rows",
    "joint_moments": "rows",
    "joint_sums": "rows",
    "histograms": "rows",
    "by_fold": "rows",
    "distance_products": "rows",
    "stress": "rows",
    "binned_distances": "rows",
    "submatrix": "rows",
    "picked_distances": "rows",
    "survey": "rows",
    "pair_descent": "rows",
    "observed": "rows",
    "row totals": "rows",
    "exponentials": "rows",
    "allele counts": "rows",
}
NO_DATA = ("survey", "pair_descent")
"""Accumulators of distance matrices only, and of rounds of a descent: they have separate tests."""
KINDS = [kind for kind in AXES if kind not in NO_DATA]
LABELS = {
    "numbers": np.random.default_rng(5).integers(0, 3, size=N).astype(float),
    "text": np.random.default_rng(6).choice(["a", "bcd", "ef"], size=N),
    "sorted": np.sort(np.random.default_rng(7).integers(-1, 2, size=N)).astype(float),
    "one class": np.full(N, 2.5),
}
LABELLED = (
    "class_moments",
    "class_lengths",
    "class_sums",
    "joint_moments",
    "joint_sums",
    "histograms",
    "by_fold",
)
"""Accumulators that use labels."""
ALLOW_NAN = (
    *("pairwise", "visible", "latent", "sample", "several", "observed"),
    *("exponentials", "allele counts"),
)
TAKEN: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exponentials": lambda data: np.log1p(np.abs(data)),
    "allele counts": lambda data: np.mod(np.abs(data), 2),
}
"""The values that accumulators of logged counts, and of numbers of alleles, take."""
HOLDOUT = Holdout(0.2, seed=4)


def factors(data: np.ndarray, k: int) -> Factors:
    """Factors near those of the data: its principal axes, and a fraction of its variance as noise.

    Missing values are replaced by means. Rounding errors of the data are amplified in the latent variables by
    the ratio of signal to noise, whatever the order of the sums. The laws test sums, so the noise must not be
    small relative to the signal.
    """
    rows = data.astype(np.float64)
    observed = np.isfinite(rows)
    counts = observed.sum(axis=0)
    mean = np.where(observed, rows, 0.0).sum(axis=0) / np.where(counts > 0, counts, np.nan)
    centred = np.where(observed, rows - mean, 0.0)
    values, vectors = np.linalg.eigh(centred.T @ centred / len(rows))
    loadings = vectors[:, -k:] * np.sqrt(np.maximum(values[-k:], 0.0))
    return Factors(mean, loadings, 0.3 * float(values.mean()))


def amplification(empty: Accumulator, data: np.ndarray) -> float:
    """The relative rounding error of a summand, in eps: 1 but for mixtures.

    Rows of a mixture are weighted by responsibilities exp(l). The absolute error of l is the eps of its
    largest term, r'r / (2 noise), where r is the residual of a row.
    """
    if not (isinstance(empty, Latent) and len(empty.factors) > 1):
        return 1.0
    terms = [np.nansum((data - one.mean) ** 2, axis=1).max() / (2 * one.noise) for one in empty.factors]
    return max(1.0, *map(float, terms))


def zeros_amplification(empty: Accumulator, data: np.ndarray) -> float:
    """The relative rounding error of a summand where zeros are beside the data: 1 but for kernels.

    The absolute error of an exponential or a cosine is that of its argument, in which zeros are as far from
    the data as the data is from zero, in units of its spread.
    """
    if not isinstance(empty, KernelMoments):
        return 1.0
    rows = data.astype(np.float64)
    spread = float(np.sqrt(rows.var(axis=0).sum())) or 1.0
    return max(1.0, float(np.abs(rows).max()) / spread) ** 2


def examples(kind: str, data: np.ndarray) -> Sequence[Accumulator]:
    rng = np.random.default_rng(1)
    tall, wide = rng.normal(size=(D, K)), rng.normal(size=(N, K))
    wide -= wide.mean(axis=0)  # like the eigenvectors of centred products
    one, two, three = (factors(data, k) for k in (K, 1, 2))
    made: dict[str, Callable[[], Sequence[Accumulator]]] = {
        "moments": lambda: [Moments(D), Moments(D, double=True)],
        "products": lambda: [Products(tall), Products(tall, squares=False), Products(tall, double=True)],
        "gram": lambda: [Gram(N), Gram(N, scale=True), Gram(N, double=True)],
        "loadings": lambda: [Loadings(wide), Loadings(wide, scale=True)],
        "column products": lambda: [ColumnProducts(wide), ColumnProducts(wide, scale=True)],
        "tiled loadings": lambda: [TiledLoadings(wide), TiledLoadings(wide, scale=True)],
        "scores": lambda: [Scores(N, rng.normal(size=D), tall)],
        "pairwise": lambda: [Pairwise(D), Pairwise(D, HOLDOUT)],
        "visible": lambda: [ObservedCounts(D, HOLDOUT), ObservedCounts(D, Holdout(0.9, 3, (0, 2)))],
        "latent": lambda: [
            Latent([one]),
            Latent([two]),
            Latent([one, two, three], np.array([0.5, 0.2, 0.3])),
            Latent([one], holdout=HOLDOUT),
        ],
        "exponentials": lambda: [Exponentials(D)],
        "allele counts": lambda: [AlleleCounts(D)],
        "observed": lambda: [Observed(D), Observed(D, moments=True)],
        "row totals": lambda: [RowTotals(), RowTotals(most=8), RowTotals(1.0, 1e8, most=3)],
        "sample": lambda: [Sample(D, 5), Sample(D, 5, seed=1), Sample(D, 2 * N)],
        "several": lambda: [
            Composite([Pairwise(D), Latent([one]), Latent([two], holdout=HOLDOUT), Sample(D, 4)]),
            Composite(
                [Sample(D, 1, seed) for seed in range(12)]
            ),  # more than ten, so that some numbers are prefixes of others
        ],
        "kernel_moments": lambda: kernel_examples(data, rng),
        "class_moments": lambda: [
            ClassMoments(D),
            ClassMoments(D, pooled=False),
            ClassMoments(D, double=True),
            ClassMoments(D, pooled=False, double=True),
        ],
        "class_sums": lambda: [ClassSums(D), ClassSums(D, double=True)],
        "joint_moments": lambda: [JointMoments(D + 1), JointMoments(D + 1, double=True)],
        "joint_sums": lambda: [JointSums(D), JointSums(D, double=True)],
        "histograms": lambda: [
            histograms(data),
            histograms(data, n_folds=3, seed=1),
            histograms(data, target=np.array([0.5, 1.5]), n_folds=2),
        ],
        "by_fold": lambda: [ByFold(ClassMoments(D), 3), ByFold(JointMoments(D + 1), 4, seed=1)],
        "block_products": lambda: [
            BlockProducts(tall, 5),
            BlockProducts(tall, 1, double=True),
            BlockProducts(tall, 2 * N),
        ],
        "class_lengths": lambda: [lengths(data, LABELS["numbers"])],
        "distance_products": lambda: [
            DistanceProducts(PointDistances(metric, data.astype(float)), wide)
            for metric in ("euclidean", "cityblock", "cosine")
        ],
        "stress": lambda: [
            Stress(PointDistances("euclidean", data.astype(float)), wide, PairWeights(stress))
            for stress in ("normalized", "relative", "sammon")
        ],
        "binned_distances": lambda: [binned(PointDistances("cityblock", data.astype(float)), data, wide)],
        "submatrix": lambda: [
            Submatrix(np.array([0, 3, N - 1]), np.array([4, 1])),
            Submatrix(np.arange(N), np.array([2])),
        ],
        "picked_distances": lambda: [PickedDistances(rng.integers(0, D, (N, 3)))],
    }
    return made[kind]()


def binned(distances: Any, data: np.ndarray, embedding: np.ndarray) -> BinnedDistances:
    """An accumulator with bins between quantiles of the distances."""
    edges = np.unique(np.quantile(distances.between(data.astype(float)), [0.2, 0.3, 0.7]))
    return BinnedDistances(distances, embedding, PairWeights("normalized"), edges)


def lengths(data: np.ndarray, labels: np.ndarray) -> ClassLengths:
    """An accumulator about the means of classes and of all rows, in units of standard deviations."""
    rows, classes = data.astype(np.float64), np.unique(labels)
    groups = [rows[labels == label] for label in classes] + [rows]
    origins = np.array([group[0] for group in groups])
    offsets = np.array([(group - group[0]).mean(axis=0) for group in groups])
    deviations = np.array([(group - group[0]).std(axis=0) for group in groups])
    return ClassLengths(classes, origins, offsets, np.where(deviations > 0, deviations, 1.0))


def histograms(data: np.ndarray, **settings: Any) -> Histograms:
    """An accumulator with quantile bins for every other column; the others are discrete, with new values."""
    rows = data.astype(np.float64)
    discrete = np.arange(D) % 2 == 1
    points = [
        np.unique(column[::5]) if own else np.unique(np.quantile(column, [0.3, 0.6]))
        for column, own in zip(rows.T, discrete, strict=True)
    ]
    return Histograms(points, discrete, **settings)


def reciprocal(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """A user-defined kernel."""
    return 1.0 / (1.0 + np.abs(left[:, :1].astype(np.float64) - right[:, 0]))


def kernel_examples(data: np.ndarray, rng: np.random.Generator) -> list[Accumulator]:
    """Kernels of the rows with a few of them, about their means.

    The widths are those of the data: the sums of a nearly constant kernel would consist of rounding errors.
    """
    rows = data.astype(np.float64)
    middle, some = rows.mean(axis=0), rows[::8]
    width = float(rows.var(axis=0).sum()) or 1.0
    rbf, wide = Kernel("rbf", 1 / width), Kernel("rbf", 0.3 / width)
    laplacian = Kernel("laplacian", 1 / np.sqrt(width))
    several = KernelColumns([rbf, laplacian, wide], some, middle)
    one = KernelColumns([rbf], some, middle)
    whitened = Whitened(one, rng.normal(size=(len(some), K)))
    waves = FourierFeatures.drawn(rbf, K, middle, rng)
    own = FunctionColumns(reciprocal, some)
    return [
        KernelMoments(one, means(one, rows)),
        KernelMoments(several, means(several, rows), folds=3),
        KernelMoments(whitened, means(whitened, rows), double=True),
        KernelMoments(waves, means(waves, rows)),
        KernelMoments(own, means(own, rows)),
    ]


def means(features: Features, rows: np.ndarray) -> list[np.ndarray]:
    outs = [np.empty((len(rows), width)) for width in features.widths]
    features.fill(rows, outs)
    return [out[::2].mean(axis=0) for out in outs]


def accumulators() -> set[type[Accumulator]]:
    """All accumulators that the package defines."""
    found = walk_packages(streamdr.__path__, "streamdr.")
    homes = [each.name for each in found if each.name.startswith(("streamdr.statistics", "streamdr.methods"))]
    values = {id(value): value for name in homes for value in vars(import_module(name)).values()}.values()
    return {each for each in values if isinstance(each, type) and isinstance(vars(each).get("kind"), str)}


def test_every_accumulator_has_an_example_here_or_belongs_to_a_method():
    found = {kind for kind in accumulators() if hasattr(kind, "merge")}
    own = {kind for kind in found if kind.kind not in AXES}
    assert AXES.keys() == {kind.kind for kind in found - own}
    assert {kind.__module__.split(".")[1] for kind in own} <= {"methods"}


@pytest.mark.parametrize("kind_of_data", HOSTILE)
def test_laws_of_every_accumulator_without_an_example_here(kind_of_data):
    """Examples of its method must request it."""
    data, checked = hostile_data(kind_of_data, N, D), set[str]()
    own = {kind for kind in accumulators() if hasattr(kind, "merge") and kind.kind not in AXES}
    for family in {kind.__module__.split(".")[2] for kind in own}:
        for method in import_module(f"streamdr.methods.{family}").METHODS:
            for example in method.examples():
                labels = LABELS["numbers"] if isinstance(example, Supervised) else None
                checked |= check_passes(example, data, labels=labels)
    assert checked >= {kind.kind for kind in own}


def test_accumulators_that_allow_missing_values_are_the_listed_ones():
    data = hostile_data("kind", N, D)
    assert {kind for kind in KINDS if all(one.allow_nan for one in examples(kind, data))} == {*ALLOW_NAN}
    assert not Composite([Pairwise(D), Moments(D)]).allow_nan, (
        "a composite does not allow missing values if one of its parts does not"
    )


def data_for(kind: str, kind_of_data: str, missing: str | None = None) -> np.ndarray:
    """Hostile data, as an accumulator takes it."""
    data = hostile_data(kind_of_data, N, D, missing=missing)
    return TAKEN[kind](data) if kind in TAKEN else data


@pytest.mark.parametrize("kind_of_data", HOSTILE)
@pytest.mark.parametrize("kind", KINDS)
def test_laws(kind, kind_of_data):
    data = data_for(kind, kind_of_data)
    for empty in examples(kind, data):
        check_accumulator(
            empty,
            data,
            axis=AXES[kind],
            labels=labels_for(kind),
            amplification=amplification(empty, data),
            zeros_amplification=zeros_amplification(empty, data),
        )


def labels_for(kind: str) -> np.ndarray | None:
    return LABELS["numbers"] if kind in LABELLED else None


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("kind_of_data", HOSTILE)
def test_laws_of_classes(kind_of_data, labels):
    data = hostile_data(kind_of_data, N, D)
    by_fold = [ByFold(ClassMoments(D), 3), ByFold(histograms(data), 2)]
    others = [*examples("class_sums", data), *examples("histograms", data)[:2], *by_fold]
    for empty in [*examples("class_moments", data), lengths(data, LABELS[labels]), *others]:
        check_accumulator(empty, data, labels=LABELS[labels])


@pytest.mark.parametrize("kind_of_data", HOSTILE)
def test_laws_with_a_numeric_target(kind_of_data):
    data, rng = hostile_data(kind_of_data, N, D), np.random.default_rng(8)
    for target in (rng.normal(size=N) + 1e6, 1e-3 * data[:, 0].astype(float)):
        cut = histograms(data, target=np.unique(np.quantile(target, [0.2, 0.5])))
        kinds = [*examples("joint_moments", data), *examples("joint_sums", data), cut]
        for empty in [*kinds, ByFold(JointMoments(D + 1), 3), Sample(D, 5, labelled=True)]:
            check_accumulator(empty, data, labels=target)


@pytest.mark.parametrize("kind_of_data", HOSTILE)
def test_laws_of_a_stored_kernel(kind_of_data):
    data = hostile_data(kind_of_data, N, N)
    few = np.array([0, 3, 30])
    moments = KernelMoments(StoredColumns(few), [data[:, few].mean(axis=0, dtype=float)])
    check_accumulator(moments, data, zeros_amplification=zeros_amplification(moments, data))


def distance_accumulators(data: np.ndarray, *, allow_nan: bool) -> list[Accumulator]:
    """The accumulators of a distance matrix: the check, products, sums over pairs, and submatrices."""
    rng = np.random.default_rng(1)
    embedding = rng.normal(size=(N, K))
    stored, pairs = StoredDistances(N), np.sort(np.stack(np.triu_indices(N, 1), axis=1)[::5], axis=0)
    weights, matrix = rng.uniform(0.5, 2, N), rng.uniform(0, 2, (N, N))
    edges = np.unique(np.nanquantile(data, [0.2, 0.3, 0.7]))
    both: list[Accumulator] = [
        DistanceCheck(N, pairs, allow_nan=allow_nan),
        Stress(stored, embedding, PairWeights("normalized"), allow_nan=allow_nan),
        Stress(stored, embedding, PairWeights("relative", weights), allow_nan=allow_nan),
        Stress(stored, embedding, PairWeights("sammon", pairs=matrix + matrix.T), allow_nan=allow_nan),
        BinnedDistances(stored, embedding, PairWeights("normalized", weights), edges, allow_nan=allow_nan),
        Submatrix(np.array([0, 3, N - 1]), np.arange(N), allow_nan=allow_nan),
        PickedDistances(rng.integers(0, N, (N, 4)), allow_nan=allow_nan),
    ]
    return both if allow_nan else [*both, DistanceProducts(stored, embedding)]


def distances(kind_of_data: str) -> np.ndarray:
    rows = hostile_data(kind_of_data, N, D).astype(float)
    return PointDistances("euclidean", rows).between(rows)


@pytest.mark.parametrize("dtype", ["f8", "f4", ">f8"])
@pytest.mark.parametrize("kind_of_data", HOSTILE)
def test_laws_of_stored_distances(kind_of_data, dtype):
    data = distances(kind_of_data).astype(dtype)
    for empty in distance_accumulators(data, allow_nan=False):
        check_accumulator(empty, data)
        check_bounded(empty, data)


@pytest.mark.parametrize("share", [0.1, 0.9])
@pytest.mark.parametrize("kind_of_data", HOSTILE)
def test_laws_of_stored_distances_with_missing_values(kind_of_data, share):
    data = distances(kind_of_data)
    missing_pairs = np.triu(np.random.default_rng(2).random((N, N)) < share, 1)
    data[missing_pairs | missing_pairs.T] = np.nan
    for empty in distance_accumulators(data, allow_nan=True):
        assert empty.allow_nan
        check_accumulator(empty, data)


def test_laws_of_stored_distances_with_weights():
    data, weights = distances("kind"), np.random.default_rng(2).integers(1, 4, size=N).astype(float)
    for empty in distance_accumulators(data, allow_nan=False):
        check_accumulator(empty, data, weights=weights)


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("kind_of_data", HOSTILE)
@pytest.mark.parametrize("kind", ALLOW_NAN)
def test_laws_with_missing_values(kind, kind_of_data, missing):
    data = data_for(kind, kind_of_data, missing)
    for empty in examples(kind, data):
        check_accumulator(empty, data, amplification=amplification(empty, data))


@pytest.mark.parametrize("kind", KINDS)
def test_laws_with_weights(kind):
    weights = np.random.default_rng(2).integers(0, 4, size=N).astype(float)
    data = data_for(kind, "kind")
    for empty in examples(kind, data):
        check_accumulator(empty, data, axis=AXES[kind], weights=weights, labels=labels_for(kind))


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("kind", ALLOW_NAN)
def test_laws_with_weights_and_missing_values(kind, missing):
    weights = np.random.default_rng(2).integers(0, 4, size=N).astype(float)
    data = data_for(kind, "big offset", missing)
    for empty in examples(kind, data):
        check_accumulator(empty, data, weights=weights, amplification=amplification(empty, data))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "loadings" not in kind])
def test_state_is_bounded(kind):
    data = data_for(kind, "kind")
    for empty in examples(kind, data):
        if not (isinstance(empty, Sample) and empty.size > N):  # it is not full yet
            check_bounded(empty, data, axis=AXES[kind], labels=labels_for(kind))
