"""Violations inside a cluster of voters, before any client can see them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness.formats.run_info import Promise
from harness.sim.invariant_checker import InvariantChecker
from harness.sim.majority_invariant import MajorityInvariant
from node.core.protocol import QUORUM

P = "log-0"


class Voters:
    """Voters v1 to v3 of one partition, as the invariant looks at them."""

    def __init__(self) -> None:
        self.nodes: dict[str, Any] = {}
        self.checker = InvariantChecker(self.nodes.get, QUORUM, Promise(), lambda: (1, 1))
        self.majority = MajorityInvariant(self.nodes.get, self.checker)
        for name in ("v1", "v2", "v3"):
            self.has(name, {3: "aa"})

    def has(self, name: str, ends: dict[int, str], **state: Any) -> None:
        """Voter `name` has batches that end there, with these prefix hashes."""
        leo = max(ends, default=0)

        def hash_at(offset: int) -> tuple[int, str]:
            below = max((end for end in ends if end <= offset), default=0)
            return below, ends.get(below, "")

        log = SimpleNamespace(
            start=0,
            leo=leo,
            damage=None,
            last_epoch=state.pop("last_epoch", 1),
            hash_at=hash_at,
            hashes=lambda above, upto: [(e, h) for e, h in ends.items() if above < e <= upto],
            epoch_at=lambda offset: 1,
        )
        r = SimpleNamespace(
            log=log, role="leader", leader_epoch=2, leso=state.pop("leso", 2), protocol=QUORUM
        )
        quorum = SimpleNamespace(
            voters=("v1", "v2", "v3"), is_voter=state.pop("is_voter", True), r=r
        )
        self.nodes[name] = SimpleNamespace(quorums={P: quorum}, replicas={P: r})

    def appends(self, node: str, leo: int, chain: str) -> None:
        event = {"event": "append", "node": node, "partition": P, "leo": leo, "hash": chain}
        self.turn({**event, "role": "follower", "base_offset": 0})

    def commits(self) -> list[str]:
        """v1 leads and counts 3 records as committed; returns what is violated then."""
        event = {"event": "hw", "node": "v1", "partition": P, "hw": 3, "leo": 3}
        self.turn({**event, "leader_epoch": 2, "role": "leader", "batch_end": 3, "hash": "aa"})
        return [violation.invariant for violation in self.checker.violations]

    def turn(self, event: dict[str, Any]) -> None:
        for observe in (self.checker.turn, self.majority.turn):
            observe(event["node"], [event])


OUT = {"is_voter": False}


@pytest.mark.parametrize(
    ("second", "third", "lack"),
    [
        pytest.param(({3: "aa"}, {}), ({}, {}), [], id="a majority has it"),
        pytest.param(({2: "bb"}, {}), ({3: "cc"}, {}), ["v2", "v3"], id="one voter has it"),
        pytest.param(({}, OUT), ({}, {}), [], id="a voter that is out takes nothing"),
    ],
)
def test_a_committed_record_is_on_a_majority(second: Any, third: Any, lack: list[str]) -> None:
    voters = Voters()
    voters.has("v2", second[0], **second[1])
    voters.has("v3", third[0], **third[1])
    assert voters.commits() == ["committed-on-majority"] * bool(lack)
    found = [w.node for violation in voters.checker.violations for w in violation.witnesses]
    assert found == lack


def test_a_voter_that_votes_again_too_soon_takes_a_record_from_the_majority() -> None:
    voters = Voters()
    voters.has("v2", {}, is_voter=False)
    voters.has("v3", {})
    voters.commits()
    voters.has("v2", {1: "dd"})
    voters.appends("v2", 1, "dd")
    assert [v.invariant for v in voters.checker.violations] == ["committed-on-majority"]


@pytest.mark.parametrize(("leo", "broken"), [(3, []), (2, ["committed-on-majority"])])
def test_a_voter_that_is_down_has_what_it_last_had(leo: int, broken: list[str]) -> None:
    voters = Voters()
    voters.has("v3", {})
    voters.appends("v2", leo, "aa")
    del voters.nodes["v2"]
    assert voters.commits() == broken


@pytest.mark.parametrize("later", [1, 2])
def test_a_leader_that_commits_before_a_record_of_its_term(later: int) -> None:
    voters = Voters()
    voters.has("v1", {3: "aa"}, leso=3)
    voters.has("v3", {2: "ee"}, last_epoch=later)
    assert voters.commits() == ["commits-own-term-first"]
    # Who would win has a log of a later term than the record.
    would_win = [w.node for w in voters.checker.violations[0].witnesses[1:]]
    assert would_win == (["v3"] if later > 1 else [])
