"""The state of a schedule while the grammar composes it: its roles, its moments, its faults.

It knows nothing of counts: a moment is an event since the last fault, so no draw has to predict how
many elections came before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from harness.search.grammar.weights import Choices
from nemesis.faults import ElectPreferred
from nemesis.faults.dice import Dice, Spot
from nemesis.faults.kind import KINDS, Consequence, FaultKind
from nemesis.formats.schedule import After, Cluster, Fault, Workload
from node.formats import trace
from node.formats.trace import METADATA_PARTITION

MOST_FAULTS: Final = 24
LATEST_MS: Final = 3000
"""No fault at a fixed time begins later; those that wait for an event may come later."""
LAST_MS: Final = 3400
"""No fault at a fixed time begins later: a storm lasts three seconds and a half."""
_LONGEST_MS: Final = 300
"""The longest time that a fault is taken to need until the next one."""
_OF_CONTROLLER: Final = (trace.PARTITION, trace.PROPOSED, trace.ISR)
_WITHIN: Final = (1.1, 1.3, 1.7)
"""Factors of the session by which a fault comes if its event does not."""
_METADATA_PERCENT: Final = 4
_VICTIM_PERCENT: Final = 80
_FOCUS_PERCENT: Final = 60
_NEW_PERCENT: Final = 50
_BROKERS_PERCENT: Final = 74
"""How often a role is one of a single broker."""


@dataclass
class Composition:
    """A schedule while it is drawn.

    `kinds` are the kinds of its faults, `partition` is the one that most faults are about,
    `brokers` the names that the roles first, second, third stand for. `votes`: replicas elect their
    leader by votes. The nodes of `cast` play most parts, `focus` that of a phrase. `leads` is the
    broker that probably leads, "" if that is open; `former` led before. `now_ms` is about when the
    last fault has had its effect."""

    choose: Choices
    cluster: Cluster
    dice: Dice
    kinds: tuple[str, ...]
    partition: str
    brokers: tuple[str, ...]
    votes: bool = False
    cast: tuple[str, ...] = ()
    leads: str = "n1"
    now_ms: int = 0
    faults: list[Fault] = field(default_factory=list)
    held: int = 0
    former: str = ""
    focus: str = ""

    @property
    def full(self) -> bool:
        """Return whether the schedule has as many faults as it may have."""
        return len(self.faults) >= MOST_FAULTS

    # -- who

    def bind(self, workload: Workload) -> None:
        """Choose the few roles that most faults of this schedule are about."""
        self.cast = tuple(self._role() for _ in range(self.choose.rng.choice((1, 2, 2, 3))))
        if workload.idempotent:  # lost answers and late requests let it send again
            self.cast += ("clients",)
        if workload.members:
            self.cast += (f"c{workload.clients + self.choose.rng.randint(1, workload.members)}",)

    def who(self) -> str:
        """Draw a target: the focus of a phrase, mostly one of the cast, sometimes any role."""
        if self.focus and self.choose.chance(_FOCUS_PERCENT):
            return self.focus
        if self.cast and self.choose.chance(_VICTIM_PERCENT):
            return self.choose.rng.choice(self.cast)
        return self._role()

    def broker(self, but: str = "") -> str:
        """Draw the name of a broker, not `but`."""
        names = [name for name in self.brokers if name != but]
        return self.choose.rng.choice(names or list(self.brokers))

    def _leaders(self) -> tuple[str, ...]:
        """Return the targets that stand for the leader."""
        return (f"leader:{self.partition}", "all", *filter(None, [self.leads]))

    def _role(self) -> str:
        role = self.choose.of("broker" if self.choose.chance(_BROKERS_PERCENT) else "else")
        places = {"first": 0, "second": 1, "third": 2, "last": -1}
        if role in places:
            names = self.cluster.broker_names()
            return self.brokers[places[role]] if places[role] < len(names) else names[-1]
        of_partition = role in ("leader", "follower", "followers", "lagging")
        return f"{role}:{self.partition}" if of_partition else role

    # -- when

    def moment(self) -> dict[str, Any]:
        """Draw when the next fault comes: at an event since an earlier one, with it, or later."""
        if not self.faults:
            return self._first()
        at = len(self.faults) - 1
        if at and self.choose.of("from") == "earlier":
            at = self.choose.rng.randrange(at)
        delay_ms = self.choose.number("delay")
        match self.choose.of("moment"):
            case "event":
                return self.since(self.event(at), delay_ms, at)
            case "with":
                return later(self.faults[at], delay_ms)
            case "end" if (for_ms := self.faults[at].for_ms) is not None:
                return later(self.faults[at], for_ms + delay_ms)
            case _:
                return self._timed(delay_ms + self.lasts())

    def since(self, after: After, delay_ms: int = 0, at: int = -1) -> dict[str, Any]:
        """Return the moment of an event since a fault, by its number."""
        fault = self.faults[at]
        if not fault.name:
            number = at % len(self.faults)
            self.faults[at] = fault = replace(fault, name=f"f{number}")
        return {"after": replace(after, since=fault.name, delay_ms=delay_ms)}

    def _first(self) -> dict[str, Any]:
        if self.choose.of("first") == "time":
            return self._timed(self.choose.rng.choice((5, 60, 150, 300)))
        event = self.choose.of("flow")
        return {"after": self._after(event, nth=self.choose.rng.randint(1, 6))}

    def _timed(self, ms: int) -> dict[str, Any]:
        self.now_ms = min(self.now_ms + ms, LATEST_MS)
        return {"at_ms": self.now_ms}

    def meanwhile(self, at: int) -> dict[str, Any]:
        """Draw a moment soon after a fault begins: mostly when something else is written."""
        match self.choose.of("meanwhile"):
            case "later":
                return later(self.faults[at], self.choose.number("soon"))
            case event:
                after = self._after(event, nth=self.choose.number("nth"), role="leader")
                return self.since(after, self.choose.number("delay"), at)

    def event(self, at: int) -> After:
        """Draw an event that a fault may cause; let the fault last until its effect."""
        fault = self.faults[at]
        causes = {cause.value for cause in KINDS[fault.what].consequences}
        on, timings = str(getattr(fault, "on", "")), self.cluster.timings
        if own := KINDS[fault.what].causes:
            return After(event=self.choose.rng.choice(own), within_ms=self.waits_ms())
        if self.votes:
            causes.discard(Consequence.ISR_CHANGE.value)
        elif Consequence.RESTART.value in causes and 2 * (fault.for_ms or 0) < timings.session_ms:
            causes = {Consequence.RESTART.value}  # it is back within its session
        elif on and self.leads and on not in self._leaders():
            causes.discard(Consequence.ELECTION.value)
        cause = self.choose.of("causes", *({cause.value for cause in Consequence} - causes))
        if cause == "flow":
            return self._after(self.choose.of("flow"), nth=self.choose.number("nth"))
        event = self.choose.of(cause, *(_OF_CONTROLLER if self.votes else ()))
        if cause == Consequence.RESTART.value:
            return self._after(event, node=on if on in self.brokers else "")
        waits_ms = timings.lag_ms if cause == Consequence.ISR_CHANGE.value else timings.session_ms
        waits_ms = timings.election_max_ms if self.votes else waits_ms
        if fault.for_ms is not None and fault.for_ms < waits_ms and self.choose.chance(80):
            longer = round(waits_ms * self.choose.rng.choice((1.3, 1.8, 2.5)))
            self.faults[at] = replace(fault, for_ms=longer)
        return self._after(event, role="leader")

    def _after(self, event: str, *, nth: int = 1, node: str = "", role: str = "") -> After:
        """Return the trigger for an event, of a node if one is given, of a role if it has one."""
        match: dict[str, Any] = {"node": node} if node else {}
        if event not in (trace.STARTED, trace.REGISTERED):
            metadata = self.choose.chance(_METADATA_PERCENT) and not node
            match["partition"] = METADATA_PARTITION if metadata else self.partition
        if "role" in trace.FIELDS[event]:
            match["role"] = role or self.choose.rng.choice(("leader", "follower"))
        return After(event=event, match=match, nth=nth, within_ms=self.waits_ms())

    def waits_ms(self) -> int:
        """Draw after which time a fault comes if its event does not."""
        timings = self.cluster.timings
        notices_ms = timings.election_max_ms if self.votes else timings.session_ms
        return round(notices_ms * self.choose.rng.choice(_WITHIN))

    # -- how long, and what

    def lasts(self, factor: str = "factor") -> int:
        """Draw a length: a factor of a threshold of the cluster."""
        without = ("session_ms", "lag_ms") if self.votes else ()
        threshold = int(getattr(self.cluster.timings, self.choose.of("threshold", *without)))
        return round(threshold * float(self.choose.of(factor)))

    def kind(self, fits: Callable[[type[FaultKind]], object] = bool) -> type[FaultKind]:
        """Draw a kind of fault of this schedule, one that fits if there is any: often one that it
        does not have yet."""
        fit = [name for name in self.kinds if fits(KINDS[name])] or list(self.kinds)
        used = {fault.what for fault in self.faults}
        if self.choose.chance(_NEW_PERCENT):
            fit = [name for name in fit if name not in used] or fit
        return KINDS[self.choose.some("kind", fit, 1, power=0.5)[0]]

    def ends_leader(self) -> type[FaultKind]:
        """Draw a kind of fault by which another replica leads."""
        return self.kind(lambda kind: Consequence.ELECTION in kind.consequences)

    def atom(self, kind: type[FaultKind], on: str = "", **when: Any) -> Fault | None:
        """Add a fault of a kind, at the moment `when` or a drawn one; return it. None if the
        schedule is full."""
        if self.full:
            return None
        on = on or self.who()
        if kind is ElectPreferred and on in (self.leads, f"leader:{self.partition}"):
            on = self.broker(but=self.leads) if self.leads else self.former
        spot = Spot(
            dice=self.dice,
            on=self.broker() if _is_client(on) and not kind.on_links else on,
            other=self._other(on),
            partition=self.partition,
            for_ms=self.lasts("down" if Consequence.RESTART in kind.consequences else "factor"),
            votes=self.votes,
            again=any(fault.what == kind.__struct_config__.tag for fault in self.faults),
        )
        when = when or self.moment()
        fault: Fault = replace(kind.compose(spot), **{"at_ms": None, "after": None, **when})
        self.faults.append(fault)
        if isinstance(fault, ElectPreferred):
            self._led_by(fault.first)
        elif Consequence.ELECTION in kind.consequences and spot.on in self._leaders():
            self._led_by("")
        self.now_ms = min(self.now_ms + min(fault.for_ms or 20, _LONGEST_MS), LATEST_MS)
        return fault

    def _led_by(self, name: str) -> None:
        self.leads, self.former = name, self.leads or self.former

    def _other(self, on: str) -> str:
        """Draw the other end of the links of a fault on `on`."""
        match self.choose.of("other", *(("leader",) if on in self._leaders() else ())):
            case "leader":
                return f"leader:{self.partition}"
            case "cast":
                return self.who()
            case other:
                return other


def later(fault: Fault, delay_ms: int) -> dict[str, Any]:
    """Return the moment of a fault, later by `delay_ms`."""
    if fault.after is None:
        return {"at_ms": min((fault.at_ms or 0) + delay_ms, LAST_MS)}
    return {"after": replace(fault.after, delay_ms=fault.after.delay_ms + delay_ms)}


def _is_client(target: str) -> bool:
    return target[0] == "c" and target != "controller"
