"""Anderson acceleration of a fixed-point iteration, from its last few steps (Anderson 1965)."""

from __future__ import annotations

import numpy as np

from streamdr.core.blocks import Array

ROUNDING = 1e-12
"""The relative rounding error of a likelihood: smaller decreases are ignored."""
_MEMORY = 5
_DAMPING = 1e-10


class Anderson:
    """The last few points x and their images f(x), and the next point of the accelerated iteration.

    The residual of a point is f(x) - x. The affine combination of points with the smallest residual (least
    squares) is nearer to the fixed point than the last image. It saves EM at least two thirds of its
    iterations.
    """

    def __init__(self) -> None:
        self._points: list[Array] = []
        self._images: list[Array] = []
        self._wait, self._next_wait = 0, 1

    def step(self, point: Array, image: Array, scale: Array) -> Array:
        """The next point after `point` with this image; residuals are multiplied by `scale`."""
        if self._wait > 0:
            self._wait -= 1
            return image
        self._points = [*self._points, point][-_MEMORY - 1 :]
        self._images = [*self._images, image][-_MEMORY - 1 :]
        if len(self._points) < 2:
            return image
        images = np.stack(self._images)
        residuals = images - np.stack(self._points)
        changes = np.diff(residuals, axis=0) * scale
        gram = changes @ changes.T
        gram.flat[:: len(gram) + 1] += _DAMPING * np.trace(gram)
        if not gram[0, 0] > 0.0:
            return image
        weights = np.linalg.solve(gram, changes @ (residuals[-1] * scale))
        accelerated: Array = image - weights @ np.diff(images, axis=0)
        return accelerated

    def forget(self) -> None:
        """Restart after a bad step, with twice as many plain steps first as after the last restart."""
        self._points, self._images = [], []
        self._wait, self._next_wait = self._next_wait, 2 * self._next_wait
