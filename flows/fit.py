"""Fit the method to the input and save the model: `python flows/fit.py CONFIG`."""

# No `from __future__ import annotations`: Prefect runs this file without making it a module, and could not
# find what words stand for.

from typing import Any

import stages
from command import main
from form import Configuration
from orchestra import State, flow
from stages import Bench

from streamdr import terminal
from streamdr.reports import Report


@flow(name="fit")
def fit(config: Configuration, storage_block: str | None = None, fresh: bool = False) -> Report | State[Any]:
    """Fit the method to the input, save the model, verify it and show what it found.

    Args:
        config: What is read, what is computed, what is written, and how.
        storage_block: The block with what opens remote stores, as TYPE/NAME.
        fresh: Forget checkpoints and outputs that are up to date.
    """
    return stages.run(_stages, [config], storage_block, fresh)


def _stages(bench: Bench) -> Report:
    reports = {"plan": stages.plan(bench), "fit": stages.fit(bench)}
    model = bench.without_rows()
    reports["verify"] = stages.verify(model)
    stages.summarise(model, reports)
    return reports


if __name__ == "__main__":
    main(
        __doc__,
        lambda configs, block, fresh: fit(configs[0], block, fresh, return_state=True),
        lambda reports: terminal.fitted(reports["fit"]),
        Configuration,
    )
