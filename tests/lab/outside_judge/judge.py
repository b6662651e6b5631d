"""The invariants of the KIP-966 model, checked over the trace of a run in one pass.

The judge keeps the state of the model as far as the trace shows it: the controller's record of each
partition, the fenced brokers, each replica's log, high watermark, role and ISR. Of the model's
auxiliary variables it keeps the true high watermark and the acknowledged records. After every turn
of a node it checks the invariants that the turn can have broken.

docs/outside-judge.md lists what the model has and a trace does not. A trace does not show when a
process dies: it counts with what it had until the next process of its node starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final, NamedTuple

from tests.lab.outside_judge.prefixes import EMPTY, Prefix, Prefixes

Event = Mapping[str, Any]
METADATA: Final = "__cluster_metadata-0"
ALL_ACKS: Final = -1
INVARIANTS: Final = (
    "ValidBrokerState",
    "ValidReplicaState",
    "ValidControllerState",
    "ValidControllerIsrAndElr",
    "ReplicationQuorumSuperset",
    "LeaderCandidateCompleteness",
    "LeaderCompleteness",
    "LogMatching",
    "MetadataLogMatching",
    "NoCommittedRecordLostGlobally",
    "ConsistentRead",
    "MinIsrRecoveryQuorum",
)
"""The safety properties of the model, by its names, without those of types and fetchers."""


class BrokenInvariant(NamedTuple):
    """An invariant of the model that did not hold after the turn of `node` at `t_us`."""

    invariant: str
    t_us: int
    node: str
    partition: str
    sentence: str


@dataclass(slots=True)
class _ModelReplica:
    """A replica as the model has it: log, high watermark, role, and as a leader its ISR. `running`
    is False from the start of a process until it has taken a role: until then nothing is known of
    what its disk kept. One that found its log `damaged` declines to lead until it cuts it."""

    log: Prefix = EMPTY
    hw: Prefix = EMPTY
    role: str = "none"
    leader_epoch: int = -1
    running: bool = False
    damaged: bool = False
    isr: frozenset[str] = frozenset()
    maximal_isr: frozenset[str] = frozenset()
    pending: int = -1
    partition_epoch: int = -1


@dataclass(slots=True)
class _ModelPartition:
    """A partition of the model: the controller's record, the replicas, and the auxiliary variables.
    `states` has the ISR of each partition epoch, for leaders that learn of it late. `acked` has the
    ends of the acknowledged prefixes; of those on one log only the longest is kept."""

    prefixes: Prefixes = field(default_factory=Prefixes)
    record: Event | None = None
    states: dict[int, frozenset[str]] = field(default_factory=dict)
    replicas: dict[str, _ModelReplica] = field(default_factory=dict)
    true_hw: Prefix = EMPTY
    acked: list[Prefix] = field(default_factory=list)
    # Batch end -> hash there -> how many replicas have their high watermark at or above it.
    believed: dict[int, dict[str, int]] = field(default_factory=dict)


class OutsideJudge:
    """A judge of the turns of a run, given in order. `broken` has each broken invariant once."""

    def __init__(self) -> None:
        self.broken: list[BrokenInvariant] = []
        self.events = 0
        self._partitions: dict[str, _ModelPartition] = {}
        self._fenced: dict[str, bool] = {}
        self._registered: set[str] = set()
        self._turn: tuple[int, str] = (0, "")
        self._handlers: dict[str, Callable[[str, Event], None]] = {
            "started": self._started,
            "registered": self._on_registered,
            "broker": self._on_broker,
            "partition": self._on_partition,
            "role": self._on_role,
            "append": self._on_append,
            "damaged": self._on_damaged,
            "truncated": self._on_truncated,
            "deleted": self._on_deleted,
            "hw": self._on_hw,
            "isr": self._on_isr,
            "proposed": self._on_proposed,
            "ack": self._on_ack,
        }

    def turn(self, events: Iterable[Event]) -> None:
        """Take the events of one turn of one node, which is one action of the model."""
        touched: dict[str, None] = {}
        brokers_changed = False
        for event in events:
            self.events += 1
            self._turn = (event["t_us"], event["node"])
            handler = self._handlers.get(event["event"])
            if handler is not None:
                handler(event["node"], event)
                touched[event.get("partition", "")] = None
                brokers_changed |= event["event"] == "broker"
        names = self._partitions if brokers_changed else touched
        for name in names:
            if name in self._partitions and name != METADATA:
                self._check(name, self._partitions[name])

    # -- the state ------------------------------------------------------------------------------

    def _of(self, event: Event) -> _ModelPartition:
        return self._partitions.setdefault(event["partition"], _ModelPartition())

    def _replica(self, node: str, event: Event) -> tuple[_ModelPartition, _ModelReplica]:
        p = self._of(event)
        return p, p.replicas.setdefault(node, _ModelReplica())

    def _started(self, node: str, event: Event) -> None:
        self._registered.discard(node)
        for name, p in self._partitions.items():
            r = p.replicas.get(node)
            if r is None:
                continue
            r.running, r.damaged, r.role, r.pending = False, False, "none", -1
            if name != METADATA:
                self._believe(p, r, EMPTY)

    def _on_registered(self, node: str, event: Event) -> None:
        self._registered.add(node)

    def _on_broker(self, node: str, event: Event) -> None:
        self._fenced[event["broker"]] = event["state"] == "fenced"

    def _on_partition(self, node: str, event: Event) -> None:
        p = self._of(event)
        if p.record is None or event["partition_epoch"] > p.record["partition_epoch"]:
            p.record = event
            p.states[event["partition_epoch"]] = frozenset(event["isr"])

    def _on_role(self, node: str, event: Event) -> None:
        p, r = self._replica(node, event)
        partition = event["partition"]
        if partition != METADATA and node not in self._registered:
            self._broke("ValidBrokerState", partition, f"{node} has a role and is not registered")
        if event["leo"] != r.log.end:
            # Only a new process, or a replica that was deleted, may have less than it had.
            kept = p.prefixes.below(r.log, event["leo"])
            if (r.running and event["leo"] != 0) or kept.end != event["leo"]:
                what = f"{node} has log end {event['leo']}, its appends end at {r.log.end}"
                self._broke("ValidReplicaState", partition, what)
            self._set_log(p, r, kept)
        hw = p.prefixes.below(r.log, event["hw"])
        r.running, r.role, r.leader_epoch = True, event["role"], event["leader_epoch"]
        r.partition_epoch = event["partition_epoch"]
        self._believe(p, r, hw)
        if r.role == "leader":
            r.pending = -1
            r.isr = r.maximal_isr = p.states.get(r.partition_epoch, frozenset())
            if event["leader"] != node:
                self._broke("ValidReplicaState", partition, f"{node} leads for {event['leader']}")

    def _on_append(self, node: str, event: Event) -> None:
        p, r = self._replica(node, event)
        after, made = r.log, Prefix(event["leo"], event["hash"])
        if event["base_offset"] != after.end:
            what = f"{node} appends at {event['base_offset']}, its log ends at {after.end}"
            self._broke("ValidReplicaState", event["partition"], what)
        p.prefixes.add(made, after)
        r.log = made

    def _on_damaged(self, node: str, event: Event) -> None:
        if event.get("partition"):
            self._replica(node, event)[1].damaged = True

    def _on_truncated(self, node: str, event: Event) -> None:
        p, r = self._replica(node, event)
        r.damaged = False
        kept = p.prefixes.below(r.log, event["leo"])
        if kept.end != event["leo"]:
            what = f"{node} cuts its log to {event['leo']}, where none of its batches ends"
            self._broke("ValidReplicaState", event["partition"], what)
        self._set_log(p, r, kept)

    def _on_deleted(self, node: str, event: Event) -> None:
        """Keep the deleted head of a log: the model has no retention. A log that starts over gets
        that of its leader, whose batches it will never have itself."""
        p, r = self._replica(node, event)
        begins = Prefix(event["start"], event["hash"])
        if event["reason"] != "restart":
            return
        if begins not in p.prefixes:
            what = f"{node} begins its log at {event['start']}, where no batch ends"
            self._broke("ValidReplicaState", event["partition"], what)
            return
        self._set_log(p, r, begins)

    def _set_log(self, p: _ModelPartition, r: _ModelReplica, log: Prefix) -> None:
        r.log = log
        if r.hw.end > log.end:
            self._believe(p, r, log)

    def _on_hw(self, node: str, event: Event) -> None:
        p, r = self._replica(node, event)
        said = Prefix(event["batch_end"], event["hash"])
        if not said.hash:
            said = EMPTY
        if not p.prefixes.contains(r.log, said):
            what = f"{node} states other records below {event['batch_end']} than it appended"
            self._broke("ValidReplicaState", event["partition"], what)
            return
        rises = said.end > r.hw.end
        self._believe(p, r, said)
        if r.role == "leader" and rises and said.end > p.true_hw.end:
            if not p.prefixes.contains(said, p.true_hw):
                self._read_again(event["partition"], p, node, said)
            p.true_hw = said

    def _believe(self, p: _ModelPartition, r: _ModelReplica, hw: Prefix) -> None:
        """Let the replica take everything up to `hw` for committed, and nothing beyond."""
        while r.hw.end > hw.end or (r.hw.end and not p.prefixes.contains(hw, r.hw)):
            there = p.believed[r.hw.end]
            there[r.hw.hash] -= 1
            if not there[r.hw.hash]:
                del there[r.hw.hash]
            r.hw = p.prefixes.below(r.hw, r.hw.end - 1)
        added, at = [], hw
        while at.end > r.hw.end:
            added.append(at)
            at = p.prefixes.below(at, at.end - 1)
        for each in added:
            there = p.believed.setdefault(each.end, {})
            there[each.hash] = there.get(each.hash, 0) + 1
            if len(there) > 1:
                self._differs(p, each)
        r.hw = hw

    def _differs(self, p: _ModelPartition, at: Prefix) -> None:
        partition = next(name for name, each in self._partitions.items() if each is p)
        name = "MetadataLogMatching" if partition == METADATA else "LogMatching"
        what = f"two replicas have other records below {at.end}, committed on both"
        self._broke(name, partition, what)

    def _on_isr(self, node: str, event: Event) -> None:
        _, r = self._replica(node, event)
        r.partition_epoch = event["partition_epoch"]
        if r.partition_epoch >= r.pending:
            r.pending = -1
        r.isr = frozenset(event["isr"])
        r.maximal_isr = frozenset(event["maximal_isr"])

    def _on_proposed(self, node: str, event: Event) -> None:
        _, r = self._replica(node, event)
        r.pending = event["partition_epoch"] + 1
        r.maximal_isr = r.isr | frozenset(event["isr"])

    def _on_ack(self, node: str, event: Event) -> None:
        if event["acks"] != ALL_ACKS:
            return
        p, r = self._replica(node, event)
        done = p.prefixes.below(r.log, event["leo"])
        p.acked = [each for each in p.acked if not p.prefixes.contains(done, each)]
        if not any(p.prefixes.contains(each, done) for each in p.acked):
            p.acked.append(done)

    # -- the invariants -------------------------------------------------------------------------

    def _check(self, partition: str, p: _ModelPartition) -> None:
        record = p.record
        if record is None:
            return
        isr, elr = set(record["isr"]), set(record["elr"])
        min_isr = min(record["min_isr"], len(record["replicas"]))
        self._controller(partition, record, isr, elr, min_isr)
        for name in sorted(isr | elr):
            r = p.replicas.get(name)
            if r and r.running and not r.damaged and r.log.end < p.true_hw.end:
                what = f"{name} may be elected, its log ends at {r.log.end} below {p.true_hw.end}"
                self._broke("LeaderCandidateCompleteness", partition, what)
        self._leader(partition, p, record)
        for name, r in p.replicas.items():
            if r.role == "leader" and r.running and r.leader_epoch == record["leader_epoch"]:
                self._not_stale(partition, p, name, r, isr | elr, min_isr)
        self._somewhere(partition, p, record)

    def _controller(
        self, partition: str, record: Event, isr: set[str], elr: set[str], min_isr: int
    ) -> None:
        fenced = sorted(name for name in isr if self._fenced.get(name, False))
        if fenced:
            what = f"{' '.join(fenced)} is fenced and in the ISR"
            self._broke("ValidControllerState", partition, what)
        if not isr | elr <= set(record["replicas"]) or isr & elr:
            what = f"ISR {sorted(isr)} and ELR {sorted(elr)} of replicas {record['replicas']}"
            self._broke("ValidControllerIsrAndElr", partition, what)
        elif len(isr) >= min_isr and elr:
            what = f"ISR {sorted(isr)} is at MinISR {min_isr}, and the ELR is {sorted(elr)}"
            self._broke("ValidControllerIsrAndElr", partition, what)
        known = record["last_known_elr"]
        if not isr and not elr and len(known) != min_isr:
            what = f"nobody may lead, and the last known ELR {known} is not MinISR {min_isr}"
            self._broke("MinIsrRecoveryQuorum", partition, what)

    def _leader(self, partition: str, p: _ModelPartition, record: Event) -> None:
        r = p.replicas.get(record["leader"])
        if r is None or not r.running:
            return
        lost = next((a for a in p.acked if not p.prefixes.contains(r.log, a)), None)
        if r.log.end < p.true_hw.end or lost is not None:
            end = p.true_hw.end if lost is None else lost.end
            what = f"{record['leader']} was elected, its log ends at {r.log.end} and lacks {end}"
            self._broke("LeaderCompleteness", partition, what)

    def _not_stale(
        self,
        partition: str,
        p: _ModelPartition,
        name: str,
        r: _ModelReplica,
        candidates: set[str],
        min_isr: int,
    ) -> None:
        if r.pending <= r.partition_epoch and r.maximal_isr != r.isr:
            what = f"{name} waits for {sorted(r.maximal_isr)}, its ISR is {sorted(r.isr)}"
            self._broke("ReplicationQuorumSuperset", partition, what)
        if len(r.isr) >= min_isr and not candidates <= r.maximal_isr:
            left = sorted(candidates - r.maximal_isr)
            what = f"{name} commits without {' '.join(left)}, which may be elected"
            self._broke("ReplicationQuorumSuperset", partition, what)
        if not p.prefixes.contains(r.log, p.true_hw):
            self._read_again(partition, p, name, r.log)

    def _read_again(self, partition: str, p: _ModelPartition, name: str, log: Prefix) -> None:
        what = f"{name} leads with a log that lacks or changes what was read below {p.true_hw.end}"
        self._broke("ConsistentRead", partition, what)

    def _somewhere(self, partition: str, p: _ModelPartition, record: Event) -> None:
        logs = [r.log for name, r in p.replicas.items() if name in record["replicas"]]
        for acked in p.acked:
            if not any(p.prefixes.contains(log, acked) for log in logs):
                what = f"no replica has what was acknowledged below {acked.end}"
                self._broke("NoCommittedRecordLostGlobally", partition, what)

    def _broke(self, invariant: str, partition: str, sentence: str) -> None:
        assert invariant in INVARIANTS, invariant
        if all(found.invariant != invariant for found in self.broken):
            t_us, node = self._turn
            self.broken.append(BrokenInvariant(invariant, t_us, node, partition, sentence))


def judge_trace(events: Iterable[Event]) -> OutsideJudge:
    """Judge a whole trace, whose events are in the order of their times."""
    judge = OutsideJudge()
    for turn in turns(events):
        judge.turn(turn)
    return judge


def turns(events: Iterable[Event]) -> Iterator[list[Event]]:
    """Yield the events of each turn: adjacent events of the same process at the same time."""
    for _, turn in groupby(events, key=lambda e: (e["t_us"], e["node"], e["incarnation"])):
        yield list(turn)
