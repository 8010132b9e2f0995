"""`streamdr plot`: the picture that the model's own functions draw, or one error that says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import SCRIPT, streamdr, succeed, write_store
from embeddings import write_embedding

import streamdr as library
from streamdr import plots
from streamdr.core.axes import FeatureAxes
from streamdr.store import load_model, open_embedding
from streamdr.workflow import plotting

ROWS = 60
LABELS = np.arange(ROWS) // 20  # the first chunks hold zeros, which zarr does not write


def plane() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(ROWS, 2)) @ [[2.0, 0.3], [0.0, 0.5]] + 7


def space() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(ROWS, 5)) * [5, 4, 3, 2, 1]


def grid() -> np.ndarray:
    return np.random.default_rng(2).normal(size=(ROWS, 6)) * [6, 5, 4, 3, 2, 1]


AXES = FeatureAxes(("lat", "lon"), (2, 3), name="sst")


def incomplete() -> np.ndarray:
    values = space()
    values[::7, 2] = np.nan
    return values


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A directory with models, the data they were fitted to, an embedding, and labels."""
    directory = tmp_path_factory.mktemp("place")
    write_store(directory / "plane.zarr", plane())
    write_store(directory / "space.zarr", space())
    write_store(directory / "labels.zarr", LABELS.reshape(-1, 1))
    write_store(directory / "few.zarr", np.zeros((ROWS - 1, 1), dtype=np.int16))
    library.PCA(2).fit(plane()).save(directory / "flat.zarr")
    library.PCA(3).fit(space()).save(directory / "pca.zarr")
    library.PCA(1).fit(space()).save(directory / "one.zarr")
    kernel: dict[str, Any] = {"gamma": 0.5, "approximation": "nystrom", "n_landmarks": 12}
    library.KernelPCA(3, **kernel).fit(plane()).save(directory / "curved.zarr")
    library.KernelPCA(3, **kernel).fit(space()).save(directory / "kernel.zarr")
    library.KernelPCA(3, gamma=0.5, approximation="random_features", n_landmarks=30).fit(plane()).save(
        directory / "random.zarr"
    )
    library.PPCA(2, random_state=0).fit(incomplete()).save(directory / "ppca.zarr")
    library.PPCAMixture(2, n_mixtures=2, random_state=0).fit(space()).save(directory / "mixture.zarr")
    library.ClassicalMDS(2).fit(space()).save(directory / "classical.zarr")
    library.LandmarkMDS(2, n_landmarks=20).fit(space()).save(directory / "landmark.zarr")
    library.MetricMDS(2, max_iter=30).fit(space()).save(directory / "metric.zarr")
    library.NonmetricMDS(2, n_init=1, max_iter=30).fit(space()).save(directory / "nonmetric.zarr")
    labelled = library.PCA(3).fit(grid())
    labelled.feature_axes_ = AXES
    labelled.save(directory / "labelled.zarr")
    one = library.PCA(1).fit(space())
    write_embedding(directory / "z1.zarr", one.transform(space()))
    times = {"time": (np.arange(ROWS), {"units": "days since 2001-01-01"})}
    write_embedding(directory / "zt.zarr", labelled.transform(grid()), times, dim="time")
    configuration = {
        "input": "{path: space.zarr}",
        "method": "{name: pca, n_components: 3}",
        "output": "{model: run.zarr, embedding: z.zarr}",
    }
    (directory / "config.yaml").write_text(
        "\n".join(f"{name}: {keys}" for name, keys in configuration.items())
    )
    succeed("run", "config.yaml", cwd=directory)
    return directory


def model(place: Path, name: str) -> Any:
    return load_model(place / name).model


CASES: dict[str, tuple[list[str], str, Any]] = {
    "two features": (
        ["flat.zarr", "--data", "plane.zarr"],
        "contours",
        lambda place, path: plots.contours(model(place, "flat.zarr"), path, points=plane()),
    ),
    "two features and labels": (
        ["flat.zarr", "--data", "plane.zarr", "--labels", "labels.zarr"],
        "contours",
        lambda place, path: plots.contours(model(place, "flat.zarr"), path, points=plane(), labels=LABELS),
    ),
    "a kernel of two features": (
        ["curved.zarr"],
        "contours",
        lambda place, path: plots.contours(model(place, "curved.zarr"), path),
    ),
    "a kernel of two features, its points and labels": (
        ["curved.zarr", "--data", "plane.zarr", "--labels", "labels.zarr"],
        "contours",
        lambda place, path: plots.contours(
            model(place, "curved.zarr"), path, points=place / "plane.zarr", labels=LABELS
        ),
    ),
    "a kernel of more features": (
        ["kernel.zarr"],
        "eigenvalues",
        lambda place, path: plots.eigenvalues(model(place, "kernel.zarr"), path),
    ),
    "random features": (
        ["random.zarr"],
        "eigenvalues",
        lambda place, path: plots.eigenvalues(model(place, "random.zarr"), path),
    ),
    "two features and no points": (
        ["flat.zarr"],
        "explained_variance",
        lambda place, path: plots.explained_variance(model(place, "flat.zarr"), path),
    ),
    "pca": (
        ["pca.zarr"],
        "explained_variance",
        lambda place, path: plots.explained_variance(model(place, "pca.zarr"), path),
    ),
    "mixture": (
        ["mixture.zarr"],
        "log_likelihood",
        lambda place, path: plots.log_likelihood(model(place, "mixture.zarr"), path),
    ),
    **{
        f"{kind} scaling": (
            [f"{kind}.zarr"],
            "shepard",
            lambda place, path, kind=kind: plots.shepard(model(place, f"{kind}.zarr"), path),
        )
        for kind in ("classical", "landmark", "metric", "nonmetric")
    },
    "an embedding": (
        ["run.zarr", "--embedding", "z.zarr"],
        "scores",
        lambda place, path: plots.scores(place / "z.zarr", path=path),
    ),
    "an embedding of one component": (
        ["one.zarr", "--embedding", "z1.zarr"],
        "series",
        lambda place, path: plots.series(place / "z1.zarr", path, model=model(place, "one.zarr")),
    ),
    "maps": (
        ["labelled.zarr", "--kind", "maps"],
        "maps",
        lambda place, path: plots.maps(model(place, "labelled.zarr"), path, axes=AXES),
    ),
    "scores over time": (
        ["labelled.zarr", "--kind", "series", "--embedding", "zt.zarr"],
        "series",
        lambda place, path: plots.series(place / "zt.zarr", path, model=model(place, "labelled.zarr")),
    ),
    "an embedding and labels": (
        ["run.zarr", "--embedding", "z.zarr", "--labels", "labels.zarr"],
        "scores",
        lambda place, path: plots.scores(place / "z.zarr", LABELS, path),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_picture_that_fits_is_the_one_that_python_draws(case: str, place: Path, tmp_path: Path) -> None:
    words, kind, draw = CASES[case]
    out = tmp_path / "deep" / "picture.png"
    report = succeed("plot", *words, "--out", out, "--json", cwd=place).report
    draw(place, tmp_path / "expected.png")
    assert out.read_bytes() == (tmp_path / "expected.png").read_bytes()
    assert list(out.parent.iterdir()) == [out]
    assert report == {
        "command": "plot",
        "kind": kind,
        "path": str(out),
        "bytes": out.stat().st_size,
        "model": words[0],
        "method": load_model(place / words[0]).method,
    }


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (["flat.zarr", "--data", "plane.zarr"], "contours"),
        (["pca.zarr"], "eigenvalues"),
        (["ppca.zarr"], "eigenvalues"),
        (["ppca.zarr"], "explained_variance"),
        (["ppca.zarr"], "log_likelihood"),
        (["run.zarr", "--embedding", "z.zarr"], "scores"),
        (["nonmetric.zarr"], "shepard"),
        (["metric.zarr"], "stress"),
        (["nonmetric.zarr"], "stress"),
    ],
)
@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_each_kind_may_be_asked_for(
    words: list[str], kind: str, suffix: str, place: Path, tmp_path: Path
) -> None:
    out = tmp_path / f"picture.{suffix}"
    assert succeed("plot", *words, "--kind", kind, "--out", out, "--json", cwd=place).report["kind"] == kind
    assert out.read_bytes().startswith(b"\x89PNG" if suffix == "png" else b"<?xml")


def test_the_report_says_what_was_drawn_and_where(place: Path, tmp_path: Path) -> None:
    said = succeed("plot", "pca.zarr", "--out", tmp_path / "a.png", cwd=place).out
    assert said.startswith("explained variance of a pca model\n")
    assert str(tmp_path / "a.png") in said


def test_a_picture_is_replaced(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.png"
    succeed("plot", "pca.zarr", "--out", out, "--kind", "eigenvalues", cwd=place)
    older = out.read_bytes()
    succeed("plot", "pca.zarr", "--out", out, cwd=place)
    assert out.read_bytes().startswith(b"\x89PNG")
    assert out.read_bytes() != older


def test_help_names_every_kind_and_every_store(tmp_path: Path) -> None:
    words = succeed("plot", "--help", cwd=tmp_path).out.split()
    assert {kind.rstrip(",;") for kind in words} >= plotting.kinds().keys()
    assert set(words) >= {"--data", "--labels", "--embedding", "--out", "--kind", "--json"}


# What is asked for, and what the error must say.
REFUSED: dict[str, tuple[list[str], int, list[str]]] = {
    "an unknown kind": (
        ["pca.zarr", "--kind", "contour"],
        2,
        ["'contour' does not exist", ", ".join(plotting.kinds())],
    ),
    "contours of five features": (
        ["pca.zarr", "--kind", "contours"],
        2,
        ["pca.zarr: contours needs", "two features", "5 to 3", "eigenvalues, explained_variance, scores"],
    ),
    "likelihoods of pca": (
        ["pca.zarr", "--kind", "log_likelihood"],
        2,
        ["pca.zarr: log_likelihood needs", "it supports eigenvalues"],
    ),
    "eigenvalues of a mixture": (
        ["mixture.zarr", "--kind", "eigenvalues"],
        2,
        ["mixture.zarr", "eigenvalues"],
    ),
    "pairs of pca": (
        ["pca.zarr", "--kind", "shepard"],
        2,
        ["pca.zarr: shepard needs a model with distances of pairs", "explained_variance"],
    ),
    "iterations of what has none": (
        ["classical.zarr", "--kind", "stress"],
        2,
        [
            "classical.zarr: stress needs a model with stresses of iterations",
            "it supports scores, series, shepard",
        ],
    ),
    "scores of one component": (["one.zarr", "--kind", "scores"], 2, ["at least two components"]),
    "scores of nothing": (["pca.zarr", "--kind", "scores"], 2, ["--embedding STORE"]),
    "contours without points": (["flat.zarr", "--kind", "contours"], 2, ["flat.zarr", "--data STORE"]),
    "maps of plain columns": (
        ["pca.zarr", "--kind", "maps"],
        2,
        [
            "pca.zarr: maps needs a model with components over labelled features, from an input with ",
        ],
    ),
    "a series of nothing": (["pca.zarr", "--kind", "series"], 2, ["--embedding STORE"]),
    "the series of another model": (
        ["ppca.zarr", "--kind", "series", "--embedding", "z.zarr"],
        1,
        ["z.zarr: has 3 columns", "ppca.zarr gives 2"],
    ),
    "a series by labels": (
        ["run.zarr", "--kind", "series", "--embedding", "z.zarr", "--labels", "labels.zarr"],
        2,
        ["--labels is not used by plots of series"],
    ),
    "labels of nothing": (
        ["flat.zarr", "--kind", "contours", "--labels", "labels.zarr"],
        2,
        ["--labels is given without its rows", "--data"],
    ),
    "data that is not used": (
        ["pca.zarr", "--kind", "eigenvalues", "--data", "space.zarr"],
        2,
        ["--data is not used by plots of eigenvalues"],
    ),
    "points with too many columns": (
        ["flat.zarr", "--kind", "contours", "--data", "space.zarr"],
        1,
        ["space.zarr: has 5 columns; points of a plane have 2"],
    ),
    "too few labels": (
        ["flat.zarr", "--data", "plane.zarr", "--labels", "few.zarr"],
        1,
        ["59 labels for the 60 points", "plane.zarr"],
    ),
    "labels of several columns": (
        ["flat.zarr", "--data", "plane.zarr", "--labels", "space.zarr"],
        1,
        ["space.zarr: has 5 columns; labels need one value per row"],
    ),
    "the embedding of another model": (
        ["ppca.zarr", "--embedding", "z.zarr"],
        1,
        ["z.zarr: has 3 columns", "ppca.zarr gives 2"],
    ),
    "an embedding that is none": (["pca.zarr", "--embedding", "space.zarr"], 1, ["space.zarr"]),
    "a model that is not there": (["nothing.zarr"], 1, ["nothing.zarr"]),
    "a model that is none": (["space.zarr"], 1, ["space.zarr"]),
    "data that is not there": (["flat.zarr", "--data", "nothing.zarr"], 2, ["nothing.zarr: no such file"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_drawn_is_one_error_and_no_picture(case: str, place: Path, tmp_path: Path) -> None:
    words, code, expected = REFUSED[case]
    outcome = streamdr("plot", *words, "--out", tmp_path / "a.png", "--json", cwd=place)
    (message,) = outcome.errors
    assert outcome.code == code, message
    assert all(words in message for words in expected), message
    assert outcome.report["error"]["message"] == message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("out", "code", "expected"),
    [
        ("picture.abc", 1, "picture.abc: cannot be written: Format 'abc' is not supported"),
        ("file/picture.png", 1, "file/picture.png: cannot be written"),
        ("folder.png", 1, "folder.png: cannot be written"),
        ("s3://bucket/picture.png", 2, "must be on this machine; copy it here"),
    ],
)
def test_a_place_that_cannot_be_written_is_named(
    out: str, code: int, expected: str, place: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("text")
    (tmp_path / "folder.png").mkdir()
    outcome = streamdr("plot", place / "pca.zarr", "--out", out, cwd=tmp_path)
    assert outcome.code == code
    assert expected in outcome.errors[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.png"]


@pytest.mark.parametrize("out", ["pca.zarr", "pca.zarr/zarr.json", "z.zarr/embedding/a.png"])
def test_a_picture_is_never_written_into_what_is_read(out: str, place: Path) -> None:
    outcome = streamdr("plot", "pca.zarr", "--embedding", "z.zarr", "--out", out, cwd=place)
    assert outcome.code == 2
    assert "write the picture elsewhere" in outcome.errors[0]
    load_model(place / "pca.zarr")
    assert open_embedding(place / "z.zarr").shape == (ROWS, 3)


def test_without_matplotlib_the_extra_is_named(place: Path, tmp_path: Path) -> None:
    (tmp_path / "matplotlib.py").write_text("raise ImportError('not here')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    words = [sys.executable, SCRIPT, "plot", "pca.zarr", "--out", str(tmp_path / "a.png")]
    done = subprocess.run(words, cwd=place, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: plots need matplotlib: pip install 'streamdr[plots]'\n"


def test_a_picture_without_out_is_bad_usage(place: Path) -> None:
    outcome = streamdr("plot", "pca.zarr", cwd=place)
    assert outcome.code == 2
    assert "--out" in outcome.errors[0]
