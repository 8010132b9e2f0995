"""The configuration of a comparison: several methods on one input."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from streamdr.config.problems import SourcePosition
from streamdr.config.run import Run
from streamdr.config.sections import ExecutionSection, Input, LocationText, Output
from streamdr.config.yaml_source import Parsed
from streamdr.core.addresses import below
from streamdr.core.method import Method
from streamdr.errors import ParameterError
from streamdr.methods.chain import Chain

COMPARISON_SECTIONS = ("input", "methods", "output", "execution")

AS = "as"
"""The key that distinguishes two entries of one method."""

STEPS = "steps"
"""The key of the methods of a chain."""

_EMBEDDING = "-embedding"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SUFFIXES = (".md", ".csv")


def require_unique(name: Any, others: Collection[str]) -> str:
    """Return the name of an entry. Refuse one that is not a file name, or whose files another entry has."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ParameterError(AS, f"{name!r} cannot be a file name; use letters, digits, . _ and -")
    for other in others:
        if {name, name + _EMBEDDING} & {other, other + _EMBEDDING}:
            raise ParameterError(AS, f"{name!r} is taken by the files of {other!r}; give it another name")
    return name


def _table(path: str) -> str:
    if not path.endswith(_SUFFIXES):
        raise ParameterError("table", f"{str(path)!r} does not end in {' or '.join(_SUFFIXES)}")
    return path


Table = Annotated[LocationText, AfterValidator(_table)]


@dataclass(frozen=True)
class ComparisonOutput:
    """What a comparison writes, and where.

    Parameters
    ----------
    folder : str
        The folder for models and embeddings, as NAME.zarr and NAME-embedding.zarr: a path, relative to the
        directory where the command is run, or an address.
    table : str or list of str
        The file for the table: Markdown if it ends in .md, comma-separated values if it ends in .csv. A list
        writes several.
    dtype : "float32", "float64" or None
        The type of the embeddings; null for the floating type in which the data is processed.
    overwrite : bool
        Replace outputs that exist. Otherwise they are an error, unless the same configuration made them.
    refresh_tolerance : float
        After an append, the largest change of a model for which existing rows are not written again: the
        root mean square change of their embedding, relative to its standard deviation. With 0 they are
        always written again.
    """

    folder: LocationText
    table: Table | Annotated[list[Table], Field(min_length=1)]
    dtype: Literal["float32", "float64"] | None = None
    overwrite: bool = False
    refresh_tolerance: Annotated[float, Field(ge=0)] = 0.01

    @property
    def tables(self) -> list[str]:
        """The files that the table is written to."""
        return [self.table] if isinstance(self.table, str) else self.table

    def of(self, name: str) -> Output:
        """Return the output section of the run of one method."""
        return Output(
            model=below(self.folder, f"{name}.zarr"),
            embedding=below(self.folder, f"{name}{_EMBEDDING}.zarr"),
            dtype=self.dtype,
            overwrite=self.overwrite,
            refresh_tolerance=self.refresh_tolerance,
        )


@dataclass(frozen=True)
class NamedMethod:
    """A method of a comparison, and the name of its row and its files."""

    name: str
    method: Method


@dataclass(frozen=True)
class Comparison:
    """The configuration of a comparison: input, methods, output and execution."""

    input: Input
    methods: list[NamedMethod]
    output: ComparisonOutput
    execution: ExecutionSection = dataclasses.field(default_factory=ExecutionSection)
    source_file: str | None = None
    document: Parsed = dataclasses.field(
        default_factory=lambda: Parsed(SourcePosition("configuration")), repr=False, compare=False
    )
    """The parsed file, with the position of each key."""

    def runs(self) -> list[Run]:
        """Return one run for each method."""
        return [
            Run(
                self.input,
                entry.method,
                self.output.of(entry.name),
                self.execution,
                self.source_file,
                self.document,
                method_at=("methods", str(number), *((STEPS,) if isinstance(entry.method, Chain) else ())),
            )
            for number, entry in enumerate(self.methods)
        ]
