"""Saved models as files of ONNX."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from streamdr import __version__, store
from streamdr.core.addresses import Location
from streamdr.core.axes import FeatureAxes
from streamdr.core.files import NotRegularError, open_regular, write_new
from streamdr.core.plain_maps import HasPlainClasses, HasPlainMaps, PlainMap, Scale, TakeColumns
from streamdr.errors import ConfigError, ParameterError, StoreError
from streamdr.store.publish import sync
from streamdr.workflow.reports import ExportReport

if TYPE_CHECKING:
    from onnx import ModelProto

Precision = Literal["float32", "float64"]
_PRODUCER = b"\x12\x08streamdr"
"""The name of the producer, which is at the beginning of a file of ONNX."""
_START = 32
PRECISIONS: tuple[Precision, ...] = ("float32", "float64")


def export_onnx(model: Location, out: Path, dtype: str = "float32") -> ExportReport:
    """Write a saved model as a file of ONNX, and return what it computes.

    Parameters
    ----------
    model : Path or Address
        The model.
    out : Path
        The file. One that was exported before is replaced, in one step; any other is an error.
    dtype : "float32" or "float64"
        The type of the rows, of the arithmetic and of the results.

    Raises
    ------
    ParameterError
        If the model is not a sequence of linear maps and elementary steps.
    StoreError
        If there is no model, or the file cannot be written.
    """
    _require_replaceable(out, model)
    saved = store.load_model(model)
    made = onnx_model(saved, dtype)
    data = made.SerializeToString()
    _replace(out, data)
    return ExportReport(
        path=str(out),
        bytes=len(data),
        model=str(model),
        method=saved.method,
        dtype=dtype,
        opset=int(made.opset_import[0].version),
        n_features=saved.model.n_features if saved.axes is None else saved.axes.n_features,
        outputs=tuple(output.name for output in made.graph.output),
    )


def onnx_model(saved: store.SavedModel, dtype: str = "float32") -> ModelProto:
    """Return a saved model as a model of ONNX.

    Its input is `X`. Its outputs are `scores`, and `labels` and `probabilities` if the model predicts by
    linear functions.
    """
    if dtype not in PRECISIONS:
        raise ConfigError(f"--dtype: {dtype!r} is not one of {', '.join(PRECISIONS)}")
    try:
        from streamdr.core.onnx_graph import Graph
    except ImportError as error:
        raise ConfigError(
            f"files of ONNX need a package that is not installed ({error}); "
            "install it with: pip install 'streamdr[onnx]'"
        ) from error
    model, axes = saved.model, saved.axes
    if not isinstance(saved.model, HasPlainMaps):
        raise ParameterError(
            "onnx",
            f"a model by {saved.method} is not a sequence of linear maps and elementary steps, which is what "
            "can be exported; load it with streamdr.load_model",
        )
    if axes is not None and axes.selects and model.outputs_are_features:
        raise ParameterError(
            "onnx",
            "its rows have all features again, and the model leaves some out or weighs them: fit without "
            "min_observed and feature_weights",
        )
    used = tuple(_used_features(axes))
    graph = Graph(model.n_features if axes is None else axes.n_features, np.dtype(dtype))
    graph.output("scores", graph.mapped((*used, *saved.model.plain_maps())), model.n_outputs)
    if isinstance(saved.model, HasPlainClasses):
        graph.classes(saved.model.plain_classes(), used)
    return graph.model(_metadata(saved))


def _used_features(axes: FeatureAxes | None) -> Iterator[PlainMap]:
    """Yield the maps that give the features as the model sees them."""
    if axes is None:
        return
    if axes.kept is not None:
        yield TakeColumns(axes.columns)
    if axes.weighted and axes.kept_weights is not None:
        yield Scale(axes.kept_weights)


def _metadata(saved: store.SavedModel) -> dict[str, str]:
    """Return what a file says of its model."""
    found = {
        "streamdr_version": __version__,
        "method": saved.method,
        "parameters": json.dumps(store.to_json(saved.parameters)),
        "model_digest": str(saved.record["digest"]),
    }
    if saved.feature_names is not None:
        found["feature_names"] = json.dumps(list(saved.feature_names))
    return found


def _require_replaceable(path: Path, model: Location) -> None:
    """Refuse a place in the model, and to replace a file that streamdr did not export."""
    if isinstance(model, Path) and path.resolve().is_relative_to(model.resolve()):
        raise StoreError(f"{path}: lies in the model {model}; choose a path outside it")
    try:
        with open_regular(path) as file:
            ours = _PRODUCER in file.read(_START)
    except FileNotFoundError:
        return
    except NotRegularError:
        ours = False
    except OSError as error:
        raise StoreError(f"{path}: cannot be written ({error.strerror}); choose another path") from error
    if not ours:
        raise StoreError(f"{path}: exists, and streamdr did not export it; choose another path")


def _replace(path: Path, data: bytes) -> None:
    """Write a file beside its place, and move it there."""
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")
    try:
        write_new(beside, data)
        sync(beside)
        os.replace(beside, path)
        sync(path.parent)
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise StoreError(f"{path}: cannot be written ({error.strerror}); choose another path") from error


__all__ = ["PRECISIONS", "export_onnx", "onnx_model"]
