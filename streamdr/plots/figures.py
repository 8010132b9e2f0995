"""What every picture begins and ends with: a figure of its own, and a file that is written whole."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamdr.errors import StoreError
from streamdr.files import read_regular

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE = "#3b6ea5", "#c8702a"
SIZE = (6.4, 4.2)
_MARK = "drawn by streamdr"
"""In every picture that is written, where its format has room for it: only such a picture is replaced."""
_LARGEST_BYTES = 2**30
_SOFTWARE = 0x0131
"""The tag of Exif that names a program."""


def new_figure(size: tuple[float, float] = SIZE) -> Figure:
    """A figure of so many inches: nothing here touches pyplot, its backends or its list of open figures."""
    try:
        from streamdr.plots.canvas import Picture
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'streamdr[plots]'") from error
    return Picture(size)


def save(figure: Figure, path: Path | str | None) -> None:
    """Write the picture, if it is wanted, in one step, in the format that the name ends in.

    Nothing is replaced but a picture that was written here.
    """
    if path is None:
        return
    target = Path(os.path.realpath(path))  # through a link, it is written where the link leads
    beside = target.with_name(f".{target.name}.{secrets.token_hex(8)}.partial")
    form = target.suffix[1:].lower() or "png"
    try:
        _require_own(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(beside, format=form, **_marked(form))
        os.replace(beside, target)
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: cannot be written: {error}") from error
    finally:
        with suppress(OSError):
            beside.unlink()


def _require_own(target: Path) -> None:
    if os.path.lexists(target) and _MARK.encode() not in read_regular(target, _LARGEST_BYTES):
        raise StoreError(
            f"{target}: exists and is not a picture that streamdr drew, so it is never overwritten; choose "
            "another path"
        )


def _marked(form: str) -> dict[str, Any]:
    """What `savefig` is to be told so that the mark is in the picture."""
    if form in ("pdf", "svg", "ps", "eps"):
        return {"metadata": {"Creator": _MARK}}
    if form == "png":
        return {"metadata": {"Software": _MARK}}
    if form == "gif":
        return {"pil_kwargs": {"comment": _MARK}}
    if form in ("jpg", "jpeg", "tif", "tiff", "webp", "avif"):
        from PIL.Image import Exif  # comes with matplotlib

        exif = Exif()
        exif[_SOFTWARE] = _MARK
        return {"pil_kwargs": {"exif": exif}}
    return {}


def number_components(axes: Any, length: int) -> None:
    """Whole numbers below, from 1."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("component")
    axes.set_xlim(0.4, length + 0.6)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def draw_cumulative(axes: Any, ratio: Any) -> None:
    """The share of the variance up to each component, in percent."""
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
    """Words from the data as they are: matplotlib would set what is between dollars as mathematics."""
    return str(text).replace("$", r"\$")


def count(number: int, noun: str) -> str:
    """A number of things."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
