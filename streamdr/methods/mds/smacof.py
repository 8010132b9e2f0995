"""Descent on a stress: SMACOF with Anderson acceleration, and gradient descent."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import NamedTuple

import numpy as np

from streamdr.core.accumulator import Accumulator
from streamdr.core.blocks import Array
from streamdr.core.method import Pass
from streamdr.methods.mds.stress import Stress
from streamdr.statistics.anderson import Anderson

_PATIENCE = 3
"""The number of consecutive iterations without progress after which a descent has converged."""
_ROUNDING = 1e-12
_MEMORY = 5
"""The number of recent stresses that a step of gradient descent must not exceed."""


class Evaluation(NamedTuple):
    """The stress of a configuration over all pairs, a step of majorization, and the gradient."""

    stress: float
    better: Array
    """The configuration after a step of majorization: its stress is not higher."""
    gradient: Array


class Descent(NamedTuple):
    """The best configuration of a descent, and the stress at every step."""

    embedding: Array
    history: Array
    converged: bool

    @property
    def stress(self) -> float:
        """The stress of the best configuration."""
        return float(self.history[-1])


Evaluate = Callable[[Array, str], Generator[Pass, Accumulator, Evaluation]]
Descending = Generator[Pass, Accumulator, Descent]


def majorized(full: Stress, *, uniform: bool) -> Array:
    """The Guttman transform of the evaluated configuration Y.

    With equal weights it is the minimiser of a quadratic majorant of the stress, Y - pull / n. Otherwise the
    bound |y_i - y_j|^2 <= 2 |y_i|^2 + 2 |y_j|^2 gives Y - pull / (2 degree), without a system of equations.
    """
    if uniform:
        return np.asarray(full.embedding - full.pull / len(full.embedding))
    degree = np.where(full.degree > 0, 2.0 * full.degree, 1.0)
    return np.asarray(full.embedding - full.pull / degree[:, None])


def smacof(start: Array, evaluate: Evaluate, max_iter: int, tol: float) -> Descending:
    """Majorization with Anderson acceleration. An accelerated step that increases the stress is rejected."""
    ahead, safe = start, start
    anderson, best, calm = Anderson(), np.inf, 0
    embedding, history = start, []
    for number in range(1, max_iter + 1):
        progress = "" if number == 1 else f", stress {best:.6g}"
        evaluation = yield from evaluate(ahead, f"SMACOF {number}{progress}")
        if evaluation.stress > best * (1 + _ROUNDING) and ahead is not safe:
            anderson.forget()
            ahead = safe
            history.append(best)
            continue
        calm = calm + 1 if best - evaluation.stress <= tol * evaluation.stress else 0
        if evaluation.stress <= best:
            best, embedding = evaluation.stress, ahead
        history.append(best)
        if calm >= _PATIENCE or best == 0.0:
            break
        safe = evaluation.better
        ahead = anderson.step(ahead.ravel(), safe.ravel(), np.ones(1)).reshape(start.shape)
    return Descent(embedding, np.array(history), calm >= _PATIENCE or best == 0.0)


def gradient_descent(start: Array, evaluate: Evaluate, max_iter: int, tol: float) -> Descending:
    """Gradient descent with the step sizes of Barzilai and Borwein (1988).

    The stress may rise for a few steps. A step to a stress above all of the last few is rejected, and
    shortened.
    """
    point, best, calm = start, np.inf, 0
    embedding, history = start, []
    recent: list[float] = []
    last: tuple[Array, Evaluation] | None = None
    step = 0.0
    for number in range(1, max_iter + 1):
        progress = "" if number == 1 else f", stress {best:.6g}"
        evaluation = yield from evaluate(point, f"gradient descent {number}{progress}")
        if last is not None and recent and evaluation.stress > max(recent) * (1 + _ROUNDING):
            history.append(best)
            step /= 4.0
            point = last[0] - step * last[1].gradient
            continue
        calm = calm + 1 if best - evaluation.stress <= tol * evaluation.stress else 0
        if evaluation.stress <= best:
            best, embedding = evaluation.stress, point
        history.append(best)
        recent = [*recent, evaluation.stress][-_MEMORY:]
        if calm >= 2 * _PATIENCE or best == 0.0:
            break
        step = _step(point, evaluation, last)
        last = point, evaluation
        point = point - step * evaluation.gradient
    return Descent(embedding, np.array(history), calm >= 2 * _PATIENCE or best == 0.0)


def _step(point: Array, evaluation: Evaluation, last: tuple[Array, Evaluation] | None) -> float:
    """The step size of Barzilai and Borwein, or one that is as long as a step of majorization."""
    if last is not None:
        moved, bent = (point - last[0]).ravel(), (evaluation.gradient - last[1].gradient).ravel()
        along = float(moved @ bent)
        if along > 0:
            return along / float(bent @ bent)
    slope = float(np.linalg.norm(evaluation.gradient))
    return float(np.linalg.norm(evaluation.better - point)) / slope if slope else 0.0
