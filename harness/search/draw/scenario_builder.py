"""The state of a schedule while it is drawn: its faults, its time, the next triggers.

The scenarios themselves are in `harness.search.draw.scenarios`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypedDict

from harness.search.draw.choice_source import RandomChoices
from nemesis.faults import Link
from nemesis.formats.schedule import After, Cluster, Fault
from node.formats.messages import MESSAGE_FIELDS
from node.formats.trace import METADATA_PARTITION

LATEST_MS: Final = 1500
"""No scenario begins at a later time; faults that wait for an event may come later."""
DIVERGING: Final = {"diverging": {"given": True}}
"""Matches a fetch response that tells a follower to truncate its log."""

When = dict[str, Any]
"""`{"at_ms": ...}` or `{"after": ...}`: the timing fields of a fault."""


class RuleEnds(TypedDict):
    """The two ends of a link rule: the sender `on` and the receiver `to`."""

    on: str
    to: str


LinkAction = Literal["drop", "delay", "duplicate", "hold"]


FAILING_DISKS: Final = (
    "bit-flip",
    "torn-write",
    "disk-emptied",
    "fsync-error",
    "slow-fsync",
    "disk-full",
)
"""The kinds of disk faults of a schedule if none are requested: those that brokers notice."""


@dataclass
class ScenarioBuilder:
    """A schedule while it is drawn.

    All scenarios are about the same `partition`. `triggers` are events that the last scenario is
    expected to cause. `held` names the link rules that hold messages. `elections` counts the
    elections expected so far, `controllers` those of a new controller. `preferred` is the replica
    that leads without faults. `victim` is the broker that most scenarios of this schedule affect.
    `disk_faults` are the kinds of disk faults that it may have, `disk_victim` is the only broker
    whose disk may lose data. `starts` is when the first scenario begins, None to draw it."""

    choose: RandomChoices
    cluster: Cluster
    partition: str
    votes: bool
    now_ms: int = 0
    elections: int = 0
    crashes: int = 0
    controllers: int = 0
    preferred: str = "n1"
    victim: str = ""
    disk_victim: str = ""
    disk_faults: tuple[str, ...] = FAILING_DISKS
    triggers: list[After] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    starts: When | None = None

    @property
    def leader(self) -> str:
        """The current leader of the partition, as the target of a fault."""
        return f"leader:{self.partition}"

    @property
    def replicas(self) -> tuple[str, ...]:
        """The brokers that have the partition at the beginning."""
        return self.cluster.broker_names()[: self.cluster.replication_factor]

    def add(self, *faults: Fault) -> None:
        """Append faults to the schedule."""
        self.faults += faults

    def broker(self, but: str = "") -> str:
        """Draw a broker other than `but`: mostly the victim, seldom the first leader."""
        if self.victim and self.victim != but and self.choose.chance(60):
            return self.victim
        names = self.replicas if self.choose.chance(90) else self.cluster.broker_names()
        if not (self.votes or but or self.choose.chance(15)) and len(names) > 1:
            names = names[1:]
        chosen = self.choose.pick([name for name in names if name != but] or list(names))
        self.victim = self.victim or chosen
        return chosen

    # -- when

    def when(self, *, arming: bool = False) -> When:
        """Return when the next scenario begins: at an event that the last one causes, or some time
        later; with `arming`, for a fault with a later effect, often at the current time."""
        choose = self.choose
        if self.starts is not None:
            given, self.starts = self.starts, None
            return given
        if arming and choose.chance(50):
            return {"at_ms": self.now_ms}
        if self.triggers and choose.chance(60):
            after = choose.pick(self.triggers)
            return later({"after": after}, choose.pick((0, 0, 0, 0, 2, 10, 30, 70, 120, 250)))
        if choose.chance(15 if self.faults else 40):
            return {"after": self._any_event()}
        self.now_ms += choose.pick((5, 30, 80, 150, 300))
        self.now_ms = min(self.now_ms, LATEST_MS)
        return {"at_ms": self.now_ms}

    def _any_event(self) -> After:
        """Draw a trigger: the n-th event of a drawn kind, such as an append or a commit."""
        choose = self.choose
        events = ["append", "hw", "ack", "append", "hw"]
        if self.faults:  # without a fault, no replica votes, truncates or leaves the ISR
            events += ["vote", "vote"] if self.votes else ["isr", "proposed"]
            events.append("truncated")
        event = choose.pick(events)
        match: dict[str, Any] = {"partition": self.partition}
        if event in ("append", "hw"):
            match["role"] = choose.pick(("leader", "follower"))
        most = 6 if event in ("ack", "append", "hw") else 2
        delay_ms = choose.pick((0, 0, 1, 5, 30))
        return After(event=event, match=match, nth=choose.integer(1, most), delay_ms=delay_ms)

    def when_leading(self, delay_ms: int = 0) -> When:
        """Return when the winner of the last election leads, else the current time."""
        if not self.elections:
            return later({"at_ms": self.now_ms}, delay_ms)
        match = {"partition": self.partition, "role": "leader"}
        after = After(event="role", match=match, nth=self.elections, delay_ms=delay_ms)
        return {"after": after}

    def span_ms(self, *percents: int) -> int:
        """Return one of `percents` of the timeout after which a failure is noticed."""
        timings = self.cluster.timings
        timeout = (
            timings.election_max_ms
            if self.votes
            else self.choose.pick((timings.session_ms, min(timings.lag_ms, timings.session_ms)))
        )
        return timeout * self.choose.pick(percents) // 100

    def voters_ms(self, *percents: int) -> int:
        """Return one of `percents` of the longest time until a voter stands for election."""
        return self.cluster.timings.election_max_ms * self.choose.pick(percents) // 100

    def of_partition(self, kind: str) -> dict[str, Any]:
        """Return the fields that match messages of this kind about the partition."""
        named = "partition" in MESSAGE_FIELDS[kind]
        return {"partition": self.partition} if named else {}

    def advance(self, ms: int) -> None:
        """Move the current time on by the time after which a scenario takes effect."""
        self.now_ms = min(self.now_ms + min(ms, 600), LATEST_MS)

    # -- what a scenario is expected to cause

    def expect_election(self) -> None:
        """Note that the last fault usually causes an election, which gives the next triggers."""
        self.elections += 1
        timings = self.cluster.timings
        self.advance(timings.election_max_ms if self.votes else timings.session_ms)
        at, nth, choose = self.partition, self.elections, self.choose
        leads = After(event="role", match={"partition": at, "role": "leader"}, nth=nth)
        writes = {"partition": at, "leader_epoch": {"at_least": nth + 1}}
        self.triggers = [
            leads,
            leads,
            leads,
            After(event="append", match={**writes, "role": "leader"}, nth=choose.integer(1, 2)),
            After(event="hw", match=writes, nth=choose.integer(1, 2)),
            After(event="partition", match={"partition": at}, nth=choose.integer(1, 3)),
            After(event="truncated", match={"partition": at}, nth=choose.integer(1, 2)),
            After(event="diverging", match={"partition": at}),
        ]

    def expect_isr_change(self) -> None:
        """Note that the last fault usually changes the in-sync set: the next triggers."""
        self.advance(self.cluster.timings.lag_ms)
        match, choose = {"partition": self.partition}, self.choose
        self.triggers = [
            After(event=event, match=match, nth=choose.integer(1, 3))
            for event in ("proposed", "partition", "isr")
        ]
        if choose.chance(30):
            self.triggers.append(
                After(event="append", match={**match, "role": "leader"}, nth=choose.integer(1, 4))
            )

    # -- link rules that several scenarios use

    def late_responses(self, to: str, when: When) -> Link:
        """Draw a rule that delays or doubles one or two fetch responses to a follower."""
        choose = self.choose
        actions: tuple[LinkAction, ...] = ("hold", "duplicate", "delay")
        action = choose.pick(actions)
        return Link(
            on="rest",
            to=to,
            action=action,
            kinds=("fetch-response",),
            match={"partition": self.partition, **(DIVERGING if choose.chance(50) else {})},
            delay_ms=0 if action == "hold" else choose.pick((100, 200, 400)),
            limit=choose.pick((1, 2)),
            for_ms=self.span_ms(130, 250, 400, 600),
            **when,
        )

    def drop_responses(self, on: str, to: str, span: int, when: When) -> Link:
        """Draw a rule that loses a leader's responses to followers, or makes them late."""
        return Link(
            on=on,
            to=to,
            action=self.choose.pick(("drop", "hold")),
            kinds=("fetch-response", "offset-for-leader-epoch-response"),
            match={"partition": self.partition},
            for_ms=span,
            **when,
        )

    def nobody_writes(self, span: int, when: When) -> None:
        """Add, mostly, a rule that drops produce requests for a while: logs do not grow."""
        if self.choose.chance(65):
            rule = Link(
                on="clients", to="all", action="drop", kinds=("produce",), for_ms=span, **when
            )
            self.add(rule)

    def slow_controller(self, when: When, *, across_restart: bool = False) -> Link:
        """Draw a rule by which requests of the leader to the controller, or answers, are late or
        lost; `across_restart`: most arrive after the process that sent them was replaced."""
        choose = self.choose
        asks = choose.chance(80 if across_restart else 60)
        actions: tuple[LinkAction, ...] = ("hold", "drop", "drop", "delay", "duplicate")
        held = across_restart and choose.chance(70)
        action: LinkAction = "hold" if held else choose.pick(actions)
        percents = (300, 200, 400) if across_restart else (200, 130, 300, 400, 60)
        return Link(
            **direction(self.leader, "voters", sends=asks),
            action=action,
            kinds=("alter-partition",) if asks else ("alter-partition-response", "fetch-response"),
            delay_ms=choose.pick((100, 200)) if action in ("delay", "duplicate") else 0,
            for_ms=self.span_ms(*percents),
            **when,
        )

    def late_metadata(self, on: str, span: int, when: When, *, name: str = "") -> Link:
        """Draw a rule by which metadata records reach a healthy broker late or never. Without any
        for a session it is fenced; with late ones it applies each change after the others."""
        actions: tuple[LinkAction, ...] = ("delay", "delay", "drop", "hold")
        action: LinkAction = "hold" if name else self.choose.pick(actions)
        session_ms = self.cluster.timings.session_ms
        delay_ms = self.choose.pick((session_ms * 80 // 100, session_ms * 40 // 100, 50))
        return Link(
            name=name,
            on="voters",
            to=on,
            action=action,
            kinds=("fetch-response",),
            match={"partition": METADATA_PARTITION},
            for_ms=span,
            delay_ms=delay_ms if action == "delay" else 0,
            **when,
        )


def direction(one: str, other: str, *, sends: bool) -> RuleEnds:
    """Return sender and receiver of a link rule, from `one` to `other` if `sends`."""
    return {"on": one, "to": other} if sends else {"on": other, "to": one}


def process_of(node: str, number: int) -> dict[str, Any]:
    """Return the fields that match events of process `number` of the node, and later ones."""
    return {"node": node, "incarnation": {"at_least": number}}


def later(when: When, delay_ms: int) -> When:
    """Return the time or trigger `when`, later by `delay_ms`."""
    if "at_ms" in when:
        return {"at_ms": when["at_ms"] + delay_ms}
    after: After = when["after"]
    return {
        "after": After(
            event=after.event, match=after.match, nth=after.nth, delay_ms=after.delay_ms + delay_ms
        )
    }
