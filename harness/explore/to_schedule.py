"""A counterexample as a schedule of the simulated world, and the proof that it fails there.

Each step of the path gets an estimated time. Each action becomes a fault or an operation that is
triggered by the last trace event before it. If the first such schedule does not fail, others are
tried in which one or two actions come a little earlier or later. The result is deterministic."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from harness.clients.producer import ATTEMPTS
from harness.explore.bounds import Bounds
from harness.explore.explorer import Counterexample
from harness.explore.model import CLIENT, PARTITION, Model, NodeStep
from harness.explore.node_model import NodeTurn
from harness.explore.waits import Action
from harness.search.worlds.attempt import Attempt, attempt
from harness.sim.run import simulate
from nemesis.faults import (
    Break,
    Cut,
    Delay,
    ElectPreferred,
    Kill,
    Link,
    PowerCut,
    Reassign,
    Release,
    Restart,
)
from nemesis.formats.schedule import (
    After,
    Expectation,
    Fault,
    Operation,
    Poll,
    Schedule,
    Send,
    Workload,
)
from node.formats import trace, wire
from node.formats.trace import METADATA_PARTITION

MOST_RUNS: Final = 120
"""The largest number of simulated runs for one counterexample."""
SEEDS: Final = 12
MESSAGE_MS: Final = 0.3
"""The time of a message from one node of the simulated world to another."""
SLOW_MS: Final = 10
"""The extra time of messages between nodes if clients and faults must act between two of them."""
_CLOSING_MS: Final = 2500
"""The time for which the storm continues after the last step."""
_TIMEOUT_MS: Final = 1500
"""The time for which a client tries to send a record."""
_HELD_MS: Final = 600
"""The time after which a leader has answered each fetch that it held."""
_COPY_MS: Final = 700
"""The time after which a second copy of a message arrives by itself."""
_WAIT_MS: Final = {
    "fetch": 60,
    "alter": 100,
    "announce": 100,
    "recovery": 100,
    "wait": 100,
    "heartbeat": 200,
    "patience": 500,
    "checkpoint": 500,
    "flush": 1000,
    "election": 450,
    "majority": 900,
    "lag": 1000,
    "session": 1500,
    "silence": 1500,
    "reports": 1500,
}
"""The usual length of each wait with the timings of a schedule, if nothing happens before."""
_ANCHORS: Final[dict[str, tuple[str, ...]]] = {
    trace.ROLE: ("node", "partition", "role", "leader_epoch"),
    trace.TRUNCATED: ("node", "partition", "leo"),
    trace.STARTED: ("node", "incarnation"),
    trace.REGISTERED: ("node", "incarnation"),
    trace.ISR: ("node", "partition", "isr"),
    trace.PROPOSED: ("node", "partition", "isr"),
    trace.APPEND: ("node", "partition", "role", "leo"),
    trace.HW: ("node", "partition", "role", "hw"),
    trace.ACK: ("node", "partition", "leo"),
    trace.PARTITION: ("partition", "leader", "leader_epoch", "isr"),
    trace.DIVERGING: ("node", "partition", "follower"),
}
"""Events that actions can wait for, and the fields that tell them apart."""
_OTHER_MS: Final = (0, 1, 4, 30, 70, 130, 260, 560, 1100, 1700)
"""Delays after an event that are tried instead of the estimated one."""
_PLAIN: Final = (int, str, bool)
_TOLD_APART: Final = (
    *("offset", "last_epoch", "leader_epoch", "request_epoch", "hw", "error", "replica", "asked"),
    *("log_end", "end_offset", "epoch", "term", "granted", "pre", "broker"),
)
"""Header fields that identify a message; their values are numbers of a data partition."""


class _Anchor(NamedTuple):
    after: After
    ms: float


class _Due(NamedTuple):
    """An action, its estimated time in ms, and possible triggers before it, latest first."""

    action: Action
    anchors: tuple[_Anchor, ...]
    ms: float
    extra: Any = None


class _Held(NamedTuple):
    """A pair of nodes that is cut, or a message that is held, and the name of the fault."""

    what: Any
    fault: str


class Confirmed(NamedTuple):
    """A schedule that fails in the simulated world, and does not fail without the bugs that were
    explored. `runs` is the number of runs until it was found."""

    schedule: Schedule
    attempt: Attempt
    runs: int


def confirm(
    model: Model, counterexample: Counterexample, *, breaks: str = "", runs: int = MOST_RUNS
) -> Confirmed | None:
    """Return a schedule made of the counterexample that fails in the simulated world, None if none
    is found within `runs` runs. A schedule that breaks the property `breaks` is preferred."""
    spent = 0
    other: Confirmed | None = None
    for schedule in schedules(model, counterexample, runs):
        spent += 1
        tried = attempt(schedule, about=breaks)
        wanted = not breaks or breaks in tried.broken
        if not tried.failed or (other is not None and not wanted):
            continue
        if model.bounds.bugs and _fails_without_bugs(schedule):
            continue
        expected = Expectation(verdict="invalid", property=tried.property)
        made = Confirmed(replace(schedule, expectation=expected), tried, spent)
        if wanted:
            return made
        other = made
    return other


def _fails_without_bugs(schedule: Schedule) -> bool:
    return attempt(replace(schedule, cluster=replace(schedule.cluster, bugs=()))).failed


def schedules(model: Model, counterexample: Counterexample, most: int) -> Iterator[Schedule]:
    """Yield up to `most` schedules that may follow the path of a counterexample, the likeliest
    first; alternately with messages of the usual speed and with slow ones."""
    seed = _seed_of(model.bounds)
    made = [_variants(model, counterexample, slow_ms, seed, most // 2) for slow_ms in (0, SLOW_MS)]
    for pair in itertools.zip_longest(*made):
        yield from (schedule for schedule in pair if schedule is not None)


def _variants(
    model: Model, counterexample: Counterexample, slow_ms: int, seed: int, most: int
) -> Iterator[Schedule]:
    """Yield schedules in which some actions come earlier or later than estimated."""
    due, end_ms = _timeline(model, counterexample.actions, MESSAGE_MS + slow_ms)
    plain = [0] * len(due)
    dice = random.Random(1)
    choices = [len(_when(each)) for each in due]
    tried = {tuple(plain)}
    yield _schedule(model.bounds, due, plain, end_ms, seed, slow_ms)
    single = [(at, n) for n in range(1, max(choices, default=1)) for at in range(len(due))]
    for number in range(most - 1):
        variant = list(plain)
        if number < len(single) and number < most // 2:
            changes = [single[number]]
        else:
            changes = dice.choices(single, k=dice.choice((1, 2, 2, 3))) if single else []
        for at, n in changes:
            variant[at] = min(n, choices[at] - 1)
        if tuple(variant) not in tried:
            tried.add(tuple(variant))
            yield _schedule(model.bounds, due, variant, end_ms, seed, slow_ms)


# -- the path, with times -------------------------------------------------------------------------


def _timeline(
    model: Model, actions: tuple[Action, ...], message_ms: float
) -> tuple[list[_Due], float]:
    """Return each action that is not the end of a wait, with the events that may trigger it, and
    the time at which the path ends. A message takes `message_ms`."""
    due: list[_Due] = []
    anchors: list[_Anchor] = []
    counts: dict[str, int] = {}
    arrive_ms: list[float] = []
    now_ms = quiet_ms = 0.0
    done = 0
    for each in model.replayed(actions):
        if isinstance(each, NodeStep):
            if each.event[0] == "expire":
                now_ms = max(now_ms, quiet_ms + _longest_ms(each.event[1]))
            elif each.event[0] == "start":
                now_ms += 20
            elif each.event[0] in ("deliver", "lost") and arrive_ms and not _of_client(each):
                now_ms = max(now_ms, arrive_ms.pop(0))
            if each.event[0] not in ("lost", "kill", "power-cut"):
                turn = model.local.turn(each.node, each.event)
                to_nodes = [m for m in turn.messages if m.to in model.number]
                arrive_ms += [now_ms + message_ms] * len(to_nodes)
                anchors += _anchors_of(model, each, turn, now_ms, counts)
            continue
        done = _place(actions, each, done)
        quiet_ms = now_ms
        if each[0] == "expire":
            now_ms += _longest_ms(each[2])
            continue
        extra: Any = None
        if each[0] in ("lose", "double", "delay"):
            extra = model.message_at(actions[: done - 1])
            if each[0] != "double" and arrive_ms:
                arrive_ms.pop(0)
        elif each[0] == "release":
            extra = model.message_at(actions[: done - 1], each[1])
        elif each[0] == "again":
            now_ms += _HELD_MS + _TIMEOUT_MS // ATTEMPTS
        elif each[0] in ("crash", "send-crash"):
            extra = _first_event(model, actions[:done])
            if each[0] == "crash" and each[1][0] == "expire":
                now_ms += _longest_ms(each[1][2])
            elif each[0] == "crash" and arrive_ms:
                arrive_ms.pop(0)
        due.append(_Due(each, tuple(reversed(anchors[-6:])), now_ms, extra))
    return due, now_ms


def _longest_ms(waits: tuple[str, ...]) -> float:
    return max(_WAIT_MS[wait.partition("/")[0]] for wait in waits)


def _of_client(step: NodeStep) -> bool:
    return step.event[0] == "deliver" and step.event[1] in (CLIENT, wire.ADMIN)


def _place(actions: tuple[Action, ...], action: Action, start: int) -> int:
    """Return the number of actions of a path up to and including this one."""
    return next(at for at in range(start, len(actions)) if actions[at] is action) + 1


def _anchors_of(
    model: Model, step: NodeStep, turn: NodeTurn, now_ms: float, counts: dict[str, int]
) -> Iterator[_Anchor]:
    name = model.names[step.at]
    for event in turn.events:
        fields = _ANCHORS.get(event["event"])
        if fields is None or event.get("partition") == METADATA_PARTITION:
            continue
        told = {**event, "node": name, "incarnation": turn.node.incarnation}
        skipped = ("leader_epoch",) if model.bounds.voted else ()
        match = {f: told[f] for f in fields if f in told and f not in skipped}
        key = repr((event["event"], match))
        counts[key] = counts.get(key, 0) + 1
        yield _Anchor(After(event=event["event"], match=match, nth=counts[key]), now_ms)


def _first_event(model: Model, actions: tuple[Action, ...]) -> tuple[str, str, After | None]:
    """Return the node that ends in the last action, before what, and its last step's event."""
    last: NodeStep | None = None
    for each in model.replayed(actions):
        if isinstance(each, NodeStep) and each.event[0] == "crash":
            last = each
    assert last is not None
    turn = model.local.turn(last.node, last.event)
    anchor = next(_anchors_of(model, last, turn, 0.0, {}), None)
    return model.names[last.at], last.event[1], None if anchor is None else anchor.after


def _when(due: _Due) -> list[dict[str, Any]]:
    """Return the times of an action that are tried, the estimated one first."""
    if not due.anchors:
        # When a round of fetches began is not known, so all times within one are tried.
        return [{"at_ms": max(0, round(due.ms)) + late} for late in (1, *range(11, 132, 10), 600)]
    first = due.anchors[0]
    # A client asks for the leader first.
    early_ms = 1.2 if due.action[0] in ("send", "read", "send-crash") else 0.4
    estimated = max(0, round(due.ms - first.ms - early_ms))
    found = [estimated, *(ms for ms in _OTHER_MS if ms != estimated)]
    made = [{"after": replace(first.after, delay_ms=ms)} for ms in found]
    made += [
        {"after": replace(a.after, delay_ms=max(0, round(due.ms - a.ms - early_ms)))}
        for a in due.anchors[1:]
    ]
    return made


# -- the schedule ---------------------------------------------------------------------------------


def _schedule(
    bounds: Bounds, due: list[_Due], variant: list[int], end_ms: float, seed: int, slow_ms: int
) -> Schedule:
    faults: list[Fault] = []
    if slow_ms:
        faults.append(Delay(on="all", to="all", delay_ms=slow_ms, at_ms=0))
        faults.append(Delay(on="all", to="voters", delay_ms=slow_ms, at_ms=0))
    operations: list[Operation] = []
    held: list[_Held] = []
    sent: tuple[int, dict[str, Any]] = 0, {}
    for number, (each, choice) in enumerate(zip(due, variant, strict=True)):
        when = _when(each)[choice]
        name = f"{each.action[0]}-{number}"
        if each.action[0] in ("send", "read", "send-crash"):
            kind = Poll if each.action[0] == "read" else Send
            client = f"c{len(operations) + 1}"
            operations.append(kind(client=client, partition=PARTITION, must="any", **when))
            if kind is Send:
                sent = len(operations) - 1, when
        if each.action[0] == "again":
            # A client waits before it sends again. No follower hears of the record meanwhile.
            place, when = sent
            operations[place] = replace(operations[place], **_later(when, _HELD_MS))
        if each.action[0] not in ("send", "read"):
            faults += _faults(bounds, each, name, when, held)
    last_ms = round(end_ms) + _CLOSING_MS
    client = f"c{len(operations) + 1}"
    operations.append(Send(client=client, partition=PARTITION, must="any", at_ms=last_ms))
    workload = Workload(
        seed=seed,
        clients=0,
        consumers=0,
        operations=tuple(operations),
        duration_ms=last_ms + 3000,
        timeout_ms=_TIMEOUT_MS,
        idempotent=bounds.retries > 0,
    )
    subject = "-".join((bounds.protocol, *bounds.bugs))
    return Schedule(
        name=f"explored-{subject}",
        cluster=bounds.cluster(),
        workload=workload,
        faults=tuple(faults),
    )


def _faults(
    bounds: Bounds, due: _Due, name: str, when: dict[str, Any], held: list[_Held]
) -> list[Fault]:
    """Return the faults that stand for an action in a schedule."""
    names = (*bounds.cluster().voter_names(), *bounds.cluster().broker_names())
    match due.action:
        case ("kill", at, _):
            return [Kill(on=names[at], **when)]
        case ("power-cut", at):
            return [PowerCut(on=names[at], keep_percent=0, **when)]
        case ("start", at):
            return [Restart(on=names[at], **when)]
        case ("fence", at):
            held.append(_Held((0, at), name))
            voters = ",".join(bounds.cluster().voter_names())
            return [Cut(name=name, on=names[at], to=voters, **when)]
        case ("cut", (one, other)):
            held.append(_Held((one, other), name))
            return [Cut(name=name, on=names[one], to=names[other], **when)]
        case ("heal", pair):
            return _released(held, pair, when)
        case ("release", _):
            return _released(held, due.extra, when)
        case ("again", at):
            match = {"partition": PARTITION}
            hold = Link(name=name, action="hold", on="all", to=names[at], match=match, **when)
            return [replace(hold, kinds=("fetch",))]
        case ("elect", _, first):
            return [ElectPreferred(partition=PARTITION, first=first, **when)]
        case ("move", _):
            return [Reassign(partition=PARTITION, replicas="rotate", **when)]
        case ("crash", _) | ("send-crash", _):
            return _crash(due, when)
        case ("lose",):
            return [_link(due, "drop", "", when)]
        case ("delay",):
            held.append(_Held(due.extra, name))
            return [_link(due, "hold", name, when)]
        case ("double",):
            held.append(_Held(due.extra, name))
            return [_link(due, "duplicate", name, when, _COPY_MS)]
    raise AssertionError(due.action)


def _later(when: dict[str, Any], ms: int) -> dict[str, Any]:
    """Return the trigger or time, shifted by `ms`."""
    if "after" in when:
        return {"after": replace(when["after"], delay_ms=when["after"].delay_ms + ms)}
    return {"at_ms": when["at_ms"] + ms}


def _released(held: list[_Held], what: Any, when: dict[str, Any]) -> list[Fault]:
    """Return the fault that ends the first fault on `what`."""
    for place, each in enumerate(held):
        if each.what == what:
            del held[place]
            return [Release(of=each.fault, **when)]
    return []


def _link(due: _Due, action: Any, name: str, when: dict[str, Any], delay_ms: int = 0) -> Fault:
    """Return a link rule for one message, which is matched by its header fields."""
    source, to, message, body = due.extra
    fields = wire.fields_of(message, body)
    of_data = fields.get("partition") == PARTITION
    match = {
        field: fields[field]
        for field in _TOLD_APART
        if of_data and isinstance(fields.get(field), _PLAIN)
    }
    if fields.get("partition") == METADATA_PARTITION:
        match = {"partition": METADATA_PARTITION}
    if match:
        when = {"at_ms": 0} if of_data else when
    return Link(
        name=name,
        action=action,
        on=source,
        to=to,
        kinds=(fields["kind"],),
        match={**match, **({"partition": PARTITION} if of_data else {})},
        limit=1,
        delay_ms=delay_ms,
        **when,
    )


def _crash(due: _Due, when: dict[str, Any]) -> list[Fault]:
    """Return the end of the process before the step of the turn."""
    node, before, after = due.extra
    if after is None:
        return [Kill(on=node, **when)]
    match = {key: value for key, value in after.match.items() if key != "node"}
    return [Break(on=node, event=after.event, match=match, before=before, then="kill", at_ms=0)]


def _seed_of(bounds: Bounds) -> int:
    """Return the seed of a world in which n1 leads in the beginning."""
    if not (bounds.voted or bounds.protocol == "liftbridge"):
        return 0
    workload = Workload(clients=0, consumers=0, operations=(Send(client="c1", at_ms=1),))
    plain = Schedule(cluster=replace(bounds.cluster(), bugs=()), workload=workload)
    for seed in range(SEEDS):
        run = simulate(
            msgspec.structs.replace(plain, workload=replace(workload, seed=seed)), seed=seed
        )
        leads = [
            e["node"]
            for e in run.trace
            if e["event"] == trace.ROLE and e["role"] == "leader" and e["partition"] == PARTITION
        ]
        if leads and leads[-1] == "n1":
            return seed
    return 0
