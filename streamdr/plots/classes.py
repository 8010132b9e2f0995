"""The distinct labels of samples, with a colour for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from streamdr.core.blocks import Array
from streamdr.core.figures import plain
from streamdr.errors import ParameterError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_CLASSES = 20


class Labels(Protocol):
    """One label per sample, read in slices: a list, an array or a store.

    Examples
    --------
    >>> import streamdr
    >>> labels: streamdr.plots.Labels = ["cat", "dog", "cat"]
    >>> labels[:2]
    ['cat', 'dog']
    """

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> Any: ...


@dataclass(frozen=True)
class Classes:
    """Distinct labels, sorted. Samples without labels form one class without a name."""

    names: Array | None = None

    def united(self, labels: Array | None) -> Classes:
        """Return the union of these classes with those of more samples."""
        if labels is None:
            return self
        names = np.unique(labels) if self.names is None else np.union1d(self.names, labels)
        if len(names) > MOST_CLASSES:
            raise ParameterError(
                "labels",
                f"more than {MOST_CLASSES} distinct labels cannot be distinguished by colour; group them",
            )
        return Classes(names)

    def __len__(self) -> int:
        return 1 if self.names is None else len(self.names)

    def number(self, labels: Array | None) -> Array | int:
        """Return the index of each label among the classes."""
        return 0 if labels is None or self.names is None else np.searchsorted(self.names, labels)

    def palette(self, alone: str) -> Array:
        """Return a colour (RGBA) for each class; `alone` is that of samples without labels."""
        from matplotlib import colormaps
        from matplotlib.colors import to_rgba

        if self.names is None:
            return np.array([to_rgba(alone)])
        colours = colormaps["tab10" if len(self.names) <= 10 else "tab20"]
        return np.array([colours(i) for i in range(len(self.names))])

    def draw_legend(self, figure: Figure) -> None:
        """Draw the legend of the classes beside the plot."""
        if self.names is None:
            return
        from matplotlib.patches import Patch

        handles: list[Any] = [Patch(color=colour) for colour in self.palette("")]
        figure.legend(
            handles,
            [plain(label) for label in self.names],
            loc="outside right upper",
            frameon=False,
            handlelength=1,
        )
