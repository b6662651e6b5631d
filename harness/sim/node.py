"""One node of the simulator: the unchanged core with an inbox and a disk.

`node.core.turn` knows the order of a turn. A turn stands before its commit for as long as a slow
disk takes, and before any of its steps at a breakpoint: messages wait, and time passes."""

from __future__ import annotations

import random
import signal
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from harness.formats.problem import Exit
from harness.sim.disk import SimDisk
from harness.sim.network import Envelope, EventQueue, Network
from node.core.api import Deliver, Event, NodeConfig, Outgoing, Shutdown
from node.core.broker import Broker
from node.core.turn import Core, Turn, TurnStep, carry_out, take
from node.formats.errors import DamagedStore, FloodmarkError, StorageError
from node.formats.trace import TraceEvent, damaged_event
from node.runtime.breakpoints import HOST_CLOCK, Armed, Breakpoint


class LatencyProfile(NamedTuple):
    """Ranges of latencies in microseconds. A run draws from them uniformly by its seed (`turn_us`
    excepted). `boot_us`: from the start of a process until it listens; messages that arrive earlier
    are lost. `notice_us`: from an event until the harness notices it; (0, 0) is at once. `turn_us`:
    from the begin of a node's turn until its messages leave and the next turn may begin; most turns
    take little more than the minimum."""

    boot_us: tuple[int, int]
    notice_us: tuple[int, int]
    turn_us: tuple[int, int] = (0, 0)


IDEAL: Final = LatencyProfile(boot_us=(20_000, 20_000), notice_us=(0, 0))
IDLE_HOST: Final = LatencyProfile(
    boot_us=(100_000, 500_000), notice_us=(500, 8_000), turn_us=(0, 5_000)
)
"""Python processes on a host without other load."""
BUSY_HOST: Final = LatencyProfile(boot_us=(300_000, 2_000_000), notice_us=(1_000, 30_000))
"""Python processes on a host with other load."""
OVERLOADED_HOST: Final = LatencyProfile(
    boot_us=(500_000, 3_000_000), notice_us=(5_000, 80_000), turn_us=(500, 120_000)
)
"""Python processes on a host with far more load than cores."""


HAND_OVER_US: Final = 2_000_000
"""The longest time that the core may take to hand over when it is asked to stop."""
INBOX_MESSAGES: Final = 2_000
"""Capacity of a paused process's queues; further messages are lost."""
MOST_TICKS_IN_A_ROW: Final = 10_000
"""A core that asks for more ticks than this, each a microsecond after the last, never rests."""
_EXIT_BROKEN: Final = 70
_EXIT_STORAGE: Final = 74
_NEVER: Final = 1 << 62

Stop = tuple[TurnStep, int, TraceEvent]
"""A step before which a turn stands: at the breakpoint of a number, with the trace event that says
so, or (0) while the disk or the processor is slow."""
MakeConfig = Callable[[str, int], NodeConfig]
Seen = Callable[["SimNode", list[TraceEvent]], None]


@dataclass(slots=True, eq=False)
class _Standing:
    """A turn that stands before step `at`, at the breakpoint of a number or (0) until a time."""

    turn: Turn
    at: int
    stops: list[Stop]
    point: int
    until_us: int


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
        self.watch: Callable[[Broker], Core] | None = None
        self._stepped: Core | None = None
        self._seen = seen
        self._ended = ended
        self._inbox: list[Envelope] = []
        self._boots_us = 0
        self._clock = HOST_CLOCK
        # On the node's own clock; all other times are those of the world.
        self._deadline_us = _NEVER
        self._armed_us = _NEVER
        self._ticked_us = 0
        self._ticks_in_a_row = 0
        self._give_up_us = _NEVER
        self._shall_stop = False
        self._points: dict[int, Breakpoint] = {}
        self._armed = Armed(name, 0)
        self._standing: _Standing | None = None
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
        self._give_up_us = _NEVER
        self._shall_stop = False
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
            self._give_up_us = self._queue.now_us + HAND_OVER_US
            if self._standing is not None and self._standing.point:
                self.disarm(self._standing.point)
            self._queue.at(self._give_up_us, self._wake)
            self._shall_stop = True
            self._wake(None)

    def pause(self) -> None:
        """Send SIGSTOP: the process does not run, messages wait, and time passes."""
        self.paused = self.up

    def resume(self) -> None:
        """Send SIGCONT: all waiting messages are delivered in one turn, followed by the tick."""
        if self.paused:
            self.paused = False
            self._go_on_if_free()
            self._wake(None)

    def arm(self, number: int, point: Breakpoint) -> None:
        """Set a breakpoint in this process and in later ones. It takes effect once."""
        self._points[number] = point
        self._armed.replace(self._points)

    def disarm(self, number: int) -> None:
        """Remove a breakpoint; a process that stopped there continues."""
        self._points.pop(number, None)
        self._armed.replace(self._points)
        self._go_on_if_free()

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
            try:
                self._deadline_us = self.core.put_off(own_us)
            except FloodmarkError as error:
                self._broken(error)
                return
        if self._deadline_us > own_us:
            self._arm()
            return
        self._ticks_in_a_row = self._ticks_in_a_row + 1 if at_us <= self._ticked_us + 1 else 0
        self._ticked_us = at_us
        if self._ticks_in_a_row < MOST_TICKS_IN_A_ROW:
            self._wake(None)
        else:
            self._broken(FloodmarkError("it never rests: its deadline is always in the past"))

    # -- turns

    def take_turns_with(self, core: Broker) -> None:
        """Let this core, watched if anybody watches, take the turns from here on."""
        self.core = core
        self._stepped = core if self.watch is None else self.watch(core)

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
            core = Broker(config, self.disk, jitter, self._clock.read(self._queue.now_us))
        except FloodmarkError as error:
            self._broken(error)
            return
        self.take_turns_with(core)
        self._turn([], first=True)

    def _arrive(self, envelope: Envelope) -> None:
        """Take in a message, and all others of the same moment."""
        queue = self._queue
        more = queue.take_all_now(self.arrive) if queue.has_more_now(self.arrive) else None
        if self.core is None:
            return
        if self.paused or self._standing is not None:
            self._inbox += [envelope, *(more or ())][: INBOX_MESSAGES - len(self._inbox)]
            return
        if more is not None:
            self._turn(_deliveries([envelope, *more]))
        else:
            _, source, message, body = envelope
            self._turn([Deliver(source, message, body)])

    def _wake(self, _: object) -> None:
        """Go on when the disk is ready, a pause is over, or a deadline has come."""
        if not self.up or self.paused or self._standing is not None:
            return
        if self.core is None:
            self._boot(self.incarnation)
        else:
            waiting = self._waiting()
            give_up = self._queue.now_us >= self._give_up_us
            due = self._clock.read(self._queue.now_us) >= self._deadline_us
            if waiting or give_up or due:
                self._turn(waiting)
            else:
                self._arm()

    def _waiting(self) -> list[Event]:
        """Return what the next turn begins with: the messages, and the request to stop once."""
        if not (self._inbox or self._shall_stop):
            return []
        waiting = _deliveries(self._inbox)
        self._inbox.clear()
        if self._shall_stop:
            self._shall_stop = False
            waiting.append(Shutdown())
        return waiting

    def _turn(self, events: list[Event], *, first: bool = False) -> None:
        """Take the turn of these events, and carry it out."""
        try:
            turn = self._take(events, first)
        except Exception as error:
            self._broken(error)
            return
        self._deadline_us = turn.deadline_us
        stops: list[Stop] = []
        if turn.trace:
            stamp = self._stamp()
            turn.trace = [{**stamp, **one} for one in turn.trace]
            if (reached := self._armed.reached(turn)) and self._give_up_us == _NEVER:
                stops.append((reached.before, reached.number, {**stamp, **reached.event}))
        if self._is_slow or self.disk.faults:
            stops.append((TurnStep.COMMIT, 0, {}))
        self._carry_out(turn, 0, stops)

    def _take(self, events: list[Event], first: bool) -> Turn:
        stepped, now_us = self._stepped, self._queue.now_us
        assert stepped is not None
        if self._clock is not HOST_CLOCK:
            now_us = self._clock.read(now_us)
        return take(stepped, now_us, events, deadline_us=self._deadline_us, first=first)

    def _stamp(self) -> TraceEvent:
        now_us = self._queue.now_us
        return {"t_us": now_us, "node": self.name, "incarnation": self.incarnation}

    def _carry_out(self, turn: Turn, at: int, stops: list[Stop]) -> None:
        """Carry out a turn from step `at` on, up to the first of `stops`."""
        try:
            at = carry_out(turn, self, at, [stop[0] for stop in stops] if stops else ())
        except StorageError as error:
            self._end(_EXIT_STORAGE, "itself", str(error))
            return
        if at < len(turn.steps):
            self._stand(turn, at, stops)
        elif not self.up:
            return
        elif turn.stopped:
            self._end(0, "stop")
        elif self._queue.now_us >= self._give_up_us:
            self._end(0, "stop", "stopped without having handed over")
        else:
            self._arm()

    def _stand(self, turn: Turn, at: int, stops: list[Stop]) -> None:
        """Stop before step `at` of a turn, until its breakpoint is removed or the disk is ready."""
        stop = next(each for each in stops if each[0] is turn.steps[at])
        stops.remove(stop)
        _, point, event = stop
        self._standing = standing = _Standing(turn, at, stops, point, self._queue.now_us)
        if point:
            self.trace([event])
        elif slow_us := self._slow_us(turn):
            standing.until_us += slow_us
            self._queue.at(standing.until_us, self._ready, standing)
        else:
            self._standing = None
            self._carry_out(turn, at, stops)

    def _slow_us(self, turn: Turn) -> int:
        """Return how long the processor and the disk take for this turn."""
        slow_us = 0
        if self._is_slow:
            # Most turns are quick; a few wait for the processor or the disk.
            least_us, most_us = self._latency.turn_us
            slow_us += least_us + round((most_us - least_us) * self._jitter_rng.random() ** 6)
        if self.disk.faults:
            slow_us += self.disk.delay_us(flush=turn.flush)
        return slow_us

    def _ready(self, standing: _Standing) -> None:
        if standing is self._standing:
            self._go_on_if_free()

    def _go_on_if_free(self) -> None:
        """Go on with a turn whose breakpoint is gone, or whose time on a slow disk is over."""
        standing = self._standing
        if standing is None or self.paused:
            return
        point = standing.point
        waits = self._queue.now_us < standing.until_us
        if not (point in self._armed if point else waits):
            self._standing = None
            self._carry_out(standing.turn, standing.at, standing.stops)
            self._wake(None)

    # -- the hands of a turn

    def trace(self, events: list[TraceEvent]) -> None:
        self._seen(self, events)

    def commit(self, *, flush: bool) -> None:
        if flush:
            self.disk.flush()
        else:
            self.disk.commit()

    def send(self, messages: Sequence[Outgoing]) -> None:
        name, send = self.name, self._network.send
        for out in messages:
            send(name, out.to, out.message, out.body)

    # -- ends

    def _broken(self, error: Exception) -> None:
        """End the process of a core that raised; nothing of the turn is kept."""
        if isinstance(error, DamagedStore):
            self.trace([{**self._stamp(), **damaged_event(error)}])
        sentence = str(error) if isinstance(error, FloodmarkError) else ""
        code = _EXIT_STORAGE if isinstance(error, StorageError) else _EXIT_BROKEN
        self._end(code, "itself", sentence or "".join(traceback.format_exception(error)))

    def _end(self, code: int, by: Any, output: str = "") -> None:
        self.up = self.paused = False
        self.core = None
        if self._standing is not None:
            self._points.pop(self._standing.point, None)
        self._standing = None
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
