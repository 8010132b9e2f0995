"""Stochastic gradient descent on a stress: random pairs are moved towards their target distance.

After Zheng, Pawar and Goodman (2018). Every round uses a random matching, in which no point is in two pairs.
All pairs of a round move at once, independent of their order.

Most of the work of a round is to draw its pairs and to find their target distances, which does not depend on
the configuration. So an epoch is a pass over its rounds: they are prepared side by side, and take effect in
order.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from streamdr.core.accumulator import Accumulator
from streamdr.core.blocks import AlignedArrays, Array, Block, Span, aligned
from streamdr.core.method import Pass
from streamdr.methods.mds.matchings import Matchings, Pairs
from streamdr.methods.mds.parameters import lengths

_LAST_STEP = 0.01
"""The last step size, relative to 1 / the largest weight."""


class _Round(NamedTuple):
    """The pairs of a round, and how far they move."""

    left: Array
    right: Array
    targets: Array
    halves: Array
    """Half the step size of each pair: the share of its error by which each of its points moves."""


class PairDescent(AlignedArrays):
    """A configuration after some rounds of an epoch. The rows of its blocks are rounds.

    A round takes effect once all rounds before it have. Until then it waits, with its pairs and their target
    distances.
    """

    kind: ClassVar[str] = "pair_descent"
    allow_nan: ClassVar[bool] = False

    def __init__(self, matchings: Matchings, start: Array, epoch: int, step: float) -> None:
        self.matchings = matchings
        self.start = aligned(start)
        self.epoch = epoch
        self.step = step
        self.embedding = self.start.copy()
        self.done = 0
        """The number of rounds that have taken effect."""
        self._waiting: dict[int, _Round] = {}

    def update(self, block: Block) -> None:
        """Draw the pairs of some rounds."""
        for number in block.numbers:
            pairs = self.matchings.pairs(self.epoch, int(number))
            halves = np.minimum(self.step * pairs.weights, 1.0) / 2.0
            self._waiting[int(number)] = _Round(pairs.left, pairs.right, pairs.targets, halves)
            self._move()

    def merge(self, later: Self) -> None:
        """Take over the rounds that follow."""
        if later.done:  # nothing comes before its rounds
            self.embedding, self.done = later.embedding.copy(), later.done
        self._waiting |= later._waiting
        self._move()

    def _move(self) -> None:
        """Let the rounds take effect that no longer have to wait."""
        while (following := self._waiting.pop(self.done, None)) is not None:
            _move_pairs(self.embedding, following)
            self.done += 1

    def empty_like(self) -> Self:
        """An empty accumulator with the same parameters."""
        return type(self)(self.matchings, self.start, self.epoch, self.step)

    def parameters(self) -> Mapping[str, Any]:
        """The start, the epoch, the step size, and what gives the pairs."""
        given = {"start": self.start, "epoch": self.epoch, "step": self.step}
        return {**given, **self.matchings.parameters()}

    def value(self) -> dict[str, Array]:
        """The configuration."""
        return {"embedding": self.embedding}

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        state = {"embedding": self.embedding, "done": np.array(self.done)}
        if self._waiting:  # all rounds have the same number of pairs
            state["numbers"] = np.array(list(self._waiting))
            for name, parts in zip(_Round._fields, zip(*self._waiting.values(), strict=True), strict=True):
                state[name] = np.stack(parts)
        return state

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Restore a saved state."""
        self.embedding, self.done = arrays["embedding"], int(arrays["done"])
        self._waiting = {
            int(number): _Round(*(arrays[name][place] for name in _Round._fields))
            for place, number in enumerate(arrays.get("numbers", ()))
        }


def _move_pairs(embedding: Array, pairs: _Round) -> None:
    """Move both points of every pair towards their target distance, in place.

    A row is taken and written as one item of k numbers, which is several times as fast as k numbers.
    """
    k = embedding.shape[1]
    rows = embedding.view(np.dtype((np.void, k * embedding.itemsize)))[:, 0]
    taken = rows.take(pairs.left), rows.take(pairs.right)
    left, right = (each.view(embedding.dtype).reshape(-1, k) for each in taken)
    difference = left - right
    fitted = np.sqrt(np.einsum("ij,ij->i", difference, difference))
    share = pairs.halves * (fitted - pairs.targets)
    apart = fitted > 0
    if apart.all():
        share /= fitted
    else:
        np.divide(share, fitted, out=share, where=apart)
        share[~apart] = 0.0
    difference *= share[:, None]
    left -= difference
    right += difference
    rows[pairs.left], rows[pairs.right] = taken


def pair_descent(
    start: Array,
    matchings: Matchings,
    rounds: int,
    epochs: int,
    extremes: tuple[float, float],
    stress: Callable[[Array], float],
) -> Generator[Pass, Accumulator, tuple[Array, Array]]:
    """The final configuration and the stress after every epoch. An epoch is one pass over its rounds.

    `extremes` are the smallest and the largest weight: step sizes decrease from 1 / smallest to
    0.01 / largest.
    """
    embedding = start
    history: list[float] = []
    smallest, largest = extremes
    every_round = Block(Span(0, rounds), np.arange(rounds, dtype=np.float64)[:, None])
    for epoch, step in enumerate(np.geomspace(1.0 / smallest, _LAST_STEP / largest, epochs)):
        progress = f", stress {history[-1]:.6g}" if history else ""
        full = yield Pass(
            PairDescent(matchings, embedding, epoch, float(step)),
            label=f"epoch {epoch + 1} of {epochs}{progress}",
            cost_factor=matchings.work,
            in_memory=every_round,
        )
        embedding = full.value()["embedding"]
        history.append(stress(embedding))
    return embedding, np.array(history)


def stress_of(embedding: Array, pairs: Pairs, norm: float) -> float:
    """The stress of some pairs, normalised by `norm`."""
    fitted = lengths(embedding.take(pairs.left, axis=0), embedding.take(pairs.right, axis=0))
    positive = pairs.weights > 0
    return float(np.sum(pairs.weights[positive] * (pairs.targets - fitted)[positive] ** 2)) / norm
