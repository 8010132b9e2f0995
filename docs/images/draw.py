"""Draws the pictures of README.md and docs/CLIMATE.md, from what `make demo` wrote and from example data."""

from __future__ import annotations

from pathlib import Path

import xarray

import streamdr
from streamdr import plots
from streamdr.data.examples.datasets import Example, ensure

OUTPUTS = Path("out/quickstart")
GLOBE = Path("data/climate.zarr")
HERE = Path(__file__).parent
NAMES = ("explained_variance", "scores", "climate_maps", "climate_series", "climate_rotated")
EXPLAINED, SCORES, MAPS, SERIES, ROTATED = (HERE / f"{name}.png" for name in NAMES)

for picture in (EXPLAINED, SCORES, MAPS, SERIES, ROTATED):
    picture.unlink(missing_ok=True)  # pictures are drawn over those of this version only
plots.explained_variance(streamdr.load_model(OUTPUTS / "model.zarr").model_, EXPLAINED)
plots.scores(OUTPUTS / "scores.zarr", path=SCORES)

ensure(GLOBE, Example("sea_surface"))
sst = xarray.open_zarr(GLOBE, consolidated=False)["sst"]
pca = streamdr.PCA(n_components=4).fit(sst, sample_dims="time", feature_weights="coslat")
plots.maps(pca, MAPS)
plots.series(pca.transform(sst), SERIES, model=pca)
anomalies = sst.groupby("time.month") - sst.groupby("time.month").mean()
rotated = streamdr.PCA(n_components=3, rotation="promax")
plots.maps(rotated.fit(anomalies, sample_dims="time", feature_weights="coslat"), ROTATED)
