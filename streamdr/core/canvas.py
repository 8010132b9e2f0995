"""A figure that notebooks show without pyplot."""

from __future__ import annotations

from io import BytesIO

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


class NotebookFigure(Figure):
    """A figure with an Agg canvas, independent of pyplot."""

    def __init__(self, size: tuple[float, float]) -> None:
        super().__init__(figsize=size, dpi=150, layout="constrained")
        FigureCanvasAgg(self)

    def _repr_png_(self) -> bytes:
        """The figure as a PNG image, for notebooks."""
        buffer = BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()
