"""A process that somebody stops is noticed by its state, and goes on."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.formats.problem import suspended
from harness.runs import suspension
from harness.runs.process_tree import is_stopped
from harness.runs.suspension import KeptGoing, SuspensionWatch
from tests.support.waiting import until

pytestmark = pytest.mark.integration


@pytest.fixture
def process() -> Iterator[int]:
    with subprocess.Popen(["sleep", "600"]) as child:
        yield child.pid
        child.kill()


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    until(lambda: is_stopped(pid))


class OneNode:
    """The nodes of a run: one process, which a fault has paused or not."""

    def __init__(self, pid: int, *, paused: bool) -> None:
        self.pid = pid
        self.paused = paused
        self.noted: list[int] = []

    def node_of(self, pid: int) -> str:
        return "n1" if pid == self.pid else ""

    def note_stopped(self, node: str, pid: int) -> bool:
        self.noted.append(pid)
        return not self.paused


def test_a_part_that_was_suspended_is_named_once_and_goes_on(process: int) -> None:
    watch = SuspensionWatch(
        OneNode(0, paused=False), lambda: {"The link hub": process, "No one": 0}
    )
    watch.look()
    assert watch.problems == []
    for _ in range(2):
        stop(process)
        watch.look()
        until(lambda: not is_stopped(process))
    assert watch.problems == [suspended("The link hub")]


def test_a_process_without_a_name_is_found_in_the_process_tree(tmp_path: Path) -> None:
    """It is a grandchild of the harness, and in no list of its parts."""
    script = f"sleep 600 & echo $! > {tmp_path}/pid; wait"
    with subprocess.Popen(["sh", "-c", script]) as shell:
        file = tmp_path / "pid"
        until(lambda: file.exists() and file.read_text().strip())
        below = int(file.read_text())
        # Between fork and exec it has the name of the shell.
        until(lambda: Path(f"/proc/{below}/comm").read_text() == "sleep\n")
        stop(below)
        watch = SuspensionWatch(OneNode(0, paused=False), dict)
        watch.look()
        until(lambda: not is_stopped(below))
        os.kill(below, signal.SIGKILL)
        shell.wait()
    assert watch.problems == [suspended("A process of the harness (sleep)")]


@pytest.mark.parametrize("paused", [True, False])
def test_a_node_that_a_fault_has_paused_stays_so(process: int, paused: bool) -> None:
    nodes = OneNode(process, paused=paused)
    watch = SuspensionWatch(nodes, dict)
    stop(process)
    watch.look()
    assert (nodes.noted, watch.problems) == ([process], [])
    if not paused:
        until(lambda: not is_stopped(process))
    assert is_stopped(process) == paused
    os.kill(process, signal.SIGCONT)


def test_a_watch_goes_on_while_the_harness_waits_for_the_process(
    process: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suspension, "LOOK_S", 0.01)
    watch = SuspensionWatch(OneNode(0, paused=False), dict)
    watch.end()
    watch.begin()
    try:
        # Whether it is ever seen stopped here depends on which thread looks first.
        os.kill(process, signal.SIGSTOP)
        until(lambda: watch.problems)
        until(lambda: not is_stopped(process))
    finally:
        watch.end()
    watch.end()
    assert [each.kind for each in watch.problems] == ["suspended"]


def test_a_process_is_kept_going(process: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspension, "LOOK_S", 0.01)
    resumed = []
    resume = suspension.resume_if_stopped
    monkeypatch.setattr(
        suspension, "resume_if_stopped", lambda pid: resume(pid) and resumed.append(pid)
    )
    with KeptGoing():
        os.kill(process, signal.SIGSTOP)
        until(lambda: process in resumed)
        until(lambda: not is_stopped(process))
