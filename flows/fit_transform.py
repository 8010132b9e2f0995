"""Fit the method, save the model, write the outputs of rows: `python flows/fit_transform.py CONFIG`."""

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


@flow(name="fit-transform")
def fit_transform(
    config: Configuration, storage_block: str | None = None, fresh: bool = False
) -> StagesReport | State[Any]:
    """Fit the method to the input, write the outputs of rows, verify all outputs and show a summary.

    Args:
        config: The configuration: input, method, output and execution.
        storage_block: The Prefect block with the storage options of remote stores, as TYPE/NAME.
        fresh: Ignore checkpoints and outputs that are up to date.
    """
    return stages.run(fit_and_transform, [config], storage_block, fresh)


def fit_and_transform(runner: StageRunner) -> StagesReport:
    """Run the stages, from the plan to the summary."""
    plan, fitted = stages.plan(runner), stages.fit(runner)
    transformed = stages.transform(runner) if runner.has_rows else None
    reports = StagesReport(plan, fitted, transformed, stages.verify(runner))
    stages.summarise(runner, reports)
    return reports


if __name__ == "__main__":
    main(
        __doc__,
        lambda configs, block, fresh: fit_transform(configs[0], block, fresh, return_state=True),
        report_text.ran,
        Configuration,
    )
