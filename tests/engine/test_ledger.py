"""The ledger saves, loads and deletes entries, and leaves other files in its folder alone."""

from __future__ import annotations

import json
import os
import subprocess
import zipfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from narrowing import present

from streamdr.core.blocks import Block, Span
from streamdr.engine.ledger import Entry, Ledger, TailPart
from streamdr.errors import StoreError
from streamdr.statistics.moments import Moments
from streamdr.store.key_value_folder import LocalKeyValueFolder
from streamdr.store.process_identity import Process


def moments(rows):
    state = Moments(3)
    state.update(Block(Span(0, len(rows)), rows))
    return state


@pytest.fixture
def entry():
    rows = np.random.default_rng(0).normal(size=(10, 3))
    tail = TailPart(Span(8, 10), moments(rows[8:]), "the digest at 10")
    return Entry(10, [0, 2], [moments(rows[:8])], "the digest at 8", [tail], ["the digest at 8"])


def equal(one, other):
    states = [[*entry.digits, *(part.state for part in entry.tail)] for entry in (one, other)]
    return all(
        np.array_equal(a[name], b[name])
        for a, b in zip(*[[state.arrays() for state in side] for side in states], strict=True)
        for name in a
    )


def test_a_saved_entry_is_loaded_and_deleted(tmp_path, entry):
    ledger = Ledger(LocalKeyValueFolder(tmp_path / "ledger"))
    ledger.save("key", entry)
    loaded = present(ledger.load("key", Moments(3)))
    assert (loaded.length, loaded.counts, loaded.mark) == (10, [0, 2], "the digest at 8")
    assert (loaded.tail[0].span, loaded.tail[0].mark) == (Span(8, 10), "the digest at 10")
    assert equal(loaded, entry)
    ledger.forget("key")
    assert ledger.load("key", Moments(3)) is None


@pytest.mark.parametrize("place", [0.02, 0.3, 0.6, 0.99])
def test_a_flipped_bit_is_detected_and_the_entry_is_deleted(tmp_path, entry, place):
    ledger = Ledger(LocalKeyValueFolder(tmp_path))
    ledger.save("key", entry)
    content = bytearray((tmp_path / "key.npz").read_bytes())
    content[int(place * len(content))] ^= 4
    (tmp_path / "key.npz").write_bytes(content)
    loaded = ledger.load("key", Moments(3))
    assert loaded is None or equal(loaded, entry), "the flipped bit was in unused bytes"
    if loaded is None:
        assert not (tmp_path / "key.npz").exists()


def test_a_fresh_ledger_loads_only_its_own_entries(tmp_path, entry):
    Ledger(LocalKeyValueFolder(tmp_path)).save("key", entry)
    fresh = Ledger(LocalKeyValueFolder(tmp_path), fresh=True)
    assert fresh.load("key", Moments(3)) is None
    fresh.save("key", entry)
    assert fresh.load("key", Moments(3)) is not None


def named(number):
    """Return a key in the format of the ledger."""
    return f"{number:040x}"


def test_the_entries_that_were_unused_for_longest_are_deleted_first(tmp_path, entry, monkeypatch):
    monkeypatch.setattr("streamdr.engine.ledger._KEPT_BYTES", 0)
    for number in range(8):
        Ledger(LocalKeyValueFolder(tmp_path)).save(named(number), entry)
        os.utime(tmp_path / f"{named(number)}.npz", (number, number))
    ledger = Ledger(LocalKeyValueFolder(tmp_path))
    assert ledger.load(named(1), Moments(3)) is not None
    ledger.prune()
    assert sorted(path.stem for path in tmp_path.iterdir()) == [named(1), named(6), named(7)]


def test_foreign_files_in_the_folder_are_neither_deleted_nor_counted(tmp_path, entry, monkeypatch):
    monkeypatch.setattr("streamdr.engine.ledger._KEPT_BYTES", 10_000)
    elsewhere = tmp_path / "elsewhere.npz"
    np.savez(elsewhere, x=np.zeros(10_000))
    folder = tmp_path / "ledger"
    (folder / f"{named(3)}.npz").mkdir(parents=True)
    (folder / f"{named(4)}.npz").symlink_to(elsewhere)
    (folder / f"{named(5)}.npz").symlink_to("nowhere")
    os.mkfifo(folder / f"{named(6)}.npz")
    np.savez(folder / "mine.npz", x=np.zeros(10_000))
    np.savez(folder / f"{named(7)}.npz", x=np.zeros(10_000))  # named by a digest, like an entry
    (folder / f"{named(8)}.npz").write_bytes(bytes(100_000))
    (folder / "notes.txt").write_text("precious")
    before = {path.name: path.lstat().st_ino for path in folder.iterdir()}
    ledger = Ledger(LocalKeyValueFolder(folder))
    ledger.save(named(1), entry)
    ledger.prune()
    assert {path.name: path.lstat().st_ino for path in folder.iterdir()} == {
        **before,
        f"{named(1)}.npz": (folder / f"{named(1)}.npz").stat().st_ino,
    }
    monkeypatch.setattr("streamdr.engine.ledger._KEPT_BYTES", 0)
    Ledger(LocalKeyValueFolder(folder)).prune()
    assert {path.name: path.lstat().st_ino for path in folder.iterdir()} == before


@pytest.mark.parametrize("what", ["pipe", "link to a device", "link to a file", "loop", "broken"])
def test_a_link_or_pipe_in_the_place_of_an_entry_is_replaced_and_not_followed(tmp_path, entry, what):
    folder, elsewhere = tmp_path / "ledger", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.write_text("precious")
    place = folder / "key.npz"
    if what == "pipe":
        os.mkfifo(place)
    else:
        to = {
            "link to a device": "/dev/zero",
            "link to a file": elsewhere,
            "loop": place,
            "broken": "nowhere",
        }
        place.symlink_to(to[what])
    ledger = Ledger(LocalKeyValueFolder(folder))
    assert ledger.load("key", Moments(3)) is None
    ledger.save("key", entry)
    assert equal(ledger.load("key", Moments(3)), entry)
    assert elsewhere.read_text() == "precious"
    assert [path.name for path in folder.iterdir()] == ["key.npz"]


def test_a_directory_in_the_place_of_an_entry_is_an_error(tmp_path, entry):
    (tmp_path / "key.npz").mkdir()
    (tmp_path / "key.npz" / "notes").write_text("precious")
    ledger = Ledger(LocalKeyValueFolder(tmp_path))
    assert ledger.load("key", Moments(3)) is None
    with pytest.raises(StoreError, match="the checkpoint cannot be written: Is a directory"):
        ledger.save("key", entry)
    assert (tmp_path / "key.npz" / "notes").read_text() == "precious"
    with pytest.raises(StoreError, match=r"is not a directory; set execution.ledger"):
        Ledger(LocalKeyValueFolder(tmp_path / "key.npz" / "notes")).load("key", Moments(3))


def test_a_renamed_entry_is_not_used(tmp_path, entry):
    ledger = Ledger(LocalKeyValueFolder(tmp_path))
    ledger.save("one", entry)
    (tmp_path / "one.npz").rename(tmp_path / "other.npz")
    assert ledger.load("other", Moments(3)) is None
    assert list(tmp_path.iterdir()) == []


def test_entries_of_the_first_version_without_a_key_are_still_loaded(tmp_path, entry):
    Ledger(LocalKeyValueFolder(tmp_path)).save("key", entry)
    with np.load(tmp_path / "key.npz") as archive:
        arrays = dict(archive)
    layout = json.loads(str(arrays.pop("layout")))
    del layout["key"], layout["arrays"]
    np.savez(tmp_path / "key.npz", layout=np.array(json.dumps(layout)), **arrays)
    assert equal(Ledger(LocalKeyValueFolder(tmp_path)).load("key", Moments(3)), entry)


def rewritten(path, change):
    """Write an entry again with changed files and correct checksums."""
    with zipfile.ZipFile(path) as archive:
        files = {info.filename: archive.read(info) for info in archive.infolist()}
    how = change(files) or zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", how) as archive:
        for name, data in files.items():
            archive.writestr(name, data)


def inflate(files):
    name = next(name for name in files if name.endswith("/scatter.npy"))
    files[name] = files[name].replace(b"(3, 3)", b"(9999999, 9999999)".ljust(6))


def nest(files):
    text = "[" * 5000 + "]" * 5000
    memory = BytesIO()
    np.save(memory, np.array(text))
    files["layout.npy"] = memory.getvalue()


def bomb(files):
    files["layout.npy"] = bytes(50_000_000)
    return zipfile.ZIP_DEFLATED


def pickled(files):
    memory = BytesIO()
    np.save(memory, np.array([print], dtype=object), allow_pickle=True)
    files["0/scatter.npy"] = memory.getvalue()


@pytest.mark.parametrize("change", [inflate, nest, bomb, pickled, dict.clear])
def test_a_malicious_entry_is_deleted(tmp_path, entry, change):
    ledger = Ledger(LocalKeyValueFolder(tmp_path))
    ledger.save("key", entry)
    rewritten(tmp_path / "key.npz", change)
    assert ledger.load("key", Moments(3)) is None
    assert list(tmp_path.iterdir()) == []


def flips(path, bits):
    """Yield the content of a file with one bit flipped, for each bit."""
    whole = path.read_bytes()
    for bit in bits(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        yield bytes(damaged)


@pytest.mark.parametrize(
    "bits",
    [
        pytest.param(lambda count: range(0, count, 101), id="some"),
        pytest.param(range, id="all", marks=pytest.mark.slow),
    ],
)
def test_no_flipped_bit_raises_or_changes_a_number(tmp_path, entry, bits, recwarn):
    path = tmp_path / "key.npz"
    Ledger(LocalKeyValueFolder(tmp_path)).save("key", entry)
    for damaged in flips(path, bits):
        path.write_bytes(damaged)
        loaded = Ledger(LocalKeyValueFolder(tmp_path)).load("key", Moments(3))
        assert loaded is None or equal(loaded, entry)
        assert path.exists() == (loaded is not None)
    assert not recwarn.list


def test_unfinished_files_of_killed_runs_are_removed_and_those_of_living_runs_are_not(tmp_path, entry):
    """A killed process may not be reaped yet, and its PID may be reused."""
    gone, here, elsewhere = subprocess.Popen(["true"]), Process.here(), "another-machine"
    os.waitid(os.P_PID, gone.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and its PID is not reused yet
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
    Ledger(LocalKeyValueFolder(tmp_path)).save("key", entry)
    gone.wait()
    assert {path.name for path in tmp_path.iterdir()} == {*writing, "key.npz"}


@pytest.fixture
def apart(monkeypatch):
    """Gives every state a file of its own, as large ones have."""
    monkeypatch.setattr("streamdr.engine.ledger._OWN_FILE_BYTES", 0)


def states_in(folder, key="key"):
    """Return the files of states and their inodes: a file that is written again has another inode."""
    return {path.name: path.stat().st_ino for path in folder.glob(f"{key}-*.npz")}


def appended_to(entry):
    """Return the entry after rows were appended: the digits are the same, and the tail is another."""
    rows = np.random.default_rng(1).normal(size=(4, 3))
    tail = TailPart(Span(8, 12), moments(rows), "the digest at 12")
    return replace(entry, length=12, tail=[tail])


def test_only_states_that_have_changed_are_written(tmp_path, entry, apart):
    ledger = Ledger(LocalKeyValueFolder(tmp_path))
    ledger.save("key", entry)
    first = states_in(tmp_path)
    assert len(first) == 2
    assert equal(Ledger(LocalKeyValueFolder(tmp_path)).load("key", Moments(3)), entry)
    for continued in (ledger, Ledger(LocalKeyValueFolder(tmp_path))):
        continued.load("key", Moments(3))
        continued.save("key", appended_to(entry))
        second = states_in(tmp_path)
        assert len(second) == 2
        assert len(first.items() & second.items()) == 1, "the digit stays in its file"
        assert equal(Ledger(LocalKeyValueFolder(tmp_path)).load("key", Moments(3)), appended_to(entry))
    ledger.forget("key")
    assert list(tmp_path.iterdir()) == []


def test_a_state_whose_file_is_gone_is_written_again(tmp_path, entry, apart):
    """Another run of the same pass may have got further, and deleted it."""
    ledger = Ledger(LocalKeyValueFolder(tmp_path))
    ledger.save("key", entry)
    for path in tmp_path.glob("key-*.npz"):
        path.unlink()
    ledger.save("key", appended_to(entry))
    assert equal(Ledger(LocalKeyValueFolder(tmp_path)).load("key", Moments(3)), appended_to(entry))


def test_a_fresh_ledger_writes_every_state_again(tmp_path, entry, apart):
    Ledger(LocalKeyValueFolder(tmp_path)).save("key", entry)
    before = states_in(tmp_path)
    Ledger(LocalKeyValueFolder(tmp_path), fresh=True).save("key", entry)
    after = states_in(tmp_path)
    assert before.keys() == after.keys()
    assert not before.items() & after.items()


def test_states_of_other_segments_or_other_rows_have_other_files(tmp_path, entry, apart):
    files = set()
    for counts in ([2], [0, 2], [1, 2], [0, 3]):
        states = [entry.digits[0]] * sum(count > 0 for count in counts)
        for mark in ("one digest", "another"):
            ends = ["the digest of all", mark][-len(states) :]
            changed = replace(entry, counts=counts, digits=states, ends=ends, tail=[])
            Ledger(LocalKeyValueFolder(tmp_path / f"{counts} {mark}")).save("key", changed)
            files |= states_in(tmp_path / f"{counts} {mark}").keys()
    # Two digests of three digits: one of them, twice two runs, is in two cases; and one lowest digit.
    assert len(files) == 7


def test_states_that_are_not_usable_are_not_read(tmp_path, entry, apart):
    ledger = Ledger(LocalKeyValueFolder(tmp_path))
    ledger.save("key", replace(entry, tail=[]))
    (digit,) = states_in(tmp_path)
    ledger.save("key", entry)
    for name in states_in(tmp_path).keys() - {digit}:
        (tmp_path / name).write_bytes(b"damaged")
    loaded = present(Ledger(LocalKeyValueFolder(tmp_path)).load("key", Moments(3), lambda layout: 0))
    assert equal(loaded, replace(entry, tail=[]))
    (tmp_path / digit).write_bytes(b"damaged")
    assert Ledger(LocalKeyValueFolder(tmp_path)).load("key", Moments(3), lambda layout: None) is None
    assert (tmp_path / "key.npz").exists(), "an entry of other rows is not damaged"
    assert Ledger(LocalKeyValueFolder(tmp_path)).load("key", Moments(3)) is None
    assert list(tmp_path.iterdir()) == [], "a damaged entry is deleted with its states"


def test_no_flipped_bit_of_a_state_raises_or_changes_a_number(tmp_path, entry, apart, recwarn):
    Ledger(LocalKeyValueFolder(tmp_path)).save("key", entry)
    whole = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for name in states_in(tmp_path):
        for damaged in flips(tmp_path / name, lambda count: range(0, count, 101)):
            for other, content in whole.items():
                (tmp_path / other).write_bytes(content)
            (tmp_path / name).write_bytes(damaged)
            loaded = Ledger(LocalKeyValueFolder(tmp_path)).load("key", Moments(3))
            assert loaded is None or equal(loaded, entry)
            assert (tmp_path / "key.npz").exists() == (loaded is not None)
    assert not recwarn.list


def test_a_state_in_the_place_of_another_is_not_used(tmp_path, entry, apart):
    Ledger(LocalKeyValueFolder(tmp_path)).save("key", entry)
    one, other = sorted(states_in(tmp_path))
    (tmp_path / one).write_bytes((tmp_path / other).read_bytes())
    assert Ledger(LocalKeyValueFolder(tmp_path)).load("key", Moments(3)) is None


@pytest.mark.parametrize("name", ["../precious.npz", "precious.npz", f"other-{'0' * 24}.npz", 7])
def test_an_entry_that_names_another_file_is_refused(tmp_path, entry, apart, name):
    folder = tmp_path / "ledger"
    Ledger(LocalKeyValueFolder(folder)).save("key", entry)
    (tmp_path / "precious.npz").write_text("precious")
    (folder / "precious.npz").write_text("precious")
    with np.load(folder / "key.npz") as archive:
        layout = json.loads(str(archive["layout"]))
    layout["files"][0] = name
    np.savez(folder / "key.npz", layout=np.array(json.dumps(layout)))
    assert Ledger(LocalKeyValueFolder(folder)).load("key", Moments(3)) is None
    assert [path.name for path in folder.iterdir()] == ["precious.npz"]
    assert (tmp_path / "precious.npz").exists()


class KilledFolder(LocalKeyValueFolder):
    """A folder whose process ends before it writes a file that is not a state."""

    def write(self, name, fill):
        if "-" not in name:
            raise KeyboardInterrupt
        super().write(name, fill)


def test_a_kill_before_the_entry_is_replaced_leaves_the_old_one(tmp_path, entry, apart):
    key = named(1)
    Ledger(LocalKeyValueFolder(tmp_path)).save(key, entry)
    before = states_in(tmp_path, key)
    with pytest.raises(KeyboardInterrupt):
        Ledger(KilledFolder(tmp_path)).save(key, appended_to(entry))
    assert len(states_in(tmp_path, key)) == 3
    ledger = Ledger(LocalKeyValueFolder(tmp_path))
    assert equal(ledger.load(key, Moments(3)), entry)
    ledger.prune()
    assert states_in(tmp_path, key).keys() == before.keys(), "what the killed run left is deleted"
    assert equal(ledger.load(key, Moments(3)), entry)


def test_entries_are_deleted_with_their_states(tmp_path, entry, apart, monkeypatch):
    monkeypatch.setattr("streamdr.engine.ledger._KEPT_BYTES", 0)
    for number in range(6):
        Ledger(LocalKeyValueFolder(tmp_path)).save(named(number), entry)
        for path in tmp_path.glob(f"{named(number)}*"):
            os.utime(path, (number, number))
    foreign = tmp_path / f"{named(0)}-{'0' * 24}.npz"  # named like a state, but not one
    foreign.touch()
    os.utime(foreign, (0, 0))
    ledger = Ledger(LocalKeyValueFolder(tmp_path))
    assert ledger.load(named(1), Moments(3)) is not None
    ledger.prune()
    left = {path.name.partition(".")[0].partition("-")[0] for path in tmp_path.iterdir() if path != foreign}
    assert left == {named(1), named(4), named(5)}
    assert all(len(states_in(tmp_path, key)) == 2 for key in left)
    assert foreign.exists()
