"""The controller's bugs, each in the smallest story that shows it: see `core_play`."""

from __future__ import annotations

from pathlib import Path

from core_play import Bug, Play, kind, shows


def test_m21_a_late_copy_of_an_accepted_proposal(tmp_path: Path) -> None:
    """n3 enters the ISR, leaves it again, and enters it once more by the second copy."""

    def story(bug: Bug) -> Play:
        p = Play(bug)
        p.lag("n3")
        p.hold("proposals", kind("alter"))
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

    shows("M21", story, tmp_path, "@M21@", "tail-lost")


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

    shows("M25", story, tmp_path, "@M25@", "lost")
