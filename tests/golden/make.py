"""Write `bucket/`, once: what a version of streamdr wrote stays as it is, and later versions open it.

    python tests/golden/make.py

It refuses to write over what is there. Add a run to `golden_runs.py`, and only that one is made.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import golden_runs as golden  # noqa: E402
import pytest  # noqa: E402
import zarr  # noqa: E402
from nightly import Heard  # noqa: E402
from s3_server import Bucket, serve  # noqa: E402

from streamdr.core.progress import PassStart  # noqa: E402
from streamdr.errors import Interrupted  # noqa: E402
from streamdr.workflow import pipeline  # noqa: E402


class StopsAt(Heard):
    """Asks a run to stop as soon as a task of the pass of this label is done."""

    def __init__(self, label: str) -> None:
        super().__init__()
        self.stop, self._label, self._current = threading.Event(), label, ""

    def start(self, begun: PassStart) -> None:
        self._current = begun.label

    def advance(self, rows: int) -> None:
        if self._current == self._label:
            self.stop.set()


def inputs(place: Path) -> None:
    """Rows in a store of each kind, unless it exists, with their labels beside them."""
    layouts: dict[str, dict[str, Any]] = {
        "v2.zarr": {"zarr_format": 2},
        "v3.zarr": {},
        "sharded.zarr": {"shards": (40, golden.COLUMNS)},
        "missing.zarr": {},
        "counts.zarr": {},
    }
    for name, layout in layouts.items():
        if (place / name).exists():
            continue
        rows = golden.stored(name, golden.ROWS)
        group = zarr.open_group(place / name, mode="w", zarr_format=layout.pop("zarr_format", 3))
        group.create_array("X", shape=rows.shape, chunks=(20, 6), dtype=rows.dtype, **layout)[:] = rows
        classes = golden.labels(golden.ROWS)
        group.create_array("y", shape=classes.shape, chunks=(50,), dtype=classes.dtype)[:] = classes


def interrupt(name: str, label: str) -> None:
    """Begin a run that is told to stop while it makes what is called `label`."""
    progress = StopsAt(label)
    with pytest.MonkeyPatch.context() as monkeypatch, pytest.raises(Interrupted):
        golden.small_blocks(monkeypatch)
        pipeline.run_all(golden.stage(name, progress, progress.stop))


def download(bucket: Bucket) -> None:
    """Add what is in the bucket to what is kept."""
    for key, content in bucket.contents().items():
        file = golden.BUCKET / key
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)


def main() -> None:
    """Make all runs that are not there."""
    with tempfile.TemporaryDirectory() as scratch, serve(Path(scratch)) as server:
        os.environ.update(server.environment)
        bucket = server.make_bucket(golden.NAME)
        inputs(golden.BUCKET / "inputs")
        for folder in golden.BUCKET.iterdir():
            bucket.upload(folder)
        for name in golden.CONFIGS:
            if (golden.BUCKET / "out" / name).exists():
                continue
            if name == golden.INTERRUPTED_FIT:
                interrupt(name, "moments")
            elif name == golden.INTERRUPTED_TRANSFORM:
                interrupt(name, "imputed values")
            else:
                pipeline.run_all(golden.stage(name))
        download(bucket)
    shutil.rmtree(HERE / "__pycache__", ignore_errors=True)


if __name__ == "__main__":
    main()
