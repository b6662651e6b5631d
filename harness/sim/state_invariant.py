"""Invariants between what a node believes and what is so, checked at every step.

What a leader counts for a follower is in that follower's log; what lies below a high watermark is
committed; what a node traces and its messages may say is synced to its disk; a log in memory is the
one that a restart would load; batches that have epoch and end in common end equal logs (the Log
Matching Property of Raft); votes come from voters that lost nothing.
Of a partition whose leader is elected by votes, a majority of the voters has all committed records,
and a leader commits a record of its own term first. (The metadata partition always is one.)

Clients see such a violation only if more happens: a crash at the right time, another leader. Voters
that lack a committed record can elect a leader without it, and a record of an earlier term can be
truncated by a leader of a term between (Raft, section 5.4.2 and figure 8)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

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

_LEADS = frozenset({trace.APPEND, trace.HW, trace.ISR, trace.PROPOSED})
_RELOADS = frozenset({trace.TRUNCATED, trace.DELETED, trace.ROLE})
_STATE = frozenset({*_LEADS, *_RELOADS, trace.VOTE, trace.DAMAGED})
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
        # The prefix hash at the end of each batch, by partition, epoch and end; and who had it.
        self._batches: dict[tuple[str, int, int], tuple[str, str, int]] = {}
        # The highest high watermark that any leader of a partition had.
        self._hw: dict[str, int] = {}
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
                self._event(node, broker, event)
        for partition, kinds in seen.items():
            r, quorum = replica_of(broker, partition), broker.quorums.get(partition)
            if quorum is not None and node in quorum.voters:
                self._voter(node, quorum)
            if r is None or r.log.damage is not None:
                continue
            if kinds & _LEADS and r.role == "leader" and self._checker.committed_stays:
                self._counted(node, broker, r)
            if kinds & _RELOADS:
                self._reloaded(node, broker, r)
            # If a turn is traced before its commit, the next one shows what it wrote.
            if not self._disk(node).is_uncommitted:
                self._is_synced(node, broker, r)
                self._ends[node, partition] = (r.leo, r.log.chain.hex())
                self._terms[node, partition] = r.leader_epoch

    def _event(self, node: str, broker: Broker, event: TraceEvent) -> None:
        partition = event["partition"]
        r = replica_of(broker, partition)
        if r is None:
            return
        quorum = broker.quorums.get(partition)
        if quorum is not None:
            self._losses(node, r, event)
            self._vote(node, quorum, event)
        if not self._checker.committed_stays:
            return
        if event["event"] == trace.APPEND:
            self._matches(node, r, event)
        elif event["event"] in (trace.HW, trace.ROLE):
            self._committed(node, r, event)

    # -- logs

    def _matches(self, node: str, r: Replica, event: TraceEvent) -> None:
        """Check that other logs with the appended batches are equal up to them."""
        for end, chain in r.log.hashes(event["base_offset"], event["leo"]):
            epoch = r.log.epoch_at(end - 1)
            if epoch < 0:
                continue
            place, process = (r.partition, epoch, end), event["incarnation"]
            known, other, was = self._batches.get(place, (chain, node, process))
            # What a process that died traced before its commit is gone, if no other node has it.
            if known == chain or (other == node and was != process):
                self._batches[place] = chain, node, process
            else:
                what = f"{node} and {other} have batches of epoch {epoch} that end at {end}"
                self._violated("equal-logs", node, r, f"{what}, and differ below")

    def _committed(self, node: str, r: Replica, event: TraceEvent) -> None:
        """Check that what lies below a follower's high watermark is committed."""
        hw, partition = event["hw"], r.partition
        known = event["event"] == trace.ROLE and r.log.start < hw <= r.leo
        if known and self._checker.differs(partition, *r.log.hash_at(hw)):
            what = f"{node} has {hw} as its high watermark of {partition}, with other records below"
            self._violated("high-watermark-committed", node, r, what)
        if event["role"] == "leader":
            self._hw[partition] = max(hw, self._hw.get(partition, 0))
        elif event["event"] == trace.HW and hw > self._hw.get(partition, 0):
            # A process that begins may have what its last one stored and did not live to trace.
            self._violated(
                "high-watermark-committed",
                node,
                r,
                f"{node} has {hw} as its high watermark of {r.partition}, which no leader had",
            )

    def _counted(self, node: str, broker: Broker, r: Replica) -> None:
        """Check that each follower has what its leader counts for it. Of a leader that was deposed,
        or does not know a follower's process yet, nothing follows."""
        for name, peer in r.peers.items():
            other = self._broker(name)
            theirs = None if other is None else replica_of(other, r.partition)
            if other is None or theirs is None or theirs.log.damage is not None:
                continue
            if theirs.leader_epoch > r.leader_epoch or name not in r.replicas:
                continue
            if self._disk(name).blamed:
                continue  # what it lost may count until its next fetch
            if r.partition not in broker.quorums and (
                broker.ctx.image.broker_epoch(name) != other.ctx.broker_epoch
                or (
                    peer.broker_epoch != other.ctx.broker_epoch
                    and (name not in r.maximal_isr or r.pending_alter is not None)
                )
            ):
                continue
            counted = r.log.hash_at(peer.leo)
            if theirs.leo < peer.leo or (peer.leo >= r.log.start and not _has(theirs.log, counted)):
                self._violated(
                    "counted-is-there",
                    name,
                    theirs,
                    f"{node} leads {r.partition} and counts {name} for what is below {peer.leo}, "
                    f"but its log ends at {theirs.leo} or is another one",
                )

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
            kind = event["event"]
            if kind == trace.HW:
                if event["role"] == "leader":
                    self._on_commit(node, event)
            elif kind in _MAY_LACK:
                partition = event["partition"]
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
            leo, last = self._checker.end_of(partition, voter)
            return leo < hw or (leo == hw and last not in ("", chain))
        quorum = broker.quorums.get(partition)
        if quorum is None or not quorum.is_voter or quorum.r.log.damage is not None:
            return False
        log = quorum.r.log
        return log.start <= hw and log.hash_at(hw) != (hw, chain)
