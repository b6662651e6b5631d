"""Programs that work on a disk in user space, for tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from harness.systems.external.processes import entering
from nemesis.disk.control import UserDisk
from tests.support.waiting import PATIENCE_S, until


@contextmanager
def disk(place: Path, **options: Any) -> Iterator[UserDisk]:
    made = UserDisk(place / "n1", place / "disk.txt", **options)
    try:
        made.start()
        yield made
    finally:
        made.close()


class Program:
    """Python code that runs on a disk, and talks by lines."""

    def __init__(self, used: UserDisk, code: str, *, ordinary: bool = False) -> None:
        self.process = subprocess.Popen(
            [
                *entering(used.pid, ordinary=ordinary),
                sys.executable,
                "-c",
                f"import os, sys\n{code}",
            ],
            cwd=used.folder,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()

    def end(self) -> tuple[int, str]:
        """Wait for it; its exit code and the rest of what it said."""
        out, _ = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out.strip()

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate(timeout=PATIENCE_S)


def run(used: UserDisk, code: str) -> str:
    """Run code to its end, without an error; what it said."""
    code_of_exit, said = Program(used, code).end()
    assert code_of_exit == 0, said
    return said


def suspend(pid: int) -> psutil.Process:
    """Stop a process, and return when it stands still: on a busy machine that takes a while."""
    process = psutil.Process(pid)
    process.suspend()
    until(lambda: process.status() == psutil.STATUS_STOPPED, "a process that stands still")
    return process
