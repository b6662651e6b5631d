"""Processes for the simulated pieces of a night: one for each, none that outlives the night.

A fresh process a piece costs about a second and buys that a piece which dies, or hangs, or eats the
memory, is one lost piece and not a lost night; and that every run has another hash seed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import multiprocess
from multiprocess.connection import wait

from harness.formats.nightly_journal import AnyRow
from harness.nightly.jobs import AnyJob, Digests, do
from node.runtime import children

LOOK_S: Final = 0.2
_job_decoder: Final = msgspec.json.Decoder(AnyJob)


class FinishedJob(NamedTuple):
    """What became of a job: its result, or why there is none; `seconds` of wall clock."""

    job: AnyJob
    result: AnyRow | Digests | None
    seconds: float
    sentence: str = ""


def side_by_side(
    jobs: Sequence[AnyJob], output: Path, limit_s: float, stop: Callable[[], bool]
) -> Iterator[FinishedJob]:
    """Do the jobs at the same time, each in its own process, and give results as they come.

    One that takes longer than `limit_s` is killed. When `stop` says so, all are, and nothing more
    is given. `output` gets what processes print.
    """
    began_s = time.monotonic()
    running: dict[Any, tuple[AnyJob, children.Child]] = {}
    for job in jobs:
        mine, theirs = multiprocess.get_context("spawn").Pipe(duplex=False)
        child = children.start(
            job.key, _work, os.getpid(), output, msgspec.json.encode(job), theirs
        )
        theirs.close()
        running[mine] = (job, child)
    try:
        while running and not stop():
            late = time.monotonic() - began_s > limit_s
            ready = list(running) if late else wait(list(running), LOOK_S)
            for pipe in ready:
                job, child = running.pop(pipe)
                yield _taken(job, child, pipe, time.monotonic() - began_s)
    finally:
        for pipe, (_, child) in running.items():
            child.kill()
            child.join()
            pipe.close()


def _taken(job: AnyJob, child: children.Child, pipe: Any, seconds: float) -> FinishedJob:
    """The result of a process that has spoken, or has ended, or is late."""
    kinds: Any = Digests if job.key.startswith("twice/") else AnyRow
    try:
        said = pipe.recv_bytes() if pipe.poll() else b""
    except (EOFError, OSError):
        said = b""
    child.kill()
    child.join()
    pipe.close()
    if not said:
        return FinishedJob(
            job, None, seconds, f"its process ended with {child.exitcode} after {seconds:.0f} s"
        )
    if said.startswith(b"!"):
        return FinishedJob(job, None, seconds, said[1:].decode())
    return FinishedJob(job, msgspec.json.decode(said, type=kinds), seconds)


def _work(parent_pid: int, output: Path, text: bytes, pipe: Any) -> None:
    """One job in a process of its own."""
    children.settle_in(parent_pid, output)
    try:
        said = msgspec.json.encode(do(_job_decoder.decode(text)))
    except Exception as error:
        said = b"!" + f"{type(error).__name__}: {error}".encode()
    pipe.send_bytes(said)
    pipe.close()
