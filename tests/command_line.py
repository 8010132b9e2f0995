"""The program as a user runs it: in a directory, with arguments, ending with an exit code.

`streamdr` is forked from a process that has already imported it, which saves a second each time. `SCRIPT`
is the installed program.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import zarr
from narrowing import present

SCRIPT = str(Path(sys.executable).with_name("streamdr"))

WARM = multiprocessing.get_context("forkserver")
PRELOADED = [
    "streamdr.cli.app",
    "streamdr.cli.console",
    "streamdr.workflow.pipeline",
    "streamdr.workflow.inspection",
    "streamdr.data.ingest",
]
WARM.set_forkserver_preload(PRELOADED)


@dataclass(frozen=True)
class Outcome:
    """What a user sees of a command."""

    code: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        """The JSON object that is the whole standard output."""
        return json.loads(self.out)

    @property
    def errors(self) -> list[str]:
        return [line.removeprefix("error: ") for line in self.err.splitlines() if line.startswith("error: ")]


def streamdr(
    *words: str | Path,
    cwd: Path,
    environment: Mapping[str, str] | None = None,
    largest_file: int = resource.RLIM_INFINITY,
) -> Outcome:
    with tempfile.TemporaryDirectory() as directory:
        streams = [Path(directory, name) for name in ("out", "err")]
        arguments = (list(map(str, words)), cwd, streams, dict(environment or {}), largest_file)
        process = WARM.Process(target=command, args=arguments)
        process.start()
        process.join()
        return Outcome(present(process.exitcode), *(stream.read_text() for stream in streams))


def succeed(*words: str | Path, cwd: Path, environment: Mapping[str, str] | None = None) -> Outcome:
    outcome = streamdr(*words, cwd=cwd, environment=environment)
    assert outcome.code == 0, outcome.err
    return outcome


def command(
    words: list[str],
    cwd: Path,
    streams: list[Path],
    environment: Mapping[str, str] = MappingProxyType({}),
    largest_file: int = resource.RLIM_INFINITY,
) -> None:
    """Become the program, with its standard output and standard error in two files."""
    from streamdr.cli.app import main

    os.chdir(cwd)
    os.environ.update(environment)
    for number, stream in enumerate(streams, start=1):
        os.dup2(os.open(stream, os.O_CREAT | os.O_WRONLY | os.O_APPEND), number)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, resource.RLIM_INFINITY))
    sys.argv = ["streamdr", *words]
    main()


def write_config(place: Path, **sections: Mapping[str, Any]) -> Path:
    """Write a configuration with one key per line, so that a test knows the line of a key."""
    lines = []
    defaults: dict[str, dict[str, Any]] = {
        "method": {"name": "pca", "n_components": 2},
        "output": {"model": "out/model.zarr"},
    }
    for name in ("input", "method", "output", "execution"):
        lines.append(f"{name}:")
        keys = {**defaults.get(name, {}), **sections.get(name, {})}
        lines += [f"  {key}: {json.dumps(value)}" for key, value in keys.items()]
    file = place / "config.yaml"
    file.write_text("\n".join(lines) + "\n")
    return file


def write_store(path: Path, values: np.ndarray, **options: Any) -> zarr.Array:
    chunks = options.pop("chunks", (10, values.shape[1]))
    array = zarr.create_array(path, shape=values.shape, chunks=chunks, dtype=values.dtype, **options)
    array[...] = values
    return array
