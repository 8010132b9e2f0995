"""The running means of several groups of rows at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from streamdr.accumulators.centred import Centre, Corrections, joined
from streamdr.blocks import Array


@dataclass
class Centres:
    """What a `Centre` is, a row for each group."""

    counts: Array
    weights: Array
    origins: Array
    offsets: Array

    @classmethod
    def empty(cls, number: int, n_cols: int) -> Self:
        """Groups of nothing yet."""
        shape = (number, n_cols)
        return cls(np.zeros(number, np.int64), np.zeros(number), np.zeros(shape), np.zeros(shape))

    def __len__(self) -> int:
        return len(self.counts)

    def __iter__(self) -> Iterator[Centre]:
        """Each of them, on its own."""
        for count, weight, origin, offset in zip(
            self.counts, self.weights, self.origins, self.offsets, strict=True
        ):
            yield Centre(len(origin), int(count), float(weight), origin, offset)

    def placed(self, places: Array, number: int) -> Self:
        """The same among so many groups, of which the others are empty."""
        among = self.empty(number, self.origins.shape[1])
        for name, values in self.arrays().items():
            among.arrays()[name][places] = values
        return among

    def some(self, which: Array) -> Self:
        """A few of them."""
        return type(self)(*(values[which] for values in self.arrays().values()))

    def absorb(self, places: Array, later: Centres, *, moments_about_origin: bool) -> Corrections:
        """Take more rows of the groups at these places in, all of some weight; say what their moments lack.

        The rows of vectors are two for each group: first those of all groups, then the others.
        """
        joint = joined(
            self.weights[places, None],
            self.origins[places],
            self.offsets[places],
            later.weights[:, None],
            later.origins,
            later.offsets,
        )
        self.counts[places] += later.counts
        self.weights[places] = joint.weight[:, 0]
        self.origins[places], self.offsets[places] = joint.origin, joint.offset
        uncentred = later.weights if moments_about_origin else np.zeros(len(later))
        vectors = np.concatenate([later.offsets, joint.delta])
        return Corrections(vectors, np.concatenate([-uncentred, joint.between[:, 0]]))

    def arrays(self) -> dict[str, Array]:
        """The state as plain arrays."""
        names = ("counts", "weights", "origins", "offsets")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def of(cls, arrays: Mapping[str, Array]) -> Self:
        """Those of a saved state."""
        return cls(arrays["counts"], arrays["weights"], arrays["origins"], arrays["offsets"])
