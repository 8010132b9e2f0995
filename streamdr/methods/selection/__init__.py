"""Selection of features."""

from __future__ import annotations

from streamdr.core.method import Method
from streamdr.methods.selection.filter import SelectCorrelation, SelectFScore
from streamdr.methods.selection.forward import SelectForward
from streamdr.methods.selection.mutual_info import SelectMutualInfo

METHODS: tuple[type[Method], ...] = (
    SelectMutualInfo,
    SelectFScore,
    SelectCorrelation,
    SelectForward,
)

__all__ = ["METHODS", "SelectCorrelation", "SelectFScore", "SelectForward", "SelectMutualInfo"]
