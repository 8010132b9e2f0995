"""Signals at random moments: the exit code shows the signal, and the last line says how to continue."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from command_line import succeed, write_config, write_store
from fault_counts import pieces
from nightly import correlated
from surviving import require_same, undisturbed

PATIENCE_SECONDS = 300
PROGRAM = [sys.executable, "-m", "streamdr"]
NUMBERS = (signal.SIGINT, signal.SIGTERM)


def work(place: Path) -> None:
    """Write an input for a run of half a second."""
    write_store(place / "x.zarr", correlated(200_000, 32), chunks=(4_000, 32))
    execution = {"workers": 1, "checkpoint_seconds": 0.02}
    output = {"embedding": "out/z.zarr"}
    write_config(place, input={"path": "x.zarr"}, output=output, execution=execution)


def require_no_traceback_in_streamdr(err: str) -> None:
    """Check that no traceback shows code of streamdr. Python shows one for Ctrl-C while it starts."""
    assert not re.search(r'File ".*/streamdr/(?!__)', err), err


@pieces("signals", few=[2], full=100, size=10)
def test_a_run_that_is_signalled_at_a_random_moment_is_resumed(count, seed, tmp_path, tally):
    words, chance = ["run", "config.yaml"], random.Random(seed)
    whole = undisturbed(words, work, tmp_path / "undisturbed").place
    place = tmp_path / "place"
    shutil.copytree(whole / "x.zarr", place / "x.zarr")
    shutil.copy(whole / "config.yaml", place)
    began = time.monotonic()
    subprocess.run([*PROGRAM, *words], cwd=place, check=True, capture_output=True)
    longest = time.monotonic() - began
    sent = 0
    while sent < count:
        shutil.rmtree(place / "out", ignore_errors=True)
        number, send = chance.choice(NUMBERS), chance.choice([os.kill, os.killpg])
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            [*PROGRAM, *words], cwd=place, start_new_session=True, stdout=pipe, stderr=pipe, text=True
        )
        began = time.monotonic()
        try:
            process.wait(chance.uniform(0, longest))
            longest = min(longest, time.monotonic() - began)
        except subprocess.TimeoutExpired:
            send(process.pid, number)
            sent += 1
            tally("signals")
        _, err = process.communicate(timeout=PATIENCE_SECONDS)
        # Before the program handles signals, the system ends it silently, or Python ends with exit code 1.
        assert process.returncode in (0, 128 + number, -number, 1), err
        assert process.returncode != 1 or "KeyboardInterrupt" in err, err
        require_no_traceback_in_streamdr(err)
        assert "\nerror: " not in err, err
        if process.returncode == 128 + number and err:
            assert "run: streamdr run config.yaml" in err.splitlines()[-1]
        succeed(*words, cwd=place)
        require_same(place, whole)


@pytest.mark.faults
@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_during_the_import_of_the_program_shows_no_traceback_in_it(number, tally):
    for delay in np.linspace(0.0, 1.0, 20):
        process = subprocess.Popen([*PROGRAM, "--version"], stderr=subprocess.PIPE, text=True)
        time.sleep(delay)
        process.send_signal(number)
        tally("signals")
        _, err = process.communicate(timeout=PATIENCE_SECONDS)
        require_no_traceback_in_streamdr(err)
        assert process.returncode in (0, 1, -number, 128 + number)
