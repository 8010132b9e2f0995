"""The `--set section.key=value` of the command line, put into a document as if written there."""

from __future__ import annotations

from streamdr.config.problems import Place, Problem, refusal
from streamdr.config.wording import show
from streamdr.config.yaml_source import Parsed, parse_yaml


def override(document: Parsed, argument: str) -> None:
    """Set one key, making the sections around it where there are none; the value is YAML."""
    place = Place(f"--set {argument}")
    dotted, equals, text = argument.partition("=")
    path = tuple(key.strip() for key in dotted.split("."))
    if not equals or not all(path):
        raise refusal(Problem(place, (), "expected key=value, such as method.n_components=10"))
    given = parse_yaml(text, lambda line, column: place)
    section = document.data
    for depth, key in enumerate(path[:-1], start=1):
        if section.get(key) is None:
            section[key] = {}
            document.keys[path[:depth]] = place
        section = section[key]
        if not isinstance(section, dict):
            raise refusal(Problem(place, path[:depth], f"{show(section)} is not a section and has no keys"))
    section[path[-1]] = given.data
    for places, new in ((document.keys, given.keys), (document.values, given.values)):
        for replaced in [old for old in places if old[: len(path)] == path]:
            del places[replaced]
        places |= {path + below: place for below in ((), *new)}
