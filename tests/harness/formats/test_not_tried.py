"""Sentences on faults that a search or a nightly run has not tried."""

from __future__ import annotations

from harness.formats.not_tried import in_words, never_met


def test_pairs_that_never_came_are_named() -> None:
    coverage = {
        "kill/leader/in-sync": 3,
        "kill/follower/isr-short": 1,
        "kill/none/leaderless": 1,
        "cut/leader/in-sync": 2,
        "cut/leader/leaderless": 0,
    }
    found = never_met(coverage, ("kill", "cut", "pause"))
    assert found == ["cut (an ISR short, no leader)", "pause"]


def test_a_long_list_is_cut() -> None:
    assert in_words([]) == ""
    assert in_words(["kill", "cut"], 2) == "kill, cut"
    assert in_words(["kill", "cut", "pause"], 1) == "kill and 2 more"
