"""Map the input through the saved model: `python flows/transform.py CONFIG`."""

# No `from __future__ import annotations`: Prefect runs this file without making it a module, and could not
# resolve the names in annotations.

from typing import Any

from streamdr.flows import stages
from streamdr.flows.command import main
from streamdr.flows.parameters import Configuration
from streamdr.flows.prefect_setup import State, flow
from streamdr.flows.stages import StageRunner
from streamdr.workflow import report_text
from streamdr.workflow.reports import StagesReport


@flow(name="transform")
def transform(
    config: Configuration, storage_block: str | None = None, fresh: bool = False
) -> StagesReport | State[Any]:
    """Write the outputs of rows with the saved model, verify them and show a summary.

    Args:
        config: The configuration: input, method, output and execution.
        storage_block: The Prefect block with the storage options of remote stores, as TYPE/NAME.
        fresh: Write outputs again that are up to date.
    """
    return stages.run(_stages, [config], storage_block, fresh)


def _stages(runner: StageRunner) -> StagesReport:
    transformed = stages.transform(runner)
    reports = StagesReport(transform=transformed, verify=stages.verify(runner))
    stages.summarise(runner, reports)
    return reports


if __name__ == "__main__":
    main(
        __doc__,
        lambda configs, block, fresh: transform(configs[0], block, fresh, return_state=True),
        report_text.ran,
        Configuration,
    )
