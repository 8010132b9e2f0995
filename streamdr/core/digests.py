"""Digests of plain values and arrays, as records, leases and ledgers store them: they must never change."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray


def json_digest(value: Any, *, compact: bool = False) -> str:
    """The sha256, in hexadecimal, of a value as JSON with sorted keys; `compact` JSON has no spaces.

    Examples
    --------
    >>> json_digest({"b": 1, "a": [2.5]}) == json_digest({"a": [2.5], "b": 1})
    True
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":") if compact else None)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def array_digest(values: NDArray[Any]) -> str:
    """The blake2b, in hexadecimal, of an array: its type, its shape and its values.

    Examples
    --------
    >>> array_digest(np.arange(3)) == array_digest(np.arange(3.0))
    False
    """
    digest = hashlib.blake2b(f"{values.dtype.str} {values.shape}".encode(), digest_size=16)
    digest.update(np.ascontiguousarray(values).data)
    return digest.hexdigest()
