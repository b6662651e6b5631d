"""The bugs of the in-sync set, each in the smallest story that shows it: see `core_play`."""

from __future__ import annotations

from pathlib import Path

from core_play import Bug, Play, diverging, kind, metadata, shows


def test_m4_who_enters_the_isr_is_another_process_than_who_caught_up(tmp_path: Path) -> None:
    """KIP-903."""

    def story(bug: Bug) -> Play:
        p = Play(bug, flush_ms=100_000)
        p.lag("n3")
        p.flush()
        p.hold("proposals", kind("alter"))
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

    shows("M4", story, tmp_path, "@M4@", "tail-lost")


def test_m5_an_old_high_watermark_proves_nothing(tmp_path: Path) -> None:
    """KAFKA-7128: n2 has b, but has not been told that it is committed, when it is elected."""

    def story(bug: Bug) -> Play:
        p = Play(bug)
        p.cut("n3-v1")
        p.wait(2000)
        p.cut("n3-n1")
        p.write("b")
        p.kill("n1")
        p.drop("answers to n3", kind("fetched", to="n3"))
        p.mend()
        p.wait(1000)
        p.kill("n2")
        p.heal()
        return p

    shows("M5", story, tmp_path, "@M5@", "lost")


def test_m5b_in_time_but_not_complete(tmp_path: Path) -> None:
    def story(bug: Bug) -> Play:
        p = Play(bug)
        p.cut("n3-v1")
        p.wait(2000)
        p.drop("answers to n3", kind("fetched", to="n3"))
        p.mend()
        p.write("b")
        p.wait(900)
        p.kill("n1", "n2")
        p.heal()
        return p

    shows("M5b", story, tmp_path, "@M5b@", "lost")


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

    shows("M6", story, tmp_path, "@M6@", "vanished")


def test_m7_a_follower_of_an_older_epoch(tmp_path: Path) -> None:
    """KAFKA-7395: n3 does not hear that n2 led between two epochs of n1, and keeps b."""

    def story(bug: Bug) -> Play:
        p = Play(bug, min_isr=1)
        p.drop("metadata to n3", metadata("n3"))
        p.cut("n1-n2")
        p.write("b", acks=1)
        p.isolate("n1")
        p.wait(1500)
        p.write("c")
        p.mend()
        p.wait(1000)
        p.kill("n2")
        p.wait(500)
        p.write("d")
        p.wait(100)
        p.kill("n1", wait_ms=0)
        p.allow(3000)
        p.heal()
        return p

    shows("M7", story, tmp_path, "@M7@", "lost", "divergence")


def test_m7b_a_follower_that_is_counted_and_then_cuts(tmp_path: Path) -> None:
    """KIP-320's first draft: n3 still follows epoch 1 when n1 leads epoch 3; then it hears of
    epoch 2, and its leader n2, which is cut off from the controller only, makes it cut b."""

    def story(bug: Bug) -> Play:
        p = Play(bug)
        p.hold("metadata to n3", metadata("n3"))
        p.isolate("n1")
        p.wait(1200)
        heard_of_epoch_2 = p.world.held[-2:]
        p.mend()
        p.wait(2500)
        p.cut("n2-v1")
        p.wait(2000)
        p.write("b")
        p.wait(200)
        p.drop("newer metadata to n3", metadata("n3"))
        p.world.held = heard_of_epoch_2
        p.release()
        p.kill("n1", wait_ms=0)
        p.allow(2500)
        p.heal()
        return p

    shows("M7b", story, tmp_path, "@M7b@", "lost")


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

    shows("M8", story, tmp_path, "@M8@", "lost")


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

    shows("M9", story, tmp_path, "@M9@", "lost")


def test_m10_the_controller_knows_of_a_member_and_the_leader_does_not(tmp_path: Path) -> None:
    """KIP-966's book, 6.5.2."""

    def story(bug: Bug) -> Play:
        p = Play(bug)
        p.lag("n3")
        p.hold("proposals", kind("alter"))
        p.mend()
        p.wait(600)
        p.cut("n1-n3", "n2-n3")
        p.write("c")
        p.release(wait_ms=20)
        p.kill("n1", "n2")
        p.heal()
        return p

    shows("M10", story, tmp_path, "@M10@", "lost")


def test_m10b_an_answer_that_is_lost_is_no_refusal(tmp_path: Path) -> None:
    def story(bug: Bug) -> Play:
        p = Play(bug)
        p.lag("n3")
        p.drop("answers of the controller to n1", kind("altered", to="n1"))
        p.drop("metadata to n1", metadata("n1"))
        p.mend()
        p.wait(600)
        p.cut("n1-n3", "n2-n3")
        p.wait(150)
        p.write("c")
        p.kill("n1", "n2")
        p.heal()
        return p

    shows("M10b", story, tmp_path, "@M10b@", "lost")


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

    shows("M11", story, tmp_path, "@M11@", "lost")


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

    shows("M12", story, tmp_path, "@M12@", "divergence")


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

    shows("M13", story, tmp_path, "@M13@", "lost")
