"""The plots that are specific to a class of models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Picture:
    """A kind of plot that is drawn from a model alone.

    Parameters
    ----------
    name : str
        Its name: the `--kind` of `streamdr plot`, and its function in `streamdr.plots`.
    title : str
        Its title, as in "Shepard diagram".
    draw : callable
        Draws a model, and writes the image to a path if one is given.
    needs : str
        What a model must have to be drawn, such as "likelihoods of iterations".
    fits : callable
        Whether a model can be drawn.
    """

    name: str
    title: str
    draw: Callable[[Any, Path | str | None], Figure]
    needs: str
    fits: Callable[[Any], bool]


@runtime_checkable
class Pictured(Protocol):
    """A model whose class has plots. The first one that fits is the default."""

    pictures: ClassVar[tuple[Picture, ...]]
