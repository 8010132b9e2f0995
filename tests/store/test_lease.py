"""One run at a time writes an output, and a run that was taken over publishes nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from lease_holders import Holder, race, write_output
from narrowing import checked, present

from streamdr.core.digests import json_digest
from streamdr.core.execution import Execution
from streamdr.data import open_source
from streamdr.engine import fitting
from streamdr.errors import BusyError, Interrupted, StoreError
from streamdr.methods.pca import PCA
from streamdr.store import Lease, Staging, leased, save_model
from streamdr.store.compare_and_swap import CompareAndSwapFile
from streamdr.store.lease import Claim, _acquire
from streamdr.store.process_identity import Process

LONG = 1000.0
"""A duration so long that no test can have waited for such a lease to run out."""
PATIENT = 10.0
"""The duration of a lease that is expected to change while it is watched."""
SHORT = 0.3


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "out" / "z.zarr"


def lease_file(target: Path) -> Path:
    return target.with_name(f".{target.name}.lease")


def claim_in(target: Path) -> Claim:
    return present(Claim.parse(lease_file(target).read_bytes()))


def word(path: Path) -> str:
    return str(checked(dict, zarr.open_group(path, mode="r").attrs["streamdr"])["word"])


def contents(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def publish(target: Path, text: str, lease: Lease, *, key: str | None = None) -> None:
    with Staging(target, kind="embedding", overwrite=True, key=key, fence=lease.check) as staging:
        write_output(staging.path, text)
        staging.publish()


def write_claim(target: Path, claim: Claim) -> None:
    """Write a lease file, as another process would."""
    target.parent.mkdir(exist_ok=True)
    lease_file(target).write_bytes(claim.encode())


def claim_elsewhere(*, seconds: float) -> Claim:
    """Return a claim by a process on another machine, whose PID is in use here, with a different clock."""
    there = Process("elsewhere", "another boot", os.getpid(), 1)
    return replace(Claim.after(0, seconds), holder=there, clock=1e9)


@contextmanager
def taken_over(target: Path) -> Iterator[Lease]:
    """Hold the lease of a target as soon as its holder has not renewed it for long enough."""
    while True:
        try:
            with leased([target], seconds=LONG) as lease:
                yield lease
                return
        except BusyError:
            continue


def test_the_error_of_the_second_run_names_the_first(target: Path) -> None:
    first = Holder(target, seconds=LONG)
    since = claim_in(target).since
    who = f"process {first.pid} on {socket.gethostname()}, since {since}"
    refusal = re.escape(f"{target}: is being written by another run ({who}); ")
    with pytest.raises(BusyError, match=refusal), leased([target]):
        pytest.fail("two runs hold one lease")
    assert first.do("publish") is None
    assert first.do("leave") is None
    assert word(target) == "holder"
    assert contents(target.parent) == ["z.zarr"]


def test_two_runs_in_one_process_exclude_each_other(target: Path) -> None:
    with leased([target]), pytest.raises(BusyError, match=f"process {os.getpid()} "), leased([target]):
        pytest.fail("two runs hold one lease")


def test_a_released_lease_removes_the_directories_that_were_created_for_it(target: Path) -> None:
    with leased([target]):
        assert contents(target.parent) == [".z.zarr.lease"]
    assert contents(target.parent.parent) == []


@pytest.mark.parametrize("error", [RuntimeError("boom"), KeyboardInterrupt()])
def test_a_failed_run_releases_its_lease(target: Path, error: BaseException) -> None:
    with pytest.raises(type(error)), leased([target]):
        raise error
    assert not lease_file(target).exists()


def test_directories_that_others_use_meanwhile_stay(target: Path) -> None:
    with leased([target]):
        (target.parent / "other").touch()
    assert contents(target.parent) == ["other"]


def test_the_lease_and_staged_work_of_a_killed_run_are_taken_over_at_once(target: Path) -> None:
    first = Holder(target, seconds=LONG)
    first.kill()
    assert len(contents(target.parent)) == 2  # its lease and its staging directory
    with leased([target]) as lease:
        assert lease.token > first.token
        publish(target, "second", lease)
    assert word(target) == "second"
    assert contents(target.parent) == ["z.zarr"]


def test_the_staged_work_of_a_killed_run_is_continued(target: Path) -> None:
    Holder(target, seconds=LONG, key="k1").kill()
    with (
        leased([target]) as lease,
        Staging(target, kind="embedding", overwrite=False, key="k1", fence=lease.check) as staging,
    ):
        assert word(staging.path) == "holder"
        staging.publish()
    assert contents(target.parent) == ["z.zarr"]


@pytest.mark.parametrize("key", [None, "k1"])
def test_a_run_that_was_suspended_past_its_lease_cannot_publish(target: Path, key: str | None) -> None:
    sleeper = Holder(target, seconds=SHORT, key=key)
    sleeper.signal(signal.SIGSTOP)
    with taken_over(target) as lease:
        assert lease.token > sleeper.token
        publish(target, "second", lease, key=key)
        sleeper.signal(signal.SIGCONT)
        said = sleeper.do("publish")
        assert said.startswith(f"{target}: was taken over, by another run (process {os.getpid()} on ")
        assert said.endswith("nothing of this run was published to it")
        assert sleeper.do("wait until lost")
        sleeper.do("leave")
        lease.check()
    assert word(target) == "second"
    assert contents(target.parent) == ["z.zarr"]


def test_a_suspended_run_cannot_publish_after_its_successor_has_ended(target: Path) -> None:
    sleeper = Holder(target, seconds=SHORT)
    sleeper.signal(signal.SIGSTOP)
    with taken_over(target) as lease:
        publish(target, "second", lease)
    sleeper.signal(signal.SIGCONT)
    assert "was taken over, its lease was removed" in sleeper.do("publish")
    sleeper.do("leave")
    assert word(target) == "second"
    assert contents(target.parent) == ["z.zarr"]


def test_a_suspended_run_that_was_not_taken_over_continues(target: Path) -> None:
    sleeper = Holder(target, seconds=SHORT)
    sleeper.signal(signal.SIGSTOP)
    while not claim_in(target).is_over:
        pass
    sleeper.signal(signal.SIGCONT)
    assert sleeper.do("publish") is None
    sleeper.do("leave")
    assert word(target) == "holder"


def test_a_run_that_is_too_busy_to_renew_its_lease_keeps_it(target: Path) -> None:
    busy = Holder(target, seconds=SHORT)
    busy.begin("work")
    last = claim_in(target)
    while time.monotonic() - last.clock < 2 * SHORT:
        with pytest.raises(BusyError), leased([target]):
            pytest.fail("the lease was taken from a living run")
    assert busy.ended() is None
    assert busy.do("publish") is None
    busy.do("leave")
    assert word(target) == "holder"


def test_a_lease_is_renewed_for_as_long_as_it_is_held(target: Path) -> None:
    with leased([target], seconds=SHORT) as lease:
        first = claim_in(target)
        while time.monotonic() - first.clock < 2 * SHORT:
            with pytest.raises(BusyError), leased([target]):
                pytest.fail("the lease ran out")
        while claim_in(target).clock <= first.clock:
            lease.check()
        assert not lease.lost.is_set()


def test_a_process_with_a_reused_pid_does_not_hold_the_lease(target: Path) -> None:
    before_us = replace(Process.here(), started=1)
    claim = replace(Claim.after(0, LONG), holder=before_us)
    write_claim(target, claim)
    with leased([target]) as lease:
        assert lease.token > claim.token


def test_tokens_grow_even_when_the_clock_was_set_back(target: Path) -> None:
    tomorrow = time.time_ns() + 86_400 * 10**9
    write_claim(target, replace(Claim.after(tomorrow, LONG), holder=replace(Process.here(), started=1)))
    with leased([target]) as lease:
        assert lease.token == tomorrow + 2


def test_a_silent_lease_of_another_machine_is_watched_until_it_has_run_out(target: Path) -> None:
    claim = claim_elsewhere(seconds=SHORT)
    write_claim(target, claim)
    said: list[str] = []
    began = time.monotonic()
    with leased([target], seconds=LONG, say=said.append) as lease:
        assert time.monotonic() - began >= SHORT
        assert lease.token > claim.token
    assert said == [
        f"{target}: watching for {SHORT:g} seconds whether another run lives "
        f"(process {os.getpid()} on elsewhere, since {claim.since})"
    ]


def test_a_lease_that_another_machine_renews_is_not_taken_over(target: Path) -> None:
    claim = claim_elsewhere(seconds=PATIENT)
    write_claim(target, claim)

    def renew(said: str) -> None:
        write_claim(target, replace(claim, clock=claim.clock + 1))

    with pytest.raises(BusyError, match="on elsewhere"), leased([target], say=renew):
        pytest.fail("the lease was taken from a living run")


def test_a_lease_that_is_released_while_it_is_watched_is_free(target: Path) -> None:
    write_claim(target, claim_elsewhere(seconds=PATIENT))
    with leased([target], say=lambda said: lease_file(target).unlink()) as lease:
        lease.check()


def test_a_container_on_this_machine_counts_as_another_machine(target: Path) -> None:
    boot, namespace = Process.here().realm.split()
    there = replace(Process.here(), realm=f"{boot} another-{namespace}", pid=2**22 + 1)
    write_claim(target, replace(Claim.after(0, SHORT), holder=there))
    said: list[str] = []
    with leased([target], say=said.append):
        assert len(said) == 1


def test_watching_ends_when_the_run_is_stopped(target: Path) -> None:
    write_claim(target, claim_elsewhere(seconds=LONG))
    stop = threading.Event()
    with pytest.raises(Interrupted), leased([target], stop=stop, say=lambda said: stop.set()):
        pytest.fail("the lease was taken from a run that may live")
    assert lease_file(target).exists()


def flip(data: bytes, *, place: bytes) -> bytes:
    """Return the data with one bit flipped in the byte after `place`."""
    at = data.index(place) + len(place)
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


DAMAGE = {
    "empty": lambda data: b"",
    "cut short": lambda data: data[: len(data) // 2],
    "a flipped bit in the token": lambda data: flip(data, place=b'"token": '),
    "a flipped bit in the number of the process": lambda data: flip(data, place=b'"pid": '),
    "zeros": lambda data: bytes(len(data)),
    "cut to a byte": lambda data: data[:1],
}


def sealed(data: bytes, **changes: object) -> bytes:
    """Return the lease with changed entries and a matching digest."""
    entries = json.loads(data)
    del entries["digest"]
    for name, value in changes.items():
        (entries["holder"] if name in entries["holder"] else entries)[name] = value
    return json.dumps({**entries, "digest": json_digest(entries)}).encode()


TAMPERED: dict[str, list[Any]] = {
    "token": ["1", 1.5, None, [1], {}, True, -1],
    "holder": [None, [], {}, "me", {"pid": 1}],
    "pid": ["1", 1.5, None, True, 0, -1, 2**31, 10**30],
    "started": ["1", 1.5, None],
    "host": [1, None, ["x"], "a\nb", "\x1b[31m", "x" * 2000],
    "realm": [1, None],
    "since": [7, None, "\x07"],
    "clock": ["1", None, float("nan"), float("inf")],
    "seconds": ["1", None, 0, -1, float("nan"), float("inf")],
    "more": [1],
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_lease_without_a_holder_is_taken_over_when_it_does_not_change(target: Path, damage) -> None:
    write_claim(target, Claim.after(0, LONG))
    lease_file(target).write_bytes(damage(lease_file(target).read_bytes()))
    said: list[str] = []
    with leased([target], seconds=SHORT / 3, say=said.append) as lease:
        lease.check()
    assert "its lease is damaged" in said[0]
    assert not lease_file(target).exists()


@pytest.mark.parametrize("name", TAMPERED)
def test_a_lease_with_impossible_values_is_damaged(target: Path, name: str) -> None:
    write_claim(target, replace(Claim.after(0, LONG), holder=replace(Process.here(), started=1)))
    whole = lease_file(target).read_bytes()
    assert Claim.parse(sealed(whole)) is not None
    for value in TAMPERED[name]:
        lease_file(target).write_bytes(sealed(whole, **{name: value}))
        said: list[str] = []
        with leased([target], seconds=0.01, say=said.append) as lease:
            lease.check()
        assert "its lease is damaged" in said[0]


def test_a_lease_nested_too_deeply_is_damaged(target: Path) -> None:
    write_claim(target, Claim.after(0, LONG))
    for depth in (100, 10_000):
        lease_file(target).write_bytes(b'{"token": ' + b"[" * depth + b"]" * depth + b"}")
        with leased([target], seconds=0.01) as lease:
            lease.check()


@pytest.mark.parametrize("content", [b"[1, 2]", b"\xff\xfe\x00", b"notes of mine", b"x" * 100_000])
def test_a_file_that_never_was_a_lease_is_not_replaced(target: Path, content: bytes) -> None:
    target.parent.mkdir()
    lease_file(target).write_bytes(content)
    message = r"\.z\.zarr\.lease: (is not a lease|it has 100,000 bytes)"
    with pytest.raises(StoreError, match=message), leased([target], seconds=SHORT):
        pytest.fail("a foreign file was taken for a lease")
    assert lease_file(target).read_bytes() == content
    lease_file(target).unlink()
    with leased([target], seconds=SHORT) as lease:
        lease_file(target).write_bytes(content)
        time.sleep(2 * SHORT / 3)
        with pytest.raises(StoreError):
            lease.check()
    assert lease_file(target).read_bytes() == content


@pytest.mark.parametrize("name", [".z.zarr.lease", ".z.zarr.lease.new"])
@pytest.mark.parametrize(
    "what", ["pipe", "link to a file", "link to a device", "loop", "broken", "directory"]
)
def test_a_pipe_link_or_directory_in_the_place_of_a_lease_is_kept(target: Path, name: str, what: str) -> None:
    target.parent.mkdir()
    path, elsewhere = target.parent / name, target.parent / "elsewhere"
    elsewhere.write_text("precious")
    if what == "pipe":
        os.mkfifo(path)
    elif what == "directory":
        path.mkdir()
    else:
        to = {"link to a file": str(elsewhere), "link to a device": "/dev/zero", "loop": str(path)}
        path.symlink_to(to.get(what, "nowhere"))
    before = path.lstat().st_ino
    with pytest.raises(StoreError, match=f"{re.escape(name)}: .*remove it"), leased([target]):
        pytest.fail("it was taken for a lease")
    assert path.lstat().st_ino == before
    assert elsewhere.read_text() == "precious"
    assert not (target.parent / "nowhere").exists()


def test_the_wait_is_bounded_whatever_duration_a_lease_claims(target: Path) -> None:
    write_claim(target, claim_elsewhere(seconds=1e9))
    said: list[str] = []
    stop = threading.Event()

    def record_and_stop(text: str) -> None:
        said.append(text)
        stop.set()

    with pytest.raises(Interrupted), leased([target], stop=stop, say=record_and_stop):
        pytest.fail("the lease was taken from a run that may live")
    assert "watching for 300 seconds" in said[0]


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_lease_of_a_living_run_is_written_again_by_that_run(target: Path, damage) -> None:
    with leased([target], seconds=SHORT) as lease:
        lease_file(target).write_bytes(damage(lease_file(target).read_bytes()))
        with pytest.raises(BusyError, match=f"process {os.getpid()} "), leased([target], seconds=PATIENT):
            pytest.fail("the lease was taken from a living run")
        lease.check()
    assert not lease_file(target).exists()


def test_with_a_damaged_lease_nothing_is_published(target: Path) -> None:
    with leased([target], seconds=LONG) as lease:
        lease_file(target).write_bytes(b"")
        with pytest.raises(StoreError, match="removed or damaged"):
            publish(target, "unproven", lease)
    assert not target.exists()


def test_many_runs_at_once_take_turns_and_the_dead_are_taken_over(target: Path, tmp_path: Path) -> None:
    racers, rounds = 20, 3
    race(target, tmp_path / "log", racers=racers, rounds=rounds)
    lines = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    starts, stops = lines[::2], lines[1::2]
    assert [what for what, *_ in lines] == ["start", "stop"] * (racers * rounds)
    assert [who for _, *who in starts] == [who for _, *who in stops]
    tokens = [int(token) for *_, token in starts]
    assert all(earlier < later for earlier, later in pairwise(tokens))
    with leased([target]) as lease:  # the last of them ended while it held the lease
        assert lease.token > tokens[-1]


def test_a_run_that_was_slow_to_take_a_free_lease_has_a_larger_token_than_runs_that_ended_meanwhile(
    target: Path,
) -> None:
    class Overtaken(CompareAndSwapFile):
        """A lease file that another run takes and releases just before this run writes it."""

        def replace(self, data: bytes, expected: str | None) -> str:
            if expected is None:
                with leased([target]) as other:
                    tokens.append(other.token)
            return super().replace(data, expected)

    tokens: list[int] = []
    overtaken = Overtaken(lease_file(target))
    said: list[str] = []
    tokens.append(_acquire(target, overtaken, LONG, threading.Event(), said.append).token)
    assert not said
    assert tokens == sorted(set(tokens))
    assert claim_in(target).token == tokens[-1]


def test_a_run_holds_all_of_its_outputs_or_none(tmp_path: Path) -> None:
    model, embedding = tmp_path / "model.zarr", tmp_path / "z.zarr"
    with leased([embedding]) as other:
        with pytest.raises(BusyError, match=re.escape(f"{embedding}: ")), leased([embedding, model]):
            pytest.fail("two runs hold one lease")
        other.check()
        assert contents(tmp_path) == [".z.zarr.lease"]
    with leased([model, embedding]) as both:
        assert contents(tmp_path) == [".model.zarr.lease", ".z.zarr.lease"]
        lease_file(model).unlink()
        with pytest.raises(StoreError, match=re.escape(f"{model}: was taken over")):
            both.check()


def test_an_output_has_one_lease_for_all_of_its_paths(tmp_path: Path) -> None:
    (tmp_path / "link.zarr").symlink_to(tmp_path / "z.zarr")
    with leased([tmp_path / "z.zarr", tmp_path / "link.zarr", tmp_path / "a" / ".." / "z.zarr"]):
        assert contents(tmp_path) == [".z.zarr.lease", "link.zarr"]
        with pytest.raises(BusyError), leased([tmp_path / "link.zarr"]):
            pytest.fail("two runs hold one lease")


@pytest.mark.parametrize("place", ["plain.txt/z.zarr", "/proc/streamdr/z.zarr"])
def test_a_lease_where_nothing_can_be_written_is_an_error(tmp_path: Path, place: str) -> None:
    (tmp_path / "plain.txt").touch()
    with (
        pytest.raises(StoreError, match=re.escape(f"{tmp_path / place}: cannot be written (")),
        leased([tmp_path / place]),
    ):
        pytest.fail("there is no such place")


def test_models_and_embeddings_are_published_behind_the_fence(tmp_path: Path) -> None:
    values = np.random.default_rng(5).normal(size=(40, 3))
    source, execution = open_source(values), Execution(workers=1)
    model = fitting.fit(PCA(n_components=2), source, execution).model
    about: dict[str, Any] = {"parameters": {}, "feature_names": None, "input_fingerprint": "", "n_rows": 40}
    targets = [tmp_path / "model.zarr", tmp_path / "z.zarr"]
    with leased(targets, seconds=LONG) as lease:
        for target in targets:
            write_claim(target, claim_elsewhere(seconds=LONG))
        with pytest.raises(StoreError, match="was taken over, by another run"):
            save_model(targets[0], model, method="pca", **about, fence=lease.check)
        with pytest.raises(StoreError, match="was taken over, by another run"):
            fitting.transform(model, source, targets[1], execution, attributes={}, fence=lease.check)
    assert contents(tmp_path) == [".model.zarr.lease", ".z.zarr.lease"]  # of the runs that took over
