"""The bugs of who is in sync, each in the smallest story that shows it: see `core_play`."""

from __future__ import annotations

import inspect
from pathlib import Path

from node.core.bugs import KNOWN_BUGS
from tests.support.core_play import Bug, Play, commits, diverging, kind, metadata, shows


def test_m6_the_last_replica_standing(tmp_path: Path) -> None:
    """KIP-966: what is read from a leader alone is not in the log of who else may lead."""

    def story(bug: Bug) -> Play:
        p = Play(bug)
        p.isolate("n2")
        p.isolate("n3")
        p.write("b", acks=1)
        p.read()
        p.kill("n1")
        p.mend()
        p.wait(1000)
        p.heal()
        return p

    told = """
        n1 leads epoch 1, ISR n1 n2 n3
        a is acknowledged at 0
        - n2 is cut off
        n1 leads epoch 1, ISR n1 n3
        - n3 is cut off
        n1 leads epoch 1, ISR n1, ELR n3
        b is acknowledged at 1, not as committed
        read: a b
        - n1 dies
        nobody leads, ISR -, ELR n1 n3
        - links mended
        n3 leads epoch 3, ISR n3, ELR n1
        n3 leads epoch 3, ISR n2 n3
        - all healed
        n1 cuts 2 -> 1
        n3 leads epoch 3, ISR n1 n2 n3
        z is acknowledged at 1
        read: a z
    """
    shows("M6", story, tmp_path, told, "vanished")


def test_m7_a_follower_of_an_older_epoch(tmp_path: Path) -> None:
    """KAFKA-7395: n3 does not hear that n2 led between two epochs of n1, and keeps b."""

    def story(bug: Bug) -> Play:
        p = Play(bug, min_isr=1)
        p.drop("metadata to n3", metadata("n3"))
        p.cut("n1-n2")
        p.write("b", acks=1)
        p.hold("fetches of n3", kind("fetch", "n3"))
        p.move("n2 n1 n3")
        p.elect_preferred()
        p.mend()
        p.wait(100)
        p.move("n1 n2 n3")
        p.elect_preferred()
        p.write("c")
        p.release()
        p.kill("n1", "n2", wait_ms=0)
        p.allow(2500)
        p.heal()
        return p

    told = """
        n1 leads epoch 1, ISR n1 n2 n3
        a is acknowledged at 0
        - lost: metadata to n3
        - cut: n1-n2
        b is acknowledged at 1, not as committed
        - held: fetches of n3
        - to be moved to n2 n1 n3
        n1 leads epoch 2, ISR n2 n1 n3
        - the preferred replica is to lead
        n2 leads epoch 3, ISR n2 n1 n3
        - links mended
        - to be moved to n1 n2 n3
        n2 leads epoch 4, ISR n1 n2 n3
        n1 cuts 2 -> 1
        - the preferred replica is to lead
        n1 leads epoch 5, ISR n1 n2 n3
        - arrives: fetch
        c is acknowledged at 1
        - n1 and n2 die
        - nothing is lost any longer
        n2 leads epoch 6, ISR n2 n3
        n3 leads epoch 7, ISR n3
        - all healed
        n1 cuts 2 -> 1
        n2 cuts 2 -> 1
        n3 leads epoch 7, ISR n1 n3
        n3 leads epoch 7, ISR n1 n2 n3
        z is acknowledged at 2
        read: a b z
    """
    shows("M7", story, tmp_path, told, "lost", "divergence")


def test_m7b_a_follower_that_is_counted_and_then_cuts(tmp_path: Path) -> None:
    """KIP-320's first draft: n3 still follows epoch 2 when n1 leads epoch 4; then it hears of
    epoch 3, and its leader n2, which has not heard that it is none any more, makes it cut b."""

    def story(bug: Bug) -> Play:
        p = Play(bug)
        p.move("n2 n1 n3")
        p.hold("what tells n3 that metadata is committed", commits("n3"))
        p.elect_preferred()
        p.drop("newer metadata to n2", metadata("n2"))
        p.drop("newer metadata to n3", metadata("n3"))
        p.stop("n2")
        p.write("b")
        p.wait(100)
        p.release()
        p.kill("n1", wait_ms=0)
        p.allow(2500)
        p.heal()
        return p

    told = """
        n1 leads epoch 1, ISR n1 n2 n3
        a is acknowledged at 0
        - to be moved to n2 n1 n3
        n1 leads epoch 2, ISR n2 n1 n3
        - held: what tells n3 that metadata is committed
        - the preferred replica is to lead
        n2 leads epoch 3, ISR n2 n1 n3
        - lost: newer metadata to n2
        - lost: newer metadata to n3
        - n2 is asked to stop
        n1 leads epoch 4, ISR n1 n3
        b is acknowledged at 1
        - arrives: fetch-response
        n3 cuts 2 -> 1
        - n1 dies
        - nothing is lost any longer
        n3 leads epoch 5, ISR n3, ELR n1
        - all healed
        n1 cuts 2 -> 1
        n3 leads epoch 5, ISR n2 n3
        n3 leads epoch 5, ISR n2 n1 n3
        z is acknowledged at 1
        read: a z
    """
    shows("M7b", story, tmp_path, told, "lost")


def test_m7c_a_leader_alone_keeps_what_it_acknowledges(tmp_path: Path) -> None:
    """No bug, but what the broker does: the controller cannot reach n1, and elects nobody else,
    because it knows that n1 is alone in its ISR."""
    p = Play(Bug(KNOWN_BUGS[0], on=False), protocol="kafka", min_isr=1)
    p.isolate("n2")
    p.isolate("n3")
    p.cut("n1-v1")
    p.wait(2000)
    p.write("b", to="n1")
    p.mend()
    p.cut("n1-v1")
    p.wait(3000)
    p.heal()
    assert p.judge(tmp_path) == {}
    told = """
        n1 leads epoch 1, ISR n1 n2 n3
        a is acknowledged at 0
        - n2 is cut off
        n1 leads epoch 1, ISR n1 n3
        - n3 is cut off
        n1 leads epoch 1, ISR n1
        - cut: n1-v1
        nobody leads, ISR -, ELR n1
        b is acknowledged at 1
        - links mended
        - cut: n1-v1
        - all healed
        n1 leads epoch 3, ISR n1
        n1 leads epoch 3, ISR n1 n2
        n1 leads epoch 3, ISR n1 n2 n3
        z is acknowledged at 2
        read: a b z
    """
    assert p.text() == inspect.cleandoc(told)


def test_m8_power_fails_everywhere(tmp_path: Path) -> None:
    """flush=sync promises that this costs nothing that was acknowledged."""

    def story(bug: Bug) -> Play:
        p = Play(bug)
        p.flush()
        p.write("b")
        for name in ("n1", "n2", "n3"):
            p.power_cut(name, wait_ms=0)
        p.wait(2000)
        p.heal()
        return p

    told = """
        n1 leads epoch 1, ISR n1 n2 n3
        a is acknowledged at 0
        b is acknowledged at 1
        - power fails at n1: it loses 1 of its records
        - power fails at n2: it loses 1 of its records
        - power fails at n3: it loses 1 of its records
        n2 leads epoch 2, ISR n2 n3
        n3 leads epoch 3, ISR n3, ELR n2
        nobody leads, ISR -, ELR n2 n3
        - all healed
        n2 leads epoch 5, ISR n2, ELR n3
        n2 leads epoch 5, ISR n1 n2
        n2 leads epoch 5, ISR n1 n2 n3
        z is acknowledged at 1
        read: a z
    """
    shows("M8", story, tmp_path, told, "lost")


def test_m9_who_lost_its_tail_keeps_its_place(tmp_path: Path) -> None:
    """One lossy restart of MinISR 2 is within the promise of flush=async."""

    def story(bug: Bug) -> Play:
        p = Play(bug, flush_ms=100_000)
        p.kill("n3")
        p.flush()
        p.write("b")
        p.power_cut("n2")
        p.kill("n1")
        p.start("n2", wait_ms=1000)
        p.heal()
        return p

    told = """
        n1 leads epoch 1, ISR n1 n2 n3
        a is acknowledged at 0
        - n3 dies
        n1 leads epoch 1, ISR n1 n2
        b is acknowledged at 1
        - power fails at n2: it loses 1 of its records
        n1 leads epoch 1, ISR n1, ELR n2
        - n1 dies
        nobody leads, ISR -, ELR n1 n2
        - n2 starts
        n2 leads epoch 3, ISR n2, ELR n1
        - all healed
        n1 cuts 2 -> 1
        n2 leads epoch 3, ISR n2 n3
        n2 leads epoch 3, ISR n1 n2 n3
        z is acknowledged at 1
        read: a z
    """
    shows("M9", story, tmp_path, told, "lost")


def test_m11_a_longer_log_that_diverges_is_counted(tmp_path: Path) -> None:
    """KAFKA-13141: n3 has b and c of epoch 1, which the leader of epoch 2 never had."""

    def story(bug: Bug) -> Play:
        p = Play(bug)
        p.cut("n1-n2")
        p.write("b", "c", acks=1)
        p.drop("diverging answers to n3", diverging("n3"))
        p.kill("n1")
        p.write("d")
        p.kill("n2")
        p.heal()
        return p

    told = """
        n1 leads epoch 1, ISR n1 n2 n3
        a is acknowledged at 0
        - cut: n1-n2
        b is acknowledged at 1, not as committed
        c is acknowledged at 2, not as committed
        - lost: diverging answers to n3
        - n1 dies
        n2 leads epoch 2, ISR n2 n3
        d is acknowledged at 1
        - n2 dies
        n3 leads epoch 3, ISR n3, ELR n2
        - all healed
        n2 cuts 2 -> 1
        n3 leads epoch 3, ISR n1 n3
        n3 leads epoch 3, ISR n1 n2 n3
        z is acknowledged at 3
        read: a b c z
    """
    shows("M11", story, tmp_path, told, "lost")


def test_m12_the_high_watermark_of_another_log(tmp_path: Path) -> None:
    """KAFKA-14704: n3 takes b for committed for a moment."""

    def story(bug: Bug) -> Play:
        p = Play(bug)
        p.cut("n1-n2")
        p.write("b", acks=1)
        p.kill("n1", wait_ms=0)
        p.mend()
        p.cut("n2-n3")
        p.wait(3500)
        p.start("n1", wait_ms=1000)
        p.write("c")
        p.mend()
        p.wait(1000)
        p.heal()
        return p

    told = """
        n1 leads epoch 1, ISR n1 n2 n3
        a is acknowledged at 0
        - cut: n1-n2
        b is acknowledged at 1, not as committed
        - n1 dies
        - links mended
        - cut: n2-n3
        n2 leads epoch 2, ISR n2 n3
        n2 leads epoch 2, ISR n2, ELR n3
        - n1 starts
        n1 cuts 2 -> 1
        n2 leads epoch 2, ISR n1 n2
        c is acknowledged at 1
        - links mended
        n3 cuts 2 -> 1
        n2 leads epoch 2, ISR n1 n2 n3
        - all healed
        z is acknowledged at 2
        read: a c z
    """
    shows("M12", story, tmp_path, told, "divergence")


def test_m13_what_a_follower_had_two_epochs_ago(tmp_path: Path) -> None:
    """KAFKA-13790: n3 had b and c when n1 led epoch 1, and has cut them since."""

    def story(bug: Bug) -> Play:
        p = Play(bug)
        p.cut("n1-n2")
        p.write("b", "c", acks=1)
        p.isolate("n1")
        p.mend()
        p.wait(1000)
        p.cut("n1-n3")
        p.kill("n2")
        p.write("d")
        p.kill("n1")
        p.heal()
        return p

    told = """
        n1 leads epoch 1, ISR n1 n2 n3
        a is acknowledged at 0
        - cut: n1-n2
        b is acknowledged at 1, not as committed
        c is acknowledged at 2, not as committed
        - n1 is cut off
        n2 leads epoch 2, ISR n2 n3
        n3 cuts 3 -> 1
        - links mended
        n1 cuts 3 -> 1
        n2 leads epoch 2, ISR n1 n2 n3
        - cut: n1-n3
        - n2 dies
        n1 leads epoch 3, ISR n1 n3
        d is acknowledged at 1
        - n1 dies
        n3 leads epoch 4, ISR n3, ELR n1
        - all healed
        n1 cuts 2 -> 1
        n3 leads epoch 4, ISR n2 n3
        n3 leads epoch 4, ISR n1 n2 n3
        z is acknowledged at 1
        read: a z
    """
    shows("M13", story, tmp_path, told, "lost")
