"""Multidimensional scaling: classical, landmark, metric and nonmetric."""

from __future__ import annotations

from streamdr.core.method import Method
from streamdr.methods.mds.classical import ClassicalMDS
from streamdr.methods.mds.landmark import LandmarkMDS
from streamdr.methods.mds.metric import MetricMDS
from streamdr.methods.mds.nonmetric import NonmetricMDS

METHODS: tuple[type[Method], ...] = (
    ClassicalMDS,
    LandmarkMDS,
    MetricMDS,
    NonmetricMDS,
)

__all__ = ["METHODS", "ClassicalMDS", "LandmarkMDS", "MetricMDS", "NonmetricMDS"]
