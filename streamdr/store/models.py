"""Models as files: a zarr group with the arrays of a dataclass, and its scalars in the record.

Loading a model runs no code.
"""

from __future__ import annotations

import hashlib
import math
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from streamdr.core.axes import FeatureAxes, is_array_name, named_features
from streamdr.core.blocks import Array
from streamdr.core.files import read_regular
from streamdr.core.mapping import columns_kept, mapped_axes, mapped_names
from streamdr.errors import StoreError
from streamdr.store.arrays import (
    CHECKSUM_BYTES,
    CHUNK_BYTES,
    LARGEST_TEXT,
    ArrayLayout,
    decode_chunk,
    parse_layout,
    write_array,
)
from streamdr.store.labelled_axes import LabelledArray, LabelledAxes
from streamdr.store.record import LARGEST_BYTES, ROOT, Group, read_group, write_record

CHAIN = "chain"
"""The method of a chain of models, each of which is in a group of its own."""
_NAMES = "feature"
"""The array of the names of features, beside fields of a model: a coordinate for other programs."""
_LARGEST_METADATA = 2**20
"""The largest zarr.json of an array. It contains a shape, but no names of features."""


@dataclass(frozen=True)
class SavedModel:
    """A saved model, with its method, its parameters and its input."""

    model: Any
    method: str
    parameters: Mapping[str, Any]
    feature_names: tuple[str, ...] | None
    input_fingerprint: str
    n_rows: int
    record: Mapping[str, Any]
    axes: FeatureAxes | None = None
    """The axes of the features, if they are labelled, weighted, or some of them were left out."""
    members: tuple[SavedModel, ...] = ()
    """The models of a chain, each with the names and axes of its own features; none for another model."""

    @property
    def last(self) -> SavedModel:
        """The last model of a chain; another model itself."""
        return self.members[-1] if self.members else self


def write_model(
    folder: Path,
    model: Any,
    about: Mapping[str, Any],
    extra: Mapping[str, Any] | None = None,
    axes: FeatureAxes | None = None,
) -> None:
    """Write a dataclass of arrays (fields with `dims` in their metadata) and scalars into an empty folder.

    `about` contains the fields of `SavedModel` other than the model. `extra` contains further entries. Arrays
    of features are written along the dimensions of `axes`, with NaN where a feature is left out.
    """
    if about["method"] == CHAIN:
        _write_members(folder, model, about, axes)
        entries = {**about, "scalars": {}, "extra": extra or {}, "files": _digests(folder)}
        write_record(folder, "model", entries, complete=True)
        return
    scalars, arrays = labelled_fields(model, axes, about.get("feature_names"))
    own = {field.name for field in _fields(type(model))}
    layouts = {
        one.name: write_array(
            folder / one.name, one.values, one.dims, one.attributes, text=one.name not in own
        )
        for one in arrays
    }
    if axes is not None:
        about = {**about, "axes": LabelledAxes.of(axes, _fields(type(model))).record()}
    _require_agreement(folder, layouts)
    entries = {**about, "scalars": scalars, "extra": extra or {}, "files": _digests(folder)}
    write_record(folder, "model", entries, complete=True)


def _write_members(folder: Path, chain: Any, about: Mapping[str, Any], axes: FeatureAxes | None) -> None:
    """Write each model of a chain into a group of its own, as that model is written alone.

    Its features have the names, or the axes, that they have at that point of the chain.
    """
    names = about["feature_names"]
    for name, model, given in zip(chain.names, chain.models, about["parameters"]["steps"], strict=True):
        parameters = {key: value for key, value in given.items() if key not in ("name", "as")}
        own = {**about, "method": given["name"], "parameters": parameters, "feature_names": names}
        (folder / name).mkdir()
        write_model(folder / name, model, own, axes=axes)
        made = mapped_names(names, model)
        names = list(made) if made is not None else _numbered(name, names, model)
        axes = mapped_axes(axes, model)


def _numbered(name: str, before: Sequence[str] | None, model: Any) -> list[str] | None:
    """Return names for the columns that a model makes, such as pca0; none if they are nameless features."""
    if columns_kept(model) is not None and before is None:
        return None
    return [f"{name}{number}" for number in range(model.n_outputs)]


def labelled_fields(
    model: Any, axes: FeatureAxes | None = None, feature_names: Sequence[str] | None = None
) -> tuple[dict[str, Any], Iterator[LabelledArray]]:
    """Return the scalars of a model, and its arrays under their dimensions, with their coordinates.

    Arrays of features have the dimensions of `axes`, with NaN where a feature is left out. Without labels,
    the names of features are the coordinate of the dimension `feature`.
    """
    values = {field: getattr(model, field.name) for field in _fields(type(model))}
    scalars = {
        field.name: value
        for field, value in values.items()
        if value is None or "dims" not in field.metadata or _is_text(value)
    }

    def arrays() -> Iterator[LabelledArray]:
        labelled = None if axes is None else LabelledAxes.of(axes, _fields(type(model)))
        units = {} if axes is None or axes.weighted else dict(axes.attributes)
        lengths: dict[str, int] = {}
        for field, value in values.items():
            if field.name in scalars:
                continue
            dims, about = tuple(field.metadata["dims"]), {}
            lengths |= zip(dims, np.shape(value), strict=False)
            if labelled is not None:
                about = labelled.attributes(dims) | (units if field.metadata.get("data_units") else {})
                value, dims = labelled.expanded(value, dims)
            yield LabelledArray(field.name, value, dims, about)
        if labelled is not None:
            yield from labelled.arrays()
        elif feature_names is not None and len(feature_names) == lengths.get("feature"):
            for one in named_features(_NAMES, feature_names):
                yield LabelledArray(one.name, one.values, one.dims)

    return scalars, arrays()


def read_model(folder: Path, models: Mapping[str, type] | None = None) -> SavedModel:
    """Read a model, with the digest of every file checked, as the class that `models` has for its method."""
    group = read_group(folder, "model")
    record = group.record
    if record["method"] == CHAIN:
        return _read_chain(folder, group, models)
    classes = _registered() if models is None else models
    try:
        method: str = record["method"]
        if method not in classes:
            known = ", ".join(sorted(classes))
            raise StoreError(
                f"{folder}: made by the method {method!r}, unknown here (known: {known}); upgrade streamdr"
            )
        names = record["feature_names"]
        if names is not None and not _is_text(names):
            raise StoreError(f"{folder}: the names of its features are not text; fit and save it again")
        _verify_text(folder, group)
        labelled = _labelled(folder, group, classes[method])
        model = classes[method](**dict(_values(folder, group, classes[method], labelled)))
        if models is None:
            _require_sound(model)
        return SavedModel(
            model=model,
            method=method,
            parameters=record["parameters"],
            feature_names=None if names is None else tuple(names),
            input_fingerprint=record["input_fingerprint"],
            n_rows=record["n_rows"],
            record=record,
            axes=None if labelled is None else labelled.axes,
        )
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise StoreError(
            f"{folder}: not as streamdr writes a model ({error!r}); fit and save it again"
        ) from error


def _read_chain(folder: Path, group: Group, models: Mapping[str, type] | None) -> SavedModel:
    """Read the models of a chain, each from its group."""
    from streamdr.methods.chain import chain_model

    record = group.record
    try:
        names = [str(step["as"]) for step in record["parameters"]["steps"]]
        for name in names:
            if not is_array_name(name):
                raise ValueError(f"{name!r} cannot be a group")
            _verify(folder, group, f"{name}/{ROOT}", LARGEST_BYTES)
        members = [read_model(folder / name, models) for name in names]
        if any(one.model.n_outputs != next_.model.n_features for one, next_ in pairwise(members)):
            raise ValueError("its models do not fit together")
        return SavedModel(
            model=chain_model(names, [member.model for member in members]),
            method=CHAIN,
            parameters=record["parameters"],
            feature_names=members[0].feature_names,
            input_fingerprint=record["input_fingerprint"],
            n_rows=record["n_rows"],
            record=record,
            axes=members[0].axes,
            members=tuple(members),
        )
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(
            f"{folder}: not as streamdr writes a chain ({error!r}); fit and save it again"
        ) from error


def _require_sound(model: Any) -> None:
    """Raise an error of any kind if a sealed record does not hold a possible model of its method."""
    for field in _fields(type(model)):
        if np.iscomplexobj(getattr(model, field.name)):
            raise TypeError(f"{field.name!r} holds complex numbers")
    with np.errstate(all="ignore"):
        model.summary()  # computes with the loaded arrays


def _labelled(path: Path, group: Group, model: type) -> LabelledAxes | None:
    """Return the axes of the features, if the model has any."""
    entry = group.record.get("axes")
    if entry is None:
        return None
    return LabelledAxes.read(entry, _fields(model), lambda name: _read_array(path, group, name)[1])


def _verify_text(path: Path, group: Group) -> None:
    """Compare the files of arrays of text with their digests. Their values are taken from the record."""
    own = {name: found for name, found in group.arrays.items() if isinstance(found, dict)}
    text = {name for name, found in own.items() if found.get("data_type") == "string"}
    for file in group.record["files"]:
        if file.partition("/")[0] in text:
            _verify(path, group, file, LARGEST_TEXT)


def _values(
    path: Path, group: Group, model: type, labelled: LabelledAxes | None
) -> Iterator[tuple[str, Any]]:
    """Yield the name and the checked value of each field of the model."""
    own = {field.name for field in _fields(model)} if labelled is not None else set(group.arrays) - {_NAMES}
    arrays = {name: _read_array(path, group, name) for name in group.arrays if name in own}
    _require_agreement(path, {name: layout for name, (layout, _) in arrays.items()})
    scalars, hints = group.record["scalars"], _hints(model)
    for field in _fields(model):
        name, dims = field.name, field.metadata.get("dims")
        if name in scalars:
            value = scalars[name]
            if not (value is None or _is_text(value) if dims is not None else _suits(value, hints.get(name))):
                raise StoreError(
                    f"{path}: {name!r} of the model is {reprlib.repr(value)}, which it cannot be; "
                    "fit and save it again"
                )
            yield name, value
        elif name in arrays and dims is not None:
            layout, values = arrays[name]
            expected = tuple(dims) if labelled is None else labelled.stored_dims(tuple(dims))
            if layout.dims != expected:
                raise StoreError(
                    f"{path / name}: has dimensions {layout.dims} where the model has {expected}; "
                    "fit and save it again with this version of streamdr"
                )
            yield name, values if labelled is None else labelled.compacted(values, tuple(dims))
        elif field.default is MISSING and field.default_factory is MISSING:
            raise StoreError(
                f"{path}: {name!r} of the model is missing; "
                "fit and save it again with this version of streamdr"
            )


def _read_array(path: Path, group: Group, name: str) -> tuple[ArrayLayout, Array]:
    """Fill an array from its chunks, each read once and compared with its digest."""
    if not name.isidentifier():
        raise StoreError(f"{path}: {name!r} cannot be an array of a model; fit and save it again")
    directory = path / name
    layout = parse_layout(group.arrays[name], directory)
    digests = {key: value for key, value in group.record["files"].items() if key.startswith(f"{name}/c")}
    # Metadata may declare any shape. Memory is allocated only if every chunk is on the disk.
    if len(digests) != math.prod(layout.grid):
        raise StoreError(f"{directory}: {len(digests)} chunks are recorded for the shape {layout.shape}")
    for key, _ in layout.files():
        if not (directory / key).is_file():
            raise StoreError(f"{directory / key}: is missing; restore it or fit and save the model again")
        if (directory / key).stat().st_size != layout.file_bytes:
            raise StoreError(
                f"{directory / key}: has the wrong size; restore it or fit and save the model again"
            )
    if layout.file_bytes > CHUNK_BYTES + CHECKSUM_BYTES:
        raise StoreError(
            f"{directory}: chunks of {layout.file_bytes:,} bytes are refused, since streamdr saves models in "
            f"chunks of at most {CHUNK_BYTES:,}; fit and save it again"
        )
    _verify(path, group, f"{name}/{ROOT}", _LARGEST_METADATA)
    values = np.empty(layout.shape, layout.dtype)
    for key, region in layout.files():
        values[region] = decode_chunk(
            _verify(path, group, f"{name}/{key}", layout.file_bytes), layout, region
        )
    return layout, values


def _require_agreement(path: Path, layouts: Mapping[str, ArrayLayout]) -> None:
    """Refuse arrays that give one dimension two lengths."""
    lengths: dict[str, tuple[int, str]] = {}
    for name, layout in layouts.items():
        for dim, length in zip(layout.dims, layout.shape, strict=True):
            known, first = lengths.setdefault(dim, (length, name))
            if length != known:
                raise StoreError(f"{path}: {dim!r} is {known} long in {first!r}, but {length} in {name!r}")


def _verify(path: Path, group: Group, file: str, limit: int) -> bytes:
    """Return the content of a file of the group, if it has at most `limit` bytes and the recorded digest."""
    try:
        raw = read_regular(path / file, limit)
    except OSError as error:
        raise StoreError(f"{path / file}: cannot be read ({error.strerror}); restore it") from error
    if hashlib.sha256(raw).hexdigest() != group.record["files"][file]:
        raise StoreError(
            f"{path / file}: is not what was saved: the file was damaged or edited; "
            "restore it or fit and save the model again"
        )
    return raw


def _digests(group: Path) -> dict[str, str]:
    """Return the sha256 of every file. The crc32c of a chunk that ends in its own crc32c is a constant."""
    files = sorted(path for path in group.rglob("*") if path.is_file())
    return {
        file.relative_to(group).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest() for file in files
    }


def _hints(model: type) -> Mapping[str, Any]:
    """Return the declared types of the fields of a model, or none if they cannot be resolved."""
    try:
        return get_type_hints(model)
    except NameError:  # the class is defined inside a function
        return {}


def _suits(value: Any, hint: Any) -> bool:
    """Return whether a JSON value may have the declared type of a field. An unknown type allows any value."""
    if isinstance(hint, UnionType) or get_origin(hint) is Union:
        return any(_suits(value, one) for one in get_args(hint))
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if hint == list[str]:
        return _is_text(value)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint in (int, bool, str, NoneType):
        return type(value) is hint
    return get_origin(hint) is not Callable


def _is_text(value: Any) -> bool:
    """Return whether this is a list of strings rather than an array of numbers."""
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def _fields(model: type) -> list[Field[Any]]:
    return [field for field in fields(model) if field.init]


def _registered() -> dict[str, type]:
    from streamdr.methods import METHODS

    return {name: method.model for name, method in METHODS.items()}
