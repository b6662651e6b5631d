"""A model of a correct replicated log, and the history that its clients and replicas leave.

Operations take effect one after another, 10 ms apart, each somewhere between its invocation and its
completion; so operations overlap, and all that was acknowledged or read is explained. Some end
unknown and take effect later or never, some are refused, leaders change, consumers are moved."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import msgspec

from harness.formats.history import OpKind, OpType, Read, RecordRun, Send
from tests.support.checker.story import NODES, Batch, P, Story, hash_of

Q = "log-1"
STEP_MS = 10
Record = tuple[int, int, int, int]
"""A run of records: offset, value, count, epoch."""


@dataclass
class Did:
    """One operation as its client saw it; times are milliseconds of the storm."""

    f: OpKind
    process: int
    begin: int
    end: int
    outcome: OpType | None = "ok"
    sends: list[Send] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    named: tuple[str, ...] = ()
    final: bool = False


@dataclass
class Actor:
    """A client: its process, until when it is busy, and where it is in each partition."""

    kind: str
    process: int
    busy_ms: int = 0
    places: dict[str, int | None] = field(default_factory=dict)


@dataclass
class World:
    """A history in a form that can still be corrupted."""

    did: list[Did] = field(default_factory=list)
    logs: dict[str, dict[str, list[Batch]]] = field(default_factory=dict)
    """By partition and node: batches (value, count, epoch)."""
    events: list[tuple[str, str, str | None, dict[str, Any]]] = field(default_factory=list)
    phases: dict[str, int] = field(default_factory=dict)
    staleness_ms: int = -1

    def tell(self) -> Story:
        s = Story(P, Q, capabilities=["trace", "logs", "epochs", "hw"])
        s.run["promise"]["staleness_ms"] = self.staleness_ms
        for did in sorted(self.did, key=lambda d: (d.begin, d.process)):
            invoked = [msgspec.structs.replace(send, offset=-1) for send in did.sends]
            named = {"partitions": did.named} if did.f in ("assign", "subscribe") else {}
            s.op(
                did.f,
                did.outcome,
                sends=invoked,
                acked=did.sends,
                reads=did.reads,
                process=did.process,
                final=did.final,
                begin=did.begin,
                end=did.end,
                **named,
            )
        for partition, nodes in self.logs.items():
            for node, batches in nodes.items():
                s.log(node, *batches, partition=partition)
        for node, event, partition, fields in self.events:
            s.event(node, event, partition, **fields)
        for name, ms in self.phases.items():
            s.phase(name, ms)
        return s


class Model:
    """Makes a correct world, drawing from `rng`."""

    def __init__(self, rng: random.Random, steps: int, *, transactions: bool) -> None:
        self.rng, self.transactions = rng, transactions
        self.world = World(staleness_ms=0)
        self.batches: dict[str, list[Batch]] = {P: [], Q: []}
        self.now_ms, self.epoch, self.changes = 0, 0, 0
        self.next_value, self.next_process = 0, 100
        self.late: list[Did] = []
        kinds = ["producer", "producer", "consumer", "consumer"] + ["both"] * (2 * transactions)
        self.actors = [Actor(kind, process) for process, kind in enumerate(kinds, start=1)]
        self._lead("n1")
        for _ in range(steps):
            self.now_ms += STEP_MS
            self._step()
        self._finish()

    def _end(self, partition: str) -> int:
        return sum(count for _, count, _ in self.batches[partition])

    def _lead(self, leader: str) -> None:
        """Elect a leader, with everything that was committed."""
        at = {"leader_epoch": self.epoch, "ms": self.now_ms}
        for partition in (P, Q):
            ends = {"leo": self._end(partition), "hw": self._end(partition), **at}
            roles = [{"role": role, **ends} for role in ("follower", "leader")]
            self.world.events += [
                (
                    "v1",
                    "partition",
                    partition,
                    {
                        "leader": leader,
                        "partition_epoch": self.changes,
                        "isr": list(NODES),
                        "elr": [],
                        "replicas": list(NODES),
                        **at,
                    },
                ),
                *((node, "role", partition, roles[node == leader]) for node in NODES),
            ]
        self.leader = leader
        self.changes += 1

    def _step(self) -> None:
        rng = self.rng
        if rng.random() < 0.15:
            self.epoch += 1
            self._lead(rng.choice([n for n in NODES if n != self.leader]))
            return
        if self.late and rng.random() < 0.4:
            self._append(self.late.pop(0))
            return
        free = [a for a in self.actors if a.busy_ms < self.now_ms - 1]
        if not free:
            return
        actor = rng.choice(free)
        begin = rng.randint(max(actor.busy_ms + 1, self.now_ms - 15), self.now_ms)
        did = Did("send", actor.process, begin, rng.randint(self.now_ms, self.now_ms + 15))
        actor.busy_ms = did.end
        did.outcome = rng.choice(["ok", "ok", "ok", "ok", "info", "fail", None])
        if actor.kind == "consumer" and rng.random() < 0.2:
            self._move(did, actor)
        else:
            self._work(did, actor)
        self.world.did.append(did)
        if did.outcome in ("info", None):
            actor.process, self.next_process = self.next_process, self.next_process + 1
            actor.places.clear()

    def _work(self, did: Did, actor: Actor) -> None:
        """Let a send, a poll or a transaction take effect now, later, or never."""
        if actor.kind != "producer":
            did.f = "poll" if actor.kind == "consumer" else "txn"
            for partition in self.rng.sample([P, Q], self.rng.randint(1, 2)):
                self._poll(did, actor, partition)
        if actor.kind == "consumer":
            return
        for _ in range(self.rng.randint(1, 2) if actor.kind == "both" else 1):
            value, count = self.next_value, self.rng.randint(1, 3)
            self.next_value += 10
            did.sends.append(Send(partition=self.rng.choice([P, Q]), value=value, count=count))
        if did.outcome == "ok":
            self._append(did)
        elif did.outcome != "fail" and self.rng.random() < 0.7:
            # Whether an unknown one takes effect, and when, nobody learns but from reads.
            self.late.append(did)

    def _append(self, did: Did) -> None:
        """Turn the sends of an operation into records, committed at once."""
        for n, send in enumerate(did.sends):
            base = self._end(send.partition)
            if did.outcome == "ok":
                did.sends[n] = msgspec.structs.replace(send, offset=base)
            log = self.batches[send.partition]
            log.append((send.value, send.count, self.epoch))
            end = base + send.count
            common = {"leader_epoch": self.epoch, "role": "leader", "leo": end, "ms": self.now_ms}
            appended = {"base_offset": base, "hash": "", **common}
            committed = {"hw": end, "batch_end": end, "of": len(log), **common}
            copied = appended | {"role": "follower"}
            self.world.events += [
                *(
                    (node, "append", send.partition, copied)
                    for node in NODES
                    if node != self.leader
                ),
                (self.leader, "append", send.partition, appended),
                (self.leader, "hw", send.partition, committed),
            ]

    def _poll(self, did: Did, actor: Actor, partition: str) -> None:
        """Read on from where the client is; only an ok poll moves it."""
        end = self._end(partition)
        place = actor.places.get(partition)
        start = self.rng.randint(0, end) if place is None else place
        upto = self.rng.randint(start, end)
        did.reads.append(self._read(partition, start, upto, end))
        if did.outcome is None:
            did.reads.clear()
        elif did.outcome == "ok":
            # What was read moves the client, an empty answer leaves it free.
            actor.places[partition] = upto if upto > start else place

    def _read(self, partition: str, start: int, upto: int, hw: int) -> Read:
        records, base = [], 0
        for value, count, epoch in self.batches[partition]:
            low, high = max(base, start), min(base + count, upto)
            if low < high:
                records.append(RecordRun(low, value + low - base, high - low, epoch))
            base += count
        return Read(
            partition=partition, start=start, records=tuple(records), hw=hw, node=self.leader
        )

    def _move(self, did: Did, actor: Actor) -> None:
        """Give partitions to a consumer; in the others it may go on anywhere."""
        did.f = self.rng.choice(["assign", "subscribe", "crash"])
        did.named = tuple(self.rng.sample([P, Q], self.rng.randint(0, 2)))
        if did.f == "crash" or did.outcome != "fail":
            kept = () if did.f == "crash" else did.named
            actor.places = {p: at for p, at in actor.places.items() if p in kept}

    def _finish(self) -> None:
        """Heal, write once more to everything, read it all from the beginning, dump the logs."""
        phases, did = self.world.phases, self.world.did
        self.now_ms += 50
        phases["heal"] = phases["in_sync"] = self.now_ms
        for n, partition in enumerate((P, Q)):
            self.now_ms += STEP_MS
            sent = Send(partition=partition, value=self.next_value)
            self.next_value += 10
            did.append(Did("send", 90 + n, self.now_ms - 5, self.now_ms + 4, sends=[sent]))
            self._append(did[-1])
        phases["stop_writing"] = self.now_ms + STEP_MS
        self.now_ms += 2 * STEP_MS
        phases["final"] = self.now_ms
        for n, partition in enumerate((P, Q)):
            end = self._end(partition)
            middle = self.rng.randint(1, end)
            for start, upto in ((0, middle), (middle, end)):
                self.now_ms += STEP_MS
                read = self._read(partition, start, upto, end)
                did.append(
                    Did("poll", 95 + n, self.now_ms - 5, self.now_ms, reads=[read], final=True)
                )
        phases["end"] = phases["stop_writing"] + 1_001
        for partition, log in self.batches.items():
            end = self._end(partition)
            at = {"leader_epoch": self.epoch, "role": "follower", "leo": end, "ms": self.now_ms}
            moved = {"hw": end, "batch_end": end, "of": len(log), **at}
            self.world.events += [(node, "hw", partition, dict(moved)) for node in NODES]
        self.world.logs = {p: {n: list(log) for n in NODES} for p, log in self.batches.items()}
        for event in self.world.events:
            # A HW event carries the prefix hash of what was below it.
            fields = event[3]
            if "of" in fields:
                prefix = self.batches[str(event[2])][: fields.pop("of")]
                fields["hash"] = hash_of(prefix)
