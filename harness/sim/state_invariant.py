"""Invariants between what a node believes and what is so, checked at every step.

What a node traces and its messages may say is synced to its disk; a log in memory is the one that a
restart would load; votes come from voters that lost nothing. (That a log is the leader's up to its
end, and a high watermark committed, follows from the rules of steps.)
Of a partition whose leader is elected by votes, a majority of the voters has all committed records.
(The metadata partition always is one.)

Clients see such a violation only if more happens: a crash at the right time, another leader. Voters
that lack a committed record can elect a leader without it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from checker.formats.verdict import Witness
from harness.sim.before import replica_of
from harness.sim.disk import SimDisk
from harness.sim.invariant_checker import InvariantChecker
from node.core.batch import HEADER
from node.core.broker import Broker
from node.core.log import Log
from node.core.quorum import Quorum
from node.core.replica import Replica
from node.formats import trace
from node.formats.trace import METADATA_PARTITION, TraceEvent

_RELOADS = frozenset({trace.TRUNCATED, trace.DELETED, trace.ROLE})
_STATE = frozenset({*_RELOADS, trace.APPEND, trace.HW, trace.VOTE, trace.DAMAGED})
_MAY_LACK = frozenset({trace.APPEND, trace.TRUNCATED, trace.ROLE})
_Place = tuple[str, str]
"""A node and a partition."""


class StateInvariant:
    """A check of each turn's trace events, before `checker` has seen them. `broker(name)` returns a
    node's running core, `disk(name)` its disk."""

    def __init__(
        self,
        broker: Callable[[str], Broker | None],
        disk: Callable[[str], SimDisk],
        checker: InvariantChecker,
    ) -> None:
        self._broker = broker
        self._disk = disk
        self._checker = checker
        self._replicas: dict[_Place, Replica] = {}
        # Log ends that voters had on disk, and the hash there; their terms; terms of their losses.
        self._ends: dict[_Place, tuple[int, str]] = {}
        self._terms: dict[_Place, int] = {}
        self._lost: dict[_Place, int] = {}

    def turn(self, node: str, events: Sequence[TraceEvent]) -> None:
        """Check the invariants that the trace events of a node's turn may have broken."""
        broker = self._broker(node)
        if broker is None:
            return
        seen: dict[str, set[str]] = {}
        for event in events:
            if event["event"] in _STATE and (partition := event.get("partition")):
                seen.setdefault(partition, set()).add(event["event"])
                if (quorum := broker.quorums.get(partition)) is not None:
                    self._losses(node, quorum.r, event)
                    self._vote(node, quorum, event)
        for partition, kinds in seen.items():
            r, quorum = replica_of(broker, partition), broker.quorums.get(partition)
            if quorum is not None and node in quorum.voters:
                self._voter(node, quorum)
            if r is None or r.log.damage is not None:
                continue
            if kinds & _RELOADS:
                self._reloaded(node, broker, r)
            # If a turn is traced before its commit, the next one shows what it wrote.
            if not self._disk(node).is_uncommitted:
                self._is_synced(node, broker, r)
                self._ends[node, partition] = (r.leo, r.log.chain.hex())
                self._terms[node, partition] = r.leader_epoch

    # -- disks

    def _is_synced(self, node: str, broker: Broker, r: Replica) -> None:
        """Check that a log is on its disk, if it is to be synced in each turn."""
        if r.partition == METADATA_PARTITION or broker.ctx.config.flush_interval_ms == 0:
            last = self._disk(node).synced_base(r.partition)
            bases = r.log.places(r.leo - 1)
            if bases and last != bases[-1][0]:
                self._violated("traced-is-synced", node, r, f"{node} did not sync its log")

    def _voter(self, node: str, quorum: Quorum) -> None:
        """Check that a voter which has lost records is none until it has them again, and is none
        after a restart either."""
        r, disk = quorum.r, self._disk(node)
        if quorum.is_voter and ((node, r.partition) in self._lost or r.log.damage is not None):
            what = f"{node} has lost records of {r.partition}, and votes before it has them again"
            self._violated("votes-with-all", node, r, what)
        elif not quorum.is_voter and not disk.is_uncommitted and not disk.synced_out(r.partition):
            what = f"{node} may not vote for {r.partition}, and did not sync that"
            self._violated("traced-is-synced", node, r, what)

    def _vote(self, node: str, quorum: Quorum, event: TraceEvent) -> None:
        """Check the vote that a voter grants, or gives itself as a candidate."""
        if event["event"] == trace.VOTE and not event["pre"]:
            candidate, term = event["candidate"], event["term"]
        elif event["event"] == trace.ROLE and event["role"] == "candidate":
            candidate, term = node, event["leader_epoch"]
        else:
            return
        r = quorum.r
        synced = self._disk(node).synced_vote(r.partition)
        if r.leader_epoch == term and synced != (term, candidate):
            what = f"{node} did not sync its vote for {candidate} in term {term}"
            self._violated("traced-is-synced", node, r, what)

    def _losses(self, node: str, r: Replica, event: TraceEvent) -> None:
        """Note a loss: a new process has another log than the last one had, or a damaged one. After
        a first one a replica has no vote, so a second one takes nothing that counts."""
        place = node, r.partition
        term, end = self._terms.get(place, r.leader_epoch), self._ends.get(place)
        if self._replicas.get(place) is not r:
            self._replicas[place] = r
            if self._disk(node).blamed and end is not None and not _has(r.log, end):
                self._lost.setdefault(place, term)
        if event["event"] == trace.DAMAGED and event["offset"] >= 0:
            self._lost.setdefault(place, term)
        elif place in self._lost and r.log.damage is None and r.log.last_epoch > self._lost[place]:
            del self._lost[place]

    def _reloaded(self, node: str, broker: Broker, r: Replica) -> None:
        """Check that a restart would load the log that this process has."""
        log, storage = r.log, broker.ctx.storage
        found = Log(r.partition, storage, durable=log.durable)
        with_records = [(e, start) for e, start in log.cache.entries() if start < log.leo]
        here = log.leo, log.chain, with_records, list(log.produced())
        loaded = found.leo, found.chain, found.cache.entries(), list(found.produced())
        differs = here != loaded
        if not differs:  # Else a batch that is in memory may not be there to read.
            bases = [base for base, _ in log.places(log.start)]
            stamps = [HEADER.unpack_from(storage.read(r.partition, base))[0] for base in bases]
            differs = bases != stamps
        if differs:
            what = f"{node} has another log of {r.partition} in memory than on its disk"
            self._violated("log-as-on-disk", node, r, what)

    def _violated(self, invariant: str, node: str, r: Replica, sentence: str) -> None:
        witness = Witness(what="log end", node=node, offset=r.leo, epoch=r.log.last_epoch)
        self._checker.violated(invariant, r.partition, sentence, [witness])


def _has(log: Log, end: tuple[int, str]) -> bool:
    """Return whether a log has the prefix with this end and hash, or began later."""
    return end[0] < log.start or log.hash_at(end[0]) == end


class MajorityInvariant:
    """A check of each turn's trace events after `checker`, which says what is committed.
    `broker(name)` returns a node's running core. A voter that is down counts as having what it last
    had. One that knows that it lost data does not vote, and counts as having everything."""

    def __init__(self, broker: Callable[[str], Broker | None], checker: InvariantChecker) -> None:
        self._broker = broker
        self._checker = checker

    def turn(self, node: str, events: Iterable[TraceEvent]) -> None:
        """Check the invariants that the trace events of a node's turn may have broken."""
        for event in events:
            kind, partition = event["event"], event.get("partition", "")
            commits = kind == trace.HW and event["role"] == "leader"
            quorum = self._quorum(node, partition) if commits or kind in _MAY_LACK else None
            if quorum is None:
                continue
            if commits or event["leo"] <= self._checker.committed(partition)[0]:
                self._on_majority(quorum, partition)

    def _quorum(self, node: str, partition: str) -> Quorum | None:
        broker = self._broker(node)
        return None if broker is None else broker.quorums.get(partition)

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
            leo, last = self._checker.end_of(partition, voter)
            return leo < hw or (leo == hw and last not in ("", chain))
        quorum = broker.quorums.get(partition)
        if quorum is None or not quorum.is_voter or quorum.r.log.damage is not None:
            return False
        log = quorum.r.log
        return log.start <= hw and log.hash_at(hw) != (hw, chain)
