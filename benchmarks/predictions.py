"""What `streamdr plan` predicts, and what `streamdr run` then takes: seconds, and peak memory.

Every plan and every run is a fresh process, without outputs and without a ledger of earlier runs. Seconds are
those of the stages, as their reports give them: without the start of Python, which is the same for all.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import data, sparse_stores
from benchmarks.harness import Outcome, Settings, best, other_runnable, warm
from benchmarks.missing_values import IncompleteRows
from benchmarks.report import Report, Target
from benchmarks.revisions import ROOT

WITHIN = 1.25
PREDICTED, PLANNED_PEAK, RATIO = "planned s", "planned MB", "planned / measured"


@dataclass(frozen=True)
class Job:
    """One configuration: its input, its method, and whether its rows are mapped too."""

    name: str
    store: Path
    method: Mapping[str, Any] | Sequence[Mapping[str, Any]]
    labels: Path | None = None
    outputs: tuple[str, ...] = ()
    has_gaps: bool = False
    """Whether values are missing. The plan reads none, and tells the time with and without."""

    def configuration(self, folder: Path) -> dict[str, Any]:
        """Return the configuration, with outputs in a folder."""
        given: dict[str, Any] = {"path": str(self.store)}
        if self.labels is not None:
            given["labels"] = str(self.labels)
        written = {name: str(folder / f"{name}.zarr") for name in ("model", *self.outputs)}
        method = (
            dict(self.method) if isinstance(self.method, Mapping) else [dict(each) for each in self.method]
        )
        return {"input": given, "method": method, "output": written, "execution": {"memory_limit": "4GiB"}}


def run(settings: Settings) -> Iterator[Report]:
    """Predict and run every job in turn, and keep the fastest run of each."""
    found = [measured(job, settings) for job in jobs(settings)]
    targets = [
        Target(f"{each.name}: seconds, planned / measured or its inverse", miss(each), WITHIN)
        for each in found
    ]
    targets += [
        Target(
            f"{each.name}: peak, measured / planned", each.peak / float(each.verdict[PLANNED_PEAK]) / 1e6, 1.0
        )
        for each in found
    ]
    yield Report("Predictions of `streamdr plan`", found, targets, [])


def miss(outcome: Outcome) -> float:
    """Return by which factor the prediction is wrong, whether too long or too short."""
    factor = float(outcome.verdict[RATIO])
    return max(factor, 1 / factor)


def jobs(settings: Settings) -> Iterator[Job]:
    """Yield the jobs, each with its store, which is made if it does not exist."""
    folder, scale = settings.data, settings.scale

    def rows(number: int) -> int:
        return max(500, int(number * scale))

    tall = data.tall(folder, rows(240_000), 1000)
    yield Job("PCA, covariance, float32", tall, {"name": "pca", "n_components": 20, "solver": "covariance"})
    double = {"name": "pca", "n_components": 20, "solver": "covariance", "precision": "double"}
    yield Job("PCA, covariance, float64 products", tall, double)
    wide = data.wide(folder, rows(2_000), 64_000)
    yield Job("PCA, Gram", wide, {"name": "pca", "n_components": 20, "solver": "gram"})
    broad = data.tall(folder, rows(60_000), 4000)
    yield Job("PCA, Krylov", broad, {"name": "pca", "n_components": 20, "solver": "krylov"})
    gaps = IncompleteRows(rows=rows(500_000), cols=100, k=10, missing=0.2, dtype="f4").store(folder)
    yield Job("PPCA, missing values", gaps, {"name": "ppca", "n_components": 10}, has_gaps=True)
    few = IncompleteRows(rows=rows(60_000), cols=50, k=5, missing=0.2, dtype="f4").store(folder)
    mixture = {"name": "ppca_mixture", "n_components": 5, "n_mixtures": 3, "max_iter": 10}
    yield Job("Mixture of PPCA, 10 iterations", few, mixture)
    curved = data.curved(folder, rows(300_000), 50)
    nystrom = {"name": "kernel_pca", "n_components": 10, "n_landmarks": 1000, "approximation": "nystrom"}
    yield Job("Kernel PCA, Nystrom", curved, nystrom)
    related = data.related(folder, rows(200_000), 1000)
    yield Job("LDA", related, {"name": "lda", "n_components": 5}, labels=data.classes(related, 10))
    small = data.curved(folder, rows(2_000), 20)
    yield Job("Metric MDS", small, {"name": "metric_mds", "n_components": 2, "algorithm": "smacof"})
    grouped = data.clusters(folder, rows(300_000), 50, 20)
    long = data.curved(folder, rows(2_000_000), 20)
    yield Job("Landmark MDS, with its embedding", long, LANDMARKS, outputs=("embedding",))
    yield Job("Self-organising map", grouped, {"name": "som", "height": 20, "width": 20, "n_epochs": 10})
    forward = {"name": "select_forward", "k": 20, "n_folds": 5}
    yield Job("Forward selection", related, forward, labels=data.target(related))
    counts = sparse_stores.counts_store(folder, rows(120_000), 2000)
    yield Job("PCA of sparse counts", counts, {"name": "pca", "n_components": 20})
    yield Job("Chain: totals, log, standardise, PCA", counts, CHAIN)
    yield Job("PCA, with its embedding and denoised rows", tall, PLAIN, outputs=("embedding", "denoised"))


LANDMARKS = {"name": "landmark_mds", "n_components": 2, "metric": "cosine", "n_landmarks": 500}
PLAIN = {"name": "pca", "n_components": 20, "solver": "covariance"}
CHAIN = (
    {"name": "normalize_total", "target_sum": 10000},
    {"name": "log1p"},
    {"name": "standardise"},
    {"name": "pca", "n_components": 20},
)


def measured(job: Job, settings: Settings) -> Outcome:
    """Plan a job, run it several times, and return the fastest run beside its plan."""
    store_bytes = warm(job.store)
    runs = []
    for _ in range(settings.rounds):
        load = other_runnable()
        with tempfile.TemporaryDirectory(prefix="predictions-", dir=settings.data) as folder:
            config = Path(folder, "job.yaml")
            config.write_text(json.dumps(job.configuration(Path(folder))))
            plan, _ = streamdr("plan", config)
            done, cpu = streamdr("run", config)
        missing = plan["if_values_are_missing"]
        planned = plan["predicted"]["seconds"] + (missing["seconds"] if job.has_gaps else 0.0)
        seconds, peak = done["seconds"], planned_peak(plan)
        print(f"  {job.name}: {planned:.2f} s planned, {seconds:.2f} s", file=sys.stderr, flush=True)
        runs.append(
            Outcome(
                job.name,
                seconds=seconds,
                cpu=cpu,
                load=load,
                peak=done["peak_rss"],
                reads=done["bytes_read"] / store_bytes,
                verdict={PREDICTED: planned, RATIO: planned / seconds, PLANNED_PEAK: peak / 1e6},
            )
        )
    return best(runs)


def planned_peak(plan: dict[str, Any]) -> int:
    """Return the largest planned peak of the fit and of the outputs."""
    return max([plan["peak"], *(each["peak"] for each in plan["transforms"].values())])


def streamdr(command: str, config: Path) -> tuple[dict[str, Any], float]:
    """Run a command in a fresh process, and return its report and its processor seconds."""
    words = [sys.executable, "-m", "streamdr", command, str(config), "--json"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        words, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(done.stdout), cpu
