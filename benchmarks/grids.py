"""Labelled grids beside xeofs: agreement, speed and memory on dask, cost of land and weights, appending."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import floors, grid_stores
from benchmarks.cluster import bits, differing
from benchmarks.contender import CORES, Contender, Fit, Solution
from benchmarks.grid_stores import VARIABLE
from benchmarks.harness import Judge, Outcome, Settings, race
from benchmarks.report import Report, Target, figure, megabytes, ratio, verdict

K = 10
ROWS, LATS, LONS, CHUNK = 20_000, 180, 360, 100
MEMORY_LIMIT = "2GiB"
DAYS, NIGHTLY, NIGHTLY_CHUNK, PARTS, TIMES = 400_000, (36, 72), 400, 100, 4
SMALL = (3_000, 24, 48)

OVERSAMPLES = 10

OWN, XEOFS, PLAIN = "streamdr", "xeofs on dask", "streamdr, plain matrix of the sea"
FLOOR = "floor of one pass"
FULL, GROWN = "full fit", "one file of 1% added"


def labelled(store: str, k: int, memory_limit: str, **parameters: Any) -> Fit:
    """PCA of a variable of a store, weighted by area, land left out."""
    import streamdr

    execution, PCA = streamdr.execution, streamdr.PCA
    transforms = parameters.pop("transforms", False)

    def fit() -> Solution:
        with execution(workers=CORES, memory_limit=memory_limit):
            pca = PCA(n_components=k, **parameters).fit(
                store, variable=VARIABLE, sample_dims="time", feature_weights="coslat"
            )
            scores = pca.transform(store).compute() if transforms else np.empty((0, 0))
        notes = {"solver": pca.solver_}
        return Solution(pca.explained_variance_, pca.components_, notes, embedding=scores)

    return fit


def unlabelled(store: str, k: int, memory_limit: str) -> Fit:
    """PCA of the plain matrix of the sea."""
    import streamdr

    execution, PCA = streamdr.execution, streamdr.PCA

    def fit() -> Solution:
        with execution(workers=CORES, memory_limit=memory_limit):
            pca = PCA(n_components=k).fit(store)
        return Solution(pca.explained_variance_, np.empty((0, 0)), {"solver": pca.solver_})

    return fit


def xeofs(store: str, k: int, rotation: int = 0, **parameters: Any) -> Fit:
    """EOF analysis by its defaults, on dask in the chunks of the store; `rotation` is the power of promax."""
    import dask
    import xarray
    from xeofs.single import EOF, EOFRotator

    in_memory = parameters.pop("in_memory", False)

    def fit() -> Solution:
        with dask.config.set(scheduler="threads", num_workers=CORES):
            data = xarray.open_zarr(store, consolidated=False)[VARIABLE]
            model = EOF(n_modes=k, use_coslat=True, random_state=0, **parameters)
            model.fit(data.load() if in_memory else data, dim="time")
            if rotation:
                rotator = EOFRotator(n_modes=k, power=rotation)
                rotator.fit(model)
                model = rotator
            variances = model.explained_variance().values
            found = model.components().sel(lat=data.lat, lon=data.lon)  # xeofs sorts the cells
            components = found.transpose("mode", "lat", "lon").values
            scores = model.scores(normalized=False).transpose("time", "mode").values
        return Solution(variances, components.reshape(k, -1), embedding=scores)

    return fit


def grown(folder: str, k: int, memory_limit: str) -> Fit:
    """Fit all stores but the last, add that, and time the second fit."""
    own = Path(tempfile.mkdtemp(prefix="grids-", dir=Path(folder).parent))
    atexit.register(shutil.rmtree, own)
    *first, last = sorted(Path(folder).iterdir())
    for path in first:
        os.symlink(path, own / path.name)
    nightly(str(own), k, memory_limit, ledger=True)()
    os.symlink(last, own / last.name)
    return nightly(str(own), k, memory_limit, ledger=True)


def nightly(folder: str, k: int, memory_limit: str, *, ledger: bool = False) -> Fit:
    """PCA of the stores in a folder, one after another."""
    import streamdr

    execution, PCA, open_source = streamdr.execution, streamdr.PCA, streamdr.open_source
    place = Path(folder).with_suffix(".ledger") if ledger else None
    if place is not None:
        atexit.register(shutil.rmtree, place, ignore_errors=True)

    def fit() -> Solution:
        with execution(workers=CORES, memory_limit=memory_limit, ledger=place):
            source = open_source(
                f"{folder}/*.zarr", variable=VARIABLE, sample_dims="time", feature_weights="coslat"
            )
            pca = PCA(n_components=k, solver="covariance").fit(source)
        return Solution(pca.explained_variance_, pca.components_)

    return fit


def run(settings: Settings) -> Iterator[Report]:
    """Compare results on few rows, race on many, and append to a folder of stores."""
    yield from agreement(settings)
    yield large(settings)
    yield appending(settings)


def agreement(settings: Settings) -> Iterator[Report]:
    """Compare with xeofs in double precision: plain, varimax and promax."""
    store = grid_stores.grid(settings.data, *SMALL, chunk=CHUNK, dtype="f8")
    for name, rotation, power in (
        ("no rotation", None, 0),
        ("varimax", "varimax", 1),
        ("promax", "promax", 4),
    ):
        theirs = {"k": K, "rotation": power, "solver": "full", "in_memory": True}
        own = {"k": K, "memory_limit": MEMORY_LIMIT, "transforms": True, "rotation": rotation}
        if power > 1:
            own["rotation_power"] = power
        reference: dict[str, Solution] = {}
        contenders = [
            Contender("xeofs in memory", xeofs, store, theirs),
            Contender(OWN, labelled, store, own),
        ]
        outcomes = race(contenders, settings, against_first(reference))
        targets = [
            Target(what, verdict(outcomes, OWN, what), 1e-8) for what in ("variances", "components", "scores")
        ]
        rows, lats, lons = SMALL
        yield Report(f"Grids, {name}: {rows:,} x ({lats} x {lons}) float64, k={K}", outcomes, targets, [])


def against_first(reference: dict[str, Solution]) -> Judge:
    """Return the judge that compares each solution with that of the first contender, up to signs."""

    def judge(found: Solution) -> dict[str, float | str]:
        first = reference.setdefault("first", found)
        sea = ~np.isnan(first.components[0])
        if not np.array_equal(sea, ~np.isnan(found.components[0])):
            return {"components": "other cells are left out"}
        signs = np.sign((first.components[:, sea] * found.components[:, sea]).sum(axis=1))
        return {
            "variances": float(np.abs(found.variances / first.variances - 1).max()),
            "components": worst(signs[:, None] * found.components[:, sea], first.components[:, sea]),
            "scores": worst(found.embedding * signs, first.embedding),
        }

    return judge


def worst(found: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference, relative to the largest value."""
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def large(settings: Settings) -> Report:
    """Race on a store that is larger than the limit."""
    rows = max(int(ROWS * settings.scale) // CHUNK * CHUNK, 10 * CHUNK)
    store = grid_stores.grid(settings.data, rows, LATS, LONS, chunk=CHUNK)
    sea = grid_stores.plain(store)
    own = {"k": K, "memory_limit": MEMORY_LIMIT}
    reference: dict[str, np.ndarray] = {}

    def judge(found: Solution) -> dict[str, float | str]:
        first = reference.setdefault("variances", found.variances)
        return {"variances": float(np.abs(found.variances / first - 1).max())} if len(found.variances) else {}

    contenders = [
        Contender(FLOOR, floors.krylov, sea, {"width": K + OVERSAMPLES}, blas_threads=1),
        Contender(PLAIN, unlabelled, sea, own),
        Contender(OWN, labelled, store, own),
        Contender(XEOFS, xeofs, store, {"k": K}, blas_threads=1),
    ]
    outcomes = race(contenders, settings, judge)
    targets = [
        Target("streamdr / xeofs on dask", ratio(outcomes, OWN, XEOFS), 1 / 3),
        Target("peak, streamdr / xeofs on dask", peaks(outcomes, OWN, XEOFS), 1 / 5),
        Target("peak, MB (the limit was 2 GiB)", figure(outcomes, OWN, megabytes), 2**31 / 1e6),
        Target("land and weights / plain matrix", ratio(outcomes, OWN, PLAIN), 1.1),
    ]
    title = f"Grids: {rows:,} x ({LATS} x {LONS}) float32, 30% land, k={K}"
    return Report(title, outcomes, targets, [FLOOR, OWN])


def peaks(outcomes: list[Outcome], name: str, other: str) -> float | None:
    """Return the ratio of two peaks."""
    one, two = (figure(outcomes, each, megabytes) for each in (name, other))
    return None if one is None or two is None else one / two


def appending(settings: Settings) -> Report:
    """Compare a fit after a file was added with one that reads all files."""
    unit = NIGHTLY_CHUNK * PARTS
    rows = max(int(DAYS * settings.scale) // unit, 1) * unit
    store = grid_stores.repeated(grid_stores.grid(settings.data, rows, *NIGHTLY, chunk=NIGHTLY_CHUNK), TIMES)
    folder = grid_stores.parts(store, PARTS)
    chosen = {"k": K, "memory_limit": "1GiB"}
    contenders = [
        Contender("one store", labelled, store, chosen | {"solver": "covariance"}),
        Contender(FULL, nightly, folder, chosen),
        Contender(GROWN, grown, folder, chosen),
    ]
    outcomes = race(contenders, settings, bits)
    targets = [
        Target("appending one file / full fit", ratio(outcomes, GROWN, FULL), 0.05),
        Target("many files / one store", ratio(outcomes, FULL, "one store"), 1.1),
        Target("fits whose bits differ from those of one store", differing(outcomes), 0),
    ]
    lats, lons = NIGHTLY
    title = f"Grids, appending: {TIMES * rows:,} x ({lats} x {lons}) float32 in {PARTS} stores, k={K}"
    return Report(title, outcomes, targets, [FULL])
