"""Statistics that stream: numpy only, one idea a file. `ACCUMULATORS` is what the laws run over."""

from __future__ import annotations

from streamdr.accumulators.base import Accumulator, copied
from streamdr.accumulators.class_lengths import ClassLengths
from streamdr.accumulators.class_moments import ClassMoments
from streamdr.accumulators.class_sums import ClassSums
from streamdr.accumulators.columns import Gram, Loadings, Scores
from streamdr.accumulators.folds import ByFold
from streamdr.accumulators.histograms import Histograms
from streamdr.accumulators.joint import JointMoments, JointSums
from streamdr.accumulators.kernel import KernelMoments
from streamdr.accumulators.latent import Latent
from streamdr.accumulators.moments import Moments
from streamdr.accumulators.pairwise import Pairwise
from streamdr.accumulators.products import Products
from streamdr.accumulators.sample import Sample
from streamdr.accumulators.several import Several

ACCUMULATORS: dict[str, type[Accumulator]] = {
    kind.kind: kind
    for kind in (
        Moments,
        Products,
        Gram,
        Loadings,
        Scores,
        Pairwise,
        Latent,
        Sample,
        Several,
        KernelMoments,
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
    "ByFold",
    "ClassLengths",
    "ClassMoments",
    "ClassSums",
    "Gram",
    "Histograms",
    "JointMoments",
    "JointSums",
    "KernelMoments",
    "Latent",
    "Loadings",
    "Moments",
    "Pairwise",
    "Products",
    "Sample",
    "Scores",
    "Several",
    "copied",
]
