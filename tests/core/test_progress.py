"""The display of the progress of a pass. Tests set the time."""

import io
import os
import re
import subprocess
import sys
from contextlib import suppress

import pytest

from streamdr.core.progress import Bar, Lines, Meter, PassStart, Silent, for_stream


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def log():
    return io.StringIO()


@pytest.fixture
def lines(log, clock):
    return Lines(log, every=5, clock=clock)


def work(progress, clock, steps, rows, seconds):
    for _ in range(steps):
        clock.now += seconds
        progress.advance(rows)


def test_lines_come_at_most_every_few_seconds_and_once_at_the_end(lines, log, clock):
    lines.start(PassStart("moments", 100_000, bytes_per_row=1e6))
    work(lines, clock, steps=100, rows=1000, seconds=0.1)
    lines.finish()
    assert log.getvalue().splitlines() == [
        "moments: 50,000 of 100,000 rows, 50%, 10.00 GB/s, 5.0 s left",
        "moments: 100,000 rows in 0:10, 10.00 GB/s",
    ]


def test_a_short_pass_is_one_line(lines, log, clock):
    lines.start(PassStart("components", 500, bytes_per_row=4e6, unit="columns"))
    work(lines, clock, steps=1, rows=500, seconds=2.0)
    lines.finish()
    assert log.getvalue() == "components: 500 columns in 2.0 s, 1.00 GB/s\n"


def test_rows_of_an_earlier_process_count_as_done_but_not_as_speed(lines, log, clock):
    lines.message("resuming moments at row 800,000")
    lines.start(PassStart("moments", 1_000_000, done=800_000, bytes_per_row=1e4))
    work(lines, clock, steps=10, rows=10_000, seconds=1.0)
    lines.finish()
    assert log.getvalue().splitlines() == [
        "resuming moments at row 800,000",
        "moments: 850,000 of 1,000,000 rows, 85%, 0.10 GB/s, 0:15 left",
        "moments: 900,000 of 1,000,000 rows, 90%, 0.10 GB/s, 0:10 left",
        "moments: stopped at 900,000 of 1,000,000 rows after 0:10, 0.10 GB/s",
    ]


def test_an_unknown_size_of_rows_leaves_the_speed_out(lines, log, clock):
    lines.start(PassStart("ingest", 100))
    work(lines, clock, steps=1, rows=60, seconds=6.0)
    lines.finish()
    assert log.getvalue().splitlines() == [
        "ingest: 60 of 100 rows, 60%, 4.0 s left",
        "ingest: stopped at 60 of 100 rows after 6.0 s",
    ]


def test_the_passes_of_one_run_do_not_mix(lines, log, clock):
    for label in ("first", "second"):
        lines.start(PassStart(label, 10, bytes_per_row=1e9))
        work(lines, clock, steps=1, rows=10, seconds=4.0)
        lines.finish()
    assert log.getvalue().splitlines() == [
        "first: 10 rows in 4.0 s, 2.50 GB/s",
        "second: 10 rows in 4.0 s, 2.50 GB/s",
    ]


def expected_pace(log):
    """The rows per second that the time left in the last line implies."""
    done, total, minutes, seconds = re.findall(r"moments: (\S+) of (\S+) rows.* (\d+):(\d+) left", log)[-1]
    rows = int(total.replace(",", "")) - int(done.replace(",", ""))
    return rows / (60 * int(minutes) + int(seconds))


def test_the_time_left_forgets_a_long_stall(lines, log, clock):
    lines.start(PassStart("moments", 1_000_000))
    work(lines, clock, steps=20, rows=1000, seconds=1.0)
    clock.now += 3600
    work(lines, clock, steps=10, rows=1000, seconds=1.0)
    assert expected_pace(log.getvalue()) == pytest.approx(1000, rel=1e-2)


def test_the_time_left_follows_a_lasting_change_of_pace(lines, log, clock):
    lines.start(PassStart("moments", 1_000_000))
    work(lines, clock, steps=100, rows=1000, seconds=1.0)
    work(lines, clock, steps=100, rows=300, seconds=1.0)
    assert expected_pace(log.getvalue()) == pytest.approx(300, rel=1e-2)


@pytest.mark.parametrize("workers", [2, 8, 16])
def test_the_time_left_is_right_for_workers_that_finish_together(lines, log, clock, workers):
    lines.start(PassStart("moments", 1_000_000))
    for _ in range(50):
        clock.now += workers - 0.1
        work(lines, clock, steps=workers, rows=1000, seconds=0.1 / workers)
    assert expected_pace(log.getvalue()) == pytest.approx(1000, rel=1e-2)


def test_the_time_left_is_as_predicted_until_the_pace_is_known(lines, log, clock):
    lines.start(PassStart("moments", 1000, seconds=100.0, later_seconds=50.0))
    work(lines, clock, steps=1, rows=0, seconds=6.0)
    assert log.getvalue() == "moments: 0 of 1,000 rows, 0%, 1:34 left, about 2:24 in all\n"


def left_of(meter):
    """The seconds left of a pass and in all, which are known here."""
    return meter.seconds_left, meter.seconds_in_all


def test_the_measured_pace_replaces_the_prediction(clock):
    """The pass is four times slower than predicted: the time left approaches what is true."""
    meter = Meter(PassStart("moments", 1000, seconds=100.0, later_seconds=50.0), clock)
    errors = []
    for done in range(1, 100):
        clock.now += 4.0
        meter.advance(10)
        left, in_all = left_of(meter)
        errors.append(abs(left - 4.0 * (100 - done)))
        assert in_all > left
    assert errors == sorted(errors, reverse=True)
    assert in_all - left == pytest.approx(200, rel=0.1)


def test_the_time_left_falls_while_the_pace_is_steady(clock):
    meter = Meter(PassStart("moments", 1000, seconds=100.0), clock)
    shown = []
    for _ in range(100):
        clock.now += 1.0
        meter.advance(10)
        shown.append(left_of(meter)[0])
    assert shown == sorted(shown, reverse=True)
    assert shown[-1] == 0.0


def test_a_long_block_counts_down_and_then_says_nothing(clock):
    meter = Meter(PassStart("moments", 1, seconds=10.0), clock)
    shown = []
    for _ in range(15):
        shown.append(meter.seconds_left)
        clock.now += 1.0
    assert shown == [10.0 - second for second in range(10)] + [None] * 5
    meter.advance(1)
    assert meter.seconds_left == 0.0


def test_a_resumed_pass_is_predicted_for_its_rest(clock):
    meter = Meter(PassStart("moments", 1000, done=750, seconds=100.0), clock)
    assert meter.seconds_left == pytest.approx(25.0)


HOSTILE = [0.0, -1.0, 1e-300, 1e300, float("inf"), float("-inf"), float("nan")]


@pytest.mark.parametrize("later", HOSTILE)
@pytest.mark.parametrize("seconds", HOSTILE)
@pytest.mark.parametrize(("total", "done"), [(0, 0), (1, 0), (1, 1), (10, 7), (10, 12)])
def test_the_time_left_is_finite_whatever_was_predicted(clock, total, done, seconds, later):
    meter = Meter(PassStart("moments", total, done, 8.0, "rows", seconds, later), clock)
    for _ in range(4):
        for shown in (meter.seconds_left, meter.seconds_in_all):
            assert shown is None or 0 <= shown < float("inf")
        assert meter.under_way()
        clock.now += 1.0
        meter.advance(1 if meter.done < total else 0)
    assert meter.outcome()


def test_long_times_are_shown_in_hours(lines, log, clock):
    lines.start(PassStart("moments", 1_000_000))
    work(lines, clock, steps=1, rows=1000, seconds=10.0)
    assert log.getvalue() == "moments: 1,000 of 1,000,000 rows, 0%, 2:46:30 left\n"


def test_a_closed_log_does_not_end_the_run(clock):
    reader, writer = os.pipe()
    os.close(reader)
    with suppress(BrokenPipeError), os.fdopen(writer, "w") as unread:
        lines = Lines(unread, clock=clock)
        lines.start(PassStart("moments", 10))
        lines.advance(10)
        lines.finish()
        survived = True
    assert survived


def test_silent_progress_prints_nothing(capfd):
    silent = Silent()
    silent.start(PassStart("moments", 10, 5, 4.0, "columns"))
    silent.advance(5)
    silent.message("resuming")
    silent.finish()
    assert capfd.readouterr() == ("", "")


def test_a_bar_shows_rows_speed_and_time_left(clock, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    terminal = Terminal()
    bar = Bar(terminal, clock=clock)
    bar.message("resuming [moments] at row 200")
    bar.start(PassStart("moments [1]", 1000, done=200, bytes_per_row=1e7))
    work(bar, clock, steps=4, rows=100, seconds=1.0)
    bar.message("halfway")
    bar.finish()
    shown = terminal.getvalue()
    assert "resuming [moments] at row 200" in shown
    assert "halfway" in shown
    for part in ("moments [1]", "60%", "600/1,000 rows", "1.00 GB/s", "4.0 s left"):
        assert part in shown
    assert shown.endswith("\x1b[?25h")  # the cursor is shown again


def test_a_bar_may_be_used_for_one_pass_after_another(clock):
    terminal = Terminal()
    bar = Bar(terminal, clock=clock)
    for label in ("first", "second"):
        bar.start(PassStart(label, 10, unit="columns"))
        work(bar, clock, steps=2, rows=5, seconds=1.0)
        bar.finish()
    assert "first" in terminal.getvalue()
    assert "second" in terminal.getvalue()
    assert "10/10 columns" in terminal.getvalue()


def test_a_terminal_gets_a_bar_and_anything_else_gets_lines(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    assert isinstance(for_stream(Terminal()), Bar)
    assert isinstance(for_stream(io.StringIO()), Lines)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(for_stream(Terminal()), Lines)


def test_lines_need_none_of_the_packages_that_draw():
    code = (
        "import sys, streamdr.core.progress\n"
        "sys.exit(any(m in sys.modules for m in ('rich', 'numpy', 'dask')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
