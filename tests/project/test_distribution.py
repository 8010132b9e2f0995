"""The source distribution installs without a compiler, and then gives the same bits."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from streamdr import PPCA

ROOT = Path(__file__).parents[2]
FIT = """
import numpy, streamdr, sys
from streamdr.core import kernels

assert streamdr.__file__.startswith(sys.argv[1]), streamdr.__file__
assert kernels.compiled is None
numpy.save("found.npy", streamdr.PPCA(2, method="em").fit(numpy.load("x.npy")).components_)
"""


def run(place: Path, *words: str, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=place,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory) -> Path:
    """A folder with the source distribution of the files that git knows, or would add."""
    place = tmp_path_factory.mktemp("sdist")
    words = [
        "git",
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "streamdr",
        "*.toml",
        "README.md",
    ]
    listed = subprocess.run([*words, "LICENSE"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (place / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
            (place / "tree" / name).write_bytes((ROOT / name).read_bytes())
    run(place / "tree", "-c", "from setuptools.build_meta import build_sdist; build_sdist('..')")
    (archive,) = place.glob("streamdr-*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(place, filter="data")
    (found,) = (path for path in place.iterdir() if path.is_dir() and path.name != "tree")
    return found


def test_the_source_of_the_kernels_is_in_it(unpacked):
    source = unpacked / "streamdr" / "core" / "_kernels.c"
    assert source.read_bytes() == (ROOT / "streamdr" / "core" / "_kernels.c").read_bytes()


def test_it_installs_without_a_compiler_and_gives_the_same_bits(unpacked, tmp_path):
    build = f"from setuptools.build_meta import build_wheel; build_wheel({str(tmp_path)!r})"
    run(unpacked, "-c", build, CC="no-such-compiler")
    (wheel,) = tmp_path.glob("streamdr-*.whl")
    with zipfile.ZipFile(wheel) as opened:
        names = [name for name in opened.namelist() if "_kernels." in name]
        opened.extractall(tmp_path / "site")
    assert names == ["streamdr/core/_kernels.pyi"]
    values = np.random.default_rng(0).normal(size=(300, 6))
    values[np.random.default_rng(1).random(values.shape) < 0.2] = np.nan
    np.save(tmp_path / "x.npy", values)
    run(tmp_path, "-c", FIT, str(tmp_path / "site"), PYTHONPATH=str(tmp_path / "site"))
    expected = PPCA(2, method="em").fit(values).components_
    np.testing.assert_array_equal(np.load(tmp_path / "found.npy"), expected)
