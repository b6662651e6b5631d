"""Sentences on faults that a search or a nightly run has not tried."""

from __future__ import annotations

from harness.formats.nightly_run import in_words, never_met, rate_of_new


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


def test_the_rate_of_new_is_the_share_of_what_was_met_once() -> None:
    assert rate_of_new({}) == 1.0
    assert rate_of_new({"kill/leader/in-sync": 7, "kill/follower/in-sync": 1}) == 1 / 8
    assert rate_of_new({"kill/leader/in-sync": 7}) == 0.0
