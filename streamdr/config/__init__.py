"""Configuration: YAML to a typed run, and the JSON Schema that editors complete and check it by."""

from __future__ import annotations

from streamdr.config.loading import load, load_all, parse, read
from streamdr.config.schema import schema
from streamdr.config.sections import Execution, Input, Output, Run

__all__ = ["Execution", "Input", "Output", "Run", "load", "load_all", "parse", "read", "schema"]
