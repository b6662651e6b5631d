"""Jobs in processes of their own, several at a time: what a job raises, or its death, is its own.

A fresh process costs about a second. In return a job that dies, hangs or uses up the memory is one
lost job, and every job has another hash seed. No process outlives the one that started it.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import multiprocess
from multiprocess.connection import wait

from node.runtime import children
from node.runtime.reap import REAP_S

Work = Callable[[bytes], bytes]
"""A function that a process can import: it turns a request into an answer."""
_FAILED: Final = b"!"
_DONE: Final = b"="


class EndedJob(NamedTuple):
    """The end of a job: its `answer`, or None and the `sentence` why there is none; `seconds`
    of wall clock since it was started."""

    number: int
    answer: bytes | None
    seconds: float
    sentence: str = ""


class _Started(NamedTuple):
    number: int
    child: children.Child
    began_s: float
    until_s: float


class JobProcesses:
    """The processes of one owner, in its main thread. `close` it in any case."""

    def __init__(self, work: Work, output: Path) -> None:
        """Each process does `work` once; `output` gets what they print."""
        self._work = work
        self._output = output
        self._running: dict[Any, _Started] = {}
        self._begun = 0

    @property
    def running(self) -> int:
        """The number of jobs that have not ended."""
        return len(self._running)

    def start(self, name: str, request: bytes, longest_s: float = math.inf) -> int:
        """Begin a job; returns its number, by which `ended` tells of it. If it takes longer than
        `longest_s` it is killed."""
        mine, theirs = multiprocess.get_context("spawn").Pipe(duplex=False)
        job = (os.getpid(), self._output, self._work, request, theirs)
        child = children.start(name, _in_process, *job, with_children=True)
        theirs.close()
        self._begun += 1
        began_s = time.monotonic()
        self._running[mine] = _Started(self._begun, child, began_s, began_s + longest_s)
        return self._begun

    def ended(self, within_s: float) -> list[EndedJob]:
        """Return the jobs that have ended, once one has or the time is over."""
        now_s = time.monotonic()
        hanging = [pipe for pipe, job in self._running.items() if job.until_s < now_s]
        if hanging:
            return self._killed(hanging)
        return [self._reaped(pipe) for pipe in wait(list(self._running), within_s)]

    def kill(self) -> list[EndedJob]:
        """End all that run, at once: their ends."""
        return self._killed(list(self._running))

    def close(self) -> None:
        """Leave no process behind."""
        self.kill()

    def _killed(self, pipes: list[Any]) -> list[EndedJob]:
        """End these. One that stands still amid its answer would never finish it."""
        for pipe in pipes:
            self._running[pipe].child.kill()
        return [self._reaped(pipe) for pipe in pipes]

    def _reaped(self, pipe: Any) -> EndedJob:
        """End a process, and return what it has said."""
        number, child, began_s, _ = self._running.pop(pipe)
        try:
            said = pipe.recv_bytes() if pipe.poll() else b""
        except (EOFError, OSError):
            said = b""
        child.kill()
        child.join(REAP_S)
        pipe.close()
        seconds = time.monotonic() - began_s
        if said.startswith(_DONE):
            return EndedJob(number, said[1:], seconds)
        why = f"its process ended with {child.exitcode} after {seconds:.0f} s"
        return EndedJob(number, None, seconds, said[1:].decode() if said else why)


def _in_process(parent_pid: int, output: Path, work: Work, request: bytes, pipe: Any) -> None:
    """One job in a process of its own."""
    children.settle_in(parent_pid, output)
    try:
        said = _DONE + work(request)
    except Exception as error:
        said = _FAILED + f"{type(error).__name__}: {error}".encode()
    pipe.send_bytes(said)
    pipe.close()
