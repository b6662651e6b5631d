"""Conformance of every step: what a broker sends and takes over is what its protocol says.

The rules read the state of one broker, before and after a step, and the message between. They need
no second replica and no promise: a broker follows its protocol under every option and fault. What
they find need not have lost anything: a client sees it only if the right messages cross."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from checker.formats.verdict import Witness
from harness.sim import adoption_rules, answer_rules
from harness.sim.invariant_checker import InvariantChecker
from harness.sim.metadata_rules import MetadataRules
from harness.sim.producer_rules import ProduceRules
from harness.sim.progress_rules import ProgressRules
from harness.sim.step import Before, Step, before, replica_of
from node.core.api import Deliver, Effects, Event, Tick
from node.core.broker import Broker
from node.core.replica import Replica
from node.formats.errors import DamagedStore
from node.formats.trace import DAMAGED, METADATA_PARTITION

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
        self._produce = ProduceRules()
        self._metadata = MetadataRules()
        self._progress = ProgressRules()

    def watch(self, core: Broker) -> _Stepper:
        """Return the core as a turn takes it, with its steps checked."""
        return _Stepper(core, self)

    def step(self, core: Broker, now_us: int, event: Event) -> Effects:
        """Take a step, check it, and return its effects."""
        r: Replica | None = None
        then: Before | None = None
        if isinstance(event, Deliver):
            partition = getattr(event.message, "partition", None)
            if partition is not None:
                r = replica_of(core, partition)
                if r is not None and r.log.damage is None:
                    then = before(core, r, event)
        effects = core.step(now_us, event)
        self._check(Step(core, event, r, then, effects))
        return effects

    def _check(self, s: Step) -> None:
        core, event = s.core, s.event
        if isinstance(event, Deliver) and s.r is not None and s.before is not None:
            r, rule = s.r, adoption_rules.RULES.get(type(event.message))
            if r.log.damage is None and replica_of(core, r.partition) is r:
                if rule is not None:
                    self._found(_TAKES, s, r, rule(s, r, s.before))
                if r.role == "leader":
                    self._found(_STATE, s, r, self._leader(s, r, s.before))
                self._found(_STATE, s, r, self._stored(s, r))
                self._found(_STATE, s, r, self._progress.delivered(s, r, s.before))
        elif isinstance(event, Tick):
            self._found(_STATE, s, None, self._progress.ticked(s))
        for out in s.effects.messages:
            told = answer_rules.RULES.get(type(out.message))
            if told is not None:
                named = replica_of(core, getattr(out.message, "partition", ""))
                if named is not None:
                    self._found(_TELLS, s, named, told(s, named, out.message, out.body or b""))
        self._found(_TELLS, s, s.r, self._produce.check(s))
        self._found(_STATE, s, None, self._metadata.check(s))

    def _leader(self, s: Step, r: Replica, b: Before) -> Iterator[str]:
        """Check that a leader commits what it may, and nothing else."""
        assert isinstance(s.event, Deliver)
        if s.event.more:
            return  # The last message of a turn moves the high watermark.
        may = answer_rules.high_watermark(r)
        least = b.hw if b.role == "leader" else min(b.hw, r.hw)
        expected = max(least, may if may is not None else 0, r.log.start)
        if r.hw != expected:
            yield f"leads with high watermark {r.hw}, and should be at {expected}"
        if r.acks and r.acks[0].end <= r.hw:
            yield f"has {r.hw} as high watermark, and did not answer for {r.acks[0].end}"

    def _stored(self, s: Step, r: Replica) -> Iterator[str]:
        """Check that a restart counts nothing as committed that this process does not."""
        try:
            saved = s.core.ctx.storage.get(f"hw/{r.partition}")
        except DamagedStore:
            return
        if saved and r.hw < int.from_bytes(saved[:8], "big") and r.hw >= 0:
            yield f"has stored high watermark {int.from_bytes(saved[:8], 'big')}, and has {r.hw}"

    def _found(self, invariant: str, s: Step, r: Replica | None, sentences: Iterator[str]) -> None:
        for sentence in sentences:
            if s.traced(DAMAGED):
                return
            partition = METADATA_PARTITION if r is None else r.partition
            r = s.core.quorum.r if r is None else r
            witness = Witness(what="log end", node=s.node, offset=r.leo, epoch=r.leader_epoch)
            kind = "" if s.message is None else f" at a {s.message.__struct_config__.tag}"
            what = f"{s.node} {sentence} ({r.role} of {partition}{kind})"
            self._checker.violated(invariant, partition, what, [witness])
