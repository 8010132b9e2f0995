"""Every file that streamdr writes, damaged in every way: a correct result or one clear error.

Nothing hangs, files of others are not changed, and no other exception is raised. By default a seeded
selection of cases runs, all of them with `pytest -m slow`.
"""

from __future__ import annotations

import functools
import json
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import streamdr, succeed
from damage import DAMAGES, census, copy_world, is_kept, make_precious, watchdog
from nightly import Heard, correlated

from streamdr import store
from streamdr.config import parse
from streamdr.errors import StreamdrError
from streamdr.store.lease import Claim
from streamdr.store.process_identity import Process
from streamdr.workflow import inspection, pipeline, plotting, verification
from streamdr.workflow.run_context import RunContext

SELECTED = 110
"""The number of cases that run by default, out of thousands."""

ROWS = correlated(240, 6)


def context_in(world: Path, **changes: Any) -> RunContext:
    config = {
        "input": {"path": str(world / "x.npy")},
        "method": {"name": "pca", "n_components": 2},
        "output": {
            "model": str(world / "out/model.zarr"),
            "embedding": str(world / "out/scores.zarr"),
            "denoised": str(world / "out/denoised.zarr"),
            "overwrite": True,
        },
        "execution": {"workers": 1, "ledger": str(world / "ledger")},
    }
    return replace(RunContext(parse(json.dumps(config)), Heard(), threading.Event()), **changes)


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Outputs, a ledger, the leases of a dead run, and files of others beside them."""
    world = tmp_path_factory.mktemp("hostile") / "world"
    world.mkdir()
    np.save(world / "x.npy", ROWS)
    pipeline.run_all(context_in(world))
    make_precious(world / "out")
    dead = replace(Claim.after(0, 30.0), holder=replace(Process.here(), started=1))
    (world / "out/.model.zarr.lease").write_bytes(dead.encode())
    (world / "out/.model.zarr.lease.new").write_bytes(dead.encode())
    (world / "out/.scores.zarr.lease").write_bytes(dead.encode())
    return world


def files(world: Path) -> list[str]:
    """Return all files that streamdr wrote."""
    written = [
        path for path in (*(world / "out").rglob("*"), *(world / "ledger").rglob("*")) if path.is_file()
    ]
    return sorted(path.relative_to(world).as_posix() for path in written if "precious" not in path.parts)


def load(world: Path) -> None:
    store.load_model(world / "out/model.zarr")
    store.open_embedding(world / "out/scores.zarr")[:]


def inspect(world: Path) -> None:
    for name in ("model", "scores", "denoised"):
        inspection.inspect(world / f"out/{name}.zarr")


def resume(world: Path) -> None:
    """Run without model and scores, but with the ledger and the other files."""
    for name in ("model", "scores"):
        path = world / f"out/{name}.zarr"
        if path.is_dir() and not path.is_symlink():
            path.rename(world / f"moved-{name}")
    pipeline.run_all(context_in(world))


def plot(world: Path) -> None:
    scores = world / "out/scores.zarr"
    plotting.draw(plotting.PlotRequest(world / "out/model.zarr", world / "a.png", embedding=scores))


ACTIONS: dict[str, Callable[[Path], object]] = {
    "load": load,
    "inspect": inspect,
    "verify": lambda world: verification.verify(context_in(world)),
    "run": lambda world: pipeline.run_all(context_in(world)),
    "fresh": lambda world: pipeline.run_all(context_in(world, fresh=True)),
    "fit": lambda world: pipeline.fit(context_in(world)),
    "transform": lambda world: pipeline.transform(context_in(world)),
    "reprocess": lambda world: pipeline.reprocess([context_in(world)]),
    "plan": lambda world: pipeline.plan(context_in(world)),
    "resume": resume,
    "plot": plot,
}


def cases(names: list[str]) -> Iterator[tuple[str, str, str]]:
    for name in names:
        for damage in DAMAGES:
            for action in ACTIONS:
                yield name, damage, action


def attempt(world: Path, scratch: Path, name: str, damage: str, action: str) -> str | None:
    """Return what went wrong in one case, or None."""
    here = copy_world(world, scratch)
    precious = here / "out" / "precious"
    DAMAGES[damage](here / name, random.Random(f"{name} {damage} {action}"), precious)
    before, below = census(precious), census(here / name) if damage == "folder" else {}
    try:
        with watchdog():
            ACTIONS[action](here)
            if action in ("run", "fresh", "resume", "reprocess"):
                _require_correct(world, here)
    except StreamdrError as error:
        if not str(error) or "\n" in str(error):
            return f"an error that is not one line: {error!r}"
    except Exception as error:
        return f"another exception: {error!r}"
    if not is_kept(before, precious):
        return "files of others were changed"
    # `resume` moves the outputs away first, with the folders in them.
    if below and action != "resume" and not is_kept(below, here / name):
        return "a folder of others was changed"
    return None


def _require_correct(world: Path, here: Path) -> None:
    expected, found = (store.load_model(root / "out/model.zarr").model for root in (world, here))
    assert np.array_equal(expected.components, found.components)
    for kind in ("embedding", "denoised"):
        name = "scores" if kind == "embedding" else kind
        one, other = (store.open_rows(root / f"out/{name}.zarr", kind)[:] for root in (world, here))
        assert np.array_equal(one, other)


def failures(world: Path, scratch: Path, chosen: list[tuple[str, str, str]]) -> dict[str, str]:
    found = {}
    for number, case in enumerate(chosen):
        fault = attempt(world, scratch / str(number), *case)
        if fault is not None:
            found[" / ".join(case)] = fault
    return found


@pytest.fixture(autouse=True)
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait long for damaged leases."""
    monkeypatch.setattr(store, "leased", functools.partial(store.leased, seconds=0.05))


def test_a_selection_of_damage_gives_correct_results_or_clear_errors(worlds: Path, tmp_path: Path) -> None:
    every = list(cases(files(worlds)))
    assert failures(worlds, tmp_path, random.Random(12).sample(every, SELECTED)) == {}


@pytest.mark.slow
@pytest.mark.parametrize("action", ACTIONS)
def test_every_damage_gives_correct_results_or_clear_errors(
    worlds: Path, tmp_path: Path, action: str
) -> None:
    chosen = [case for case in cases(files(worlds)) if case[2] == action]
    assert len(chosen) >= 15 * len(DAMAGES)
    assert failures(worlds, tmp_path, chosen) == {}


@pytest.mark.parametrize(
    ("method", "name", "change"),
    [
        ("pca", "components", lambda value: value.astype(complex)),
        ("ppca", "mean", lambda value: value.astype(complex)),
        ("ppca", "n_samples", lambda value: 0.0),
        ("ppca", "explained_variance", lambda value: value * np.nan),
        ("pca", "total_variance", lambda value: float("nan")),
    ],
)
def test_a_sealed_model_with_invalid_values_is_no_unexpected_error(
    tmp_path: Path, method: str, name: str, change: Callable[[Any], Any]
) -> None:
    """The model is saved correctly, with its seal, but a fit would never return such values."""
    np.save(tmp_path / "x.npy", ROWS)
    config = {
        "input": {"path": str(tmp_path / "x.npy")},
        "method": {"name": method, "n_components": 2},
        "output": {"model": str(tmp_path / "m.zarr"), "embedding": str(tmp_path / "e.zarr")},
        "execution": {"workers": 1},
    }
    (tmp_path / "run.yaml").write_text(json.dumps(config))
    succeed("fit", "run.yaml", cwd=tmp_path)
    saved = store.load_model(tmp_path / "m.zarr")
    object.__setattr__(saved.model, name, change(getattr(saved.model, name)))
    entries = ("method", "parameters", "feature_names", "input_fingerprint", "n_rows")
    store.save_model(
        tmp_path / "m.zarr",
        saved.model,
        **{entry: getattr(saved, entry) for entry in entries},
        extra=saved.record["extra"],
        overwrite=True,
    )
    for command in (
        ("inspect", "m.zarr"),
        ("run", "run.yaml"),
        ("verify", "run.yaml"),
        ("reprocess", "run.yaml"),
    ):
        outcome = streamdr(*command, cwd=tmp_path)
        assert "unexpected" not in outcome.err, (command, outcome.err)
        assert len(outcome.errors) == (outcome.code != 0), (command, outcome.err)
