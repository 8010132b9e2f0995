"""Run several methods on one input, and write one table: `python flows/compare.py CONFIG`."""

# No `from __future__ import annotations`: Prefect runs this file without making it a module, and could not
# resolve the names in annotations.

from typing import Any

from streamdr.flows import stages
from streamdr.flows.command import main
from streamdr.flows.parameters import Comparison
from streamdr.flows.prefect_setup import State, flow
from streamdr.flows.stages import StageRunner
from streamdr.workflow import report_text
from streamdr.workflow.reports import CompareReport


@flow(name="compare")
def compare(
    config: Comparison, storage_block: str | None = None, fresh: bool = False
) -> CompareReport | State[Any]:
    """Run every method that is not up to date, write the table, verify each output and show the table.

    Args:
        config: The configuration: input, methods, output and execution.
        storage_block: The Prefect block with the storage options of remote stores, as TYPE/NAME.
        fresh: Ignore checkpoints and outputs that are up to date.
    """

    def work(runner: StageRunner) -> CompareReport:
        report = stages.compare(runner)
        for each in runner.with_configurations(config.runs()).one_by_one():
            stages.verify(each)
        return report

    return stages.run(work, [config], storage_block, fresh)


if __name__ == "__main__":
    main(
        __doc__,
        lambda configs, block, fresh: compare(configs[0], block, fresh, return_state=True),
        report_text.compared,
        Comparison,
    )
