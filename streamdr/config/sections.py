"""The sections of a configuration. These dataclasses are its schema; their docstrings are its manual."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from streamdr.config.wording import did_you_mean, nearest, show
from streamdr.core.addresses import RedactedAddress, expand_variables, is_remote, parse_location
from streamdr.core.byte_sizes import SIZE, parse_bytes
from streamdr.core.cluster_arguments import MOST_LOCAL_WORKERS
from streamdr.core.execution import TLS, Cluster, require_consistent_scheduler, require_private
from streamdr.core.row_outputs import ROW_OUTPUTS, step_key
from streamdr.data.examples.datasets import Example
from streamdr.data.examples.synthetic import Synthetic
from streamdr.data.expanding import is_several
from streamdr.data.labelled.selection import POSITIONS
from streamdr.data.table_columns import with_labels
from streamdr.errors import ConfigError, ParameterError

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


def _location(text: str) -> str:
    try:
        expanded = expand_variables(text)
        place = parse_location(expanded)
        return str(place) if expanded.startswith("~") else RedactedAddress.of(expanded)
    except ConfigError as error:
        raise ParameterError("path", str(error)) from None


Text = Annotated[str, Field(min_length=1)]
LocationText = Annotated[str, Field(min_length=1), AfterValidator(_location)]
Bytes = Annotated[
    int,
    BeforeValidator(parse_bytes),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": SIZE}]}),
]


_LABELS: tuple[type, ...] = (str, int, float, NoneType)
_POSITIONS: tuple[type, ...] = (int, NoneType)


def _selected(given: dict[str, Any]) -> dict[str, Any]:
    """Check the form of a selection. Which labels there are is known when the data is opened."""
    for dim, wanted in given.items():
        if isinstance(wanted, dict) and list(wanted) == [POSITIONS]:
            wanted, kinds = wanted[POSITIONS], _POSITIONS
        else:
            kinds = _LABELS
        ends = wanted if isinstance(wanted, list) else [wanted, wanted]
        known = all(isinstance(end, kinds) and not isinstance(end, bool) for end in ends)
        if not known or len(ends) != 2 or wanted is None:
            raise ParameterError(
                "select",
                f"{dim}: expected a label (500), a range of two labels ([-60, 60]; null is an open end) "
                f"or {{positions: [0, 10]}}, not {show(given[dim])}",
            )
    return given


_LABEL = {"type": ["string", "number", "null"]}
_POSITION = {"type": ["integer", "null"]}
_RANGES = {
    "type": "object",
    "additionalProperties": {
        "anyOf": [
            {"type": ["string", "number"]},
            {"type": "array", "items": _LABEL, "minItems": 2, "maxItems": 2},
            {
                "type": "object",
                "propertyNames": {"const": POSITIONS},
                "minProperties": 1,
                "additionalProperties": {
                    "anyOf": [
                        {"type": "integer"},
                        {"type": "array", "items": _POSITION, "minItems": 2, "maxItems": 2},
                    ]
                },
            },
        ]
    },
}
Selected = Annotated[dict[str, Any], AfterValidator(_selected), WithJsonSchema(_RANGES)]
Scheduler = Annotated[str, AfterValidator(_scheduler)]


@dataclass(frozen=True)
class Input:
    """The data: a matrix whose rows are samples.

    Parameters
    ----------
    path : str or list of str
        The zarr store with the data: a path, relative to the directory where the command is run, or an
        address such as s3://bucket/data.zarr. In every path, ~ and $NAME are replaced by the home directory
        and by an environment variable. A list, or a pattern such as era5_*.zarr, is several stores, whose
        rows are read one after another. So is a folder of Parquet files.
    array : str or None
        The name of the array, if the store is a group.
    columns : list of str or None
        The columns of Parquet files: names, and patterns such as gene_* for columns of numbers. null for all
        columns.
    sample_axis : int
        The axis of the samples; all others are flattened into features.
    variable : str, list of str or None
        The variable of a data set with named dimensions, as xarray writes it. Its coordinates are read too,
        and its values are decoded by the CF conventions. Several variables of one grid are features side by
        side.
    sample_dims : str, list of str or None
        The dimensions of the samples, such as time, or [time, member]; null for the first dimension. All
        others are features.
    select : mapping or None
        What to read of a dimension: a label (level: 500), a range of labels with both ends
        (lat: [-60, 60], time: ["1990", null]), or positions from 0 without the last (lon: {positions:
        [0, 180]}).
    balance_variables : bool
        Scale each of several variables to the same total variance.
    feature_weights : "coslat", str, list of float or None
        The weight of each feature, by which it is multiplied after centring: coslat for the square root of
        the cosine of the latitude, the name of an array beside the variable, a path, or the numbers.
    min_observed : float or None
        Leave out features that are observed in a smaller share of the rows. Features that are never
        observed are always left out of labelled data.
    order_by : str or None
        The order of several stores: name, or a coordinate of the samples; null for the coordinate of the
        first sample dimension, or by name where there is none.
    weights : str or None
        The zarr array with one weight per sample: a path or an address.
    labels : str or None
        The zarr array with one label per sample, numbers or text, for supervised methods: a path or an
        address. A column of AnnData is one too (cells.zarr/obs/cell_type, cells.h5ad/obs/cell_type).
    label_column : int, str or None
        The column of the data that holds the labels: its number, counted from 0, or its name. This column is
        then not a feature. For AnnData, the name of a column of obs.
    mask : str or None
        The zarr array, of the shape of the data, that is true (or 1) where a value is missing: a path or an
        address.
    missing_value : int, float, "fill_value" or None
        The number that marks a missing value, or "fill_value" for the fill value of the store. NaN is always
        missing.
    allow_missing_chunks : bool
        Read chunks that were never written as the fill value. Otherwise a missing chunk is an error.
    synthetic : mapping or None
        Generate the store at `path` if it does not exist.
    example : mapping or None
        Write a data set for trying things out to the store at `path` if it does not exist.
    """

    path: LocationText | tuple[LocationText, ...]
    array: Text | None = None
    columns: tuple[Text, ...] | None = None
    sample_axis: int = 0
    variable: Text | tuple[Text, ...] | None = None
    sample_dims: Text | tuple[Text, ...] | None = None
    select: Selected | None = None
    balance_variables: bool = False
    feature_weights: Text | tuple[float, ...] | None = None
    min_observed: Annotated[float, Field(gt=0, le=1)] | None = None
    order_by: Text | None = None
    weights: LocationText | None = None
    labels: LocationText | None = None
    label_column: int | Text | None = None
    mask: LocationText | None = None
    missing_value: int | float | Literal["fill_value"] | None = None
    allow_missing_chunks: bool = False
    synthetic: Synthetic | None = None
    example: Example | None = None

    def __post_init__(self) -> None:
        for name, made in (("synthetic", self.synthetic), ("example", self.example)):
            if made is None:
                continue
            if not isinstance(self.path, str) or is_remote(self.path) or is_several(self.path):
                raise ParameterError(name, "is one store on this machine; give input.path one local path")
        if self.labels is not None and self.label_column is not None:
            raise ParameterError(
                "label_column", "is given together with labels; a row has one label, so leave one out"
            )
        if self.synthetic is not None and self.example is not None:
            raise ParameterError(
                "example", "is given together with synthetic; one path has one of them, so leave one out"
            )

    @property
    def paths(self) -> tuple[str, ...]:
        """The given paths, of which each may be a pattern."""
        return (self.path,) if isinstance(self.path, str) else self.path

    @property
    def read_columns(self) -> tuple[str, ...] | None:
        """The columns of a table that are read. That of the labels may be missing in rows to be mapped."""
        return with_labels(self.columns, self.label_column)


@dataclass(frozen=True)
class Output:
    """What is written, and where.

    Parameters
    ----------
    model : str
        The zarr group for the model: a path, relative to the directory where the command is run, or an
        address.
    embedding : str or None
        The zarr group for the transformed rows, if any: a path or an address.
    denoised : str or None
        The zarr group for the input as reconstructed from its components, for methods that denoise.
    imputed : str or None
        The zarr group for the input with missing values imputed, for methods that impute.
    imputed_variance : str or None
        The zarr group for the variance of each imputed value; 0 for observed values.
    log_likelihood : str or None
        The zarr group for the log-likelihood of each row, for methods with a likelihood. It is low for
        outliers.
    responsibilities : str or None
        The zarr group for the probability of each component of a mixture, for each row.
    predicted : str or None
        The zarr group for the most probable class of each row, for methods that predict. If labels are
        numbers, it holds the label; if they are text, its number among the sorted classes of the model. For
        a mixture it holds the number of the component, for a self-organising map that of the unit.
    probabilities : str or None
        The zarr group for the probability of each class, for each row, for methods that classify.
    steps : mapping or None
        The zarr groups for the rows as they leave steps of a chain, by the names of these.
    anndata : str or None
        The AnnData store for the scores, for scanpy: a .zarr path, which may be that of the input, or an
        .h5ad file. The scores go to obsm/X_pca (or _lda, ...), loadings of PCA to varm/PCs, and variances to
        uns/pca. A store that does not exist is made, with the names of observations and variables.
    dtype : "float32", "float64" or None
        The type of the outputs of rows; null for the floating type in which the data is processed.
        Log-likelihoods are float64, and predictions have the type of the labels, or int64.
    overwrite : bool
        Replace outputs that exist. Otherwise they are an error, unless the same configuration made them.
    refresh_tolerance : float
        After an append, the largest change of the model for which existing rows are not written again: the
        root mean square change of their embedding, relative to its standard deviation. With 0 they are
        always written again.
    """

    model: LocationText
    embedding: LocationText | None = None
    denoised: LocationText | None = None
    imputed: LocationText | None = None
    imputed_variance: LocationText | None = None
    log_likelihood: LocationText | None = None
    responsibilities: LocationText | None = None
    predicted: LocationText | None = None
    probabilities: LocationText | None = None
    steps: Mapping[str, LocationText] | None = None
    anndata: LocationText | None = None
    dtype: Literal["float32", "float64"] | None = None
    overwrite: bool = False
    refresh_tolerance: Annotated[float, Field(ge=0)] = 0.01

    def __post_init__(self) -> None:
        taken = {parse_location(self.model): "model"}
        for kind, path in self.rows.items():
            other = taken.setdefault(parse_location(path), kind)
            if other != kind:
                raise ParameterError(kind, f"{str(path)!r} is where the {other} goes; choose another path")

    @property
    def rows(self) -> dict[str, str]:
        """The paths of the outputs of rows, by the keys of their kinds, such as embedding and steps.log1p."""
        given: dict[str, str | None] = {kind.name: getattr(self, kind.name) for kind in ROW_OUTPUTS}
        given |= {step_key(name): path for name, path in (self.steps or {}).items()}
        return {name: path for name, path in given.items() if path is not None}


@dataclass(frozen=True)
class ExecutionSection:
    """How the work is done. The results do not depend on it.

    Parameters
    ----------
    workers : int or None
        The number of blocks that are processed at the same time; null for one per core.
    memory_limit : int, str or None
        The memory that the process may use, in bytes or as in 500MB or 2GiB; null for four fifths of the
        available memory.
    scheduler : str or None
        Where the work runs: "threads" or "processes" of this machine, the address of a dask scheduler
        (tcp://host:8786, tls://host:8786), or the path of its scheduler file (.json); null for threads.
    ledger : str or None
        The directory of checkpoints and finished passes; null keeps it beside the model.
    checkpoint_seconds : float
        The interval between checkpoints of a running pass.
    cluster : mapping or None
        Start a dask cluster for the run, and stop it afterwards, instead of joining a scheduler.
    tls : mapping or None
        The certificates for a tls:// connection.
    insecure : bool
        Allow a cluster to be reached over a network without encryption. Anyone who reaches its ports can
        run code there.
    """

    workers: Annotated[int, Field(ge=1, le=MOST_LOCAL_WORKERS)] | None = None
    memory_limit: Bytes | None = None
    scheduler: Scheduler | None = None
    ledger: LocationText | None = None
    checkpoint_seconds: Annotated[float, Field(gt=0)] = 5.0
    cluster: Cluster | None = None
    tls: TLS | None = None
    insecure: bool = False

    def __post_init__(self) -> None:
        require_consistent_scheduler(self.scheduler, self.cluster, self.tls)
        require_private(self.cluster, self.insecure)
