"""Noise taken away by kernels, in a run: what cannot be done is refused at once, and memory is as planned."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import zarr
from command_line import streamdr, write_config, write_store
from narrowing import present
from nightly import Nights

from streamdr import KernelPCA, config, store
from streamdr.core import blocks
from streamdr.engine import planner
from streamdr.errors import ConfigError, DataError
from streamdr.workflow import pipeline
from streamdr.workflow.verification import verify

RING = np.random.default_rng(0).uniform(0, 2 * np.pi, size=1500)
CLEAN = np.column_stack([np.cos(RING), np.sin(RING), np.zeros((1500, 4))]).astype("f4") * 5 + 2
NOISY = CLEAN + 0.5 * np.random.default_rng(1).normal(size=CLEAN.shape).astype("f4")

ABLE = {
    "nystrom": {"name": "kernel_pca", "gamma": 0.03, "approximation": "nystrom", "n_landmarks": 100},
    "exact": {"name": "kernel_pca", "gamma": 0.03, "approximation": "exact"},
    "ridge": {"name": "kernel_pca", "gamma": 0.03, "fit_inverse_transform": True, "alpha": 0.01},
    "poly": {"name": "kernel_pca", "kernel": "poly", "gamma": 0.1, "fit_inverse_transform": True},
    "sparse": {"name": "sparse_kernel_pca", "gamma": 0.03},
}
UNABLE = [
    ({"name": "kernel_pca", "kernel": "laplacian"}, "set fit_inverse_transform: true"),
    ({"name": "kernel_pca", "kernel": "poly"}, "set fit_inverse_transform: true"),
    (
        {"name": "kernel_pca", "kernel": {"search": {"rbf": {}, "poly": {}}}},
        "set fit_inverse_transform: true",
    ),
    ({"name": "kernel_pca", "kernel": "precomputed"}, "have no inverse transform"),
    (
        {"name": "kernel_pca", "kernel": "precomputed", "fit_inverse_transform": True},
        "have no inverse transform",
    ),
    ({"name": "kernel_pca", "approximation": "random_features"}, "have no inverse transform"),
    (
        {"name": "kernel_pca", "approximation": "random_features", "fit_inverse_transform": True},
        "have no inverse transform",
    ),
    ({"name": "sparse_kernel_pca", "kernel": "cosine"}, "use kernel_pca with fit_inverse_transform: true"),
]


def nights(place, method) -> Nights:
    output = {name: str(place / f"out/{name}.zarr") for name in ("embedding", "denoised")}
    asked = {"n_components": 6, **method}
    return Nights(place, NOISY, {"method": asked, "output": output})


def root_mean_square(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


@pytest.mark.parametrize("method", ABLE)
def test_a_run_writes_what_the_model_says_and_it_has_less_noise(tmp_path, method, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1 << 12)
    monkeypatch.setattr(planner, "_CHUNK_BLOCKS", 2)
    once = nights(tmp_path, ABLE[method])
    once.write(1500)
    report = once.run()
    assert present(report.transform).outputs["denoised"].bytes_read == NOISY.nbytes
    denoised = store.open_rows(tmp_path / "out/denoised.zarr", "denoised")[...]
    model = store.load_model(tmp_path / "out/model.zarr").model
    assert denoised.dtype == np.float32
    np.testing.assert_allclose(denoised, model.denoise(NOISY), atol=2e-3)
    assert root_mean_square(denoised - CLEAN) < 0.9 * root_mean_square(NOISY - CLEAN)
    assert "sample of denoised" in verify(once.stage()).checks
    assert once.run().reused


def test_a_ring_is_denoised_better_than_linear_pca_can(tmp_path):
    """Two linear components are all of the plane that the ring lies in, and keep the noise within it."""
    once = nights(tmp_path, ABLE["nystrom"])
    once.write(1500)
    once.run()
    curved = store.open_rows(tmp_path / "out/denoised.zarr", "denoised")[...]
    axes = np.linalg.svd(NOISY - NOISY.mean(axis=0), full_matrices=False)[2][:2]
    flat = NOISY.mean(axis=0) + (NOISY - NOISY.mean(axis=0)) @ axes.T @ axes
    assert root_mean_square(curved - CLEAN) < 0.9 * root_mean_square(flat - CLEAN)


@pytest.mark.parametrize(("method", "said"), UNABLE, ids=str)
def test_what_has_no_way_back_is_refused_with_the_line_before_anything_is_read(tmp_path, method, said):
    asked = {"n_components": 2, **method}
    output = {"denoised": "out/d.zarr"}
    file = write_config(tmp_path, input={"path": "nowhere.zarr"}, method=asked, output=output)
    with pytest.raises(ConfigError) as refused:
        config.load(file)
    asked_for = "  fit_inverse_transform:" if "fit_inverse_transform" in method else "  denoised:"
    lines = file.read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if text.startswith(asked_for))
    assert f"config.yaml:{line}:" in str(refused.value)
    assert said in str(refused.value)
    assert streamdr("plan", "config.yaml", cwd=tmp_path).code == 2


@pytest.mark.parametrize("method", ["nystrom", "ridge", "sparse"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_named(tmp_path, method, value):
    once = nights(tmp_path, ABLE[method])
    once.write(1500)
    once.run(output={"embedding": None, "denoised": None})
    zarr.open_array(tmp_path / "x.zarr", mode="r+")[700, 3] = value
    with pytest.raises(DataError, match=f"{value} at row 700, column 3"):
        pipeline.transform(once.stage(output={"embedding": None}))


def test_estimators_denoise_lazily_as_in_memory():
    dask = pytest.importorskip("dask.array")
    kernel = KernelPCA(6, gamma=0.03, approximation="nystrom", n_landmarks=100).fit(NOISY)
    here = kernel.denoise(NOISY)
    assert (here.dtype, here.shape) == (np.float32, NOISY.shape)
    lazily = kernel.denoise(dask.from_array(NOISY, chunks=(400, 6)))
    np.testing.assert_allclose(lazily.compute(), here, atol=2e-3)


FRESH = """
import json, sys
from pathlib import Path
from streamdr.engine import fitting, planner; from streamdr import store
from streamdr.core.row_outputs import ROW_OUTPUTS
from streamdr.core.execution import Execution
from streamdr.data import open_source

model, path, target, limit = sys.argv[1:]
kind = next(kind for kind in ROW_OUTPUTS if kind.name == "denoised")
model = store.load_model(Path(model)).model
execution = Execution(memory_limit=int(limit), workers=2)
planned = planner.plan_transform(kind.of(model), open_source(path), execution, open_source(path).spec.working)
fitting.transform(model, open_source(path), Path(target), execution, kind=kind, attributes={})
print(json.dumps({"planned": planned.peak, "workers": planned.workers, "peak": planner.peak_resident()}))
"""


@pytest.mark.parametrize("ridge", [False, True])
def test_a_fresh_process_keeps_the_promise(tmp_path, ridge):
    rows = np.random.default_rng(0).normal(size=(60_000, 16)).astype("f4")
    write_store(tmp_path / "x.zarr", rows, chunks=(10_000, 16))
    kernel = KernelPCA(4, gamma=0.05, approximation="nystrom", n_landmarks=300, fit_inverse_transform=ridge)
    kernel.fit(rows[:5000]).save(tmp_path / "model.zarr")
    words = [tmp_path / "model.zarr", tmp_path / "x.zarr", tmp_path / "d.zarr", 600 << 20]
    done = subprocess.run(
        [sys.executable, "-c", FRESH, *map(str, words)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["workers"] == 2
    assert report["peak"] <= report["planned"] <= 600 << 20
