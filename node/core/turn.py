"""A turn as data: what the steps of one turn have made, and the order in which a world carries that
out. The real loop, the simulator and the explorer have no order of their own.

    turn = take(core, now_us, events, deadline_us=deadline_us)
    at = carry_out(turn, hands, stop=(TurnStep.COMMIT,))  # the turn stands before its commit
    carry_out(turn, hands, at)

**The order.** Commit, then the turn's trace, then its messages. Wherever a kill falls, the disk has
what the trace says, and the trace has what was sent. (Trace before commit would let a killed leader
claim a high watermark or an acknowledgement that its disk never had.)

**Messages that leave early**, so that a leader replicates while its own disk syncs (Raft's thesis,
10.2.1: writing to the leader's disk in parallel). The trace of a turn must be written before its
messages leave. So those marked `IF_COVERED` leave before the commit, after the trace, if all that
the turn has traced holds without the commit. An append claims nothing of the disk. A high watermark
or an acknowledgement does, unless it covers only what earlier turns have committed: so a leader
counts itself only for what its disk has."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import Enum
from typing import Final, Protocol

from node.core.api import Effects, Event, Mark, Outgoing, Tick
from node.formats.trace import APPEND, EVENTS, EVERYTHING, NOTHING, TraceEvent


class TurnStep(Enum):
    """A step of the order in which a turn is carried out."""

    TRACE = "trace"
    SEND_EARLY = "send-early"
    COMMIT = "commit"
    SEND = "send"


# Names of a module, which are found ten times as fast as members of an enum: they are read in each
# turn.
_TRACE, _COMMIT, _SEND = TurnStep.TRACE, TurnStep.COMMIT, TurnStep.SEND
_AFTER_COMMIT: Final = Mark.AFTER_COMMIT
_USUAL: Final = (_COMMIT, _TRACE, _SEND)
_EARLY: Final = (_TRACE, TurnStep.SEND_EARLY, _COMMIT, _SEND)
_TICK: Final = Tick()


# Not a dataclass: of a compiled one `__init__` is not compiled.
class Turn:
    """The joined effects of the steps of one turn, see `node.core.api.Effects`. Of its messages
    those in `early` leave before the commit, the others after it; `flush` asks for a commit that
    leaves nothing deferred."""

    __slots__ = ("deadline_us", "early", "flush", "later", "stopped", "trace")

    def __init__(
        self,
        trace: list[TraceEvent],
        early: list[Outgoing],
        later: list[Outgoing],
        deadline_us: int,
    ) -> None:
        self.trace = trace
        self.early = early
        self.later = later
        self.deadline_us = deadline_us
        self.flush = False
        self.stopped = False

    @property
    def steps(self) -> tuple[TurnStep, ...]:
        """The steps of this turn, in order."""
        return _EARLY if self.early else _USUAL


class Core(Protocol):
    """The method of `node.core.broker.Broker` that a turn needs."""

    def step(self, now_us: int, event: Event) -> Effects:
        """Handle one event, at a time in microseconds; return its effects."""
        ...


class Hands(Protocol):
    """The actions of a world that carries out a turn."""

    def trace(self, events: list[TraceEvent]) -> None:
        """Write events to the trace, all or none."""

    def commit(self, *, flush: bool) -> None:
        """Commit what the turn has written; with `flush`, also what earlier turns have deferred."""

    def send(self, messages: list[Outgoing]) -> None:
        """Send messages, in order."""


def take(
    core: Core,
    now_us: int,
    events: Iterable[Event],
    *,
    deadline_us: int,
    first: bool = False,
    ticks: bool = True,
    trace: list[TraceEvent] | None = None,
) -> Turn:
    """Step `events`; then, if the core's deadline has come or it is its `first` turn, a `Tick`.
    Return the turn. Without `ticks` no deadline counts. `trace` has the events so far; those of
    each step are added to it, for a caller that catches an error of the core."""
    turn = Turn([] if trace is None else trace, [], [], deadline_us)
    for event in events:
        _add(turn, core.step(now_us, event))
        if turn.stopped:
            break
    else:
        # After the messages, and once, even if the core wants to be stepped again at once.
        if first or (ticks and 0 < turn.deadline_us <= now_us):
            _add(turn, core.step(now_us, _TICK))
    for out in turn.later:
        if out.mark is not _AFTER_COMMIT:
            _set_early(turn)
            break
    return turn


def carry_out(turn: Turn, hands: Hands, at: int = 0, stop: Collection[TurnStep] = ()) -> int:
    """Carry out the steps of a turn from number `at` on, up to the first one that is in `stop`.
    Return the number of the step that the turn stands before, or that of all steps if it is
    done."""
    for step in turn.steps[at:]:
        if step in stop:
            return at
        if step is _COMMIT:
            hands.commit(flush=turn.flush)
        elif step is _TRACE:
            if turn.trace:
                hands.trace(turn.trace)
        elif step is _SEND:
            if turn.later:
                hands.send(turn.later)
        else:
            hands.send(turn.early)
        at += 1
    return at


def _add(turn: Turn, effects: Effects) -> None:
    turn.trace += effects.trace
    turn.later += effects.messages
    turn.deadline_us = effects.deadline_us
    turn.stopped = effects.stopped
    turn.flush = turn.flush or effects.flush or effects.stopped


def _set_early(turn: Turn) -> None:
    """Tell the messages that leave before the commit from the others. Both keep their order."""
    holds = _holds_without_commit(turn.trace)
    marks = (Mark.BEFORE_COMMIT, Mark.IF_COVERED if holds else Mark.BEFORE_COMMIT)
    turn.early = [out for out in turn.later if out.mark in marks]
    turn.later = [out for out in turn.later if out.mark not in marks]


def _holds_without_commit(trace: Iterable[TraceEvent]) -> bool:
    appended_from: dict[str, int] = {}
    for event in trace:
        name = event["event"]
        claims = EVENTS[name].claims
        if name == APPEND:
            appended_from.setdefault(event["partition"], event["base_offset"])
        elif claims != NOTHING:
            if claims == EVERYTHING:
                return False
            covers = event[claims]
            if covers > appended_from.get(event["partition"], covers):
                return False
    return True
