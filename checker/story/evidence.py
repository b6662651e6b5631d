"""The evidence that a story rests on, from a run folder or from a run in memory."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from checker.evidence.run_meta import RunMeta
from checker.ingest.fault_windows import joined_faults
from checker.ingest.ingest import sources
from checker.ingest.lines import Problems, readable_lines
from checker.ingest.read_jepsen import ops_in
from checker.ingest.read_run_files import read_meta
from harness.formats.history import GROUP_PREFIX, LogRun, Op
from harness.formats.problem import Exit
from harness.formats.run_info import Promise, RunInfo
from harness.formats.seal import PROBES
from nemesis.faults import KINDS
from nemesis.faults.kind import FaultKind
from nemesis.formats.fault_log import FaultLine
from node.formats import trace
from node.formats.event_text import Event, parse

DAMAGES: Final = frozenset(
    {"bit-flip", "torn-write", "old-copy", "disk-emptied", "lying-fsync", "read-error"}
)
_DEPARTED: Final = (b'"crash"', b'"leave"')
MOST_HISTORY_BYTES: Final = 1 << 30
"""The longest history of which a story reads operations; traces say enough without."""


@dataclass(frozen=True)
class ActiveFault:
    """A fault that was injected on `nodes` at `from_us`, and lasted until `until_us`: until it
    ended by itself or by the heal if `ended`, else until the run ended."""

    number: int
    what: str
    nodes: tuple[str, ...]
    from_us: int
    until_us: int
    ended: bool
    on: str = ""
    links: tuple[tuple[str, str], ...] = ()

    @property
    def loses(self) -> bool:
        """Return whether the fault loses what a disk has not synced, which may show much later."""
        return bool(KINDS.get(self.what, FaultKind).loss)

    @property
    def lasts(self) -> bool:
        """Return whether the fault lasted for a time, and was not over in a moment."""
        return self.until_us > self.from_us


@dataclass(frozen=True)
class Sent:
    """An acknowledged send of `count` records: `value` and `offset` are those of the first one, and
    `t_us` is the time of the acknowledgement."""

    t_us: int
    invoked_us: int
    op: int
    client: str
    value: int
    offset: int
    count: int


@dataclass(frozen=True)
class RecordsRead:
    """A run of `count` records that a client read: `value` and `offset` are those of the first one,
    and rise by one. `hw` is the high watermark that the answer states, -1 if it states none."""

    t_us: int
    op: int
    client: str
    node: str
    offset: int
    value: int
    count: int
    final: bool
    hw: int = -1


class MemberOp(NamedTuple):
    """An operation of a member of a group: its last line, with what its invocation asked."""

    invoked_us: int
    said: Op


class LostDisk(NamedTuple):
    """A disk that lost a record, at the end of the process that used it."""

    node: str
    t_us: int


@dataclass(frozen=True)
class PartitionEvidence:
    """Evidence about one partition of a run. `events` are from the traces of the nodes, or, if not
    `traced`, from probes that asked the nodes who leads. `seen` are the reads, `of_group` the
    operations of members of groups by time, `group_events` say which nodes led its group, `faults`
    are those that concern the partition."""

    partition: str
    events: tuple[Event, ...] = ()
    faults: tuple[ActiveFault, ...] = ()
    exits: tuple[Exit, ...] = ()
    sent: tuple[Sent, ...] = ()
    seen: tuple[RecordsRead, ...] = ()
    of_group: tuple[MemberOp, ...] = ()
    logs: Mapping[str, tuple[LogRun, ...]] = field(default_factory=dict)
    promise: Promise = field(default_factory=Promise)
    heal_us: int = 0
    end_us: int = 0
    traced: bool = True
    group_events: tuple[Event, ...] = ()

    @property
    def damaged(self) -> dict[str, int]:
        """The nodes whose disks a fault damaged, each with the time of the first damage."""
        harming = [f for f in reversed(self.faults) if f.what in DAMAGES]
        return {node: f.from_us for f in harming for node in f.nodes}

    def lost_disks(self, offset: int) -> tuple[LostDisk, ...]:
        """Return the disks from which a fault took the record at `offset`: the node's next process
        has a shorter log or, if there is none, its log in the end lacks the offset."""
        found = []
        lossy = [fault for fault in self.faults if fault.loses]
        for f, node in ((fault, node) for fault in lossy for node in fault.nodes):
            roles = (e for e in self.events if e.event == trace.ROLE and e.node == node)
            back = next((e for e in roles if e.t_us > f.from_us and self._ended(node, f, e)), None)
            runs = self.logs.get(node, ())
            had = any(run.offset <= offset < run.offset + run.count for run in runs)
            ended = self._ended(node, f, back)
            if ended and (back.leo <= offset if back is not None else not had):
                found.append(LostDisk(node, ended))
        return tuple(found)

    def _ended(self, node: str, f: ActiveFault, before: Event | None) -> int:
        """Return when the node's last process since the fault ended, 0 if none did."""
        until_us = before.t_us if before is not None else self.end_us
        times = [x.t_us for x in self.exits if x.node == node and f.from_us <= x.t_us <= until_us]
        return max(times, default=0)


def of(
    partition: str,
    about: RunMeta | RunInfo,
    *,
    events: Iterable[Mapping[str, Any]],
    faults: Iterable[FaultLine],
    exits: Iterable[Exit],
    ops: Iterable[Op],
    logs: Mapping[str, Iterable[LogRun]],
    traced: bool = True,
) -> PartitionEvidence:
    """Return the evidence about a partition of the run `about` from lines in memory. Events of
    other partitions, and lines that are no events, are left out."""
    kept, of_its_group = list[Event](), list[Event]()
    for line in events:
        own = line.get("partition", partition)
        if own in (partition, GROUP_PREFIX + partition):
            with contextlib.suppress(msgspec.ValidationError):
                (kept if own == partition else of_its_group).append(parse(line))
    kept.sort(key=lambda e: e.t_us)
    of_its_group.sort(key=lambda e: e.t_us)
    sent, seen, of_group = _operations(partition, ops)
    phases = about.phases
    members = {*about.partitions.get(partition, ()), *(e.node for e in kept if e.partition)}
    others = {*about.brokers} - members if members else set()
    last = max(
        [
            phases.final_us or phases.end_us,
            *(e.t_us for e in kept[-1:]),
            *(s.t_us for s in sent[-1:]),
        ],
        default=0,
    )
    return PartitionEvidence(
        partition=partition,
        events=tuple(kept),
        faults=tuple(
            fault
            for fault in active(faults, kept, last)
            if _concerns(fault, partition, others, about.partitions)
        ),
        exits=tuple(exits),
        sent=sent,
        seen=seen,
        of_group=of_group,
        logs={
            node: tuple(run for run in runs if run.partition == partition and run.count)
            for node, runs in logs.items()
        },
        promise=about.promise,
        heal_us=phases.heal_us,
        end_us=last,
        traced=traced and any(e.event == trace.ROLE for e in kept),
        group_events=tuple(of_its_group),
    )


def read(folder: Path, partition: str) -> PartitionEvidence:
    """Return the evidence about a partition from a run folder, without unreadable lines."""
    meta = read_meta(folder, Problems())
    history = next((s for s in sources(0, folder) if s.kind == "history"), None)
    with_history = history is not None and history.size <= MOST_HISTORY_BYTES
    needle = (partition.encode(),)
    traced = not meta.is_undeclared("trace")
    probes = () if traced else (folder / PROBES,)
    return of(
        partition,
        meta,
        events=(
            line
            for file in probes or sorted((folder / "trace").glob("*.jsonl"))
            for line in readable_lines(file, dict[str, Any], (*needle, b'"started"', b'"broker"'))
        ),
        faults=readable_lines(folder / "faults.jsonl", FaultLine),
        exits=readable_lines(folder / "exits.jsonl", Exit),
        ops=ops_in(history, (*needle, *_DEPARTED)) if history is not None and with_history else (),
        logs={} if meta.is_undeclared("logs") else _logs(folder, needle),
        traced=traced,
    )


def _logs(folder: Path, needles: tuple[bytes, ...]) -> dict[str, list[LogRun]]:
    return {
        file.stem: list(readable_lines(file, LogRun, needles))
        for file in sorted((folder / "logs").glob("*.jsonl"))
    }


def _operations(
    partition: str, ops: Iterable[Op]
) -> tuple[tuple[Sent, ...], tuple[RecordsRead, ...], tuple[MemberOp, ...]]:
    """Return the acknowledged sends and the reads of a partition, and what members of groups did,
    by time."""
    invoked: dict[int, int] = {}
    asked: dict[int, MemberOp] = {}
    sent, seen = [], []
    for op in ops:
        if op.group:
            asked[op.op] = _joined(asked.get(op.op), op)
        if op.type == "invoke":
            invoked[op.op] = op.t_us
            continue
        for s in op.sends if op.type == "ok" else ():
            if s.partition == partition and s.offset >= 0:
                begun = invoked.get(op.op, op.t_us)
                sent.append(Sent(op.t_us, begun, op.op, op.client, s.value, s.offset, s.count))
        for read in op.reads:
            if read.partition == partition:
                seen += [
                    RecordsRead(
                        *(op.t_us, op.op, op.client, read.node),
                        *(run.offset, run.value, run.count, op.final),
                        hw=read.hw,
                    )
                    for run in read.records
                ]
    of_group = sorted(asked.values(), key=lambda op: op.said.t_us)
    by_time = sorted(sent, key=lambda s: s.t_us), sorted(seen, key=lambda s: s.t_us)
    return tuple(by_time[0]), tuple(by_time[1]), tuple(of_group)


def _joined(asked: MemberOp | None, said: Op) -> MemberOp:
    """Return an operation of a member with its completion, which need not repeat what it asked."""
    if asked is None:
        return MemberOp(said.t_us, said)
    was = asked.said
    return MemberOp(
        asked.invoked_us,
        replace(
            said,
            deliveries=said.deliveries or (was.deliveries if said.f != "poll" else ()),
            positions=said.positions or was.positions,
            partitions=said.partitions or was.partitions,
            requeue=said.requeue and was.requeue,
            epoch=max(said.epoch, was.epoch),
        ),
    )


def _concerns(fault: ActiveFault, partition: str, others: set[str], named: Collection[str]) -> bool:
    """Return whether a fault was on the partition: not a command about another of the partitions
    `named`, and not only on the `others`, brokers without a replica of it, or on their links."""
    if fault.on in named:
        return fault.on == partition
    if fault.links:
        return any(others.isdisjoint(link) for link in fault.links)
    return not fault.nodes or not others.issuperset(fault.nodes)


def active(
    lines: Iterable[FaultLine], events: Iterable[Event], last_us: int
) -> Iterator[ActiveFault]:
    """Yield the faults that were injected, with their ends, in the order of their injection."""
    known = [(f.injected, f.healed) for f in joined_faults(lines).values() if f.injected]
    starts = [e for e in events if e.event == trace.STARTED]
    for line, healed in sorted(known, key=lambda pair: pair[0].t_us):
        until = healed.t_us if healed is not None else max(last_us, line.t_us)
        own = healed is not None and healed.fault == line.fault
        back = [e.t_us for e in starts if e.node in line.nodes and line.t_us < e.t_us <= until]
        kind = KINDS.get(line.what, FaultKind)
        if kind.ends_process and back and len({*back}) >= len(line.nodes):
            until = max(back)
        yield ActiveFault(
            number=line.fault,
            what=line.what,
            nodes=line.nodes,
            from_us=line.t_us,
            until_us=until if own or kind.lasts else line.t_us,
            ended=own or until < last_us,
            on=line.on,
            links=line.links,
        )
