"""The handling of Ctrl-C and SIGTERM: the first asks the run to end early and in order, the second
ends it now, and a third ends the process without tidying up."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, NoReturn, Self

EXIT_STOPPED: Final = 2
"""The exit code of a command that was stopped: it says nothing about any run."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class StopNow(BaseException):
    """The user asked twice to stop: leave nothing running, judge nothing."""


@contextmanager
def ended_by_signals(*, for_good: bool) -> Iterator[None]:
    """Guard a whole command: SIGTERM raises StopNow in it. A second signal ends the process at once
    with exit code EXIT_STOPPED. SIGINT raises KeyboardInterrupt, as in any Python program.

    `for_good`: the process ends after the command; later signals are ignored and helpers are
    killed. Otherwise the former handlers are restored. Does nothing outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    signal.signal(signal.SIGTERM, _stop_now)
    if for_good:
        # Libraries that are imported from here on tidy up before.
        atexit.register(kill_helpers)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if for_good else handler)


def _stop_now(number: int, frame: FrameType | None) -> NoReturn:
    for each in _SIGNALS:
        signal.signal(each, _leave)
    raise StopNow


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """End at once, and with it all processes of the harness but the helpers."""
    kill_helpers()
    os._exit(EXIT_STOPPED)


class Interrupts:
    """The requests to stop (SIGINT, SIGTERM) while the context lasts. Main thread only. `asked`:
    there was one. `at_once` makes the first one count like a second: set it when there is nothing
    that must end in order. `terminated`: one was a SIGTERM, which a program sends, such as CI."""

    def __init__(self) -> None:
        self.asked = False
        self.terminated = False
        self.at_once = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        # A command that is being stopped is still being stopped when this one is left.
        stopping = signal.getsignal(signal.SIGTERM) is _leave
        stopping &= self._before[signal.SIGTERM] is _stop_now
        for number, handler in self._before.items():
            signal.signal(number, _leave if stopping else handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.terminated |= number == signal.SIGTERM
        if self.asked or self.at_once:
            _stop_now(number, frame)
        self.asked = True


_STOPPED: Final = b"T"


def is_stopped(pid: int) -> bool:
    """Return whether a signal such as SIGSTOP has stopped a process; a debugger does not count."""
    try:
        # The name of the program, in parentheses, may have any character.
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return False
    return state[:1] == [_STOPPED]


def resume_stopped(spared: Collection[int] = ()) -> list[str]:
    """Send SIGCONT to the processes below this one that a signal has stopped, except `spared` ones;
    return their names."""
    found = []
    for pid in descendants(os.getpid()):
        if pid not in spared and is_stopped(pid):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGCONT)
                found.append(_name_of(pid))
    return found


def _name_of(pid: int) -> str:
    """Return the name of the output file of a process, or of its program."""
    with contextlib.suppress(OSError):  # A daemon may have closed its output.
        output = Path(f"/proc/{pid}/fd/1").readlink()
        if output.suffix == ".txt":
            return output.stem
    return Path(f"/proc/{pid}/comm").read_text().strip()


def descendants(pid: int) -> list[int]:
    """Return all descendants of `pid`; processes that end meanwhile may lack."""
    found = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                    found += [int(child), *descendants(int(child))]
    return found


def kill_helpers() -> None:
    """Kill the processes that this one started and that still run when it ends, stopped ones too. A
    process in a session of its own (a browser) is left alone, unless it is stopped."""
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            if os.getsid(pid) == os.getsid(0) or is_stopped(pid):
                os.kill(pid, signal.SIGKILL)
