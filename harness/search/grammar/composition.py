"""The state of a schedule while the grammar composes it: its roles, its moments, its faults.

It knows nothing of counts: a moment is an event since the last fault, so no draw has to predict how
many elections came before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from harness.search.grammar.weights import WEIGHTS, Choices
from nemesis.faults import ElectPreferred
from nemesis.faults.dice import Dice, Spot, side_of
from nemesis.faults.kind import KINDS, Consequence, FaultKind
from nemesis.faults.link_fault import unreached
from nemesis.formats.schedule import After, Cluster, Fault, Workload
from node.formats import trace
from node.formats.trace import METADATA_PARTITION

MOST_FAULTS: Final = 24
LAST_MS: Final = 3200
"""No fault comes later: a storm lasts three seconds and a half."""
_LATE_MS: Final = 2400
"""No fault counts from one that comes later, but the inner ones of a phrase."""
_LONGEST_MS: Final = 300
"""The longest time that a fault is taken to need until the next one."""
_OF_CONTROLLER: Final = (trace.PARTITION, trace.PROPOSED, trace.ISR)
_WITHIN: Final = (1.1, 1.3, 1.7)
"""Factors of the session by which a fault comes if its event does not."""
_SOONER: Final = 0.7
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
    broker that probably leads, "" if that is open; `former` led before. `times_ms` are about when
    each fault comes, `now_ms` is when all would have had their effect one after the other."""

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
    times_ms: list[int] = field(default_factory=list)
    former: str = ""
    focus: str = ""
    _comes_ms: int = 0

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
        if at and (self.times_ms[at] > _LATE_MS or self.choose.of("from") == "earlier"):
            at = self.choose.rng.randrange(at)
        delay_ms = self.choose.number("delay")
        match self.choose.of("moment"):
            case "event":
                return self.since(self.event(at), delay_ms, at)
            case "with":
                return self.later(at, delay_ms)
            case "end" if (for_ms := self.faults[at].for_ms) is not None:
                return self.later(at, for_ms + delay_ms)
            case _:
                return self._timed(delay_ms + self.lasts())

    def since(self, after: After, delay_ms: int = 0, at: int = -1) -> dict[str, Any]:
        """Return the moment of an event since a fault, by its number."""
        fault = self.faults[at]
        if not fault.name:
            number = at % len(self.faults)
            self.faults[at] = fault = replace(fault, name=f"f{number}")
        # Clients write all the time; other events take a part of the time that they have.
        writes_ms = 30 * after.nth if after.event in WEIGHTS["flow"] else 0
        takes_ms = writes_ms or round(_SOONER * (after.within_ms or 0))
        self._comes_ms = self.times_ms[at] + takes_ms + delay_ms
        return {"after": replace(after, since=fault.name, delay_ms=delay_ms)}

    def _first(self) -> dict[str, Any]:
        if self.choose.of("first") == "time":
            return self._timed(self.choose.rng.choice((5, 60, 150, 300)))
        event, self._comes_ms = self.choose.of("flow"), 100
        return {"after": self._after(event, nth=self.choose.rng.randint(1, 6))}

    def _timed(self, ms: int) -> dict[str, Any]:
        self._comes_ms = min(self.now_ms + ms, LAST_MS)
        return {"at_ms": self._comes_ms}

    def later(self, at: int, delay_ms: int) -> dict[str, Any]:
        """Return the moment of a fault, by its number, later by `delay_ms`."""
        after = self.faults[at].after
        self._comes_ms = self.times_ms[at] + delay_ms
        if after is None:
            return {"at_ms": min((self.faults[at].at_ms or 0) + delay_ms, LAST_MS)}
        return {"after": replace(after, delay_ms=after.delay_ms + delay_ms)}

    def meanwhile(self, at: int) -> dict[str, Any]:
        """Draw a moment soon after a fault begins: mostly when something else is written."""
        event = self.choose.of("meanwhile")
        if event == "later":
            return self.later(at, self.choose.number("soon"))
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
        schedule is full, or over before the moment comes."""
        when = when or self.moment()
        if self.full or self._comes_ms > LAST_MS:
            return None
        on = on or self.who()
        if kind is ElectPreferred and on in (self.leads, f"leader:{self.partition}"):
            on = self.broker(but=self.leads) if self.leads else self.former
        spot = Spot(
            dice=self.dice,
            on=self.broker() if side_of(on) == "c" and not kind.on_links else on,
            other=self._other(on),
            partition=self.partition,
            for_ms=self.lasts("down" if Consequence.RESTART in kind.consequences else "factor"),
            votes=self.votes,
            leads=self.leads,
            before=tuple(self.faults),
        )
        fault: Fault = replace(kind.compose(spot), **{"at_ms": None, "after": None, **when})
        self.add(fault)
        ends = Consequence.ELECTION in kind.consequences and spot.on in self._leaders()
        if ends or isinstance(fault, ElectPreferred):
            self.leads, self.former = getattr(fault, "first", ""), self.leads or self.former
        return fault

    def add(self, fault: Fault) -> None:
        """Add a fault, at the moment that was drawn last."""
        self.faults.append(fault)
        self.times_ms.append(self._comes_ms)
        self.now_ms = min(self.now_ms + min(fault.for_ms or 20, _LONGEST_MS), LAST_MS)

    def _other(self, on: str) -> str:
        """Draw the other end of the links of a fault on `on`."""
        without = {on, *unreached(self.dice, on)}
        if on in self._leaders():
            without |= {"leader"} | ({"rest"} if on == "all" else set())
        other = self.choose.of("other", *without)
        if other == "cast":
            node = self.who()
            ends = {"v": "voters", "c": "clients"}
            alike = node == on or ends.get(side_of(node)) in without
            return ("all" if on == "all" else "rest") if alike else node
        return f"leader:{self.partition}" if other == "leader" else other
