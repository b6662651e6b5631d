"""Invariants between what a node believes and what is so, checked at every step.

What a leader counts for a follower is in that follower's log; what lies below a high watermark is
committed; what a node traces and its messages may say is synced to its disk; a log in memory is the
one that a restart would load; batches that have epoch and end in common end equal logs (the Log
Matching Property of Raft); votes go to complete logs, and come from voters that lost nothing.
Clients see such a violation only if more happens: a crash at the right time, another leader."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
        other = self._broker(candidate)
        theirs = None if other is None else other.quorums.get(r.partition)
        if theirs is None or theirs.r.role != "candidate" or theirs.r.leader_epoch != term:
            return
        if (theirs.r.log.last_epoch, theirs.r.leo) < (r.log.last_epoch, r.leo):
            what = f"{node} voted for {candidate}, whose log of {r.partition} is less complete"
            self._violated("votes-for-complete-log", candidate, theirs.r, what)

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
