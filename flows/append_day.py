"""Add a day to a folder of example data, and fold it in: `python flows/append_day.py CONFIG`.

The stage `deliver` stands for whoever delivers your data. Replace it by a download, or schedule
`fit_transform`, which reads what is new in the same way.
"""

# No `from __future__ import annotations`: Prefect runs this file without making it a module, and could not
# resolve the names in annotations.

from pathlib import Path
from typing import Any

from streamdr.cli.supervisor import StageError
from streamdr.core.addresses import is_remote
from streamdr.data.examples import sea_surface
from streamdr.data.expanding import is_several
from streamdr.errors import StreamdrError
from streamdr.flows import stages
from streamdr.flows.command import main
from streamdr.flows.fit_transform import fit_and_transform
from streamdr.flows.parameters import Configuration
from streamdr.flows.prefect_setup import State, flow, get_run_logger
from streamdr.flows.stages import StageRunner
from streamdr.workflow import report_text
from streamdr.workflow.reports import StagesReport


@flow(name="append-day")
def append_day(
    config: Configuration, storage_block: str | None = None, fresh: bool = False
) -> StagesReport | State[Any]:
    """Write the next day to the folder of the input, fit, write the outputs of rows, verify and summarise.

    Args:
        config: The configuration. Its input is a folder of stores, such as days/*.zarr.
        storage_block: The Prefect block with the storage options of remote stores, as TYPE/NAME.
        fresh: Ignore checkpoints and outputs that are up to date.
    """
    return stages.run(_stages, [config], storage_block, fresh)


def _stages(runner: StageRunner) -> StagesReport:
    deliver(runner.configurations[0]["input"]["path"])
    return fit_and_transform(runner)


@stages.stage("deliver")
def deliver(path: str | list[str]) -> None:
    """Write the next day as one more store. It appears completely or not at all."""
    folder = Path(path).parent if isinstance(path, str) and not is_remote(path) else None
    if folder is None or not is_several(str(path)) or is_several(str(folder)):
        message = f"input.path: {path!r} is not a folder of stores on this machine, such as days/*.zarr"
        raise StageError("ConfigError", message, exit_code=2, can_pass=False)
    try:
        delivered = sea_surface.deliver(folder)
    except (OSError, StreamdrError) as error:
        kind, can_pass = type(error).__name__, isinstance(error, OSError)
        raise StageError(kind, str(error), exit_code=1, can_pass=can_pass) from error
    get_run_logger().info("delivered %s", delivered)


if __name__ == "__main__":
    main(
        __doc__,
        lambda configs, block, fresh: append_day(configs[0], block, fresh, return_state=True),
        report_text.ran,
        Configuration,
    )
