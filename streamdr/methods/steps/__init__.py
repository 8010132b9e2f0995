"""Steps, which prepare rows for the method after them."""

from __future__ import annotations

from streamdr.core.method import Method
from streamdr.methods.steps.bin import Bin
from streamdr.methods.steps.clip import Clip
from streamdr.methods.steps.log1p import Log1p
from streamdr.methods.steps.normalize_total import NormalizeTotal
from streamdr.methods.steps.scale_genotypes import ScaleGenotypes
from streamdr.methods.steps.select_columns import SelectColumns
from streamdr.methods.steps.select_variance import SelectVariance
from streamdr.methods.steps.standardise import Standardise
from streamdr.methods.steps.unit_norm import UnitNorm

METHODS: tuple[type[Method], ...] = (
    NormalizeTotal,
    Log1p,
    Clip,
    UnitNorm,
    SelectColumns,
    Standardise,
    ScaleGenotypes,
    SelectVariance,
    Bin,
)

__all__ = [
    "METHODS",
    "Bin",
    "Clip",
    "Log1p",
    "NormalizeTotal",
    "ScaleGenotypes",
    "SelectColumns",
    "SelectVariance",
    "Standardise",
    "UnitNorm",
]
