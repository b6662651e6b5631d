"""The phrases of the grammar, and the drawing of a whole schedule.

    schedule = phrase+
    phrase   = atom | THEN | DURING | REPEAT | STALE | ONLY

An atom is one fault. THEN: a phrase and another at an event that it causes. DURING: a phrase while
a long fault is in force. REPEAT: one kind of fault on one role again and again, each time at the
same event since the last. STALE: messages of one kind are held, a phrase follows, and they arrive.
ONLY: all nodes but a few are down."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final, Literal

from msgspec.structs import replace

from harness.search.grammar.composition import Composition
from harness.search.grammar.conditions import draw_conditions
from harness.search.grammar.weights import Choices
from nemesis.faults import KINDS, Link, Release
from nemesis.faults.dice import Dice
from nemesis.formats.schedule import Schedule, Workload
from node.core.protocol import LeaderBy
from node.core.protocol import protocol as protocol_of
from node.formats.trace import GROUPS_PARTITION

MOST_PHRASES: Final = 9
_GOES_ON_PERCENT: Final = 82
"""How often a further phrase follows."""
_DEEPEST: Final = 2
_LEADER_PERCENT: Final = 60
"""How often it is the leader that fails again and again."""
_AGAIN_PERCENT: Final = 20
"""How often something else follows before the first one ends."""
_REFUSED_PERCENT: Final = 5
"""How often replicas that vote are asked for what only a controller can do."""
_GROUPS_PERCENT: Final = 70
"""How often faults are about the partition of groups, if there are members."""
_DOWN: Final = ("kill", "stop", "power-cut")

Phrase = Callable[[Composition, int], None]


def atom(d: Composition, depth: int) -> None:
    """Add one fault."""
    d.atom(d.kind())


def then(d: Composition, depth: int) -> None:
    """Add a phrase, and another that its effect begins."""
    phrase(d, depth + 1)
    phrase(d, depth + 1)


def during(d: Composition, depth: int) -> None:
    """Add a phrase while a fault lasts that ends after it."""
    first = d.atom(d.kind(lambda kind: kind.lasts))
    if first is None:
        return
    at = len(d.faults) - 1
    match d.choose.of("inner"):
        case "leader":
            d.atom(d.ends_leader(), f"leader:{d.partition}", **d.meanwhile(at))
        case "order":
            d.atom(d.kind(lambda kind: kind.by_controller))
        case _:
            phrase(d, depth + 1)
    if d.choose.chance(_AGAIN_PERCENT):
        phrase(d, depth + 1)
    if first.for_ms is not None and d.choose.chance(40):
        longer = first.for_ms + sum(fault.for_ms or 20 for fault in d.faults[at + 1 :])
        d.faults[at] = replace(d.faults[at], for_ms=min(longer, 800))


def repeat(d: Composition, depth: int) -> None:
    """Add the same kind of fault several times, at the same event since the last one."""
    kind, on = d.kind(), d.who()
    if d.choose.chance(_LEADER_PERCENT):
        kind, on = d.ends_leader(), f"leader:{d.partition}"
    first = d.atom(kind, on)
    if first is None:
        return
    event = d.event(len(d.faults) - 1)
    for _ in range(d.choose.rng.choice((1, 2, 3))):
        d.atom(kind, on, **d.since(event, d.choose.number("delay")))


def stale(d: Composition, depth: int) -> None:
    """Add a phrase, mostly about one node, during which messages of that node are under way; they
    arrive after it, or twice."""
    rule = d.atom(Link)
    if not isinstance(rule, Link):
        return
    at = len(d.faults) - 1
    name, for_ms = rule.name or f"held-{at}", max(rule.for_ms or 0, 900)
    late = d.choose.of("late", *(("duplicate",) if "produce" in rule.kinds else ()))
    if late == "hold":
        rule = replace(rule, action="hold", delay_ms=0, jitter_ms=0, limit=None)
    else:
        action: Literal["delay", "duplicate"] = "delay" if late == "delay" else "duplicate"
        rule = replace(rule, action=action, delay_ms=max(rule.delay_ms, d.lasts("late by")))
    d.faults[at] = replace(rule, name=name, for_ms=for_ms)
    d.focus = rule.on if rule.on in d.brokers else rule.to if rule.to in d.brokers else ""
    phrase(d, depth + 1)
    d.focus = ""
    if late == "hold" and not d.full:
        d.faults[at] = replace(d.faults[at], for_ms=None)
        d.add(Release(of=name, **d.moment()))


def only(d: Composition, depth: int) -> None:
    """Add the end of all brokers but one or two, for a while."""
    alone = {d.broker()} | ({d.broker()} if d.choose.chance(30) else set())
    others = ",".join(name for name in d.cluster.broker_names() if name not in alone)
    if others:
        kinds = [kind for kind in _DOWN if kind in d.kinds] or ["kill"]
        d.atom(KINDS[d.choose.rng.choice(kinds)], others)


_PHRASES: Final[Mapping[str, Phrase]] = {
    "atom": atom,
    "then": then,
    "during": during,
    "repeat": repeat,
    "stale": stale,
    "only": only,
}


def phrase(d: Composition, depth: int) -> None:
    """Add a drawn phrase; inner ones are plainer."""
    inner = ("then", "during", "stale") if depth >= _DEEPEST else ()
    without = (*inner, *(("stale",) if "link" not in d.kinds else ()))
    _PHRASES[d.choose.of("phrase", *without)](d, depth)


def simulated_kinds(*, by_controller: bool) -> list[str]:
    """Return the kinds that a simulated cluster can take; `release` belongs to a phrase."""
    return [
        name
        for name, kind in KINDS.items()
        if kind.simulated and kind is not Release and (by_controller or not kind.by_controller)
    ]


def compose(
    rng: random.Random,
    protocol: str,
    bugs: tuple[str, ...] = (),
    faults: tuple[str, ...] = (),
    always: tuple[str, ...] = (),
) -> Schedule:
    """Draw one schedule for `protocol` with `bugs` turned on. It may have faults of the kinds
    `faults`, and has the options of the workload in `always`."""
    choose = Choices(rng)
    votes = protocol_of(protocol).leader_by is LeaderBy.VOTES
    possible = simulated_kinds(by_controller=not votes or choose.chance(_REFUSED_PERCENT))
    kinds = choose.some("kind", possible, choose.number("kinds"))
    kinds = tuple(dict.fromkeys((*kinds, *faults)))
    cluster, workload = draw_conditions(choose, protocol, bugs, kinds, always)
    if workload.idempotent:
        kinds = tuple(dict.fromkeys((*kinds, "link")))
    names = list(cluster.broker_names())
    if choose.chance(30):
        rng.shuffle(names)
    of_groups = workload.members > 0 and choose.chance(_GROUPS_PERCENT)
    drawing = Composition(
        choose=choose,
        cluster=cluster,
        dice=Dice(cluster, workload, rng),
        kinds=kinds,
        partition=GROUPS_PARTITION if of_groups else rng.choice(cluster.partition_names()),
        brokers=tuple(names),
        votes=votes,
    )
    drawing.bind(workload)
    for number in range(MOST_PHRASES):
        if drawing.full or (number and not choose.chance(_GOES_ON_PERCENT)):
            break
        phrase(drawing, 0)
    return Schedule(
        cluster=cluster, workload=_lasting(drawing, workload), faults=tuple(drawing.faults)
    )


def _lasting(drawing: Composition, workload: Workload) -> Workload:
    """Return the workload, as long as the faults need; a member needs some time to take part."""
    tail_ms = drawing.choose.rng.choice((300, 500, 800)) * (2 if workload.members else 1)
    last_ms = max([drawing.now_ms, *drawing.times_ms])
    return replace(workload, duration_ms=min(3500, last_ms + tail_ms))
