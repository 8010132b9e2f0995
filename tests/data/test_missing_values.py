"""Missing values from the configuration to the model: NaN, a number and a mask give the same result."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from command_line import streamdr, succeed, write_config, write_store
from nightly import Heard, arrays_of, assert_same_bits, correlated

from streamdr import store
from streamdr.config import load
from streamdr.errors import DataError, MissingValuesError, ParameterError
from streamdr.workflow import pipeline
from streamdr.workflow.reports import RunReport

PPCA = {"name": "ppca", "n_components": 2}
ROWS, COLS = 300, 6


@pytest.fixture(autouse=True)
def every_chunk_is_written():
    """Otherwise zarr does not write chunks of a mask without missing values."""
    with zarr.config.set({"array.write_empty_chunks": True}):
        yield


def data(rows: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    """Return integers along a few strong directions, and a mask of the missing ones."""
    values = (10 * correlated(rows, COLS)).astype("i2")
    return values, np.random.default_rng(1).random(values.shape) < 0.2


def run(directory: Path, **sections: dict[str, Any]) -> RunReport:
    """Run all stages in a separate directory."""
    directory.mkdir(exist_ok=True)
    sections["output"] = {"model": str(directory / "model.zarr"), **sections.get("output", {})}
    context = pipeline.RunContext(load(write_config(directory, **sections)), Heard(), threading.Event())
    return pipeline.run_all(context)


def test_a_number_is_equivalent_to_nan(tmp_path):
    values, missing = data()
    write_store(tmp_path / "x.zarr", np.where(missing, -9999, values).astype("i2"))
    write_store(tmp_path / "nan.zarr", np.where(missing, np.nan, values).astype("f4"))
    output = {"embedding": "out/z.zarr"}
    write_config(tmp_path, input={"path": "x.zarr", "missing_value": -9999}, method=PPCA, output=output)
    report = succeed("run", "config.yaml", "--json", cwd=tmp_path).report
    assert report["n_rows"] == ROWS
    run(tmp_path / "nan", input={"path": str(tmp_path / "nan.zarr")}, method=PPCA)
    model = store.load_model(tmp_path / "out/model.zarr").model
    assert_same_bits(arrays_of(tmp_path / "out/model.zarr"), arrays_of(tmp_path / "nan/model.zarr"))
    assert model.n_observed == (~missing).sum()
    embedding = store.open_embedding(tmp_path / "out/z.zarr")[:]
    expected = model.transform(np.where(missing, np.nan, values).astype("f4"))
    np.testing.assert_allclose(embedding, expected, rtol=1e-4, atol=1e-4)
    checked = succeed("verify", "config.yaml", "--json", cwd=tmp_path).report
    assert checked["sampled_rows"] == ROWS
    again = succeed("run", "config.yaml", "--json", cwd=tmp_path).report
    assert (again["reused"], again["bytes_read"]) == (True, 0)


def test_a_mask_and_the_fill_value_are_equivalent_to_nan(tmp_path):
    values, missing = data()
    write_store(tmp_path / "nan.zarr", np.where(missing, np.nan, values).astype("f4"))
    write_store(tmp_path / "x.zarr", values)
    write_store(tmp_path / "m.zarr", missing)
    write_store(tmp_path / "fill.zarr", np.where(missing, -9999, values).astype("i2"), fill_value=-9999)
    run(tmp_path / "1", input={"path": str(tmp_path / "nan.zarr")}, method=PPCA)
    masked = {"path": str(tmp_path / "x.zarr"), "mask": str(tmp_path / "m.zarr")}
    run(tmp_path / "2", input=masked, method=PPCA)
    filled = {"path": str(tmp_path / "fill.zarr"), "missing_value": "fill_value"}
    run(tmp_path / "3", input=filled, method=PPCA)
    for other in ("2/model.zarr", "3/model.zarr"):
        assert_same_bits(arrays_of(tmp_path / other), arrays_of(tmp_path / "1/model.zarr"))


@pytest.mark.parametrize(("dtype", "fill_value"), [("i2", -9999), ("f4", np.nan)])
def test_chunks_that_were_never_written_are_missing_rows(tmp_path, dtype, fill_value):
    values, missing = data()
    missing[100:200] = True
    stored = np.where(missing, fill_value, values).astype(dtype)
    array = zarr.create_array(
        tmp_path / "x.zarr", shape=values.shape, chunks=(50, COLS), dtype=dtype, fill_value=fill_value
    )
    array[:100], array[200:] = stored[:100], stored[200:]
    write_store(tmp_path / "nan.zarr", np.where(missing, np.nan, values).astype("f4"), chunks=(50, COLS))
    given = {"path": str(tmp_path / "x.zarr"), "missing_value": "fill_value"}
    with pytest.raises(DataError, match=r"chunk c/2/0 is missing, rows 100-149 \(2 of 6 are\)"):
        run(tmp_path / "1", input=given, method=PPCA)
    run(tmp_path / "1", input={**given, "allow_missing_chunks": True}, method=PPCA)
    run(tmp_path / "2", input={"path": str(tmp_path / "nan.zarr")}, method=PPCA)
    assert_same_bits(arrays_of(tmp_path / "1/model.zarr"), arrays_of(tmp_path / "2/model.zarr"))


def test_pca_names_the_method_that_allows_missing_values(tmp_path):
    values, missing = data()
    write_store(tmp_path / "x.zarr", np.where(missing, -9999, values).astype("i2"))
    row, column = np.argwhere(missing)[0]
    said = (
        rf"x\.zarr: nan at row {row}, column {column} .*, or use the method ppca, which takes missing values"
    )
    with pytest.raises(MissingValuesError, match=said):
        run(tmp_path / "out", input={"path": str(tmp_path / "x.zarr"), "missing_value": -9999})
    run(
        tmp_path / "out", input={"path": str(tmp_path / "x.zarr")}
    )  # without missing_value it is an ordinary number


def test_appended_rows_of_data_and_mask_are_all_that_is_read(tmp_path):
    values, _ = data(4000)
    no_mask = np.zeros(values.shape, bool)
    sections = {"input": {"path": str(tmp_path / "x.zarr"), "mask": str(tmp_path / "m.zarr")}}
    for path, all_rows in ((tmp_path / "x.zarr", values), (tmp_path / "m.zarr", no_mask)):
        write_store(path, all_rows[:3000], chunks=(100, COLS))
    run(tmp_path / "out", **sections)
    for path, all_rows in ((tmp_path / "x.zarr", values), (tmp_path / "m.zarr", no_mask)):
        array = zarr.open_array(path)
        array.resize(all_rows.shape)
        array[3000:] = all_rows[3000:]
    report = run(tmp_path / "out", **sections)
    assert 0 < report.bytes_read < values.size * 4 / 2
    run(tmp_path / "anew", **sections)
    assert_same_bits(arrays_of(tmp_path / "out/model.zarr"), arrays_of(tmp_path / "anew/model.zarr"))
    zarr.open_array(tmp_path / "m.zarr")[0, 0] = True
    with pytest.raises(MissingValuesError, match="nan at row 0, column 0"):
        run(tmp_path / "out", **sections)


def test_another_missing_value_or_mask_makes_another_model(tmp_path):
    values, missing = data()
    write_store(tmp_path / "x.zarr", np.where(missing, -9999, values).astype("i2"))
    for name in ("m.zarr", "n.zarr"):
        write_store(tmp_path / name, missing)
    write_config(tmp_path, input={"path": "x.zarr", "missing_value": -9999, "mask": "m.zarr"}, method=PPCA)
    succeed("fit", "config.yaml", cwd=tmp_path)
    for change, reason in (
        ("input.missing_value=null", "input.missing_value was -9999 and is None"),
        ("input.mask=n.zarr", "input.mask was m.zarr and is n.zarr"),
    ):
        (stage,) = succeed("plan", "config.yaml", "--set", change, "--json", cwd=tmp_path).report["stages"]
        assert (stage["state"], stage["reason"]) == ("stale", reason)
        outcome = streamdr("fit", "config.yaml", "--set", change, cwd=tmp_path)
        assert outcome.code == 1
        assert "out/model.zarr: exists" in outcome.err


def test_a_mask_is_never_written_over(tmp_path):
    values, missing = data()
    write_store(tmp_path / "x.zarr", values)
    write_store(tmp_path / "m.zarr", missing)
    given = {"path": str(tmp_path / "x.zarr"), "mask": str(tmp_path / "m.zarr")}
    for model in ("m.zarr", "m.zarr/model"):
        output = {"model": str(tmp_path / model), "overwrite": True}
        with pytest.raises(ParameterError, match=r"output.model: .* the input"):
            run(tmp_path / "out", input=given, method=PPCA, output=output)


def test_a_model_transforms_data_with_missing_values_given_in_another_way(tmp_path):
    values, missing = data()
    write_store(tmp_path / "x.zarr", np.where(missing, -9999, values).astype("i2"))
    write_store(tmp_path / "m.zarr", missing)
    write_config(tmp_path, input={"path": "x.zarr", "missing_value": -9999}, method=PPCA)
    succeed("fit", "config.yaml", cwd=tmp_path)
    for number, change in enumerate(["input.missing_value=-9999", "input.mask=m.zarr"]):
        options = ["--set", change, "--set", f"output.embedding=z{number}.zarr"]
        succeed("transform", "config.yaml", *options, cwd=tmp_path)
    one, other = (store.open_embedding(tmp_path / f"z{number}.zarr")[:] for number in range(2))
    np.testing.assert_array_equal(one, other)
