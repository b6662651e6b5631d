"""Leadership, in-sync sets and high watermarks over time, from the traces of the brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeVar

import pyarrow.compute as pc

from harness.formats.problem import Exit
from node.formats import trace
from node.formats.event_text import Event
from reports.evidence.traces import Traces

K = TypeVar("K")
MOST_POINTS: Final = 3_000
_KINDS: Final = (
    *(trace.ROLE, trace.ISR, trace.PARTITION, trace.TRUNCATED),
    *(trace.STARTED, trace.STOPPED, trace.CONTROLLER),
)


@dataclass(frozen=True)
class RoleSpan:
    """The time from `start_us` to `end_us` in which a replica took itself for `role` in `epoch`."""

    node: str
    role: str
    epoch: int
    start_us: int
    end_us: int


@dataclass(frozen=True)
class InSync:
    """The in-sync set of a partition from `start_us` to `end_us`, from the traces of its leaders,
    or as the controller committed it."""

    isr: tuple[str, ...]
    start_us: int
    end_us: int


@dataclass(frozen=True)
class Up:
    """The time from `start_us` to `end_us` in which a process of `node` was alive."""

    node: str
    incarnation: int
    start_us: int
    end_us: int


@dataclass
class PartitionTimeline:
    """Roles, in-sync sets, truncations (`cuts`) and high watermarks of one partition over time."""

    name: str
    roles: list[RoleSpan] = field(default_factory=list)
    in_sync: list[InSync] = field(default_factory=list)
    cuts: list[Event] = field(default_factory=list)
    hw: list[tuple[int, int]] = field(default_factory=list)

    @property
    def leader_changes(self) -> int:
        """The number of times that a replica became leader, not counting the first."""
        return max(0, sum(span.role == "leader" for span in self.roles) - 1)


@dataclass(frozen=True)
class ClusterTimeline:
    """The timelines of all partitions, the lives of processes and the terms of controllers."""

    partitions: dict[str, PartitionTimeline]
    processes: tuple[Up, ...]
    controllers: tuple[RoleSpan, ...]
    last_us: int

    def starts(self) -> dict[str, list[int]]:
        """Return the start times of each node's processes, in order."""
        made: dict[str, list[int]] = {}
        for up in sorted(self.processes, key=lambda up: up.start_us):
            made.setdefault(up.node, []).append(up.start_us)
        return made


def read(traces: Traces, last_us: int) -> ClusterTimeline:
    """Read leaders, in-sync sets and lives of processes from the traces. `last_us` is the time of
    the last event that other files of the run record."""
    last_us = max(last_us, traces.last_us)
    of: dict[str, list[Event]] = {kind: [] for kind in _KINDS}
    for e in traces.of_kinds(_KINDS):
        of[e.event].append(e)
    ups = _processes(of[trace.STARTED], of[trace.STOPPED], traces.exits, last_us)
    deaths = {(x.node, x.incarnation): x.t_us for x in traces.exits}
    deaths |= {(up.node, up.incarnation): up.end_us for up in ups}
    made: dict[str, PartitionTimeline] = {}

    def timeline(partition: str) -> PartitionTimeline:
        return made.setdefault(partition, PartitionTimeline(partition))

    for (partition, node), events in _by(of[trace.ROLE], lambda e: (e.partition, e.node)).items():
        timeline(partition).roles += [
            RoleSpan(node, e.role, e.leader_epoch, e.t_us, end)
            for e, end in _held(events, deaths, last_us)
            if end >= e.t_us
        ]
    led = _by(of[trace.ISR], lambda e: e.partition)
    for partition, events in (led | _by(of[trace.PARTITION], lambda e: e.partition)).items():
        timeline(partition).in_sync.extend(_in_sync(events, last_us))
    for e in of[trace.TRUNCATED]:
        if e.from_leo > e.leo:
            timeline(e.partition).cuts.append(e)
    for partition, series in _high_watermarks(traces):
        timeline(partition).hw.extend(series)
    for each in made.values():
        each.hw.sort()
        each.roles.sort(key=lambda span: span.start_us)
    known = {k: v for k, v in made.items() if k != trace.METADATA_PARTITION}
    controllers = [
        RoleSpan(node, "controller", e.term, e.t_us, max(end, e.t_us))
        for node, events in _by(of[trace.CONTROLLER], lambda e: e.node).items()
        for e, end in _held(events, deaths, last_us)
        if e.state == "active"
    ]
    return ClusterTimeline(dict(sorted(known.items())), ups, tuple(controllers), last_us)


def _by(events: Iterable[Event], key: Callable[[Event], K]) -> dict[K, list[Event]]:
    found: dict[K, list[Event]] = {}
    for e in sorted(events, key=lambda e: e.t_us):
        found.setdefault(key(e), []).append(e)
    return found


def _high_watermarks(traces: Traces) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """Yield the high watermarks of each leader by time; a long series has one value of each step of
    time, the last of it."""
    rows = traces.rows.select(["event", "role", "partition", "node", "t_us", "hw"])
    led = pc.and_(pc.equal(rows["event"], trace.HW), pc.equal(rows["role"], "leader"))
    columns = [("t_us", "list"), ("hw", "list")]
    grouped = rows.filter(led).group_by(["partition", "node"], use_threads=False)
    for row in grouped.aggregate(columns).to_pylist():
        series = list(zip(row["t_us_list"], row["hw_list"], strict=True))
        if len(series) > MOST_POINTS:
            begin, step_us = series[0][0], (series[-1][0] - series[0][0]) // MOST_POINTS + 1
            series = list({(t - begin) // step_us: (t, hw) for t, hw in series}.values())
        yield row["partition"], series


def _processes(
    starts: Iterable[Event], stops: Iterable[Event], exits: Iterable[Exit], last_us: int
) -> tuple[Up, ...]:
    stopped = {(e.node, e.incarnation): e.t_us for e in stops}
    made = []
    for node, events in _by(starts, lambda e: e.node).items():
        for e, until in zip(events, [*(e.t_us for e in events[1:]), last_us], strict=True):
            ended = next((x for x in exits if x.node == node and e.t_us <= x.t_us <= until), None)
            end = ended.t_us if ended else stopped.get((node, e.incarnation), until)
            made.append(Up(node, e.incarnation, e.t_us, max(end, e.t_us)))
    return tuple(made)


def _held(
    events: list[Event], deaths: dict[tuple[str, int], int], last_us: int
) -> Iterator[tuple[Event, int]]:
    """Yield the roles that a node reported, each until the next one or the end of its process."""
    for e, later in zip(events, [*(e.t_us for e in events[1:]), last_us], strict=True):
        yield e, min(later, deaths.get((e.node, e.incarnation), last_us))


def _in_sync(events: list[Event], last_us: int) -> Iterator[InSync]:
    """Yield the intervals of in-sync sets; a commit that several voters report counts once."""
    seen: set[int] = set()
    kept: list[Event] = []
    for e in events:
        if e.partition_epoch not in seen or e.partition_epoch < 0:
            seen.add(e.partition_epoch)
            kept.append(e)
    for i, e in enumerate(kept):
        end = kept[i + 1].t_us if i + 1 < len(kept) else last_us
        yield InSync(e.isr, e.t_us, end)
