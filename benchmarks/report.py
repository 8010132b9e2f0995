"""Tables of outcomes, and whether the targets were met."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from benchmarks.contender import CORES
from benchmarks.harness import Outcome, Settings

PACKAGES = (
    "numpy",
    "scipy",
    "zarr",
    "dask",
    "scikit-learn",
    "scikit-learn-intelex",
    "dask-ml",
    "ppca_rs",
    "minisom",
    "xeofs",
    "scanpy",
    "anndata",
    "xarray",
    "streamdr",
)

BUSY = 0.5
"""With more other runnable tasks than this, timings are not reliable."""

HOW = """\
Every run is a fresh process that starts from a warm page cache, unless a title says that it is cold.
Seconds go from the path of the store to the model, imports excluded, best of the runs; a contender slower
than {slow:g} s is not run again. Peak is the high-water mark of the process, imports and helper processes
included. Processor seconds, and reads (bytes read over the size of the store), are those of the process
without its helpers.
"""


@dataclass(frozen=True)
class Target:
    """A figure and its upper bound. A target without a figure is missed."""

    what: str
    figure: float | None
    at_most: float

    @property
    def met(self) -> bool:
        """Whether the figure is there and within its bound."""
        return self.figure is not None and self.figure <= self.at_most

    def line(self) -> str:
        """Return the target as a line of a list."""
        figure = "no figure" if self.figure is None else f"{self.figure:.3g}"
        return f"- {'met' if self.met else '**missed**'}: {self.what}: {figure} (at most {self.at_most:g})"


@dataclass(frozen=True)
class Report:
    """One benchmark's outcomes, in the order in which they ran."""

    title: str
    outcomes: Sequence[Outcome]
    targets: Sequence[Target]
    yardsticks: Sequence[str]
    """Names of the outcomes that the seconds of the others are divided by."""

    def markdown(self) -> str:
        """Return the table and the targets."""
        judged = list(dict.fromkeys(name for outcome in self.outcomes for name in outcome.verdict))
        header = [
            "",
            "seconds",
            *(f"/ {name}" for name in self.yardsticks),
            "cpu s",
            "peak MB",
            "reads",
            *judged,
            "runs",
        ]
        lines = [f"## {self.title}", "", row(header), row(["---"] + ["---:"] * (len(header) - 1))]
        notes = []
        for outcome in self.outcomes:
            if outcome.failure:
                lines.append(row([outcome.name, outcome.failure] + [""] * (len(header) - 2)))
                continue
            ratios = [ratio(self.outcomes, outcome.name, name) for name in self.yardsticks]
            cells = [
                outcome.name,
                f"{outcome.seconds:.2f}",
                *("" if value is None else f"{value:.2f}" for value in ratios),
                f"{outcome.cpu:.2f}",
                f"{megabytes(outcome):.0f}",
                f"{outcome.reads:.1f}",
                *(cell(outcome.verdict.get(name, "")) for name in judged),
                str(outcome.runs),
            ]
            lines.append(row(cells))
            if outcome.notes:
                parts = ", ".join(f"{key} {cell(value)}" for key, value in outcome.notes.items())
                notes.append(f"- {outcome.name}: {parts}")
        if notes:
            lines += ["", *notes]
        for paragraph in self.warnings():
            lines += ["", paragraph]
        if self.targets:
            lines += ["", *(target.line() for target in self.targets)]
        return "\n".join(lines) + "\n"

    def warnings(self) -> list[str]:
        """Return the reasons why the seconds may not be reliable."""
        found = []
        busiest = max((outcome.load for outcome in self.outcomes), default=0.0)
        if busiest > BUSY:
            found.append(
                f"**The machine was busy**: up to {busiest:.1f} other tasks were runnable before a run. "
                "Seconds and their ratios are not reliable."
            )
        to_floor = ratio(self.outcomes, "streamdr", "floor")
        if to_floor is not None and to_floor < 1:
            found.append(f"**streamdr took {to_floor:.2f} times its floor**: noise, or a wrong floor.")
        return found


def row(cells: Sequence[str]) -> str:
    """Return a line of a markdown table."""
    return "| " + " | ".join(text.replace("|", "/").replace("\n", " ") for text in cells) + " |"


def cell(value: float | str) -> str:
    """Return a figure with three digits, text as it is."""
    return value if isinstance(value, str) else f"{value:.3g}"


Figure = Callable[[Outcome], float]


def seconds(outcome: Outcome) -> float:
    """Return the time of the best run."""
    return outcome.seconds


def peak(outcome: Outcome) -> float:
    """Return the peak memory in bytes."""
    return outcome.peak


def megabytes(outcome: Outcome) -> float:
    """Return the peak memory in millions of bytes."""
    return outcome.peak / 1e6


def reads(outcome: Outcome) -> float:
    """Return the number of bytes read, in units of the size of the store."""
    return outcome.reads


def figure(outcomes: Sequence[Outcome], name: str, of: Figure) -> float | None:
    """Return a figure of the outcome of that name, if it has any."""
    return next((of(outcome) for outcome in outcomes if outcome.name == name and not outcome.failure), None)


def verdict(outcomes: Sequence[Outcome], name: str, column: str) -> float | None:
    """Return a figure that the judge gave the outcome of that name."""
    return figure(outcomes, name, lambda outcome: float(outcome.verdict[column]))


def note(outcomes: Sequence[Outcome], name: str, key: str) -> float | None:
    """Return a figure that the contender of that name noted itself."""
    return figure(outcomes, name, lambda outcome: float(outcome.notes[key]))


def ratio(outcomes: Sequence[Outcome], above: str, below: str, of: Figure = seconds) -> float | None:
    """Return the figure of one outcome divided by that of another."""
    upper, lower = figure(outcomes, above, of), figure(outcomes, below, of)
    return None if upper is None or lower is None else upper / lower


def ratio_to_best(
    outcomes: Sequence[Outcome], name: str, *, not_peers: Sequence[str], of: Figure = seconds
) -> float | None:
    """Return the figure of one outcome divided by the smallest figure of its peers."""
    peers = [outcome.name for outcome in outcomes if outcome.name not in (name, *not_peers)]
    ratios = (ratio(outcomes, name, peer, of) for peer in peers)
    return max((value for value in ratios if value is not None), default=None)


def heading(settings: Settings) -> str:
    """Return the machine, versions and settings of the measurements."""
    versions = []
    for package in PACKAGES:
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            versions.append(f"{package} not installed")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return (
        f"# Benchmarks\n\n"
        f"{processor()}, {CORES} cores used, {memory:.0f} GB of memory; Python {platform.python_version()}, "
        f"{', '.join(versions)}. Scale {settings.scale:g}.\n\n" + HOW.format(slow=settings.slow_seconds)
    )


def processor() -> str:
    """Return the processor's name."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def write(reports: Sequence[Report], settings: Settings, path: Path) -> None:
    """Write the reports as markdown, and as JSON beside it."""
    path.write_text("\n".join([heading(settings), *(report.markdown() for report in reports)]))
    records = [
        {
            "title": report.title,
            "outcomes": [asdict(outcome) for outcome in report.outcomes],
            "targets": [asdict(target) | {"met": target.met} for target in report.targets],
        }
        for report in reports
    ]
    path.with_suffix(".json").write_text(json.dumps({"scale": settings.scale, "reports": records}, indent=1))
