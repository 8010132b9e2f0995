"""The names in the documentation exist in the code."""

from __future__ import annotations

import ast
import re
from configparser import ConfigParser
from importlib import import_module
from pathlib import Path

import pytest
import typer.core
import typer.main
from narrowing import checked

from streamdr.cli.app import app
from streamdr.config.comparisons import ComparisonOutput
from streamdr.config.keys import keys_of
from streamdr.config.sections import ExecutionSection, Input, Output
from streamdr.estimators import ESTIMATORS
from streamdr.methods import METHODS

ROOT = Path(__file__).parents[2]
PAGES = ("docs/ARCHITECTURE.md", "CONTRIBUTING.md")
GUIDES = sorted(str(path.relative_to(ROOT)) for path in [ROOT / "README.md", *ROOT.glob("docs/*.md")])
FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
MADE_LATER = {"benchmarks/results.md", "pca.yaml", "sst.yaml", "regions.yaml", "cloudy.yaml"}
"""Files that a benchmark or the reader makes."""
ELSEWHERE = {
    *("Pipeline", "LinearDiscriminantAnalysis", "LinearRegression", "Ridge", "SequentialFeatureSelector"),
    *("StandardScaler", "TruncatedSVD", "DataArray", "Dataset", "LazyFrame", "KubeCluster", "Secret"),
}
"""Classes of scikit-learn, xarray, polars, dask-kubernetes and Prefect."""


def quoted(page: str) -> list[str]:
    """What stands in backticks in the text, outside of blocks of code."""
    return re.findall(r"`([^`\n]+)`", FENCE.sub("", (ROOT / page).read_text()))


def defined() -> set[str]:
    """Every class of the package and its aliases, and every `Class.member`."""
    names, aliases = set(), {}
    for path in [*ROOT.glob("streamdr/**/*.py"), *ROOT.glob("flows/*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                names.add(node.name)
                names |= {f"{node.name}.{member}" for member in members(node)}
            match node:
                case ast.AnnAssign(
                    target=ast.Name(id=alias),
                    annotation=ast.Name(id="TypeAlias"),
                    value=ast.Subscript(value=ast.Name(id=name)),
                ):
                    aliases[alias] = name
    for alias, name in aliases.items():
        names |= {alias + found[len(name) :] for found in names if found.partition(".")[0] == name}
    return names


def members(node: ast.ClassDef) -> set[str]:
    functions = {child.name for child in node.body if isinstance(child, ast.FunctionDef)}
    fields = {
        child.target.id
        for child in node.body
        if isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name)
    }
    return functions | fields


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", *GUIDES])
def test_every_path_that_is_named_exists(page):
    paths = {text for text in quoted(page) if re.fullmatch(r"[\w./-]+(\.(py|md|yaml|toml|txt|ini)|/)", text)}
    named = {path for path in paths if "NAME" not in path} - MADE_LATER
    assert {
        path for path in named if not any((root / path).exists() for root in (ROOT, ROOT / "streamdr"))
    } == set()


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", *GUIDES])
def test_every_class_and_member_that_is_named_exists(page):
    words = {text for text in quoted(page) if re.fullmatch(r"[A-Z][a-z]+[A-Za-z]*(\.\w+)?", text)}
    estimators = {estimator.__name__ for estimator in ESTIMATORS.values()}
    assert words - defined() - estimators <= ELSEWHERE


@pytest.mark.parametrize("page", GUIDES)
def test_every_public_name_exists(page):
    for name in {text for text in quoted(page) if re.fullmatch(r"streamdr(\.\w+)+", text)}:
        found = import_module("streamdr")
        for word in name.split(".")[1:]:
            found = getattr(found, word, None) or import_module(f"{found.__name__}.{word}")


@pytest.mark.parametrize("page", GUIDES)
def test_every_fitted_attribute_that_is_named_is_that_of_an_estimator(page):
    known = set()
    for estimator in ESTIMATORS.values():
        known |= set(re.findall(r"^ *(\w+_) : ", estimator.__doc__ or "", re.MULTILINE)) | set(dir(estimator))
    assert {text for text in quoted(page) if re.fullmatch(r"[a-z]\w*_", text)} - known == set()


@pytest.mark.parametrize("page", GUIDES)
def test_every_key_that_is_named_exists(page):
    sections: dict[str, list[type]] = {
        "input": [Input],
        "output": [Output, ComparisonOutput],
        "execution": [ExecutionSection],
    }
    known = {f"{name}.{key}" for name, kinds in sections.items() for kind in kinds for key in keys_of(kind)}
    known |= {f"method.{key}" for method in METHODS.values() for key in keys_of(method)}
    named = {
        found[0]
        for text in quoted(page)
        if (found := re.match(r"(input|output|execution|method)\.\w+", text))
    }
    assert named - known == set()


@pytest.mark.parametrize("page", GUIDES)
def test_every_command_and_option_that_is_named_exists(page):
    commands = checked(typer.core.TyperGroup, typer.main.get_command(app)).commands
    for name, words in re.findall(r"streamdr ([a-z]+)\b([^`\n#]*)", "\n".join(commanded(page))):
        options = {option for parameter in commands[name].params for option in parameter.opts}
        assert set(re.findall(r"(?<!\S)--[a-z-]+", words)) <= options | {"--help"}, name


def commanded(page: str) -> list[str]:
    """The lines that call the command: in backticks, or in blocks for the shell."""
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    lines = [*quoted(page), *"".join(blocks).splitlines()]
    return [line for line in lines if line.startswith("streamdr ")]


def test_every_package_has_the_home_that_the_linter_allows():
    contracts = ConfigParser()
    contracts.read(ROOT / ".importlinter")
    allowed: dict[str, set[str]] = {}
    for line in filter(None, contracts["importlinter:contract:homes"]["ignore_imports"].split("\n")):
        importer, _, package = line.partition(" -> ")
        room = importer.removeprefix("streamdr.").replace(".**", "").replace(".*", "")
        allowed.setdefault(package, set()).add(room)
    (text,) = re.findall(r"^\| Package .*?(?=\n\n)", (ROOT / PAGES[0]).read_text(), re.M | re.S)
    rows = [line.strip("| ").split(" | ") for line in text.splitlines()[2:]]
    assert {package: set(re.findall(r"`([^`]+)`", rooms)) for package, rooms in rows} == allowed
