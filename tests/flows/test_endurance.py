"""Run after run: memory, file handles, threads, processes and temporary files stay where they are."""

from __future__ import annotations

import gc
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from fault_counts import pieces

from streamdr.flows.fit_transform import fit_transform
from streamdr.flows.parameters import Configuration


@dataclass(frozen=True)
class Held:
    """What this process holds, and what lies about."""

    handles: int
    threads: int
    children: int
    temporary: int
    resident: int

    @classmethod
    def now(cls) -> Held:
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        tasks = list(Path("/proc/self/task").iterdir())
        children = sum(len((task / "children").read_text().split()) for task in tasks)
        return cls(
            len(os.listdir("/proc/self/fd")),
            len(tasks),
            children,
            len(os.listdir(tempfile.gettempdir())),
            pages * os.sysconf("SC_PAGE_SIZE"),
        )


@pieces("scheduled runs", few=[3], full=500, size=100)
def test_nothing_grows(count, seed, reporting, place, tmp_path, monkeypatch, tally):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    configs = [
        Configuration.load("config.yaml", [f"method.n_components={k}", "output.overwrite=true"])
        for k in (2, 3)
    ]
    for config in configs:  # what is kept once is not a leak
        fit_transform(config)
    before, outputs = Held.now(), sorted(path.name for path in (place / "out").iterdir())
    for number in range(count):
        fit_transform(configs[number % 2])
    after = Held.now()
    tally("scheduled runs", count)
    assert after.handles <= before.handles + 2
    assert after.threads <= before.threads + 2
    assert after.children <= before.children
    assert after.temporary <= before.temporary
    assert after.resident <= before.resident + 20e6 + 0.1e6 * count
    assert sorted(path.name for path in (place / "out").iterdir()) == outputs
