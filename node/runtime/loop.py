"""The loop of one broker process: drain the inbox, take a turn, carry it out.

`node.core.turn` knows the order of a turn. Its trace lines are written with one write(). A turn
that fails in the core leaves its trace in the output file only. A breakpoint stops the turn before
one of its steps (`node.runtime.breakpoints`)."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from random import Random
from typing import Any, Final, TextIO

import msgspec

from node.core.api import Deliver, Event, NodeConfig, Outgoing, Shutdown
from node.core.senders import Senders
from node.core.storage import Storage
from node.core.turn import Core, carry_out, take
from node.formats import wire
from node.formats.errors import DamagedStore, StorageError, WireError
from node.formats.host_errors import cannot
from node.formats.messages import Error
from node.formats.trace import REFUSED, TraceEvent, damaged_event, event
from node.formats.wire import sender
from node.runtime.breakpoints import Armed, Breakpoints, StopRequest, monotonic_us
from node.runtime.mailbox import Inbox, Outbox
from node.runtime.store import LmdbStorage

LONGEST_WAIT_MS: Final = 1000
TURNS_BEHIND: Final = 8
"""How many turns in a row may leave messages unread before the core gets a `Tick` anyway."""
MAX_REFUSALS_TRACED: Final = 1000
"""How many messages that are not understood get a trace event; all of them are counted."""
HAND_OVER_US: Final = 2_000_000
"""How long after a request to stop the core may take to hand over what it leads."""


MakeCore = Callable[[NodeConfig, Storage, Random, int], Core]


class TraceFile:
    """The file `trace/<node>.jsonl`, which gets the events of each turn with one write()."""

    def __init__(self, path: str, node: str, incarnation: int) -> None:
        self._path = path
        self._node = node
        self._incarnation = incarnation
        self._seq = 0
        self._encoder = msgspec.json.Encoder()
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise cannot(f"open the trace file {path}", error) from None

    def write(self, now_us: int, events: list[TraceEvent]) -> None:
        """Add events of one moment. Raises StorageError if they cannot all be written; then none is
        in the file."""
        lines = self._lines(now_us, events)
        try:
            written = os.write(self._fd, lines)
        except OSError as error:
            raise cannot(f"write the trace file {self._path}", error) from None
        if written < len(lines):
            # The node's next process goes on in this file: half a line must not be before it.
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, os.fstat(self._fd).st_size - written)
            raise StorageError(f"cannot write the trace file {self._path}: no space left")
        self._seq += len(events)

    def show(self, now_us: int, events: list[TraceEvent], to: TextIO) -> None:
        """Write the events of a turn that failed to `to`, for a person who looks into the failure;
        they must not go to the trace."""
        to.write("the turn that failed had done:\n" + self._lines(now_us, events).decode())

    def close(self) -> None:
        os.close(self._fd)

    def _lines(self, now_us: int, events: list[TraceEvent]) -> bytes:
        stamp: dict[str, Any] = {
            "t_us": now_us,
            "node": self._node,
            "incarnation": self._incarnation,
        }
        return self._encoder.encode_lines(
            [{**stamp, "seq": seq, **one} for seq, one in enumerate(events, self._seq)]
        )


class Loop:
    """The turns of one broker between its mailbox, its disk and its trace, until it has stopped.
    `turns` and `refused` (messages not understood or not permitted) count from the start;
    `gave_up`: the core was asked to stop and did not finish in time."""

    def __init__(
        self,
        node: str,
        core: Core,
        storage: LmdbStorage,
        inbox: Inbox,
        outbox: Outbox,
        trace: TraceFile,
        stop: StopRequest,
        breakpoints: Breakpoints | None = None,
        senders: Senders | None = None,
    ) -> None:
        """Prepare the loop. `senders` restricts which messages each sender may send; None: no
        restriction."""
        self._node = node
        self._senders = senders
        self._breakpoints = breakpoints or Breakpoints(Armed(node, 0))
        self._core = core
        self._storage = storage
        self._inbox = inbox
        self._outbox = outbox
        self._trace = trace
        self._stop = stop
        # On the clock of the node; all other times are those of the host.
        self._deadline_us = 0
        self._give_up_us = 0
        self._turn_us = 0
        self._behind = 0
        self._stopped = False
        self.turns = 0
        self.refused = 0
        self.gave_up = False

    def run(self) -> None:
        """Run turns until the core has stopped, then flush its last turn to disk."""
        self._breakpoints.apply_orders()
        self._turn(monotonic_us(), [], [], first=True)
        while not self._stopped:
            if self._inbox.wait(self._wait_ms(monotonic_us())):
                self._breakpoints.apply_orders()
            arrived, all_of_it = self._inbox.drain()
            refusals: list[TraceEvent] = []
            events = self._understand(arrived, refusals)
            now_us = monotonic_us()
            self._behind = 0 if all_of_it else self._behind + 1
            if self._stop.asked and not self._give_up_us:
                self._give_up_us = now_us + HAND_OVER_US
                events.append(Shutdown())
            if events or refusals or self._due(now_us):
                self._turn(now_us, events, refusals)
            if self._give_up_us and now_us >= self._give_up_us and not self._stopped:
                self.gave_up = self._stopped = True
        self._storage.flush()

    def _wait_ms(self, now_us: int) -> int:
        """Return the time until the core's deadline, rounded up, because a poll that ends early
        would spin."""
        wait = LONGEST_WAIT_MS
        due_us = self._deadline_us and self._breakpoints.clock.when(self._deadline_us)
        for deadline_us in (due_us, self._give_up_us):
            if deadline_us:
                wait = min(wait, max(0, -((now_us - deadline_us) // 1000)))
        if self._stop.asked and not self._give_up_us:
            return 0
        return wait

    def _due(self, now_us: int) -> bool:
        """Return whether to step a `Tick`: not while messages wait, because a paused process reads
        them before it acts on silence; at the latest after `TURNS_BEHIND` turns."""
        return self._ticks and 0 < self._deadline_us <= self._breakpoints.clock.read(now_us)

    @property
    def _ticks(self) -> bool:
        return self._behind % TURNS_BEHIND == 0

    def _understand(self, arrived: list[list[bytes]], refusals: list[TraceEvent]) -> list[Event]:
        """Return the messages as events; add a trace event to `refusals` for each that is
        refused."""
        events: list[Event] = []
        for frames in arrived:
            try:
                receiver, source, message, body = wire.decode(frames)
            except WireError:
                refusals.append(_refusal(frames))
                continue
            permits = self._senders is None or self._senders.permit(source, message)
            if receiver != self._node or not permits:
                refusals.append(_refusal(frames))
                continue
            events.append(Deliver(source, message, body, more=True))
        if events:
            last = events[-1]
            assert isinstance(last, Deliver)
            events[-1] = Deliver(last.source, last.message, last.body)
        # However many there are, the trace stays small enough to be read.
        del refusals[max(0, MAX_REFUSALS_TRACED - self.refused) :]
        self.refused += len(arrived) - len(events)
        return events

    def _turn(
        self, now_us: int, events: list[Event], refusals: list[TraceEvent], *, first: bool = False
    ) -> None:
        """Take the turn of these events, and carry it out; its trace begins with `refusals`."""
        self._turn_us = now_us
        try:
            turn = take(
                self._core,
                self._breakpoints.clock.read(now_us),
                events,
                deadline_us=self._deadline_us,
                first=first,
                ticks=self._ticks,
                trace=refusals,
            )
        except DamagedStore as error:
            self.trace([damaged_event(error)])
            raise
        except BaseException:
            self._trace.show(now_us, refusals, sys.stderr)
            raise
        self._deadline_us, self._stopped = turn.deadline_us, turn.stopped
        at = 0
        if reached := self._breakpoints.reached(turn):
            at = carry_out(turn, self, stop=(reached.before,))
            self.trace([reached.event])
            self._breakpoints.stop_at(reached.number)
        carry_out(turn, self, at)
        self.turns += 1

    # -- the hands of a turn

    def trace(self, events: list[TraceEvent]) -> None:
        self._trace.write(self._turn_us, events)

    def commit(self, *, flush: bool) -> None:
        if flush:
            self._storage.flush()
        else:
            self._storage.commit()

    def send(self, messages: list[Outgoing]) -> None:
        self._outbox.send(messages)


def _refusal(frames: list[bytes]) -> TraceEvent:
    source = sender(frames[0])[:40].decode(errors="replace")
    return event(REFUSED, kind="?", source=source, reason=Error.INVALID_REQUEST.value)
