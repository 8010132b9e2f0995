"""Compare what this tree and an earlier revision compute, bit by bit, for every file in `configs/`.

    python -m benchmarks.equal_bits REVISION

Both run each configuration of the revision in a directory of its own, except those of files that only a flow
writes. The digests of all arrays that are
written are compared. The last line is the verdict; the exit code is 1 if any differs. It takes some minutes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import yaml
import zarr

from benchmarks.revisions import ROOT, worktree


def digests(place: Path) -> dict[str, str]:
    """The digest of every array below a directory, by its path: type, shape and values."""
    found = {}
    for metadata in sorted(place.rglob("zarr.json")):
        opened = zarr.open(metadata.parent, mode="r")
        if isinstance(opened, zarr.Array):
            digest = hashlib.sha256(f"{opened.dtype}{opened.shape}".encode())
            values = np.asarray(opened[...])
            digest.update(values.tobytes() if values.dtype != object else repr(values.tolist()).encode())
            found[str(metadata.parent.relative_to(place))] = digest.hexdigest()
    return found


def outputs(code: Path, config: Path, place: Path) -> dict[str, str]:
    """Run one configuration with the code of a tree, and digest what it wrote."""
    shutil.copytree(config.parent, place / "configs")
    command = "compare" if "methods" in yaml.safe_load(config.read_text()) else "run"
    words = [sys.executable, "-m", "streamdr", command, f"configs/{config.name}"]
    done = subprocess.run(
        words,
        cwd=place,
        env=os.environ | {"PYTHONPATH": str(code)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{config.name}, with the code of {code}:\n{done.stderr}")
    return digests(place / "out")


def reads_what_a_flow_writes(config: Path) -> bool:
    """Whether the input is a pattern, of files that are not there before a flow has run."""
    return "*" in str(yaml.safe_load(config.read_text())["input"].get("path", ""))


def main(revision: str) -> int:
    """Compare all configurations, print a line for each, and return the exit code."""
    different = 0
    with worktree(revision) as before, tempfile.TemporaryDirectory(prefix="streamdr-bits-") as directory:
        found = sorted((before / "configs").glob("*.yaml"))
        configs = [config for config in found if not reads_what_a_flow_writes(config)]
        for config in configs:
            old, new = (
                outputs(code, config, Path(directory) / f"{config.stem}-{name}")
                for code, name in ((before, "old"), (ROOT, "new"))
            )
            unequal = sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path))
            different += bool(unequal or not old)
            verdict = "different: " + ", ".join(unequal) if unequal else "the same"
            print(f"{config.name:28} {len(old):3} arrays  {verdict}", flush=True)
    print(f"{different} of {len(configs)} configurations differ")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]) if len(sys.argv) == 2 else __doc__)
