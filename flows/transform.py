"""Map the input through the saved model: `python flows/transform.py CONFIG`."""

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


@flow(name="transform")
def transform(
    config: Configuration, storage_block: str | None = None, fresh: bool = False
) -> Report | State[Any]:
    """Write the embedding, and what else is asked for, by the model that is there, verify it and show it.

    Args:
        config: What is read, what is computed, what is written, and how.
        storage_block: The block with what opens remote stores, as TYPE/NAME.
        fresh: Write outputs that are up to date once more.
    """
    return stages.run(_stages, [config], storage_block, fresh)


def _stages(bench: Bench) -> Report:
    reports = {"transform": stages.transform(bench)}
    reports["verify"] = stages.verify(bench)
    stages.summarise(bench, reports)
    return reports


if __name__ == "__main__":
    main(
        __doc__,
        lambda configs, block, fresh: transform(configs[0], block, fresh, return_state=True),
        lambda reports: terminal.transformed(reports["transform"]),
        Configuration,
    )
