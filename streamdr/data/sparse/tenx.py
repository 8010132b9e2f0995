"""Count matrices of 10x Genomics (`.h5`): genes x cells by columns, which are the rows of cells x genes."""

from __future__ import annotations

from collections import Counter

from streamdr.core.blocks import Span
from streamdr.data.source import SampleCoordinate, Source
from streamdr.data.sparse.groups import StoredGroup
from streamdr.data.sparse.matrix import checked_shape, require_rows_first, rows_in
from streamdr.errors import InputError

_GROUP = "matrix"
_BARCODES, _SHAPE = "barcodes", "shape"
_NAMES, _IDENTIFIERS = "features/name", "features/id"
_OLDER_NAMES, _OLDER_IDENTIFIERS = "gene_names", "genes"
"""Before Cell Ranger 3, in a group for each genome."""


def open_tenx(group: StoredGroup, array: str | None, sample_axis: int | str) -> Source | None:
    """Open the counts of a file of Cell Ranger as cells x genes; None for other files.

    `array` is the genome, where an older file has several.
    """
    if array is not None:
        found = group.group(array)
        return None if found is None or not _is_tenx(found) else _cells(found, sample_axis)
    newer = group.group(_GROUP)
    if newer is not None and _is_tenx(newer):
        return _cells(newer, sample_axis)
    genomes = [name for name in group.groups() if (one := group.group(name)) is not None and _is_tenx(one)]
    if len(genomes) > 1:
        raise InputError(
            "array",
            f"{group.name}: has counts for the genomes {', '.join(genomes)}; say which with `array`",
        )
    return open_tenx(group, genomes[0], sample_axis) if genomes else None


def _is_tenx(matrix: StoredGroup) -> bool:
    """Whether a group has the arrays of Cell Ranger besides those of a sparse matrix."""
    return matrix.has_array(_BARCODES) and matrix.has_array(_SHAPE)


def _cells(matrix: StoredGroup, sample_axis: int | str) -> Source:
    """Open the counts of a group."""
    require_rows_first(sample_axis, matrix.name)
    shape = matrix.numbers(_SHAPE)
    stored = shape.read(Span(0, shape.spec.n_rows), Span(0, 1))[:, 0]
    n_genes, n_cells = checked_shape(stored, matrix.name)
    # Cell Ranger does not promise an order of the genes of a cell.
    source = rows_in(matrix, n_cells, n_genes, sorts=True)
    for names, identifiers in ((_NAMES, _IDENTIFIERS), (_OLDER_NAMES, _OLDER_IDENTIFIERS)):
        if matrix.has_array(names) and matrix.has_array(identifiers):
            source.feature_names = _unique_names(matrix, names, identifiers, n_genes)
    if matrix.length(_BARCODES) == n_cells:
        source.sample_dims = ("cell",)
        source.sample_coords = (SampleCoordinate("barcode", matrix.text(_BARCODES)),)
    return source


def _unique_names(matrix: StoredGroup, names: str, identifiers: str, n_genes: int) -> tuple[str, ...] | None:
    """Return the names of the genes; a name that several have is followed by their identifiers."""
    if matrix.length(names) != n_genes or matrix.length(identifiers) != n_genes:
        return None
    called, known_as = (
        matrix.text(path).read(Span(0, n_genes), Span(0, 1))[:, 0].tolist() for path in (names, identifiers)
    )
    counts = Counter(called)
    return tuple(
        name if counts[name] == 1 else f"{name}_{own}" for name, own in zip(called, known_as, strict=True)
    )
