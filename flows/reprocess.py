"""Bring outputs up to date with configurations that changed: `python flows/reprocess.py CONFIG...`."""

# No `from __future__ import annotations`: Prefect runs this file without making it a module, and could not
# resolve the names in annotations.

from typing import Any

from streamdr.flows import stages
from streamdr.flows.command import main
from streamdr.flows.parameters import Configuration
from streamdr.flows.prefect_setup import State, flow
from streamdr.flows.stages import StageRunner
from streamdr.workflow import report_text
from streamdr.workflow.reports import ReprocessReport, StagesReport


@flow(name="reprocess")
def reprocess(
    configs: list[Configuration], storage_block: str | None = None, fresh: bool = False
) -> ReprocessReport | State[Any]:
    """Run the stages that are stale, then verify every output and show its summary.

    Args:
        configs: One configuration, or several on one input, which share their passes.
        storage_block: The Prefect block with the storage options of remote stores, as TYPE/NAME.
        fresh: Treat everything as stale.
    """
    return stages.run(_stages, configs, storage_block, fresh)


def _stages(runner: StageRunner) -> ReprocessReport:
    report = stages.reprocess(runner)
    for each in runner.one_by_one():
        stages.summarise(each, StagesReport(verify=stages.verify(each)))
    return report


if __name__ == "__main__":
    main(
        __doc__,
        lambda configs, block, fresh: reprocess(configs, block, fresh, return_state=True),
        report_text.reprocessed,
        Configuration,
        several=True,
    )
