"""Helpers that all plots share: a new figure, and an atomic write of the image file."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamdr.core.files import read_regular
from streamdr.core.safe_text import one_line
from streamdr.errors import StoreError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE = "#3b6ea5", "#c8702a"
SIZE = (6.4, 4.2)
MOST_POINTS = 5_000
"""Up to this number of samples, each sample is a point. Above it, samples are counted in bins."""
_MARK = "drawn by streamdr"
"""Stored in the metadata of every image whose format has metadata: only such an image is overwritten."""
_LARGEST_BYTES = 2**30
_SOFTWARE = 0x0131
"""The Exif tag for the name of a program."""


def new_figure(size: tuple[float, float] = SIZE) -> Figure:
    """A figure of this size in inches. It does not use pyplot, its backends or its list of open figures."""
    try:
        from streamdr.core.canvas import NotebookFigure
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'streamdr[plots]'") from error
    return NotebookFigure(size)


def leave_margins(figure: Figure) -> None:
    """Leave room between the heading of a figure and the titles in it, and beside the last labels."""
    engine: Any = figure.get_layout_engine()
    engine.set(w_pad=0.08, h_pad=0.07)


def save(figure: Figure, path: Path | str | None) -> None:
    """Write the image atomically, in the format of the file's extension; nothing if the path is None.

    An existing file is overwritten only if it is an image that streamdr wrote.
    """
    if path is None:
        return
    target = Path(os.path.realpath(path))  # a symbolic link is followed
    beside = target.with_name(f".{target.name}.{secrets.token_hex(8)}.partial")
    image_format = target.suffix[1:].lower() or "png"
    try:
        _require_own(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(beside, format=image_format, **_metadata_arguments(image_format))
        os.replace(beside, target)
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: cannot be written: {error}") from error
    finally:
        with suppress(OSError):
            beside.unlink()


def _require_own(target: Path) -> None:
    if os.path.lexists(target) and _MARK.encode() not in read_regular(target, _LARGEST_BYTES):
        raise StoreError(
            f"{target}: exists and is not an image that streamdr wrote, so it is not overwritten; choose "
            "another path"
        )


def _metadata_arguments(image_format: str) -> dict[str, Any]:
    """The arguments of `savefig` that store the mark in the image."""
    if image_format in ("pdf", "svg", "ps", "eps"):
        return {"metadata": {"Creator": _MARK}}
    if image_format == "png":
        return {"metadata": {"Software": _MARK}}
    if image_format == "gif":
        return {"pil_kwargs": {"comment": _MARK}}
    if image_format in ("jpg", "jpeg", "tif", "tiff", "webp", "avif"):
        from PIL.Image import Exif  # comes with matplotlib

        exif = Exif()
        exif[_SOFTWARE] = _MARK
        return {"pil_kwargs": {"exif": exif}}
    return {}


def number_components(axes: Any, length: int) -> None:
    """Label the x axis with component numbers, from 1."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("component")
    axes.set_xlim(0.4, length + 0.6)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def draw_cumulative(axes: Any, ratio: Any) -> None:
    """Draw the cumulative share of the variance, in percent."""
    number = range(1, len(ratio) + 1)
    marker = "o" if len(ratio) <= 60 else ""
    axes.plot(
        number,
        100 * ratio.cumsum(),
        color=ORANGE,
        marker=marker,
        markersize=4,
        linewidth=1.5,
        label="cumulative",
    )
    axes.set_ylim(0, 105)


def plain(text: Any) -> str:
    """Text from the data on one line, with dollar signs escaped: matplotlib would typeset mathematics."""
    return one_line(str(text)).replace("$", r"\$")


def shortened(text: Any, most: int = 40) -> str:
    """Text from the data on one line, as long as a picture has room for."""
    shown = one_line(str(text))
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def count(number: int, noun: str) -> str:
    """A number with a noun, in the plural unless it is 1."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def percent(share: float) -> str:
    """A share in percent, with digits for a very small one."""
    return f"{100 * share:.1f} %" if share >= 0.0005 or share <= 0 else f"{100 * share:.1g} %"
