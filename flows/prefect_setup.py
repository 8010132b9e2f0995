"""Sets up Prefect before it is imported: no telemetry, no prompts, plain logs. All flows import it from here.

`prefect.toml` is read in the directory of the project only, and flows are started from anywhere.
"""

# ruff: noqa: E402

from __future__ import annotations

import os

for _name, _value in {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
    "PREFECT_CLI_PROMPT": "false",
    "PREFECT_LOGGING_COLORS": "false",
    "PREFECT_LOGGING_FORMATTERS_STANDARD_FLOW_RUN_FMT": "%(asctime)s | %(flow_name)s | %(message)s",
    "PREFECT_LOGGING_FORMATTERS_STANDARD_TASK_RUN_FMT": "%(asctime)s | %(task_name)s | %(message)s",
}.items():
    os.environ.setdefault(_name, _value)

from prefect import flow, get_run_logger, task
from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.blocks.core import Block
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy, State
from prefect.exceptions import ObjectNotFound, TerminationSignal
from prefect.runner import Runner
from prefect.schedules import Cron, Schedule
from prefect.settings import PREFECT_API_URL, get_current_settings, temporary_settings
from prefect.states import Cancelled, Failed
from prefect.tasks import Task, exponential_backoff

__all__ = [
    "NO_CACHE",
    "PREFECT_API_URL",
    "Block",
    "Cancelled",
    "ConcurrencyLimitConfig",
    "ConcurrencyLimitStrategy",
    "Cron",
    "Failed",
    "ObjectNotFound",
    "Runner",
    "Schedule",
    "State",
    "Task",
    "TerminationSignal",
    "create_markdown_artifact",
    "create_progress_artifact",
    "create_table_artifact",
    "exponential_backoff",
    "flow",
    "get_client",
    "get_current_settings",
    "get_run_logger",
    "task",
    "temporary_settings",
    "update_progress_artifact",
]
