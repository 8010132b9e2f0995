"""Steps, which prepare rows for the method after them."""

from __future__ import annotations

from streamdr.core.method import Method
from streamdr.methods.steps.clip import Clip
from streamdr.methods.steps.log1p import Log1p
from streamdr.methods.steps.normalize_total import NormalizeTotal
from streamdr.methods.steps.standardise import Standardise
from streamdr.methods.steps.unit_norm import UnitNorm

METHODS: tuple[type[Method], ...] = (
    NormalizeTotal,
    Log1p,
    Clip,
    UnitNorm,
    Standardise,
)

__all__ = ["METHODS", "Clip", "Log1p", "NormalizeTotal", "Standardise", "UnitNorm"]
