"""The documentation says what the code does."""

from __future__ import annotations

import ast
import glob
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from sklearn.datasets import load_digits

from streamdr import config
from streamdr.config.comparisons import ComparisonOutput
from streamdr.config.keys import Key, keys_of
from streamdr.config.row_selection import RowSelection
from streamdr.config.sections import ExecutionSection, Input, Output
from streamdr.core.execution import TLS, Adaptive, Cluster
from streamdr.data.examples.datasets import Example
from streamdr.data.examples.synthetic import Synthetic
from streamdr.methods import METHODS

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
SECTIONS = {
    "input": Input,
    "input.synthetic": Synthetic,
    "input.example": Example,
    RowSelection.name: RowSelection,
    **METHODS,
    "output": Output,
    "output of a comparison": ComparisonOutput,
    "execution": ExecutionSection,
    "execution.cluster": Cluster,
    "execution.cluster.adaptive": Adaptive,
    "execution.tls": TLS,
}


GUIDES = [*ROOT.glob("docs/*.md")]
BLOCK = r"(?:`(\w+\.yaml)`:\n\n)?^( *)```(\S*)\n(.*?)^\2```$"
"""A block of code, with its indentation, and the name of the file if a line before it gives one."""
LANGUAGES = {"python", "py", "sh", "yaml", "ini", "text", ""}
"""`py` is for code that needs what is not here, such as a bucket or a server."""


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
    rooms = text.partition("\nImports point one way.")[0]
    listed = [row[0].strip("`/").removesuffix(".py") for row in table(rooms)]
    assert sorted(listed) == sorted(there)


def test_the_layers_are_those_that_the_linter_holds():
    contracts = ConfigParser()
    contracts.read(ROOT / ".importlinter")
    held = [
        re.split(r" [|:] ", line)
        for line in contracts["importlinter:contract:direction"]["layers"].split("\n")
        if line
    ]
    (text,) = re.findall(r"^```\n(__main__.*?)^```$", page("docs/ARCHITECTURE.md"), re.M | re.S)
    drawn = [line.split(", ") for line in text.splitlines()]
    assert [sorted(layer) for layer in drawn] == [sorted(layer) for layer in held]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the files that the guides speak of, small."""
    place = tmp_path_factory.mktemp("stores")
    rng = np.random.default_rng(0)
    classes = np.repeat(np.arange(3), 400)
    cells = rng.normal(size=(1200, 40)) + 2.0 * classes[:, None] * (np.arange(40) % 4 == 0)
    stations = rng.normal(size=(100, 5)) @ rng.normal(size=(5, 24)) + rng.normal(size=(100, 24))
    measured = (100 * stations).astype(np.int16)
    stations[rng.random(stations.shape) < 0.05] = np.nan
    measured[::7, 3] = -9999
    houses = rng.normal(size=(200, 8))
    towns = rng.uniform(0, 500, (40, 2))
    digits = load_digits()
    arrays: dict[str, Any] = {
        "cells.zarr/X": cells,
        "cells.zarr/y": classes,
        "test.zarr/X": cells[::3],
        "test.zarr/y": classes[::3],
        "stations.zarr": stations,
        "measurements.zarr/X": measured,
        "flags.zarr": rng.random(measured.shape) < 0.05,
        "houses.zarr/X": houses,
        "houses.zarr/y": houses[:, [1, 4, 6]] @ [3.0, 2.0, 1.0] + 0.1 * rng.normal(size=200),
        "x.zarr": rng.normal(size=(600, 60)),
        "roads.zarr/kilometres": np.linalg.norm(towns[:, None] - towns, axis=2),
        "gallery.zarr/X": digits.data[:200],
        "gallery.zarr/y": digits.target[:200],
    }
    for path, values in arrays.items():
        store, _, name = path.partition("/")
        if name:
            zarr.open_group(place / "data" / store, mode="a")
        zarr.create_array(place / "data" / path, data=values)
    for name in ("monday", "tuesday"):
        np.savetxt(place / f"{name}.csv", houses[:20, :3], delimiter=",", header="a,b,c", comments="")
    shutil.copytree(ROOT / "configs", place / "configs")
    # The gallery with fewer digits and methods: as it stands it is run in test_comparison.py.
    gallery = place / "configs" / "gallery.yaml"
    left_out = re.compile(r"^  (example:|- \{name: (?!pca|lda|nonmetric_mds)).*\n", re.M)
    gallery.write_text(left_out.sub("", gallery.read_text()))
    return place


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.name)
def test_the_code_and_the_commands_of_every_guide_run(path, stores, tmp_path, monkeypatch):
    """Each block runs in a process of its own, as a reader would run it.

    A memory limit counts what the process already holds: in the process of the tests, a run could be refused.
    """
    shutil.copytree(stores, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    for name, _, language, code in re.findall(BLOCK, path.read_text(), re.M | re.S):
        assert language in LANGUAGES
        if language == "python":
            succeed(sys.executable, "-c", code)
        elif language == "py":
            ast.parse(code)
        elif language == "sh":
            for words in (shlex.split(line, comments=True) for line in code.splitlines()):
                if words[:1] == ["streamdr"]:
                    succeed(*words)
        elif language == "yaml" and not re.search("^methods:", code, re.M):
            run = config.parse(code)
            there = all(glob.glob(path) for path in run.input.paths)
            if there and not (run.execution.cluster or run.execution.scheduler):
                Path(name or "guide.yaml").write_text(code)
                succeed("streamdr", "run", name or "guide.yaml", "--set", "output.overwrite=true")


def succeed(*words: str) -> None:
    tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(words, env={**os.environ, "PATH": tools}, capture_output=True, text=True)
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}{done.stderr}"
