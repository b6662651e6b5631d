"""Breakpoints: a broker's process stops at an exact place of a turn until it is released.

Only the harness uses them: with a breakpoint it can put a kill or a cut link between the commit of
a write and its acknowledgement. The harness arms breakpoints through a pipe, ahead of time; each
order replaces all earlier ones and is confirmed. A process that is stopped at one writes no trace,
reads no message and sends nothing. Its connections stay up, as those of a hung process do."""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from node.core.turn import Turn, TurnStep
from node.formats.trace import BREAK, TraceEvent, event, matches
from node.runtime.failing_disk import DiskFails, FailingDisk

SYNCS_OF_A_STOP: Final = 20
"""How many syncs of files a process may make from SIGTERM to its end."""


NEVER_US: Final = 1 << 62
"""From here on a time is none."""


class NodeClock(msgspec.Struct, frozen=True):
    """The clock of a node as a line: when the host's clock showed `since_us` it showed `at_us`, and
    from then on it runs at `percent` of the host's rate. By default both are the same. It never
    goes back."""

    percent: int = 100
    since_us: int = 0
    at_us: int = 0

    def read(self, host_us: int) -> int:
        """Return the time of this clock at a time of the host's clock."""
        return self.at_us + (host_us - self.since_us) * self.percent // 100

    def when(self, own_us: int) -> int:
        """Return the first time of the host's clock at which this clock has reached `own_us`."""
        if own_us >= NEVER_US:
            return own_us
        return self.since_us - (self.at_us - own_us) * 100 // self.percent

    def at_rate(self, percent: int, host_us: int) -> NodeClock:
        """Return a clock that continues from the host's time `host_us` at another rate."""
        return NodeClock(percent, host_us, self.read(host_us))


HOST_CLOCK: Final = NodeClock()
"""The clock of the host, as it is."""


def monotonic_us() -> int:
    """Return the host's monotonic clock, in microseconds."""
    return time.monotonic_ns() // 1000


class StopRequest:
    """A request to stop: a signal handler sets `asked`, the loop reads it. `wake_fd` is a
    descriptor that is readable after a signal. `slow_ms` is the delay of each sync by faults."""

    def __init__(self, wake_fd: int = -1, slow_ms: int = 0) -> None:
        self.asked = False
        self.wake_fd = wake_fd
        self.slow_ms = slow_ms


class Breakpoint(msgspec.Struct, frozen=True):
    """A place at which a process stops: `before` a step of the turn that emits the `nth` trace
    event called `event` ("": any) whose fields fit `match`. Events are counted in each process from
    the arming on, in turns that have that step. The process writes a trace event `break`, and does
    no more until the breakpoint is removed, or it is asked to end, or killed. One process of a node
    stops there."""

    event: str
    match: dict[str, Any] = {}
    nth: int = 1
    before: TurnStep = TurnStep.SEND


class Reached(NamedTuple):
    """The number of a breakpoint that a turn has reached, the step before which the process stops,
    and the trace event of that."""

    number: int
    before: TurnStep
    event: TraceEvent


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """An order of the harness to a process, which replaces its breakpoints (`armed`) and its disk
    faults, and lets its clock run at `percent` of the host's rate from the moment at which the
    process takes the order; a report confirms its `version`. Faults delay each sync of the process
    by `slow_ms`, whether it makes the delay itself or not. With `copy_to` the process also copies
    its disk into that folder."""

    version: int
    armed: dict[int, Breakpoint]
    disk: dict[int, DiskFails] = {}
    percent: int = 100
    slow_ms: int = 0
    copy_to: str = ""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A process's report to the harness: the order `version` is in force; breakpoint `stopped` was
    reached (-1: none); `writes` says how many writes each disk fault affected so far, by its
    number. The last report of a process has only the sentence with which it `ended`, because its
    output file may be on a disk that is full."""

    version: int
    stopped: int = -1
    writes: dict[int, int] = {}
    ended: str = ""


_encoder: Final = msgspec.msgpack.Encoder()
_orders: Final = msgspec.msgpack.Decoder(Order)
_MOST_SENTENCE: Final = 2000


class Armed:
    """The breakpoints in force in one process, by number, and how many matching events each has
    counted."""

    def __init__(self, node: str, incarnation: int, points: Mapping[int, Breakpoint] = {}) -> None:
        self._stamp = {"node": node, "incarnation": incarnation}
        self._seen: dict[int, int] = {}
        self.replace(points)

    def __contains__(self, number: int) -> bool:
        return number in self._points

    def replace(self, points: Mapping[int, Breakpoint]) -> None:
        """Replace all breakpoints by `points`; those armed before keep their counts."""
        self._points = dict(points)
        self._seen = {number: self._seen.get(number, 0) for number in self._points}

    def remove(self, number: int) -> None:
        """Remove the breakpoint of that number, if it is armed."""
        self._points.pop(number, None)

    def reached(self, turn: Turn) -> Reached | None:
        """Count the events of a turn. Return the first breakpoint that they reach, else None."""
        found = None
        for each in turn.trace if self._points else ():
            for number, point in self._points.items():
                if point.event not in ("", each["event"]) or point.before not in turn.steps:
                    continue
                if matches(self._stamp | each, point.match):
                    self._seen[number] += 1
                    if self._seen[number] >= point.nth and found is None:
                        fields = {"number": number, "before": point.before.value}
                        stops = event(BREAK, each.get("partition"), **fields, at=each["event"])
                        found = Reached(number, point.before, stops)
        return found


def report_end(pipe: Connection | None, sentence: str) -> None:
    """Send the last sentence of this process, if the harness still listens."""
    if pipe is not None:
        with contextlib.suppress(OSError):
            pipe.send_bytes(_encoder.encode(Report(version=0, ended=sentence[:_MOST_SENTENCE])))


class Breakpoints:
    """The breakpoints of a real process, and the pipe that brings orders and releases it. Without a
    pipe it never stops, nor after `stop` asks it to end. The orders also bring faults for its
    `disk` and the rate of its `clock`; `copy` copies its disk into a folder."""

    def __init__(
        self,
        armed: Armed,
        pipe: Connection | None = None,
        disk: FailingDisk | None = None,
        copy: Callable[[Path], None] = lambda to: None,
        clock: NodeClock = HOST_CLOCK,
        stop: StopRequest | None = None,
    ) -> None:
        self._stop = stop or StopRequest()
        self.clock = clock
        self._armed = armed
        self._disk = disk or FailingDisk()
        self._disk.tell = self._report
        self._copy = copy
        self._pipe = pipe
        self._open = pipe is not None
        self._version = 0
        self._report()

    @property
    def wake_fd(self) -> int:
        """A descriptor that is readable when an order has come for `apply_orders`; -1 without a
        pipe."""
        return -1 if self._pipe is None else self._pipe.fileno()

    def apply_orders(self) -> None:
        """Carry out the orders that have come, without waiting."""
        while self._pipe is not None and self._open:
            try:
                if not self._pipe.poll():
                    return
                order = _orders.decode(self._pipe.recv_bytes())
            except (EOFError, OSError):
                # The harness is gone; the kernel ends this process too.
                self._open = False
                return
            self._armed.replace(order.armed)
            self._disk.in_force = order.disk
            self._stop.slow_ms = order.slow_ms
            if order.percent != self.clock.percent:
                # From here on: earlier turns have read the line that ends here.
                self.clock = self.clock.at_rate(order.percent, monotonic_us())
            if order.copy_to:
                self._copy(Path(order.copy_to))
            self._version = order.version
            self._report()

    def reached(self, turn: Turn) -> Reached | None:
        """Count the events of a turn, as `Armed.reached`; None if the process may not stop."""
        return self._armed.reached(turn) if self._open and not self._stop.asked else None

    def stop_at(self, number: int) -> None:
        """Stop at a breakpoint until it is disarmed, or until the process is asked to end."""
        self._report(number)
        # Not select(), which refuses descriptors above 1,023.
        poll = select.poll()
        for fd in (self.wake_fd, self._stop.wake_fd):
            poll.register(fd, select.POLLIN)
        while self._open and number in self._armed:
            if any(fd == self._stop.wake_fd for fd, _ in poll.poll()):
                break
            self.apply_orders()
        self._armed.remove(number)

    def _report(self, stopped: int = -1) -> None:
        if self._pipe is not None and self._open:
            try:
                writes = dict(self._disk.affected)
                report = Report(version=self._version, stopped=stopped, writes=writes)
                self._pipe.send_bytes(_encoder.encode(report))
            except OSError:
                self._open = False
