"""Predicted seconds, against numbers computed by hand from the speeds of an imaginary machine."""

from __future__ import annotations

import math

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

from streamdr.core.blocks import MatrixSpec
from streamdr.core.execution import Execution
from streamdr.core.mapping import mapping_work
from streamdr.core.method import HasOutlines
from streamdr.core.row_outputs import EMBEDDING
from streamdr.core.work import KINDS, NO_WORK, Count, Work, products, reading
from streamdr.data import open_source
from streamdr.engine import calibration, planner
from streamdr.engine.calibration import Calibration, Speed
from streamdr.engine.work_stages import NO_TIME, Seconds, Stage, total
from streamdr.errors import StreamdrError
from streamdr.methods import METHODS
from streamdr.methods.pca import PCA
from streamdr.methods.ppca import PPCA

SLOW = Calibration(2, dict.fromkeys(KINDS, Speed(10.0, 15.0)), start=1.0)


def test_amounts_of_work_add_up_kind_by_kind():
    work = (Work(moved=1.0, eigen=2.0) + Work(moved=3.0)) * 2.0
    assert work.amounts == {"moved": 8.0, "eigen": 4.0}
    assert NO_WORK.amounts == {}


def test_reading_goes_through_every_codec_that_takes_time():
    assert reading(8, ("bytes", "zstd", "crc32c")).amounts == {"read": 8.0, "zstd": 8.0, "crc32c": 8.0}
    assert reading(8, ("blosc-zstd",)).amounts == {"read": 8.0, "blosc_zstd": 8.0}
    assert reading(8, ("bz2",)).amounts == {"read": 8.0, "zlib": 8.0}


def test_products_are_of_one_shape_and_type():
    assert products(5, np.dtype("f4"), "square").amounts == {"square32": 5.0}
    assert products(5, np.dtype("f8"), "thin").amounts == {"thin64": 5.0}


def test_a_stage_takes_its_divided_part_on_all_workers_and_the_other_on_one():
    stage = Stage(Work(moved=60.0), Work(eigen=20.0), workers=2, unevenness=1.5, count=Count(1, 3, 10))
    assert stage.pass_seconds(SLOW) == pytest.approx(1.5 * 60 / 15)
    assert stage.solve_seconds(SLOW) == pytest.approx(20 / 10)
    assert stage.seconds(SLOW) == pytest.approx(Seconds(8.0, 24.0, 80.0))
    assert total([stage, stage], SLOW) == pytest.approx(Seconds(16.0, 48.0, 160.0))
    assert total([], SLOW) == NO_TIME
    assert stage.partly(0.25).pass_seconds(SLOW) == pytest.approx(1.5)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store without chunks: a plan reads none."""
    path = tmp_path_factory.mktemp("stores") / "rows.zarr"
    zarr.create_array(path, shape=(65_536, 64), chunks=(4096, 64), dtype="f4", compressors=None)
    return path


def test_the_work_of_a_covariance_is_that_of_its_formula(store):
    chosen = planner.plan(PCA(4, solver="covariance"), open_source(store), Execution(workers=2))
    moments, rest = chosen.stages
    amounts = moments.divided.amounts
    size = 65_536 * 64 * 4
    assert amounts["square32"] == 65_536 * 64 * 64
    assert amounts["read"] == size
    assert not {"zstd", "blosc"} & set(amounts)
    assert moments.workers == min(2, len(chosen.blocks))
    assert moments.single.amounts["eigen"] == pytest.approx(0.3 * 64**3)
    assert not rest.reads
    # All kinds at ten or fifteen units per second: amounts are times.
    by_hand = sum(amounts.values()) / (15 if moments.workers == 2 else 10) * moments.unevenness
    by_hand += (sum(moments.single.amounts.values()) + sum(rest.single.amounts.values())) / 10
    assert total(chosen.stages, SLOW).usual == pytest.approx(by_hand)


def test_codecs_of_the_store_are_part_of_the_work(tmp_path):
    compressors = {
        "zstd": ZstdCodec(),
        "blosc": BloscCodec(cname="lz4"),
        "blosc_zstd": BloscCodec(cname="zstd"),
        "zlib": GzipCodec(level=1),
    }
    for codec, compressor in compressors.items():
        path = tmp_path / f"{codec}.zarr"
        zarr.create_array(path, shape=(100, 10), chunks=(50, 10), dtype="f8", compressors=compressor)
        chosen = planner.plan(PCA(2, solver="covariance"), open_source(path), Execution())
        assert chosen.stages[0].divided.amounts[codec] == 8000.0


def test_a_sharded_store_is_decoded_by_the_codecs_inside_its_shards(tmp_path):
    path = tmp_path / "sharded.zarr"
    zarr.create_array(
        path,
        shape=(100, 10),
        chunks=(25, 10),
        shards=(50, 10),
        dtype="f4",
        compressors=ZstdCodec(),
    )
    assert open_source(path).codecs == ("zstd",)


def test_the_number_of_iterations_makes_a_range(store):
    chosen = planner.plan(PPCA(3, method="em"), open_source(store), Execution())
    least, usual, most = total(chosen.stages, SLOW)
    assert 0 < least < usual < most


def test_a_fallback_is_predicted_apart(store):
    chosen = planner.plan(PPCA(3), open_source(store), Execution())
    assert chosen.fallback_stages
    closed = planner.plan(PCA(3, solver="covariance"), open_source(store), Execution())
    assert total(chosen.stages, SLOW) == pytest.approx(total(closed.stages, SLOW))


def test_an_output_is_predicted_with_its_mapping_and_what_is_written(store):
    model = PCA(4, solver="covariance").outlines(MatrixSpec(65_536, 64, np.dtype("f4")))[0]
    view, source = planner.view_and_source(model, open_source(store), EMBEDDING)
    chosen = planner.plan_transform(view, source, Execution(workers=2), np.dtype("f4"))
    assert chosen.stage.divided.amounts["thin32"] == 65_536 * 64 * 4
    assert chosen.stage.single.amounts["written"] >= 65_536 * 4 * 4


def test_every_method_declares_work_and_predicts_a_finite_time():
    """A method whose phases declare no work would be predicted by its reading alone."""
    silent = []
    for kind in METHODS.values():
        for method in kind.examples():
            spec = MatrixSpec(1000, 40, np.dtype("f4"), labels=np.dtype("i8"))
            try:
                routes = method.routes(spec)
            except StreamdrError:  # a square matrix, or names of features
                continue
            for route in routes:
                declared = [phase for phase in route.phases if (phase.work + phase.solve_work).amounts]
                if route.phases and not declared:
                    silent.append(f"{kind.name} ({route.name})")
                for phase in route.phases:
                    assert 0 <= phase.count.least <= phase.count.usual <= phase.count.most
                    amounts = [*phase.work.amounts.values(), *phase.solve_work.amounts.values()]
                    assert all(0 < amount < math.inf for amount in amounts)
                if isinstance(route.method, HasOutlines):
                    for model in route.method.outlines(spec):
                        assert all(
                            0 < amount < math.inf for amount in mapping_work(model, spec).amounts.values()
                        )
    assert silent == []


speeds = st.floats(1e-300, 1e300)


@pytest.fixture(scope="module")
def choices(store):
    """A function that plans a fit for which there are several routes, as in a fresh process."""

    def plan():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(planner, "resident", lambda: 0)
            chosen = planner.plan(PCA(4), open_source(store), Execution(workers=3, memory_limit=1 << 30))
        return {name: value for name, value in vars(chosen).items() if name != "route"} | {
            "route": chosen.route.name
        }

    return plan


@given(st.lists(st.tuples(speeds, speeds), min_size=len(KINDS), max_size=len(KINDS)), speeds)
def test_what_is_chosen_does_not_depend_on_the_speeds_of_the_machine(choices, found, start):
    """With absurd speeds in the cache, only what is told differs."""
    before = choices()
    absurd = Calibration(
        calibration.available_cores(),
        {kind: Speed(*each) for kind, each in zip(KINDS, found, strict=True)},
        start,
    )
    calibration.keep(absurd)
    try:
        assert calibration.remembered() == absurd
        after = choices()
    finally:
        calibration.keep(calibration.nominal())
    assert after == before
    assert all(each >= 0 for each in total(after["stages"], absurd))
