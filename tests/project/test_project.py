"""The files around the code agree with each other and with the code."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import streamdr

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
REQUIREMENTS = [Requirement(text) for text in sum(EXTRAS.values(), PROJECT["dependencies"])]
OTHERS = {req.name: req for req in REQUIREMENTS if req.name != "streamdr"}
PINS = (ROOT / "requirements" / "constraints.txt").read_text().splitlines()

TEXTS = ("*.md", "*.toml", "*.txt", "*.yaml", "*.py", "Makefile", ".importlinter", ".ci/run", "LICENSE")
TREES = ("streamdr", "flows", "tests", "benchmarks", "docs", "configs", "requirements")


def texts() -> list[Path]:
    here = [path for pattern in TEXTS for path in ROOT.glob(pattern)]
    below = [path for tree in TREES for pattern in TEXTS for path in (ROOT / tree).rglob(pattern)]
    return [path for path in here + below if not any(part.startswith(".data") for part in path.parts)]


def test_the_version_is_the_same_everywhere():
    assert PROJECT["version"] == streamdr.__version__
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == streamdr.__version__


def test_a_pin_is_a_name_and_a_version():
    for line in PINS:
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9._]+", line), line


@pytest.mark.parametrize("requirement", OTHERS.values(), ids=str)
def test_every_dependency_is_bounded_and_pinned_within_its_bounds(requirement):
    assert {"<", ">="} == {clause.operator for clause in requirement.specifier}
    pins = {canonicalize_name(name): version for name, version in (line.split("==") for line in PINS)}
    assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)])


def test_an_extra_that_is_named_exists():
    named = {
        extra
        for path in texts()
        for listed in re.findall(r"(?:streamdr|'\.)\[([a-z0-9,]+)\]", path.read_text())
        for extra in listed.split(",")
    }
    assert {"parquet", "hdf5", "plots"} <= named <= EXTRAS.keys()


def test_the_licence_is_the_one_declared():
    assert PROJECT["license"] == "BSD-3-Clause"
    assert (ROOT / "LICENSE").read_text().startswith("BSD 3-Clause License\n")


def test_ci_runs_the_linters_and_then_the_tests():
    steps = re.findall(r"^step (\w+)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert steps == ["install", "lint", "demo", "test"]
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_no_file_knows_the_machine_it_was_written_on():
    places = re.compile(
        "|".join(("/" + "home/", "/" + "root/", "/" + "work/", "/" + "Users/", "file:" + "//"))
    )
    known = {str(path.relative_to(ROOT)) for path in texts() if places.search(path.read_text())}
    assert known == set()
