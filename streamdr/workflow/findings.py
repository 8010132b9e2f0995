"""The reports of `inspect`: one immutable type for each kind of store or file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from streamdr.core.facts import Fact, Table

Json = dict[str, Any]


@dataclass(frozen=True)
class ModelInspection:
    """A saved model."""

    path: str
    method: str
    parameters: Mapping[str, Any]
    n_features: int
    n_left_out: int
    """The number of features that the model leaves out."""
    n_outputs: int
    summary: Mapping[str, Any]
    """The summary of the model, for programs."""
    input: str | None
    n_rows: int
    created: str
    version: str
    facts: tuple[Fact, ...]
    """The facts of the model, for people."""
    tables: tuple[Table, ...]

    def to_json(self) -> Json:
        """Return the report as plain data, as `--json` prints it."""
        return {
            "kind": "model",
            "path": self.path,
            "method": self.method,
            "parameters": dict(self.parameters),
            "n_features": self.n_features,
            "n_left_out": self.n_left_out,
            "n_outputs": self.n_outputs,
            "summary": dict(self.summary),
            "input": self.input,
            "n_rows": self.n_rows,
            "created": self.created,
            "version": self.version,
        }


@dataclass(frozen=True)
class RowsInspection:
    """An embedding, or another output with one row per input row."""

    kind: str
    path: str
    n_rows: int
    n_outputs: int
    shape: tuple[int, ...]
    dims: tuple[str, ...]
    dtype: str
    chunks: tuple[int, ...]
    stored_bytes: int
    model: str | None
    method: str | None
    created: str | None
    version: str | None
    step: str | None = None
    """The step of a chain whose rows these are."""

    def to_json(self) -> Json:
        """Return the report as plain data. Rows of no step have no such key."""
        found = asdict(self)
        return {key: value for key, value in found.items() if key != "step" or value is not None}


@dataclass(frozen=True)
class MissingChunks:
    """The number of chunks of an array that were never written."""

    count: int
    total: int
    first: str | None


@dataclass(frozen=True)
class Blocks:
    """The blocks in which a pass reads an array along one axis."""

    count: int
    lines: int
    bytes: int


@dataclass(frozen=True)
class ArrayInspection:
    """An array of numbers, as it is stored and as a matrix."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    zarr_format: int | None
    """None for other files: their codecs, and what is missing in them, are not shown."""
    dims: tuple[str | None, ...] | None
    chunks: tuple[int, ...] | None
    shards: tuple[int, ...] | None
    codecs: tuple[str, ...]
    stored_bytes: int
    missing: MissingChunks | None
    n_rows: int
    n_cols: int
    blocks: Mapping[str, Blocks]
    """The blocks by the axis that is partitioned."""
    stale_copy: tuple[int, ...] | None = None
    """The shape in the consolidated metadata of the group, where it differs from the shape of the array."""

    def to_json(self) -> Json:
        """Return the report as plain data."""
        fields = asdict(self)
        name, stale = fields.pop("name"), fields.pop("stale_copy")
        copy = {} if self.zarr_format is None else {"stale_copy": stale}
        return {"name": name, "problem": None, **copy, **fields}


@dataclass(frozen=True)
class LabelsInspection:
    """An array of text, which can be labels."""

    name: str
    labels: int
    """The number of labels."""

    def to_json(self) -> Json:
        """Return the report as plain data."""
        problem = "holds text: labels, which input.labels can name"
        return {"name": self.name, "problem": problem, "labels": self.labels}


@dataclass(frozen=True)
class UnusableArray:
    """An array that cannot be used, and why."""

    name: str
    problem: str

    def to_json(self) -> Json:
        """Return the report as plain data."""
        return asdict(self)


@dataclass(frozen=True)
class MatrixInspection:
    """A sparse matrix: a group of three arrays."""

    name: str
    format: str
    """By rows (csr) or by columns (csc)."""
    n_rows: int
    n_cols: int
    dtype: str
    stored_values: int
    stored_bytes: int
    missing: MissingChunks | None

    @property
    def order(self) -> str:
        """What the values are stored by."""
        return "rows" if self.format == "csr" else "columns"

    @property
    def density(self) -> float:
        """The share of the values that are stored."""
        return self.stored_values / (self.n_rows * self.n_cols)

    def to_json(self) -> Json:
        """Return the report as plain data."""
        fields = asdict(self)
        return {"name": fields.pop("name"), "problem": None, "density": self.density, **fields}


@dataclass(frozen=True)
class TableInspection:
    """The table of the observations or of the variables of AnnData."""

    name: str
    n_rows: int
    first: tuple[str, ...]
    """The first names of rows."""
    columns: tuple[str, ...]

    def to_json(self) -> Json:
        """Return the report as plain data."""
        return {**asdict(self), "problem": None}


FoundArray = ArrayInspection | LabelsInspection | UnusableArray | MatrixInspection | TableInspection


@dataclass(frozen=True)
class StoreInspection:
    """A zarr store or another file, with all arrays in it."""

    kind: str
    path: str
    origin: str | None
    """How streamdr made it; None where streamdr did not."""
    arrays: tuple[FoundArray, ...]

    def to_json(self) -> Json:
        """Return the report as plain data."""
        return {
            "kind": self.kind,
            "path": self.path,
            "origin": self.origin,
            "arrays": [array.to_json() for array in self.arrays],
        }
