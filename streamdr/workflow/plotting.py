"""A picture of a saved model: which kinds there are, and which of them a model can show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamdr import plots, store
from streamdr.core.addresses import Location
from streamdr.core.blocks import Array, Span
from streamdr.core.pictures import Picture
from streamdr.data import Source, open_source
from streamdr.errors import ConfigError, DataError
from streamdr.plots import catalog
from streamdr.workflow.reports import PlotReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class PlotRequest:
    """What is to be drawn, from which stores, and where to."""

    model: Location
    out: Path
    kind: str | None = None
    """One of `kinds()`; None for what fits the model and the stores that are given."""
    data: Location | None = None
    labels: Location | None = None
    embedding: Location | None = None

    @cached_property
    def saved(self) -> store.SavedModel:
        """The model, loaded and checked."""
        return store.load_model(self.model)

    def given(self) -> dict[str, Location]:
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
class PlotKind:
    """A kind of picture."""

    fits: Callable[[Any], bool]
    """Whether a model can show it."""
    needs: str
    """What such a model has."""
    draw: Callable[[PlotRequest], Figure]
    takes: tuple[str, ...] = ()
    """The stores that it makes use of."""


def _contours(request: PlotRequest) -> Figure:
    model = request.saved.model
    if request.data is None and plots.landmarks_of(model) is None:
        raise ConfigError(f"{request.model}: keeps no rows of its data to show; give some by --data STORE")
    return plots.contours(model, request.out, points=request.data, labels=request.classes())


def _scores(request: PlotRequest) -> Figure:
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


def kinds() -> dict[str, PlotKind]:
    """All kinds of pictures, by name: those of stores beside a model, and those of models alone."""
    beside = {
        "contours": PlotKind(
            lambda model: model.n_features == 2, "exactly two features", _contours, ("data", "labels")
        ),
        "scores": PlotKind(
            lambda model: model.n_outputs > 1, "at least two components", _scores, ("embedding", "labels")
        ),
    }
    alone = {
        picture.name: PlotKind(picture.fits, picture.needs, partial(_drawn, picture))
        for picture in catalog.registered().values()
    }
    return dict(sorted({**beside, **alone}.items()))


def _drawn(picture: Picture, request: PlotRequest) -> Figure:
    return picture.draw(request.saved.model, request.out)


def draw(request: PlotRequest) -> PlotReport:
    """Draw the picture that is asked for, and say what was drawn and where it is."""
    _require_apart(request)
    name = _fitting(request) if request.kind is None else request.kind
    kind = _possible(name, request)
    try:
        kind.draw(request)
    except ImportError as error:
        raise ConfigError(str(error)) from error
    return PlotReport(
        kind=name,
        path=str(request.out),
        bytes=request.out.stat().st_size,
        model=str(request.model),
        method=request.saved.method,
    )


def _fitting(request: PlotRequest) -> str:
    """The kind that says most of this model."""
    model = request.saved.model
    if request.embedding is not None:
        return "scores"
    on_top = request.data is not None or plots.landmarks_of(model) is not None
    if on_top and model.n_features == 2:
        return "contours"
    for picture in catalog.of(model):
        return picture.name
    raise ConfigError(
        f"{request.model}: no picture fits a {request.saved.method} model by itself; "
        "draw its scores by --embedding STORE"
    )


def _possible(name: str, request: PlotRequest) -> PlotKind:
    """The kind, if it exists, the model can show it, and it has a use for what is given."""
    known = kinds()
    if name not in known:
        raise ConfigError(f"--kind {name!r} is not known; the kinds are {', '.join(known)}")
    kind, model = known[name], request.saved.model
    if not kind.fits(model):
        able = ", ".join(other for other in known if known[other].fits(model))
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


def _require_apart(request: PlotRequest) -> None:
    """Refuse to write into what is read: a picture in a store would damage it."""
    for place in (request.model, *request.given().values()):
        if isinstance(place, Path) and Path(realpath(request.out)).is_relative_to(realpath(place)):
            raise ConfigError(f"{request.out}: lies in {place}, which is read; write the picture elsewhere")
