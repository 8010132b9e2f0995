"""The bytes that a run reads from files agree with its plan and its report."""

from __future__ import annotations

import threading
import warnings

import numpy as np
import pytest
import zarr

from streamdr import config
from streamdr.core.progress import Silent
from streamdr.data.zarr.stores import Directory
from streamdr.workflow import pipeline

CHUNK = 100
TALL, WIDE = (2000, 16), (300, 1200)
CASES = {
    "covariance": ({"name": "pca", "n_components": 3, "solver": "covariance"}, TALL, "f4"),
    "bytes": ({"name": "pca", "n_components": 3, "solver": "covariance"}, TALL, "u1"),
    "gram": ({"name": "pca", "n_components": 3, "solver": "gram"}, WIDE, "f4"),
    "krylov": ({"name": "pca", "n_components": 3, "solver": "krylov"}, WIDE, "f4"),
    "closed form": ({"name": "ppca", "n_components": 3}, TALL, "f4"),
    "em": ({"name": "ppca", "n_components": 3, "method": "em"}, TALL, "missing"),
    "wide em": ({"name": "ppca", "n_components": 3, "method": "em"}, WIDE, "missing"),
    "mixture": ({"name": "ppca_mixture", "n_components": 2, "n_mixtures": 2, "max_iter": 5}, TALL, "missing"),
    "nystrom": ({"name": "kernel_pca", "n_components": 2, "n_landmarks": 50}, TALL, "f4"),
    "sparse": ({"name": "sparse_kernel_pca", "n_components": 2}, TALL, "f4"),
    "lda": ({"name": "lda", "shrinkage": "auto"}, TALL, "classes"),
    "mutual information": ({"name": "select_mutual_info", "k": 3}, TALL, "classes"),
    "f score": ({"name": "select_f_score", "k": "cv"}, TALL, "classes"),
    "columns": ({"name": "select_correlation", "k": 2}, TALL, "numbers in chunks of columns"),
    "landmarks": ({"name": "landmark_mds", "n_components": 2, "n_landmarks": 50}, (6000, 16), "f4"),
    "city blocks": (
        {"name": "classical_mds", "n_components": 2, "metric": "cityblock", "solver": "krylov"},
        (400, 16),
        "f4",
    ),
    "stochastic": ({"name": "metric_mds", "algorithm": "stochastic", "n_epochs": 2}, (400, 16), "f4"),
    "streamed": (
        {"name": "metric_mds", "algorithm": "smacof", "storage": "stream", "max_iter": 4},
        (400, 16),
        "f4",
    ),
    "ranks": ({"name": "nonmetric_mds", "storage": "stream", "max_iter": 3, "n_init": 2}, (400, 16), "f4"),
}


@pytest.fixture
def counted(monkeypatch, tmp_path):
    """The sizes of the chunks of the input that were read."""
    read: list[int] = []
    read_scratch = Directory.read_scratch

    def counting(self, key, limit):
        data = read_scratch(self, key, limit)
        if data is not None and self.root == tmp_path / "x.zarr":
            read.append(len(data))
        return data

    monkeypatch.setattr(Directory, "read_scratch", counting)
    return read


def rows(shape, kind, seed):
    rng = np.random.default_rng(seed)
    axes = np.random.default_rng(9).standard_normal((4, shape[1]))
    values = 5 * rng.standard_normal((shape[0], 4)) @ axes + rng.standard_normal(shape)
    if kind == "missing":
        values[rng.random(shape) < 0.1] = np.nan
    return np.clip(values + 50, 0, 255).astype("u1") if kind == "u1" else values.astype("f4")


def labels_of(values, kind):
    return (values[:, 0] > 0) + 2 * (values[:, 1] > 0) if kind == "classes" else values[:, 0].astype("f8")


def plan_and_run(directory, method, labelled):
    labels = {"labels": str(directory / "y.zarr")} if labelled else {}
    run = config.read(
        {
            "input": {"path": str(directory / "x.zarr"), **labels},
            "method": method,
            "output": {"model": str(directory / "model.zarr"), "embedding": str(directory / "z.zarr")},
        }
    )
    context = pipeline.RunContext(run, Silent(), threading.Event())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about convergence
        return pipeline.plan(context), pipeline.run_all(context)


def check(plan_and_report, read):
    planned, report = plan_and_report
    for stage, done in zip(planned.stages, (report.fit, report.transform), strict=True):
        assert stage.least_bytes_to_read <= done.bytes_read <= stage.bytes_to_read, stage.name
    assert report.bytes_read == sum(read)


@pytest.mark.parametrize("case", CASES)
def test_plan_and_report_have_the_bytes_that_are_read(case, tmp_path, counted):
    method, shape, kind = CASES[case]
    values = rows(shape, kind, 0)
    chunks = (CHUNK, 4 if "columns" in kind else shape[1])
    x = zarr.create_array(
        tmp_path / "x.zarr", shape=shape, chunks=chunks, dtype=values.dtype, compressors=None
    )
    x[:] = values
    labelled = kind == "classes" or kind.startswith("numbers")
    if labelled:
        labels = labels_of(values, kind)
        y = zarr.create_array(tmp_path / "y.zarr", shape=shape[:1], chunks=(CHUNK,), dtype=labels.dtype)
        y[:] = labels
    check(plan_and_run(tmp_path, method, labelled), counted)
    new = rows((2 * CHUNK, shape[1]), kind, 1)
    x.append(new)
    if labelled:
        y.append(labels_of(new, kind))
    counted.clear()
    check(plan_and_run(tmp_path, method, labelled), counted)


def test_only_selected_columns_are_read_to_check_an_embedding(tmp_path, counted):
    method = {"name": "select_correlation", "k": 1}
    values = rows((2000, 17), "f4", 0)
    x = zarr.create_array(tmp_path / "x.zarr", data=values, chunks=(CHUNK, 4), compressors=None)
    y = zarr.create_array(tmp_path / "y.zarr", data=values[:, -1].astype("f8"), chunks=(CHUNK,))
    plan_and_run(tmp_path, method, True)
    new = rows((CHUNK, 17), "f4", 1)
    x.append(new)
    y.append(new[:, -1].astype("f8"))
    planned, report = plan_and_run(tmp_path, method, True)
    transform = report.transform
    assert transform.outputs["embedding"].rows_written == CHUNK
    assert planned.stages[1].least_bytes_to_read == transform.bytes_read


def test_whole_chunks_are_counted(tmp_path, counted):
    method = CASES["covariance"][0]
    x = zarr.create_array(
        tmp_path / "x.zarr", shape=(2000, 16), chunks=(CHUNK, 16), dtype="f4", compressors=None
    )
    x[:] = rows((2000, 16), "f4", 0)
    plan_and_run(tmp_path, method, False)
    x.append(rows((CHUNK, 16), "f4", 1)[:-1])
    counted.clear()
    planned, report = plan_and_run(tmp_path, method, False)
    row = 16 * 4
    assert [stage.least_bytes_to_read for stage in planned.stages] == [
        (CHUNK - 1) * row,
        (CHUNK - 1 + CHUNK) * row,
    ]
    assert report.bytes_read == sum(counted) - 2 * row, "the missing row of the last chunk is not counted"
