"""Stopping: whatever the work is doing, the process that was started can act."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

import pytest

from streamdr.errors import Interrupted
from streamdr.progress import Lines
from streamdr.signals import Stoppable

PROGRAM = """
import ctypes, os, signal, subprocess, sys
from streamdr.signals import supervise

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())  # whole lines, whoever else writes

def work(stop):
    {work}

def told():
    say("told")

def lost(why, code):
    say("lost", why, code)

sys.exit(supervise(work, told=told, lost=lost, grace_seconds={grace}))
"""

PATIENT = 'say("ready"); stop.wait(); say("clean"); return stop.exit_code'
# A mutex that is locked twice: a call into C that never returns, and keeps the interpreter to itself.
HOLDING_THE_GIL = """
    say("ready")
    mutex, lock = ctypes.create_string_buffer(64), ctypes.PyDLL(None).pthread_mutex_lock
    lock(mutex), lock(mutex)
"""


def started(work: str, grace: float = 60.0) -> subprocess.Popen[str]:
    """A program that has begun its work."""
    program = PROGRAM.format(work=work.strip(), grace=grace)
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout.readline() == "ready\n"
    return process


def ended(process: subprocess.Popen[str]) -> tuple[int, list[str]]:
    said = process.stdout.read().splitlines()
    return process.wait(), said


@pytest.mark.parametrize("code", [0, 1, 2, 77])
def test_the_exit_code_is_that_of_the_work(code):
    assert ended(started(f'say("ready"); return {code}')) == (code, [])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("send", [os.kill, os.killpg])
def test_work_that_listens_stops_by_itself(number, code, send):
    process = started(PATIENT)
    send(process.pid, number)
    ended_with, said = ended(process)
    assert ended_with == code
    assert sorted(said) == ["clean", "told"]


def test_signals_that_come_together_are_one_request():
    process = started(PATIENT)
    process.send_signal(signal.SIGSTOP)  # so that both are there when it goes on, however busy the machine is
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGCONT)
    ended_with, said = ended(process)
    assert (ended_with, sorted(said)) == (130, ["clean", "told"])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_work_that_lets_nothing_else_run_is_ended_after_the_grace_period(number, code):
    process = started(HOLDING_THE_GIL, grace=0.2)
    process.send_signal(number)
    assert ended(process) == (code, ["told", f"lost did not stop within 0.2 seconds {code}"])


def test_work_that_has_said_all_is_not_waited_for():
    """What libraries do at exit takes long on a busy machine, and is not work that does not stop."""
    process = started("import atexit, time; atexit.register(time.sleep, 3600); " + PATIENT)
    process.send_signal(signal.SIGTERM)
    ended_with, said = ended(process)
    assert (ended_with, sorted(said)) == (143, ["clean", "told"])


def test_work_that_is_telling_how_it_ended_is_not_cut_short():
    process = started(
        'import time; say("ready"); stop.wait(); stop.concluded(); time.sleep(1); say("clean"); return 7',
        grace=0.2,
    )
    process.send_signal(signal.SIGTERM)
    ended_with, said = ended(process)
    assert (ended_with, sorted(said)) == (7, ["clean", "told"])


def test_a_second_signal_ends_it_at_once():
    process = started(HOLDING_THE_GIL)
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "told\n"
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.1)
    assert ended(process) == (130, ["lost was told to stop at once 130"])


def test_work_that_somebody_killed_is_told_of():
    process = started('say("ready"); os.kill(os.getpid(), signal.SIGKILL)')
    assert ended(process) == (137, ["lost was killed by signal 9, perhaps for want of memory 137"])


def test_killing_the_process_that_was_started_kills_the_work():
    process = started(HOLDING_THE_GIL)
    process.kill()
    # The work holds the other end of standard output: that ends when the work does.
    assert ended(process) == (-signal.SIGKILL, [])


def test_ctrl_c_spares_the_processes_that_the_work_started():
    work = """
    helper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True)
    say("ready")
    stop.wait()
    helper.communicate("go on")
    say("the helper ended with", helper.returncode)
    return stop.exit_code
    """
    process = started(work)
    os.killpg(process.pid, signal.SIGINT)
    ended_with, said = ended(process)
    assert (ended_with, sorted(said)) == (130, ["the helper ended with 0", "told"])


def test_work_that_knows_only_progress_stops_at_its_next_step():
    stop, stream = threading.Event(), io.StringIO()
    progress = Stoppable(Lines(stream), stop)
    progress.start("copying", 10)
    progress.advance(4)
    stop.set()
    with pytest.raises(Interrupted):
        progress.advance(3)
    progress.finish()
    progress.message("bye")
    assert "stopped at 7 of 10 rows" in stream.getvalue()
    assert stream.getvalue().endswith("bye\n")
