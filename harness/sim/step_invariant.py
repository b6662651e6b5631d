"""Conformance of every step: what a broker sends and takes over is what its protocol says.

The rules read the state of one broker, before and after a step, and the message between. They need
no second replica and no promise: a broker follows its protocol under every option and fault. What
they find need not have lost anything: a client sees it only if the right messages cross."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from checker.formats.verdict import Witness
from harness.sim import adoption_rules, answer_rules
from harness.sim.before import before, replica_of
from harness.sim.group_invariant import GroupRules, before_group
from harness.sim.invariant_checker import InvariantChecker
from harness.sim.metadata_rules import MetadataRules
from harness.sim.progress_rules import ProgressRules
from harness.sim.step import Before, BrokerStep
from node.core.api import Deliver, Effects, Event, Tick
from node.core.broker import Broker
from node.core.replica import Replica
from node.formats.errors import DamagedStore
from node.formats.messages import (
    AlterPartition,
    AppendResponse,
    FetchRequest,
    GroupRequest,
    GroupResponse,
    ProduceRequest,
    ProduceResponse,
    VoteResponse,
)
from node.formats.trace import DAMAGED, DELETED, METADATA_PARTITION, ROLE

_TELLS: Final = "sends-as-specified"
_TAKES: Final = "takes-as-specified"
_STATE: Final = "state-as-specified"


@dataclass(slots=True)
class _Stepper:
    """The core of one process, whose steps are checked."""

    core: Broker
    invariant: StepInvariant

    def step(self, now_us: int, event: Event) -> Effects:
        return self.invariant.step(self.core, now_us, event)


class StepInvariant:
    """The rules of steps, whose violations go to `checker`."""

    def __init__(self, checker: InvariantChecker) -> None:
        self._checker = checker
        self._produce = answer_rules.ProduceRules()
        self._metadata = MetadataRules()
        self._progress = ProgressRules()
        self._groups = GroupRules()

    def watch(self, core: Broker) -> _Stepper:
        """Return the core as a turn takes it, with its steps checked."""
        return _Stepper(core, self)

    def step(self, core: Broker, now_us: int, event: Event) -> Effects:
        """Take a step, check it, and return its effects."""
        node = core.ctx.node
        if not isinstance(event, Deliver):
            effects = core.step(now_us, event)
            s = BrokerStep(core, node, None, "", b"", False, None, None, effects)
            self._check(s)
            if isinstance(event, Tick):
                for what in self._progress.ticked(s):
                    self._report(_STATE, s, None, what)
            return effects
        message, then = event.message, None
        r = replica_of(core, getattr(message, "partition", ""))
        if r is not None and r.log.damage is None:
            then = before(core, r, event)
        groups = before_group(core, message) if isinstance(message, GroupRequest) else None
        effects = core.step(now_us, event)
        body = event.body or b""
        s = BrokerStep(core, node, message, event.source, body, event.more, r, then, effects)
        if then is not None and r is not None and _stays(core, r):
            self._delivered(s, r, then)
        if groups is not None and (what := self._groups.request(s, *groups)):
            self._report(_TAKES, s, r, what)
        self._check(s)
        return effects

    def _delivered(self, s: BrokerStep, r: Replica, b: Before) -> None:
        """Check what a message made of the replica that it names."""
        kind = type(s.message)
        rule = adoption_rules.RULES.get(kind)
        if rule is not None:
            for what in rule(s, r, b):
                self._report(_TAKES, s, r, what)
        if r.role == "leader" and not s.more and (what := _commits(r, b)):
            self._report(_STATE, s, r, what)
        if r.log.start != b.start and not s.traced_of(r, DELETED):
            self._report(_STATE, s, r, f"begins at {r.log.start} now, and did not trace that")
        if what := _stored(s, r):
            self._report(_STATE, s, r, what)
        if kind is FetchRequest or kind is VoteResponse or kind is AppendResponse:
            if what := self._progress.delivered(s, r, b):
                self._report(_STATE, s, r, what)
        elif kind is ProduceRequest:
            for what in self._produce.request(s, r, b):
                self._report(_TAKES, s, r, what)

    def _check(self, s: BrokerStep) -> None:
        """Check what a step sends, and what the controller decided in it."""
        core = s.core
        for out in s.effects.messages:
            message = out.message
            told = answer_rules.RULES.get(type(message))
            if told is not None:
                named = replica_of(core, getattr(message, "partition", ""))
                if named is not None:
                    for what in told(s, named, message, out.body or b""):
                        self._report(_TELLS, s, named, what)
                if type(message) is AlterPartition:
                    self._progress.proposed_us[s.node, message.partition] = core.ctx.now_us
            elif type(message) is GroupResponse:
                if what := self._groups.answer(s, out.to, message):
                    self._report(_TELLS, s, s.r, what)
            elif type(message) is ProduceResponse:
                for what in self._produce.answer(s, out.to, message):
                    self._report(_TELLS, s, s.r, what)
        for event in s.effects.trace if s.traced(ROLE) else ():
            led = replica_of(core, event["partition"]) if event["event"] == ROLE else None
            if led is not None and event["role"] == "leader" and led.peers:
                self._report(_STATE, s, led, f"begins to lead and counts {[*led.peers]}")
        if core.controller is not None or s.r is core.quorum.r:
            for what in self._metadata.check(s):
                self._report(_STATE, s, None, what)

    def _report(self, invariant: str, s: BrokerStep, r: Replica | None, sentence: str) -> None:
        if s.traced(DAMAGED):
            return
        partition = METADATA_PARTITION if r is None else r.partition
        r = s.core.quorum.r if r is None else r
        witness = Witness(what="log end", node=s.node, offset=r.leo, epoch=r.leader_epoch)
        kind = "" if s.message is None else f" at a {s.message.__struct_config__.tag}"
        what = f"{s.node} {sentence} ({r.role} of {partition}{kind})"
        self._checker.violated(invariant, partition, what, [witness])


def _stays(core: Broker, r: Replica) -> bool:
    """Return whether a node still has a replica, and believes its log."""
    return r.log.damage is None and replica_of(core, r.partition) is r


def _commits(r: Replica, b: Before) -> str:
    """Return why a leader does not commit what it may, or commits something else; "" if neither.
    The last message of a turn moves the high watermark."""
    may = answer_rules.high_watermark(r) or 0
    least = b.hw if b.role == "leader" else min(b.hw, r.hw)
    if r.hw != (expected := max(least, may, r.log.start)):
        return f"leads with high watermark {r.hw}, and should be at {expected}"
    if r.acks and r.acks[0].end <= r.hw:
        return f"has {r.hw} as high watermark, and did not answer for {r.acks[0].end}"
    waiting = (wait.request for wait in r.follower_waits.values())
    held = [request for request in waiting if request.offset < r.leo]
    return f"holds a fetch of {held[0].replica} at {held[0].offset}" if held else ""


def _stored(s: BrokerStep, r: Replica) -> str:
    """Return why a restart would count something as committed that this process does not; "" if it
    would not."""
    try:
        saved = s.core.ctx.storage.get(f"hw/{r.partition}")
    except DamagedStore:
        return ""
    stored = int.from_bytes(saved[:8], "big") if saved else 0
    return f"has stored high watermark {stored}, and has {r.hw}" if stored > r.hw else ""
