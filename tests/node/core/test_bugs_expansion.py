"""The bugs of growing an in-sync set, each in the smallest story that shows it: see `core_play`."""

from __future__ import annotations

from pathlib import Path

from tests.support.core_play import Bug, Play, kind, metadata, shows


def test_m4_who_enters_the_isr_is_another_process_than_who_caught_up(tmp_path: Path) -> None:
    """KIP-903."""

    def story(bug: Bug) -> Play:
        p = Play(bug, flush_ms=100_000)
        p.lag("n3")
        p.flush()
        p.hold("proposals", kind("alter-partition"))
        p.mend()
        p.wait(600)
        p.write("c")
        p.power_cut("n3")
        p.drop("fetches of n3", kind("fetch", "n3"))
        p.start("n3")
        p.release()
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
        c is acknowledged at 2
        - power fails at n3: it loses 2 of its records
        - lost: fetches of n3
        - n3 starts
        - arrives: alter-partition
        n1 leads epoch 1, ISR n1 n2 n3
        - n1 and n2 die
        n2 leads epoch 2, ISR n2 n3
        n3 leads epoch 3, ISR n3, ELR n2
        - all healed
        n1 cuts 3 -> 1
        n2 cuts 3 -> 1
        n3 leads epoch 3, ISR n1 n3
        n3 leads epoch 3, ISR n1 n2 n3
        z is acknowledged at 1
        read: a z
    """
    shows("M4", story, tmp_path, told, "tail-lost")


def test_m4b_a_replica_the_controller_has_given_up(tmp_path: Path) -> None:
    """KIP-841: n3 cannot reach the controller, and n1 goes on to hear of it."""

    def story(bug: Bug) -> Play:
        p = Play(bug)
        p.cut("n3-v1")
        p.wait(2500)
        p.write("b")
        p.heal()
        return p

    told = """
        n1 leads epoch 1, ISR n1 n2 n3
        a is acknowledged at 0
        - cut: n3-v1
        n1 leads epoch 1, ISR n1 n2
        n1 leads epoch 1, ISR n1 n2 n3
        b is acknowledged at 1
        - all healed
        z is acknowledged at 2
        read: a b z
    """
    shows("M4b", story, tmp_path, told, "fenced-in-isr")


def test_m5_an_old_high_watermark_proves_nothing(tmp_path: Path) -> None:
    """KAFKA-7128: n2 has b, but has not been told that it is committed, when it is elected."""

    def story(bug: Bug) -> Play:
        p = Play(bug)
        p.cut("n3-v1")
        p.wait(2000)
        p.cut("n3-n1")
        p.write("b")
        p.kill("n1")
        p.drop("answers to n3", kind("fetch-response", to="n3"))
        p.mend()
        p.wait(1000)
        p.kill("n2")
        p.heal()
        return p

    told = """
        n1 leads epoch 1, ISR n1 n2 n3
        a is acknowledged at 0
        - cut: n3-v1
        n1 leads epoch 1, ISR n1 n2
        - cut: n3-n1
        b is acknowledged at 1
        - n1 dies
        n2 leads epoch 2, ISR n2, ELR n1
        - lost: answers to n3
        - links mended
        n2 leads epoch 2, ISR n2 n3
        - n2 dies
        n3 leads epoch 3, ISR n3, ELR n2
        - all healed
        n1 cuts 2 -> 1
        n2 cuts 2 -> 1
        n3 leads epoch 3, ISR n1 n3
        n3 leads epoch 3, ISR n1 n2 n3
        z is acknowledged at 1
        read: a z
    """
    shows("M5", story, tmp_path, told, "lost")


def test_m5b_in_time_but_not_complete(tmp_path: Path) -> None:
    """n3 has all there was when it last asked, and c is committed since."""

    def story(bug: Bug) -> Play:
        p = Play(bug)
        p.lag("n3")
        p.hold("fetches of n3 behind b", kind("fetch", "n3", offset=2))
        p.mend()
        p.wait(700)
        p.write("c")
        p.drop("answers to n3", kind("fetch-response", to="n3"))
        p.release()
        p.wait(200)
        p.kill("n1", "n2")
        p.heal()
        return p

    told = """
        n1 leads epoch 1, ISR n1 n2 n3
        a is acknowledged at 0
        - cut: n1-n3
        b is acknowledged at 1, not as committed
        n1 leads epoch 1, ISR n1 n2
        - held: fetches of n3 behind b
        - links mended
        c is acknowledged at 2
        - lost: answers to n3
        - arrives: fetch
        n1 leads epoch 1, ISR n1 n2 n3
        - n1 and n2 die
        n2 leads epoch 2, ISR n2 n3
        n3 leads epoch 3, ISR n3, ELR n2
        - all healed
        n1 cuts 3 -> 2
        n2 cuts 3 -> 2
        n3 leads epoch 3, ISR n1 n3
        n3 leads epoch 3, ISR n1 n2 n3
        z is acknowledged at 2
        read: a b z
    """
    shows("M5b", story, tmp_path, told, "lost")


def test_m10_the_controller_knows_of_a_member_and_the_leader_does_not(tmp_path: Path) -> None:
    """KIP-966's book, 6.5.2."""

    def story(bug: Bug) -> Play:
        p = Play(bug)
        p.lag("n3")
        p.hold("proposals", kind("alter-partition"))
        p.mend()
        p.wait(600)
        p.cut("n1-n3", "n2-n3")
        p.write("c")
        p.release(wait_ms=20)
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
        - cut: n1-n3 n2-n3
        c is acknowledged at 2
        - arrives: alter-partition
        n1 leads epoch 1, ISR n1 n2 n3
        - n1 and n2 die
        n2 leads epoch 2, ISR n2 n3
        n3 leads epoch 3, ISR n3, ELR n2
        - all healed
        n1 cuts 3 -> 2
        n2 cuts 3 -> 2
        n3 leads epoch 3, ISR n1 n3
        n3 leads epoch 3, ISR n1 n2 n3
        z is acknowledged at 2
        read: a b z
    """
    shows("M10", story, tmp_path, told, "lost")


def test_m10b_an_answer_that_is_lost_is_no_refusal(tmp_path: Path) -> None:
    def story(bug: Bug) -> Play:
        p = Play(bug)
        p.lag("n3")
        p.drop("answers of the controller to n1", kind("alter-partition-response", to="n1"))
        p.drop("metadata to n1", metadata("n1"))
        p.mend()
        p.wait(600)
        p.cut("n1-n3", "n2-n3")
        p.wait(150)
        p.write("c")
        p.kill("n1", "n2")
        p.heal()
        return p

    told = """
        n1 leads epoch 1, ISR n1 n2 n3
        a is acknowledged at 0
        - cut: n1-n3
        b is acknowledged at 1, not as committed
        n1 leads epoch 1, ISR n1 n2
        - lost: answers of the controller to n1
        - lost: metadata to n1
        - links mended
        n1 leads epoch 1, ISR n1 n2 n3
        - cut: n1-n3 n2-n3
        c is acknowledged at 2
        - n1 and n2 die
        n2 leads epoch 2, ISR n2 n3
        n3 leads epoch 3, ISR n3, ELR n2
        - all healed
        n1 cuts 3 -> 2
        n2 cuts 3 -> 2
        n3 leads epoch 3, ISR n1 n3
        n3 leads epoch 3, ISR n1 n2 n3
        z is acknowledged at 2
        read: a b z
    """
    shows("M10b", story, tmp_path, told, "lost")
