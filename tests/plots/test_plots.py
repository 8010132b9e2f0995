"""What the pictures show is what the numbers say, and drawing them takes little memory."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from matplotlib import image
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from narrowing import checked, present

import streamdr
from streamdr import plots
from streamdr.core.blocks import Array
from streamdr.core.canvas import NotebookFigure
from streamdr.errors import DataError, ParameterError, StoreError
from streamdr.store import Staging, create_embedding, finish, write_rows

MANY = plots.MOST_POINTS + 1_500


def cloud(n: int = MANY, k: int = 3) -> Array:
    return np.random.default_rng(0).normal(size=(n, k)).astype("f4") * np.arange(1, k + 1, dtype="f4")


def saved(target: Path, values: Array, names: list[str] | None = None) -> Path:
    n, k = values.shape
    with Staging(target, kind="embedding", overwrite=False) as staging:
        create_embedding(
            staging.path,
            n_rows=n,
            n_outputs=k,
            dtype="f4",
            chunk_rows=1000,
            output_names=names,
            attributes={},
        )
        write_rows(staging.path, 0, values)
        finish(staging.path)
        staging.publish()
    return target


def counts(values: Array, bins: int) -> Array:
    """The picture's bins by numpy: rows are the second component."""
    first, second = values[:, 0].astype("f8"), values[:, 1].astype("f8")
    return np.histogram2d(second, first, bins)[0]


def shown(figure: Any) -> Array:
    return np.ma.filled(figure.axes[0].images[0].get_array(), 0)


@pytest.mark.parametrize("k", [1, 4, 80])
def test_bars_are_ratios_and_the_line_is_their_sum(tmp_path: Path, k: int) -> None:
    ratio = np.linspace(2, 1, k) / (2 * k)
    figure = plots.explained_variance(SimpleNamespace(explained_variance_ratio=ratio), tmp_path / "scree.png")
    (axes,) = figure.axes  # one scale for both
    assert [checked(Rectangle, bar).get_height() for bar in axes.patches] == pytest.approx(list(100 * ratio))
    np.testing.assert_allclose(np.asarray(axes.lines[0].get_ydata()), 100 * np.add.accumulate(ratio))
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), np.arange(1, k + 1))
    assert axes.get_xlabel() == "component"
    assert axes.get_ylabel() == "explained variance (%)"
    assert axes.get_ylim() == (0, 105)
    assert {text.get_text() for text in present(axes.get_legend()).get_texts()} == {
        "each component",
        "cumulative",
    }
    assert f"{100 * ratio.sum():.1f} %" in axes.get_title(loc="left")
    assert image.imread(tmp_path / "scree.png").std() > 0


def test_a_notebook_shows_the_figure_that_is_returned() -> None:
    shown = checked(NotebookFigure, plots.scores(cloud(50)))._repr_png_()
    assert image.imread(BytesIO(shown)).std() > 0


def test_few_samples_are_points() -> None:
    values = cloud(100)
    figure = plots.scores(values)
    np.testing.assert_array_equal(figure.axes[0].collections[0].get_offsets(), values[:, :2])
    assert figure.axes[0].get_title(loc="left") == "100 samples"
    assert figure.axes[0].get_xlabel() == "component 1"


@pytest.mark.parametrize("bins", [1, 7, 50])
@pytest.mark.parametrize("kind", ["numpy", "zarr", "dask", "path"])
def test_many_samples_are_counted_in_bins(tmp_path: Path, kind: str, bins: int) -> None:
    values = cloud()
    embedding: Any = values
    if kind == "zarr":
        embedding = zarr.create_array({}, data=values, chunks=(999, 2))
    elif kind == "dask":
        embedding = da.from_array(values, chunks=(999, 2))
    elif kind == "path":
        embedding = saved(tmp_path / "z", values)
    figure = plots.scores(embedding, bins=bins)
    np.testing.assert_array_equal(shown(figure), counts(values, bins))
    left, right, bottom, top = figure.axes[0].images[0].get_extent()
    np.testing.assert_array_equal([left, bottom], values[:, :2].min(axis=0))
    np.testing.assert_array_equal([right, top], values[:, :2].max(axis=0))


def test_points_have_their_classs_colour() -> None:
    labels = ["b", "a", "b", "c"]
    figure = plots.scores(cloud(4), labels)
    colours = np.asarray(figure.axes[0].collections[0].get_facecolor())[:, :3]
    expected = [to_rgba(f"tab:{name}")[:3] for name in ("orange", "blue", "orange", "green")]
    np.testing.assert_allclose(colours, np.array(expected))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b", "c"]


@pytest.mark.parametrize("n_classes", [2, 12])
def test_bins_have_the_colour_of_their_most_frequent_class(n_classes: int) -> None:
    values, bins = cloud(), 9
    labels = np.random.default_rng(1).integers(0, n_classes, len(values))
    edges = [np.histogram_bin_edges(values[:, i].astype("f8"), bins) for i in (1, 0)]
    each = np.stack(
        [np.histogram2d(values[labels == c, 1], values[labels == c, 0], edges)[0] for c in range(n_classes)]
    )
    figure = plots.scores(values, labels, bins=bins)
    palette = np.array([handle.get_facecolor() for handle in figure.legends[0].get_patches()])
    picture = shown(figure)
    filled = each.sum(axis=0) > 0
    np.testing.assert_array_equal(picture[..., 3] > 0, filled)
    np.testing.assert_allclose(picture[filled][:, :3], palette[each.argmax(axis=0)[filled]][:, :3])
    assert picture[..., 3].max() == 1


def test_words_from_the_data_are_drawn_as_they_are(tmp_path: Path) -> None:
    path = saved(tmp_path / "z", cloud(10, 2), ["$\\frac$", "_b"])
    figure = plots.scores(path, ["$x^$", "_y"] * 5, tmp_path / "scores.svg")
    assert figure.axes[0].get_xlabel() == "\\$\\frac\\$"
    assert figure.axes[0].get_ylabel() == "_b"
    assert len(figure.legends[0].get_texts()) == 2
    assert (tmp_path / "scores.svg").stat().st_size > 0


def test_samples_that_are_not_finite_are_left_out_and_counted() -> None:
    values = cloud()
    values[5, 0], values[-1, 1], values[7, 2] = np.nan, np.inf, np.nan
    finite = np.delete(values, [5, len(values) - 1], axis=0)
    figure = plots.scores(values, bins=11)
    np.testing.assert_array_equal(shown(figure), counts(finite, 11))
    assert figure.axes[0].get_title(loc="left") == f"{MANY - 2:,} samples (2 not finite, left out)"


@pytest.mark.parametrize("constant", [0.0, 3.0, -1e17])
def test_a_constant_component_is_drawn(tmp_path: Path, constant: float) -> None:
    values = cloud().astype("f8")
    values[:, 1] = constant
    figure = plots.scores(values, path=tmp_path / "scores.png", bins=5)
    np.testing.assert_array_equal(shown(figure)[2], np.histogram(values[:, 0], 5)[0])
    assert shown(figure).sum() == MANY


class Watched:
    """An array that remembers the largest region anyone asked for."""

    def __init__(self, values: Array, chunks: tuple[int, int]) -> None:
        self._values = values
        self.shape, self.dtype, self.chunks, self.largest = values.shape, values.dtype, chunks, 0

    def __getitem__(self, region: tuple[slice, slice], /) -> Array:
        self.largest = max(self.largest, region[0].stop - region[0].start)
        return self._values[region]


@pytest.mark.parametrize(
    ("shape", "chunk_rows", "largest"),
    [
        ((300_000, 2), 1000, 65_000),
        ((300_000, 2), 100_000, 100_000),
        ((300_000, 400), 10, 20_970),
        ((6_000, 2**23), 1, 1),
    ],
)
def test_an_embedding_is_read_by_whole_chunks_and_never_held(
    shape: tuple[int, int], chunk_rows: int, largest: int
) -> None:
    values = np.broadcast_to(np.arange(shape[0], dtype="f4")[:, None], shape)
    watched = Watched(values, (chunk_rows, shape[1]))
    figure = plots.scores(watched, bins=4)
    np.testing.assert_array_equal(shown(figure), np.diag([shape[0] // 4] * 4))
    assert watched.largest == largest


@pytest.mark.parametrize(
    ("values", "labels", "error", "message"),
    [
        (np.zeros((5, 1)), None, DataError, r"shape \(5, 1\); scores need samples x at least two components"),
        (np.zeros(5), None, DataError, "scores need"),
        (np.full((5, 2), np.nan), None, DataError, "none of its 5 samples is finite"),
        (np.zeros((5, 2)), [1, 2], DataError, "2 labels for 5 samples"),
        (np.zeros((21, 2)), range(21), ParameterError, "more than 20 distinct labels"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    tmp_path: Path, values: Array, labels: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        plots.scores(values, labels, tmp_path / "scores.png")
    assert list(tmp_path.iterdir()) == []


def test_no_bins_are_refused() -> None:
    with pytest.raises(ParameterError, match="at least 1"):
        plots.scores(cloud(), bins=0)


def test_a_damaged_chunk_is_named_by_its_rows(tmp_path: Path) -> None:
    path = saved(tmp_path / "z", cloud())
    chunk = path / "embedding" / "c" / "2" / "0"
    raw = bytearray(chunk.read_bytes())
    raw[100] ^= 1
    chunk.write_bytes(raw)
    with pytest.raises(StoreError, match=r"z: rows 0-6499: .*checksum"):
        plots.scores(path)


@pytest.mark.parametrize("name", ["deep/scores.png", "scores.pdf", "scores"])
def test_a_picture_is_written_whole(tmp_path: Path, name: str) -> None:
    plots.scores(cloud(10), path=tmp_path / name)
    assert [p.relative_to(tmp_path) for p in tmp_path.rglob("*") if p.is_file()] == [Path(name)]
    assert (tmp_path / name).stat().st_size > 0


@pytest.mark.parametrize("name", ["scores.abc", "file/scores.png"])
def test_a_picture_that_cannot_be_written_is_a_store_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("text")
    with pytest.raises(StoreError, match=f"{name}: cannot be written"):
        plots.scores(cloud(10), path=tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def run(code: str) -> str:
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_pyplot_is_never_imported() -> None:
    said = run("""
        import sys
        import numpy as np
        from streamdr import plots
        before = "matplotlib" in sys.modules
        plots.scores(np.zeros((9000, 2)), np.zeros(9000))
        print(before, "matplotlib" in sys.modules, "matplotlib.pyplot" in sys.modules)
    """)
    assert said.split() == ["False", "True", "False"]


def test_without_matplotlib_the_extra_is_named() -> None:
    said = run("""
        import sys
        sys.modules["matplotlib"] = None
        import numpy as np
        from streamdr import plots
        try:
            plots.scores(np.zeros((9, 2)))
        except ImportError as error:
            print(error)
    """)
    assert "streamdr[plots]" in said


def test_the_curve_is_the_likelihood_of_each_iteration_and_what_was_left_to_gain(tmp_path: Path) -> None:
    history = np.array([-50.0, -41.0, -40.1, -40.0])
    figure = plots.log_likelihood(SimpleNamespace(log_likelihoods=history), tmp_path / "em.png")
    reached, missing = figure.axes
    np.testing.assert_array_equal(reached.lines[0].get_ydata(), history)
    np.testing.assert_array_equal(reached.lines[0].get_xdata(), [1, 2, 3, 4])
    np.testing.assert_allclose(missing.lines[0].get_ydata(), [10.0, 1.0, 0.1])
    assert missing.get_yscale() == "log"
    assert image.imread(tmp_path / "em.png").ndim == 3


def test_one_iteration_is_a_point_and_none_is_refused() -> None:
    assert len(plots.log_likelihood(SimpleNamespace(log_likelihoods=np.array([-3.0]))).axes) == 1
    with pytest.raises(DataError, match="without iterations"):
        plots.log_likelihood(SimpleNamespace(log_likelihoods=np.zeros(0)))


def spectrum(values: list[float], total: float, **more: Any) -> Any:
    return SimpleNamespace(explained_variance_ratio=np.array(values) / total, **more)


def test_eigenvalues_of_a_covariance_fall_on_a_log_scale_beside_their_cumulative_share(
    tmp_path: Path,
) -> None:
    values = [8.0, 4.0, 1.0]
    model = spectrum(values, 20.0, explained_variance=np.array(values))
    figure = plots.eigenvalues(model, tmp_path / "decay.png")
    fall, together = figure.axes
    assert fall.get_yscale() == "log"
    np.testing.assert_array_equal(fall.lines[0].get_xdata(), [1, 2, 3])
    np.testing.assert_array_equal(fall.lines[0].get_ydata(), values)
    np.testing.assert_allclose(np.asarray(together.lines[0].get_ydata()), [40, 60, 65])
    assert fall.get_ylabel() == "eigenvalue of the covariance"
    assert fall.get_title(loc="left") == "3 components: 65.0 % of the variance"
    assert image.imread(tmp_path / "decay.png").std() > 0


def test_eigenvalues_of_a_kernel_come_with_the_trace_that_was_captured() -> None:
    values = np.geomspace(100, 1e-3, 70)
    model = spectrum(
        values.tolist(),
        2 * values.sum(),
        eigenvalues=values,
        captured_trace=0.98765,
        explained_variance=values / 10,
    )
    fall, together = plots.eigenvalues(model).axes
    np.testing.assert_array_equal(fall.lines[0].get_ydata(), values)
    assert np.asarray(together.lines[0].get_ydata())[-1] == pytest.approx(50)
    assert fall.get_ylabel() == "eigenvalue of the kernel matrix"
    assert "50.0 % of the variance" in fall.get_title(loc="left")
    assert "the landmarks hold 98.77 % of the kernel matrix's trace" in fall.get_title(loc="left")
    model.captured_trace = None
    assert "landmarks" not in plots.eigenvalues(model).axes[0].get_title(loc="left")


def test_eigenvalues_of_zero_have_no_place_on_a_log_scale() -> None:
    values = [2.0, 1.0, 0.0]
    fall, together = plots.eigenvalues(spectrum(values, 3.0, explained_variance=np.array(values))).axes
    np.testing.assert_array_equal(fall.lines[0].get_xdata(), [1, 2])
    assert len(np.asarray(together.lines[0].get_xdata())) == 3
    assert fall.get_title(loc="left") == "3 components (1 of zero, left out): 100.0 % of the variance"
    with pytest.raises(DataError, match="no eigenvalue above zero"):
        plots.eigenvalues(spectrum([0.0], 1.0, explained_variance=np.zeros(1)))


@pytest.mark.parametrize("approximation", ["exact", "nystrom", "random_features"])
def test_the_decay_of_a_fitted_kernel_pca_is_its_own(approximation: Any) -> None:
    data = np.random.default_rng(0).normal(size=(60, 3))
    model = streamdr.KernelPCA(5, approximation=approximation, n_landmarks=20).fit(data).model_
    fall, together = plots.eigenvalues(model).axes
    np.testing.assert_array_equal(fall.lines[0].get_ydata(), model.eigenvalues)
    np.testing.assert_allclose(
        np.asarray(together.lines[0].get_ydata()), 100 * np.add.accumulate(model.explained_variance_ratio)
    )
    title = fall.get_title(loc="left")
    if model.captured_trace is None:
        assert "trace" not in title
    else:
        assert f"{100 * model.captured_trace:.4g} % of the kernel matrix's trace" in title


FORMATS = ["png", "pdf", "svg", "eps", "ps", "jpg", "tiff", "webp", "gif"]


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_picture_is_drawn_over_one_of_ours_only(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"picture.{suffix}"
    for _ in range(2):
        plots.explained_variance(streamdr.PCA(2).fit(cloud(50)).model_, path)
    assert [item.name for item in tmp_path.iterdir()] == [path.name]
    Figure().savefig(path)  # somebody's own
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"is not an image that streamdr wrote, so it is not overwritten"):
        plots.explained_variance(streamdr.PCA(2).fit(cloud(50)).model_, path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("what", ["notes", "pipe", "device", "loop"])
def test_nor_over_anything_else(tmp_path: Path, what: str) -> None:
    path = tmp_path / "picture.png"
    if what == "notes":
        path.write_text("precious")
    elif what == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero" if what == "device" else path)
    before = path.lstat().st_ino
    with pytest.raises(StoreError, match=r"not overwritten|cannot be written"):
        plots.explained_variance(streamdr.PCA(2).fit(cloud(50)).model_, path)
    assert path.lstat().st_ino == before
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


def test_through_a_link_a_picture_is_written_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "link.png").symlink_to("picture.png")
    plots.explained_variance(streamdr.PCA(2).fit(cloud(50)).model_, tmp_path / "link.png")
    assert (tmp_path / "link.png").is_symlink()
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
