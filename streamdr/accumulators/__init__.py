"""Statistics that stream: numpy and scipy alone, one idea a file. The laws run over `ACCUMULATORS`."""

from __future__ import annotations

from streamdr.accumulators.base import Accumulator, copied
from streamdr.accumulators.binned_distances import BinnedDistances
from streamdr.accumulators.class_lengths import ClassLengths
from streamdr.accumulators.class_moments import ClassMoments
from streamdr.accumulators.class_sums import ClassSums
from streamdr.accumulators.columns import Gram, Loadings, Scores
from streamdr.accumulators.distance_products import DistanceProducts
from streamdr.accumulators.folds import ByFold
from streamdr.accumulators.histograms import Histograms
from streamdr.accumulators.joint import JointMoments, JointSums
from streamdr.accumulators.kernel import KernelMoments
from streamdr.accumulators.latent import Latent
from streamdr.accumulators.moments import Moments
from streamdr.accumulators.pairwise import Pairwise
from streamdr.accumulators.picked_distances import PickedDistances
from streamdr.accumulators.products import Products
from streamdr.accumulators.sample import Sample
from streamdr.accumulators.several import Several
from streamdr.accumulators.stress import Stress
from streamdr.accumulators.submatrix import Submatrix
from streamdr.accumulators.survey import Survey
from streamdr.accumulators.visible import Visible

ACCUMULATORS: dict[str, type[Accumulator]] = {
    kind.kind: kind
    for kind in (
        Moments,
        Products,
        Gram,
        Loadings,
        Scores,
        Pairwise,
        Visible,
        Latent,
        Sample,
        Several,
        KernelMoments,
        Survey,
        Submatrix,
        PickedDistances,
        DistanceProducts,
        Stress,
        BinnedDistances,
        ClassMoments,
        ClassLengths,
        ClassSums,
        JointMoments,
        JointSums,
        Histograms,
        ByFold,
    )
}

__all__ = [
    "ACCUMULATORS",
    "Accumulator",
    "BinnedDistances",
    "ByFold",
    "ClassLengths",
    "ClassMoments",
    "ClassSums",
    "DistanceProducts",
    "Gram",
    "Histograms",
    "JointMoments",
    "JointSums",
    "KernelMoments",
    "Latent",
    "Loadings",
    "Moments",
    "Pairwise",
    "PickedDistances",
    "Products",
    "Sample",
    "Scores",
    "Several",
    "Stress",
    "Submatrix",
    "Survey",
    "Visible",
    "copied",
]
