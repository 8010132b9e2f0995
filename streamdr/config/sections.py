"""The sections of a configuration. These dataclasses are its schema; their docstrings are its manual."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import PurePath
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from streamdr.config.problems import Place, Problem
from streamdr.config.wording import did_you_mean, nearest, show
from streamdr.config.yaml_source import Parsed
from streamdr.errors import ParameterError
from streamdr.methods import Method
from streamdr.settings import TLS, Cluster, require_one_place
from streamdr.sizes import SIZE, parse_bytes
from streamdr.synthetic import Synthetic

SECTIONS = ("input", "method", "output", "execution")


def _scheduler(name: str) -> str:
    if name in ("threads", "processes") or name.endswith(".json"):
        return name
    scheme, separator, _ = name.partition("://")
    if separator and scheme in ("tcp", "tls", "ws", "wss", "ucx", "ucxx", "inproc"):
        return name
    raise ParameterError(
        "scheduler",
        f"{show(name)} is not 'threads', 'processes', an address such as 'tcp://host:8786' "
        f"or the path of a scheduler file (.json){did_you_mean(nearest(name, ('threads', 'processes')))}",
    )


Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=1)]
Bytes = Annotated[
    int,
    BeforeValidator(parse_bytes),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": SIZE}]}),
]
Scheduler = Annotated[str, AfterValidator(_scheduler)]


@dataclass(frozen=True)
class Input:
    """The data: a matrix whose rows are samples.

    Parameters
    ----------
    path : str
        The zarr store that holds the data. Paths are relative to the directory where the command is run.
    array : str or None
        The array's name, where the store is a group.
    sample_axis : int
        The axis along which the samples lie; all others become features.
    weights : str or None
        The zarr array of one weight a sample.
    allow_missing_chunks : bool
        Read chunks that were never written as the fill value. Otherwise a missing chunk is an error.
    synthetic : mapping or None
        Make the store at `path` on the spot when it is not there.
    """

    path: Text
    array: Text | None = None
    sample_axis: int = 0
    weights: Text | None = None
    allow_missing_chunks: bool = False
    synthetic: Synthetic | None = None


@dataclass(frozen=True)
class Output:
    """What is written, and where.

    Parameters
    ----------
    model : str
        The zarr group that the model is saved to. Paths are relative to the directory where the command
        is run.
    embedding : str or None
        The zarr group that the transformed rows are written to, if any.
    dtype : "float32", "float64" or None
        The type of the embedding's values; null for the floating type in which the data is processed.
    overwrite : bool
        Replace outputs that exist. Otherwise they are an error.
    """

    model: Text
    embedding: Text | None = None
    dtype: Literal["float32", "float64"] | None = None
    overwrite: bool = False

    def __post_init__(self) -> None:
        if self.embedding is not None and PurePath(self.embedding) == PurePath(self.model):
            raise ParameterError(
                "embedding", f"{self.embedding!r} is where the model goes; choose another path"
            )


@dataclass(frozen=True)
class Execution:
    """How the work is done. The results do not depend on it.

    Parameters
    ----------
    workers : int or None
        How many blocks are worked on at a time; null for one a core.
    memory_limit : int, str or None
        The memory that the run may take, in bytes or as in 500MB or 2GiB; null leaves it to the machine.
    scheduler : str or None
        Where the work runs: "threads" or "processes" of this machine, the address of a dask scheduler
        (tcp://host:8786, tls://host:8786), or the path of its scheduler file (.json); null for threads.
    ledger : str or None
        The directory of checkpoints and finished passes; null keeps it beside the model.
    checkpoint_seconds : float
        How often a running pass is written down, so that it can be resumed.
    cluster : mapping or None
        Start a dask cluster for the run, and end it afterwards, instead of joining a scheduler.
    tls : mapping or None
        The certificates by which the two sides of a tls:// connection know each other.
    insecure : bool
        Allow a cluster to be reached over a network without encryption. Anyone who reaches its ports can
        run code there.
    """

    workers: Count | None = None
    memory_limit: Bytes | None = None
    scheduler: Scheduler | None = None
    ledger: Text | None = None
    checkpoint_seconds: Annotated[float, Field(gt=0)] = 5.0
    cluster: Cluster | None = None
    tls: TLS | None = None
    insecure: bool = False

    def __post_init__(self) -> None:
        require_one_place(self.scheduler, self.cluster, self.tls)


@dataclass(frozen=True)
class Run:
    """A whole configuration: what is read, what is computed, what is written, and how."""

    input: Input
    method: Method
    output: Output
    execution: Execution = dataclasses.field(default_factory=Execution)
    source_file: str | None = None
    document: Parsed = dataclasses.field(
        default_factory=lambda: Parsed(Place("configuration")), repr=False, compare=False
    )
    """Where each key was written."""

    def problem(self, error: ParameterError) -> Problem:
        """What an error that showed only with the data says, with the place of the key that it is about."""
        sections: dict[str, Any] = {
            "method": self.method,
            "input": self.input,
            "output": self.output,
            "execution": self.execution,
        }
        keys = {name: [field.name for field in dataclasses.fields(sections[name])] for name in sections}
        homes = [name for name in sections if error.parameter in keys[name]]
        path = (homes[0], error.parameter) if homes else ()
        return Problem(self.document.place(path), path, str(error))

    def to_dict(self) -> dict[str, Any]:
        """The four sections as plain data, for records. As a configuration it reads back as this run.

        The arguments of a cluster may be secret, and are left out.
        """
        execution = dataclasses.asdict(self.execution)
        if execution["cluster"] is not None:
            execution["cluster"]["arguments"] = None
        return {
            "input": dataclasses.asdict(self.input),
            "method": {"name": self.method.name, **dataclasses.asdict(cast(Any, self.method))},
            "output": dataclasses.asdict(self.output),
            "execution": execution,
        }
