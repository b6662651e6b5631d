"""Faults of messages on some links: delay, loss, and link (one link rule as written)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final, Literal

import msgspec

from nemesis.faults.dice import Dice, Spot, side_of
from nemesis.faults.kind import ONE_NODE, Consequence, Drawing
from nemesis.faults.link_fault import BetweenNodes
from nemesis.faults.words import target, wanted
from nemesis.formats.cluster_spec import AtLeastOne, Cluster, Milliseconds, Workload, wrong_match
from nemesis.formats.fault import Fault, Percent
from node.core import protocol as protocols
from node.core.protocol import Commit, Detection, LeaderBy, Truncation
from node.formats import trace
from node.formats.messages import MESSAGE_FIELDS, MESSAGE_KINDS

_TARGETS: Final = (("leader:p", 3), *ONE_NODE[1:], ("minority", 1), ("all", 2), ("controller", 1))


class _Messages(BetweenNodes, frozen=True, kw_only=True):
    """A fault of messages from `on` to `to`, with `two_way` also of those back; if `kinds` are
    given, only of these."""

    two_way: bool = True
    kinds: tuple[str, ...] = ()

    colour = "#8a4fb0"
    pattern = "dots"
    consequences = frozenset({Consequence.ISR_CHANGE})

    def link(self) -> str:
        """Return the links as a phrase: `between n1 and n2`, `from n1 to n2`."""
        if self.two_way:
            return f"between {target(self.on)} and {target(self.to)}"
        return f"from {target(self.on)} to {target(self.to)}"

    def only(self) -> str:
        """Return the kinds of messages as a phrase: ` (fetch only)`; "" if it is all."""
        return f" ({', '.join(self.kinds)} only)" if self.kinds else ""


class Delay(_Messages, frozen=True, kw_only=True, tag="delay"):
    """Messages from `on` to `to` are delayed by `delay_ms` +- `jitter_ms`; order within a link is
    kept."""

    delay_ms: Milliseconds
    jitter_ms: Milliseconds = 0

    action = "delay"
    letter = "D"
    drawing = Drawing(targets=_TARGETS)

    @classmethod
    def draw_fields(cls, dice: Dice, on: str) -> dict[str, Any]:
        """Draw a short delay, a long one, or about the lag timeout."""
        ranges = (((5, 50), 3.0), ((100, 300), 3.0), ((0.5, 1.2), 2.0))
        low, high = dice.weighted(ranges)
        unit = dice.timings.lag_ms if high < 2 else 1
        delay_ms = dice.between(low * unit, high * unit)
        jitter_ms = dice.rng.choice((0, delay_ms // 4, delay_ms))
        drawn = super().draw_fields(dice, on) | {"delay_ms": delay_ms, "jitter_ms": jitter_ms}
        return drawn | {"kinds": draw_kinds(dice, on, drawn["to"], 0.25)}

    def words(self) -> str:
        jitter = f" ± {self.jitter_ms} ms" if self.jitter_ms else ""
        return f"Delay messages {self.link()} by {self.delay_ms} ms{jitter}{self.only()}"


class Loss(_Messages, frozen=True, kw_only=True, tag="loss"):
    """`percent` of the messages from `on` to `to` are lost (with `kinds` only of these kinds)."""

    percent: Percent

    action = "drop"
    chooses_messages = True
    letter = "L"
    drawing = Drawing(targets=_TARGETS, delays_follower=(4, 5))

    @classmethod
    def draw_fields(cls, dice: Dice, on: str) -> dict[str, Any]:
        """Draw the loss of a small part of all messages, or of most messages of some kinds."""
        drawn = super().draw_fields(dice, on)
        kinds = draw_kinds(dice, on, drawn["to"], 0.4)
        percent = dice.rng.choice((50, 80, 100) if kinds else (5, 10, 20, 40, 60))
        return drawn | {"percent": percent, "kinds": kinds}

    @classmethod
    def draw_on_follower(cls, dice: Dice, partition: str, at_ms: int, for_ms: int) -> Loss:
        """Return the loss of all replication messages between a follower and its leader: other
        nodes still hear the follower."""
        return Loss(
            on=f"follower:{partition}",
            to=f"leader:{partition}",
            percent=100,
            kinds=tuple(kind for (kind, *_), _ in routes(dice, "n") if kind in _REPLICATION),
            at_ms=at_ms,
            for_ms=for_ms,
        )

    def words(self) -> str:
        return f"Lose {self.percent} % of messages {self.link()}{self.only()}"


_ROUTES: Final[tuple[tuple[str, str, str, float], ...]] = (
    *(("fetch-response", "n", "n", 8), ("fetch", "n", "n", 4)),
    *(("append-entries", "n", "n", 8), ("append-entries-response", "n", "n", 4)),
    *(("offset-for-leader-epoch-response", "n", "n", 2), ("offset-for-leader-epoch", "n", "n", 1)),
    *(("vote", "n", "n", 3), ("vote-response", "n", "n", 3), ("begin-epoch", "n", "n", 1)),
    *(("alter-partition", "n", "v", 5), ("alter-partition-response", "v", "n", 4)),
    *(("heartbeat", "n", "v", 2), ("heartbeat-response", "v", "n", 2)),
    *(("register", "n", "v", 2), ("register-response", "v", "n", 2)),
    *(("fetch", "n", "v", 2), ("fetch-response", "v", "n", 5), ("report-leader", "n", "v", 1)),
    *(("log-info", "v", "n", 0.1), ("log-info-response", "n", "v", 0.1)),
    *(("fetch-response", "v", "v", 3), ("fetch", "v", "v", 2)),
    *(("vote", "v", "v", 2), ("vote-response", "v", "v", 2), ("begin-epoch", "v", "v", 1)),
    *(("produce", "c", "n", 5), ("produce-response", "n", "c", 5)),
    *(("fetch", "c", "n", 1), ("fetch-response", "n", "c", 1)),
    *(("metadata", "c", "n", 0.5), ("metadata-response", "n", "c", 0.5)),
    *(("group-heartbeat", "c", "n", 2), ("offset-commit", "c", "n", 3)),
    *(("offset-fetch", "c", "n", 2), ("group-response", "n", "c", 4)),
)
"""The kinds of messages that pass from nodes of one kind to nodes of another (brokers, voters,
clients), with the weights with which a composed schedule chooses them."""
_ASKS: Final = (Truncation.EPOCH_END_V0, Truncation.EPOCH_END_V1_LOWEST, Truncation.EPOCH_OFFSET)
_REPLICATION: Final = (*("fetch", "fetch-response", "append-entries", "append-entries-response"),)
_OF_METADATA: Final = ("fetch", "fetch-response", "vote", "vote-response", "begin-epoch")
_OF_GROUPS: Final = ("group-heartbeat", "offset-commit", "offset-fetch", "group-response")
_BY_LEADER: Final = (
    *("fetch-response", "offset-for-leader-epoch-response", "begin-epoch", "append-entries"),
)
_DELAYS: Final = (0.05, 0.2, 0.4, 0.8, 1.3)
"""Factors of the session by which messages are late."""


class Link(_Messages, frozen=True, kw_only=True, tag="link"):
    """One link rule as written: `action` on the messages from `on` to `to` that match.

    `kinds` and `match` narrow it to kinds of messages and to header fields (bounds as in `After`).
    Of the messages that match, `percent` are acted on, at most `limit` in each direction."""

    action: Literal["drop", "delay", "duplicate", "hold"]
    two_way: bool = False
    match: dict[str, Any] = msgspec.field(default_factory=dict)
    percent: Percent = 100
    delay_ms: Milliseconds = 0
    jitter_ms: Milliseconds = 0
    limit: AtLeastOne | None = None

    chooses_messages = True
    letter = "M"
    drawing = "it says exactly what happens to which message, which takes a scenario"

    @classmethod
    def compose(cls, spot: Spot) -> Fault:
        """Draw a rule about one kind of messages between the two ends of a spot, or about all
        requests or all answers."""
        dice = spot.dice
        ends = (spot.on, spot.other if spot.other != spot.on else "rest")
        sides = {side_of(end) for end in ends}
        route = routes(dice, sides)
        kind, sender, _ = dice.weighted(route)
        on, to = sorted(ends, key=lambda end: _order(end, kind, sender, dice))
        if on == "rest":  # only the receiving end may be called that
            on = "all"
        match: dict[str, Any] = {}
        if "partition" in MESSAGE_FIELDS[kind]:
            metadata = "v" in sides and kind in _OF_METADATA
            match["partition"] = trace.METADATA_PARTITION if metadata else spot.partition
        if kind in _OF_GROUPS:
            match["partition"] = trace.GROUPS_PARTITION
        if kind == "fetch-response" and sides == {"n"} and dice.chance(0.3):
            match["diverging"] = {"given": True}
        if "pre" in MESSAGE_FIELDS[kind] and dice.chance(0.5):
            match["pre"] = False
        # A request that the network doubles is two requests, unless its producer is idempotent.
        doubles = 2 if kind != "produce" or dice.idempotent else 0
        action: Literal["drop", "delay", "duplicate", "hold"] = dice.weighted(
            (("drop", 3), ("hold", 3), ("delay", 2), ("duplicate", doubles))
        )
        late = action in ("delay", "duplicate")
        kinds: tuple[str, ...] = (kind,)
        if "c" not in sides and match.keys() <= {"partition"} and dice.chance(0.3):
            answer = _is_answer(kind)
            kinds = tuple(other for (other, *_), _ in route if _is_answer(other) is answer)
            match = match if "v" not in sides else {}
        session_ms = dice.timings.session_ms
        return cls(
            on=on,
            to=to,
            action=action,
            kinds=kinds,
            match=match,
            delay_ms=round(dice.rng.choice(_DELAYS) * session_ms) if late else 0,
            limit=dice.weighted(((None, 3), (1, 2), (2, 1)) if late else ((None, 6), (1, 1))),
            for_ms=max(spot.for_ms, session_ms // 4),
            at_ms=0,
        )

    def problems(self, cluster: Cluster, workload: Workload) -> Iterator[str]:
        yield from super().problems(cluster, workload)
        kinds = self.kinds or MESSAGE_KINDS
        known = {field for kind in kinds for field in MESSAGE_FIELDS.get(kind, ())}
        known |= {"kind", "body_bytes"}
        if unknown := sorted(self.match.keys() - known):
            of = f" of kind {', '.join(self.kinds)}" if self.kinds else ""
            yield f"match: no message{of} has a field '{unknown[0]}' (known: {sorted(known)})"
        yield from wrong_match(self.match)
        if self.action in ("drop", "hold") and (self.delay_ms or self.jitter_ms):
            yield f"a {self.action} takes no delay_ms or jitter_ms"

    def words(self) -> str:
        """Return the fault as a sentence: `Drop fetch-response messages from n1 to n2 with hw at
        least 50`."""
        which = " ".join(filter(None, (", ".join(self.kinds), "messages", self.link())))
        share = f"{self.percent} % of " if self.percent < 100 else ""
        most = f"at most {self.limit} " if self.limit is not None else ""
        fields = " and ".join(f"{name} {wanted(value)}" for name, value in self.match.items())
        late = f" by {self.delay_ms} ms" if self.delay_ms else ""
        late += f" ± {self.jitter_ms} ms" if self.jitter_ms else ""
        matching = f" with {fields}" if fields else ""
        return f"{self.action.capitalize()} {share}{most}{which}{matching}{late}"


def routes(dice: Dice, sides: Collection[str]) -> list[tuple[tuple[str, str, str], float]]:
    """Return the kinds of messages between nodes of these kinds, each with its sender and receiver,
    and their weights."""
    return [
        ((kind, sender, receiver), weight)
        for kind, sender, receiver, weight in _ROUTES
        if {sender, receiver} == {*sides} and _is_sent(kind, dice, sides)
    ]


def draw_kinds(dice: Dice, on: str, to: str, probability: float) -> tuple[str, ...]:
    """Draw, with this probability, a kind of the messages that pass between two nodes; else () for
    all. Links that see no messages always get (), after the same draws."""
    kinds = [kind for (kind, *_), _ in routes(dice, {side_of(on), side_of(to)})]
    drawn = (dice.rng.choice(kinds),) if dice.chance(probability) else ()
    return drawn if dice.links.messages else ()


def _is_sent(kind: str, dice: Dice, sides: Collection[str]) -> bool:
    """Return whether messages of a kind pass between nodes of these kinds."""
    # Nobody sees the messages of another system: any rules do for a draw that counts for nothing.
    protocol = "" if {*sides} == {"v"} else dice.protocol
    rules = protocols.REGISTRY.get(protocol, protocols.METADATA_PROTOCOL)
    match kind.removesuffix("-response"):
        case "fetch":
            return not (rules.pushes and {*sides} == {"n"})
        case "append-entries":
            return rules.pushes
        case "offset-for-leader-epoch":
            return rules.truncation in _ASKS
        case "vote" | "begin-epoch":
            return rules.leader_by is LeaderBy.VOTES
        case "alter-partition":
            return rules.commit is Commit.ISR
        case "log-info":
            return rules.elr
        case "report-leader":
            return rules.detection is Detection.LEADER_REPORTS
    return kind not in _OF_GROUPS or dice.with_members


def _is_answer(kind: str) -> bool:
    return kind.endswith("-response")


def _order(end: str, kind: str, sender: str, dice: Dice) -> float:
    """Return the sort key of an end of a link, by which the sender of a message comes first: of two
    brokers the leader sends some kinds, and gets others."""
    if side_of(end) != sender:
        return 2
    role = end.partition(":")[0]
    leads = 1 if role == "leader" else -1 if role in ("follower", "followers", "lagging") else 0
    return dice.rng.random() - 2 * (leads if kind in _BY_LEADER else -leads)
