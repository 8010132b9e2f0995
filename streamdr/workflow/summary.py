"""The summary of a run on one page: tables, text and plots, small enough for an artifact."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING

from streamdr import plots
from streamdr.core.safe_text import lines, one_line
from streamdr.errors import StreamdrError
from streamdr.methods.chain import Chain
from streamdr.plots import catalog
from streamdr.plots.mapped import has_maps, is_labelled
from streamdr.store import SavedModel
from streamdr.workflow import report_text
from streamdr.workflow.reports import StagesReport, SummaryReport
from streamdr.workflow.run_context import RunContext

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_ROWS = 100
"""The largest number of rows of a table. The model has all of them."""

MOST_PICTURE_BYTES = 128 * 1024
MOST_EMBEDDING_BYTES = 2**30
"""The scores of larger embeddings are not drawn, because drawing reads them twice."""

_DPI = 75
_MOST_MAPS = (plots.MOST_MAPS, 6, 3, 1)
"""The numbers of maps that are tried. Noise takes more bytes than smooth maps."""


def summarise(context: RunContext, reports: StagesReport) -> SummaryReport:
    """Return the summary of a run, given the reports of its stages."""
    saved = context.model.load_model()
    tables = tuple(table.head(MOST_ROWS) for table in saved.model.tables())
    return SummaryReport(tables, "\n\n".join(_page(context, saved, reports)))


def literal(text: str) -> str:
    """Return text as a block of code in Markdown, which shows it unchanged."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{lines(text)}\n{fence}"


def _page(context: RunContext, saved: SavedModel, reports: StagesReport) -> Iterator[str]:
    method = context.run.method
    title = " -> ".join(method.names) if isinstance(method, Chain) else method.name
    yield f"# {title} of\n\n{literal(one_line(', '.join(context.run.input.paths)))}"
    yield from _pictures(context, saved)
    if reports.fit is not None:
        yield literal(report_text.fitted(reports.fit))
    if reports.transform is not None:
        yield literal(report_text.transformed(reports.transform))
    if reports.verify is not None:
        found = "\n".join(one_line(f"{name}: {what}") for name, what in reports.verify.checks.items())
        yield "## Verified\n\n" + literal(found)


def _pictures(context: RunContext, saved: SavedModel) -> Iterator[str]:
    saved = saved.last
    model = saved.model
    for picture in catalog.of(model):
        yield from _picture(picture.title, partial(picture.draw, model, None))
    if has_maps(model, saved.axes):
        yield from _maps(saved)
    if context.run.output.embedding is None:
        return
    scores = context.embedding.open_embedding()
    if scores.nbytes > MOST_EMBEDDING_BYTES:
        return
    if model.n_outputs > 1:
        yield from _picture("scores", lambda: plots.scores(scores))
    if is_labelled(saved.axes):
        yield from _picture("series", lambda: plots.series(context.embedding.place, model=model))


def _maps(saved: SavedModel) -> Iterator[str]:
    """Yield as many of the first maps as one image may hold."""
    for most in _MOST_MAPS:
        image = list(_picture("maps", partial(plots.maps, saved, most=most)))
        if image:
            yield from image
            return


def _picture(title: str, draw: Callable[[], Figure]) -> Iterator[str]:
    """Yield the picture as an embedded image; nothing without matplotlib, or if there is nothing to draw."""
    try:
        figure = draw()
    except (ImportError, StreamdrError):
        return
    image = BytesIO()
    figure.savefig(image, format="png", dpi=_DPI)
    if image.tell() <= MOST_PICTURE_BYTES:
        yield f"![{title}](data:image/png;base64,{base64.b64encode(image.getvalue()).decode('ascii')})"
