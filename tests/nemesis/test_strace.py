"""System calls that fail on demand: strace attached to a process for a while."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import psutil
import pytest

from harness.systems.external.launcher import starter
from nemesis.strace import Tracers
from nemesis.world import CallFails
from node.formats.errors import FloodmarkError
from tests.support.python_process import PythonProcess
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.needs("strace")]

CODE = """
import os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for line in sys.stdin:
    try:
        os.fsync(file)
        print('done', flush=True)
    except OSError as error:
        print(error.errno, flush=True)
"""


class Syncing:
    """A process that syncs a file for each line."""

    def __init__(self, folder: Path, code: str = CODE) -> None:
        self.process = PythonProcess("-c", code, folder / "file")
        assert self.answer() == "done"

    def answer(self) -> str:
        return self.process.ask()


@pytest.fixture
def syncing(tmp_path: Path) -> Iterator[Syncing]:
    made = Syncing(tmp_path)
    yield made
    made.process.kill()
    made.process.communicate()


@pytest.mark.parametrize(
    ("fault", "answers"),
    [
        (CallFails("sync", "error"), ["5", "5", "5"]),
        (CallFails("sync", "error", errno="ENOSPC", nth=3), ["done", "done", "28"]),
        (CallFails("sync", "lie"), ["done", "done", "done"]),
        (CallFails("sync", "delay", delay_ms=1), ["done", "done", "done"]),
    ],
)
def test_calls_fail_from_the_nth_on_until_it_is_detached(
    tmp_path: Path, syncing: Syncing, fault: CallFails, answers: list[str]
) -> None:
    tracers = Tracers(tmp_path)
    number = tracers.add("n1", starter(), [syncing.process.pid], fault)
    assert [syncing.answer() for _ in answers] == answers
    assert tracers.remove(number) == len(answers) - fault.nth + 1
    assert syncing.answer() == "done"


@pytest.mark.parametrize("action", ["error", "lie", "kill"])
def test_calls_that_no_thread_made_often_enough_are_not_counted(
    tmp_path: Path, action: Literal["error", "lie", "kill"]
) -> None:
    """Four threads sync once each: the third call of a thread, which would fail, never comes."""
    code = f"from threading import Thread\n{CODE}".replace(
        "os.fsync(file)",
        "for t in [Thread(target=os.fsync, args=[file]) for _ in '1234']: t.start(); t.join()",
    )
    syncing = Syncing(tmp_path, code)
    tracers = Tracers(tmp_path)
    try:
        number = tracers.add(
            "n1", starter(), [syncing.process.pid], CallFails("sync", action, nth=3)
        )
        assert syncing.answer() == "done"
        assert tracers.remove(number) == 0
    finally:
        tracers.close()
        syncing.process.kill()
        syncing.process.communicate()


def test_the_nth_call_is_the_end(tmp_path: Path, syncing: Syncing) -> None:
    tracers = Tracers(tmp_path)
    fault = CallFails("sync", "kill", nth=2)
    number = tracers.add("n1", starter(), [syncing.process.pid], fault)
    assert [syncing.answer() for _ in range(2)] == ["done", ""]
    assert syncing.process.wait() == -signal.SIGKILL
    assert tracers.remove(number) == 1


def test_a_strace_that_is_killed_leaves_its_process_to_its_parent(
    tmp_path: Path, syncing: Syncing
) -> None:
    tracers = Tracers(tmp_path)
    number = tracers.add("n1", starter(), [syncing.process.pid], CallFails("sync", "error"))
    assert syncing.answer() == "5"
    (tracer,) = [p for p in psutil.Process().children() if p.name() == "strace"]
    tracer.kill()
    status = Path(f"/proc/{syncing.process.pid}/status")
    until(lambda: "\nTracerPid:\t0\n" in status.read_text(), "that it is traced no more")
    assert psutil.Process(syncing.process.pid).ppid() == os.getpid()
    assert syncing.answer() == "done"
    tracers.remove(number)


def test_what_cannot_be_traced_is_one_sentence(tmp_path: Path, syncing: Syncing) -> None:
    tracers = Tracers(tmp_path)
    with pytest.raises(FloodmarkError, match="n1 is down"):
        tracers.add("n1", starter(), [], CallFails("sync", "lie"))
    number = tracers.add("n1", starter(), [syncing.process.pid], CallFails("sync", "lie"))
    with pytest.raises(FloodmarkError, match="n1 already has a system-call fault"):
        tracers.add("n1", starter(), [syncing.process.pid], CallFails("sync", "lie"))
    tracers.remove(number)
