"""Whether a job of a queue is over, in the queue's own words: dask submits and cancels jobs, no more."""

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
"""The command that asks after a job, and what it says of one that will start no worker any more."""


def end_of(kind: str, job: str) -> str | None:
    """What the queue of a kind of cluster says of a job that is over, on one line.

    None for a job that waits or runs, and where the queue does not answer, or in words that are not known.
    """
    question, over = _QUESTIONS[kind]
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
    said = " ".join((answer.stdout + b" " + answer.stderr).decode(errors="replace").split())
    return (said or "it is not known any more") if re.search(over, said) else None
