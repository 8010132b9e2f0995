"""Applies `--set section.key=value` of the command line to a document, as if it were written there."""

from __future__ import annotations

import re
from typing import Any

from streamdr.config.problems import KeyPath, Problem, SourcePosition, refusal
from streamdr.config.wording import show
from streamdr.config.yaml_source import Parsed, parse_yaml
from streamdr.core.safe_text import redact_value


def override(document: Parsed, argument: str) -> None:
    """Set one key, and add the sections around it if they are missing. The value is YAML."""
    dotted, equals, text = argument.partition("=")
    # Errors here show the key only, because the value may be a secret.
    shown = dotted if equals else re.split("[^\\w.]", dotted, maxsplit=1)[0]
    place = SourcePosition(f"--set {redact_value(shown)}".strip())
    path = tuple(key.strip() for key in dotted.split("."))
    if not equals or not all(path):
        raise refusal(Problem(place, (), "expected key=value, such as method.n_components=10"))
    given = parse_yaml(text, lambda line, column: place)
    section = document.data
    for depth, key in enumerate(path[:-1], start=1):
        if isinstance(section, dict) and section.get(key) is None:
            section[key] = {}
            document.keys[path[:depth]] = place
        section = section[_index(section, path[:depth], place)]
        if not isinstance(section, dict | list):
            raise refusal(Problem(place, path[:depth], f"{show(section)} is not a section and has no keys"))
    section[_index(section, path, place)] = given.data
    for places, new in ((document.keys, given.keys), (document.values, given.values)):
        for replaced in [old for old in places if old[: len(path)] == path]:
            del places[replaced]
        places |= {path + below: place for below in ((), *new)}


def _index(section: Any, path: KeyPath, place: SourcePosition) -> str | int:
    """Return the last key of a path as an index of its section: for a list it is a number from 0."""
    key = path[-1]
    if isinstance(section, dict):
        return key
    if not (key.isdecimal() and int(key) < len(section)):
        raise refusal(Problem(place, path, f"a list of {len(section)} has the keys 0 to {len(section) - 1}"))
    return int(key)
