"""A newcomer follows the README: the commands of its first sections, and all of its Python, work.

`tests/config/test_configs.py` runs the configurations that its other sections name, and
`tests/project/test_architecture.py` checks their commands and options.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
QUICKSTART = ROOT / "configs" / "quickstart.yaml"


def section(title: str) -> str:
    return README.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands(text: str) -> list[list[str]]:
    lines = "".join(blocks("sh", text)).splitlines()
    return [shlex.split(line, comments=True) for line in lines]


def recipe(target: str) -> list[list[str]]:
    """What make would run, with the tools that are installed here."""
    (lines,) = re.findall(rf"^{target}:.*\n((?:\t.*\n)*)", MAKEFILE, re.MULTILINE)
    return [shlex.split(line) for line in lines.replace("$(BIN)/", "").splitlines()]


def succeed(*words: str, cwd: Path) -> None:
    tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(words, cwd=cwd, env={**os.environ, "PATH": tools}, capture_output=True, text=True)
    assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}{done.stderr}"


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """A place where the quickstart can be run, on less data."""
    place = tmp_path_factory.mktemp("clone")
    (place / "configs").mkdir()
    shutil.copytree(ROOT / "flows", place / "flows")
    shutil.copy(QUICKSTART, place / "configs")
    large, small = "n_rows: 200000\n", "n_rows: 3000\n"
    assert large in QUICKSTART.read_text()
    (place / "configs" / QUICKSTART.name).write_text(QUICKSTART.read_text().replace(large, small))
    return place


def test_the_first_five_minutes_and_then_python(clone):
    for words in commands(section("Five minutes")):
        if words == ["make", "install"]:
            continue  # this is what these tests run in
        for step in recipe(words[1]) if words[0] == "make" else [words]:
            succeed(*step, cwd=clone)
    succeed(sys.executable, "-c", "\n".join(blocks("python", section("From Python"))), cwd=clone)
    assert zarr.open_array(clone / "out/quickstart/scores.zarr/embedding").shape == (3000, 10)
    assert {path.name for path in clone.glob("out/*.png")} == {"explained_variance.png", "scores.png"}


def test_data_of_ones_own(tmp_path):
    data = np.random.default_rng(0).normal(size=(400, 6)) * [9, 7, 5, 3, 2, 1] + 50
    header = ",".join(f"sensor_{i}" for i in range(6))
    np.savetxt(tmp_path / "measurements.csv", data, delimiter=",", header=header, comments="")
    text = section("Your own data")
    (name,) = re.findall(r"`(\w+\.yaml)`:\n", text)
    (configuration,) = blocks("yaml", text)
    (tmp_path / name).write_text(configuration)
    for words in commands(text):
        succeed(*words, cwd=tmp_path)
    centred = data - data.mean(axis=0)
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    scores = zarr.open_array(tmp_path / "out/scores.zarr/embedding")[:]
    np.testing.assert_allclose(np.abs(scores), np.abs(u[:, :3] * s[:3]), rtol=0, atol=1e-9)


def test_every_make_target_that_is_named_exists():
    named = set(re.findall(r"`make ([a-z-]+)`", README)) | {
        words[1] for words in commands(README) if words[0] == "make"
    }
    assert named <= set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))


def test_the_pictures_are_there():
    pictures = re.findall(r'src="([^"]+)"', README)
    assert pictures
    for picture in pictures:
        assert (ROOT / picture).read_bytes().startswith(b"\x89PNG")
