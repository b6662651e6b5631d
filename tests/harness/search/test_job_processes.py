"""The pool of jobs: rows, errors, deaths, and jobs that hang."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path

import msgspec
import psutil
import pytest

from harness.search.jobs import EndedJob, JobProcesses
from node.formats.errors import StorageError
from node.formats.owned_folder import OwnedFolder
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.integration

MORE_THAN_A_PIPE_HOLDS = 8 << 20


class Does(msgspec.Struct, frozen=True):
    """A job that does what its key says, and returns the key in capitals."""

    key: str

    def do(self) -> object:
        match self.key:
            case "die":
                OwnedFolder()
                signal.raise_signal(signal.SIGKILL)
            case "raise":
                raise ValueError("no such thing")
            case "refuse":
                raise StorageError("the disk is full")
            case "hang":
                signal.pause()
            case "stand still":
                signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGSTOP))
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                return bytes(MORE_THAN_A_PIPE_HOLDS)
            case "pid":
                return os.getpid()
            case "print":
                sys.stdout.write("said something\n")
                sys.stdout.flush()
        return self.key.upper()


def all_of(pool: JobProcesses, *keys: str) -> dict[str, EndedJob]:
    for key in keys:
        pool.start(Does(key))
    found: dict[str, EndedJob] = {}
    while pool.running:
        for ended in pool.ended(PATIENCE_S):
            found[ended.job.key] = ended
    return found


def test_each_job_has_its_own_end(tmp_path: Path) -> None:
    temporary = Path(tempfile.gettempdir())
    before = set(temporary.iterdir())
    pool = JobProcesses(3, tmp_path / "out.txt")
    found = all_of(pool, "print", "raise", "refuse", "die")
    assert found["print"].row == "PRINT"
    assert "said something\n" in (tmp_path / "out.txt").read_text()
    assert (found["raise"].row, found["raise"].error) == (None, "")
    out = tmp_path / "out.txt"
    assert found["raise"].sentence == f"ValueError: no such thing (see {out})"
    assert 'raise ValueError("no such thing")' in out.read_text(), "its traceback is there"
    assert (found["refuse"].sentence, found["refuse"].error) == ("the disk is full", "StorageError")
    assert (found["die"].row, found["die"].seconds < PATIENCE_S) == (None, True)
    assert found["die"].sentence.startswith("its process ended with -9 after ")
    assert set(temporary.iterdir()) <= before, "what it made goes with it"


def test_a_process_does_as_many_jobs_as_it_may(tmp_path: Path) -> None:
    pool = JobProcesses(1, tmp_path / "out.txt", jobs_each=2)
    first, second, third = (all_of(pool, "pid")["pid"].row for _ in range(3))
    assert first == second != third
    pool.close()
    until(lambda: not psutil.pid_exists(int(third)), "the end of an idle process")


def test_a_process_that_was_killed_after_its_answer_does_no_other_job(tmp_path: Path) -> None:
    pool = JobProcesses(1, tmp_path / "out.txt", jobs_each=9)
    pool.start(Does("late"), longest_s=0.0)
    (process,) = pool._busy.values()
    assert process.pipe.poll(PATIENCE_S)
    (ended,) = pool.ended(PATIENCE_S)
    assert ended.row == "LATE"
    assert all_of(pool, "next")["next"].row == "NEXT"
    pool.close()


def test_a_job_that_hangs_is_killed(tmp_path: Path) -> None:
    pool = JobProcesses(2, tmp_path / "out.txt")
    pool.start(other := Does("hang"))
    pool.start(hanging := Does("hang"), longest_s=0.0)
    (ended,) = pool.ended(PATIENCE_S)
    assert ended.job is hanging
    assert (ended.row, pool.running) == (None, 1)
    (ended,) = pool.kill()
    assert ended.job is other


def test_a_job_that_stands_still_amid_its_answer_is_killed(tmp_path: Path) -> None:
    pool = JobProcesses(1, tmp_path / "out.txt")
    pool.start(Does("stand still"))
    # Process numbers begin again at some time: the youngest child need not have the highest.
    (started,) = pool._busy.values()
    job = psutil.Process(started.child.pid)
    until(lambda: job.status() == psutil.STATUS_STOPPED, "a job that stands still")
    (ended,) = pool.kill()
    assert (ended.row, pool.running) == (None, 0)
