"""Voters v1 to v3 of one partition, as the invariant of majorities looks at them: a stage.

Each has three records at first. A log is written as the ends of its batches with their prefix
hashes: `2:bb 3:cc`. The output has each invariant that is violated, and its witnesses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from harness.formats.run_info import Promise
from harness.sim.invariant_checker import InvariantChecker
from harness.sim.state_invariant import MajorityInvariant
from node.core.protocol import QUORUM

P = "log-0"


class MajorityStage:
    """Voters whose logs are made up."""

    def __init__(self) -> None:
        self.nodes: dict[str, Any] = {}
        self.checker = InvariantChecker(self.nodes.get, QUORUM, Promise(), lambda: (1, 1))
        self.majority = MajorityInvariant(self.nodes.get, self.checker)
        self._shown = 0
        for name in ("v1", "v2", "v3"):
            self.has(name, "3:aa")

    def has(self, name: str, *log: str, is_voter: int = 1) -> None:
        """Give a voter this log."""
        ends = {int(end): chain for end, _, chain in (text.partition(":") for text in log)}

        def hash_at(offset: int) -> tuple[int, str]:
            below = max((end for end in ends if end <= offset), default=0)
            return below, ends.get(below, "")

        made = SimpleNamespace(
            start=0,
            leo=max(ends, default=0),
            damage=None,
            hash_at=hash_at,
            hashes=lambda above, upto: [(e, h) for e, h in ends.items() if above < e <= upto],
        )
        r = SimpleNamespace(log=made, role="leader", leader_epoch=2, protocol=QUORUM)
        quorum = SimpleNamespace(voters=("v1", "v2", "v3"), is_voter=bool(is_voter), r=r)
        self.nodes[name] = SimpleNamespace(quorums={P: quorum}, replicas={P: r})

    def down(self, name: str) -> None:
        """End the process of a voter."""
        del self.nodes[name]

    def appends(self, node: str, leo: int, chain: str) -> None:
        """Let a voter append as a follower."""
        event = {"event": "append", "node": node, "partition": P, "leo": leo, "hash": chain}
        self._turn({**event, "role": "follower", "base_offset": 0})

    def commits(self) -> None:
        """Let v1 lead and count 3 records as committed."""
        event = {"event": "hw", "node": "v1", "partition": P, "hw": 3, "leo": 3}
        self._turn({**event, "leader_epoch": 2, "role": "leader", "batch_end": 3, "hash": "aa"})

    def observe(self) -> list[str]:
        """Return the violations since the last command."""
        found = self.checker.violations[self._shown :]
        self._shown += len(found)
        return [f"{v.invariant}: {' '.join(w.node for w in v.witnesses)}" for v in found]

    def _turn(self, event: dict[str, Any]) -> None:
        for observe in (self.checker.turn, self.majority.turn):
            observe(event["node"], [event])
