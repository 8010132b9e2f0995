"""The output in an AnnData store: which entries a run will write, and what they contain."""

from __future__ import annotations

from collections.abc import Iterator

from streamdr.config import Run
from streamdr.core.addresses import parse_location
from streamdr.core.annotations import Annotations, annotated_by, annotations_of
from streamdr.core.blocks import Array, Span
from streamdr.core.method import Method
from streamdr.data import Source
from streamdr.methods.chain import Chain
from streamdr.store import Backend, SavedModel
from streamdr.store.anndata import AnnDataBackend, AnnDataContents, open_anndata

KIND = "anndata"
_NAMES_AT_ONCE = 1 << 16


def anndata_output(run: Run) -> Backend:
    """Return the backend of the scores in the AnnData store of a configuration."""
    assert run.output.anndata is not None
    return open_anndata(
        parse_location(run.output.anndata),
        _last(run.method).name,
        annotated_by(run.method.model),
        replaces_foreign=run.output.overwrite,
    )


def _last(method: Method) -> Method:
    """Return the method that makes the scores."""
    return method.steps[-1] if isinstance(method, Chain) else method


def with_contents(output: Backend, saved: SavedModel, source: Source) -> Backend:
    """Return an output with what is written besides its rows, if it is an AnnData store."""
    if not isinstance(output, AnnDataBackend):
        return output
    annotations, axes = annotations_of(saved.model), saved.axes
    if axes is not None:
        annotations = annotations.scattered(axes.columns, axes.n_features)
    return output.holding(_contents(source, annotations))


def require_observations(output: Backend, source: Source) -> None:
    """Refuse an AnnData store of other observations than the rows, before anything is fitted."""
    if isinstance(output, AnnDataBackend):
        names = (one.values for one in source.sample_coords if one.values.spec.dtype.kind == "U")
        output.require_observations(_contents(source), source.spec.n_rows, _pieces(next(names, None)))


def _contents(source: Source, annotations: Annotations | None = None) -> AnnDataContents:
    """Return what is known of the observations and the variables of a source."""
    taken = source.rows_taken
    return AnnDataContents(
        annotations=annotations or Annotations(),
        n_variables=source.spec.n_cols,
        feature_names=source.feature_names,
        n_stored_rows=source.spec.n_rows if taken is None else taken.n_rows,
        row_numbers=None if taken is None else taken.numbers,
    )


def _pieces(names: Source | None) -> Iterator[Array]:
    """Yield names, some at a time."""
    if names is not None:
        for rows in Span(0, names.spec.n_rows).split(_NAMES_AT_ONCE):
            yield names.read(rows, Span(0, 1))[:, 0]
