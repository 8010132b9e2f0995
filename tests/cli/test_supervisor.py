"""Stopping: whatever the work is doing, the process that was started can act."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest
from dispositions import starting
from narrowing import present

from streamdr.cli.supervisor import Channel
from streamdr.core.progress import PassStart
from streamdr.errors import Interrupted

PROGRAM = """
import ctypes, os, signal, subprocess, sys
from streamdr.cli.console import answer
from streamdr.core.progress import Lines, PassStart
from streamdr.cli.supervisor import StageError, WorkerLost, supervise

def body(channel):
    say, stop = channel.message, channel.stop
    {work}

def work(channel):
    answer(channel, lambda: body(channel))

try:
    code = supervise(work, Lines(sys.stdout), grace_seconds={grace})["code"]
except WorkerLost as lost:
    print(lost.how, flush=True)
    code = lost.shell_code
except StageError as error:
    print(error.kind, error, flush=True)
    code = error.exit_code
sys.exit(code)
"""

STOPPING = "stopping; a second signal stops at once"
PATIENT = 'say("ready"); stop.wait(); say("clean"); channel.check()'
# A mutex that is locked twice: a call into C that never returns, and keeps the interpreter to itself.
HOLD_THE_GIL = """
    mutex, lock = ctypes.create_string_buffer(64), ctypes.PyDLL(None).pthread_mutex_lock
    lock(mutex), lock(mutex)
"""
HOLDING_THE_GIL = 'say("ready")' + HOLD_THE_GIL
STOPS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]


def started(work: str, grace: float = 60.0) -> subprocess.Popen[str]:
    """A program that has begun its work. All of its processes hold the pipe that it is read by."""
    program = PROGRAM.format(work=work.strip(), grace=grace)
    with starting():
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    assert present(process.stdout).readline() == "ready\n"
    return process


def ended(process: subprocess.Popen[str]) -> tuple[int, list[str]]:
    said = present(process.stdout).read().splitlines()
    return process.wait(), said


@pytest.mark.parametrize("code", [0, 1, 2, 77])
def test_the_exit_code_is_that_of_the_work(code):
    assert ended(started(f'say("ready"); return {{"code": {code}}}')) == (code, [])


def test_an_error_comes_with_its_kind_its_words_and_its_exit_code():
    work = """
    from streamdr.errors import ConfigError
    say("ready")
    raise ConfigError("one", "two")
    """
    assert ended(started(work)) == (2, ["ConfigError one", "two"])


def test_what_the_work_prints_is_not_among_what_is_said():
    """Standard output is the supervisor's: one result, whatever a library prints."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(work='print("noise"); return {"code": 0}', grace=60)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.communicate() == ("", "noise\n")


@pytest.mark.parametrize(("number", "code"), STOPS)
@pytest.mark.parametrize("send", [os.kill, os.killpg])
def test_work_that_listens_stops_by_itself(number, code, send):
    process = started(PATIENT)
    send(process.pid, number)
    ended_with, said = ended(process)
    assert ended_with == code
    assert sorted(said) == ["clean", "stopped", STOPPING]


def test_signals_that_come_together_are_one_request():
    process = started(PATIENT)
    process.send_signal(signal.SIGSTOP)  # so that both are there when it goes on, however busy the machine is
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    ended_with, said = ended(process)
    assert (ended_with, sorted(said)) == (130, ["clean", "stopped", STOPPING])


@pytest.mark.parametrize(("number", "code"), STOPS)
def test_work_that_lets_nothing_else_run_is_ended_after_the_grace_period(number, code):
    process = started(HOLDING_THE_GIL, grace=0.2)
    process.send_signal(number)
    assert ended(process) == (code, [STOPPING, "the work did not stop within 0.2 seconds"])


def test_work_that_has_said_all_is_not_waited_for():
    """What libraries do at exit takes long on a busy machine, and is not work that does not stop."""
    process = started("import atexit, time; atexit.register(time.sleep, 3600); " + PATIENT)
    process.send_signal(signal.SIGTERM)
    ended_with, said = ended(process)
    assert (ended_with, sorted(said)) == (143, ["clean", "stopped", STOPPING])


def test_an_outcome_that_came_counts_whatever_the_worker_does_then():
    """It is longer than the pipe, so that it does not come all at once."""
    work = (
        'say("ready"); stop.wait(); channel.send("report", {"code": 7, "text": "x" * 5_000_000})'
        + HOLD_THE_GIL
    )
    process = started(work)
    process.send_signal(signal.SIGTERM)
    assert ended(process) == (7, [STOPPING])


def test_a_second_signal_ends_it_at_once():
    process = started(HOLDING_THE_GIL)
    process.send_signal(signal.SIGINT)
    assert present(process.stdout).readline() == f"{STOPPING}\n"
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.1)
    assert ended(process) == (130, ["the work received a second signal and was stopped at once"])


def test_killed_work_is_reported():
    process = started('say("ready"); os.kill(os.getpid(), signal.SIGKILL)')
    assert ended(process) == (137, ["the work was killed by signal 9, perhaps because memory ran out"])


def test_killing_the_process_that_was_started_kills_the_work():
    process = started(HOLDING_THE_GIL)
    process.kill()
    # The worker holds the other end of the pipe: that ends when the worker does.
    assert ended(process) == (-signal.SIGKILL, [])


def test_ctrl_c_spares_the_processes_that_the_work_started():
    work = """
    helper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True)
    say("ready")
    stop.wait()
    helper.communicate("go on")
    say(f"the helper ended with {helper.returncode}")
    channel.check()
    """
    process = started(work)
    os.killpg(process.pid, signal.SIGINT)
    ended_with, said = ended(process)
    assert (ended_with, sorted(said)) == (130, ["stopped", STOPPING, "the helper ended with 0"])


def test_a_pass_that_was_cut_short_is_finished_for_those_who_watch_it():
    process = started(
        'channel.start(PassStart("copying", 10)); channel.advance(4); ' + HOLDING_THE_GIL, grace=0.2
    )
    process.send_signal(signal.SIGTERM)
    code, said = ended(process)
    assert code == 143
    assert said[1].startswith("copying: stopped at 4 of 10 rows")
    assert said[2] == "the work did not stop within 0.2 seconds"


def test_work_that_knows_only_progress_stops_at_its_next_step():
    (requests, supervisor), (messages, sent) = os.pipe(), os.pipe()
    channel = Channel(requests, sent)
    channel.start(PassStart("copying", 10))
    channel.advance(4)
    os.close(supervisor)
    channel.stop.wait()
    with pytest.raises(Interrupted):
        channel.advance(3)
    channel.finish()
    channel.message("bye")
    os.close(sent)
    with os.fdopen(messages) as received:
        assert [json.loads(line) for line in received] == [
            {"start": ["copying", 10, 0, 0.0, "rows", 0.0, 0.0]},
            {"advance": [4]},
            {"advance": [3]},
            {"finish": []},
            {"message": ["bye"]},
        ]
