"""Flows keep to themselves: nothing is reported to anybody, and Prefect has one importer."""

from __future__ import annotations

import re
import tomllib

from prefect.settings import get_current_settings
from prefect_server import FLOWS

from streamdr.flows.prefect_setup import flow

PROJECT = FLOWS.parent


def test_telemetry_is_off_wherever_a_flow_is_started():
    assert flow
    assert get_current_settings().server.analytics_enabled is False


def test_telemetry_is_off_in_the_projects_own_settings():
    settings = tomllib.loads((PROJECT / "prefect.toml").read_text())
    assert settings["server"]["analytics_enabled"] is False
    assert settings["server"]["api"]["host"] == "127.0.0.1"


def test_one_file_imports_prefect():
    importing = re.compile(r"^\s*(?:import|from) prefect\b", re.MULTILINE)
    trees = [*FLOWS.glob("*.py"), *(PROJECT / "streamdr").rglob("*.py")]
    assert [path.name for path in trees if importing.search(path.read_text())] == ["prefect_setup.py"]
