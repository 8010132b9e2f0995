"""Carry out several methods on one input, and write one table: `python flows/compare.py CONFIG`."""

# No `from __future__ import annotations`: Prefect runs this file without making it a module, and could not
# find what words stand for.

from typing import Any

import stages
from command import main
from form import Comparison
from orchestra import State, flow
from stages import Bench

from streamdr import terminal
from streamdr.reports import Report


@flow(name="compare")
def compare(config: Comparison, storage_block: str | None = None, fresh: bool = False) -> Report | State[Any]:
    """Carry out every method that is not up to date, write the table, verify each output and show the table.

    Args:
        config: What is read, what is compared, what is written, and how.
        storage_block: The block with what opens remote stores, as TYPE/NAME.
        fresh: Forget checkpoints and outputs that are up to date.
    """

    def work(bench: Bench) -> Report:
        report = stages.compare(bench)
        for each in bench.of(config.runs()).one_by_one():
            stages.verify(each)
        return report

    return stages.run(work, [config], storage_block, fresh)


if __name__ == "__main__":
    main(
        __doc__,
        lambda configs, block, fresh: compare(configs[0], block, fresh, return_state=True),
        terminal.compared,
        Comparison,
    )
