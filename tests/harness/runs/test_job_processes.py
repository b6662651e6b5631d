"""Jobs in processes of their own: answers, errors, deaths, and jobs that hang."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import psutil
import pytest

from harness.runs.job_processes import EndedJob, JobProcesses
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.integration

MORE_THAN_A_PIPE_HOLDS = 8 << 20


def does(request: bytes) -> bytes:
    """Runs in the process of a job."""
    match request:
        case b"die":
            signal.raise_signal(signal.SIGKILL)
        case b"raise":
            raise ValueError("no such thing")
        case b"hang":
            signal.pause()
        case b"stand still":
            signal.signal(signal.SIGALRM, lambda number, frame: signal.raise_signal(signal.SIGSTOP))
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            return bytes(MORE_THAN_A_PIPE_HOLDS)
        case b"print":
            sys.stdout.write("said something\n")
    return request.upper()


def all_of(processes: JobProcesses, *requests: bytes) -> dict[bytes, EndedJob]:
    begun = {processes.start("a job", request): request for request in requests}
    found: dict[bytes, EndedJob] = {}
    while processes.running:
        for ended in processes.ended(PATIENCE_S):
            found[begun[ended.number]] = ended
    return found


def test_each_job_has_its_own_end(tmp_path: Path) -> None:
    processes = JobProcesses(does, tmp_path / "out.txt")
    found = all_of(processes, b"print", b"raise", b"die")
    assert found[b"print"].answer == b"PRINT"
    assert (tmp_path / "out.txt").read_text() == "said something\n"
    assert (found[b"raise"].answer, found[b"raise"].sentence) == (None, "ValueError: no such thing")
    assert found[b"die"].answer is None
    assert found[b"die"].sentence.startswith("its process ended with -9 after ")


def test_a_job_that_hangs_is_killed(tmp_path: Path) -> None:
    processes = JobProcesses(does, tmp_path / "out.txt")
    other = processes.start("another job", b"hang")
    hanging = processes.start("a job", b"hang", longest_s=0.0)
    (ended,) = processes.ended(PATIENCE_S)
    assert (ended.number, ended.answer, processes.running) == (hanging, None, 1)
    (ended,) = processes.kill()
    assert ended.number == other


def test_a_job_that_stands_still_amid_its_answer_is_killed(tmp_path: Path) -> None:
    processes = JobProcesses(does, tmp_path / "out.txt")
    processes.start("a job", b"stand still")
    # Process numbers begin again at some time: the youngest child need not have the highest.
    (started,) = processes._running.values()
    job = psutil.Process(started.child.pid)
    until(lambda: job.status() == psutil.STATUS_STOPPED, "a job that stands still")
    (ended,) = processes.kill()
    assert (ended.answer, processes.running) == (None, 0)
