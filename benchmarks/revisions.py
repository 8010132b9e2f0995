"""Earlier revisions of this repository, to compare with."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@contextmanager
def worktree(revision: str) -> Iterator[Path]:
    """Check a revision out into a temporary directory, which is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="streamdr-revision-") as directory:
        tree = Path(directory) / "tree"
        added = ["git", "worktree", "add", "--quiet", "--detach", str(tree), revision]
        subprocess.run(added, cwd=ROOT, check=True)
        try:
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)
