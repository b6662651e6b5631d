"""Rules of a quorum against the histories that need them: what each one's absence breaks.

`naive` is the high-water mark pattern as one may read it; R1 to R4b are `quorum` with one bug on.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from node.core import batch as batches
from node.core import leader
from node.core.api import Mark
from node.core.high_watermark import majority_high_watermark
from node.core.messages import FetchResponse, ProduceRequest, VoteRequest
from node.core.protocol import QUORUM, QUORUM_NAIVE
from tests.node.core.test_matrix import table
from tests.support.voter_scenarios import PARTITION, QUESTIONS, VOTES, Node, Variant, Voters
from tests.support.world import logs_of

COLUMNS = {
    "quorum": Variant(QUORUM),
    "naive": Variant(QUORUM_NAIVE),
    **{code: Variant(QUORUM, (code,)) for code in ("R1", "R2", "R3", "R4", "R4b")},
}


def figure_8(variant: Variant) -> Voters:
    """A record of term 1 reaches a majority in term 3; another's, of term 2, still wins."""
    c = Voters(variant)
    c.connect("n1 n2")
    c.elect("n1")
    c.write("n1", "x")
    c.connect("n2 n3")
    c.elect("n2")
    c.write("n2", "y")
    c.connect("n1 n3")
    c.elect("n1")
    c.run()
    c.crash("n1")
    c.connect("n2 n3")
    for _ in range(3):
        c.patience_ends("n2")
        c.run()
    return c


def stale_high_watermark(variant: Variant) -> Voters:
    """The new leader does not know yet that x is committed. The old one asks it, then leads."""
    c = Voters(variant)
    c.elect("n1")
    c.write("n1", "x")
    while c.nodes["n1"].r.hw < c.nodes["n1"].r.leo:
        c.run(links="n1>n2 n2>n1", most=1)
    c.crash("n1")
    c.connect("n2 n3")
    c.elect("n2")
    c.connect("n1 n2")
    c.start("n1")
    c.announces("n2")
    while c.nodes["n1"].r.leader != "n2":
        c.run(links="n1>n2 n2>n1", most=1)
    c.run(*QUESTIONS)
    c.crash("n2")
    c.connect("n1 n3")
    for _ in range(3):
        c.patience_ends("n1")
        c.run()
    c.write("n1", "y")
    c.run()
    return c


def half_of_four(variant: Variant) -> Voters:
    """Two of four have a record when both die; the others wait for one of them."""
    c = Voters(variant, count=4)
    c.elect("n1")
    c.write("n1", "x")
    c.run(links="n1>n2 n2>n1")
    c.crash("n1")
    c.crash("n2")
    c.connect("n2 n3 n4")
    c.start("n2")
    for _ in range(3):
        c.patience_ends("n3")
        c.run()
    return c


def longer_log(variant: Variant) -> Voters:
    """A deposed leader with three records of its own fetches; its new leader dies."""
    c = Voters(variant)
    c.connect("n2 n3")
    c.elect("n3")
    for letter in "abc":
        c.write("n3", letter)
    c.connect("n1 n2")
    c.elect("n1")
    c.write("n1", "x")
    c.connect("n1 n3")
    c.announces("n1")
    c.run(links="n1>n3 n3>n1", most=4)
    c.crash("n1")
    c.connect("n2 n3")
    for _ in range(3):
        c.patience_ends("n3")
        c.run()
    return c


def what_came_before(variant: Variant) -> Voters:
    """A deposed leader has another record where the others have a committed one."""
    c = Voters(variant)
    c.connect("n2 n3")
    c.elect("n3")
    c.write("n3", "a")
    c.connect("n1 n2")
    c.elect("n2")
    c.write("n2", "p")
    c.run()
    c.connect("n1 n2 n3")
    c.announces("n2")
    c.run()
    c.write("n2", "q")
    c.run()
    return c


def second_successor(variant: Variant) -> Voters:
    """A deposed leader with a record of its own follows the successor of its successor."""
    c = Voters(variant)
    c.elect("n1")
    for letter in "abc":
        c.write("n1", letter)
        c.run()
    c.connect("n1")
    c.write("n1", "z")
    c.crash("n1")
    c.connect("n2 n3")
    c.elect("n2")
    c.run()
    c.write("n2", "y")
    c.run()
    c.connect("n1 n3")
    c.start("n1")
    c.elect("n3")
    c.run()
    return c


def a_voter_restarts_between_two_votes(variant: Variant) -> Voters:
    """n1 and n2 ask in the same term, and n3 restarts after it has voted for n1."""
    c = Voters(variant)
    c.connect("n1 n3")
    c.patience_ends("n1")
    c.run(*VOTES, most=2)  # would you? - yes
    asked = [m for m in c.mail if isinstance(m.message, VoteRequest)]
    c.connect("n2 n3")
    c.patience_ends("n2")
    c.run(*VOTES, most=2)
    asks_again = [m for m in c.mail if isinstance(m.message, VoteRequest)]
    c.connect("n1 n2 n3")
    for mail in asked:
        c.give(mail)
    c.run(links="n3>n1")
    c.start("n3")
    c.mail.clear()
    for mail in asks_again:
        c.give(mail)
    c.run(links="n3>n2")
    c.mail.clear()
    return c


def an_answer_comes_twice(variant: Variant) -> Voters:
    """The answer that brought b comes again when c is committed, and the leader dies."""
    c = Voters(variant)
    c.elect("n1")
    c.run(links="n1>n2 n2>n1")
    copies = []
    for letter in "abc":
        c.write("n1", letter)
        copies += [m for m in c.mail if m.to == "n2" and isinstance(m.message, FetchResponse)]
        c.run(links="n1>n2 n2>n1", most=2 if letter == "c" else 100)
    assert c.nodes["n1"].r.hw == c.nodes["n1"].r.leo, "c is committed"
    c.mail.clear()
    c.give(copies[1])
    c.crash("n1")
    c.connect("n2 n3")
    c.elect("n2")
    c.run()
    return c


SCENARIOS: dict[str, Callable[[Variant], Voters]] = {
    "an old term's record (figure 8)": figure_8,
    "stale high watermark of a leader": stale_high_watermark,
    "half of four voters": half_of_four,
    "a longer log that differs": longer_log,
    "what came before differs": what_came_before,
    "second successor": second_successor,
    "a voter restarts between votes": a_voter_restarts_between_two_votes,
    "an answer comes twice": an_answer_comes_twice,
}

# Each bug fails in the history that is its own, and `quorum` in none. Half of four voters is enough
# to commit as long as an election takes more than half: the two always have a voter in common, and
# it refuses a candidate that lacks the record. That reading of the pattern does no harm by itself.


@pytest.mark.parametrize("history", SCENARIOS)
def test_a_history_ends_under_every_rule_as_documented(history: str) -> None:
    head, *rows = table("history | `quorum`")
    documented = {name: cells for name, *cells in rows}
    assert documented.keys() == SCENARIOS.keys()
    assert [name.replace("quorum-naive", "naive") for name in head[1:]] == list(COLUMNS)
    found = [SCENARIOS[history](variant).outcome() for variant in COLUMNS.values()]
    assert found == [cell or "." for cell in documented[history]]


def logs(c: Voters) -> list[str]:
    return [f"{name}: {c.log(name)} (HW {c.nodes[name].r.hw})" for name in c.nodes]


def test_figure_8_step_by_step() -> None:
    """x of term 1 is on two of three nodes in term 3. Read literally, that commits it."""
    naive = figure_8(COLUMNS["naive"])
    assert naive.committed == {0: "x1"}, "readers saw x first"
    assert logs(naive) == ["n1: x1 (HW 1)", "n2: y2 (HW 1)", "n3: y2 (HW 1)"], "then y"
    right = figure_8(COLUMNS["quorum"])
    assert right.committed == {0: "*1", 1: "x1", 2: "*3"}, "x commits with a record of term 3"
    assert logs(right)[1:] == ["n2: *2 y2 (HW 0)", "n3: *1 x1 *3 (HW 3)"], "n3 refuses n2"


@pytest.mark.parametrize(
    ("ends", "majority", "literal"),
    [
        ((7, 0), 0, 7),
        ((9, 9, 0, 0), 0, 9),
        ((5, 4, 3, 2), 3, 4),
        ((4, 3, 2, 1, 0, 0), 1, 2),
        ((7, 5, 3), 5, 5),
        ((7, 0, 0), 0, 0),
    ],
)
def test_the_index_at_half_of_the_ascending_ends(
    ends: tuple[int, ...], majority: int, literal: int
) -> None:
    """They differ where the number of voters is even."""
    voters = [f"n{i}" for i in range(len(ends))]
    of = dict(zip(voters, ends, strict=True))
    assert majority_high_watermark(voters, of, epoch_start=-1) == majority
    assert majority_high_watermark(voters, of, epoch_start=-1, half_is_enough=True) == literal


@pytest.mark.parametrize("switched", [(), ("R6",), ("R7",)])
def test_an_acknowledgement_before_the_commit_can_promise_what_is_lost(
    switched: tuple[str, ...],
) -> None:
    """A sole voter is its own majority: it acknowledges in the turn of the append. If the message
    leaves before the commit, a crash between the two loses what was acknowledged."""
    node = Node("n1", Variant(QUORUM, switched), ("n1",))
    node.ctx.effects.messages.clear()
    committed = dict(logs_of(node.disk)[PARTITION])
    request = ProduceRequest(partition=PARTITION, acks=-1)
    leader.on_produce(node.ctx, node.r, "c1", request, batches.build(1, b"x"))
    (ack,) = node.ctx.effects.messages
    assert (ack.to, node.records()) == ("c1", ["*1", "x1"])
    if ack.mark is Mark.BEFORE_COMMIT:  # it has left; the turn's commit never happens
        logs_of(node.disk)[PARTITION] = committed
    node.start(0)
    assert node.records() == (["*1", "*2"] if switched else ["*1", "x1", "*2"])
