"""The bugs of the high watermark, each in the smallest story that shows it: see `core_play`."""

from __future__ import annotations

from pathlib import Path

from tests.support.core_play import Bug, Play, diverging, kind, shows


def test_m16_a_diverging_answer_from_two_epochs_ago(tmp_path: Path) -> None:
    """n3 diverged when n2 led epoch 2, but led epoch 3 itself, and its b was committed. Now that n2
    leads epoch 4, n3's log ends where it ended then, and the answer to that question comes."""

    def story(bug: Bug) -> Play:
        p = Play(bug)
        p.cut("n1-n2")
        p.write("b", acks=1)
        p.hold("diverging answers to n3", diverging("n3"))
        p.kill("n1")
        p.isolate("n2")
        p.mend()
        p.wait(1000)
        p.read()
        p.isolate("n3")
        p.mend()
        p.wait(1000)
        p.kill("n2", wait_ms=0)
        p.release(wait_ms=2000)
        p.heal()
        return p

    told = """
        n1 leads epoch 1, ISR n1 n2 n3
        a is acknowledged at 0
        - cut: n1-n2
        b is acknowledged at 1, not as committed
        - held: diverging answers to n3
        - n1 dies
        n2 leads epoch 2, ISR n2 n3
        - n2 is cut off
        n3 leads epoch 3, ISR n3, ELR n2
        - links mended
        n3 leads epoch 3, ISR n2 n3
        read: a b
        - n3 is cut off
        n2 leads epoch 4, ISR n2, ELR n3
        - links mended
        n2 leads epoch 4, ISR n2 n3
        - n2 dies
        - arrives: fetch-response
        n3 cuts 2 -> 1
        n3 leads epoch 5, ISR n3, ELR n2
        - all healed
        n1 cuts 2 -> 1
        n2 cuts 2 -> 1
        n3 leads epoch 5, ISR n1 n3
        n3 leads epoch 5, ISR n1 n2 n3
        z is acknowledged at 1
        read: a z
    """
    shows("M16", story, tmp_path, told, "vanished", "incomplete-leader")


def test_m16_records_from_two_epochs_ago(tmp_path: Path) -> None:
    """Where a fetch does not tell the last epoch, nothing shows n3 afterwards that b is no longer
    in the log of n1. (Where it does, the next fetch diverges, and b is cut again.)"""

    def story(bug: Bug) -> Play:
        p = Play(bug, min_isr=1, protocol="kip-279")
        p.hold("answers of n1 to n3", kind("fetch-response", "n1", "n3"))
        p.cut("n1-n2")
        p.write("b", acks=1)
        p.isolate("n1", wait_ms=0)
        p.cut("n2-n3")
        p.wait(3500)
        p.write("c")
        p.mend()
        p.cut("n2-n3")
        p.wait(1000)
        p.kill("n2")
        p.release(first=1)
        p.world.held.clear()
        p.wait(1000)
        p.write("d")
        p.heal()
        return p

    told = """
        n1 leads epoch 1, ISR n1 n2 n3
        a is acknowledged at 0
        - held: answers of n1 to n3
        - cut: n1-n2
        b is acknowledged at 1, not as committed
        - n1 is cut off
        - cut: n2-n3
        n2 leads epoch 2, ISR n2 n3
        n2 leads epoch 2, ISR n2
        c is acknowledged at 1
        - links mended
        - cut: n2-n3
        n1 cuts 2 -> 1
        n2 leads epoch 2, ISR n1 n2
        - n2 dies
        n1 leads epoch 3, ISR n1
        - arrives: the first fetch-response
        n1 leads epoch 3, ISR n1 n3
        d is acknowledged at 2
        - all healed
        n1 leads epoch 3, ISR n1 n2 n3
        z is acknowledged at 3
        read: a c d z
    """
    shows("M16", story, tmp_path, told, "divergence")


def test_m17_a_deposed_leader_has_nothing_to_acknowledge(tmp_path: Path) -> None:
    """KAFKA-20634."""

    def story(bug: Bug) -> Play:
        p = Play(bug)
        p.isolate("n1", wait_ms=0)
        p.write("b", to="n1")
        p.wait(2000)
        p.write("c")
        p.mend()
        p.wait(1000)
        p.heal()
        return p

    told = """
        n1 leads epoch 1, ISR n1 n2 n3
        a is acknowledged at 0
        - n1 is cut off
        n2 leads epoch 2, ISR n2 n3
        c is acknowledged at 1
        - links mended
        c is acknowledged at 1
        n1 cuts 2 -> 1
        n2 leads epoch 2, ISR n1 n2 n3
        - all healed
        z is acknowledged at 2
        read: a c z
    """
    shows("M17", story, tmp_path, told, "lost")


def test_m18_acknowledged_before_anybody_has_it(tmp_path: Path) -> None:
    """Redpanda #6018."""

    def story(bug: Bug) -> Play:
        p = Play(bug)
        p.cut("n1-n2", "n1-n3")
        p.write("b")
        p.kill("n1")
        p.heal()
        return p

    told = """
        n1 leads epoch 1, ISR n1 n2 n3
        a is acknowledged at 0
        - cut: n1-n2 n1-n3
        b is acknowledged at 1
        - n1 dies
        n2 leads epoch 2, ISR n2 n3
        - all healed
        n1 cuts 2 -> 1
        n2 leads epoch 2, ISR n1 n2 n3
        z is acknowledged at 1
        read: a z
    """
    shows("M18", story, tmp_path, told, "lost")


def test_m19_read_before_anybody_has_it(tmp_path: Path) -> None:
    """Redpanda #14794."""

    def story(bug: Bug) -> Play:
        p = Play(bug)
        p.cut("n1-n2", "n1-n3")
        p.write("b")
        p.read()
        p.kill("n1")
        p.heal()
        return p

    told = """
        n1 leads epoch 1, ISR n1 n2 n3
        a is acknowledged at 0
        - cut: n1-n2 n1-n3
        read: a b
        - n1 dies
        n2 leads epoch 2, ISR n2 n3
        - all healed
        n1 cuts 2 -> 1
        n2 leads epoch 2, ISR n1 n2 n3
        z is acknowledged at 1
        read: a z
    """
    shows("M19", story, tmp_path, told, "read-beyond-hw", "vanished")


def test_m20_the_leader_waits_for_nobody(tmp_path: Path) -> None:
    def story(bug: Bug) -> Play:
        p = Play(bug)
        p.cut("n1-n2", "n1-n3")
        p.write("b")
        p.kill("n1")
        p.write("c")
        p.heal()
        return p

    told = """
        n1 leads epoch 1, ISR n1 n2 n3
        a is acknowledged at 0
        - cut: n1-n2 n1-n3
        b is acknowledged at 1
        - n1 dies
        n2 leads epoch 2, ISR n2 n3
        c is acknowledged at 1
        - all healed
        n1 cuts 2 -> 1
        n2 leads epoch 2, ISR n1 n2 n3
        z is acknowledged at 2
        read: a c z
    """
    shows("M20", story, tmp_path, told, "lost")


def test_m23_a_second_copy_of_an_answer(tmp_path: Path) -> None:
    """n3 asks twice where it diverges; the second answer comes after c and d, and cuts them."""

    def story(bug: Bug) -> Play:
        p = _asked_twice(bug)
        p.write("c", "d")
        p.kill("n2", wait_ms=0)
        p.release(wait_ms=2000)
        p.heal()
        return p

    told = """
        n1 leads epoch 1, ISR n1 n2 n3
        a is acknowledged at 0
        - cut: n1-n2
        b is acknowledged at 1, not as committed
        - held: diverging answers to n3
        - n1 dies
        n2 leads epoch 2, ISR n2 n3
        - arrives: the first fetch-response
        n3 cuts 2 -> 1
        c is acknowledged at 1
        d is acknowledged at 2
        - n2 dies
        - arrives: fetch-response
        n3 cuts 3 -> 1
        n3 leads epoch 3, ISR n3, ELR n2
        - all healed
        n1 cuts 2 -> 1
        n2 cuts 3 -> 1
        n3 leads epoch 3, ISR n1 n3
        n3 leads epoch 3, ISR n1 n2 n3
        z is acknowledged at 1
        read: a z
    """
    shows("M23", story, tmp_path, told, "lost")


def test_m23b_a_second_copy_of_an_answer_at_the_same_offset(tmp_path: Path) -> None:
    """The same, when n3's log ends where it ended then: the offset alone does not tell."""

    def story(bug: Bug) -> Play:
        p = _asked_twice(bug)
        p.write("c")
        p.kill("n2", wait_ms=0)
        p.release(wait_ms=2000)
        p.heal()
        return p

    told = """
        n1 leads epoch 1, ISR n1 n2 n3
        a is acknowledged at 0
        - cut: n1-n2
        b is acknowledged at 1, not as committed
        - held: diverging answers to n3
        - n1 dies
        n2 leads epoch 2, ISR n2 n3
        - arrives: the first fetch-response
        n3 cuts 2 -> 1
        c is acknowledged at 1
        - n2 dies
        - arrives: fetch-response
        n3 cuts 2 -> 1
        n3 leads epoch 3, ISR n3, ELR n2
        - all healed
        n1 cuts 2 -> 1
        n2 cuts 2 -> 1
        n3 leads epoch 3, ISR n1 n3
        n3 leads epoch 3, ISR n1 n2 n3
        z is acknowledged at 1
        read: a z
    """
    shows("M23b", story, tmp_path, told, "lost")


def _asked_twice(bug: Bug) -> Play:
    """n2 leads epoch 2, n3 has a record b of epoch 1 too many, and has asked about it twice: one
    answer arrived, the other is under way."""
    p = Play(bug)
    p.cut("n1-n2")
    p.write("b", acks=1)
    p.hold("diverging answers to n3", diverging("n3"))
    p.kill("n1")
    p.wait(600)
    assert len(p.world.held) >= 2
    p.release(first=1, wait_ms=1000)
    return p


def test_m26_a_high_watermark_beyond_the_log(tmp_path: Path) -> None:
    """Only an unclean election makes a follower cut below its high watermark. The next answer of
    its leader mends it, so the story ends before that."""

    def story(bug: Bug) -> Play:
        p = Play(bug, unclean=True)
        p.isolate("n3")
        p.write("b")
        p.wait(600)
        p.kill("n1", "n2")
        p.mend()
        p.wait(1000)
        p.drop(
            "answers to n2 that are not diverging",
            lambda a, b, m: (
                kind("fetch-response", to="n2")(a, b, m) and not diverging("n2")(a, b, m)
            ),
        )
        p.start("n2", wait_ms=2000)
        p.start("n1", wait_ms=1000)
        return p

    told = """
        n1 leads epoch 1, ISR n1 n2 n3
        a is acknowledged at 0
        - n3 is cut off
        n1 leads epoch 1, ISR n1 n2
        b is acknowledged at 1
        - n1 and n2 die
        n2 leads epoch 2, ISR n2, ELR n1
        nobody leads, ISR -, ELR n1 n2
        - links mended
        n3 leads epoch 4, ISR n3
        - lost: answers to n2 that are not diverging
        - n2 starts
        n2 cuts 2 -> 1
        n3 leads epoch 4, ISR n2 n3
        - n1 starts
        n1 cuts 2 -> 1
        n3 leads epoch 4, ISR n1 n2 n3
    """
    shows("M26", story, tmp_path, told, "hw-beyond-log")
