"""Commands that are disturbed, and must end with what the same command makes when nobody disturbs it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import zarr
from command_line import succeed, write_config, write_store
from killing import Survived, chunks, harass, timed, tree
from nightly import correlated

Make = Callable[[Path], object]
"""Puts into a place what a command needs."""


@dataclass(frozen=True)
class Undisturbed:
    """A place with all that a command makes, and how long it took."""

    place: Path
    seconds: float


def undisturbed(words: list[str], make: Make, place: Path) -> Undisturbed:
    place.mkdir()
    make(place)
    return Undisturbed(place, timed(*words, cwd=place))


def require_same(place: Path, whole: Path, about: object = None) -> None:
    """All files and all values in a place are those of the undisturbed one."""
    assert tree(place) == tree(whole), about
    assert chunks(place / "out") == chunks(whole / "out"), about


def survive(words: list[str], make: Make, kills: int, seed: int, root: Path) -> list[Survived]:
    """Kill a command until it was killed so many times, in as many places as that takes."""
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


# Commands whose data is so little that they spend their time on leases, checkpoints and publishing


def small(place: Path, rows: int = 350) -> None:
    write_store(place / "x.zarr", correlated(rows, 6), chunks=(100, 6))
    output = {"embedding": "out/z.zarr", "refresh_tolerance": 0.5}
    write_config(place, input={"path": "x.zarr"}, output=output)


def grown(place: Path, rows: int = 500) -> None:
    """Outputs of what the input was, before rows were appended."""
    small(place)
    succeed("run", "config.yaml", cwd=place)
    array = zarr.open_array(place / "x.zarr", mode="r+")
    array.resize((rows, 6))
    array[350:] = correlated(rows, 6, seed=1)[350:]


def changed(place: Path) -> None:
    """Outputs of two configurations, of which both have changed."""
    small(place)
    (place / "configs").mkdir()
    for k in (1, 2):
        output = {name: f"out/{name}-{k}.zarr" for name in ("model", "embedding")}
        write_config(place, input={"path": "x.zarr"}, method={"n_components": k}, output=output)
        shutil.move(place / "config.yaml", place / "configs" / f"{k}.yaml")
    succeed("reprocess", "configs", "--set", "method.whiten=pca", cwd=place)


PUBLISHING: dict[str, tuple[list[str], Make]] = {
    "small": (["run", "config.yaml"], small),
    "grown": (["run", "config.yaml"], grown),
    "changed": (["reprocess", "configs"], changed),
}
