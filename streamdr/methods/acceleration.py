"""Anderson acceleration: a fixed-point iteration that looks at where its last steps led (Anderson 1965)."""

from __future__ import annotations

import numpy as np

from streamdr.blocks import Array

ROUNDING = 1e-12
"""What of a likelihood may be rounding: less than this is not less likely."""
_MEMORY = 5
_DAMPING = 1e-10


class Anderson:
    """The last few points and their images under a map, and the point that they make look like a fixed one.

    A point x has the residual f(x) - x. The combination of points whose residuals cancel best is taken to be
    nearer to the fixed point than the last image is; for EM that saves two thirds of the iterations and more.
    """

    def __init__(self) -> None:
        self._points: list[Array] = []
        self._images: list[Array] = []
        self._wait, self._next_wait = 0, 1

    def step(self, point: Array, image: Array, scale: Array) -> Array:
        """Where to go from a point, given its image; residuals are measured in units of 1 / scale."""
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
        ahead: Array = image - weights @ np.diff(images, axis=0)
        return ahead

    def forget(self) -> None:
        """The last step led astray: begin anew, after twice as many plain steps as the last time."""
        self._points, self._images = [], []
        self._wait, self._next_wait = self._next_wait, 2 * self._next_wait
