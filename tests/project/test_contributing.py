"""The worked example in CONTRIBUTING.md: pasted as a folder and a line, it is a method like any other."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr
from narrowing import present
from sklearn.preprocessing import MinMaxScaler

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
CODE = re.findall(r"^```python(?: (\S+))?\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
FILES = {path: code for path, code in CODE if path}
(LAWS,) = (code for path, code in CODE if not path)
(LINE,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)

METHOD = """
input: {path: x.zarr}
method: {name: minmax, top: 2.5}
output: {model: model.zarr, embedding: scaled.zarr}
"""
FACE = """
import numpy, streamdr, sys
from sklearn.base import clone

data = numpy.random.default_rng(1).normal(size=(40, 5))
fitted = clone(streamdr.MinMax(top=3.0)).fit(data)
fitted.save("face.zarr")
loaded = streamdr.load_model("face.zarr")
assert numpy.array_equal(loaded.transform(data), fitted.transform(data))
assert "MinMax" in streamdr.__all__
numpy.save("face.npy", loaded.transform(data))
"""


class Project:
    """A copy of the project with the example in it."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def run(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment with the modules of the copy."""
        program = Path(sys.executable).with_name(words[0])
        environment = os.environ | {"PYTHONPATH": str(self.place)}
        command = [sys.executable, *words[1:]] if words[0] == "python" else [str(program), *words[1:]]
        return subprocess.run(
            command, cwd=cwd or self.place, env=environment, capture_output=True, text=True, check=False
        )


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """The project as it is, with one folder and one line more, and what is derived from them."""
    place = tmp_path_factory.mktemp("pasted") / "project"
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    for name in filter(None, names):
        if (ROOT / name).exists() and not name.startswith(("docs/images/", "tests/golden/bucket/")):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name, follow_symlinks=False)
    if (ROOT / ".mypy_cache").exists():
        shutil.copytree(ROOT / ".mypy_cache", place / ".mypy_cache")
    for path, code in FILES.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(code)
    registry = place / "streamdr" / "methods" / "__init__.py"
    found = re.search(r"^FAMILIES = \(.*?(?=^\))", registry.read_text(), re.MULTILINE | re.DOTALL)
    families = present(found)[0]
    registry.write_text(registry.read_text().replace(families, families + LINE))
    pasted = Project(place)
    made = pasted.run("python", "tools/derive.py")
    assert made.returncode == 0, made.stderr
    return pasted


@pytest.mark.parametrize(
    "linter",
    [
        ["ruff", "check"],
        ["ruff", "format", "--check"],
        ["mypy"],
        ["lint-imports", "--no-logo"],
        ["python", "tools/derive.py", "--check"],
    ],
    ids=" ".join,
)
def test_it_passes_the_linters(project, linter):
    done = project.run(*linter)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_keeps_the_laws(project):
    done = project.run("python", "-c", LAWS)
    assert done.returncode == 0, done.stderr


def test_the_tests_over_the_registry_pass_with_it(project):
    pages = ["tests/project/test_docs.py", "tests/project/test_docstrings.py"]
    chosen = ["-k", "minmax or every_accumulator or every_example", "tests/laws", "tests/contract", *pages]
    done = project.run("pytest", *chosen)
    assert done.returncode == 0, done.stdout
    assert int(present(re.search(r"(\d+) passed", done.stdout))[1]) > 10


def test_it_runs_from_a_configuration(project, tmp_path):
    data = np.random.default_rng(0).normal(size=(500, 7)) + np.arange(7)
    zarr.create_array(tmp_path / "x.zarr", data=data, chunks=(64, 7))
    (tmp_path / "minmax.yaml").write_text(METHOD)
    done = project.run("python", "-m", "streamdr", "run", "minmax.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "scaled.zarr" in done.stdout
    want = MinMaxScaler(feature_range=(0, 2.5)).fit_transform(data)
    scaled = np.asarray(zarr.open_array(tmp_path / "scaled.zarr" / "embedding", mode="r")[:])
    np.testing.assert_allclose(scaled, want, rtol=0, atol=1e-14)
    words = ["python", "-m", "streamdr", "plan", "minmax.yaml", "--set", "method.top=-1.0"]
    refused = project.run(*words, cwd=tmp_path)
    assert refused.returncode == 2
    assert re.search(r"method\.top: -1.* is not above 0", refused.stderr)


def test_its_parameters_are_in_the_schema(project):
    schema = json.loads((project.place / "configs" / "schema.json").read_text())
    choices = {choice["title"]: choice for choice in schema["properties"]["method"]["oneOf"]}
    assert choices["minmax"]["properties"]["top"]["description"] == "The largest value of the result."


def test_it_has_a_scikit_learn_face_and_comes_back_from_disk(project, tmp_path):
    done = project.run("python", "-c", FACE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    data = np.random.default_rng(1).normal(size=(40, 5))
    want = MinMaxScaler(feature_range=(0, 3)).fit_transform(data)
    np.testing.assert_allclose(np.load(tmp_path / "face.npy"), want, rtol=0, atol=1e-14)
