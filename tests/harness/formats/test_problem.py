"""The causes of ends of processes, and the problems of a run."""

from __future__ import annotations

import signal

import pytest

from harness.formats.problem import KINDS, Problem, ended_from_outside, how_ended, node_ended, rank


@pytest.mark.parametrize(
    ("code", "outside", "words"),
    [
        (-signal.SIGKILL, True, "SIGKILL"),
        (-signal.SIGTERM, True, "SIGTERM"),
        (137, True, "SIGKILL"),
        (143, True, "SIGTERM"),
        (-signal.SIGSEGV, False, "SIGSEGV"),
        (-signal.SIGBUS, False, "SIGBUS"),
        (0, False, "exit code 0"),
        (70, False, "exit code 70"),
        (-62, True, "signal 62"),
    ],
)
def test_a_signal_that_no_process_sends_itself_came_from_outside(
    code: int, outside: bool, words: str
) -> None:
    assert ended_from_outside(code) is outside
    assert how_ended(code) == words


def test_the_gravest_problem_comes_first_and_says_it_by_itself() -> None:
    others = [Problem(kind=kind, sentence="s") for kind in reversed(KINDS)]
    assert [problem.kind for problem in sorted(others, key=rank)] == list(KINDS)
    assert node_ended("n2", -9).in_a_verdict == (
        "n2 was ended from outside (SIGKILL), which neither the schedule nor the harness did."
    )
    hub = Problem(kind="hub-ended", sentence="the hub ended")
    assert hub.in_a_verdict == "The harness had trouble: the hub ended"
    late, unread = (Problem(kind=kind, sentence="s") for kind in ("too-busy", "log-not-read"))
    assert [(p.impairs, p.breaks) for p in (hub, late)] == [(True, True), (True, False)]
    assert not unread.impairs
