"""What the brokers did, from their traces: who led when, who was in sync, how the HW moved.

The traces of a long run hold millions of append events; only role, ISR, partition, truncation,
HW and process events are kept, and HW series are thinned while reading, so memory stays small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from harness.formats.process_exits import Exit
from node.formats import trace
from node.formats.event_text import Event
from reports.run_page.files import Notes, json_lines

MOST_POINTS: Final = 3_000
MOST_CUTS: Final = 2_000


@dataclass(frozen=True)
class RoleSpan:
    """A replica held `role` in `epoch` from `start_us` to `end_us` (its own belief)."""

    node: str
    role: str
    epoch: int
    start_us: int
    end_us: int


@dataclass(frozen=True)
class InSync:
    """The in-sync set of a partition from `start_us` to `end_us`, as committed or as led."""

    isr: tuple[str, ...]
    start_us: int
    end_us: int
    unclean: bool = False


@dataclass(frozen=True)
class LogCut:
    """A replica cut its log from `from_leo` down to `leo`."""

    node: str
    t_us: int
    from_leo: int
    leo: int
    hw: int
    reason: str


@dataclass(frozen=True)
class Up:
    """A process of `node` lived from `start_us` to `end_us`."""

    node: str
    incarnation: int
    start_us: int
    end_us: int
    exit: Exit | None = None


@dataclass
class PartitionTimeline:
    """Everything the leader strip shows of one partition."""

    name: str
    roles: list[RoleSpan] = field(default_factory=list)
    in_sync: list[InSync] = field(default_factory=list)
    cuts: list[LogCut] = field(default_factory=list)
    more_cuts: int = 0
    hw: list[tuple[int, int]] = field(default_factory=list)

    @property
    def leader_changes(self) -> int:
        """How many times leadership was taken after the first time."""
        return max(0, sum(span.role == "leader" for span in self.roles) - 1)


@dataclass(frozen=True)
class ClusterTimeline:
    """All partitions' stories, the processes' lives, the controllers' terms."""

    partitions: dict[str, PartitionTimeline]
    processes: tuple[Up, ...]
    controllers: tuple[RoleSpan, ...]
    last_us: int

    def starts(self) -> dict[str, list[int]]:
        """For each node, when its processes began, in order."""
        made: dict[str, list[int]] = {}
        for up in sorted(self.processes, key=lambda up: up.start_us):
            made.setdefault(up.node, []).append(up.start_us)
        return made


class _Thinned:
    """A time series that halves its resolution whenever it grows past `MOST_POINTS`."""

    def __init__(self) -> None:
        self.points: list[tuple[int, int]] = []
        self.step_us = 1

    def add(self, t_us: int, value: int) -> None:
        if self.points and t_us - self.points[-1][0] < self.step_us:
            self.points[-1] = (self.points[-1][0], value)
            return
        self.points.append((t_us, value))
        if len(self.points) > MOST_POINTS:
            self.points = self.points[::2]
            reach = self.points[-1][0] - self.points[0][0]
            self.step_us = max(self.step_us * 2, reach // MOST_POINTS)


@dataclass
class _TraceReader:
    """Collects events of all nodes; `finish` closes what is still open at the end of the run."""

    partitions: dict[str, PartitionTimeline] = field(default_factory=dict)
    roles: dict[tuple[str, str], list[Event]] = field(default_factory=dict)
    committed: dict[str, list[Event]] = field(default_factory=dict)
    led: dict[str, list[Event]] = field(default_factory=dict)
    starts: list[Event] = field(default_factory=list)
    stops: dict[tuple[str, int], int] = field(default_factory=dict)
    controller: list[Event] = field(default_factory=list)
    hw: dict[tuple[str, str], _Thinned] = field(default_factory=dict)
    last_us: int = 0

    def take(self, e: Event) -> None:
        """Keep what the page needs of one event."""
        self.last_us = max(self.last_us, e.t_us)
        if e.event == trace.HW:
            if e.role == "leader":
                self.hw.setdefault((e.partition, e.node), _Thinned()).add(e.t_us, e.hw)
        elif e.event == trace.ROLE:
            self.roles.setdefault((e.partition, e.node), []).append(e)
        elif e.event == trace.PARTITION:
            self.committed.setdefault(e.partition, []).append(e)
        elif e.event == trace.ISR:
            self.led.setdefault(e.partition, []).append(e)
        elif e.event == trace.TRUNCATED and e.from_leo > e.leo:
            self._cut(e)
        elif e.event == trace.STARTED:
            self.starts.append(e)
        elif e.event == trace.STOPPED:
            self.stops[e.node, e.incarnation] = e.t_us
        elif e.event == trace.CONTROLLER:
            self.controller.append(e)

    def _cut(self, e: Event) -> None:
        timeline = self.of(e.partition)
        if len(timeline.cuts) < MOST_CUTS:
            timeline.cuts.append(LogCut(e.node, e.t_us, e.from_leo, e.leo, e.hw, e.reason))
        else:
            timeline.more_cuts += 1

    def of(self, partition: str) -> PartitionTimeline:
        """The timeline of a partition, begun if it is new."""
        return self.partitions.setdefault(partition, PartitionTimeline(partition))

    def finish(self, exits: list[Exit], last_us: int) -> ClusterTimeline:
        """Close open intervals at the death of their process or at the end of the run."""
        last_us = max(last_us, self.last_us)
        ups = self._processes(exits, last_us)
        deaths = {(up.node, up.incarnation): up.end_us for up in ups}
        for (partition, node), events in self.roles.items():
            self.of(partition).roles.extend(_roles(node, events, deaths, last_us))
        for partition in self.committed.keys() | self.led.keys():
            events = self.committed.get(partition) or self.led[partition]
            self.of(partition).in_sync.extend(_in_sync(events, last_us))
        for (partition, _), series in self.hw.items():
            self.of(partition).hw.extend(series.points)
        for timeline in self.partitions.values():
            timeline.hw.sort()
            timeline.roles.sort(key=lambda span: span.start_us)
        known = {k: v for k, v in self.partitions.items() if k != trace.METADATA_PARTITION}
        controllers = tuple(_controllers(self.controller, deaths, last_us))
        return ClusterTimeline(dict(sorted(known.items())), ups, controllers, last_us)

    def _processes(self, exits: list[Exit], last_us: int) -> tuple[Up, ...]:
        by_node: dict[str, list[Event]] = {}
        for e in sorted(self.starts, key=lambda e: e.t_us):
            by_node.setdefault(e.node, []).append(e)
        made = []
        for node, events in by_node.items():
            for i, e in enumerate(events):
                until = events[i + 1].t_us if i + 1 < len(events) else last_us
                ended = next(
                    (x for x in exits if x.node == node and e.t_us <= x.t_us <= until), None
                )
                end = ended.t_us if ended else self.stops.get((node, e.incarnation), until)
                made.append(Up(node, e.incarnation, e.t_us, max(end, e.t_us), ended))
        return tuple(made)


def _roles(
    node: str, events: list[Event], deaths: dict[tuple[str, int], int], last_us: int
) -> Iterator[RoleSpan]:
    """Turn one replica's role events into intervals; a dead process holds no role."""
    events.sort(key=lambda e: e.t_us)
    for i, e in enumerate(events):
        end = events[i + 1].t_us if i + 1 < len(events) else last_us
        end = min(end, deaths.get((node, e.incarnation), last_us))
        if end >= e.t_us:
            yield RoleSpan(node, e.role, e.leader_epoch, e.t_us, end)


def _in_sync(events: list[Event], last_us: int) -> Iterator[InSync]:
    """Intervals of one in-sync set; several voters report the same commit, the first one counts."""
    seen: set[int] = set()
    kept: list[Event] = []
    for e in sorted(events, key=lambda e: e.t_us):
        if e.partition_epoch not in seen or e.partition_epoch < 0:
            seen.add(e.partition_epoch)
            kept.append(e)
    for i, e in enumerate(kept):
        end = kept[i + 1].t_us if i + 1 < len(kept) else last_us
        yield InSync(e.isr, e.t_us, end, e.unclean)


def _controllers(
    events: list[Event], deaths: dict[tuple[str, int], int], last_us: int
) -> Iterator[RoleSpan]:
    """Who was the active controller, by each voter's own belief."""
    by_node: dict[str, list[Event]] = {}
    for e in sorted(events, key=lambda e: e.t_us):
        by_node.setdefault(e.node, []).append(e)
    for node, own in by_node.items():
        for i, e in enumerate(own):
            if e.state != "active":
                continue
            end = own[i + 1].t_us if i + 1 < len(own) else last_us
            end = min(end, deaths.get((node, e.incarnation), last_us))
            yield RoleSpan(node, "controller", e.term, e.t_us, max(end, e.t_us))


def read(files: Sequence[Path], exits: list[Exit], last_us: int, notes: Notes) -> ClusterTimeline:
    """Read the traces; `last_us` is the end of the run as far as others know it."""
    reader = _TraceReader()
    if not files:
        notes.add("No traces: roles, in-sync sets and high watermarks are not shown.")
    for file in files:
        for e in json_lines(file, Event, notes):
            reader.take(e)
    return reader.finish(exits, last_us)
