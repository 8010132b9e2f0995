"""Commands that are disturbed, and must end with the same files as without disturbance."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import zarr
from command_line import succeed, write_config, write_store
from killing import Survived, chunks, harass, timed, tree
from nightly import correlated

Make = Callable[[Path], object]
"""Writes the input and the configuration of a command into a folder."""


@dataclass(frozen=True)
class Undisturbed:
    """A folder with the outputs of a command that was not disturbed, and its duration."""

    place: Path
    seconds: float


def undisturbed(words: list[str], make: Make, place: Path) -> Undisturbed:
    place.mkdir()
    make(place)
    return Undisturbed(place, timed(*words, cwd=place))


def require_same(place: Path, whole: Path, about: object = None) -> None:
    """Check that all files and all values in a folder are those of the undisturbed one."""
    assert tree(place) == tree(whole), about
    assert chunks(place / "out") == chunks(whole / "out"), about


def survive(words: list[str], make: Make, kills: int, seed: int, root: Path) -> list[Survived]:
    """Run a command in new folders, with kills at random times, until there were enough kills."""
    whole = undisturbed(words, make, root / "undisturbed")
    chance, longest, rounds = random.Random(seed), whole.seconds, list[Survived]()
    while sum(survived.kills for survived in rounds) < kills:
        place = root / f"round {len(rounds)}"
        place.mkdir()
        make(place)
        survived = harass(*words, cwd=place, longest=longest, chance=chance)
        require_same(place, whole.place)
        shutil.rmtree(place)
        rounds.append(survived)
        if not survived.kills:
            longest = min(longest, survived.seconds)  # the first run of all is often the slowest
    return rounds


# Commands with so little data that they spend their time on leases, checkpoints and publishing


def small(place: Path, rows: int = 350) -> None:
    write_store(place / "x.zarr", correlated(rows, 6), chunks=(100, 6))
    output = {"embedding": "out/z.zarr", "refresh_tolerance": 0.5}
    write_config(place, input={"path": "x.zarr"}, output=output)


def grown(place: Path, rows: int = 500) -> None:
    """Write outputs, and then append rows to their input."""
    small(place)
    succeed("run", "config.yaml", cwd=place)
    array = zarr.open_array(place / "x.zarr", mode="r+")
    array.resize((rows, 6))
    array[350:] = correlated(rows, 6, seed=1)[350:]


def changed(place: Path) -> None:
    """Write outputs of two configurations with another value of an option."""
    small(place)
    (place / "configs").mkdir()
    for k in (1, 2):
        output = {name: f"out/{name}-{k}.zarr" for name in ("model", "embedding")}
        write_config(place, input={"path": "x.zarr"}, method={"n_components": k}, output=output)
        shutil.move(place / "config.yaml", place / "configs" / f"{k}.yaml")
    succeed("reprocess", "configs", "--set", "method.whiten=pca", cwd=place)


def named(place: Path, rows: int = 350) -> None:
    """Write a table with missing values, whose outputs have the names of its columns as a coordinate."""
    values = correlated(rows, 6)
    values[::7, 2] = np.nan
    names = {"feature_names": ["wind", "rain", "snow", "größe", "e", "f"]}
    write_store(place / "x.zarr", values, chunks=(100, 6), attributes=names)
    method = {"name": "ppca", "n_components": 2, "max_iter": 5}
    write_config(place, input={"path": "x.zarr"}, method=method, output={"imputed": "out/filled.zarr"})


PUBLISHING: dict[str, tuple[list[str], Make]] = {
    "small": (["run", "config.yaml"], small),
    "grown": (["run", "config.yaml"], grown),
    "changed": (["reprocess", "configs"], changed),
    "named": (["run", "config.yaml"], named),
}
