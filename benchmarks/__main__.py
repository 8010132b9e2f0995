"""`python -m benchmarks`: run some or all benchmarks and write the results."""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path

from benchmarks.harness import Settings
from benchmarks.report import write
from benchmarks.revisions import ROOT, worktree
from streamdr.core.system import available_memory

NAMES = (
    "covariance",
    "overhead",
    "gram",
    "krylov",
    "cluster",
    "dask_arrays",
    "weak_scaling",
    "nightly",
    "many_chunks",
    "offset",
    "ppca",
    "kernel_pca",
    "kernel_landmarks",
    "kernel_search",
    "kernel_exact",
    "kernel_sparse",
    "lda",
    "landmark_mds",
    "metric_mds",
    "select_forward",
    "filters",
    "som",
    "grids",
    "sparse",
    "chain",
    "genotypes",
    "predictions",
    "larger_than_memory",
)


def interpreter(text: str) -> tuple[str, str]:
    """Read NAME=PATH."""
    name, found, path = text.partition("=")
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=PATH")
    return name, path


def main() -> int:
    """Run the benchmarks; the exit code says whether every target was met."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"some of: {', '.join(NAMES)} (default: all)"
    )
    parser.add_argument(
        "--data", type=Path, default=ROOT / "benchmarks" / ".data", help="where the stores are kept"
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "benchmarks" / "results.md", help="JSON goes beside it"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="shrinks the data: 0.05 is a smoke run")
    parser.add_argument("--rounds", type=int, default=3, help="best of how many")
    parser.add_argument("--timeout", type=float, default=900.0, metavar="SECONDS", help="for one run")
    parser.add_argument(
        "--python",
        type=interpreter,
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="run the contender of that name with another interpreter",
    )
    parser.add_argument(
        "--before",
        metavar="REVISION",
        help="run streamdr of an earlier revision in the same rounds, instead of the peers",
    )
    chosen = parser.parse_args()
    for name in chosen.names:
        if name not in NAMES:
            parser.error(f"{name!r} is none of {', '.join(NAMES)}")
    with worktree(chosen.before) if chosen.before else nullcontext() as tree:
        return run(chosen, tree)


def run(chosen: argparse.Namespace, before: Path | None) -> int:
    """Run the chosen benchmarks, and write the results as they come."""
    settings = Settings(
        data=chosen.data.resolve(),
        scale=chosen.scale,
        rounds=chosen.rounds,
        timeout_seconds=chosen.timeout,
        memory_cap=int(0.9 * available_memory()),
        pythons=dict(chosen.python),
        before=before,
    )
    reports = []
    for name in chosen.names or NAMES:
        print(f"{name}:", file=sys.stderr, flush=True)
        for report in import_module(f"benchmarks.{name}").run(settings):
            reports.append(report)
            print(report.markdown(), flush=True)
            write(reports, settings, chosen.out)
    return 0 if all(target.met for report in reports for target in report.targets) else 1


if __name__ == "__main__":
    sys.exit(main())
