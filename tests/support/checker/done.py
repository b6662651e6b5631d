"""Operations and dumped logs as the slow definitions see them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from harness.formats.history import Op, Read, Send

Place = tuple[int, int]


@dataclass(frozen=True)
class Done:
    """One operation, invocation and completion together."""

    number: int
    process: int
    f: str
    outcome: str
    t0: int
    t1: int | None
    sends: tuple[Send, ...]
    reads: tuple[Read, ...]
    partitions: tuple[str, ...]
    rebalanced: tuple[str, ...]
    final: bool
    step: int = -1
    isolation: str = ""

    def sent(self, partition: str) -> list[Send]:
        return [s for s in self.sends if s.partition == partition]

    def values(self, partition: str) -> list[int]:
        return [v for s in self.sent(partition) for v in values(s)]

    def polled(self, partition: str) -> list[Place]:
        return [p for r in self.reads if r.partition == partition for p in places(r)]


def values(send: Send) -> range:
    return range(send.value, send.value + send.count)


def places(read: Read) -> list[Place]:
    """Return the records of one read, one by one; an unreadable one stays what it is."""
    return [
        (run.offset + k, run.value + k if run.value >= 0 else run.value)
        for run in read.records
        for k in range(run.count)
    ]


def pairs(ops: Iterable[Op]) -> Iterator[tuple[Op, Op | None]]:
    """Join each invocation with its completion, in invocation order; None if it has none."""
    ops = tuple(ops)
    completed = {op.op: op for op in ops if op.type != "invoke"}
    invoked = {op.op: op for op in ops if op.type == "invoke"}
    return ((op, completed.get(number)) for number, op in invoked.items())


def fits(begun: Op, ended: Op) -> bool:
    """Return whether an operation ends with the sends that it invoked, or some of them."""
    sent = {(s.partition, s.value, s.count) for s in begun.sends}
    return sent >= {(s.partition, s.value, s.count) for s in ended.sends}


def joined(history: Iterable[Op], acks: int = -1) -> list[Done]:
    """Operations in the order of their numbers; `acks`: those of sends that name none."""
    made = []
    for begun, ended in pairs(history):
        if ended and not fits(begun, ended):
            ended = None
        known = {(s.partition, s.value): s.offset for s in ended.sends} if ended else {}
        sends = tuple(
            Send(
                partition=s.partition,
                value=s.value,
                count=s.count,
                acks=acks if s.acks == -1 else s.acks,
                offset=known.get((s.partition, s.value), -1),
            )
            for s in begun.sends
        )
        made.append(
            Done(
                begun.op,
                begun.process,
                begun.f,
                ended.type if ended else "info",
                begun.t_us,
                ended.t_us if ended else None,
                sends,
                ended.reads if ended else (),
                begun.partitions,
                ended.rebalanced if ended else (),
                begun.final or (ended is not None and ended.final),
                begun.step,
                (ended.isolation if ended else "") or begun.isolation,
            )
        )
    return sorted(made, key=lambda op: op.number)


@dataclass(frozen=True)
class Logs:
    """The contents of the replicas' dumped logs: (offset, value) of every record, of those below
    the HW of their replica, the values of each replica, and whether all replicas and records are
    there."""

    records: frozenset[Place] = frozenset()
    committed_of: tuple[frozenset[Place], ...] = ()
    of_replicas: tuple[frozenset[int], ...] = ()
    finished: bool = False
    listed: bool = True
    majority_hw: int = -1
    """The HW that a majority of the replicas has reached."""
    deleted_below: int = 0
    """Where the promise has retention: the highest offset that any of them ever began at."""
    deleted_at: tuple[Place, ...] | None = None
    """When that rose, and to what, if traces say it all."""

    @property
    def complete(self) -> bool:
        """Return whether a value that no log has is certainly gone."""
        return self.finished and self.listed

    @property
    def committed(self) -> frozenset[Place]:
        """Return the records that some replica has below its HW."""
        return frozenset[Place]().union(*self.committed_of)


NO_LOGS = Logs()


def ended(read: Read, stood: int = -1) -> int:
    """Return the end of the log that an answer states, or -1."""
    if read.hw >= 0 or not read.at_end:
        return read.hw
    return end_of(read, stood if stood >= 0 else read.start)


def end_of(read: Read, stood: int) -> int:
    """Return where a read stood after its answer."""
    return places(read)[-1][0] + 1 if read.records else stood


def strong_components(nodes: set[int], edges: set[Place]) -> list[set[int]]:
    """Return sets of nodes that lead to each other, by closing the relation step by step."""
    leads = set(edges)
    while more := {(a, d) for a, b in leads for c, d in leads if b == c} - leads:
        leads |= more
    cycles = {
        frozenset(b for b in nodes if (a, b) in leads and (b, a) in leads) | {a} for a in nodes
    }
    return [set(cycle) for cycle in cycles if len(cycle) > 1]
