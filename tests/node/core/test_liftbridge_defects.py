"""The defects of Liftbridge's code, with their bugs on and off.

The histories and the notation are those of `replica_scenarios`; each defect is a scenario that runs
twice, without and with its bug. What the rule of truncation makes of every history, with LB1 and
without, is among the columns of `test_matrix`.
"""

from __future__ import annotations

import msgspec
import pytest

from node.core.messages import EpochEndRequest
from node.core.protocol import LIFTBRIDGE
from tests.node.core.test_liftbridge import LOG, Conversation
from tests.support.replica_scenarios import Cluster, Scenario, Variant, second_successor


def both_outcomes(scenario: Scenario, name: str) -> str:
    """What both runs have in common, then how each goes on without and with the bug."""
    runs = {}
    for label, names in (("correct", ()), (name, (name,))):
        cluster = scenario(Variant(LIFTBRIDGE, names))
        letter = cluster.outcome()
        runs[label] = [*cluster.story, f"-> {letter}"]
    same = 0
    while len({lines[same] for lines in runs.values()}) == 1:
        same += 1
    text = runs["correct"][:same]
    for label, lines in runs.items():
        text += [f"{label}:", *(f"    {line}" for line in lines[same:])]
    return "\n".join(text)


# -- LB1: one too high ----------------------------------------------------------------------------

# As documented, Liftbridge asks and answers as KIP-101 does (an offset without its epoch), except
# that its leader always knows an answer; no history here tells the two apart.


def test_the_second_successor() -> None:
    """n1's record 5e1 was never committed. n3 learned epoch 2 from the record 5e2."""
    assert (
        both_outcomes(second_successor, "LB1")
        == """\
n1 is elected, epoch 1
n1 writes 0-4e1
n2 fetches at 0: 0-4e1
n3 fetches at 0: 0-4e1
0-4e1 is acknowledged
n1 writes 5e1
n1 dies
n2 is elected, epoch 2
n3 asks for the end of epoch 1: it ends at 5; nothing to cut
n2 writes 5e2
n3 fetches at 5: 5e2
5e2 is acknowledged
n3 is elected, epoch 3
n2 asks for the end of epoch 2: it ends at 6; nothing to cut
n1 starts
correct:
    n1 asks for the end of epoch 1: it ends at 5; cut to 5
    n1 fetches at 5: 5e2
    n1: 0-4e1 5e2
    n2: 0-4e1 5e2
    n3: 0-4e1 5e2
    -> .
LB1:
    n1 asks for the end of epoch 1: it ends at 6; nothing to cut
    n1: 0-4e1 5e1
    n2: 0-4e1 5e2
    n3: 0-4e1 5e2
    -> D"""
    )


def test_the_first_successor_answers_right_even_so() -> None:
    """n2 entered its own epoch when it was elected: at the last offset that it keeps."""
    c = Cluster(Variant(LIFTBRIDGE, ("LB1",)), n1=("0-4e1 5e1", 5), n2=("0-4e1", 5))
    c.elect("n2", 2, "n2")
    c.write("n2")
    assert c.outcome() == "."
    assert c.log("n1") == "0-4e1 5e2"


def pass_on(c: Cluster, source: str, to: str) -> None:
    """What is under way on one link arrives."""
    mine = [m for m in c.mail if (m[0], m[1]) == (source, to)]
    c.mail = mine + [m for m in c.mail if (m[0], m[1]) != (source, to)]
    for _ in mine:
        c.deliver()


# -- LB2: the fallback ----------------------------------------------------------------------------


def kip_101_by_timeouts(variant: Variant) -> Cluster:
    """KIP-101's first scenario: the questions of a restarted follower are lost, three of them."""
    c = Cluster(variant, n1=("", 0), n2=("", 0))
    c.elect("n2", 1, "n1 n2")
    c.run()
    c.write("n2")
    c.run()
    c.write("n2")
    for _ in range(2):
        pass_on(c, "n2", "n1")
        pass_on(c, "n1", "n2")
    c.lose("n2", "n1")
    c.checkpoint("n1")
    c.say("n1 has not heard that 1e1 is committed")
    c.start("n1")
    for _ in range(3):
        assert isinstance(c.mail[-1][2], EpochEndRequest)
        c.lose("n1", "n2")
        c.say("n1 asks for the end of epoch 1: lost")
        cuts = len(c.nodes["n1"].events("truncated"))
        c.pause(500)
        for cut in c.nodes["n1"].events("truncated")[cuts:]:
            c.say(f"n1 cuts its log from {cut['from_leo']} to its HW: {cut['leo']}")
    c.say(f"n1: {c.log('n1')}")
    c.crash("n2")
    c.elect("n1", 2, "n1 n2")
    c.start("n2")
    return c


def test_a_question_lost_three_times() -> None:
    assert (
        both_outcomes(kip_101_by_timeouts, "LB2")
        == """\
n2 is elected, epoch 1
n2 writes 0e1
n1 fetches at 0: 0e1
0e1 is acknowledged
n2 writes 1e1
n1 fetches at 1: 1e1
1e1 is acknowledged
n1 has not heard that 1e1 is committed
n1 starts
n1 asks for the end of epoch 1: lost
n1 asks for the end of epoch 1: lost  (again and again)
correct:
    n1: 0e1 1e1
    n2 dies, the question of n1 unanswered
    n1 is elected, epoch 2
    n2 starts
    n2 asks for the end of epoch 1: it ends at 2; nothing to cut
    n1: 0e1 1e1
    n2: 0e1 1e1
    -> .
LB2:
    n1 cuts its log from 2 to its HW: 1
    n1: 0e1
    n2 dies, the fetch of n1 unanswered
    n1 is elected, epoch 2
    n2 starts
    n2 asks for the end of epoch 1: it ends at 1; cut to 1
    n1: 0e1
    n2: 0e1
    -> L"""
    )


# -- M5b: expansion by lag alone ------------------------------------------------------------------


def catch_up(c: Cluster, follower: str) -> None:
    """The follower gets all that n1 has, and n1 hears of it."""
    for _ in range(4):
        pass_on(c, follower, "n1")
        pass_on(c, "n1", follower)


def slightly_behind(variant: Variant) -> Cluster:
    """n3 was caught up a moment ago; the high watermark moves on before its next fetch arrives."""
    c = Cluster(variant, n1=("", 0), n2=("", 0), n3=("", 0))
    c.elect("n1", 1, "n1 n2")
    c.write("n1")
    catch_up(c, "n2")
    pass_on(c, "n3", "n1")
    pass_on(c, "n1", "n3")
    c.write("n1")
    catch_up(c, "n2")
    pass_on(c, "n3", "n1")
    isr = "n1 n2"
    for proposal in c.nodes["n1"].events("proposed"):
        isr = " ".join(proposal["isr"])  # type: ignore[arg-type]
        c.say(f"n1 has the ISR {isr}")
        c.record = msgspec.structs.replace(
            c.record, isr=tuple(isr.split()), partition_epoch=c.record.partition_epoch + 1
        )
        c.hears("n1")
    c.crash("n1")
    c.elect("n3" if "n3" in isr else "n2", 2, isr)
    c.start("n1")
    return c


def test_a_follower_that_was_caught_up_a_moment_ago() -> None:
    assert (
        both_outcomes(slightly_behind, "M5b")
        == """\
n1 is elected, epoch 1
n1 writes 0e1
n2 fetches at 0: 0e1
0e1 is acknowledged
n3 fetches at 0: 0e1
n1 writes 1e1
n2 fetches at 1: 1e1
1e1 is acknowledged
correct:
    n1 dies
    n2 is elected, epoch 2
    n1 starts
    n3 asks for the end of epoch 1: it ends at 2; nothing to cut
    n1 asks for the end of epoch 1: it ends at 2; nothing to cut
    n3 fetches at 1: 1e1
    n1: 0e1 1e1
    n2: 0e1 1e1
    n3: 0e1 1e1
    -> .
M5b:
    n1 has the ISR n1 n2 n3
    n1 dies
    n3 is elected, epoch 2
    n1 starts
    n2 asks for the end of epoch 1: it ends at 1; cut to 1
    n1 asks for the end of epoch 1: it ends at 1; cut to 1
    n1: 0e1
    n2: 0e1
    n3: 0e1
    -> L"""
    )


# -- LB4: the highest offset ever fetched ---------------------------------------------------------


def came_back_shorter(variant: Variant) -> Cluster:
    """n2 loses 1e1 and says so by fetching it again; only then does n3 get it."""
    c = Cluster(variant, n1=("", 0), n2=("", 0), n3=("", 0))
    c.elect("n1", 1, "n1 n2 n3")
    c.write("n1")
    c.run()
    c.write("n1")
    catch_up(c, "n2")
    c.crash("n2")
    c.unflushed("n2", 1)
    c.start("n2")
    pass_on(c, "n2", "n1")
    pass_on(c, "n1", "n2")
    pass_on(c, "n2", "n1")
    c.lose("n1", "n2")
    c.say("n2 fetches at 1: the answer is lost")
    catch_up(c, "n3")
    c.crash("n1")
    c.crash("n3")
    c.elect("n2", 2, "n1 n2 n3")
    c.start("n1")
    c.start("n3")
    return c


def test_a_follower_that_came_back_with_less() -> None:
    assert (
        both_outcomes(came_back_shorter, "LB4")
        == """\
n1 is elected, epoch 1
n1 writes 0e1
n2 fetches at 0: 0e1
n3 fetches at 0: 0e1
0e1 is acknowledged
n1 writes 1e1
n2 fetches at 1: 1e1
n2 dies
n2 has lost everything from offset 1 on
n2 starts
n2 asks for the end of epoch 1: it ends at 2; nothing to cut
n2 fetches at 1: the answer is lost
n3 fetches at 1: 1e1
correct:
    n1 dies
    n3 dies
    n2 is elected, epoch 2
    n1 starts
    n3 starts
    n1 asks for the end of epoch 1: it ends at 1; cut to 1
    n3 asks for the end of epoch 1: it ends at 1; cut to 1
    n1: 0e1
    n2: 0e1
    n3: 0e1
    -> .
LB4:
    1e1 is acknowledged
    n1 dies
    n3 dies
    n2 is elected, epoch 2
    n1 starts
    n3 starts
    n1 asks for the end of epoch 1: it ends at 1; cut to 1
    n3 asks for the end of epoch 1: it ends at 1; cut to 1
    n1: 0e1
    n2: 0e1
    n3: 0e1
    -> L"""
    )


# -- LB3: old witnesses ---------------------------------------------------------------------------


@pytest.mark.parametrize("names", [(), ("LB3",)])
def test_one_report_against_the_next_leader(names: tuple[str, ...]) -> None:
    world = Conversation(seed=0, bugs=names)
    old, (a, b) = world.first, world.others
    world.report(a)
    world.report(b)
    new = world.first = world.leader(LOG) or ""
    assert new != old
    world.run_for(5000)
    world.listen()
    (other,) = {a, b} - {new}
    world.report(other)
    if not names:
        assert world.decided() == [f"witnesses: {other} of n1 n2 n3"]
        assert world.leader(LOG) == new
    else:
        assert world.decided()[0] == f"witnesses: {a} {b} of n1 n2 n3"
        assert world.leader(LOG) != new, "deposed by a single report"
