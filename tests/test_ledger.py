"""The ledger's folder holds entries, and no litter."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from streamdr.accumulators import Moments
from streamdr.blocks import Block, Span
from streamdr.folders import LocalFolder
from streamdr.ledger import Entry, Ledger, Part
from streamdr.processes import Process


def moments(rows):
    state = Moments(3)
    state.update(Block(Span(0, len(rows)), rows))
    return state


@pytest.fixture
def entry():
    rows = np.random.default_rng(0).normal(size=(10, 3))
    tail = Part(Span(8, 10), moments(rows[8:]), "what it was at 10")
    return Entry(10, [0, 2], [moments(rows[:8])], "what it was at 8", [tail])


def equal(one, other):
    states = [[*entry.digits, *(part.state for part in entry.tail)] for entry in (one, other)]
    return all(
        np.array_equal(a[name], b[name])
        for a, b in zip(*[[state.arrays() for state in side] for side in states], strict=True)
        for name in a
    )


def test_what_is_saved_is_loaded(tmp_path, entry):
    ledger = Ledger(LocalFolder(tmp_path / "ledger"))
    ledger.save("key", entry)
    loaded = ledger.load("key", Moments(3))
    assert (loaded.length, loaded.counts, loaded.mark) == (10, [0, 2], "what it was at 8")
    assert (loaded.tail[0].span, loaded.tail[0].mark) == (Span(8, 10), "what it was at 10")
    assert equal(loaded, entry)
    ledger.forget("key")
    assert ledger.load("key", Moments(3)) is None


@pytest.mark.parametrize("place", [0.02, 0.3, 0.6, 0.99])
def test_a_flipped_bit_is_noticed_and_the_entry_dropped(tmp_path, entry, place):
    ledger = Ledger(LocalFolder(tmp_path))
    ledger.save("key", entry)
    content = bytearray((tmp_path / "key.npz").read_bytes())
    content[int(place * len(content))] ^= 4
    (tmp_path / "key.npz").write_bytes(content)
    loaded = ledger.load("key", Moments(3))
    assert loaded is None or equal(loaded, entry), "the flip was where nothing is kept"
    if loaded is None:
        assert not (tmp_path / "key.npz").exists()


def test_a_fresh_ledger_sees_only_what_it_wrote_itself(tmp_path, entry):
    Ledger(LocalFolder(tmp_path)).save("key", entry)
    fresh = Ledger(LocalFolder(tmp_path), fresh=True)
    assert fresh.load("key", Moments(3)) is None
    fresh.save("key", entry)
    assert fresh.load("key", Moments(3)) is not None


def test_what_was_of_no_use_for_longest_is_dropped_first(tmp_path, entry, monkeypatch):
    monkeypatch.setattr("streamdr.ledger._KEPT_BYTES", 0)
    for number in range(8):
        Ledger(LocalFolder(tmp_path)).save(f"key{number}", entry)
        os.utime(tmp_path / f"key{number}.npz", (number, number))
    ledger = Ledger(LocalFolder(tmp_path))
    assert ledger.load("key1", Moments(3)) is not None
    ledger.prune()
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["key1", "key6", "key7"]


def test_what_a_killed_run_was_writing_is_removed_and_what_a_living_one_writes_is_not(tmp_path, entry):
    """One that was killed may not have been waited for yet, and its number may be another's by now."""
    gone, here, elsewhere = subprocess.Popen(["true"]), Process.here(), "another-machine"
    os.waitid(os.P_PID, gone.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and its number is still its own
    started = int(Path(f"/proc/{gone.pid}/stat").read_text().rpartition(")")[2].split()[19])
    killed, reused, *writing = (
        f".{'0' * 40}.npz.{host}.{pid}-{began}.partial"
        for host, pid, began in (
            (here.host, gone.pid, started),
            (here.host, here.pid, here.started - 1),
            (here.host, here.pid, here.started),
            (elsewhere, gone.pid, started),
        )
    )
    for name in (killed, reused, *writing):
        (tmp_path / name).write_bytes(b"half of an entry")
    Ledger(LocalFolder(tmp_path)).save("key", entry)
    gone.wait()
    assert {path.name for path in tmp_path.iterdir()} == {*writing, "key.npz"}
