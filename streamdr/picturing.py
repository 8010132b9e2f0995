"""A picture of a saved model: which kinds there are, and which of them a model can show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamdr import plots, store
from streamdr.addresses import Place
from streamdr.blocks import Array, Span
from streamdr.errors import ConfigError, DataError
from streamdr.reports import Report
from streamdr.sources import Source, open_source

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Request:
    """What is to be drawn, from which stores, and where to."""

    model: Place
    out: Path
    kind: str | None = None
    """One of `KINDS`; None for what fits the model and the stores that are given."""
    data: Place | None = None
    labels: Place | None = None
    embedding: Place | None = None

    @cached_property
    def saved(self) -> store.SavedModel:
        """The model, loaded and checked."""
        return store.load_model(self.model)

    def given(self) -> dict[str, Place]:
        """The stores beside the model, by the names of their options."""
        stores = {"data": self.data, "labels": self.labels, "embedding": self.embedding}
        return {name: place for name, place in stores.items() if place is not None}

    def classes(self) -> plots.Labels | None:
        """The labels of the rows that are drawn, if there are any."""
        if self.labels is None:
            return None
        # zarr does not write chunks of zeros, and one of the classes is often called 0.
        return _Column(open_source(self.labels, allow_missing_chunks=True))


class _Column:
    """One label a row, read when they are asked for."""

    def __init__(self, source: Source) -> None:
        if source.spec.n_cols != 1:
            raise DataError(f"{source.name}: has {source.spec.n_cols:,} columns; labels are one number a row")
        source.validate()
        self._source = source

    def __len__(self) -> int:
        return self._source.spec.n_rows

    def __getitem__(self, part: slice) -> Array:
        return self._source.read(Span(*part.indices(len(self))[:2]), Span(0, 1))[:, 0]


@dataclass(frozen=True)
class Kind:
    """A kind of picture."""

    fits: Callable[[Any], bool]
    """Whether a model can show it."""
    needs: str
    """What such a model has."""
    draw: Callable[[Request], Figure]
    takes: tuple[str, ...] = ()
    """The stores that it makes use of."""


def _contours(request: Request) -> Figure:
    model = request.saved.model
    if request.data is None and plots.landmarks_of(model) is None:
        raise ConfigError(f"{request.model}: keeps no rows of its data to show; give some by --data STORE")
    return plots.contours(model, request.out, points=request.data, labels=request.classes())


def _scores(request: Request) -> Figure:
    if request.embedding is None:
        raise ConfigError(
            "scores are read from an embedding; give the one that was written by --embedding STORE"
        )
    n_columns, n_outputs = store.open_embedding(request.embedding).shape[1], request.saved.model.n_outputs
    if n_columns != n_outputs:
        raise DataError(
            f"{request.embedding}: has {n_columns:,} columns, but {request.model} gives {n_outputs:,}; "
            "give the embedding that this model wrote"
        )
    return plots.scores(request.embedding, request.classes(), request.out)


KINDS = {
    "contours": Kind(
        lambda model: model.n_features == 2, "exactly two features", _contours, ("data", "labels")
    ),
    "eigenvalues": Kind(
        lambda model: isinstance(model, plots.KernelSpectrum | plots.CovarianceSpectrum),
        "eigenvalues",
        lambda request: plots.eigenvalues(request.saved.model, request.out),
    ),
    "explained_variance": Kind(
        lambda model: isinstance(model, plots.Variances),
        "explained variances",
        lambda request: plots.explained_variance(request.saved.model, request.out),
    ),
    "log_likelihood": Kind(
        lambda model: isinstance(model, plots.Likelihoods) and len(model.log_likelihoods) > 0,
        "likelihoods of iterations",
        lambda request: plots.log_likelihood(request.saved.model, request.out),
    ),
    "scores": Kind(
        lambda model: model.n_outputs > 1, "at least two components", _scores, ("embedding", "labels")
    ),
    "selection_path": Kind(
        plots.has_path,
        "a path of subsets",
        lambda request: plots.selection_path(request.saved.model, request.out),
    ),
    "shepard": Kind(
        lambda model: isinstance(model, plots.Pairs) and len(model.shepard_distances) > 0,
        "distances of pairs",
        lambda request: plots.shepard(request.saved.model, request.out),
    ),
    "stress": Kind(
        lambda model: isinstance(model, plots.Stresses) and len(model.stress_history) > 0,
        "stresses of iterations",
        lambda request: plots.stress(request.saved.model, request.out),
    ),
}


def draw(request: Request) -> Report:
    """Draw the picture that is asked for, and say what was drawn and where it is."""
    _require_apart(request)
    name = _fitting(request) if request.kind is None else request.kind
    kind = _possible(name, request)
    try:
        kind.draw(request)
    except ImportError as error:
        raise ConfigError(str(error)) from error
    return {
        "command": "plot",
        "kind": name,
        "path": str(request.out),
        "bytes": request.out.stat().st_size,
        "model": str(request.model),
        "method": request.saved.method,
    }


def _fitting(request: Request) -> str:
    """The kind that says most of this model."""
    model = request.saved.model
    if request.embedding is not None:
        return "scores"
    on_top = request.data is not None or plots.landmarks_of(model) is not None
    if on_top and KINDS["contours"].fits(model):
        return "contours"
    if isinstance(model, plots.KernelSpectrum):
        return "eigenvalues"
    for name in ("explained_variance", "log_likelihood", "selection_path", "shepard"):
        if KINDS[name].fits(model):
            return name
    raise ConfigError(
        f"{request.model}: no picture fits a {request.saved.method} model by itself; "
        "draw its scores by --embedding STORE"
    )


def _possible(name: str, request: Request) -> Kind:
    """The kind, if it exists, the model can show it, and it has a use for what is given."""
    if name not in KINDS:
        raise ConfigError(f"--kind {name!r} is not known; the kinds are {', '.join(KINDS)}")
    kind, model = KINDS[name], request.saved.model
    if not kind.fits(model):
        able = ", ".join(other for other in KINDS if KINDS[other].fits(model))
        raise ConfigError(
            f"{request.model}: {name} needs a model with {kind.needs}, and this one ({request.saved.method}, "
            f"{model.n_features:,} to {model.n_outputs:,} columns) has not; it can show {able or 'nothing'}"
        )
    for option in request.given():
        if option not in kind.takes:
            raise ConfigError(f"--{option} has no use in a picture of {name}; leave it out")
    if request.labels is not None and not (request.data or request.embedding):
        raise ConfigError(f"--labels without the rows they belong to; give --{kind.takes[0]} as well")
    return kind


def _require_apart(request: Request) -> None:
    """Refuse to write into what is read: a picture in a store would damage it."""
    for place in (request.model, *request.given().values()):
        if isinstance(place, Path) and Path(realpath(request.out)).is_relative_to(realpath(place)):
            raise ConfigError(f"{request.out}: lies in {place}, which is read; write the picture elsewhere")
