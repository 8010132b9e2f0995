"""A run on one page: what was found, as a table, in words and in pictures, small enough to be kept."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from streamdr import plots, store, terminal
from streamdr.errors import StreamdrError
from streamdr.reports import Report
from streamdr.safe_text import lines, one_line
from streamdr.stage import Stage

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_ROWS = 100
"""A table ends here; the model has the rest."""

MOST_PICTURE_BYTES = 128 * 1024
MOST_EMBEDDING_BYTES = 2**30
"""Beyond, the scores are not drawn: a picture is not worth reading so much twice."""

_DPI = 75
_RENDER: dict[str, Callable[[Report], str]] = {"fit": terminal.fitted, "transform": terminal.transformed}


def summarise(stage: Stage, reports: Mapping[str, Report]) -> Report:
    """What people want to see of a run, given what its stages reported."""
    model = store.load_model(stage.model).model
    table = explained(model.summary())
    return {
        "command": "summarise",
        "table": table,
        "markdown": "\n\n".join(_page(stage, model, reports)),
    }


def explained(summary: Report) -> list[Report]:
    """What each component explains, where a model's summary says so: a row a component, from the first."""
    ratios = summary.get("explained_variance_ratio", [])[:MOST_ROWS]
    return [
        {
            "component": number,
            "variance": ratio * summary["total_variance"],
            "ratio": ratio,
            "cumulative": reached,
        }
        for number, (ratio, reached) in enumerate(zip(ratios, accumulate(ratios), strict=True), 1)
    ]


def literal(text: str) -> str:
    """Text as a block of code in Markdown, which shows it as it is whatever it holds."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{lines(text)}\n{fence}"


def _page(stage: Stage, model: Any, reports: Mapping[str, Report]) -> Iterator[str]:
    method = stage.run.method.name
    yield f"# {method} of\n\n{literal(one_line(str(stage.run.input.path)))}"
    yield from _pictures(stage, model)
    for name, render in _RENDER.items():
        if name in reports:
            yield literal(render(reports[name]))
    if "verify" in reports:
        checks = reports["verify"]["checks"]
        found = "\n".join(one_line(f"{name}: {what}") for name, what in checks.items())
        yield "## Verified\n\n" + literal(found)


def _pictures(stage: Stage, model: Any) -> Iterator[str]:
    if "explained_variance_ratio" in model.summary():
        yield from _picture("explained variance", lambda: plots.explained_variance(model))
    if isinstance(model, plots.Likelihoods) and len(model.log_likelihoods) > 1:
        yield from _picture("log-likelihood", lambda: plots.log_likelihood(model))
    if stage.run.output.embedding is not None and model.n_outputs > 1:
        scores = store.open_embedding(stage.embedding)
        if scores.nbytes <= MOST_EMBEDDING_BYTES:
            yield from _picture("scores", lambda: plots.scores(scores))


def _picture(title: str, draw: Callable[[], Figure]) -> Iterator[str]:
    """The picture as part of the text; none where matplotlib is not there or there is nothing to draw."""
    try:
        figure = draw()
    except (ImportError, StreamdrError):
        return
    image = BytesIO()
    figure.savefig(image, format="png", dpi=_DPI)
    if image.tell() <= MOST_PICTURE_BYTES:
        yield f"![{title}](data:image/png;base64,{base64.b64encode(image.getvalue()).decode('ascii')})"
