"""The cases of the contract tests: every method, with each of its examples, by each of its routes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from fits import grown, stored, suited
from scipy.spatial.distance import cdist

from streamdr.core.blocks import MatrixSpec
from streamdr.core.method import ConditionalOutputs, Method, Route, Supervised
from streamdr.core.row_outputs import ROW_OUTPUTS, RowOutput, of_step
from streamdr.data import open_source
from streamdr.data.source import Source
from streamdr.errors import ParameterError
from streamdr.methods import METHODS
from streamdr.methods.chain import Chain, chain_of
from streamdr.methods.lda import LDA
from streamdr.methods.pca import PCA
from streamdr.methods.steps import Clip, Log1p, NormalizeTotal, Standardise

ROWS, MORE, COLUMNS = 300, 340, 8
CHAINS: tuple[Chain, ...] = (
    chain_of((Standardise(), Clip(-2.0, 2.0), PCA(3, solver="krylov"))),
    chain_of((PCA(4, solver="covariance"), LDA())),
    chain_of((NormalizeTotal(target_sum=100.0), Log1p(), PCA(3, solver="covariance")), (None, "log", None)),
)
CHUNKS = (8, 3)
KINDS = {
    "classes": ("numbers of classes", "names"),
    "numbers": ("values",),
    "any": ("numbers of classes", "names", "values"),
}
"""The kinds of labels for each kind of target."""


def values(n_rows: int = MORE) -> np.ndarray:
    """The first rows of a fixed matrix, of three classes that overlap."""
    rng = np.random.default_rng(0)
    middles = rng.normal(size=(3, COLUMNS))
    turned = rng.normal(size=(COLUMNS, COLUMNS)) * np.linspace(2.0, 0.3, COLUMNS)
    rows = middles[classes()] + rng.normal(size=(MORE, COLUMNS)) @ turned + 5.0
    return rows[:n_rows].astype(np.float32)


def classes(n_rows: int = MORE) -> np.ndarray:
    """The class of each row, one of three."""
    return np.random.default_rng(1).integers(0, 3, MORE)[:n_rows]


def labels(kind: str, n_rows: int = MORE) -> np.ndarray:
    """The labels of the rows: classes as numbers or names, or one value per row."""
    if kind == "names":
        return np.array(["b", "a", "cd"])[classes(n_rows)]
    if kind == "values":
        return classes(n_rows) + np.random.default_rng(2).normal(size=MORE)[:n_rows]
    return classes(n_rows)


def missing(rows: np.ndarray) -> np.ndarray:
    """The rows with a tenth of their values missing."""
    gone = np.random.default_rng(3).random((MORE, COLUMNS)) < 0.1
    return np.where(gone[: len(rows)], np.float32(np.nan), rows)


def pairs(among: str, rows: np.ndarray) -> np.ndarray:
    """A square matrix of all pairs of rows: their distances, or their similarities."""
    apart = cdist(rows.astype(np.float64), rows.astype(np.float64), "cityblock")
    return apart if among == "metric" else np.exp(-apart / apart.mean())


@dataclass(frozen=True)
class Case:
    """One example of a method, by one of its routes, on one kind of data."""

    name: str
    route: Route
    labels: str | None = None
    missing: bool = False
    precomputed: str | None = None
    """The parameter that is "precomputed", where the data is a matrix of all pairs of rows."""

    @property
    def method(self) -> Method:
        """The method, restricted to the route."""
        return self.route.method

    @property
    def title(self) -> str:
        """The name of the method; of a chain, those of its steps."""
        return title_of(self.method)

    @property
    def of_pairs(self) -> bool:
        """Whether the data is a matrix of all pairs of rows, to which no rows can be appended."""
        return self.precomputed is not None

    def rows(self, n_rows: int = ROWS) -> np.ndarray:
        """The values of the first rows."""
        if self.precomputed is not None:
            return pairs(self.precomputed, values(n_rows))
        rows = suited(self.method, values())[:n_rows]
        return missing(rows) if self.missing else rows

    def write(
        self,
        place: Path,
        n_rows: int = ROWS,
        chunks: tuple[int, int] | None = None,
        dtype: np.dtype | None = None,
    ) -> Path:
        """Store the first rows, in their type or another, and their labels beside them."""
        rows = self.rows(n_rows)
        stored(place / "x.zarr", rows if dtype is None else rows.astype(dtype), chunks or self.chunks)
        if self.labels is not None:
            stored(place / "y.zarr", labels(self.labels, n_rows), (33,))
        return place

    @property
    def chunks(self) -> tuple[int, int]:
        """Small chunks; larger ones for matrices of pairs, so that their number stays small."""
        return (16, 64) if self.of_pairs else CHUNKS

    @property
    def goes_on(self) -> bool:
        """Whether it has one pass over the rows, which can be continued when rows are appended."""
        if self.of_pairs or self.route.passes != 1 or {each.axis for each in self.route.phases} != {"rows"}:
            return False
        kind = None if self.labels is None else labels(self.labels).dtype
        specs = (MatrixSpec(n_rows, COLUMNS, self.rows(1).dtype, kind) for n_rows in (ROWS, MORE))
        one, other = (next(self.method.passes(spec)).empty.parameters() for spec in specs)
        return all(np.array_equal(one[name], other[name]) for name in one)

    def grow(self, place: Path, n_rows: int = MORE) -> None:
        """Append rows and their labels to the stores."""
        grown(place / "x.zarr", self.rows(n_rows))
        if self.labels is not None:
            grown(place / "y.zarr", labels(self.labels, n_rows))

    def source(self, place: Path) -> Source:
        """The source of the stored rows."""
        return open_source(place / "x.zarr", labels=None if self.labels is None else place / "y.zarr")

    def here(self, n_rows: int = ROWS) -> np.ndarray | None:
        """The labels of the first rows, in memory."""
        return None if self.labels is None else labels(self.labels, n_rows)


def on_pairs(example: Any) -> Iterator[Case]:
    """The example on a matrix of distances or products, where its method accepts one."""
    for parameter in ("metric", "kernel"):
        if not isinstance(getattr(example, parameter, None), str):
            continue
        square = MatrixSpec(ROWS, ROWS, np.dtype(np.float64))
        try:
            routes = replace(example, **{parameter: "precomputed"}).routes(square)
        except ParameterError:  # it needs rows
            continue
        for route in routes:
            yield Case(f"{route.name} pairs", route, precomputed=parameter)


def title_of(method: Method) -> str:
    """The name of a method; of a chain, those of its steps."""
    return f"chain of {', '.join(method.names)}" if isinstance(method, Chain) else method.name


def outputs_of(method: Method) -> list[RowOutput]:
    """The kinds of row outputs of a method, and those of the steps of a chain."""
    lacks = method.lacks if isinstance(method, ConditionalOutputs) else lambda what: None
    steps = map(of_step, method.names[:-1]) if isinstance(method, Chain) else ()
    kinds = [kind for kind in ROW_OUTPUTS if kind.supported_by(method.model) and lacks(kind.method) is None]
    return [*kinds, *steps]


def cases_of(examples: Sequence[Method]) -> Iterator[Case]:
    """Examples of a method, by every route, with every kind of data that it accepts."""
    for number, example in enumerate(examples):
        for kind in KINDS[example.target] if isinstance(example, Supervised) else (None,):
            dtype = None if kind is None else labels(kind).dtype
            spec = MatrixSpec(ROWS, COLUMNS, values().dtype, dtype)
            try:
                routes = example.routes(spec)
            except ParameterError:
                if kind != "names":
                    raise
                continue  # the method needs numeric labels
            for route in routes:
                name = f"{title_of(example)} {number} {route.name}" + (f" {kind}" if kind else "")
                yield Case(name, route, kind)
                complete = getattr(example, "method", "") == "closed_form"
                if getattr(example.model, "allow_nan", False) is True and not complete:
                    yield Case(f"{name} missing", route, kind, missing=True)
        for case in on_pairs(example):
            yield replace(case, name=f"{title_of(example)} {number} {case.name}")


EXAMPLES = (*(method.examples() for method in METHODS.values()), CHAINS)
CASES = {case.name: case for examples in EXAMPLES for case in cases_of(examples)}
GROWING = {name: case for name, case in CASES.items() if not case.of_pairs}
ROUTES = {
    f"{case.title} {case.route.name}{' pairs' * case.of_pairs}": case for case in reversed(CASES.values())
}
"""The first example for each route of each method."""
RUNS = {
    f"{case.title}{' missing' * case.missing}{' pairs' * case.of_pairs}": case
    for case in reversed(CASES.values())
}
"""One example of each method for each kind of data, for whole runs."""
