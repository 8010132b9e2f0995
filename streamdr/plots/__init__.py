"""The pictures people look at: what components explain, where samples fall, what a component is like."""

from __future__ import annotations

from streamdr.plots.classes import MOST_CLASSES, Labels
from streamdr.plots.decay import CovarianceSpectrum, KernelSpectrum, eigenvalues
from streamdr.plots.isolines import MOST_COMPONENTS, Estimates, Landmarks, Maps, contours, landmarks_of
from streamdr.plots.likelihood import Likelihoods, log_likelihood
from streamdr.plots.scatter import MOST_POINTS, Rows, scores
from streamdr.plots.selection import Searched, has_path, selection_path
from streamdr.plots.shepard import Pairs, shepard
from streamdr.plots.stress_curve import Stresses, stress
from streamdr.plots.variance import Variances, explained_variance

__all__ = [
    "MOST_CLASSES",
    "MOST_COMPONENTS",
    "MOST_POINTS",
    "CovarianceSpectrum",
    "Estimates",
    "KernelSpectrum",
    "Labels",
    "Landmarks",
    "Likelihoods",
    "Maps",
    "Pairs",
    "Rows",
    "Searched",
    "Stresses",
    "Variances",
    "contours",
    "eigenvalues",
    "explained_variance",
    "has_path",
    "landmarks_of",
    "log_likelihood",
    "scores",
    "selection_path",
    "shepard",
    "stress",
]
