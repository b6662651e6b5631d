"""Runs for property tests of what concerns a whole run: phases, faults, exits, controllers.

Times are few and close together, so that many fall exactly on a limit."""

from __future__ import annotations

from itertools import cycle
from typing import Any

from hypothesis import strategies as st

from tests.support.checker.story import NODES, P, Story

Q = "log-1"
HEAL_MS = 30
LIMIT_MS = 20
CATCH_UP_MS = 1_000
VOTERS = ("v1", "v2")


def _maybe(*times: int) -> st.SearchStrategy[int]:
    return st.sampled_from((0, *times))


_ends = (HEAL_MS, 49, 50, 51, CATCH_UP_MS + 39, CATCH_UP_MS + 40, CATCH_UP_MS + 49, 2_000)
_phases = st.fixed_dictionaries(
    {
        "heal": st.sampled_from([0, HEAL_MS, HEAL_MS, HEAL_MS]),
        "in_sync": _maybe(35, 50, 60),
        "stop_writing": _maybe(40, 49, 50),
        "final": _maybe(45, 50),
        "alike": st.sampled_from([0, 0, 0, 50, 60]),
        "storm": st.sampled_from([0, 1, 1, 1]),
        "end": st.sampled_from([0, *_ends]),
    }
)
# Where, when, how long, how it ended, and which of the schedule's operations it is.
_sends = st.tuples(
    st.sampled_from([P, P, Q]),
    st.sampled_from([-5, 0, 9, 10, 11, 19, 20, 29, 30, 31, 45, 51]),
    st.sampled_from([0, 1, 1, 5, 10, 19, 20, 21]),
    st.sampled_from(["ok", "ok", "info", "fail", None]),
    st.integers(-1, 1),
)
# A line of faults.jsonl: the fault, the action, its time, and more.
_struck = st.tuples(
    st.integers(-1, 2),
    st.sampled_from(["inject", "inject", "heal", "skipped", "missed", "effect", "woke"]),
    st.sampled_from([10, 20, 30, 31]),
    st.fixed_dictionaries(
        {
            "stopped": st.integers(0, 1),
            "nodes": st.sampled_from([(), ("n1",), ("n1", "n2"), ("n3",)]),
        }
    ),
)
# The node, the time, the role, and the in-sync set.
_answers = st.tuples(
    st.sampled_from(["n1", "n2"]),
    st.sampled_from([0, 19, 20, 21, 30]),
    st.sampled_from(["", "leader", "follower"]),
    st.sampled_from([None, None, (), ("n1",), ("n1", "n2")]),
)


@st.composite
def lives(draw: st.DrawFn) -> Story:
    """Draw everything that happens in a run of two partitions."""
    s = Story(P, Q, recovery_limit_ms=LIMIT_MS)
    s.run["state"] = draw(st.sampled_from(["finished", "finished", "interrupted"]))
    s.run["promise"]["acks"] = draw(st.sampled_from([-1, -1, 1, 0]))
    phases = draw(_phases)
    if not phases.pop("storm"):
        s.run["phases"]["storm_us"] = 0
    for name, ms in phases.items():
        if ms:
            s.phase(name, ms)
    musts = draw(st.lists(st.sampled_from(["ok", "any"]), max_size=2))
    workload = {"clients": draw(st.integers(0, 1)), "consumers": 0}
    workload["operations"] = [{"what": "send", "must": must} for must in musts]
    faults = [{"what": "kill"}] * draw(st.integers(0, 3))
    s.schedule = {"drawn": draw(st.booleans()), "faults": faults, "workload": workload}
    _act(draw, s)
    for node in NODES:
        end = draw(st.sampled_from([2, 2, 1, None]))
        if end is not None:
            s.log(node, *[(1_000 + n, 1) for n in range(end)], hw=0)
    exits = draw(st.lists(st.booleans(), max_size=3))
    s.exits = [
        {"node": "n1", "t_us": 1_020_000 + n, "code": n, "expected": expected, "by": by}
        for n, (expected, by) in enumerate(zip(exits, cycle(("itself", "stop"))))
    ]
    for index, action, ms, more in draw(st.lists(_struck, max_size=5)):
        s.fault(index, "kill", action, ms, **more)
    for node, ms, role, isr in sorted(draw(st.lists(_answers, max_size=3)), key=lambda a: a[1]):
        s.answer(node, ms, role=role, **({} if isr is None else {"isr": isr}))
    return s


def _act(draw: st.DrawFn, s: Story) -> None:
    """Draw what clients do, each operation of the schedule once, and the final reads."""
    steps: set[int] = set()
    sent = draw(st.one_of(st.lists(_sends, max_size=3), st.lists(_sends, max_size=12)))
    for n, (where, begin, length, outcome, number) in enumerate(sent):
        when = {"begin": begin, "end": begin + length}
        step = -1 if number in steps else number
        s.send(10 * n, at=n, outcome=outcome, partition=where, process=n, step=step, **when)  # type: ignore[arg-type]
        steps.add(step)
    finals = st.tuples(st.sampled_from([P, Q]), st.sampled_from(["ok", "info"]))
    for n, (where, outcome) in enumerate(draw(st.lists(finals, max_size=2))):
        s.poll(partition=where, final=True, outcome=outcome, process=90 + n, begin=45, end=46)  # type: ignore[arg-type]


_targets = st.sampled_from([("n1",), ("n1",), ("n2",), ("n1", "n2"), ("v1",), ("n3", "v2")])
_changed = st.tuples(
    st.integers(1, 4),
    st.sampled_from([("n2",), ("n1", "n2"), ("n3",), ()]),
    st.sampled_from([(), (), ("n3",)]),
    st.sampled_from([NODES, NODES, NODES, NODES[:2]]),
    st.sampled_from([0, 0, 4, 12, 30, 71]),
)


@st.composite
def silences(draw: st.DrawFn) -> Story:
    """Draw a storm of 70 ms in which faults hold nodes while clients send, so that a partition may
    owe acknowledgements."""
    voters = draw(st.sampled_from([VOTERS[:1], VOTERS, (*VOTERS, "v3"), (*VOTERS, "v3")]))
    s = Story(recovery_limit_ms=LIMIT_MS, voters=list(voters))
    s.phase("heal", 70)
    s.send(1, at=0, begin=0, end=1, process=80)
    asked = [(6, 1, "info"), (10, 1, "info"), (15, 1, "info"), (20, 1, "info"), (24, 1, "info")]
    asked += [sent[1:4] for sent in draw(st.lists(_sends, min_size=1, max_size=8))]
    for n, (begin, length, outcome) in enumerate(asked):
        when = {"begin": begin, "end": begin + length}
        s.send(10 * n + 10, at=n + 1, outcome=outcome, process=n, **when)  # type: ignore[arg-type]
    outages = range(draw(st.integers(0, 2)))
    s.scheduled(*(_add_outage(draw, s, n) for n in outages))
    s.min_isr(draw(st.sampled_from([1, 2, 2, 3])))
    if draw(st.sampled_from([True, True, True, False])):
        s.fault(-1, "", "heal", 70, nodes=())
    for number, isr, elr, replicas, ms in draw(st.lists(_changed, min_size=1, max_size=3)):
        about = {"leader": None, "leader_epoch": number, "partition_epoch": number, "ms": ms}
        s.event("v1", "partition", isr=isr, elr=elr, replicas=replicas, **about)
    for node in voters[1:]:
        s.event(node, "controller", None, state="resigned", term=1, ms=1)
    exits = st.tuples(st.sampled_from([9, 25, 71]), st.booleans())
    for ms, expected in draw(st.lists(exits, max_size=1)):
        s.exit("n3", code=70, expected=expected, ms=ms)
    return s


def _add_outage(draw: st.DrawFn, s: Story, number: int) -> str:
    """Draw a fault and its heal, if it has one; the two lines may name other nodes. Return its
    kind."""
    kind = draw(st.sampled_from(["kill", "kill", "pause", "isolate", "cut", "restart", "skew"]))
    nodes, links = draw(_targets), []
    if draw(st.booleans()):
        links = [(nodes[0], "c1")]
    begin = draw(st.sampled_from([5, 5, 10, 26, 60]))
    s.fault(number, kind, "inject", begin, nodes=nodes, links=links)
    end = draw(st.sampled_from([0, 30, 31, 70, 70]))
    if end and kind != "restart":
        why = draw(st.sampled_from([{}, {}, {"detail": "refused"}]))
        s.fault(number, kind, "heal", end, nodes=draw(_targets), **why)
    return kind


_nodes = st.lists(st.sampled_from(NODES), max_size=3, unique=True)
_MEMBERSHIP = [*["partition"] * 5, "fenced", "unfenced", "controller", "role", "append"]
_PROGRESS = ["partition", "partition", "hw", "hw", "role", "append", "append", "truncated"]


@st.composite
def changes(draw: st.DrawFn) -> Story:
    """Draw leadership and membership as traces tell of them."""
    s = Story(voters=list(VOTERS))
    s.traces["v2"] = []
    whats, epochs = draw(st.sampled_from([(_MEMBERSHIP, (-1, 3)), (_PROGRESS, (0, 1))]))
    for what in draw(st.lists(st.sampled_from(whats), max_size=9)):
        who, number = draw(st.sampled_from(("", *NODES))), draw(st.integers(0, 4))
        epoch, ms = draw(st.integers(*epochs)), draw(st.integers(1, 6))
        voter, broker = draw(st.sampled_from(("v1", "v1", "v1", "v2"))), who or NODES[number % 3]
        if what == "partition":
            about = {"leader": who or None, "leader_epoch": epoch, "partition_epoch": number}
            s.event(voter, what, **about, **_sets(draw), ms=ms)
        elif what == "controller":
            state = "active" if who else "resigned"
            s.event(voter, what, None, state=state, term=epoch, ms=ms)
        elif what in ("fenced", "unfenced"):
            s.event(voter, "broker", None, broker=broker, state=what, ms=ms)
        else:
            role = "leader" if number or what == "hw" else "follower"
            hw = number if what == "hw" else 0
            leo = number if number or draw(st.booleans()) else -1
            ends = {"leo": leo, "hw": hw, "base_offset": 0, "batch_end": 0, "hash": ""}
            s.event(broker, what, role=role, leader_epoch=epoch, **ends, ms=ms)
    return s


def _sets(draw: st.DrawFn) -> dict[str, Any]:
    """Draw the sets of a partition."""
    return {
        "isr": draw(_nodes),
        "elr": draw(_nodes),
        "last_known_elr": draw(_nodes),
        "replicas": list(draw(st.sampled_from([(), NODES, NODES, NODES[:2], NODES[1:]]))),
        "removing": draw(_nodes)[:1],
    }
