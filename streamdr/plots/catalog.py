"""The plot catalog: plots for any model, and those of the registered methods."""

from __future__ import annotations

from collections.abc import Iterator

from streamdr.core.pictures import Picture, Pictured
from streamdr.methods import METHODS
from streamdr.plots.decay import CovarianceSpectrum, KernelSpectrum, eigenvalues
from streamdr.plots.variance import Variances, explained_variance

EIGENVALUES = Picture(
    "eigenvalues",
    "eigenvalues",
    eigenvalues,
    "eigenvalues",
    lambda model: isinstance(model, KernelSpectrum | CovarianceSpectrum),
)
EXPLAINED_VARIANCE = Picture(
    "explained_variance",
    "explained variance",
    explained_variance,
    "explained variances",
    lambda model: isinstance(model, Variances),
)


def registered() -> dict[str, Picture]:
    """Return all plots that need a model only, by name."""
    own = [picture for method in METHODS.values() for picture in _declared(method.model)]
    return {picture.name: picture for picture in (EIGENVALUES, EXPLAINED_VARIANCE, *own)}


def of(model: object) -> Iterator[Picture]:
    """Yield the plots that a model supports, the most informative one first."""
    if isinstance(model, KernelSpectrum):
        yield EIGENVALUES
    if EXPLAINED_VARIANCE.fits(model):
        yield EXPLAINED_VARIANCE
    yield from own(model)


def own(model: object) -> Iterator[Picture]:
    """Return the plots of a model that its method defines."""
    return (picture for picture in _declared(model) if picture.fits(model))


def _declared(model: object) -> tuple[Picture, ...]:
    """Return the plots that a model, or a class of models, declares."""
    return model.pictures if isinstance(model, Pictured) else ()
