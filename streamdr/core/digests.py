"""The digest of plain values that records, leases and ledgers store: it must never change."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def json_digest(value: Any, *, compact: bool = False) -> str:
    """The sha256, in hexadecimal, of a value as JSON with sorted keys; `compact` JSON has no spaces.

    Examples
    --------
    >>> json_digest({"b": 1, "a": [2.5]}) == json_digest({"a": [2.5], "b": 1})
    True
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":") if compact else None)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
