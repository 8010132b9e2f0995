"""The runs whose outputs are kept for ever in `bucket/`: what they read, what they write, how they are cut.

Everything has an address in a bucket, so that names and stamps are the same on every machine: an address
names no directory, and a chunk of an object store is known by the digest of its contents, not by a time.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nightly import Heard

from streamdr import methods
from streamdr.config import parse
from streamdr.core import blocks
from streamdr.core.row_outputs import RowKind
from streamdr.engine import planner
from streamdr.workflow import pipeline

BUCKET = Path(__file__).parent / "bucket"
NAME = "streamdr-golden"

ROWS, MORE, COLUMNS = 203, 300, 6
_COMPONENTS = {"n_components": 2}
_SELECTED = {"k": 3}
METHODS: dict[str, dict[str, Any]] = {
    "pca": _COMPONENTS,
    "ppca": _COMPONENTS,
    "ppca_mixture": {**_COMPONENTS, "n_mixtures": 2},
    "kernel_pca": {**_COMPONENTS, "gamma": 0.1, "approximation": "nystrom", "n_landmarks": 12},
    "sparse_kernel_pca": {**_COMPONENTS, "gamma": 0.1},
    "lda": _COMPONENTS,
    "select_mutual_info": _SELECTED,
    "select_f_score": _SELECTED,
    "select_correlation": _SELECTED,
    "select_forward": {**_SELECTED, "learner": "discriminant"},
    "classical_mds": _COMPONENTS,
    "landmark_mds": {**_COMPONENTS, "n_landmarks": 20},
    "metric_mds": {**_COMPONENTS, "max_iter": 20, "n_init": 1},
    "nonmetric_mds": {**_COMPONENTS, "max_iter": 20, "n_init": 1},
    "som": {"height": 3, "width": 4, "topology": "hexagonal", "n_epochs": 3},
    "normalize_total": {"empty_rows": "keep"},
    "log1p": {},
    "clip": {"max": 1.0},
    "unit_norm": {},
    "standardise": {"max_value": 1.5},
    "select_columns": {"columns": [0, "2:4"]},
    "scale_genotypes": {"min_maf": 0.1},
    "select_variance": {"n_features": 3},
    "bin": {"n_bins": 3},
}
"""The parameters of the run of each method."""
CHAIN = "chain"
STEPS: list[dict[str, Any]] = [
    {"name": "clip", "min": -20.0, "max": 20.0},
    {"name": "pca", "n_components": 4, "solver": "covariance"},
    {"name": "lda", "n_components": 2},
]
"""The methods of the run of a chain."""
OUTPUTS: dict[str, list[RowKind]] = {
    "pca": ["embedding", "denoised", "log_likelihood"],
    "ppca": ["embedding", "imputed", "imputed_variance", "log_likelihood"],
    "ppca_mixture": ["embedding", "imputed", "responsibilities", "predicted", "log_likelihood"],
    "kernel_pca": ["embedding", "denoised"],
    "lda": ["embedding", "predicted", "probabilities"],
    "som": ["embedding", "predicted"],
    CHAIN: ["embedding", "predicted"],
}
"""What is written of rows, where that is more than the embedding."""
STEP_NAMES = tuple(name for name in METHODS if methods.METHODS[name].tags.step)
INPUTS = {
    "ppca": "missing.zarr",
    "ppca_mixture": "missing.zarr",
    "lda": "v2.zarr",
    "pca": "sharded.zarr",
    **dict.fromkeys(STEP_NAMES, "counts.zarr"),
}
"""What is read, where that is not `v3.zarr`."""
LABELLED = (CHAIN, "lda", "select_mutual_info", "select_f_score", "select_correlation", "select_forward")
INTERRUPTED_FIT, INTERRUPTED_TRANSFORM = "interrupted_fit", "interrupted_transform"


def values(n_rows: int = MORE) -> np.ndarray:
    """Rows of three classes, of which any number of the first ones are always the same."""
    rng = np.random.default_rng(20)
    middles = 4 * rng.normal(size=(3, COLUMNS))
    rows = middles[np.arange(MORE) % 3] + rng.normal(size=(MORE, COLUMNS)) * np.arange(1, COLUMNS + 1) / 3
    return rows[:n_rows].astype(np.float32)


def counts(n_rows: int = MORE) -> np.ndarray:
    """Numbers of alleles, which are counts as well."""
    shares = np.linspace(0.05, 0.6, COLUMNS)
    return np.random.default_rng(22).binomial(2, shares, (MORE, COLUMNS)).astype(np.float32)[:n_rows]


def stored(name: str, n_rows: int = MORE) -> np.ndarray:
    """The first rows of an input."""
    if name == "counts.zarr":
        return counts(n_rows)
    return with_missing(values(n_rows)) if name == "missing.zarr" else values(n_rows)


def labels(n_rows: int = MORE) -> np.ndarray:
    """Which of the three classes each row is of."""
    return np.arange(n_rows, dtype=np.int64) % 3


def with_missing(rows: np.ndarray) -> np.ndarray:
    """The rows with a tenth of their values gone."""
    gone = np.random.default_rng(21).random((MORE, COLUMNS)) < 0.1
    return np.where(gone[: len(rows)], np.float32(np.nan), rows)


def config(name: str, method: str | None = None) -> dict[str, Any]:
    """The configuration of a run: outputs below `out/NAME`, all in the bucket."""
    method = method or name
    given = {"path": f"s3://{NAME}/inputs/{INPUTS.get(method, 'v3.zarr')}", "array": "X"}
    if method in LABELLED:
        given["labels"] = f"{given['path']}/y"
    kinds = OUTPUTS.get(method, ["embedding"])
    outputs: dict[str, Any] = {kind: f"s3://{NAME}/out/{name}/{kind}.zarr" for kind in kinds}
    if method == CHAIN:
        outputs["steps"] = {"pca": f"s3://{NAME}/out/{name}/pca.zarr"}
    return {
        "input": given,
        "method": STEPS if method == CHAIN else {"name": method, **METHODS[method]},
        "output": {"model": f"s3://{NAME}/out/{name}/model.zarr", **outputs},
        "execution": {"workers": 1, "checkpoint_seconds": 0.001},
    }


CONFIGS = {name: config(name) for name in (*METHODS, CHAIN)} | {
    INTERRUPTED_FIT: config(INTERRUPTED_FIT, "pca"),
    INTERRUPTED_TRANSFORM: config(INTERRUPTED_TRANSFORM, "ppca"),
}


def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut few rows into many blocks, so that work on them can be interrupted."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1 << 10)
    monkeypatch.setattr(blocks, "LARGEST_BLOCK_BYTES", 1 << 10)
    monkeypatch.setattr(blocks, "SEGMENT_BYTES", 1 << 11)
    monkeypatch.setattr(planner, "_OUTPUT_CHUNK", 1 << 8)


def stage(
    name: str, progress: Any = None, stop: threading.Event | None = None, *, fresh: bool = False
) -> pipeline.RunContext:
    """A run, ready to be carried out."""
    run = parse(json.dumps(CONFIGS[name]))
    return pipeline.RunContext(run, progress or Heard(), stop or threading.Event(), fresh=fresh)
