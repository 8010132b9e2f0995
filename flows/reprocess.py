"""Bring outputs up to date with configurations that changed: `python flows/reprocess.py CONFIG...`."""

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


@flow(name="reprocess")
def reprocess(
    configs: list[Configuration], storage_block: str | None = None, fresh: bool = False
) -> Report | State[Any]:
    """Work out what is stale, stage by stage, do that and nothing else, then verify and show every output.

    Args:
        configs: One configuration, or several over one input, which share what they can.
        storage_block: The block with what opens remote stores, as TYPE/NAME.
        fresh: Take everything for stale.
    """
    return stages.run(_stages, configs, storage_block, fresh)


def _stages(bench: Bench) -> Report:
    report = stages.reprocess(bench)
    for each in bench.one_by_one():
        stages.summarise(each, {"verify": stages.verify(each)})
    return report


if __name__ == "__main__":
    main(
        __doc__,
        lambda configs, block, fresh: reprocess(configs, block, fresh, return_state=True),
        terminal.reprocessed,
        Configuration,
        several=True,
    )
