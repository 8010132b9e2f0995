"""Verification: correct outputs pass, and damaged or altered ones are found and named."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import zarr
from command_line import write_config, write_store
from narrowing import present, values_of

from streamdr.config import load
from streamdr.core.progress import Silent
from streamdr.data import open_source
from streamdr.errors import DataError, StoreError
from streamdr.workflow import pipeline
from streamdr.workflow.run_context import RunContext
from streamdr.workflow.verification import SAMPLE_BYTES, sample, verify

ROWS, COLS = 300, 6


def stage(place: Path, **sections) -> RunContext:
    output = {
        "model": str(place / "model.zarr"),
        "embedding": str(place / "z.zarr"),
        **sections.pop("output", {}),
    }
    file = write_config(place, input={"path": str(place / "x.zarr")}, output=output, **sections)
    return RunContext(load(file), Silent(), threading.Event())


@pytest.fixture
def values(tmp_path):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(ROWS, COLS)) * [9, 7, 5, 3, 2, 1] + 100
    write_store(tmp_path / "x.zarr", values)
    return values


@pytest.mark.parametrize(
    "method",
    [
        {"n_components": 2},
        {"n_components": 3, "whiten": "pca"},
        {"n_components": 6, "whiten": "zca"},
        {"n_components": 2, "scale": True},
        {"n_components": 2, "solver": "krylov"},
        {"n_components": 2, "solver": "gram"},
    ],
    ids=str,
)
def test_what_a_run_wrote_is_right(method, tmp_path, values):
    this = stage(tmp_path, method={"name": "pca", **method})
    done = pipeline.run_all(this)
    report = verify(this)
    assert report.n_rows == report.sampled_rows == ROWS
    assert set(report.checks) == {"model", "embedding", "sample", "scores", "reconstruction error"}

    spread = values - values.mean(axis=0)
    if method.get("scale"):
        spread /= spread.std(axis=0, ddof=1)
    k = method["n_components"]
    left = (np.linalg.svd(spread, compute_uv=False)[k:] ** 2).sum() / ROWS
    assert report.reconstruction_error == pytest.approx(left, rel=1e-6, abs=1e-12)
    assert done.fit.summary["reconstruction_error"] == pytest.approx(
        present(report.reconstruction_error) * ROWS / (ROWS - 1), rel=1e-6, abs=1e-12
    )


def test_a_model_alone_is_verified_without_an_embedding(tmp_path, values):
    this = stage(tmp_path, output={"embedding": None})
    pipeline.fit(this)
    report = verify(this)
    assert report.embedding is None
    assert set(report.checks) == {"model", "sample", "reconstruction error"}


def test_weights_count(tmp_path, values):
    weights = np.random.default_rng(1).uniform(0, 3, ROWS)
    write_store(tmp_path / "w.zarr", weights[:, None], chunks=(10, 1))
    zarr.create_array(tmp_path / "weights.zarr", data=weights)
    this = stage(tmp_path)
    file = write_config(
        tmp_path,
        input={"path": str(tmp_path / "x.zarr"), "weights": str(tmp_path / "weights.zarr")},
        output={"model": str(tmp_path / "weighted.zarr")},
    )
    this = RunContext(load(file), Silent(), threading.Event())
    pipeline.fit(this)
    centred = values - weights @ values / weights.sum()
    variances = np.linalg.eigvalsh((centred.T * weights) @ centred / weights.sum())
    assert verify(this).reconstruction_error == pytest.approx(variances[:-2].sum(), rel=1e-9)


@pytest.fixture
def done(tmp_path, values):
    this = stage(tmp_path)
    pipeline.run_all(this)
    verify(this)
    return this


def test_a_flipped_bit_of_the_model_is_found(done, tmp_path):
    flip(tmp_path / "model.zarr" / "components" / "c" / "0" / "0")
    with pytest.raises(StoreError, match=r"model\.zarr.*components/c/0/0: is not what was saved"):
        verify(done)


def test_a_flipped_bit_of_the_embedding_is_found(done, tmp_path):
    (chunk, *_) = sorted(path for path in (tmp_path / "z.zarr").glob("embedding/c/*/*") if path.is_file())
    flip(chunk)
    with pytest.raises(StoreError, match=r"z\.zarr: rows 0-\d+: .*transform again"):
        verify(done)


def test_a_missing_chunk_is_found(done, tmp_path):
    (chunk, *_) = sorted(path for path in (tmp_path / "z.zarr").glob("embedding/c/*/*") if path.is_file())
    chunk.unlink()
    with pytest.raises(StoreError, match="is missing"):
        verify(done)


def test_values_that_are_not_finite_are_found(done, tmp_path):
    scores = zarr.open_array(tmp_path / "z.zarr" / "embedding", mode="r+")
    scores[7, 1] = np.nan
    with pytest.raises(StoreError, match="not all values are finite"):
        verify(done)


def test_rows_that_are_in_the_wrong_place_are_found(done, tmp_path):
    scores = zarr.open_array(tmp_path / "z.zarr" / "embedding", mode="r+")
    scores[:] = values_of(scores)[::-1]
    with pytest.raises(StoreError, match="the rows of the sample, mapped again, differ by"):
        verify(done)


def test_an_embedding_of_another_model_is_found(done, tmp_path):
    other = stage(
        tmp_path, method={"name": "pca", "n_components": 2, "scale": True}, output={"overwrite": True}
    )
    pipeline.fit(other)
    with pytest.raises(StoreError, match="was not made by the current model"):
        verify(other)


def test_an_input_that_grew_meanwhile_is_found(done, tmp_path, values):
    array = zarr.open_array(tmp_path / "x.zarr", mode="r+")
    array.append(values[:10])
    with pytest.raises(StoreError, match=r"has 300 x 2 values where .* ask for 310 x 2"):
        verify(done)


def test_a_model_that_claims_too_much_is_found(done, tmp_path):
    """The record claims a smaller error, as if its file was edited and sealed again."""
    from dataclasses import asdict, replace

    from streamdr import store

    saved = store.load_model(tmp_path / "model.zarr")
    boast = replace(saved.model, reconstruction_error=saved.model.reconstruction_error / 10)
    store.save_model(
        tmp_path / "boast.zarr",
        boast,
        method="pca",
        parameters=asdict(done.run.method),
        feature_names=None,
        input_fingerprint=done.open_input().fingerprint,
        n_rows=ROWS,
    )
    with pytest.raises(StoreError, match=r"boast\.zarr: has .* which is impossible; fit again"):
        verify(stage(tmp_path, output={"model": str(tmp_path / "boast.zarr"), "embedding": None}))


def test_data_of_other_columns_is_refused(done, tmp_path):
    write_store(tmp_path / "y.zarr", np.ones((5, 3)))
    file = write_config(
        tmp_path, input={"path": str(tmp_path / "y.zarr")}, output={"model": done.run.output.model}
    )
    with pytest.raises(DataError, match="has 3 features, and the model takes 6"):
        verify(RunContext(load(file), Silent(), threading.Event()))


def with_missing_chunks(path: Path, shape: tuple[int, int], chunks: tuple[int, int]) -> Path:
    """Create a store of any size without any chunks, which takes no space."""
    zarr.create_array(path, shape=shape, chunks=chunks, dtype="float32")
    return path


def test_a_sample_is_spread_evenly_and_bounded(tmp_path):
    source = open_source(
        with_missing_chunks(tmp_path / "x.zarr", (10_000_000, 1000), (1000, 1000)), allow_missing_chunks=True
    )
    spans = sample(source)
    assert [span.start for span in spans] == sorted(span.start for span in spans)
    assert spans[0].start == 0
    assert spans[-1].start == 9_999_000
    assert all(span.start % 1000 == 0 for span in spans)
    assert sum(len(span) for span in spans) * 4000 <= SAMPLE_BYTES
    assert sample(source) == spans


def test_a_sample_of_columns_is_not_drawn_at_any_price(tmp_path):
    source = open_source(
        with_missing_chunks(tmp_path / "x.zarr", (500, 2_000_000), (500, 10_000)), allow_missing_chunks=True
    )
    assert sample(source) == []


def flip(file: Path) -> None:
    raw = bytearray(file.read_bytes())
    raw[5] ^= 1
    file.write_bytes(raw)
