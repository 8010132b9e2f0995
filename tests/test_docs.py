"""The documentation says what the code does."""

from __future__ import annotations

import json
import re
from configparser import ConfigParser
from pathlib import Path

import pytest

from streamdr import config
from streamdr.config.comparisons import ComparisonOutput
from streamdr.config.keys import Key, keys_of
from streamdr.config.sections import Execution, Input, Output
from streamdr.examples import Example
from streamdr.methods import METHODS
from streamdr.settings import TLS, Adaptive, Cluster
from streamdr.synthetic import Synthetic

ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
SECTIONS = {
    "input": Input,
    "input.synthetic": Synthetic,
    "input.example": Example,
    **METHODS,
    "output": Output,
    "output of a comparison": ComparisonOutput,
    "execution": Execution,
    "execution.cluster": Cluster,
    "execution.cluster.adaptive": Adaptive,
    "execution.tls": TLS,
}


def page(name: str) -> str:
    return (ROOT / name).read_text()


def table(text: str) -> list[list[str]]:
    """The cells of a table's rows, without its heading."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [re.split(r" (?<!\\)\| ", line.strip("| ")) for line in lines[2:]]


def described(key: Key) -> list[str]:
    default = "*required*" if key.required else f"`{json.dumps(key.default)}`"
    return [f"`{key.name}`", default, key.description.replace("|", r"\|")]


@pytest.mark.parametrize("name", SECTIONS)
def test_every_key_is_in_the_reference_with_its_default_and_its_meaning(name):
    (text,) = re.findall(rf"^#+ {re.escape(name)}\n(.*?)(?=^#|\Z)", page("docs/CONFIG.md"), re.M | re.S)
    assert table(text) == [described(key) for key in keys_of(SECTIONS[name]).values()]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_configuration_that_is_shown_can_be_loaded(path):
    for text in re.findall(r"^```yaml\n(.*?)^```$", path.read_text(), re.M | re.S):
        compares = re.search("^methods:", text, re.M)
        (config.parse_comparison if compares else config.parse)(text, name=str(path))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_link_leads_somewhere(path):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text()):
        assert (path.parent / target).exists(), target


def test_the_map_of_modules_is_complete():
    there = {entry.stem for entry in (ROOT / "streamdr").iterdir() if not entry.name.startswith(("_", "py."))}
    (text,) = re.findall(r"^## The modules\n(.*?)^## ", page("docs/ARCHITECTURE.md"), re.M | re.S)
    listed = [row[0].strip("`/").removesuffix(".py") for row in table(text)]
    assert sorted(listed) == sorted(there)


def test_the_layers_are_those_that_the_linter_holds():
    contracts = ConfigParser()
    contracts.read(ROOT / ".importlinter")
    held = [
        line.split(" | ")
        for line in contracts["importlinter:contract:direction"]["layers"].split("\n")
        if line
    ]
    (text,) = re.findall(r"^```\n(__main__\n.*?)^```$", page("docs/ARCHITECTURE.md"), re.M | re.S)
    drawn = [line.split(", ") for line in text.splitlines()]
    assert [sorted(layer) for layer in drawn] == [sorted(layer) for layer in held]
