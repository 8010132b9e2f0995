"""Draws the README's pictures from what `make demo` wrote."""

from __future__ import annotations

from pathlib import Path

from streamdr import load_model, plots

OUTPUTS = Path("out/quickstart")
HERE = Path(__file__).parent

for name in ("explained_variance.png", "scores.png"):
    (HERE / name).unlink(missing_ok=True)  # pictures are drawn over those of this version only
plots.explained_variance(load_model(OUTPUTS / "model.zarr").model_, HERE / "explained_variance.png")
plots.scores(OUTPUTS / "scores.zarr", path=HERE / "scores.png")
