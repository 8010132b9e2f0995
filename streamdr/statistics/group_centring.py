"""The running means of several groups of rows at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from streamdr.core.blocks import Array
from streamdr.statistics.centring import Centre, Corrections, joined


@dataclass
class Centres:
    """The `Centre` of each of several groups: a row for each group."""

    counts: Array
    weights: Array
    origins: Array
    offsets: Array

    @classmethod
    def empty(cls, number: int, n_cols: int) -> Self:
        """The centres of empty groups."""
        shape = (number, n_cols)
        return cls(np.zeros(number, np.int64), np.zeros(number), np.zeros(shape), np.zeros(shape))

    def __len__(self) -> int:
        return len(self.counts)

    def __iter__(self) -> Iterator[Centre]:
        """The centre of each group."""
        for count, weight, origin, offset in zip(
            self.counts, self.weights, self.origins, self.offsets, strict=True
        ):
            yield Centre(len(origin), int(count), float(weight), origin, offset)

    def embedded_in(self, places: Array, number: int) -> Self:
        """These centres at `places` among `number` groups, of which the others are empty."""
        among = self.empty(number, self.origins.shape[1])
        for name, values in self.arrays().items():
            among.arrays()[name][places] = values
        return among

    def subset(self, which: Array) -> Self:
        """The centres of some groups."""
        return type(self)(*(values[which] for values in self.arrays().values()))

    def absorb(self, places: Array, later: Centres, *, moments_about_origin: bool) -> Corrections:
        """Add rows of positive weight to the groups at `places`; return the corrections of their moments.

        There are two vectors for each group: the first vectors of all groups, then the second ones.
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
        """The centres of a saved state."""
        return cls(arrays["counts"], arrays["weights"], arrays["origins"], arrays["offsets"])
