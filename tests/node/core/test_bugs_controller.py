"""The controller's bugs, each in the smallest story that shows it: see `core_play`."""

from __future__ import annotations

import re
from pathlib import Path

from node.core.bugs import KNOWN_BUGS
from tests.support.core_play import Bug, Play, kind, shows


def test_m21_a_late_copy_of_an_accepted_proposal(tmp_path: Path) -> None:
    """n3 enters the ISR, leaves it again, and enters it once more by the second copy."""

    def story(bug: Bug) -> Play:
        p = Play(bug)
        p.lag("n3")
        p.hold("proposals", kind("alter-partition"))
        p.mend()
        p.wait(700)
        assert len(p.world.held) >= 2
        p.release(first=1, wait_ms=200)
        p.cut("n1-n3", "n2-n3")
        p.write("c", acks=1)
        p.wait(2500)
        p.write("d")
        p.release(wait_ms=10)
        p.kill("n1", "n2")
        p.heal()
        return p

    told = """
        n1 leads epoch 1, ISR n1 n2 n3
        a is acknowledged at 0
        - cut: n1-n3
        b is acknowledged at 1, not as committed
        n1 leads epoch 1, ISR n1 n2
        - held: proposals
        - links mended
        - arrives: the first alter-partition
        n1 leads epoch 1, ISR n1 n2 n3
        - cut: n1-n3 n2-n3
        c is acknowledged at 2, not as committed
        n1 leads epoch 1, ISR n1 n2
        d is acknowledged at 3
        - arrives: alter-partition
        n1 leads epoch 1, ISR n1 n2 n3
        - n1 and n2 die
        n2 leads epoch 2, ISR n2 n3
        n3 leads epoch 3, ISR n3, ELR n2
        - all healed
        n1 cuts 4 -> 2
        n2 cuts 4 -> 2
        n3 leads epoch 3, ISR n1 n3
        n3 leads epoch 3, ISR n1 n2 n3
        z is acknowledged at 2
        read: a b z
    """
    shows("M21", story, tmp_path, told, "tail-lost")


def test_m22_the_preferred_replica_comes_back(tmp_path: Path) -> None:
    """n1 leads as soon as it lives, and lacks what was committed without it."""

    def story(bug: Bug) -> Play:
        p = Play(bug)
        p.kill("n1")
        p.write("b")
        p.drop("answers to n1", kind("fetch-response", to="n1"))
        p.start("n1", wait_ms=1000)
        p.heal()
        return p

    told = """
        n1 leads epoch 1, ISR n1 n2 n3
        a is acknowledged at 0
        - n1 dies
        n2 leads epoch 2, ISR n2 n3
        b is acknowledged at 1
        - lost: answers to n1
        - n1 starts
        n1 leads epoch 3, ISR n1, ELR n2 n3
        n2 cuts 2 -> 1
        n3 cuts 2 -> 1
        n1 leads epoch 3, ISR n1 n2
        n1 leads epoch 3, ISR n1 n2 n3
        - all healed
        z is acknowledged at 1
        read: a z
    """
    shows("M22", story, tmp_path, told, "leader-outside-isr", "lost")


def test_m24_the_new_replicas_count_before_they_have_anything(tmp_path: Path) -> None:
    """n3 is added and has fetched nothing yet. Without the bug n1 stays until n3 has caught up."""

    def story(bug: Bug) -> Play:
        p = Play(bug)
        p.move("n1 n2")
        p.drop("answers to n3", kind("fetch-response", to="n3"))
        p.move("n2 n3")
        p.wait(500)
        p.kill("n2")
        p.heal()
        return p

    told = """
        n1 leads epoch 1, ISR n1 n2 n3
        a is acknowledged at 0
        - to be moved to n1 n2
        n1 leads epoch 2, ISR n1 n2
        - lost: answers to n3
        - to be moved to n2 n3
        n2 leads epoch 3, ISR n2 n3
        - n2 dies
        n3 leads epoch 4, ISR n3, ELR n2
        - all healed
        n2 cuts 1 -> 0
        n3 leads epoch 4, ISR n2 n3
        z is acknowledged at 0
        read: z
    """
    shows("M24", story, tmp_path, told, "lost")


def test_m25_who_was_eligible_is_so_no_longer(tmp_path: Path) -> None:
    """The high watermark moves again without n2."""

    def story(bug: Bug) -> Play:
        p = Play(bug)
        p.kill("n3")
        p.kill("n2")
        p.start("n3", wait_ms=1000)
        p.write("b")
        p.kill("n1", "n3")
        p.start("n2", wait_ms=1000)
        p.heal()
        return p

    told = """
        n1 leads epoch 1, ISR n1 n2 n3
        a is acknowledged at 0
        - n3 dies
        n1 leads epoch 1, ISR n1 n2, ELR n3
        - n2 dies
        n1 leads epoch 1, ISR n1, ELR n2 n3
        - n3 starts
        n1 leads epoch 1, ISR n1 n3, ELR n2
        b is acknowledged at 1
        - n1 and n3 die
        n3 leads epoch 2, ISR n3, ELR n1 n2
        nobody leads, ISR -, ELR n1 n2 n3
        - n2 starts
        n2 leads epoch 4, ISR n2, ELR n1 n3
        - all healed
        n1 cuts 2 -> 1
        n3 cuts 2 -> 1
        n2 leads epoch 4, ISR n1 n2, ELR n3
        n2 leads epoch 4, ISR n1 n2 n3
        z is acknowledged at 1
        read: a z
    """
    shows("M25", story, tmp_path, told, "lost")


def test_every_bug_of_these_families_has_its_story() -> None:
    """The bugs of truncation are in the matrix, those of the quorum and of Liftbridge in tests of
    their own."""
    told = set()
    for file in Path(__file__).parent.glob("test_bugs_*.py"):
        told |= set(re.findall(r'shows\("(\w+)"', file.read_text()))
    codes = [bug.code for bug in KNOWN_BUGS]
    families = codes[codes.index("M4") : codes.index("R1")]
    assert len(families) == 26
    assert set(families) <= told
