"""One node of the simulator: the unchanged core with an inbox and a disk.

A turn is that of the real loop (`node.runtime.loop`): drain the inbox, step each message, step a
tick if one is due, commit once, write the trace, send. Some messages leave before the commit, after
the trace is written. A breakpoint stops a turn before its commit or before it sends."""

from __future__ import annotations

import random
import signal
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from harness.formats.process_exits import Exit
from harness.sim.disk import SimDisk
from harness.sim.event_queue import EventQueue
from harness.sim.latency_profile import IDEAL, LatencyProfile
from harness.sim.network import Envelope, Network
from node.core.api import Deliver, Effects, Event, Mark, NodeConfig, Outgoing, Shutdown, Tick
from node.core.before_commit import split
from node.core.broker import Broker
from node.formats.errors import DamagedStore, FloodmarkError, StorageError
from node.formats.trace import TraceEvent, damaged_event
from node.runtime.breakpoints import Armed, Breakpoint, break_event
from node.runtime.node_clock import HOST_CLOCK

HAND_OVER_US: Final = 2_000_000
"""The longest time that the core may take to hand over when it is asked to stop."""
INBOX_MESSAGES: Final = 2_000
"""Capacity of a paused process's queues; further messages are lost."""
_EXIT_BROKEN: Final = 70
_EXIT_STORAGE: Final = 74
_NEVER: Final = 1 << 62
_TICK: Final = Tick()

MakeConfig = Callable[[str, int], NodeConfig]
Seen = Callable[["SimNode", list[TraceEvent]], None]


class SimNode:
    """A simulated node, with its processes one after another. `core` is the core of the running
    process, None while the node is down or starting. `seen` is called with each turn's trace events
    before its messages leave, `ended` at each end of a process."""

    def __init__(
        self,
        name: str,
        queue: EventQueue,
        network: Network,
        make_config: MakeConfig,
        seed: int,
        seen: Seen,
        ended: Callable[[Exit, str], None],
        latency: LatencyProfile = IDEAL,
    ) -> None:
        self.name = name
        self.disk = SimDisk()
        self.core: Broker | None = None
        self.incarnation = 0
        self.up = False
        self.paused = False
        self._queue = queue
        self._network = network
        self._make_config = make_config
        self._seed = seed
        self._jitter_rng = random.Random(f"{seed}/{name}/boot")
        self._latency = latency
        self._is_slow = latency.turn_us[1] > 0
        self._seen = seen
        self._ended = ended
        self._inbox: list[Envelope] = []
        self._busy_until_us = 0
        self._boots_us = 0
        self._clock = HOST_CLOCK
        # On the node's own clock; all other times are those of the world.
        self._deadline_us = _NEVER
        self._armed_us = _NEVER
        self._give_up_us = _NEVER
        self._points: list[Breakpoint] = []
        self._armed = Armed(name, 0)
        self._stopped_at: tuple[int, Callable[[], None]] | None = None
        # One object: the event queue compares it by identity.
        self.arrive = self._arrive
        network.join(name, self.arrive)

    # -- control by the world

    def start(self) -> None:
        """Start a process, unless one runs. It receives messages after its boot time."""
        if self.up:
            return
        self.up, self.paused = True, False
        self.incarnation += 1
        self._armed = Armed(self.name, self.incarnation, self._points)
        self._inbox.clear()
        self._busy_until_us = 0
        self._give_up_us = _NEVER
        self._boots_us = self._queue.now_us + self._jitter_rng.randint(*self._latency.boot_us)
        self._queue.at(self._boots_us, self._boot, self.incarnation)

    def kill(self) -> None:
        """Kill the process (SIGKILL)."""
        if self.up:
            self._end(-signal.SIGKILL, "kill")

    def ask_to_stop(self) -> None:
        """Send SIGTERM: resume a paused process first, end one that is still starting."""
        if not self.up:
            return
        self.resume()
        if self.core is None:
            self._end(0, "stop")
        elif self._give_up_us == _NEVER:
            if self._stopped_at is not None:
                self.disarm(self._stopped_at[0])
            self._give_up_us = self._queue.now_us + HAND_OVER_US
            self._queue.at(self._give_up_us, self._wake)
            self._turn([*self._waiting(), Shutdown()])

    def pause(self) -> None:
        """Send SIGSTOP: the process does not run, messages wait, and time passes."""
        self.paused = self.up

    def resume(self) -> None:
        """Send SIGCONT: all waiting messages are delivered in one turn, followed by the tick."""
        if self.paused:
            self.paused = False
            self._resume_turn_if_free()
            self._wake(None)

    def arm(self, point: Breakpoint) -> None:
        """Set a breakpoint in this process and in later ones. It takes effect once."""
        self._points.append(point)
        self._armed.replace(self._points)

    def disarm(self, number: int) -> None:
        """Remove a breakpoint; a process that stopped there continues."""
        self._points = [point for point in self._points if point.number != number]
        self._armed.replace(self._points)
        self._resume_turn_if_free()

    def set_clock_rate(self, percent: int) -> None:
        """Let the node's clock run at `percent` of its normal speed, in later processes too."""
        self._clock = self._clock.at_rate(percent, self._queue.now_us)
        self._arm()

    # -- the alarm

    def _arm(self) -> None:
        """Set an alarm for the deadline. An earlier alarm that is no longer needed does no harm."""
        due_us = self._deadline_us
        if self._clock is not HOST_CLOCK:
            due_us = self._clock.when(due_us)
        if due_us < self._armed_us:
            due_us = max(due_us, self._queue.now_us + 1)
            if due_us >= self._armed_us:
                return
            self._armed_us = due_us
            self._queue.at(due_us, self._alarm, due_us)

    def _alarm(self, at_us: int) -> None:
        if at_us != self._armed_us:
            return
        self._armed_us = _NEVER
        if self.core is None or self.paused:
            return
        own_us = at_us if self._clock is HOST_CLOCK else self._clock.read(at_us)
        if self._deadline_us <= own_us and not self._is_slow and not self._inbox:
            self._deadline_us = self.core.put_off(own_us)
        if self._deadline_us <= own_us:
            self._wake(None)
        else:
            self._arm()

    # -- turns

    def _boot(self, incarnation: int) -> None:
        if not self.up or incarnation != self.incarnation or self.core is not None:
            return
        if self.paused or self._queue.now_us < self._boots_us:
            # It continues to boot when it is resumed: `_wake` calls this again, at any time.
            return
        self.disk.open()
        jitter = random.Random(f"{self._seed}/{self.name}/{incarnation}")
        config = self._make_config(self.name, incarnation)
        self.disk.retries = "retry-fsync" in config.bugs
        try:
            self.core = Broker(config, self.disk, jitter, self._clock.read(self._queue.now_us))
        except FloodmarkError as error:
            self._broken(error)
            return
        self._turn([], first=True)

    def _arrive(self, envelope: Envelope) -> None:
        """Take in a message, and all others of the same moment."""
        queue = self._queue
        more = queue.take_all_now(self.arrive) if queue.has_more_now(self.arrive) else None
        if self.core is None:
            return
        if self.paused or self._stopped_at or self._busy_until_us > queue.now_us:
            self._inbox += [envelope, *(more or ())][: INBOX_MESSAGES - len(self._inbox)]
            return
        if more is not None:
            self._turn(_deliveries([envelope, *more]))
        else:
            _, source, message, body = envelope
            self._turn([Deliver(source, message, body)])

    def _wake(self, _: object) -> None:
        """Go on when the disk is ready, a pause is over, or a deadline has come."""
        if not self.up or self.paused or self._stopped_at:
            return
        if self.core is None:
            self._boot(self.incarnation)
        elif self._busy_until_us <= self._queue.now_us:
            waiting = self._waiting()
            give_up = self._queue.now_us >= self._give_up_us
            due = self._clock.read(self._queue.now_us) >= self._deadline_us
            if waiting or give_up or due:
                self._turn(waiting)
            else:
                self._arm()

    def _waiting(self) -> list[Event]:
        if not self._inbox:
            return []
        waiting = _deliveries(self._inbox)
        self._inbox.clear()
        return waiting

    def _turn(self, events: list[Event], *, first: bool = False) -> None:
        """Step `events`, and a tick if one is due; then commit, trace and send."""
        try:
            turn = self._step(events, first)
        except Exception as error:
            self._broken(error)
            return
        self._deadline_us = turn.deadline_us
        if not turn.trace:
            self._finish(turn, None)
            return
        stamp = {"t_us": self._queue.now_us, "node": self.name, "incarnation": self.incarnation}
        turn.trace = [{**stamp, **one} for one in turn.trace]
        reached = self._armed.reached(turn.trace)
        if reached and reached[0].before == "commit":
            self._send_early(turn)
            self._seen(self, [self._stamped(break_event(*reached))])
            self._stand(reached[0], lambda: self._finish(turn, None))
        else:
            self._finish(turn, reached)

    def _step(self, events: list[Event], first: bool) -> Effects:
        """Return the effects of all events of one turn, joined."""
        core, now_us = self.core, self._queue.now_us
        assert core is not None
        if self._clock is not HOST_CLOCK:
            now_us = self._clock.read(now_us)
        turn = None
        for event in events:
            effects = core.step(now_us, event)
            turn = effects if turn is None else joined(turn, effects)
            if turn.stopped:
                return turn
        deadline_us = self._deadline_us if turn is None else turn.deadline_us
        if first or 0 < deadline_us <= now_us:
            effects = core.step(now_us, _TICK)
            turn = effects if turn is None else joined(turn, effects)
        return Effects(deadline_us=deadline_us) if turn is None else turn

    def _stamped(self, event: TraceEvent) -> TraceEvent:
        now_us = self._queue.now_us
        return {"t_us": now_us, "node": self.name, "incarnation": self.incarnation, **event}

    def _send_early(self, turn: Effects) -> None:
        """Send the messages that do not wait for the disk, after the trace is written."""
        early, later = split(turn.messages, turn.trace)
        if not early:
            return
        if turn.trace:
            self._seen(self, turn.trace)
        self._send_all(early)
        turn.trace = []
        turn.messages = list(later)

    def _finish(self, turn: Effects, reached: tuple[Breakpoint, TraceEvent] | None) -> None:
        """Commit and trace; then send, unless a breakpoint was reached."""
        for out in turn.messages:
            if out.mark is not Mark.AFTER_COMMIT:
                self._send_early(turn)
                break
        trace = turn.trace
        try:
            if turn.flush or turn.stopped:
                self.disk.flush()
            else:
                self.disk.commit()
        except StorageError as error:
            self._end(_EXIT_STORAGE, "itself", str(error))
            return
        if reached:
            trace = [*trace, self._stamped(break_event(*reached))]
        if trace:
            self._seen(self, trace)
        if reached:
            self._stand(reached[0], lambda: self._send(turn))
        else:
            self._send(turn)

    def _send(self, turn: Effects) -> None:
        """Send, and end the process if that was its last turn."""
        slow_us = self._slow_us() if self._is_slow or self.disk.faults else 0
        if slow_us and turn.messages and not turn.stopped:
            self._busy_until_us = self._queue.now_us + slow_us
            self._queue.at(self._busy_until_us, self._synced, (self.incarnation, turn.messages))
        elif turn.messages:
            self._send_all(turn.messages)
        if not self.up:
            return
        if turn.stopped:
            self._end(0, "stop")
        elif self._queue.now_us >= self._give_up_us:
            self._end(0, "stop", "stopped without having handed over")
        else:
            self._arm()

    def _slow_us(self) -> int:
        """Return how long this turn takes."""
        slow_us = 0
        if self._is_slow:
            # Most turns are quick; a few wait for the processor or the disk.
            least_us, most_us = self._latency.turn_us
            slow_us += least_us + round((most_us - least_us) * self._jitter_rng.random() ** 6)
        if self.disk.faults:
            slow_us += self.disk.took_us()
        return slow_us

    def _stand(self, point: Breakpoint, resume_turn: Callable[[], None]) -> None:
        """Stop here until the breakpoint is removed: messages wait, time passes."""
        self._stopped_at = (point.number, resume_turn)

    def _resume_turn_if_free(self) -> None:
        """Continue where the process has stopped, if that breakpoint is gone."""
        if self._stopped_at is not None and not self.paused:
            number, resume_turn = self._stopped_at
            if number not in self._armed:
                self._stopped_at = None
                resume_turn()
                self._wake(None)

    def _synced(self, what: tuple[int, list[Outgoing]]) -> None:
        """Finish a slow turn: its messages leave, and the next turn may begin."""
        incarnation, later = what
        if self.up and incarnation == self.incarnation:
            self._send_all(later)
            self._wake(None)

    def _send_all(self, messages: Iterable[Outgoing]) -> None:
        name, send = self.name, self._network.send
        for out in messages:
            send(name, out.to, out.message, out.body)

    # -- ends

    def _broken(self, error: Exception) -> None:
        """End the process of a core that raised; nothing of the turn is kept."""
        if isinstance(error, DamagedStore):
            self._seen(self, [self._stamped(damaged_event(error))])
        sentence = str(error) if isinstance(error, FloodmarkError) else ""
        code = _EXIT_STORAGE if isinstance(error, StorageError) else _EXIT_BROKEN
        self._end(code, "itself", sentence or "".join(traceback.format_exception(error)))

    def _end(self, code: int, by: Any, output: str = "") -> None:
        self.up = self.paused = False
        self.core = None
        if self._stopped_at is not None:
            self._points = [p for p in self._points if p.number != self._stopped_at[0]]
            self._stopped_at = None
        self._inbox.clear()
        self._deadline_us = _NEVER
        self._ended(
            Exit(
                node=self.name,
                incarnation=self.incarnation,
                t_us=self._queue.now_us,
                code=code,
                by=by,
                expected=by != "itself" or (code == _EXIT_STORAGE and self.disk.is_broken),
            ),
            output,
        )


def _deliveries(envelopes: Sequence[Envelope]) -> list[Event]:
    """Return the messages of one turn, in order."""
    last = len(envelopes) - 1
    return [
        Deliver(source, message, body, number < last)
        for number, (_, source, message, body) in enumerate(envelopes)
    ]


def joined(turn: Effects, more: Effects) -> Effects:
    """Return the effects of a turn with those of one more step added."""
    turn.messages += more.messages
    turn.trace += more.trace
    turn.deadline_us = more.deadline_us
    turn.flush = turn.flush or more.flush
    turn.stopped = more.stopped
    return turn
