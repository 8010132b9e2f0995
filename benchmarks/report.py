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

PACKAGES = ("numpy", "scipy", "zarr", "dask", "scikit-learn", "scikit-learn-intelex", "dask-ml", "streamdr")

HOW = """\
Every run is a fresh process that starts from a warm page cache. Seconds go from the path of the store to the
model, imports excluded, best of the runs; a contender slower than {slow:g} s is not run again. Peak is the
high-water mark of the process, imports and helper processes included. Reads are the bytes that the process
read over the size of the store.
"""


@dataclass(frozen=True)
class Target:
    """A figure and the most that it may be; no figure is a target missed."""

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
                f"{outcome.peak / 1e6:.0f}",
                f"{outcome.reads:.1f}",
                *(cell(outcome.verdict.get(name, "")) for name in judged),
                str(outcome.runs),
            ]
            lines.append(row(cells))
            if outcome.notes:
                parts = ", ".join(f"{key} {cell(value)}" for key, value in outcome.notes.items())
                notes.append(f"{outcome.name}: {parts}")
        if notes:
            lines += ["", *notes]
        if self.targets:
            lines += ["", *(target.line() for target in self.targets)]
        return "\n".join(lines) + "\n"


def row(cells: Sequence[str]) -> str:
    """Return a line of a markdown table."""
    return "| " + " | ".join(text.replace("|", "/").replace("\n", " ") for text in cells) + " |"


def cell(value: float | str) -> str:
    """Return a figure with three digits, text as it is."""
    return value if isinstance(value, str) else f"{value:.3g}"


def ratio(
    outcomes: Sequence[Outcome],
    above: str,
    below: str,
    of: Callable[[Outcome], float] = lambda outcome: outcome.seconds,
) -> float | None:
    """Return what one outcome has of something (seconds, if nothing is said) over what another has."""
    by_name = {outcome.name: outcome for outcome in outcomes if not outcome.failure}
    if above not in by_name or below not in by_name:
        return None
    return of(by_name[above]) / of(by_name[below])


def verdict(outcomes: Sequence[Outcome], name: str, figure: str) -> float | None:
    """Return a figure that the judge gave an outcome."""
    for outcome in outcomes:
        if outcome.name == name and figure in outcome.verdict:
            return float(outcome.verdict[figure])
    return None


def ratio_to_fastest_peer(outcomes: Sequence[Outcome], name: str, floors: Sequence[str]) -> float | None:
    """Return the seconds of one outcome over those of the fastest peer that finished."""
    peers = [outcome.name for outcome in outcomes if outcome.name not in (name, *floors)]
    ratios = [value for peer in peers if (value := ratio(outcomes, name, peer)) is not None]
    return max(ratios, default=None)


def heading(settings: Settings) -> str:
    """Return what the figures were taken with."""
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
