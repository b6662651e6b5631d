"""Faults of messages on some links: delay, loss, and link (one link rule as written)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from nemesis.faults.dice import Dice, Spot
from nemesis.faults.kind import ONE_NODE, Consequence, Drawing
from nemesis.faults.link_fault import BetweenNodes, draw_kinds, draw_other_end
from nemesis.faults.words import target, wanted
from nemesis.formats.cluster_spec import AtLeastOne, Cluster, Milliseconds, Workload, wrong_match
from nemesis.formats.fault import Fault, Percent
from node.core.protocol import REGISTRY
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
        to = draw_other_end(dice, on)
        return {
            "to": to,
            "delay_ms": delay_ms,
            "jitter_ms": dice.rng.choice((0, delay_ms // 4, delay_ms)),
            "two_way": dice.chance(0.6),
            "kinds": draw_kinds(dice, to, 0.25),
        }

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
        to = draw_other_end(dice, on)
        kinds = draw_kinds(dice, to, 0.4)
        percent = dice.rng.choice((50, 80, 100) if kinds else (5, 10, 20, 40, 60))
        return {"to": to, "percent": percent, "two_way": dice.chance(0.6), "kinds": kinds}

    @classmethod
    def draw_on_follower(cls, dice: Dice, partition: str, at_ms: int, for_ms: int) -> Loss:
        """Return the loss of all replication messages between a follower and its leader: other
        nodes still hear the follower."""
        return Loss(
            on=f"follower:{partition}",
            to=f"leader:{partition}",
            percent=100,
            kinds=("fetch", "fetch-response"),
            at_ms=at_ms,
            for_ms=for_ms,
        )

    def words(self) -> str:
        return f"Lose {self.percent} % of messages {self.link()}{self.only()}"


_ROUTES: Final[Mapping[tuple[str, str], tuple[tuple[str, float], ...]]] = {
    ("n", "n"): (
        *(("fetch-response", 8), ("fetch", 4), ("offset-for-leader-epoch-response", 2)),
        *(("offset-for-leader-epoch", 1), ("vote", 3), ("vote-response", 3), ("begin-epoch", 1)),
    ),
    ("n", "v"): (
        *(("alter-partition", 5), ("heartbeat", 2), ("register", 2), ("fetch", 2)),
        *(("report-leader", 1), ("log-info-response", 0.5)),
    ),
    ("v", "n"): (
        *(("fetch-response", 5), ("alter-partition-response", 4), ("heartbeat-response", 2)),
        *(("register-response", 2), ("log-info", 0.5)),
    ),
    ("v", "v"): (("fetch-response", 3), ("fetch", 2), ("vote", 2), ("vote-response", 2)),
    ("c", "n"): (("produce", 5), ("fetch", 1), ("metadata", 0.5)),
    ("n", "c"): (("produce-response", 5), ("fetch-response", 1), ("metadata-response", 0.5)),
}
"""The kinds of messages that pass from one kind of node to another (brokers, voters, clients), with
the weights with which a composed schedule chooses them."""
_OF_VOTES: Final = ("vote", "vote-response", "begin-epoch")
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
        on, to = ends if dice.chance(0.5) else ends[::-1]
        if on == "rest":  # only the receiving end may be called that
            on = "all"
        sides = (_side(on), _side(to))
        route = _ROUTES.get(sides, _ROUTES["n", "n"])
        sent = [
            (kind, weight * (0.1 if kind in _OF_VOTES and not spot.votes else 1))
            for kind, weight in route
        ]
        kind = dice.weighted(sent)
        match: dict[str, Any] = {}
        if "partition" in MESSAGE_FIELDS[kind]:
            metadata = "v" in sides and kind in ("fetch", "fetch-response", "vote", "vote-response")
            match["partition"] = trace.METADATA_PARTITION if metadata else spot.partition
        if kind == "fetch-response" and sides == ("n", "n") and dice.chance(0.3):
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
            kinds = tuple(other for other, _ in route if _is_answer(other) is answer)
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


_PUSHED: Final = {
    "fetch-response": "append-entries",
    "fetch": "append-entries-response",
    "begin-epoch": "append-entries",
}


def for_protocol(fault: Fault, protocol: str) -> Fault:
    """Return a drawn fault for a protocol: where leaders push, a rule about fetches of followers is
    about the messages that do their work."""
    rules = REGISTRY.get(protocol)
    of_clients = isinstance(fault, _Messages) and "c" in (_side(fault.on), _side(fault.to))
    if rules is None or not rules.pushes or not isinstance(fault, _Messages) or of_clients:
        return fault
    kinds = tuple(dict.fromkeys(_PUSHED.get(kind, kind) for kind in fault.kinds))
    if not isinstance(fault, Link):
        return replace(fault, kinds=kinds)
    known = {field for kind in kinds or MESSAGE_KINDS for field in MESSAGE_FIELDS[kind]}
    match = {name: value for name, value in fault.match.items() if name in known}
    return replace(fault, kinds=kinds, match=match)


def _is_answer(kind: str) -> bool:
    return kind.endswith("-response")


def _side(target: str) -> str:
    """Return which kind of nodes a target names: "n" brokers, "v" voters, "c" clients."""
    if target in ("controller", "voters"):
        return "v"
    return "c" if target == "clients" else target[0] if target[0] in "vc" else "n"
