"""Run after run in one process: memory and file handles stay where they are."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from fit_transform import fit_transform
from form import Configuration


def handles() -> int:
    return len(os.listdir("/proc/self/fd"))


def resident() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("runs", [3, pytest.param(100, marks=pytest.mark.slow)])
def test_nothing_grows(runs, reporting, place):
    configs = [
        Configuration.load("config.yaml", [f"method.n_components={k}", "output.overwrite=true"])
        for k in (2, 3)
    ]
    for config in configs:  # what is kept once is not a leak
        fit_transform(config)
    open_before, held_before = handles(), resident()
    for number in range(runs):
        fit_transform(configs[number % 2])
    assert handles() <= open_before + 2
    assert resident() <= held_before + 20e6 + 0.1e6 * runs
