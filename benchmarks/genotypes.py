"""Genotypes: 20,000 x 100,000 int8 with missing values, 20 scaled components, in two layouts, beside PCAone.

PCAone is a program of its own, in C++. Its contender runs the `PCAone` that is found on the path.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from rich.progress import track

from benchmarks import data
from benchmarks.contender import CORES, Contender, Fit, Solution
from benchmarks.harness import Settings, race
from benchmarks.report import Report, Target, figure, peak, ratio_to_best, verdict

ROWS, COLS, K = 20_000, 100_000, 20
POPULATIONS = 24
MISSING = -1
HEIGHT = 64
"""The rows of a chunk, which has all columns."""
TALL = (5_000, 2_500)
"""The rows and columns of a chunk of the same genotypes in another layout."""
PASSES = 12
"""The iterations of the reference: the 20 components stand out from the rest by a factor of three or more."""


def run(settings: Settings) -> Iterator[Report]:
    """Race streamdr and PCAone, in memory and out of core; the scale shrinks both sides."""
    rows, cols = max(int(ROWS * settings.scale), 2000), max(int(COLS * settings.scale), 4000)
    store = genotypes(settings.data, rows, cols)
    tall, bed = in_tall_chunks(store), plink(store)
    best = reference(store).sum()

    def judge(found: Solution) -> dict[str, float | str]:
        if not found.embedding.size:  # components of the bytes, where a missing genotype is a number
            return {}
        return {"variance not captured": float(1 - captured(store, found.embedding) / best)}

    own, larger, peer = "streamdr", "streamdr, within 1.25 GiB", "PCAone"
    chunks = "streamdr, tall chunks"
    plain, scaled = f"{chunks}, bytes as they are", f"{chunks}, bytes scaled"
    outcomes = race(
        [
            Contender(own, streamdr, store, {"memory_limit": "1GiB"}),
            Contender(larger, streamdr, store, {"memory_limit": "1280MiB"}),
            Contender(chunks, streamdr, tall, {"memory_limit": "1GiB"}),
            Contender(plain, components, tall, {"memory_limit": "1GiB", "scale": False}),
            Contender(scaled, components, tall, {"memory_limit": "1GiB", "scale": True}),
            Contender(f"{peer}, in memory", pcaone, bed, {}),
            Contender(f"{peer}, out of core", pcaone, bed, {"memory": 0.5}),
        ],
        settings,
        judge,
    )
    others = (chunks, plain, scaled)
    targets = [
        Target("variance not captured", verdict(outcomes, own, "variance not captured"), 1e-4),
        Target("peak in GiB", figure(outcomes, own, lambda outcome: peak(outcome) / 2**30), 1.0),
        Target("streamdr / fastest PCAone", ratio_to_best(outcomes, own, not_peers=[larger, *others]), 1.0),
        *(
            target
            for name in others
            for target in (
                Target(f"{name}, seconds", figure(outcomes, name, lambda outcome: outcome.seconds), 60.0),
                Target(f"{name}, peak in GiB", figure(outcomes, name, lambda o: peak(o) / 2**30), 1.0),
            )
        ),
    ]
    yield Report(f"Genotypes: {rows:,} x {cols:,} int8, 1% missing, k={K}", outcomes, targets, [own])


def streamdr(store: str, memory_limit: str) -> Fit:
    """Scaled genotypes and their components in one chain; the scores of all samples are part of the time."""
    from streamdr.core.byte_sizes import parse_bytes
    from streamdr.core.execution import Execution
    from streamdr.data import open_source
    from streamdr.engine import fitting
    from streamdr.methods.chain import chain_of
    from streamdr.methods.pca import PCA
    from streamdr.methods.steps import ScaleGenotypes

    execution = Execution(workers=CORES, memory_limit=parse_bytes(memory_limit))

    def fit() -> Solution:
        with tempfile.TemporaryDirectory() as folder:
            source = open_source(store, missing_value=MISSING)
            model: Any = fitting.fit(chain_of([ScaleGenotypes(), PCA(K)]), source, execution).model
            fitting.transform(model, source, Path(folder, "scores.zarr"), execution, attributes={})
            scores = np.asarray(zarr.open_group(Path(folder, "scores.zarr"), mode="r")["embedding"])
        pca = model.last
        return Solution(pca.explained_variance, np.empty((0, 0)), {"solver": pca.solver}, embedding=scores)

    return fit


def components(store: str, memory_limit: str, *, scale: bool) -> Fit:
    """Components of the bytes, scaled to unit variance or not, where a missing genotype is a number."""
    import streamdr as sdr

    def fit() -> Solution:
        with sdr.execution(workers=CORES, memory_limit=memory_limit):
            pca = sdr.PCA(K, scale=scale).fit(store)
        return Solution(pca.explained_variance_, np.empty((0, 0)), {"solver": pca.solver_})

    return fit


def pcaone(bed: str, memory: float = 0.0) -> Fit:
    """The default algorithm of PCAone, within so many gigabytes of genotypes; 0 for all of them."""
    program = shutil.which("PCAone")
    if program is None:
        raise ModuleNotFoundError("PCAone is not on the path", name="PCAone")
    prefix = str(Path(bed) / "genotypes")
    size = int(Path(f"{prefix}.fam").read_text().count("\n"))

    def fit() -> Solution:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder, "out")
            command = [program, "-b", prefix, "-k", str(K), "-n", str(CORES), "-m", str(memory), "-o", out]
            subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
            scores = np.loadtxt(f"{out}.eigvecs")
            variances = np.loadtxt(f"{out}.eigvals")
        return Solution(variances[:K], np.empty((0, 0)), embedding=scores.reshape(size, -1)[:, :K])

    return fit


def genotypes(folder: Path, rows: int, cols: int) -> Path:
    """Make samples of populations whose allele frequencies have drifted apart, with 1% missing."""
    rng = np.random.default_rng(11)
    ancestral = rng.uniform(0.05, 0.5, cols)
    drift = np.linspace(0.02, 0.2, POPULATIONS)[:, None]
    shape = (1 - drift) / drift
    frequencies = rng.beta(ancestral * shape, (1 - ancestral) * shape).astype("f4")

    def fill(r: slice, c: slice) -> np.ndarray:
        n = r.stop - r.start
        chances = frequencies[rng.integers(POPULATIONS, size=n)]
        counts = sum((rng.random((n, cols), dtype="f4") < chances).astype("i1") for _ in range(2))
        return np.where(rng.random((n, cols), dtype="f4") < 0.01, np.int8(MISSING), counts)

    return data.build(folder / f"genotypes-{rows}x{cols}.zarr", (rows, cols), (HEIGHT, cols), fill, "i1")


def in_tall_chunks(store: Path) -> Path:
    """Write the same genotypes in chunks that are tall and narrow, a row of chunks at a time."""
    array = zarr.open_array(store, mode="r")
    rows: dict[tuple[int, int], np.ndarray] = {}

    def fill(r: slice, c: slice) -> np.ndarray:
        if (r.start, r.stop) not in rows:
            rows.clear()
            rows[r.start, r.stop] = np.asarray(array[r])
        return rows[r.start, r.stop][:, c]

    path = store.with_name(f"{store.stem}-{TALL[0]}x{TALL[1]}.zarr")
    return data.build(path, (array.shape[0], array.shape[1]), TALL, fill, "i1")


def plink(store: Path) -> Path:
    """Write the same genotypes as PLINK's .bed, .bim and .fam: two bits each, variant after variant."""
    folder = store.with_suffix(".plink")
    if folder.exists():
        return folder
    array = zarr.open_array(store, mode="r")
    rows, cols = array.shape
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    width = -(-rows // 4)
    # Two copies of the first allele are 00, none are 11, one is 10, a missing genotype is 01.
    code = np.array([3, 2, 0, 1], np.uint8)
    bed = np.lib.format.open_memmap(partial / "packed.npy", "w+", np.uint8, (cols, width))
    for start in track(range(0, rows, 8 * HEIGHT), description=folder.name):
        block = np.asarray(array[start : start + 8 * HEIGHT])
        codes = np.zeros((cols, -(-len(block) // 4) * 4), np.uint8)
        codes[:, : len(block)] = code[block].T
        four = codes.reshape(cols, -1, 4)
        packed = four[..., 0] | four[..., 1] << 2 | four[..., 2] << 4 | four[..., 3] << 6
        bed[:, start // 4 : start // 4 + packed.shape[1]] = packed
    with (partial / "genotypes.bed").open("wb") as file:
        file.write(bytes([0x6C, 0x1B, 0x01]))
        for start in range(0, cols, 4096):
            file.write(bed[start : start + 4096].tobytes())
    (partial / "packed.npy").unlink()
    variants = (f"1 v{number} 0 {number + 1} A C\n" for number in range(cols))
    (partial / "genotypes.bim").write_text("".join(variants))
    (partial / "genotypes.fam").write_text("".join(f"s{n} s{n} 0 0 0 -9\n" for n in range(rows)))
    os.rename(partial, folder)
    return folder


def scaled_blocks(store: Path) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield rows less their means over 2p, times 1 / sqrt(2p(1-p)), with zero for missing genotypes."""
    array = zarr.open_array(store, mode="r")
    mean, scale = cached(store, "scaling", lambda: scaling(array))
    for start in range(0, array.shape[0], 4 * HEIGHT):
        block = np.asarray(array[start : start + 4 * HEIGHT])
        scaled = (block - mean.astype("f4")) * scale.astype("f4")
        scaled[block == MISSING] = 0
        yield slice(start, start + len(block)), scaled


def scaling(array: Any) -> np.ndarray:
    """Return the mean of every variant, and the inverse of its binomial standard deviation."""
    total, seen = np.zeros((2, array.shape[1]))
    for start in range(0, array.shape[0], 4 * HEIGHT):
        block = np.asarray(array[start : start + 4 * HEIGHT])
        seen += (block != MISSING).sum(axis=0)
        total += np.where(block == MISSING, 0, block).sum(axis=0, dtype=np.int64)
    mean = total / seen
    width = np.sqrt(mean * (1 - mean / 2))
    return np.stack([mean, np.divide(1, width, out=np.zeros_like(width), where=width > 0)])


def reference(store: Path) -> np.ndarray:
    """Return the largest variances, by subspace iterations with more vectors than components."""

    def compute() -> np.ndarray:
        rows, cols = zarr.open_array(store, mode="r").shape
        basis = np.random.default_rng(0).standard_normal((cols, K + 30)).astype("f4")
        for _ in track(range(PASSES), description="reference"):
            basis = np.linalg.qr(basis)[0]
            images = np.zeros(basis.shape)
            for _, block in scaled_blocks(store):
                images += block.T @ (block @ basis)
            values = np.linalg.eigvalsh(basis.T @ images)[::-1] / (rows - 1)
            basis = images.astype("f4")
        return values[:K]

    return cached(store, f"reference-{K}", compute)


def captured(store: Path, embedding: np.ndarray) -> float:
    """Return the variance of the scaled genotypes in the span of the columns of an embedding."""
    basis = np.linalg.qr(np.asarray(embedding, np.float64))[0].astype("f4")
    images = 0.0
    for rows, block in scaled_blocks(store):
        images = images + basis[rows].T @ block
    return float((np.asarray(images, np.float64) ** 2).sum() / (len(basis) - 1))


def cached(store: Path, name: str, compute: Any) -> np.ndarray:
    """Return an array that is kept beside the store."""
    path = store.with_name(f"{store.stem}.{name}.npy")
    if not path.exists():
        partial = path.with_suffix(".partial.npy")
        np.save(partial, compute())
        os.rename(partial, path)
    found: np.ndarray = np.load(path)
    return found
