"""The compiled kernels, which are optional.

A kernel does the same floating-point operations as its twin in numpy, in the same order, so results have the
same bits with and without a compiler. It releases the GIL, and keeps its operands in the first-level cache.
"""

from __future__ import annotations

from types import ModuleType

VERSION = 1
"""The version of `_kernels.c` that this code calls. What was compiled from another version is ignored."""


def load() -> ModuleType | None:
    """The compiled module; None where it was not built, or from another version of its source."""
    try:
        from streamdr.core import _kernels
    except ImportError:
        return None
    return _kernels if _kernels.VERSION == VERSION else None


compiled = load()
"""The compiled kernels; None where numpy takes their place."""
