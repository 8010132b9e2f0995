"""How stored values become numbers, as xarray decodes them: missing, packed and unsigned values."""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamdr.core.blocks import Array
from streamdr.core.linalg import ignore_overflow, slabs
from streamdr.errors import DataError


@dataclass(frozen=True)
class Packing:
    """How stored values become numbers: `stored * scale + offset`, with NaN for those that mean missing.

    The numbers have the bits that `xarray.open_dataset(..., decode_times=False)` gives.

    Parameters
    ----------
    stored : dtype
        The type of the stored values.
    decoded : dtype
        The type of the numbers, in the machine's byte order.
    missing : tuple of float or int
        The stored values that mean missing, from `_FillValue` and `missing_value`, after a change of sign by
        `_Unsigned`. NaN always is missing, and is not among them.
    scale, offset : float, floating scalar of numpy, or None
        `scale_factor` and `add_offset`. A double scalar of numpy multiplies single precision in double, a
        Python number in single.
    unsigned : bool or None
        Whether integers are read as unsigned (True) or as signed (False) instead of their stored type.
    """

    stored: np.dtype[Any]
    decoded: np.dtype[Any]
    missing: tuple[float | int, ...] = ()
    scale: float | np.floating[Any] | None = None
    offset: float | np.floating[Any] | None = None
    unsigned: bool | None = None

    @classmethod
    def of(
        cls, dtype: np.dtype[Any], attributes: Mapping[str, Any], name: str, fill_value: Any = None
    ) -> Packing | None:
        """Return the packing that CF attributes describe, or None if the stored values are the numbers.

        Parameters
        ----------
        dtype : dtype
            The type of the stored values.
        attributes : mapping
            The attributes of the array: JSON values, or those of HDF5. The type of the decoded numbers
            depends on the types of `scale_factor` and `add_offset`: Python floats count as double.
        name : str
            The name of the array, for messages.
        fill_value : number or None
            The fill value in the metadata of a zarr v2 array. xarray takes it for `_FillValue`.

        Raises
        ------
        DataError
            If an attribute is no number, or does not fit the type of the values.

        Examples
        --------
        >>> import numpy as np
        >>> from streamdr.data.labelled.packing import Packing
        >>> attributes = {"scale_factor": 0.5, "add_offset": 10.0, "_FillValue": -1}
        >>> packing = Packing.of(np.dtype("i2"), attributes, "sst")
        >>> out = np.empty(3)
        >>> packing.decode(np.array([0, 1, -1], "i2"), out)
        >>> out
        array([10. , 10.5,  nan])
        """
        if dtype.kind not in "biuf":
            return None
        unsigned = _unsigned(attributes, dtype, name)
        plain = _with_sign(dtype, unsigned).newbyteorder("=")
        scale = _factor(attributes, "scale_factor", name)
        offset = _factor(attributes, "add_offset", name)
        given = dict(attributes) if fill_value is None else {**attributes, "_FillValue": fill_value}
        # Of masks, xarray makes objects that are True or NaN.
        masked, missing = (False, set()) if dtype.kind == "b" else _missing(given, dtype, unsigned, name)
        packed = scale is not None or offset is not None
        if packed and (missing or not masked):
            decoded = _packed_type(plain, scale, offset)
        elif missing:
            decoded = _type_with_nan(plain)
        else:
            decoded = plain  # also of packed floats whose only fill value is NaN
        if not packed and unsigned is None and not missing:
            return None
        return cls(dtype, decoded, _comparable(missing, decoded), scale, offset, unsigned)

    def decode(self, stored: Array, out: Array) -> None:
        """Write the numbers of stored values into an array.

        Parameters
        ----------
        stored : ndarray
            Stored values.
        out : ndarray
            An array of the same shape and of the type `decoded`, which shares no memory with `stored`.
        """
        values = stored.view(_with_sign(stored.dtype, self.unsigned))
        with ignore_overflow():
            for slab in slabs(out):
                numbers = out[slab]
                numbers[...] = values[slab]
                for missing in self.missing:
                    np.copyto(numbers, np.nan, where=numbers == missing)
                if self.scale is not None:
                    np.multiply(numbers, self.scale, out=numbers, casting="same_kind")
                if self.offset is not None:
                    np.add(numbers, self.offset, out=numbers, casting="same_kind")


def _with_sign(dtype: np.dtype[Any], unsigned: bool | None) -> np.dtype[Any]:
    """The type of the stored integers when read as unsigned (True), signed (False), or as they are (None)."""
    return (
        dtype
        if unsigned is None
        else np.dtype(f"{dtype.byteorder}{'u' if unsigned else 'i'}{dtype.itemsize}")
    )


def _type_with_nan(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type of numbers that are not packed, some of which are missing."""
    if dtype.kind == "f":
        return dtype
    return np.dtype(np.float32 if dtype.itemsize <= 2 else np.float64)


def _packed_type(
    dtype: np.dtype[Any], scale: float | np.floating[Any] | None, offset: float | np.floating[Any] | None
) -> np.dtype[Any]:
    """The type of packed numbers, by the rules of CF and of xarray for what CF leaves open."""
    if offset is None:
        return np.dtype(type(scale))
    if np.dtype(type(offset)) == np.dtype(type(scale)) == np.float32 and not (
        dtype.kind in "iu" and dtype.itemsize == 4
    ):
        return np.dtype(np.float32)
    return np.dtype(np.float64)


def _comparable(missing: set[Any], decoded: np.dtype[Any]) -> tuple[float | int, ...]:
    """Those of the values that numbers of the decoded type can equal.

    As in numpy, its scalars are compared in double, and Python numbers are rounded to the decoded type first.
    """
    values = []
    with ignore_overflow():
        for value in missing:
            rounded = decoded.type(value)
            if np.isfinite(rounded) and not isinstance(value, np.generic):
                values.append(value)
            elif isinstance(value, np.generic) and rounded == np.float64(value):
                values.append(value.item())
    return tuple(sorted(values))


def _missing(
    attributes: Mapping[str, Any], dtype: np.dtype[Any], unsigned: bool | None, name: str
) -> tuple[bool, set[Any]]:
    """Whether attributes say how missing values are stored, and the values other than NaN that mean it."""
    fill = _fill_values(attributes, dtype, unsigned, name)
    others = _numbers(attributes, "missing_value", name)
    # As scalars of numpy, as which xarray compares them; integers of more than 64 bits stay those of Python.
    missing: set[Any] = {np.asarray(value)[()] for value in (*fill, *others) if not np.isnan(float(value))}
    masked = bool(missing) or (dtype.kind == "f" and bool(fill or others))
    if unsigned is not None:
        # xarray changes the sign of `_FillValue` only. Of the unsigned value it makes a Python number, of the
        # signed one a scalar of numpy.
        for value in missing.intersection(fill):
            bits = np.array(int(value) % (1 << 8 * dtype.itemsize), f"u{dtype.itemsize}")
            missing.remove(value)
            missing.add(bits.item() if unsigned else bits.view(f"i{dtype.itemsize}")[()])
    return masked, missing


def _fill_values(
    attributes: Mapping[str, Any], dtype: np.dtype[Any], unsigned: bool | None, name: str
) -> list[Any]:
    """The value of `_FillValue`, if there is one: a number that the type of the stored values has."""
    given = attributes.get("_FillValue")
    if isinstance(given, str) and dtype.kind == "f":
        return [_from_base64(given, name)]
    values = _numbers(attributes, "_FillValue", name)
    if len(values) > 1:
        raise DataError(f"{name}: _FillValue has {len(values)} values; it must be one number")
    for value in values:
        if not _fits(value, dtype, signs=unsigned is not None):
            raise DataError(
                f"{name}: _FillValue is {value}, which no value of type {dtype} can be; correct it"
            )
    return values


def _fits(value: Any, dtype: np.dtype[Any], signs: bool) -> bool:
    """Whether a number is among those of a type, up to rounding; with `signs`, of either sign."""
    number = float(value)
    if np.isnan(number):
        return True
    if dtype.kind == "f":
        with ignore_overflow():
            return bool(np.isinf(number) or np.isfinite(dtype.type(number)))
    if not number.is_integer():
        return False
    limits = [np.iinfo(_with_sign(dtype, sign)) for sign in ((True, False) if signs else (None,))]
    return min(limit.min for limit in limits) <= int(value) <= max(limit.max for limit in limits)


def _from_base64(text: str, name: str) -> float:
    """The fill value of floats in attributes of zarr v3, where JSON has no NaN."""
    try:
        (value,) = struct.unpack("<d", base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, struct.error):
        raise DataError(
            f"{name}: _FillValue is the text {_short(text)}, which is neither a number nor one in base64"
        ) from None
    return float(value)


def _unsigned(attributes: Mapping[str, Any], dtype: np.dtype[Any], name: str) -> bool | None:
    """Whether integers are to be read with another sign than their type has; None if not."""
    given = attributes.get("_Unsigned")
    if given is None or dtype.kind not in "iu":
        return None
    value = given.item() if isinstance(given, np.ndarray | np.generic) and given.size == 1 else given
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    if not isinstance(text, str) or text not in ("true", "false"):
        raise DataError(f"{name}: _Unsigned is {_short(given)}; it must be the text 'true' or 'false'")
    return None if (text == "true") == (dtype.kind == "u") else text == "true"


def _factor(attributes: Mapping[str, Any], key: str, name: str) -> float | np.floating[Any] | None:
    """The value of `scale_factor` or `add_offset`, as a float of its own type; None if there is none."""
    values = _numbers(attributes, key, name)
    if not values:
        return None
    if len(values) > 1:
        raise DataError(f"{name}: {key} has {len(values)} values; it must be one number")
    value = values[0]
    if not np.isfinite(float(value)):
        raise DataError(f"{name}: {key} is {value}; it must be a finite number")
    if isinstance(value, np.float16 | np.float32 | np.float64):
        return value
    return np.float64(value) if isinstance(value, np.generic) else float(value)


def _numbers(attributes: Mapping[str, Any], key: str, name: str) -> list[Any]:
    """The numbers of an attribute, as scalars of Python or numpy; none if there is no such attribute."""
    given = attributes.get(key)
    if given is None:
        return []
    if isinstance(given, np.ndarray):
        values = list(given.ravel())
    else:
        values = list(given) if isinstance(given, list | tuple) else [given]
    if not values or not all(_is_number(value) for value in values):
        raise DataError(f"{name}: {key} is {_short(given)}, not a number; correct the attribute")
    return values


def _is_number(value: Any) -> bool:
    """Whether a value is a real number that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return True


def _short(value: Any) -> str:
    """An attribute for messages."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."
