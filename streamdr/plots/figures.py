"""What every picture begins and ends with: a figure of its own, and a file that is written whole."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamdr.errors import StoreError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE = "#3b6ea5", "#c8702a"
SIZE = (6.4, 4.2)


def new_figure(size: tuple[float, float] = SIZE) -> Figure:
    """A figure of so many inches: nothing here touches pyplot, its backends or its list of open figures."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'streamdr[plots]'") from error
    figure = Figure(figsize=size, dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: Path | str | None) -> None:
    """Write the picture, if it is wanted, in one step, in the format that the name ends in."""
    if path is None:
        return
    target = Path(path)
    beside = target.with_name(f".{target.name}.{secrets.token_hex(8)}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(beside, format=target.suffix[1:] or "png")
        os.replace(beside, target)
    except (OSError, ValueError) as error:
        raise StoreError(f"{target}: cannot be written: {error}") from error
    finally:
        with suppress(OSError):
            beside.unlink()


def number_components(axes: Any, length: int) -> None:
    """Whole numbers below, from 1."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("component")
    axes.set_xlim(0.4, length + 0.6)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def draw_cumulative(axes: Any, ratio: Any) -> None:
    """The share of the variance up to each component, on a scale of its own at the right."""
    number = range(1, len(ratio) + 1)
    together = axes.twinx()
    marker = "o" if len(ratio) <= 60 else ""
    together.plot(number, 100 * ratio.cumsum(), color=ORANGE, marker=marker, markersize=4, linewidth=1.5)
    together.set_ylabel("cumulative (%)", color=ORANGE)
    together.set_ylim(0, 105)
    for one in (axes, together):
        one.spines["top"].set_visible(False)


def plain(text: Any) -> str:
    """Words from the data as they are: matplotlib would set what is between dollars as mathematics."""
    return str(text).replace("$", r"\$")


def count(number: int, noun: str) -> str:
    """A number of things."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
