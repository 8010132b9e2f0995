"""Plots of a saved model: which kinds exist, and which of them a model supports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING

from streamdr import plots, store
from streamdr.core.addresses import Location
from streamdr.core.blocks import Array, Span
from streamdr.core.pictures import Picture
from streamdr.data import Source
from streamdr.data.open import open_labels
from streamdr.errors import ConfigError, DataError
from streamdr.methods.chain import ChainModel
from streamdr.plots import catalog
from streamdr.plots.mapped import has_maps
from streamdr.workflow.reports import PlotReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class PlotRequest:
    """A request for a plot: the kind, the stores that it reads, and the file to write."""

    model: Location
    out: Path
    kind: str | None = None
    """One of `kinds()`; None for the kind that suits the model and the given stores."""
    data: Location | None = None
    labels: Location | None = None
    embedding: Location | None = None

    @cached_property
    def saved(self) -> store.SavedModel:
        """The model, loaded and checked."""
        return store.load_model(self.model)

    def given(self) -> dict[str, Location]:
        """Return the stores that are given besides the model, by the names of their options."""
        stores = {"data": self.data, "labels": self.labels, "embedding": self.embedding}
        return {name: place for name, place in stores.items() if place is not None}

    def classes(self) -> plots.Labels | None:
        """Return the labels of the rows that are drawn, if there are any."""
        if self.labels is None:
            return None
        # zarr does not write chunks of zeros, and 0 is a common label.
        return _Column(open_labels(self.labels, allow_missing_chunks=True))


class _Column:
    """One label per row, read on access."""

    def __init__(self, source: Source) -> None:
        if source.spec.n_cols != 1:
            raise DataError(
                f"{source.name}: has {source.spec.n_cols:,} columns; labels need one value per row"
            )
        source.validate()
        self._source = source

    def __len__(self) -> int:
        return self._source.spec.n_rows

    def __getitem__(self, part: slice) -> Array:
        return self._source.read(Span(*part.indices(len(self))[:2]), Span(0, 1))[:, 0]


@dataclass(frozen=True)
class PlotKind:
    """A kind of picture."""

    fits: Callable[[store.SavedModel], bool]
    """Whether a saved model supports it."""
    needs: str
    """What a model needs for it, in words."""
    draw: Callable[[PlotRequest], Figure]
    takes: tuple[str, ...] = ()
    """The stores that it uses, by the names of their options."""


def _contours(request: PlotRequest) -> Figure:
    model = request.saved.model
    if request.data is None and plots.landmarks_of(model) is None:
        raise ConfigError(f"{request.model}: keeps no rows of its data; give rows to show with --data STORE")
    return plots.contours(model, request.out, points=request.data, labels=request.classes())


def _maps(request: PlotRequest) -> Figure:
    return plots.maps(request.saved.last, request.out)


def _scores(request: PlotRequest) -> Figure:
    return plots.scores(_own_embedding(request), request.classes(), request.out)


def _series(request: PlotRequest) -> Figure:
    return plots.series(_own_embedding(request), request.out, model=request.saved.last)


def _own_embedding(request: PlotRequest) -> Location:
    """Return the place of the embedding, which must have as many columns as the model gives."""
    if request.embedding is None:
        raise ConfigError("scores are read from an embedding; give it with --embedding STORE")
    n_columns, n_outputs = store.open_embedding(request.embedding).shape[1], request.saved.model.n_outputs
    if n_columns != n_outputs:
        raise DataError(
            f"{request.embedding}: has {n_columns:,} columns, but {request.model} gives {n_outputs:,}; "
            "give the embedding that this model wrote"
        )
    return request.embedding


def kinds() -> dict[str, PlotKind]:
    """Return all kinds of plots, by name: those that read further stores, and those of a model alone."""
    beside = {
        "contours": PlotKind(
            lambda saved: saved.model.n_features == 2, "exactly two features", _contours, ("data", "labels")
        ),
        "maps": PlotKind(
            lambda saved: has_maps(saved.last.model, saved.last.axes),
            "components over labelled features, from an input with dimensions",
            _maps,
        ),
        "scores": PlotKind(
            lambda saved: saved.model.n_outputs > 1,
            "at least two components",
            _scores,
            ("embedding", "labels"),
        ),
        "series": PlotKind(lambda saved: True, "an embedding", _series, ("embedding",)),
    }
    alone = {
        picture.name: PlotKind(
            partial(_picture_fits, picture), picture.needs, partial(_draw_picture, picture)
        )
        for picture in catalog.registered().values()
    }
    return dict(sorted({**beside, **alone}.items()))


def _picture_fits(picture: Picture, saved: store.SavedModel) -> bool:
    return picture.fits(saved.last.model)


def _draw_picture(picture: Picture, request: PlotRequest) -> Figure:
    return picture.draw(request.saved.last.model, request.out)


def draw(request: PlotRequest) -> PlotReport:
    """Draw the requested plot, and return what was drawn and where it is."""
    _require_outside_stores(request)
    name = _default_kind(request) if request.kind is None else request.kind
    kind = _checked_kind(name, request)
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


def _default_kind(request: PlotRequest) -> str:
    """Return the most informative kind for this model."""
    model = request.saved.model
    if request.embedding is not None:
        return "scores" if model.n_outputs > 1 else "series"
    has_points = request.data is not None or plots.landmarks_of(model) is not None
    if has_points and model.n_features == 2:
        return "contours"
    for picture in catalog.of(request.saved.last.model):
        return picture.name
    raise ConfigError(
        f"{request.model}: there is no plot of a {request.saved.method} model alone; "
        "draw its scores with --embedding STORE"
    )


def _checked_kind(name: str, request: PlotRequest) -> PlotKind:
    """Return the kind, if it exists, the model supports it, and it uses all the given stores."""
    available = kinds()
    if name not in available:
        raise ConfigError(f"--kind {name!r} does not exist; the kinds are {', '.join(available)}")
    kind, saved = available[name], request.saved
    model = saved.model
    if not kind.fits(saved):
        able = ", ".join(other for other in available if available[other].fits(saved))
        raise ConfigError(
            f"{request.model}: {name} needs a model with {kind.needs}, and this one ({request.saved.method}, "
            f"{model.n_features:,} to {model.n_outputs:,} columns) has not; it supports {able or 'nothing'}"
            f"{_steps_with(kind, request)}"
        )
    for option in request.given():
        if option not in kind.takes:
            raise ConfigError(f"--{option} is not used by plots of {name}; leave it out")
    if request.labels is not None and not (request.data or request.embedding):
        raise ConfigError(f"--labels is given without its rows; give --{kind.takes[0]} as well")
    return kind


def _steps_with(kind: PlotKind, request: PlotRequest) -> str:
    """Return which models of a chain a kind fits, for a message: each is a model of its own in the store."""
    if not isinstance(request.saved.model, ChainModel):
        return ""
    members = zip(request.saved.model.names, request.saved.members, strict=True)
    found = [f"{request.model}/{name}" for name, member in members if kind.fits(member)]
    return f"; give the model of a step: {', '.join(found)}" if found else ""


def _require_outside_stores(request: PlotRequest) -> None:
    """Refuse to write a plot into a store that is read, because that would damage the store."""
    for place in (request.model, *request.given().values()):
        if isinstance(place, Path) and Path(realpath(request.out)).is_relative_to(realpath(place)):
            raise ConfigError(
                f"{request.out}: lies inside {place}, which is read; write the picture elsewhere"
            )
