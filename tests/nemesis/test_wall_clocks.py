"""Wall clocks that can be moved, in a process that runs and in later ones."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from nemesis.wall_clocks import WallClocks
from tests.support import python_process
from tests.support.python_process import PythonProcess

CODE = """
import sys, time
for line in sys.stdin:
    print(time.time(), time.monotonic(), flush=True)
"""


pytestmark = [pytest.mark.integration, pytest.mark.needs("faketime")]


WAIT = """
import ctypes, time
libc, blocks = ctypes.CDLL(None), [ctypes.create_string_buffer(64) for _ in range(3)]
attributes, condition, mutex = blocks
libc.pthread_condattr_init(attributes)
libc.pthread_condattr_setclock(attributes, time.CLOCK_MONOTONIC)
libc.pthread_cond_init(condition, attributes)
libc.pthread_mutex_lock(mutex)
began = time.monotonic()
until = (ctypes.c_long * 2)(int(began) + 2, 0)
libc.pthread_cond_timedwait(condition, mutex, until)
print(until[0] <= time.monotonic())
"""


class Clock:
    """A process that tells its clocks."""

    def __init__(self, clocks: WallClocks, node: str) -> None:
        self.process = PythonProcess("-c", CODE, env=clocks.environment(node))

    def off_s(self) -> tuple[int, int]:
        """By how many minutes its wall clock and its monotonic clock are off."""
        wall, monotonic = map(float, self.process.ask().split())
        return round((wall - time.time()) / 60), round((monotonic - time.monotonic()) / 60)

    def end(self) -> None:
        self.process.communicate()


def test_only_the_wall_clock_of_that_node_moves(tmp_path: Path) -> None:
    clocks = WallClocks(tmp_path, ("n1", "n2"))
    one, other = Clock(clocks, "n1"), Clock(clocks, "n2")
    assert one.off_s() == other.off_s() == (0, 0)
    clocks.shift("n1", 3_600_000)
    clocks.shift("n1", -7_200_000)
    assert (one.off_s(), other.off_s()) == ((-60, 0), (0, 0))
    one.end()
    later = Clock(clocks, "n1")
    assert later.off_s() == (-60, 0)
    clocks.shift("n1", 3_600_000)
    assert later.off_s() == (0, 0)
    later.end()
    other.end()


def test_a_wait_with_the_monotonic_clock_takes_its_time(tmp_path: Path) -> None:
    """Threads of a JVM wait like this: if the wait ends at once, they spin."""
    clocks = WallClocks(tmp_path, ("n1",))
    told = python_process.run("-c", WAIT, **clocks.environment("n1"))
    assert told.stdout.strip() == "True"
