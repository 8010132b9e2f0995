"""After an append only the new rows are read, and the result equals that of reading everything."""

from __future__ import annotations

import json
import os
import shutil

import numpy as np
import pytest
import zarr
from nightly import Nights, assert_same_bits, correlated

from streamdr import store
from streamdr.errors import DataError, StoreError
from streamdr.workflow import pipeline

ROW = 20 * 4


@pytest.fixture
def nights(tmp_path):
    return Nights(tmp_path, correlated(6000, 20))


def refitted(nights):
    """Return the model of a run without a ledger, after checking that it reads all rows."""
    shutil.rmtree(nights.root / "out")
    assert nights.run().fit.bytes_read == zarr.open_array(nights.root / "x.zarr").nbytes
    return nights.model()


@pytest.mark.parametrize(
    "layout",
    [
        {},
        {"chunks": (100, 7)},
        {"chunks": (7, 20)},
        {"chunks": (1, 20)},
        {"chunks": (50, 20), "shards": (100, 20)},
        {"chunks": (100, 20), "zarr_format": 2},
        {"chunks": (10_000, 20)},
    ],
    ids=lambda layout: str(layout.get("chunks")) + "".join(layout.keys() - {"chunks"}),
)
def test_each_of_many_appends_reads_little_and_gives_the_bits_of_a_refit(nights, layout):
    nights.write(3000, **layout)
    nights.run()
    chunk = (layout.get("shards") or layout.get("chunks") or (100,))[0]
    rows = 3000
    for added in (100, 1, 0, 33, 700, 66, 2, 500):
        nights.grow(rows + added)
        report = nights.run().fit
        rows += added
        # Lines after the last whole grain are read again, and grains that became part of a larger one.
        assert report.bytes_read <= (added + max(rows / 16, 2 * chunk)) * ROW
        assert report.n_rows == rows
        assert report.reused == (added == 0)
    assert_same_bits(nights.model(), refitted(nights))


def test_appends_to_many_segments_give_the_bits_of_a_refit(nights, monkeypatch):
    """Segments have a few chunks each, so that the digits of the merge tree carry."""
    monkeypatch.setattr("streamdr.core.blocks.BLOCK_BYTES", 300 * ROW)
    monkeypatch.setattr("streamdr.core.blocks.SEGMENT_BYTES", 600 * ROW)
    nights.write(1000, chunks=(20, 20))
    rows = 1000
    nights.run()
    for added in (60, 2500, 10, 500, 21):
        nights.grow(rows := rows + added)
        assert nights.run().fit.bytes_read <= (added + rows / 16) * ROW
    assert_same_bits(nights.model(), refitted(nights))


def test_an_append_writes_only_the_states_that_it_changes(nights, monkeypatch):
    """Every state has a file of its own. Those of digits to which nothing was added are not touched."""
    monkeypatch.setattr("streamdr.core.blocks.BLOCK_BYTES", 300 * ROW)
    monkeypatch.setattr("streamdr.core.blocks.SEGMENT_BYTES", 600 * ROW)
    monkeypatch.setattr("streamdr.engine.ledger._OWN_FILE_BYTES", 0)
    nights.write(3100, chunks=(20, 20))
    nights.run()
    ledger, rows = nights.root / "out/.streamdr-ledger", 3100
    kept = []
    for added in (10, 30, 500, 21):
        before = {path.name: path.stat().st_ino for path in ledger.glob("*-*.npz")}
        nights.grow(rows := rows + added)
        assert nights.run().fit.bytes_read <= (added + rows / 16) * ROW
        after = {path.name: path.stat().st_ino for path in ledger.glob("*-*.npz")}
        assert all(after[name] == before[name] for name in before.keys() & after.keys())
        (entry,) = ledger.glob("????????????????????????????????????????.npz")
        with np.load(entry) as archive:
            assert set(json.loads(str(archive["layout"]))["files"]) == after.keys(), "nothing is left over"
        kept.append(len(before.keys() & after.keys()))
    assert kept[0] >= 2
    assert min(kept) >= 1, "the highest digit"
    assert_same_bits(nights.model(), refitted(nights))


def test_appends_along_another_sample_axis_read_only_new_samples(tmp_path):
    values = correlated(400, 20)
    array = zarr.create_array(tmp_path / "x.zarr", shape=(20, 300), chunks=(20, 50), dtype="f4")
    array[:] = values[:300].T
    nights = Nights(tmp_path, values, {"input": {"sample_axis": 1}})
    nights.run()
    array.resize((20, 400))
    array[:, 300:] = values[300:].T
    assert nights.run().fit.bytes_read == 100 * ROW
    assert_same_bits(nights.model(), refitted(nights))


def test_chunks_of_weights_need_not_be_aligned_with_those_of_the_data(nights):
    nights.config["input"] = {"weights": str(nights.root / "w.zarr")}
    weights = np.random.default_rng(1).uniform(size=2000)
    array = zarr.create_array(nights.root / "w.zarr", shape=(1500,), chunks=(5000,), dtype="f8")
    array[:] = weights[:1500]
    nights.write(1500)
    nights.run()
    nights.grow(1600)
    array.resize((1600,))
    array[1500:] = weights[1500:1600]
    assert nights.run().fit.bytes_read == 100 * ROW
    grown = nights.model()
    assert_same_bits(grown, refitted(nights))
    array[3] = 17.0
    assert nights.run().fit.bytes_read == 1600 * ROW, "a changed weight is a changed row"


@pytest.mark.parametrize("solver", ["gram", "krylov"])
def test_other_solvers_give_the_bits_of_a_refit(nights, solver):
    nights.config["method"] = {"solver": solver}
    nights.write(600)
    nights.run()
    nights.grow(700)
    nights.run()
    assert_same_bits(nights.model(), refitted_unchecked(nights))


def refitted_unchecked(nights):
    """Return the model of a run without a ledger."""
    shutil.rmtree(nights.root / "out")
    nights.run()
    return nights.model()


def test_changed_old_rows_cause_a_full_refit_and_a_message(nights):
    nights.write(3000)
    nights.run()
    nights.grow(3100)
    zarr.open_array(nights.root / "x.zarr", mode="r+")[250:260] = 0
    nights.values[250:260] = 0
    assert nights.run().fit.bytes_read == 3100 * ROW
    assert any("have changed" in line for line in nights.said), nights.said
    assert_same_bits(nights.model(), refitted(nights))


def test_a_shrunken_input_is_an_error_without_fresh(nights):
    nights.write(3000)
    nights.run()
    before = nights.model()
    zarr.open_array(nights.root / "x.zarr", mode="r+").resize((2000, 20))
    with pytest.raises(DataError, match=r"2,000 rows where it had 3,000.*--fresh"):
        nights.run()
    with pytest.raises(DataError, match="2,000 rows"):
        pipeline.plan(nights.stage())
    assert_same_bits(nights.model(), before)
    stage = nights.stage()
    pipeline.run_all(pipeline.RunContext(stage.run, stage.progress, stage.stop, fresh=True))
    assert store.load_model(nights.root / "out/model.zarr").n_rows == 2000


def test_an_input_with_another_dtype_is_an_error(nights):
    nights.write(3000)
    nights.run()
    shutil.rmtree(nights.root / "x.zarr")
    nights.values = nights.values.astype("f8")
    nights.write(3000)
    with pytest.raises(DataError, match="type is float64, and was float32"):
        nights.run()


def test_an_input_at_another_path_is_another_input(nights):
    nights.write(3000)
    nights.run()
    (nights.root / "x.zarr").rename(nights.root / "y.zarr")
    with pytest.raises(StoreError, match="exists; set output"):
        nights.run(input={"path": str(nights.root / "y.zarr")})


def test_a_damaged_ledger_entry_is_detected_and_its_pass_is_computed_again(nights):
    nights.write(3000)
    nights.run()
    (entry,) = (nights.root / "out/.streamdr-ledger").glob("*.npz")
    content = bytearray(entry.read_bytes())
    content[len(content) // 2] ^= 1
    entry.write_bytes(content)
    nights.grow(3100)
    assert nights.run().fit.bytes_read == 3100 * ROW
    assert_same_bits(nights.model(), refitted(nights))


def test_only_new_rows_are_embedded_if_the_model_moves_little(nights):
    nights.config["output"] = {"embedding": str(nights.root / "out/e.zarr"), "refresh_tolerance": 0.1}
    nights.write(3000)
    nights.run()
    old = store.open_embedding(nights.root / "out/e.zarr")[:]
    nights.grow(3150)
    report = nights.run().transform.outputs["embedding"]
    assert report.rows_written == 150
    assert report.bytes_read < 300 * ROW
    assert 0 < report.model_moved < 0.1
    new = store.open_embedding(nights.root / "out/e.zarr")[:]
    np.testing.assert_array_equal(new[:3000], old)
    mapped = store.load_model(nights.root / "out/model.zarr").model.transform(nights.values[3000:3150])
    np.testing.assert_array_equal(new[3000:], mapped)
    # The last chunk was not full: its rows are read again, all others are kept.
    nights.grow(3151)
    assert nights.run().transform.outputs["embedding"].rows_written == 51
    assert nights.run().transform.reused


def test_all_rows_are_embedded_again_if_the_model_moves_more(nights):
    nights.config["output"] = {"embedding": str(nights.root / "out/e.zarr"), "refresh_tolerance": 0.0}
    nights.write(3000)
    nights.run()
    nights.grow(3100)
    report = nights.run().transform.outputs["embedding"]
    assert report.rows_written == 3100
    assert any("refresh_tolerance" in line for line in nights.said), nights.said
    mapped = store.load_model(nights.root / "out/model.zarr").model.transform(nights.values[:3100])
    np.testing.assert_array_equal(store.open_embedding(nights.root / "out/e.zarr")[:], mapped)


def test_an_earlier_embedding_stays_readable_after_an_append(nights):
    """Its chunks are shared, not modified."""
    nights.config["output"] = {"embedding": str(nights.root / "out/e.zarr"), "refresh_tolerance": 0.5}
    nights.write(3000)
    nights.run()
    shutil.copytree(nights.root / "out/e.zarr", nights.root / "copy.zarr", copy_function=os.link)
    before = store.open_embedding(nights.root / "copy.zarr")[:]
    nights.grow(3100)
    nights.run()
    np.testing.assert_array_equal(store.open_embedding(nights.root / "copy.zarr")[:], before)
