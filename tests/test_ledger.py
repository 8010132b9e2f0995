"""The ledger's directory holds entries, and no litter."""

from __future__ import annotations

import os
import subprocess

from streamdr.accumulators import Moments
from streamdr.ledger import Ledger


def test_what_a_killed_run_was_writing_is_removed_and_what_a_living_one_writes_is_not(tmp_path):
    gone = subprocess.Popen(["true"])
    gone.wait()
    names = {pid: f".{'0' * 40}.{pid}.partial" for pid in (gone.pid, os.getpid())}
    for name in names.values():
        (tmp_path / name).write_bytes(b"half of an entry")
    assert Ledger(tmp_path).load("0" * 40, Moments(3)) is None
    assert [path.name for path in tmp_path.iterdir()] == [names[os.getpid()]]
