"""Graphs of ONNX made of elementary maps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from streamdr import __version__
from streamdr.core.blocks import Array
from streamdr.core.plain_maps import (
    Limit,
    LogOnePlus,
    Multiply,
    PlainClasses,
    PlainMap,
    Scale,
    ScaleNorms,
    ScaleTotals,
    Subtract,
    TakeColumns,
)
from streamdr.errors import ParameterError

OPSET = 18
"""The version of the operators. onnxruntime has it since 1.14."""
_IR_VERSION = 8
"""The version of the format that belongs to this opset."""
_LARGEST = 2**31 - 2**20
"""A file of ONNX is one message of protobuf, which has less than 2 GiB."""
INPUT = "X"
_TYPES = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.float64): TensorProto.DOUBLE}


class Graph:
    """A graph whose input is rows of one floating type, and that computes in this type.

    Means are subtracted before products, as in streamdr. What a mean loses when it is rounded to the type is
    added after the product, where it is small beside the result and not beside the data.
    """

    def __init__(self, n_features: int, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        self._nodes: list[Any] = []
        self._constants: dict[str, Array] = {}
        self._inputs = [helper.make_tensor_value_info(INPUT, _TYPES[dtype], ["rows", n_features])]
        self._outputs: list[Any] = []
        self._names = iter(f"value{number}" for number in range(1 << 30))

    def mapped(self, maps: Iterable[PlainMap], rows: str = INPUT) -> str:
        """Add maps, one after another. Return the name of the result."""
        lost: Array | None = None
        for each in _means_first(list(maps)):
            if isinstance(each, Subtract):
                shift = each.vector.astype(self._dtype)
                rest = shift.astype(np.float64) - each.vector
                lost = rest if lost is None else lost + rest
                rows = self._apply("Sub", rows, self.constant(shift))
            elif isinstance(each, Scale):
                lost = None if lost is None else lost * each.factors
                rows = self._apply("Mul", rows, self.constant(each.factors.astype(self._dtype)))
            elif isinstance(each, TakeColumns):
                lost = None if lost is None else lost[each.columns]
                columns = self.constant(np.asarray(each.columns, np.int64))
                rows = self._apply("Gather", rows, columns, axis=1)
            elif isinstance(each, Multiply):
                lost = None if lost is None else lost @ each.matrix
                rows = self._apply("MatMul", rows, self.constant(each.matrix.astype(self._dtype)))
            else:
                rows, lost = self._nonlinear(each, self._restored(rows, lost)), None
        return self._restored(rows, lost)

    def output(self, name: str, value: str, n_columns: int) -> None:
        """Make rows an output."""
        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs.append(helper.make_tensor_value_info(name, _TYPES[self._dtype], ["rows", n_columns]))

    def classes(self, given: PlainClasses, before: Sequence[PlainMap] = ()) -> None:
        """Add the outputs `labels` and `probabilities`, for rows that some maps have mapped.

        The functions are computed in double precision: they are large where classes are far apart.
        """
        scores = self._apply("Cast", self.mapped((*before, *given.maps)), to=TensorProto.DOUBLE)
        products = self._apply("MatMul", scores, self.constant(np.asarray(given.matrix, np.float64)))
        joint = self._apply("Add", products, self.constant(np.asarray(given.levels, np.float64)))
        likeliest = self._apply("ArgMax", joint, axis=1, keepdims=0)
        labels = _labels(given.labels)
        self._nodes.append(helper.make_node("Gather", [self.constant(labels), likeliest], ["labels"], axis=0))
        kind = TensorProto.STRING if labels.dtype == object else helper.np_dtype_to_tensor_dtype(labels.dtype)
        self._outputs.append(helper.make_tensor_value_info("labels", kind, ["rows"]))
        shares = self._apply("Softmax", joint, axis=1)
        self.output("probabilities", self._apply("Cast", shares, to=_TYPES[self._dtype]), len(labels))

    def constant(self, values: Array) -> str:
        """Add an array. Return its name."""
        name = f"constant{len(self._constants)}"
        self._constants[name] = values
        return name

    def model(self, metadata: Mapping[str, str]) -> onnx.ModelProto:
        """Return the checked model of the graph, with metadata."""
        size = sum(array.nbytes for array in self._constants.values())
        if size > _LARGEST:
            raise ParameterError(
                "onnx",
                f"its arrays take {size / 2**30:.3g} GiB, and a file of ONNX holds less than 2 GiB: export "
                "float32, or fit fewer components",
            )
        constants = [numpy_helper.from_array(values, name) for name, values in self._constants.items()]
        graph = helper.make_graph(self._nodes, "streamdr", self._inputs, self._outputs, constants)
        made = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=_IR_VERSION,
            producer_name="streamdr",
            producer_version=__version__,
        )
        helper.set_model_props(made, dict(metadata))
        onnx.checker.check_model(made, full_check=True)
        return made

    def _restored(self, rows: str, lost: Array | None) -> str:
        """Add back what means have lost."""
        if lost is None or not lost.any():
            return rows
        return self._apply("Add", rows, self.constant(lost.astype(self._dtype)))

    def _nonlinear(self, each: PlainMap, rows: str) -> str:
        if isinstance(each, LogOnePlus):
            return self._log_one_plus(rows)
        if isinstance(each, Limit):
            limits = ("" if limit is None else self._scalar(limit) for limit in (each.least, each.largest))
            return self._apply("Clip", rows, *limits)
        if isinstance(each, ScaleTotals):
            totals = self._reduced("ReduceSum", rows)
            divisors = self._apply("Div", totals, self._scalar(each.total))
            return self._apply("Div", rows, self._or_one(divisors))
        if isinstance(each, ScaleNorms):
            sizes = self._reduced("ReduceMax", self._apply("Abs", rows))
            # First by the largest value: squares of large values overflow, those of small ones vanish.
            rows = self._apply("Div", rows, self._or_one(sizes))
            if each.norm == "max":
                return rows
            if each.norm == "l1":
                norms = self._reduced("ReduceSum", self._apply("Abs", rows))
            else:
                norms = self._apply("Sqrt", self._reduced("ReduceSum", self._apply("Mul", rows, rows)))
            return self._apply("Div", rows, self._or_one(norms))
        raise TypeError(f"no operators for {type(each).__name__}")

    def _log_one_plus(self, rows: str) -> str:
        """ln(1 + x) = ln(u) x / (u - 1) with the rounded u = 1 + x, which keeps the digits of small x."""
        one = self._scalar(1.0)
        sums = self._apply("Add", rows, one)
        rounded = self._apply("Sub", sums, one)
        vanishes = self._apply("Equal", rounded, self._scalar(0.0))
        divisor = self._apply("Where", vanishes, one, rounded)
        ratio = self._apply("Div", rows, divisor)
        product = self._apply("Mul", self._apply("Log", sums), ratio)
        return self._apply("Where", vanishes, rows, product)

    def _reduced(self, operator: str, rows: str) -> str:
        return self._apply(operator, rows, self.constant(np.array([1], np.int64)), keepdims=1)

    def _or_one(self, divisors: str) -> str:
        """Return divisors, with one for zero."""
        zero = self._apply("Equal", divisors, self._scalar(0.0))
        return self._apply("Where", zero, self._scalar(1.0), divisors)

    def _scalar(self, value: float) -> str:
        return self.constant(np.array(value, self._dtype))

    def _apply(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = next(self._names)
        self._nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name


def _means_first(maps: list[PlainMap]) -> list[PlainMap]:
    """Return the same maps, with means subtracted before rows are scaled: a scaled row has lost digits."""
    ordered: list[PlainMap] = []
    for each in maps:
        before = ordered[-1] if ordered else None
        if isinstance(each, Subtract) and isinstance(before, Scale) and before.factors.all():
            ordered[-1:] = [Subtract(each.vector / before.factors), before]
        else:
            ordered.append(each)
    return ordered


def _labels(labels: Array | Sequence[str]) -> Array:
    """Return labels in a type that ONNX has: text, 64-bit integers or double precision."""
    values = np.asarray(labels)
    if values.dtype.kind in "UTO":
        return np.array(values.tolist(), dtype=object)
    return values.astype(np.int64 if values.dtype.kind in "iub" else np.float64)
