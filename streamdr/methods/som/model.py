"""The fitted map: the codebook, the grid, and the mapping of rows to units."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from streamdr.core.blocks import AlignedArrays, Array, MatrixSpec, working_dtype
from streamdr.core.facts import MOST_ROWS, Column, Fact, Table, notes
from streamdr.core.outline import unallocated
from streamdr.core.pictures import Picture
from streamdr.core.work import Work
from streamdr.methods.som.grid import Grid
from streamdr.methods.som.nearest import Search, search_bytes, search_work
from streamdr.methods.som.plots import COMPONENT_PLANES, HITS, QUANTIZATION, U_MATRIX

_UNIT = {"dims": ("unit",)}
_ORDERLY = 0.2
"""A larger topographic error is worth a note."""


@dataclass(frozen=True, eq=False)
class SOMModel(AlignedArrays):
    """A map: each unit has a codebook vector and coordinates on the grid."""

    pictures: ClassVar[tuple[Picture, ...]] = (U_MATRIX, COMPONENT_PLANES, HITS, QUANTIZATION)
    allow_nan: ClassVar[bool] = False

    codebook: Array = field(metadata={"dims": ("unit", "feature"), "data_units": True})
    """The codebook vector of each unit. Units are numbered row by row."""
    coordinates: Array = field(metadata={"dims": ("unit", "component")})
    """The coordinates (x, y) of each unit on the map."""
    hits: Array = field(metadata=_UNIT)
    """The weight of the rows whose best matching unit is this one."""
    origin: Array = field(metadata={"dims": ("feature",), "data_units": True})
    """A point near the mean of the rows; distances are computed about it."""
    quantization_error: float
    """The mean distance of a row from its best matching unit, over all rows."""
    topographic_error: float
    """The share of the rows whose two best matching units are not neighbours on the map."""
    quantization_errors: Array = field(metadata={"dims": ("measurement",)})
    """The quantisation error before each epoch, and that of the model."""
    radii: Array = field(metadata={"dims": ("epoch",)})
    """The radius of the neighbourhood in each epoch."""
    height: int
    """The number of rows of units."""
    width: int
    """The number of units in each row of the map."""
    topology: str
    """The lattice of the units: rectangular or hexagonal."""
    toroidal: bool
    """Whether opposite edges of the map touch."""
    neighborhood: str
    """The neighbourhood kernel: gaussian or bubble."""
    double: bool = False
    """Whether distances are always computed in double precision."""

    @property
    def n_features(self) -> int:
        """The number of columns that `transform` takes."""
        return int(self.codebook.shape[1])

    @property
    def n_units(self) -> int:
        """The number of units."""
        return len(self.codebook)

    @property
    def n_outputs(self) -> int:
        """The number of columns that `transform` returns: x and y."""
        return 2

    @property
    def outputs_are_features(self) -> bool:
        """Coordinates on the map are not features."""
        return False

    @property
    def grid(self) -> Grid:
        """The grid of the units."""
        return Grid(self.height, self.width, self.topology, self.toroidal)  # type: ignore[arg-type]

    @property
    def n_epochs(self) -> int:
        """The number of epochs of training."""
        return len(self.radii)

    def summary(self) -> dict[str, Any]:
        """The size of the map, and its errors."""
        return {
            "solver": "batch",
            "units": self.n_units,
            "height": self.height,
            "width": self.width,
            "topology": self.topology,
            "toroidal": self.toroidal,
            "n_epochs": self.n_epochs,
            "quantization_error": self.quantization_error,
            "topographic_error": self.topographic_error,
            "units without rows": int(np.count_nonzero(self.hits == 0)),
            "notes": self._notes(),
        }

    def facts(self) -> tuple[Fact, ...]:
        """The size of the map, and its errors."""
        kind = f"{self.height} x {self.width}, {self.topology}{', toroidal' if self.toroidal else ''}"
        return (
            Fact("solver", "batch"),
            Fact("components", self.n_outputs),
            Fact("map", kind),
            Fact("units", self.n_units),
            Fact("units without rows", int(np.count_nonzero(self.hits == 0))),
            Fact("epochs", self.n_epochs),
            Fact("quantisation error", self.quantization_error),
            Fact("topographic error", self.topographic_error, "% of the rows"),
            *notes(self._notes()),
        )

    def tables(self) -> tuple[Table, ...]:
        """The quantisation error of each epoch, and the rows of each unit."""
        epochs = zip(range(1, MOST_ROWS + 1), self.radii, self.quantization_errors[1:], strict=False)
        busiest = np.argsort(-self.hits, kind="stable")[:MOST_ROWS]
        total = float(self.hits.sum())
        return (
            Table(
                "epochs",
                (Column("epoch"), Column("radius"), Column("quantisation error", bars=True)),
                tuple((number, float(radius), float(error)) for number, radius, error in epochs),
                about="The radius of each epoch, and the quantisation error after it.",
                left_out=max(0, self.n_epochs - MOST_ROWS),
            ),
            Table(
                "units",
                (Column("unit"), Column("x"), Column("y"), Column("rows", "%", bars=True)),
                tuple(
                    (
                        int(unit),
                        float(self.coordinates[unit, 0]),
                        float(self.coordinates[unit, 1]),
                        float(self.hits[unit]) / total,
                    )
                    for unit in busiest
                ),
                about="The units that most rows belong to.",
                left_out=max(0, self.n_units - MOST_ROWS),
            ),
        )

    def _notes(self) -> list[str]:
        found = []
        if self.topographic_error > _ORDERLY:
            found.append(
                f"{self.topographic_error:.0%} of the rows have their two best units apart on the map: a "
                "larger sigma_end or more epochs order it better"
            )
        return found

    def transform(self, values: Array) -> Array:
        """The coordinates of the best matching unit of each row, in the floating type of the rows."""
        places = self.coordinates.astype(working_dtype(values.dtype))
        mapped: Array = places[self.predict(values)]
        return mapped

    def predict(self, values: Array) -> Array:
        """The number of the best matching unit of each row."""
        units = np.empty(len(values), np.int64)
        for tile in self._search(working_dtype(values.dtype)).tiles(values):
            units[tile.rows] = tile.units
        return units

    def scores_by_columns(self, n_rows: int) -> None:
        """None: the nearest unit depends on all features, so rows are read whole."""

    def mapping_work(self, data: MatrixSpec, operation: str) -> Work:
        """The work of finding the best matching unit of each row."""
        dtype = np.dtype(np.float64) if self.double else data.working
        return search_work(data, self.n_units, dtype)

    def scratch_bytes(self, n_rows: int) -> int:
        """The bytes of a search, and of the unit of each row."""
        return search_bytes(self.n_units, self.n_features, 8) + 24 * n_rows + 16 * self.n_units

    def _search(self, dtype: np.dtype[Any]) -> Search:
        wanted = np.dtype(np.float64) if self.double else dtype
        if wanted not in self._searches:
            self._searches[wanted] = Search(self.codebook, self.origin, wanted)
        return self._searches[wanted]

    @cached_property
    def _searches(self) -> dict[Any, Search]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_searches"}


def som_outline(data: MatrixSpec, grid: Grid, *, double: bool) -> SOMModel:
    """A model of all units, whose arrays use no memory."""
    units = grid.n_units
    return SOMModel(
        codebook=unallocated(units, data.n_cols),
        coordinates=unallocated(units, 2),
        hits=unallocated(units),
        origin=unallocated(data.n_cols),
        quantization_error=0.0,
        topographic_error=0.0,
        quantization_errors=unallocated(1),
        radii=unallocated(1),
        height=grid.height,
        width=grid.width,
        topology=grid.topology,
        toroidal=grid.toroidal,
        neighborhood="gaussian",
        double=double,
    )
