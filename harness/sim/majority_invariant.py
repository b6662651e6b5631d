"""Invariants of a partition whose leader is elected by votes, checked at every step: a majority of
the voters has all committed records, and a leader commits a record of its own term first.

Clients see such a violation only later: voters that lack a committed record can elect a leader
without it, and a record of an earlier term can be truncated by a leader of a term between (Raft,
section 5.4.2 and figure 8). The metadata partition always elects its leader by votes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from checker.formats.verdict import Witness
from harness.sim.invariant_checker import InvariantChecker
from node.core.broker import Broker
from node.core.quorum import Quorum
from node.formats import trace
from node.formats.trace import TraceEvent

_MAY_LACK = frozenset({trace.APPEND, trace.TRUNCATED, trace.ROLE})


class MajorityInvariant:
    """A check of each turn's trace events after `checker`, which says what is committed.
    `broker(name)` returns a node's running core. A voter that is down counts as having what it last
    had. One that knows that it lost data does not vote, and counts as having everything."""

    def __init__(self, broker: Callable[[str], Broker | None], checker: InvariantChecker) -> None:
        self._broker = broker
        self._checker = checker
        # Log end of each voter and partition, and the prefix hash there, as last traced.
        self._ends: dict[tuple[str, str], tuple[int, str]] = {}

    def turn(self, node: str, events: Iterable[TraceEvent]) -> None:
        """Check the invariants that the trace events of a node's turn may have broken."""
        for event in events:
            kind = event["event"]
            if kind == trace.HW:
                if event["role"] == "leader":
                    self._on_commit(node, event)
            elif kind in _MAY_LACK:
                partition = event["partition"]
                if "hash" in event:
                    self._ends[node, partition] = (event["leo"], event["hash"])
                quorum = self._quorum(node, partition)
                if quorum is not None and event["leo"] <= self._checker.committed(partition)[0]:
                    self._on_majority(quorum, partition)

    def _quorum(self, node: str, partition: str) -> Quorum | None:
        broker = self._broker(node)
        return None if broker is None else broker.quorums.get(partition)

    def _on_commit(self, node: str, event: TraceEvent) -> None:
        partition = event["partition"]
        quorum = self._quorum(node, partition)
        if quorum is None:
            return
        r = quorum.r
        leads = r.role == "leader" and r.leader_epoch == event["leader_epoch"]
        last = event["hw"] - 1
        old = r.log.start <= last < r.log.leo and 0 <= r.log.epoch_at(last) < r.leader_epoch
        if leads and old and not r.protocol.counts_old_terms:
            self._checker.violated(
                "commits-own-term-first",
                partition,
                f"{node} leads {partition} in term {r.leader_epoch}, and counted "
                f"what is below {event['hw']} as committed before a record of that term",
                [
                    Witness(what="leader", node=node, offset=r.leso, epoch=r.leader_epoch),
                    *self._would_win(quorum, partition, event["hw"]),
                ],
            )
        self._on_majority(quorum, partition)

    def _would_win(self, quorum: Quorum, partition: str, hw: int) -> Iterator[Witness]:
        """Yield the voters whose logs end in a later term, without the committed records."""
        log = quorum.r.log
        epoch = log.epoch_at(hw - 1) if log.start < hw else log.last_epoch
        for voter in quorum.voters:
            other = self._quorum(voter, partition)
            if other is None or not other.is_voter or other.r.log.last_epoch <= epoch:
                continue
            if other.r.log.hash_at(hw) != log.hash_at(hw):
                yield Witness(what="log end", node=voter, epoch=other.r.log.last_epoch)

    def _on_majority(self, quorum: Quorum, partition: str) -> None:
        """Check that a majority of the voters have all committed records, or do not vote."""
        hw, chain = self._checker.committed(partition)
        lacking = [v for v in quorum.voters if hw and self._lacks(v, partition, hw, chain)]
        if 2 * len(lacking) < len(quorum.voters):
            return
        self._checker.violated(
            "committed-on-majority",
            partition,
            f"{hw} is committed in {partition}, but voters {' '.join(lacking)} of "
            f"{' '.join(quorum.voters)} lack it",
            [Witness(what="log end", node=voter) for voter in lacking],
        )

    def _lacks(self, voter: str, partition: str, hw: int, chain: str) -> bool:
        broker = self._broker(voter)
        if broker is None:
            leo, last = self._ends.get((voter, partition), (0, ""))
            return leo < hw or (leo == hw and last != chain)
        quorum = broker.quorums.get(partition)
        if quorum is None or not quorum.is_voter or quorum.r.log.damage is not None:
            return False
        log = quorum.r.log
        return log.start <= hw and log.hash_at(hw) != (hw, chain)
