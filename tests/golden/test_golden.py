"""What earlier versions wrote opens, maps, resumes and grows, as it did when it was written.

Values are compared within rounding: bits are promised on CPUs of one kind, and these files go everywhere.
"""

from __future__ import annotations

from pathlib import Path

import golden_runs as golden
import numpy as np
import pytest
import xarray
import zarr
from narrowing import array_in, checked, present
from nightly import Heard, arrays_of

from streamdr import load_model, store
from streamdr.core.addresses import parse_location
from streamdr.core.blocks import Span
from streamdr.core.row_outputs import ROW_OUTPUTS, of_step
from streamdr.data import open_source
from streamdr.methods import METHODS
from streamdr.workflow import pipeline

ROWS, COLUMNS = Span(0, golden.ROWS), Span(0, golden.COLUMNS)
KINDS = {kind.name: kind for kind in ROW_OUTPUTS}
GOES_ON = ("ppca", "ppca_mixture", "kernel_pca", "sparse_kernel_pca", "select_mutual_info", "som", "bin")
"""Methods that go on from the model that is there, or from the sample that the first fit drew: landmarks,
candidates, bins. A fit from the beginning ends elsewhere."""
LEARNS_NOTHING = ("log1p", "clip", "unit_norm", "select_columns")
"""Methods without passes."""
SUMS = (
    *("select_mutual_info", "select_f_score", "select_correlation", "select_forward"),
    *("pca", "lda", "kernel_pca", "normalize_total", "standardise", "scale_genotypes", "select_variance"),
)
"""Methods whose statistics are sums over rows: of a longer input only what is new is read."""


def close(one, other, *, tolerance: float = 1e-4):
    one, other = np.asarray(one, float), np.asarray(other, float)
    scale = np.nanmax(np.abs(other), initial=1e-300)
    np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * scale)


def given(method: str) -> np.ndarray:
    return golden.stored(golden.INPUTS.get(method, "v3.zarr"), golden.ROWS)


@pytest.fixture(scope="session")
def golden_bucket(s3_server):
    return s3_server.make_bucket(golden.NAME)


@pytest.fixture
def restored(golden_bucket, s3_server, monkeypatch):
    """Puts what is kept of a run, and its input, where they were."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    golden_bucket.delete(*golden_bucket.names())

    def put(name: str):
        path = golden.CONFIGS[name]["input"]["path"].removeprefix(f"s3://{golden.NAME}/")
        for folder in (path, f"out/{name}"):
            golden_bucket.upload(golden.BUCKET / folder, folder)
        return golden_bucket

    return put


def grow(bucket, name: str, place: Path) -> None:
    """Append rows to the input of a run."""
    path = golden.CONFIGS[name]["input"]["path"].removeprefix(f"s3://{golden.NAME}/")
    for key, content in bucket.contents(path).items():
        (place / key).parent.mkdir(parents=True, exist_ok=True)
        (place / key).write_bytes(content)
    group, rows = zarr.open_group(place / path, mode="r+"), golden.stored(Path(path).name)
    array_in(group, "X").append(rows[golden.ROWS :])
    array_in(group, "y").append(golden.labels()[golden.ROWS :])
    bucket.upload(place / path, path)


def test_every_method_and_every_kind_of_output_is_kept():
    assert set(golden.METHODS) == set(METHODS)
    in_bucket = set(KINDS) - {"anndata"}  # whose format is that of others
    assert {kind for kinds in golden.OUTPUTS.values() for kind in kinds} == in_bucket


@pytest.mark.parametrize("name", ["v2.zarr", "v3.zarr", "sharded.zarr", "missing.zarr", "counts.zarr"])
def test_an_input_is_read(name):
    source = open_source(golden.BUCKET / "inputs" / name, array="X")
    np.testing.assert_array_equal(source.read(ROWS, COLUMNS), golden.stored(name, golden.ROWS))


@pytest.mark.parametrize("method", [*golden.METHODS, golden.CHAIN])
def test_a_model_opens_and_maps_rows_as_it_did(method):
    folder = golden.BUCKET / "out" / method
    saved = store.load_model(folder / "model.zarr")
    assert (saved.method, saved.n_rows) == (method, golden.ROWS)
    for name in golden.OUTPUTS.get(method, ["embedding"]):
        view, written = KINDS[name].of(saved.model), store.open_rows(folder / f"{name}.zarr", name)[...]
        close(view.shaped(view.transform(given(method)), (golden.COLUMNS,)), written)


@pytest.mark.parametrize("method", golden.METHODS)
def test_a_model_is_the_same_dataset_as_in_its_store(method):
    path = golden.BUCKET / "out" / method / "model.zarr"
    dataset, opened = load_model(path).to_xarray(), xarray.open_zarr(path).load()
    assert set(dataset.variables) >= set(opened.variables)
    for name, stored in opened.variables.items():
        assert stored.identical(dataset.variables[name])


def test_a_chain_opens_with_its_steps_and_the_rows_of_one_of_them():
    folder = golden.BUCKET / "out" / golden.CHAIN
    model, rows = store.load_model(folder / "model.zarr").model, given(golden.CHAIN)
    assert model.names == ("clip", "pca", "lda")
    close(of_step("pca").of(model).transform(rows), store.open_rows(folder / "pca.zarr", "embedding")[...])
    close(model["clip"].transform(rows), np.clip(rows, -20, 20))


@pytest.mark.parametrize("method", [*golden.METHODS, golden.CHAIN])
def test_a_run_of_yesterday_is_up_to_date_and_takes_appended_rows_in(method, restored, tmp_path):
    bucket = restored(method)
    before = bucket.contents(f"out/{method}")
    report = pipeline.run_all(golden.stage(method))
    assert (report.reused, report.bytes_read) == (True, 0)
    assert bucket.contents(f"out/{method}") == before
    if method.endswith("mds"):  # every point has a distance to every other: all is computed anew
        return
    grow(bucket, method, tmp_path)
    report = pipeline.run_all(golden.stage(method))
    whole = golden.MORE * golden.COLUMNS * 4
    assert report.fit.n_rows == golden.MORE
    if method in SUMS:
        assert 0 < report.fit.bytes_read < 0.75 * whole
    else:
        assert (report.fit.bytes_read > 0) == (method not in LEARNS_NOTHING)
    grown = arrays_of(parse_location(golden.CONFIGS[method]["output"]["model"]))
    if method not in GOES_ON:
        pipeline.fit(golden.stage(method, fresh=True))
        for name, values in arrays_of(parse_location(golden.CONFIGS[method]["output"]["model"])).items():
            close(grown[name], values, tolerance=1e-3)


def test_an_interrupted_fit_goes_on(restored, monkeypatch):
    golden.small_blocks(monkeypatch)
    restored(golden.INTERRUPTED_FIT)
    stage = golden.stage(golden.INTERRUPTED_FIT)
    report = pipeline.fit(stage)
    assert 0 < report.bytes_read < golden.ROWS * golden.COLUMNS * 4
    assert any("resuming moments" in line for line in checked(Heard, stage.progress).lines)
    whole = arrays_of(golden.BUCKET / "out/pca/model.zarr")
    for name, values in arrays_of(stage.model).items():
        close(values, whole[name])


def test_an_interrupted_transform_goes_on(restored, monkeypatch):
    golden.small_blocks(monkeypatch)
    bucket = restored(golden.INTERRUPTED_TRANSFORM)
    stage = golden.stage(golden.INTERRUPTED_TRANSFORM)
    report = pipeline.run_all(stage)
    assert report.fit.bytes_read == 0
    assert 0 < present(report.transform).outputs["imputed"].bytes_read < golden.ROWS * golden.COLUMNS * 4
    assert any("resuming imputed values" in line for line in checked(Heard, stage.progress).lines)
    assert not [name for name in bucket.names() if ".partial" in name]
    for name in golden.OUTPUTS["ppca"]:
        written = store.open_rows(stage.rows[KINDS[name]], name)[...]
        close(written, store.open_rows(golden.BUCKET / f"out/ppca/{name}.zarr", name)[...])
