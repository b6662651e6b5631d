"""A thread that looks every so often looks at once, again and again, and ends when it is left."""

from __future__ import annotations

import threading

import pytest

from harness.runs.clock import PeriodicThread
from tests.support.waiting import until


def test_it_looks_while_it_is_entered_and_no_longer() -> None:
    looks: list[str] = []
    with PeriodicThread(lambda: looks.append(threading.current_thread().name), 0.001, "looker"):
        until(lambda: len(looks) > 2)
    seen = len(looks)
    assert set(looks) == {"looker"}
    assert "looker" not in {thread.name for thread in threading.enumerate()}
    assert len(looks) == seen


def failing() -> None:
    raise ValueError("cannot look")


def test_an_error_of_a_look_is_raised_when_it_is_left_unless_the_work_failed() -> None:
    with pytest.raises(ValueError, match="cannot look"), PeriodicThread(failing, 3600.0, "looker"):
        until(lambda: "looker" not in {thread.name for thread in threading.enumerate()})
    with pytest.raises(KeyError), PeriodicThread(failing, 3600.0, "looker"):
        raise KeyError("of the work")
