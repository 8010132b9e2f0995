"""How often a run lists its input, counted at system calls and at a server.

One listing lists every directory of an array once. In an object store it has one or more pages.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
import zarr
from command_line import streamdr, write_config

from streamdr import config
from streamdr.cli.worker import StageName, StageRequest, WorkerProcess
from streamdr.core.execution import Execution
from streamdr.core.progress import Silent
from streamdr.data import open_source
from streamdr.engine import fitting
from streamdr.errors import DataError
from streamdr.methods.pca import PCA
from streamdr.workflow import comparison, pipeline, verification

SHAPE, CHUNK = (400, 8), 50
LAYOUTS: dict[str, dict[str, Any]] = {
    "v2": {"zarr_format": 2, "chunk_key_encoding": {"name": "v2", "separator": "."}},
    "v2 nested": {"zarr_format": 2, "chunk_key_encoding": {"name": "v2", "separator": "/"}},
    "v3": {},
    "v3 flat": {"chunk_key_encoding": {"name": "default", "separator": "."}},
    "v3 sharded": {"shards": (2 * CHUNK, SHAPE[1])},
}
METHODS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "pca": ({"name": "pca", "n_components": 2}, {}),
    "krylov": ({"name": "pca", "n_components": 2, "solver": "krylov"}, {}),
    "nystrom": ({"name": "kernel_pca", "n_components": 2, "n_landmarks": 20}, {}),
    "lda": ({"name": "lda"}, {"labels": "y.zarr"}),
    "ppca": ({"name": "ppca", "n_components": 2, "method": "em", "max_iter": 5}, {"mask": "mask.zarr"}),
    "weighted": ({"name": "pca", "n_components": 2}, {"weights": "w.zarr"}),
}

Scanned = Counter[str]


class _Scans:
    """Counts how often this process lists each directory."""

    def __init__(self) -> None:
        self.counts: Scanned | None = None
        sys.addaudithook(self._count)

    def _count(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.counts is not None and event in ("os.scandir", "os.listdir"):
            target = arguments[0] or "."
            path = os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else os.fspath(target)
            self.counts[os.path.abspath(os.fsdecode(path))] += 1


@pytest.fixture(scope="module")
def scans() -> _Scans:
    return _Scans()  # an audit hook cannot be removed, so there is only one


@pytest.fixture
def listings(scans, tmp_path) -> Iterator[Callable[..., dict[str, int]]]:
    """Returns how often each array was listed since the last call: the maximum over its directories."""
    scans.counts = Counter()

    def since(*names: str) -> dict[str, int]:
        counts, scans.counts = scans.counts, Counter()
        roots = {name: f"{tmp_path / name}/" for name in names}
        return {
            name: max((n for path, n in counts.items() if f"{path}/".startswith(root)), default=0)
            for name, root in roots.items()
        }

    yield since
    scans.counts = None


def values_of(rows: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    strong = 5 * rng.normal(size=(rows, 3)) @ np.random.default_rng(9).normal(size=(3, SHAPE[1]))
    return (strong + rng.normal(size=(rows, SHAPE[1])) + 1).astype("f4")


def write(path: Path, values: np.ndarray, **layout: Any) -> zarr.Array:
    chunks = (CHUNK, *values.shape[1:])
    array = zarr.create_array(path, shape=values.shape, dtype=values.dtype, **{"chunks": chunks, **layout})
    array[...] = values
    return array


def write_companions(directory: Path, rows: int) -> None:
    """Create labels, a mask and weights, without chunks of zeros, which zarr would not write."""
    rng = np.random.default_rng(1)
    write(directory / "y.zarr", rng.integers(1, 4, size=rows))
    write(directory / "mask.zarr", rng.random((rows, SHAPE[1])) < 0.1)
    write(directory / "w.zarr", rng.uniform(0.5, 2, size=rows))


def context(directory: Path | str, case: str = "pca", **output: str) -> pipeline.RunContext:
    method, companions = METHODS[case]
    paths = {"path": "x.zarr", **companions}
    outputs = {"model": f"{directory}/out/model.zarr", "embedding": f"{directory}/out/z.zarr", **output}
    run = config.read(
        {
            "input": {name: f"{directory}/{path}" for name, path in paths.items()},
            "method": method,
            "output": outputs,
        }
    )
    return pipeline.RunContext(run, Silent(), threading.Event())


def inputs_of(case: str) -> list[str]:
    return ["x.zarr", *METHODS[case][1].values()]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_first_run_makes_three_listings_and_an_up_to_date_one_makes_one(tmp_path, listings, layout):
    write(tmp_path / "x.zarr", values_of(SHAPE[0]), **LAYOUTS[layout])
    listings()
    assert not pipeline.run_all(context(tmp_path)).reused
    assert 1 < listings("x.zarr")["x.zarr"] <= 3
    assert pipeline.run_all(context(tmp_path)).reused
    assert listings("x.zarr")["x.zarr"] == 1


@pytest.mark.parametrize("case", METHODS)
@pytest.mark.filterwarnings("ignore:.*converge")
def test_every_array_of_an_input_is_listed_as_often_as_the_data(tmp_path, listings, case):
    write(tmp_path / "x.zarr", values_of(SHAPE[0]))
    write_companions(tmp_path, SHAPE[0])
    listings()
    assert not pipeline.run_all(context(tmp_path, case)).reused
    assert listings(*inputs_of(case)) == dict.fromkeys(inputs_of(case), 3)
    assert pipeline.run_all(context(tmp_path, case)).reused
    assert listings(*inputs_of(case)) == dict.fromkeys(inputs_of(case), 1)


def test_other_parameters_are_detected_without_a_listing(tmp_path, listings):
    write(tmp_path / "x.zarr", values_of(SHAPE[0]))
    pipeline.run_all(context(tmp_path, "pca"))
    listings()
    pipeline.reprocess([context(tmp_path, "krylov")])
    assert listings("x.zarr")["x.zarr"] == 3


def test_a_run_after_an_append_makes_a_listing_before_and_after_the_lease(tmp_path, listings):
    array = write(tmp_path / "x.zarr", values_of(SHAPE[0]))
    pipeline.run_all(context(tmp_path))
    array.append(values_of(CHUNK, seed=2))
    listings()
    report = pipeline.run_all(context(tmp_path))
    assert report.fit.n_rows == SHAPE[0] + CHUNK
    assert listings("x.zarr")["x.zarr"] == 4


@pytest.mark.filterwarnings("ignore:.*converge")
def test_every_further_output_is_a_further_listing(tmp_path, listings):
    """Each output is published when it is complete, so each must check that its input has not changed."""
    write(tmp_path / "x.zarr", values_of(SHAPE[0]))
    write_companions(tmp_path, SHAPE[0])
    more = {"log_likelihood": f"{tmp_path}/out/likelihood.zarr"}
    listings()
    pipeline.run_all(context(tmp_path, "ppca", **more))
    assert listings("x.zarr")["x.zarr"] == 4
    assert pipeline.run_all(context(tmp_path, "ppca", **more)).reused
    assert listings("x.zarr")["x.zarr"] == 1


@pytest.mark.parametrize("case", ["pca", "lda"])
def test_the_listings_of_single_stages(tmp_path, listings, case):
    write(tmp_path / "x.zarr", values_of(SHAPE[0]), **LAYOUTS["v3 sharded"])
    write_companions(tmp_path, SHAPE[0])
    commands: list[tuple[Callable[..., Any], int]] = [
        (pipeline.plan, 1),
        (pipeline.fit, 2),
        (pipeline.fit, 1),
        (pipeline.transform, 2),
        (pipeline.transform, 1),
        (pipeline.plan, 1),
        (pipeline.status, 1),
        (verification.verify, 2),
    ]
    listings()
    for act, most in commands:
        act(context(tmp_path, case))
        assert listings(*inputs_of(case)) == dict.fromkeys(inputs_of(case), most), act.__name__


def test_a_comparison_makes_one_listing_for_all_methods_that_are_up_to_date(tmp_path, listings):
    write(tmp_path / "x.zarr", values_of(SHAPE[0]))
    write_companions(tmp_path, SHAPE[0])
    given = config.read_comparison(
        {
            "input": {"path": f"{tmp_path}/x.zarr", "labels": f"{tmp_path}/y.zarr"},
            "methods": [METHODS["pca"][0], METHODS["lda"][0], METHODS["nystrom"][0]],
            "output": {"folder": f"{tmp_path}/out", "table": f"{tmp_path}/table.md"},
        }
    )
    listings()
    assert not comparison.compare(given, Silent(), threading.Event()).reused
    assert listings("x.zarr", "y.zarr") == {"x.zarr": 1 + 3 * 3, "y.zarr": 1 + 3}
    assert comparison.compare(given, Silent(), threading.Event()).reused
    assert listings("x.zarr", "y.zarr") == {"x.zarr": 1, "y.zarr": 1}


@pytest.mark.parametrize("layout", ["v3", "v3 sharded"])
def test_missing_chunks_are_found_in_the_listing_of_the_snapshot(tmp_path, listings, layout):
    values = values_of(SHAPE[0])
    values[:CHUNK] = 0
    write(tmp_path / "x.zarr", values, **LAYOUTS[layout])
    listings()
    with pytest.raises(DataError, match=rf"x\.zarr: chunk .* is missing, rows 0-{CHUNK - 1}"):
        pipeline.run_all(context(tmp_path))
    assert listings("x.zarr")["x.zarr"] == 1


def test_the_listings_of_fit_and_transform_in_python(tmp_path, listings):
    write(tmp_path / "x.zarr", values_of(SHAPE[0]))
    source = open_source(tmp_path / "x.zarr")
    listings()
    model = fitting.fit(PCA(2), source, Execution()).model
    assert listings("x.zarr")["x.zarr"] == 1
    fitting.fit(PCA(2), source, Execution(ledger=tmp_path / "ledger"))
    assert listings("x.zarr")["x.zarr"] == 2
    fitting.transform(model, source, tmp_path / "z.zarr", Execution(), attributes={})
    assert listings("x.zarr")["x.zarr"] == 2


class ChangingInput(Silent):
    """Changes the input after a pass has read some of it."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act: Callable[[], None] | None = act

    def advance(self, rows: int) -> None:
        if self._act is not None:
            act, self._act = self._act, None
            act()


def test_a_change_is_reported_if_the_solve_fails_after_it(tmp_path):
    """The solve may fail because the passes read two different inputs. The error must say so."""

    class Unsolvable(PCA):
        def passes(self, spec, start=None):
            yield from super().passes(spec, start)
            raise DataError("no such matrix has a decomposition")

    write(tmp_path / "x.zarr", values_of(SHAPE[0]))
    settings = Execution(workers=1, ledger=tmp_path / "ledger")

    def fit(progress: Silent) -> None:
        fitting.fit(Unsolvable(2), open_source(tmp_path / "x.zarr"), settings, progress=progress)

    def change() -> None:
        zarr.open_array(tmp_path / "x.zarr", mode="r+")[:CHUNK] = 7

    with pytest.raises(DataError, match="changed while it was being read"):
        fit(ChangingInput(change))
    assert not list((tmp_path / "ledger").glob("*.npz")), "a mixture of two inputs was kept"
    with pytest.raises(DataError, match="no such matrix"):
        fit(Silent())


def test_a_changed_weight_in_an_incomplete_chunk_is_detected(tmp_path):
    write(tmp_path / "x.zarr", values_of(SHAPE[0]))
    write(tmp_path / "w.zarr", np.ones(SHAPE[0]), chunks=(300,))
    source = open_source(tmp_path / "x.zarr", weights=tmp_path / "w.zarr")

    def change() -> None:
        zarr.open_array(tmp_path / "w.zarr", mode="r+")[-1] = 7

    settings = Execution(workers=1, ledger=tmp_path / "ledger")
    with pytest.raises(DataError, match="changed while it was being read"):
        fitting.fit(PCA(2), source, settings, progress=ChangingInput(change))


class Server:
    """The listings of one bucket that a server has received."""

    def __init__(self, bucket: Any) -> None:
        self._bucket = bucket
        self._seen = len(bucket.server.requests())

    def listings(self) -> Counter[str]:
        """Return how often each prefix was listed since the last call. Further pages are not counted."""
        return Counter(
            query["prefix"][0].rstrip("/")
            for query in self.pages()
            if "continuation-token" not in query and "delimiter" not in query
        )

    def pages(self) -> list[dict[str, list[str]]]:
        """Return the queries of all requests for a page of a listing."""
        requests = self._bucket.server.requests()
        new, self._seen = requests[self._seen :], len(requests)
        urls = [urlsplit(request.split()[1]) for request in new if request.startswith("GET ")]
        queries = [url.query for url in urls if url.path.strip("/") == self._bucket.name]
        return [query for query in map(parse_qs, queries) if "list-type" in query]


@contextmanager
def uploaded(bucket: Any, directory: Path, case: str) -> Iterator[Server]:
    write(directory / "x.zarr", values_of(SHAPE[0]))
    write_companions(directory, SHAPE[0])
    for name in inputs_of(case):
        bucket.upload(directory / name)
    yield Server(bucket)


@pytest.mark.parametrize("case", METHODS)
def test_a_first_run_of_a_bucket_makes_three_listings_and_an_up_to_date_one_makes_one(bucket, tmp_path, case):
    method, companions = METHODS[case]
    write_config(
        tmp_path,
        input={name: f"{bucket.url}/{path}" for name, path in {"path": "x.zarr", **companions}.items()},
        method=method,
        output={"model": str(tmp_path / "model.zarr"), "embedding": str(tmp_path / "z.zarr")},
    )
    with uploaded(bucket, tmp_path, case) as server:
        for most in (3, 1):
            outcome = streamdr(
                "run", "config.yaml", "--json", cwd=tmp_path, environment=bucket.server.environment
            )
            assert outcome.code == 0, outcome.err
            assert outcome.report["reused"] is (most == 1)
            assert server.listings() == Counter(dict.fromkeys(inputs_of(case), most))


def test_a_listing_of_several_pages_is_requested_once(bucket, tmp_path):
    write(tmp_path / "x.zarr", values_of(1100), chunks=(1, SHAPE[1]))
    bucket.upload(tmp_path / "x.zarr")
    server = Server(bucket)
    run = config.read(
        {
            "input": {"path": f"{bucket.url}/x.zarr"},
            "method": METHODS["pca"][0],
            "output": {"model": str(tmp_path / "model.zarr")},
        }
    )
    pipeline.plan(pipeline.RunContext(run, Silent(), threading.Event()))
    assert ["continuation-token" in page for page in server.pages()] == [False, True]


def test_a_group_that_streamdr_created_is_not_listed_to_locate_its_data(bucket, tmp_path):
    group = zarr.create_group(tmp_path / "x.zarr", attributes={"streamdr": {"kind": "ingested"}})
    group.create_array("X", data=values_of(SHAPE[0]), chunks=(CHUNK, SHAPE[1]))
    group.create_array("labels", data=np.ones(SHAPE[0]), chunks=(CHUNK,))
    bucket.upload(tmp_path / "x.zarr")
    server = Server(bucket)
    assert open_source(f"{bucket.url}/x.zarr").spec.n_cols == SHAPE[1]
    assert not server.pages()


def test_stages_in_a_worker_process_make_as_many_listings_as_commands(bucket, tmp_path):
    """The stages of a flow are separate: each opens and lists the input."""
    given = {
        "input": {"path": f"{bucket.url}/x.zarr"},
        "method": METHODS["pca"][0],
        "output": {"model": str(tmp_path / "model.zarr"), "embedding": str(tmp_path / "z.zarr")},
    }
    with uploaded(bucket, tmp_path, "pca") as server, WorkerProcess() as worker:
        stages: list[tuple[StageName, int]] = [
            ("plan", 1),
            ("fit", 2),
            ("transform", 2),
            ("verify", 2),
            ("fit", 1),
        ]
        for stage_name, most in stages:
            worker.run(StageRequest(stage_name, [given]), Silent())
            assert server.listings() == Counter({"x.zarr": most}), stage_name
