"""Runs for property tests of what concerns a whole run: phases, faults, exits, controllers.

Times are few and close together, so that many fall exactly on a limit."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle

from hypothesis import strategies as st

from tests.support.checker.story import NODES, P, Story

Q = "log-1"
HEAL_MS = 30
LIMIT_MS = 20
CATCH_UP_MS = 1_000
VOTERS = ("v1", "v2")


@dataclass(frozen=True)
class Sent:
    """A send: where, when, how it ended, and which of the schedule's operations it is."""

    where: str
    begin: int
    length: int
    outcome: str | None
    step: int


@dataclass(frozen=True)
class Struck:
    """A line of faults.jsonl."""

    index: int
    action: str
    ms: int
    count: int
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Life:
    """Everything that happens in a run."""

    phases: dict[str, int]
    state: str
    acks: int
    sends: list[Sent]
    finals: list[tuple[str, str]]
    ends: list[int | None]
    exits: list[bool]
    scheduled: int
    drawn: bool
    struck: list[Struck]
    musts: list[str]
    drawn_clients: int
    answers: list[tuple[str, int, str, tuple[str, ...] | None]]


@dataclass(frozen=True)
class Change:
    """A change of a partition as a voter tells it, or another event of a voter or broker."""

    what: str
    node: str
    who: str
    number: int
    epoch: int
    isr: tuple[str, ...]
    elr: tuple[str, ...]
    last_known: tuple[str, ...]
    replicas: tuple[str, ...]
    removing: tuple[str, ...]
    ms: int


@dataclass(frozen=True)
class Outage:
    """A fault from `begin` to `end` (0: it is not healed), and the nodes that each line names."""

    kind: str
    begin: int
    end: int
    nodes: tuple[str, ...]
    healed: tuple[str, ...]
    clients: bool
    refused: bool


@dataclass(frozen=True)
class Silence:
    """A partition that may owe acknowledgements while faults are in force."""

    outages: list[Outage]
    told: bool
    changes: list[tuple[int, tuple[str, ...], tuple[str, ...], tuple[str, ...], int]]
    sends: list[Sent]
    voters: tuple[str, ...]
    min_isr: int
    exits: list[tuple[int, bool]]


def _maybe(*times: int) -> st.SearchStrategy[int]:
    return st.sampled_from((0, *times))


_ends = (HEAL_MS, 49, 50, 51, CATCH_UP_MS + 39, CATCH_UP_MS + 40, CATCH_UP_MS + 49, 2_000)
phases = st.fixed_dictionaries(
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
sends = st.builds(
    Sent,
    st.sampled_from([P, P, Q]),
    st.sampled_from([-5, 0, 9, 10, 11, 19, 20, 29, 30, 31, 45, 51]),
    st.sampled_from([0, 1, 1, 5, 10, 19, 20, 21]),
    st.sampled_from(["ok", "ok", "info", "fail", None]),
    st.integers(-1, 1),
)
struck = st.builds(
    Struck,
    st.integers(-1, 2),
    st.sampled_from(["inject", "inject", "heal", "skipped", "missed", "effect", "woke"]),
    st.sampled_from([10, 20, 30, 31]),
    st.integers(0, 1),
    st.sampled_from([(), ("n1",), ("n1", "n2"), ("n3",)]),
)
answers = st.tuples(
    st.sampled_from(["n1", "n2"]),
    st.sampled_from([0, 19, 20, 21, 30]),
    st.sampled_from(["", "leader", "follower"]),
    st.sampled_from([None, None, (), ("n1",), ("n1", "n2")]),
)
lives = st.builds(
    Life,
    phases,
    st.sampled_from(["finished", "finished", "interrupted"]),
    st.sampled_from([-1, -1, 1, 0]),
    st.one_of(st.lists(sends, max_size=3), st.lists(sends, max_size=12)),
    st.lists(st.tuples(st.sampled_from([P, Q]), st.sampled_from(["ok", "info"])), max_size=2),
    st.lists(st.sampled_from([2, 2, 1, None]), min_size=3, max_size=3),
    st.lists(st.booleans(), max_size=3),
    st.integers(0, 3),
    st.booleans(),
    st.lists(struck, max_size=5),
    st.lists(st.sampled_from(["ok", "any"]), max_size=2),
    st.integers(0, 1),
    st.lists(answers, max_size=3),
)


def tell(life: Life) -> Story:
    s = Story(P, Q, state=life.state, recovery_limit_ms=LIMIT_MS)
    s.run["promise"]["acks"] = life.acks
    for name, ms in life.phases.items():
        if ms and name != "storm":
            s.phase(name, ms)
    if not life.phases["storm"]:
        s.run["phases"]["storm_us"] = 0
    workload = {"clients": life.drawn_clients, "consumers": 0}
    operations = [{"what": "send", "must": must} for must in life.musts]
    s.schedule = {
        "drawn": life.drawn,
        "faults": [{"what": "kill"}] * life.scheduled,
        "workload": {**workload, "operations": operations},
    }
    steps: set[int] = set()
    for n, sent in enumerate(life.sends):
        step = -1 if sent.step in steps else sent.step
        steps.add(step)
        s.send(
            10 * n,
            at=n,
            outcome=sent.outcome,
            partition=sent.where,
            process=n,
            step=step,  # type: ignore[arg-type]
            begin=sent.begin,
            end=sent.begin + sent.length,
        )
    for n, (where, outcome) in enumerate(life.finals):
        s.poll(partition=where, final=True, outcome=outcome, process=90 + n, begin=45, end=46)  # type: ignore[arg-type]
    for node, end in zip(NODES, life.ends, strict=True):
        if end is not None:
            s.log(node, *[(1_000 + n, 1) for n in range(end)], hw=0)
    s.exits = [
        {"node": "n1", "t_us": 1_020_000 + n, "code": n, "expected": expected, "by": by}
        for n, (expected, by) in enumerate(zip(life.exits, cycle(("itself", "stop"))))
    ]
    for line in life.struck:
        s.fault(line.index, "kill", line.action, line.ms, stopped=line.count, nodes=line.nodes)
    for node, ms, role, isr in sorted(life.answers, key=lambda each: each[1]):
        s.answer(node, ms, role=role, **({} if isr is None else {"isr": isr}))
    return s


_TARGETS = st.sampled_from([("n1",), ("n1",), ("n2",), ("n1", "n2"), ("v1",), ("n3", "v2")])
outages = st.builds(
    Outage,
    st.sampled_from(["kill", "kill", "pause", "isolate", "cut", "restart", "skew"]),
    st.sampled_from([5, 5, 10, 26, 60]),
    st.sampled_from([0, 30, 31, 70, 70]),
    _TARGETS,
    _TARGETS,
    st.booleans(),
    st.sampled_from([False, False, True]),
)
silences = st.builds(
    Silence,
    st.lists(outages, max_size=2),
    st.sampled_from([True, True, True, False]),
    st.lists(
        st.tuples(
            st.integers(1, 4),
            st.sampled_from([("n2",), ("n1", "n2"), ("n3",), ()]),
            st.sampled_from([(), (), ("n3",)]),
            st.sampled_from([NODES, NODES, NODES, NODES[:2]]),
            st.sampled_from([0, 0, 4, 12, 30, 71]),
        ),
        min_size=1,
        max_size=3,
    ),
    st.lists(sends, min_size=1, max_size=8),
    st.sampled_from([("v1",), ("v1", "v2"), ("v1", "v2", "v3"), ("v1", "v2", "v3")]),
    st.sampled_from([1, 2, 2, 3]),
    st.lists(st.tuples(st.sampled_from([9, 25, 71]), st.booleans()), max_size=1),
)


def silent(silence: Silence) -> Story:
    """Tell of a storm of 70 ms in which faults hold nodes while clients send."""
    s = Story(recovery_limit_ms=LIMIT_MS, voters=list(silence.voters))
    s.phase("heal", 70)
    s.send(1, at=0, begin=0, end=1, process=80)
    asked = [(6, 1, "info"), (10, 1, "info"), (15, 1, "info"), (20, 1, "info"), (24, 1, "info")]
    sends_ = [(sent.begin, sent.length, sent.outcome) for sent in silence.sends]
    for n, (begin, length, outcome) in enumerate([*asked, *sends_]):
        when = {"begin": begin, "end": begin + length}
        s.send(10 * n + 10, at=n + 1, outcome=outcome, process=n, **when)  # type: ignore[arg-type]
    s.scheduled(*(outage.kind for outage in silence.outages))
    s.min_isr(silence.min_isr)
    for n, o in enumerate(silence.outages):
        links = [(o.nodes[0], "c1")] if o.clients else []
        s.fault(n, o.kind, "inject", o.begin, nodes=o.nodes, links=links)
        if o.end and o.kind != "restart":
            why = {"detail": "refused"} if o.refused else {}
            s.fault(n, o.kind, "heal", o.end, nodes=o.healed, **why)
    if silence.told:
        s.fault(-1, "", "heal", 70, nodes=())
    for number, isr, elr, replicas, ms in silence.changes:
        about = {"leader": None, "leader_epoch": number, "partition_epoch": number, "ms": ms}
        s.event("v1", "partition", isr=isr, elr=elr, replicas=replicas, **about)
    for node in silence.voters[1:]:
        s.event(node, "controller", None, state="resigned", term=1, ms=1)
    for ms, expected in silence.exits:
        s.exit("n3", code=70, expected=expected, ms=ms)
    return s


_nodes = st.lists(st.sampled_from(NODES), max_size=3, unique=True).map(tuple)
_MEMBERSHIP = [*["partition"] * 5, "fenced", "unfenced", "controller", "role", "append"]
_PROGRESS = ["partition", "partition", "hw", "hw", "role", "append", "append", "truncated"]


def _changes(whats: list[str], epochs: st.SearchStrategy[int]) -> st.SearchStrategy[list[Change]]:
    one = st.builds(
        Change,
        st.sampled_from(whats),
        st.sampled_from(("v1", "v1", "v1", "v2")),
        st.sampled_from(("", *NODES)),
        st.integers(0, 4),
        epochs,
        _nodes,
        _nodes,
        _nodes,
        st.sampled_from([(), NODES, NODES, NODES[:2], NODES[1:]]),
        _nodes.map(lambda n: n[:1]),
        st.integers(1, 6),
    )
    return st.lists(one, max_size=9)


changes = st.one_of(
    _changes(_MEMBERSHIP, st.integers(-1, 3)), _changes(_PROGRESS, st.integers(0, 1))
)


def led(told: list[Change]) -> Story:
    """Leadership and membership as traces tell of them, as a story."""
    s = Story(voters=list(VOTERS))
    s.traces["v2"] = []
    for c in told:
        broker = c.who or NODES[c.number % 3]
        if c.what == "partition":
            s.event(
                c.node,
                "partition",
                leader=c.who or None,
                leader_epoch=c.epoch,
                partition_epoch=c.number,
                isr=list(c.isr),
                elr=list(c.elr),
                last_known_elr=list(c.last_known),
                replicas=list(c.replicas),
                removing=list(c.removing),
                ms=c.ms,
            )
        elif c.what == "controller":
            state = "active" if c.who else "resigned"
            s.event(c.node, "controller", None, state=state, term=c.epoch, ms=c.ms)
        elif c.what in ("fenced", "unfenced"):
            s.event(c.node, "broker", None, broker=broker, state=c.what, ms=c.ms)
        else:
            role = "leader" if c.number or c.what == "hw" else "follower"
            leo = c.number - 1 if c.number == 0 and c.isr else c.number
            s.event(
                broker,
                c.what,
                role=role,
                leader_epoch=c.epoch,
                leo=leo,
                hw=c.number if c.what == "hw" else 0,
                base_offset=0,
                batch_end=0,
                hash="",
                ms=c.ms,
            )
    return s
