"""Breakpoint: a process stands before a step of a turn, and waits, is suspended, or ends there; and
release, which undoes a fault."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from nemesis.faults.dice import ON_VOTERS, Dice, Spot
from nemesis.faults.kind import (
    ONE_NODE,
    Consequence,
    Drawing,
    Effect,
    FaultKind,
    Injected,
    Loss,
    Site,
)
from nemesis.faults.lasting import LastingFault
from nemesis.faults.words import conditions, nth, target
from nemesis.formats.cluster_spec import AtLeastOne, Cluster, Workload, is_voter, wrong_event
from nemesis.formats.fault import Fault
from nemesis.processes import CannotAct
from node.core.turn import TurnStep
from node.formats.trace import BREAK, METADATA_PARTITION, VOTE
from node.runtime.breakpoints import Breakpoint

TURN_GROUP: Final = "turn"
"""Stands for the kinds that stand inside a turn, which only our own brokers have."""
Step = Literal["trace", "send-early", "commit", "send"]
Then = Literal["wait", "suspend", "kill", "power-cut"]

_WORDS: Final[dict[Then, str]] = {
    "wait": "Stop {}",
    "suspend": "Suspend {}",
    "kill": "Kill {}",
    "power-cut": "Cut the power of {}",
}
# How often each is drawn. Events: those that come soon on such a node, "" is the next of any name.
_STEPS: Final[tuple[tuple[Step, float], ...]] = (
    *(("commit", 5), ("send", 3), ("trace", 1), ("send-early", 1)),
)
_THEN: Final[tuple[tuple[Then, float], ...]] = (
    *(("kill", 4), ("power-cut", 2), ("suspend", 2), ("wait", 2)),
)
_OF_ALL: Final = (("", 2), ("append", 4), ("hw", 2))
_OF_LEADERS: Final = (*_OF_ALL, ("ack", 2))
_RARER: Final = (
    *(("append", 4), ("ack", 3), ("hw", 3), ("role", 3), ("truncated", 2), ("isr", 2)),
    *(("proposed", 2), ("vote", 2), ("deleted", 0.5)),
)
_METADATA: Final = 0.08
"""How often a composed breakpoint of a broker waits for an event of the metadata."""
_OF_VOTERS: Final = (("", 1),)


class Break(LastingFault, frozen=True, kw_only=True, tag="break"):
    """A process stands before a step of the turn that emits the `nth` matching trace event; `then`
    it waits there, is suspended, is killed, or loses its power, for `for_ms` from that moment on.

    It is armed when the fault is injected, in the processes of the nodes `on` and in those that
    start later. Each process counts events from then on (`event` "": those of any name), in turns
    that have the step, and one process of each node stands there. `before` names a step of the
    turn. "send": all is on disk and in the trace, and no message has left but those that do not
    wait for the disk. "commit": nothing is on disk, and only such messages have left, with the
    trace before them. "trace": on disk alone; nothing at all in a turn with such messages, before
    which "send-early" stands. A power cut takes everything that is not synced."""

    on: str
    event: str = ""
    match: dict[str, Any] = msgspec.field(default_factory=dict)
    nth: AtLeastOne = 1
    before: Step = "send"
    then: Then = "wait"

    letter = "T"
    colour = "var(--info)"
    pattern = "bars"
    of_turns = True
    whole = True
    causes = (BREAK,)
    consequences = frozenset({Consequence.ELECTION, Consequence.ISR_CHANGE, Consequence.RESTART})
    # No alias but its own: only our own brokers have turns.
    drawing = Drawing(
        targets=(*ONE_NODE, ("controller", 1), ("voters", 0.5)),
        aliases=(TURN_GROUP,),
        fails_leader=(5,),
    )

    def problems(self, cluster: Cluster, workload: Workload) -> Iterator[str]:
        yield from super().problems(cluster, workload)
        yield from wrong_event(self.event, self.match)

    def may_lose(self) -> Loss:
        return "unsynced" if self.then == "power-cut" else ""

    @classmethod
    def draw_fields(cls, dice: Dice, on: str) -> dict[str, Any]:
        """Draw an event that soon comes on such a node, a step, and what happens there."""
        role, _, partition = on.partition(":")
        events = _OF_VOTERS if role in ON_VOTERS else _OF_LEADERS if role == "leader" else _OF_ALL
        before, then = dice.weighted(_STEPS), dice.weighted(_THEN)
        return {
            "before": before,
            "then": then,
            "event": dice.weighted(events),
            "match": {"partition": partition} if partition else {},
            "nth": dice.between(0.5, 4.5),
        }

    @classmethod
    def compose(cls, spot: Spot) -> Fault:
        """Draw an event of the partition that the schedule is about, mostly a rarer one."""
        drawn = cls.draw_on(spot.dice, spot.on, 0, spot.for_ms)
        of_voter = spot.on in ON_VOTERS or is_voter(spot.on)
        if of_voter or spot.dice.chance(0.3):
            return drawn
        metadata = spot.dice.chance(_METADATA)
        match = {"partition": METADATA_PARTITION if metadata else spot.partition}
        events = (
            _OF_ALL if metadata else [event for event in _RARER if spot.votes or event[0] != VOTE]
        )
        return replace(drawn, event=spot.dice.weighted(events), match=match)

    def lasting(self) -> Breakpoint:
        return Breakpoint(self.event, self.match, self.nth, TurnStep(self.before))

    def stopped(self, node: str, site: Site) -> None:
        """Suspend or end the process that stands at the breakpoint, unless it only waits, or ended
        meanwhile."""
        with suppress(CannotAct):
            match self.then:
                case "suspend":
                    site.processes.pause(site.number, node)
                case "kill":
                    site.processes.kill(site.number, node)
                case "power-cut":
                    site.processes.power_cut(site.number, node, lambda: 0.0)

    def bring_back(self, site: Site, node: str) -> None:
        """Resume or start a node that stood there, unless another fault has done something to it
        since."""
        with suppress(CannotAct):
            if self.then == "suspend":
                site.processes.resume_again(site.number, node)
            elif self.then != "wait":
                site.processes.start_again(site.number, node)

    def effect(self, injected: Injected) -> Effect:
        stopped = tuple(injected.standing)
        return Effect(nodes=stopped, counts={"stopped": len(stopped)})

    def plainer(self) -> Iterator[Break]:
        if self.then == "power-cut":
            yield replace(self, then="kill")
        if self.before != "send":
            yield replace(self, before="send")

    def words(self) -> str:
        fields = conditions(self.match)
        name = f"'{self.event}' " if self.event else ""
        return (
            f"{_WORDS[self.then].format(target(self.on))} before the {self.before} of the turn "
            f"with the {nth(self.nth)} {name}event{f' with {fields}' if fields else ''}"
        )


class Release(FaultKind, frozen=True, kw_only=True, tag="release"):
    """Undo the fault with the name `of` before its time: messages that it held go on, and so do its
    processes and links."""

    of: str

    letter = "E"
    colour = "var(--good)"
    lasts = False
    drawing = "a drawn fault ends by itself"
    sentence = "Undo '{of}'"

    @property
    def undoes(self) -> str:
        return self.of

    def inject(self, site: Site) -> Injected:
        """Heal the named fault. Raises FloodmarkError if it is not in force."""
        return Injected(nodes=site.undo(self.of))
