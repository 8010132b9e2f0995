"""Count matrices of 10x Genomics (`.h5`): genes x cells by columns, which are the rows of cells x genes."""

from __future__ import annotations

from collections import Counter

from streamdr.core.blocks import Span
from streamdr.data.source import SampleCoordinate, Source
from streamdr.data.sparse.groups import StoredGroup
from streamdr.data.sparse.matrix import checked_shape, require_rows_first, rows_in

_GROUP = "matrix"
_BARCODES, _SHAPE = "barcodes", "shape"
_NAMES, _IDENTIFIERS = "features/name", "features/id"


def open_tenx(group: StoredGroup, sample_axis: int | str) -> Source | None:
    """Open the counts of a file of Cell Ranger 3 or later as cells x genes; None for other files."""
    matrix = group.group(_GROUP)
    if matrix is None or not (matrix.has_array(_BARCODES) and matrix.has_array(_SHAPE)):
        return None
    require_rows_first(sample_axis, matrix.name)
    shape = matrix.numbers(_SHAPE)
    stored = shape.read(Span(0, shape.spec.n_rows), Span(0, 1))[:, 0]
    n_genes, n_cells = checked_shape(stored, matrix.name)
    # Cell Ranger does not promise an order of the genes of a cell.
    source = rows_in(matrix, n_cells, n_genes, sorts=True)
    if matrix.has_array(_NAMES) and matrix.has_array(_IDENTIFIERS):
        source.feature_names = _unique_names(matrix, n_genes)
    if matrix.length(_BARCODES) == n_cells:
        source.sample_dims = ("cell",)
        source.sample_coords = (SampleCoordinate("barcode", matrix.text(_BARCODES)),)
    return source


def _unique_names(matrix: StoredGroup, n_genes: int) -> tuple[str, ...] | None:
    """Return the names of the genes; a name that several have is followed by their identifiers."""
    if matrix.length(_NAMES) != n_genes or matrix.length(_IDENTIFIERS) != n_genes:
        return None
    names, identifiers = (
        matrix.text(path).read(Span(0, n_genes), Span(0, 1))[:, 0].tolist() for path in (_NAMES, _IDENTIFIERS)
    )
    counts = Counter(names)
    return tuple(
        name if counts[name] == 1 else f"{name}_{own}" for name, own in zip(names, identifiers, strict=True)
    )
