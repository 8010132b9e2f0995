"""Descent on a stress: from a configuration to a better one, until there is hardly any better."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import NamedTuple

import numpy as np

from streamdr.accumulators import Accumulator, Stress
from streamdr.blocks import Array
from streamdr.methods.acceleration import Anderson
from streamdr.methods.base import Pass

_PATIENCE = 3
_ROUNDING = 1e-12
_MEMORY = 5


class Look(NamedTuple):
    """What one look at all pairs tells of a configuration."""

    stress: float
    better: Array
    """Where a step of majorization leads: its stress is not higher."""
    gradient: Array


class Descent(NamedTuple):
    """The best configuration of a descent, and the stress at every step."""

    embedding: Array
    history: Array
    converged: bool

    @property
    def stress(self) -> float:
        """That of the best."""
        return float(self.history[-1])


Looking = Callable[[Array, str], Generator[Pass, Accumulator, Look]]
Descending = Generator[Pass, Accumulator, Descent]


def majorized(full: Stress, *, uniform: bool) -> Array:
    """Guttman's transform of the configuration that was looked at.

    Where all pairs count alike that is exactly the best configuration for a quadratic bound of the stress,
    Y - pull / n. Otherwise the bound |y_i - y_j|^2 <= 2 |y_i|^2 + 2 |y_j|^2 about it needs no system of
    equations: Y - pull / 2 degree.
    """
    if uniform:
        return np.asarray(full.embedding - full.pull / len(full.embedding))
    degree = np.where(full.degree > 0, 2.0 * full.degree, 1.0)
    return np.asarray(full.embedding - full.pull / degree[:, None])


def smacof(start: Array, look: Looking, max_iter: int, tol: float) -> Descending:
    """Majorization, with Anderson's acceleration, which is given up where it leads uphill."""
    ahead, safe = start, start
    anderson, best, calm = Anderson(), np.inf, 0
    embedding, history = start, []
    for number in range(1, max_iter + 1):
        told = "" if number == 1 else f", stress {best:.6g}"
        seen = yield from look(ahead, f"SMACOF {number}{told}")
        if seen.stress > best * (1 + _ROUNDING) and ahead is not safe:
            anderson.forget()
            ahead = safe
            history.append(best)
            continue
        calm = calm + 1 if best - seen.stress <= tol * seen.stress else 0
        if seen.stress <= best:
            best, embedding = seen.stress, ahead
        history.append(best)
        if calm >= _PATIENCE or best == 0.0:
            break
        safe = seen.better
        ahead = anderson.step(ahead.ravel(), safe.ravel(), np.ones(1)).reshape(start.shape)
    return Descent(embedding, np.array(history), calm >= _PATIENCE or best == 0.0)


def gradient_descent(start: Array, look: Looking, max_iter: int, tol: float) -> Descending:
    """Steps along the gradient, as long as the last two gradients suggest (Barzilai and Borwein 1988).

    The stress may rise for a few steps; a step after which it is higher than after all of the last few is
    taken back, and halved.
    """
    point, best, calm = start, np.inf, 0
    embedding, history = start, []
    recent: list[float] = []
    last: tuple[Array, Look] | None = None
    step = 0.0
    for number in range(1, max_iter + 1):
        told = "" if number == 1 else f", stress {best:.6g}"
        seen = yield from look(point, f"gradient descent {number}{told}")
        if last is not None and recent and seen.stress > max(recent) * (1 + _ROUNDING):
            history.append(best)
            step /= 4.0
            point = last[0] - step * last[1].gradient
            continue
        calm = calm + 1 if best - seen.stress <= tol * seen.stress else 0
        if seen.stress <= best:
            best, embedding = seen.stress, point
        history.append(best)
        recent = [*recent, seen.stress][-_MEMORY:]
        if calm >= 2 * _PATIENCE or best == 0.0:
            break
        step = _step(point, seen, last)
        last = point, seen
        point = point - step * seen.gradient
    return Descent(embedding, np.array(history), calm >= 2 * _PATIENCE or best == 0.0)


def _step(point: Array, seen: Look, last: tuple[Array, Look] | None) -> float:
    if last is not None:
        moved, bent = (point - last[0]).ravel(), (seen.gradient - last[1].gradient).ravel()
        along = float(moved @ bent)
        if along > 0:
            return along / float(bent @ bent)
    slope = float(np.linalg.norm(seen.gradient))
    return float(np.linalg.norm(seen.better - point)) / slope if slope else 0.0
