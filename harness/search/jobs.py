"""Jobs of searches: each is done in a process of a pool, and its result is a row of a journal.

A policy (`floodmark search`, `bugs find`, `nightly`) chooses the next job and records the results;
a pool does the jobs. A job that raises, or whose process dies, is lost, and does not affect other
jobs. No process outlives the one that started it."""

from __future__ import annotations

import math
import os
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import multiprocess
from multiprocess.connection import wait

from node.formats.errors import FloodmarkError
from node.formats.owned_folder import sweep
from node.runtime import children
from node.runtime.template import REAP_S

LOOK_S: Final = 0.25
MOST_LOSSES_IN_A_ROW: Final = 5
"""The number of lost jobs in a row after which a search, or a share of a nightly run, ends."""


class Job(Protocol):
    """A unit of work that needs no other state and can be pickled."""

    @property
    def key(self) -> str:
        """The name of the job in the journal."""
        ...

    def do(self) -> Any:
        """Do the job, in a process of a pool; return its row for the journal."""
        ...


class EndedJob(NamedTuple):
    """The end of a job after `seconds`: its `row`, or None and the reason as `sentence`. `error` is
    the class of the error that it raised, "" for none."""

    job: Job
    row: Any
    seconds: float
    sentence: str = ""
    error: str = ""


class Pool(Protocol):
    """Workers that do up to `size` jobs at a time: local processes, or the executors of Spark."""

    size: int

    @property
    def running(self) -> int:
        """The number of jobs that were started and have not ended."""
        ...

    def start(self, job: Job, longest_s: float = math.inf) -> None:
        """Start a job. It is killed after `longest_s` seconds."""
        ...

    def ended(self, within_s: float) -> list[EndedJob]:
        """Return the jobs that have ended; wait up to `within_s` seconds for the first one."""
        ...

    def kill(self) -> list[EndedJob]:
        """Kill all running jobs, and return them."""
        ...

    def close(self) -> None:
        """Kill all jobs and end all processes of the pool."""
        ...


class Policy(Protocol):
    """A command that works through jobs: it chooses them and records their results."""

    def next_job(self) -> Job | None:
        """Return the job to start now, None if there is none before a running one ends."""
        ...

    def longest_s(self, job: Job) -> float:
        """Return after how many seconds a job counts as hung and is killed."""
        ...

    def take(self, ended: EndedJob) -> None:
        """Record a job that has ended."""
        ...


def work_through(policy: Policy, pool: Pool, stop: Callable[[], bool]) -> None:
    """Do the jobs of a policy until none is left, or until `stop` says to kill those that run."""
    while not stop():
        while pool.running < pool.size and (job := policy.next_job()) is not None:
            pool.start(job, policy.longest_s(job))
        if not pool.running:
            return
        for ended in pool.ended(LOOK_S):
            policy.take(ended)
    for ended in pool.kill():
        if ended.row is not None:  # It had answered already.
            policy.take(ended)


def do_one(job: Job, pool: Pool, stop: Callable[[], bool], longest_s: float = math.inf) -> Any:
    """Do one job and return its row. Raises FloodmarkError if it is lost or stopped."""
    pool.start(job, longest_s)
    while not stop():
        for ended in pool.ended(LOOK_S):
            if ended.row is None:
                raise FloodmarkError(f"job {job.key} was lost: {ended.sentence}")
            return ended.row
    pool.kill()
    raise FloodmarkError(f"job {job.key} was stopped before it ended")


class _JobProcess:
    """A process that does job after job, and the job that it does now."""

    def __init__(self, output: Path) -> None:
        self.pipe, theirs = multiprocess.get_context("spawn").Pipe()
        self.child = children.start(
            "jobs", _do_jobs, os.getpid(), output, theirs, with_children=True
        )
        theirs.close()
        self.jobs = 0
        self.job: Any = None
        self.began_s = 0.0
        self.until_s = math.inf

    def begin(self, job: Job, longest_s: float) -> None:
        self.job, self.jobs = job, self.jobs + 1
        self.began_s = time.monotonic()
        self.until_s = self.began_s + longest_s
        with suppress(OSError):  # A process that has died is noticed when its answer is read.
            self.pipe.send(job)

    def end(self) -> None:
        self.child.kill()
        self.child.join(REAP_S)
        self.pipe.close()
        sweep()


class JobProcesses:
    """A pool of up to `size` local processes. Use it in the main thread, and always `close` it."""

    def __init__(self, size: int, output: Path, *, jobs_each: int = 1) -> None:
        """Let each process do `jobs_each` jobs before a new one replaces it. With 1, each job has
        its own interpreter and hash seed, which costs a second. `output` is what they print to."""
        self.size = size
        self._output = output
        self._jobs_each = jobs_each
        self._idle: list[_JobProcess] = []
        self._busy: dict[Any, _JobProcess] = {}

    @property
    def running(self) -> int:
        return len(self._busy)

    def start(self, job: Job, longest_s: float = math.inf) -> None:
        process = self._idle.pop() if self._idle else _JobProcess(self._output)
        process.begin(job, longest_s)
        self._busy[process.pipe] = process

    def ended(self, within_s: float) -> list[EndedJob]:
        now_s = time.monotonic()
        hanging = [process for process in self._busy.values() if process.until_s < now_s]
        if hanging:
            return self._killed(hanging)
        ready = wait(list(self._busy), within_s)
        return [self._taken(self._busy[pipe], self._jobs_each) for pipe in ready]

    def kill(self) -> list[EndedJob]:
        return self._killed(list(self._busy.values()))

    def close(self) -> None:
        self.kill()
        for process in self._idle:
            process.end()
        self._idle.clear()

    def _killed(self, processes: list[_JobProcess]) -> list[EndedJob]:
        """End these processes. One that stands still amid its answer would never finish it."""
        for process in processes:
            process.child.kill()
        return [self._taken(process, 0) for process in processes]

    def _taken(self, process: _JobProcess, jobs_each: int) -> EndedJob:
        """Take the answer of a process that has spoken, or has ended, or is killed. It goes on if
        it has answered and has done fewer than `jobs_each` jobs."""
        self._busy.pop(process.pipe)
        seconds = time.monotonic() - process.began_s
        try:
            row, sentence, error = process.pipe.recv() if process.pipe.poll() else (None, "", "")
        except (EOFError, OSError):
            row, sentence, error = None, "", ""
        if (row is not None or sentence) and process.jobs < jobs_each:
            self._idle.append(process)
        else:
            process.end()
        if row is None and not sentence:
            sentence = f"its process ended with {process.child.exitcode} after {seconds:.0f} s"
        if row is None and not error:
            sentence += f" (see {self._output})"
        return EndedJob(process.job, row, seconds, sentence, error)


def _do_jobs(parent_pid: int, output: Path, pipe: Any) -> None:
    """Do one job after the other, in a process of its own."""
    children.settle_in(parent_pid, output)
    with suppress(EOFError):
        while True:
            pipe.send(answer(pipe.recv()))


def answer(job: Job) -> tuple[Any, str, str]:
    """Do a job; return its row, or None, a sentence on the error that it raised, and the class of
    the error if it was foreseen. The traceback of any other one is printed."""
    try:
        return job.do(), "", ""
    except FloodmarkError as error:
        return None, str(error), type(error).__name__
    except Exception as error:
        traceback.print_exc()
        return None, f"{type(error).__name__}: {error}", ""
