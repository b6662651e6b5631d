"""Safety invariants of the whole simulated cluster, checked at every step.

They are the invariants of KIP-966's specification that need more than one replica (log matching,
leader and candidate completeness, quorum superset, consistent read), one leader per epoch, one vote
per term, and that no acknowledged record is lost. Checking is incremental: only what a turn's trace
events may have changed is checked. Invariants that the run's promise does not include are off:
those on committed records if these may be lost, those on acknowledgements if these promise nothing.
If disks lose more synced data than the protocol survives, all are off."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, fields
from typing import Any, Final, NamedTuple

from checker.formats.anomalies import (
    AGREEMENT,
    LIVENESS,
    LOG,
    LOST_WRITES,
    OFFSETS,
    OWNERSHIP,
    READS,
)
from checker.formats.verdict import Anomaly, Witness
from harness.formats.history import Op, RecordRun, show_value
from harness.formats.run_info import Promise
from node.core.broker import Broker
from node.core.log import Log
from node.core.protocol import LeaderBy, Protocol
from node.core.replica import Replica
from node.formats import trace
from node.formats.trace import METADATA_PARTITION, TraceEvent

_ALL: int = -1
STEP_INVARIANTS: Final = ("sends-as-specified", "takes-as-specified", "state-as-specified")
"""Invariants of single steps: each broker follows its protocol, whatever that loses."""
_SEEN: Final = {
    "acknowledged-lost": LOST_WRITES,
    "leader-completeness": AGREEMENT,
    "log-matching": AGREEMENT,
    "consistent-read": OFFSETS,
    "read-below-hw": READS,
    "deletes-committed": LOG,
    "high-watermark-within-log": LOG,
    "one-leader-per-epoch": LOG,
    "one-vote-per-term": LOG,
    "clean-election": LOG,
    "process-lives": LIVENESS,
    "cluster-starts": LIVENESS,
    "groups-as-in-log": OWNERSHIP,
    "one-owner": OWNERSHIP,
}
INTERNAL_INVARIANTS: Final = {
    "acknowledged-early": LOST_WRITES,
    "candidate-completeness": AGREEMENT,
    "valid-isr-and-elr": LOG,
    "quorum-superset": LOG,
    "committed-on-majority": AGREEMENT,
    "producers-as-in-log": OFFSETS,
    "traced-is-synced": AGREEMENT,
    "log-as-on-disk": AGREEMENT,
    "votes-with-all": AGREEMENT,
    **dict.fromkeys(STEP_INVARIANTS, AGREEMENT),
}
"""Invariants inside the cluster: once broken, data *can* be lost, but no client sees it yet."""

PROPERTY_OF: Final = _SEEN | INTERNAL_INVARIANTS
"""The property of the catalogue that each invariant belongs to."""


class Violation(NamedTuple):
    """A violation of an invariant, at event `step` of the run and virtual time `t_us`."""

    invariant: str
    step: int
    t_us: int
    sentence: str
    partition: str = ""
    witnesses: tuple[Witness, ...] = ()

    @property
    def visible(self) -> bool:
        """Return whether clients, traces or logs, and so the offline checker, show it."""
        return self.invariant not in INTERNAL_INVARIANTS

    @property
    def property(self) -> str:
        """The broken property, under the name that the checker uses."""
        return PROPERTY_OF[self.invariant]

    def anomaly(self) -> Anomaly:
        """Return the violation in the form in which the checker reports what it finds."""
        offsets = [w.offset for w in self.witnesses if w.offset >= 0]
        return Anomaly(
            property=self.property,
            name=self.invariant,
            partition=self.partition,
            message=f"{self.sentence}.",
            offset=min(offsets, default=-1),
            t_us=self.t_us,
            witnesses=self.witnesses,
        )


@dataclass(slots=True)
class _WatchedPartition:
    """The state of a partition: what is committed, who leads, what was acknowledged.

    `hw` is the highest high watermark that any leader ever set; `prefix` has the prefix hash at
    each batch end up to it. `acked` maps the end of each acknowledged batch beyond it to the hash
    there. `unseen_hw` is the highest that a node set in the turn in which it dropped its log, after
    which the records below it cannot be looked up; readers may have them. `unseen_ends` are ranges
    (both ends are known) whose batches were committed and deleted in one turn. `ends` has the log
    end of each replica, and the prefix hash there, as last traced."""

    hw: int = 0
    prefix: dict[int, str] = field(default_factory=dict)
    leaders: dict[int, str] = field(default_factory=dict)
    epoch: int = -1
    leader: str = ""
    state: TraceEvent | None = None
    answered: dict[int, str] = field(default_factory=dict)
    acked: dict[int, str] = field(default_factory=dict)
    acked_end: int = 0
    runs: dict[int, tuple[int, int]] = field(default_factory=dict)
    values: dict[int, int] = field(default_factory=dict)
    unseen_hw: int = 0
    unseen_ends: tuple[tuple[int, int], ...] = ()
    ends: dict[str, tuple[int, str]] = field(default_factory=dict)


_FIELDS: Final = tuple(each.name for each in fields(_WatchedPartition))
_TIMELESS: Final = ("t_us", "incarnation")
"""Fields of trace events that are no part of a state."""


class InvariantChecker:
    """A checker of each turn's trace events and of each line of the history. `broker(name)` returns
    a node's running core, `now` step and virtual time. `violations` has the first of each
    invariant; `found` is called with each."""

    def __init__(
        self,
        broker: Callable[[str], Broker | None],
        protocol: Protocol,
        promise: Promise,
        now: Callable[[], tuple[int, int]],
        found: Callable[[Violation], None] = lambda violation: None,
    ) -> None:
        self.violations: list[Violation] = []
        self.committed_stays = promise.committed_stays
        self.clean_elections = not promise.unclean_election
        self.disks_kept = promise.disks_kept
        self.kept_records = promise.retention_records
        self.durable_acks = promise.durable_acks and promise.acks == _ALL
        self._broker = broker
        self._by_controller = protocol.leader_by is LeaderBy.CONTROLLER
        self._now = now
        self._found = found
        self._partitions: dict[str, _WatchedPartition] = {}
        self._registered: dict[str, int] = {}
        self._votes: dict[tuple[str, str, int], str] = {}
        self._handlers = {
            trace.HW: self._on_hw,
            trace.ROLE: self._on_role,
            trace.APPEND: self._on_append,
            trace.TRUNCATED: self._on_truncated,
            trace.DELETED: self._on_deleted,
            trace.PARTITION: self._on_partition,
            **dict.fromkeys((trace.ISR, trace.PROPOSED), self._superset),
            trace.ACK: self._on_ack,
            trace.VOTE: self._on_vote,
        }

    def state(self) -> Hashable:
        """Return what is remembered but violations and times: equals find the same later."""
        partitions = tuple(
            (name, *(_frozen(getattr(p, each)) for each in _FIELDS))
            for name, p in sorted(self._partitions.items())
        )
        return partitions, _frozen(self._registered), _frozen(self._votes)

    def restore(self, state: Any = ((), (), ())) -> None:
        """Set the checker's memory to what `state` returned; forget all violations."""
        self.violations.clear()
        partitions, registered, votes = state
        self._partitions.clear()
        for name, *values in partitions:
            p = self._partitions[name] = _WatchedPartition()
            for each, value in zip(_FIELDS, values, strict=True):
                setattr(p, each, dict(value.pairs) if isinstance(value, SortedPairs) else value)
        self._registered = dict(registered and registered.pairs)
        self._votes = dict(votes and votes.pairs)

    def turn(self, node: str, events: Iterable[TraceEvent]) -> None:
        """Check the invariants that the trace events of a node's turn may have broken."""
        if not self.disks_kept:
            return
        for event in events:
            handler = self._handlers.get(event["event"])
            if handler is not None:
                handler(node, event)
            elif event["event"] == trace.BROKER:
                self._registered[event["broker"]] = event["broker_epoch"]

    def on_history(self, op: Op) -> None:
        """Check a line of the history: an acknowledgement or a read."""
        if op.type != "ok" or not self.disks_kept:
            return
        if op.f == "poll":
            for read in op.reads:
                for run in read.records:
                    self._on_read(op, read.partition, run)
        elif op.f == "send" and self.durable_acks:
            for send in op.sends:
                self._on_acknowledged(op, send.partition, send.offset + send.count)

    def ended(self, node: str, code: int, output: str) -> None:
        """Record as a violation that a process ended by itself, with its exit code and output."""
        last = output.strip().splitlines()[-1] if output.strip() else "it said nothing"
        self.violated(
            "process-lives",
            "",
            f"{node} ended by itself with code {code}: {last}",
            [Witness(what=f"exit with code {code}", node=node)],
        )

    def committed(self, partition: str) -> tuple[int, str]:
        """Return the highest high watermark that any leader of a partition set, and the hash of the
        log up to there; 0 and "" if there is none, or if committed records may be lost."""
        p = self._of(partition)
        return (p.hw, p.prefix[p.hw]) if p.hw else (0, "")

    def end_of(self, partition: str, node: str) -> tuple[int, str]:
        """Return the log end of a replica, and the prefix hash there ("": not known), as traced."""
        return self._of(partition).ends.get(node, (0, ""))

    # -- what is committed

    def _on_hw(self, node: str, event: TraceEvent) -> None:
        p = self._of(event["partition"])
        end, chain = event["batch_end"], event["hash"]
        if not self.committed_stays or not chain:
            return
        if end <= p.hw:
            unseen = any(above < end < start for above, start in p.unseen_ends)
            differs = p.prefix.get(end) != chain and not unseen
        else:
            log = self._log(node, event["partition"])
            if log is None:
                p.unseen_hw = max(p.unseen_hw, event["hw"])
                return
            # The log is that after the turn: what the same turn deleted cannot be compared.
            known = p.hw > 0 and p.hw >= log.start
            differs = known and log.hash_at(p.hw) != (p.hw, p.prefix[p.hw])
            if differs:
                # From here on this log is the reference, or every later step would be wrong.
                p.prefix.clear()
            if log.start > p.hw:
                p.unseen_ends += ((p.hw, log.start),)
                p.prefix[log.start] = log.hash_at(log.start)[1]
            p.prefix.update(log.hashes(0 if differs else p.hw, end))
            p.prefix[end] = chain  # where the log begins there, it has no batch that ends there
            p.hw = end
            self._candidates(event["partition"], p)
        if differs:
            self.violated(
                "log-matching",
                event["partition"],
                f"{node} moved its high watermark of {event['partition']} to {event['hw']}, but "
                f"what it has below is not what was committed there",
                [_witness("high watermark", event)],
            )

    def _on_append(self, node: str, event: TraceEvent) -> None:
        p = self._of(event["partition"])
        p.ends[node] = (event["leo"], event["hash"])
        if event["base_offset"] < p.hw and event["role"] == "follower" and self.committed_stays:
            self._candidate(event["partition"], p, node)

    def _on_truncated(self, node: str, event: TraceEvent) -> None:
        p = self._of(event["partition"])
        p.ends[node] = (event["leo"], event["hash"])
        if event["hw"] > event["leo"]:
            self.violated(
                "high-watermark-within-log",
                event["partition"],
                f"{node} truncated its log of {event['partition']} to {event['leo']} and left its "
                f"high watermark at {event['hw']}",
                [_witness("log end", event)],
            )
        if event["leo"] < p.hw and self.committed_stays:
            self._candidate(event["partition"], p, node)

    def _on_deleted(self, node: str, event: TraceEvent) -> None:
        """Check that a deleted head is committed, and that retention's records are left."""
        p, start = self._of(event["partition"]), event["start"]
        if event["leo"] == start:
            p.ends[node] = (start, event["hash"])
        if not self.committed_stays or not start:
            return
        chain = p.prefix.get(start, event["hash"])
        if start + self.kept_records > p.hw:
            what = f"{p.hw} is committed and {self.kept_records} records are to be kept"
        elif chain != event["hash"]:
            what = "what it deleted below is not what was committed"
        else:
            return
        self.violated(
            "deletes-committed",
            event["partition"],
            f"{node} begins its log of {event['partition']} at {start}, where {what}",
            [_witness("log start", event)],
        )

    def _candidates(self, partition: str, p: _WatchedPartition) -> None:
        """Check that every replica that may be elected has every committed record."""
        state = p.state
        if state is not None and self._by_controller:
            for name in (*state["isr"], *state["elr"]):
                self._candidate(partition, p, name)

    def _candidate(self, partition: str, p: _WatchedPartition, name: str) -> None:
        state = p.state
        if state is None or not self._by_controller or not p.hw:
            return
        if name not in state["isr"] and name not in state["elr"]:
            return
        broker = self._broker(name)
        if broker is None:  # It has what it last had at most, and may lead again.
            leo, chain = p.ends.get(name, (0, ""))
            if leo > p.hw or (leo == p.hw and chain in ("", p.prefix[p.hw])):
                return
        else:
            r = broker.replicas.get(partition)
            if broker.ctx.broker_epoch != self._registered.get(name):
                return
            if r is None or r.log.damage is not None:
                return  # one that knows its log to be damaged declines to lead
            if r.log.hash_at(p.hw) == (p.hw, p.prefix[p.hw]):
                return
            leo = r.leo
        self.violated(
            "candidate-completeness",
            partition,
            f"{name} may be elected leader of {partition} (ISR {_names(state['isr'])}, ELR "
            f"{_names(state['elr'])}), but {_lacks(leo, p.hw)}",
            [Witness(what="log end", node=name, offset=leo)],
        )

    # -- who leads

    def _on_role(self, node: str, event: TraceEvent) -> None:
        partition, epoch = event["partition"], event["leader_epoch"]
        if event["role"] == "candidate":
            self._voted(node, partition, epoch, node, event)  # a candidate votes for itself
        p = self._of(partition)
        if event["leo"] != p.ends.get(node, (0, ""))[0]:
            p.ends[node] = event["leo"], ""  # its last process died before it traced an append
        if self.committed_stays:
            self._candidate(partition, p, node)  # of a new process nobody knew its log before
        if event["role"] != "leader":
            return
        first = p.leaders.setdefault(epoch, node)
        if first != node:
            self.violated(
                "one-leader-per-epoch",
                partition,
                f"{first} and {node} both lead {partition} in leader epoch {epoch}",
                [_witness("leader", event)],
            )
        if epoch >= p.epoch:
            p.epoch, p.leader = epoch, node
            log = self._log(node, partition)
            if log is not None:
                self._complete(partition, p, node, log)
                self._superset(node, event)

    def _complete(self, partition: str, p: _WatchedPartition, node: str, log: Log) -> None:
        """Check that a leader of the newest epoch has all acknowledged and committed records."""
        witness = Witness(what="log end", node=node, offset=log.leo, epoch=log.last_epoch)
        for end, chain in p.acked.items():
            if end >= log.start and log.hash_at(end) != (end, chain):
                self._lost(partition, node, log, end, witness)
                return
        if self.committed_stays and p.hw and log.hash_at(p.hw) != (p.hw, p.prefix[p.hw]):
            agreed = max((e for e, h in log.hashes(0, p.hw) if p.prefix.get(e) == h), default=0)
            if agreed < p.acked_end:
                self._lost(partition, node, log, p.acked_end, witness)
            else:
                self.violated(
                    "leader-completeness",
                    partition,
                    f"{node} leads {partition} in epoch {p.epoch}, but {_lacks(log.leo, p.hw)}",
                    [witness],
                )

    def _lost(self, partition: str, node: str, log: Log, end: int, witness: Witness) -> None:
        self.violated(
            "acknowledged-lost",
            partition,
            f"{node} leads {partition} in epoch {self._of(partition).epoch} without what was "
            f"acknowledged below offset {end}: {_lacks(log.leo, end)}",
            [witness],
        )

    def _on_vote(self, node: str, event: TraceEvent) -> None:
        if not event["pre"]:
            partition = event.get("partition", METADATA_PARTITION)
            self._voted(node, partition, event["term"], event["candidate"], event)

    def _voted(
        self, node: str, partition: str, term: int, candidate: str, event: TraceEvent
    ) -> None:
        voted = self._votes.setdefault((node, partition, term), candidate)
        if voted != candidate:
            self.violated(
                "one-vote-per-term",
                partition,
                f"{node} voted for {voted} and for {candidate} in term {term}",
                [_witness("vote", event)],
            )

    # -- the in-sync set

    def _on_partition(self, node: str, event: TraceEvent) -> None:
        partition = event["partition"]
        p = self._of(partition)
        if p.state is not None and p.state["partition_epoch"] >= event["partition_epoch"]:
            return
        before, p.state = p.state, event
        if not self._by_controller:
            return
        if before is not None and self.clean_elections:
            self._clean_election(before, event)
        isr, elr = set(event["isr"]), set(event["elr"])
        needless = elr and len(isr) >= min(event["min_isr"], len(event["replicas"]))
        if isr & elr or needless or not isr | elr <= set(event["replicas"]):
            self.violated(
                "valid-isr-and-elr",
                partition,
                f"the controller committed for {partition} ISR {_names(event['isr'])} and ELR "
                f"{_names(event['elr'])} of replicas {_names(event['replicas'])}",
                [_witness("partition", event)],
            )
        if self.committed_stays:
            self._candidates(partition, p)
        self._superset(node, event)

    def _clean_election(self, before: TraceEvent, event: TraceEvent) -> None:
        """Check that the elected replica is in the ISR or ELR, or in the last known ELR if both are
        empty. A replica that a reassignment adds may enter the ISR and lead by the same record."""
        elected = event["leader"]
        if not elected or elected == before["leader"]:
            return
        if event["leader_epoch"] <= before["leader_epoch"]:
            return
        may_lead = {*before["isr"], *before["elr"]} or {*before["last_known_elr"]}
        # A replica that stays may lead too, if the record that ends the move removes the leader.
        completed = (
            before["leader"] in before["removing"]
            and not event["removing"]
            and elected in event["isr"]
        )
        if elected not in may_lead and elected not in before["adding"] and not completed:
            self.violated(
                "clean-election",
                event["partition"],
                f"{elected} was elected leader of {event['partition']} in epoch "
                f"{event['leader_epoch']} from outside ISR {_names(before['isr'])} and ELR "
                f"{_names(before['elr'])}",
                [_witness("partition", event)],
            )

    def _superset(self, node: str, event: TraceEvent) -> None:
        """Check that the leader commits with every replica that the controller may elect."""
        partition = event["partition"]
        state = self._of(partition).state
        if state is None or not self._by_controller:
            return
        broker = self._broker(state["leader"])
        r = broker.replicas.get(partition) if broker is not None else None
        if r is None or r.role != "leader" or r.leader_epoch != state["leader_epoch"]:
            return
        wanted = {*state["isr"], *state["elr"]} if len(r.isr) >= r.min_isr else set()
        if wanted <= set(r.maximal_isr) and _settled(r):
            return
        self.violated(
            "quorum-superset",
            partition,
            f"{state['leader']} commits {partition} with {_names(r.maximal_isr)} (committed ISR "
            f"{_names(r.isr)}), while the controller may elect any of {_names(sorted(wanted))}",
            [Witness(what="maximal ISR", node=state["leader"], epoch=r.leader_epoch)],
        )

    # -- acknowledgements and reads

    def _on_ack(self, node: str, event: TraceEvent) -> None:
        """Remember a record that was acknowledged before a high watermark covers it."""
        if self.durable_acks and event["acks"] == _ALL:
            p = self._of(event["partition"])
            log = self._log(node, event["partition"])
            if event["leo"] > event["hw"]:
                self.violated(
                    "acknowledged-early",
                    event["partition"],
                    f"{node} acknowledged {event['partition']} up to {event['leo']}, but its high "
                    f"watermark is {event['hw']}",
                    [Witness(what="ack", node=node, offset=event["base_offset"])],
                )
            if event["leo"] > p.hw and log is not None:
                end, chain = log.hash_at(event["leo"])
                p.answered[end] = chain

    def _on_acknowledged(self, op: Op, partition: str, end: int) -> None:
        p = self._of(partition)
        p.acked_end = max(p.acked_end, end)
        chain = p.answered.pop(end, None)
        if chain is None or p.prefix.get(end) == chain:
            return
        p.acked[end] = chain
        log = self._log(p.leader, partition)
        if log is not None and end >= log.start and log.hash_at(end) != (end, chain):
            witness = Witness(what="send", op=op.op, process=op.process, client=op.client)
            self._lost(partition, p.leader, log, end, witness)

    def _on_read(self, op: Op, partition: str, run: RecordRun) -> None:
        p = self._of(partition)
        witness = Witness(
            what="read",
            op=op.op,
            process=op.process,
            client=op.client,
            offset=run.offset,
            value=run.value,
        )
        if self.committed_stays and run.offset + run.count > max(p.hw, p.unseen_hw):
            self.violated(
                "read-below-hw",
                partition,
                f"{op.client} read {partition} up to {run.offset + run.count}, but only what is "
                f"below {p.hw} is committed",
                [witness],
            )
        if not self.committed_stays or p.runs.get(run.offset) == (run.value, run.count):
            return
        p.runs[run.offset] = (run.value, run.count)
        for k in range(run.count):
            offset, value = run.offset + k, run.value + k if run.value >= 0 else run.value
            known = p.values.setdefault(offset, value)
            if known != value:
                self.violated(
                    "consistent-read",
                    partition,
                    f"{op.client} read {show_value(value)} at offset {offset} of {partition}, "
                    f"where {show_value(known)} was read before",
                    [witness],
                )
                return

    # -- helpers

    def _of(self, partition: str) -> _WatchedPartition:
        found = self._partitions.get(partition)
        if found is None:
            found = self._partitions[partition] = _WatchedPartition()
        return found

    def _log(self, node: str, partition: str) -> Log | None:
        broker = self._broker(node)
        if broker is None:
            return None
        if partition == METADATA_PARTITION:
            return broker.quorum.r.log
        r = broker.replicas.get(partition)
        return None if r is None else r.log

    def violated(
        self, invariant: str, partition: str, sentence: str, witnesses: list[Witness]
    ) -> None:
        """Record a violation, unless the same invariant was violated before."""
        if any(violation.invariant == invariant for violation in self.violations):
            return
        step, t_us = self._now()
        violation = Violation(
            invariant=invariant,
            step=step,
            t_us=t_us,
            sentence=sentence,
            partition=partition,
            witnesses=tuple(witnesses),
        )
        self.violations.append(violation)
        self._found(violation)


class SortedPairs(NamedTuple):
    """The items of a dict, sorted, as a value that can be hashed."""

    pairs: tuple[Any, ...]


def _frozen(value: Any) -> Any:
    """Return a value of the state that can be hashed."""
    if isinstance(value, dict):
        pairs = ((key, _frozen(each)) for key, each in value.items() if key not in _TIMELESS)
        return SortedPairs(tuple(sorted(pairs)))
    return tuple(value) if isinstance(value, list) else value


def _settled(r: Replica) -> bool:
    """Return whether no proposal is pending: the leader then commits with the committed ISR."""
    if r.pending_alter is None:
        return set(r.maximal_isr) == set(r.isr)
    return set(r.isr) <= set(r.maximal_isr)


def _lacks(leo: int, end: int) -> str:
    if leo < end:
        return f"its log ends at {leo} and {end} is committed"
    return f"its log is another one below {end}"


def _names(names: Iterable[str]) -> str:
    return f"[{' '.join(names)}]"


def _witness(what: str, event: dict[str, Any]) -> Witness:
    return Witness(
        what=what,
        node=event["node"],
        t_us=event.get("t_us", -1),
        epoch=event.get("leader_epoch", -1),
    )
