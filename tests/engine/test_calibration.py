"""The speeds of the machine: measured once, kept in the user's cache, and never trusted blindly."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

from streamdr.core.work import KINDS, Work
from streamdr.engine import calibration
from streamdr.engine.calibration import Calibration, Speed, calibrate, known, place, remembered

UNIT = Calibration(4, dict.fromkeys(KINDS, Speed(2.0, 5.0)), start=0.5)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache of a user."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def measurements(monkeypatch):
    """Count measurements, each of which finds another machine."""
    found: list[Calibration] = []

    def measure():
        found.append(replace(UNIT, cores=calibration.available_cores(), start=1.0 + len(found)))
        return found[-1]

    monkeypatch.setattr(calibration, "measure", measure)
    return found


def test_the_machine_is_measured_in_all_kinds_of_work():
    speeds = calibration.measure()
    assert set(speeds.speeds) == set(KINDS)
    assert all(alone > 0 and together > 0 for alone, together in speeds.speeds.values())
    assert speeds.start > 0


def test_speeds_are_measured_once_and_reused(cache, measurements):
    first, second = calibrate(), calibrate()
    assert (first.origin, second.origin) == ("measured now", "measured earlier")
    assert first.speeds == second.speeds == known().speeds
    assert len(measurements) == 1
    assert os.listdir(cache / "streamdr") == [place().name]


def test_speeds_are_measured_again_on_request(cache, measurements):
    calibrate()
    again = calibrate(again=True)
    assert again.origin == "measured now"
    assert len(measurements) == 2
    assert remembered() == again.speeds == measurements[1]


def changed(key, value):
    """Return a function that replaces one entry of the file."""

    def change(found):
        *way, last = key
        inner = found
        for name in way:
            inner = inner[name]
        inner[last] = value
        return json.dumps(found)

    return change


DAMAGE = {
    "empty": lambda found: "",
    "truncated": lambda found: json.dumps(found)[:-20],
    "not an object": lambda found: "[1, 2]",
    "null": lambda found: "null",
    "deep": lambda found: "[" * 20_000,
    "long": lambda found: json.dumps(found) + " " * (1 << 17),
    "another format": changed(["format"], "something else"),
    "another version": changed(["version"], 0),
    "another machine": changed(["machine", "processor"], "abacus"),
    "other libraries": changed(["machine", "numpy"], "0.1"),
    "a kind is missing": lambda found: json.dumps({**found, "speeds": {"start": 1.0, "speeds": {}}}),
    "no speed": changed(["speeds", "speeds", "moved"], [0.0, 1.0]),
    "negative": changed(["speeds", "speeds", "moved"], [1.0, -1.0]),
    "not a number": changed(["speeds", "speeds", "eigen"], [float("nan"), 1.0]),
    "infinite": changed(["speeds", "speeds", "eigen"], [1.0, float("inf")]),
    "text": changed(["speeds", "speeds", "eigen"], ["1", "2"]),
    "a truth value": changed(["speeds", "start"], True),
    "three speeds": changed(["speeds", "speeds", "read"], [1.0, 2.0, 3.0]),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_or_foreign_file_is_ignored_and_replaced(cache, measurements, damage):
    calibrate()
    place().write_text(damage(json.loads(place().read_text())))
    assert remembered() is None
    assert known().origin == "nominal"
    assert calibrate().origin == "measured now"
    assert remembered() == measurements[1]


def test_a_pipe_in_the_place_of_the_file_does_not_block(cache, measurements):
    place().parent.mkdir()
    os.mkfifo(place())
    assert remembered() is None
    assert calibrate().problem == ""
    assert remembered() == measurements[0]


def test_speeds_that_cannot_be_kept_are_used_and_the_reason_is_told(cache, measurements, monkeypatch):
    (cache / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache / "file"))
    first, second = calibrate(), calibrate()
    assert first.origin == second.origin == "measured now"
    assert "file/streamdr: Not a directory" in first.problem
    assert known().origin == "nominal"


def test_a_failed_write_leaves_the_earlier_speeds(cache, measurements, monkeypatch):
    calibrate()
    monkeypatch.setattr(
        os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    assert "No space left" in calibrate(again=True).problem
    assert os.listdir(cache / "streamdr") == [place().name]
    assert remembered() == measurements[0]


def test_a_relative_cache_is_that_of_the_home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for given in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", given)
        assert place().parent == tmp_path / ".cache" / "streamdr"


def test_the_file_of_another_machine_is_another_file(cache, monkeypatch):
    here = place()
    monkeypatch.setattr(calibration, "available_cores", lambda: 1000)
    calibration.machine.cache_clear()
    try:
        assert place() != here
    finally:
        calibration.machine.cache_clear()


@pytest.mark.parametrize(("workers", "speed"), [(1, 2.0), (2, 3.0), (3, 4.0), (4, 5.0), (9, 5.0)])
def test_speeds_rise_from_one_worker_to_one_per_core(workers, speed):
    assert UNIT.seconds(Work(moved=30.0), workers) == pytest.approx(30.0 / speed)


def test_times_of_several_kinds_of_work_add_up():
    speeds = replace(UNIT, cores=1, speeds={**UNIT.speeds, "eigen": Speed(0.5, 99.0)})
    assert speeds.seconds(Work(moved=4.0, eigen=3.0), 8) == pytest.approx(4.0 / 2.0 + 3.0 / 0.5)
