"""Whether a job of a queue has ended, from the output of the queue: dask only submits and cancels jobs."""

from __future__ import annotations

import os
import re
import subprocess

_ANSWER_SECONDS = 5.0
_QUESTIONS: dict[str, tuple[str, str]] = {
    "SLURMCluster": (
        "squeue --noheader --states=all --format=%T,%r --jobs={}",
        r"^$|^(BOOT_FAIL|CANCELLED|COMPLETED|DEADLINE|FAILED|NODE_FAIL|OUT_OF_MEMORY|PREEMPTED|TIMEOUT),"
        r"|Invalid job id",
    ),
    "PBSCluster": ("qstat {}", r"Unknown Job|has finished| [CFX] \S+$"),
    "MoabCluster": ("checkjob {}", r"State: (Completed|Removed|Vacated)|invalid job"),
    "SGECluster": ("qstat -j {}", r"jobs do not exist|error reason"),
    "LSFCluster": ("bjobs -noheader -o stat {}", r"^(DONE|EXIT|ZOMBI)$|is not found"),
    "HTCondorCluster": ("condor_q {} -autoformat JobStatus HoldReason", r"^$|^[345]\b"),
    "OARCluster": ("oarstat -s -j {}", r": (Terminated|Error)$"),
}
"""The command that shows the state of a job, and a pattern of its output for a job that has ended."""


def end_of(kind: str, job: str) -> str | None:
    """Return what the queue of a kind of cluster reports about a job that has ended, on one line.

    None if the job waits or runs, if the queue does not answer, or if its answer is not recognised.
    """
    question, ended = _QUESTIONS[kind]
    try:
        answer = subprocess.run(
            question.format(job).split(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**os.environ, "LC_ALL": "C"},
            timeout=_ANSWER_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = " ".join((answer.stdout + b" " + answer.stderr).decode(errors="replace").split())
    return (text or "the queue does not know the job any more") if re.search(ended, text) else None
