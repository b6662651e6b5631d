"""A process that somebody stops is noticed by its state, and goes on."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from harness.formats.problem import suspended
from harness.runs import suspension
from harness.runs.suspension import KeptGoing, SuspensionWatch, is_stopped
from tests.support.waiting import until


@pytest.fixture
def process() -> Iterator[int]:
    with subprocess.Popen(["sleep", "600"]) as child:
        yield child.pid
        child.kill()


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    until(lambda: is_stopped(pid))


def test_a_part_that_was_suspended_is_named_once_and_goes_on(process: int) -> None:
    watch = SuspensionWatch()
    watch.look({"The link hub": process, "Nobody": 0})
    assert watch.problems == []
    for _ in range(2):
        stop(process)
        watch.look({"The link hub": process, "Nobody": 0})
        until(lambda: not is_stopped(process))
    assert watch.problems == [suspended("The link hub")]


def test_a_process_is_kept_going(process: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspension, "LOOK_S", 0.01)
    pids = [0]
    with KeptGoing(lambda: pids[0]):
        stop(process)
        pids[0] = process
        until(lambda: not is_stopped(process))


def test_a_process_that_is_gone_is_not_stopped(process: int) -> None:
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    assert not is_stopped(process)
