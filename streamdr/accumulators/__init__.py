"""Statistics that stream: numpy only, one idea a file. `ACCUMULATORS` is what the laws run over."""

from __future__ import annotations

from streamdr.accumulators.base import Accumulator, copied
from streamdr.accumulators.columns import Gram, Loadings, Scores
from streamdr.accumulators.moments import Moments
from streamdr.accumulators.products import Products

ACCUMULATORS: dict[str, type[Accumulator]] = {
    kind.kind: kind for kind in (Moments, Products, Gram, Loadings, Scores)
}

__all__ = ["ACCUMULATORS", "Accumulator", "Gram", "Loadings", "Moments", "Products", "Scores", "copied"]
