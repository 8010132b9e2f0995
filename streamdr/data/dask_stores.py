"""Zarr arrays in the graphs of dask arrays. They are read as a path is: decoded in the calling thread.

zarr-python decodes on threads of its own, and da.from_zarr opens even local files through fsspec. For small
chunks that takes ten times as long. Values are the same, so it is enough to exchange the array that the tasks
of a graph read from, wherever it is used.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import zarr
from dask._task_spec import DataNode, GraphNode, Task, TaskRef
from dask.array.core import getter, getter_inline, getter_nofancy, slices_from_chunks

from streamdr.data.layout import Region
from streamdr.data.zarr.locate import Located, array_at
from streamdr.data.zarr.objects import local_root, node_of
from streamdr.data.zarr.source import ZarrSource
from streamdr.errors import StreamdrError

_GETTERS = (getter, getter_nofancy, getter_inline)


class DirectArray(zarr.Array[Any]):
    """A zarr array of local files. Boxes of it are read like those of a path, anything else as zarr does."""

    def __init__(self, array: zarr.Array[Any], found: Located) -> None:
        super().__init__(array._async_array)
        self._source = ZarrSource(found.node, found.metadata, sample_axis=0, allow_missing=True)

    def __getitem__(self, selection: Any) -> Any:
        """Return a part of the array."""
        box = _box(selection, self.shape)
        if box is None:
            return super().__getitem__(selection)
        values = np.empty([each.stop - each.start for each in box], self.dtype)
        self._source.fill_box(box, values)
        return values


def direct_nodes(tasks: dict[Any, Any]) -> dict[Any, GraphNode]:
    """Return what replaces the zarr arrays among the tasks of a graph, by their keys."""
    found: dict[Any, GraphNode] = {}
    for key, task in tasks.items():
        array = task.value if isinstance(task, DataNode) else task
        located = _readable(array)
        if located is not None:
            found[key] = DataNode(key, DirectArray(array, located))
    return found


def whole_store(array: Any) -> Located | None:
    """Return the zarr array that a dask array is, block by block; None if it is anything else.

    Every task of the graph is examined: each must read its own block, and the blocks must be those of the
    whole array. So a selection, a map, or blocks in another order are never taken for the array itself.
    """
    layers = getattr(array.__dask_graph__(), "layers", {})
    stored = [layer for name, layer in layers.items() if name != array.name]
    if len(layers) != 2 or len(stored) != 1 or len(stored[0]) != 1:
        return None
    ((root, value),) = stored[0].items()
    value = value.value if isinstance(value, DataNode) else value
    if type(value) is not zarr.Array or (value.shape, value.dtype) != (array.shape, array.dtype):
        return None
    tasks = dict(layers[array.name])
    keys = list(product([array.name], *(range(len(lengths)) for lengths in array.chunks)))
    boxes = slices_from_chunks(array.chunks)
    if len(tasks) != len(keys):
        return None
    for key, box in zip(keys, boxes, strict=True):
        task = tasks.get(key)
        if not isinstance(task, Task) or task.func not in _GETTERS or task.kwargs or len(task.args) != 2:
            return None
        reads, where = task.args
        if not isinstance(reads, TaskRef) or reads.key != root:
            return None
        if not isinstance(where, DataNode) or where.value != box:
            return None
    return _readable(value)


def _readable(array: Any) -> Located | None:
    """Return the files of a zarr array, if they are local and can be decoded here."""
    if type(array) is not zarr.Array or array.ndim == 0 or not all(array.shape):
        return None
    if local_root(array.store) is None or array.dtype.kind not in "biuf" or not array.dtype.isnative:
        return None
    try:
        found = array_at(node_of(array))
        if found is None or (found.metadata.grid.shape, found.metadata.dtype) != (array.shape, array.dtype):
            return None
        ZarrSource(found.node, found.metadata, sample_axis=0, allow_missing=True)
    except (StreamdrError, OSError):  # zarr may be able to read it
        return None
    return found


def _box(selection: Any, shape: tuple[int, ...]) -> Region | None:
    """Return a selection as slices with start and stop; None unless it is one slice per axis, not empty."""
    if not isinstance(selection, tuple) or len(selection) != len(shape):
        return None
    box = []
    for part, length in zip(selection, shape, strict=True):
        if not isinstance(part, slice):
            return None
        start, stop, step = part.indices(length)
        if step != 1 or start >= stop:
            return None
        box.append(slice(start, stop))
    return tuple(box)
