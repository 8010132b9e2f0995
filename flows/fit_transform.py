"""Fit the method, save the model, write what is asked for of rows: `python flows/fit_transform.py CONFIG`."""

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


@flow(name="fit-transform")
def fit_transform(
    config: Configuration, storage_block: str | None = None, fresh: bool = False
) -> Report | State[Any]:
    """Fit the method to the input, write the embedding and what else is asked for, verify all and show it.

    Args:
        config: What is read, what is computed, what is written, and how.
        storage_block: The block with what opens remote stores, as TYPE/NAME.
        fresh: Forget checkpoints and outputs that are up to date.
    """
    return stages.run(_stages, [config], storage_block, fresh)


def _stages(bench: Bench) -> Report:
    reports = {"plan": stages.plan(bench), "fit": stages.fit(bench)}
    if bench.has_rows:
        reports["transform"] = stages.transform(bench)
    reports["verify"] = stages.verify(bench)
    stages.summarise(bench, reports)
    return reports


if __name__ == "__main__":
    main(
        __doc__,
        lambda configs, block, fresh: fit_transform(configs[0], block, fresh, return_state=True),
        terminal.ran,
        Configuration,
    )
