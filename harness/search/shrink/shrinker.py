"""The shrinking of a failing schedule to what its failure needs, by delta debugging.

The shrinker is greedy and deterministic: the same schedule and judge give the same result. It
accepts a candidate only if it fails *in the same way* (the judge decides), so that one class of
failure does not become another. All schedules have a total order (`sort_key`), and each accepted
candidate is smaller, so shrinking must end. Passes repeat until none helps. Whatever the budget,
each remaining fault is needed: without it the schedule does not fail in the same way.

Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input" (2002), for lists; the
order follows the idea of Hypothesis's `sort_key` (MacIver and Donaldson, 2020)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from harness.search.deadline import Stop, never
from harness.search.shrink.passes import (
    fewer_clients,
    fewer_operations,
    keeping,
    lower_names,
    on_fewer,
    plainer_faults,
    plainer_kinds,
    possible,
    rounder_times,
    shorter_faults,
    smaller_clusters,
    smaller_workloads,
    without_each_fault,
)
from nemesis.faults import kind_of
from nemesis.formats.schedule import Cluster, Fault, Schedule

T = TypeVar("T")

FailsAlike = Callable[[Schedule], bool]
"""A function that returns whether a schedule still fails in the way that is being shrunk."""
Pass = Callable[[Schedule], Iterator[Schedule]]
"""A function that proposes schedules that are smaller in one respect, the simplest first."""
SIMULATED_PASSES: Final[tuple[Pass, ...]] = (
    lower_names,
    fewer_operations,
    smaller_workloads,
    smaller_clusters,
    plainer_faults,
)
"""The passes after the removal of faults, in this order, for simulated runs, which cost little."""
REAL_PASSES: Final[tuple[Pass, ...]] = (plainer_kinds, rounder_times, shorter_faults, fewer_clients)
"""The passes for runs of real processes, which cost much: few proposals, each a large step."""

DEFAULT_TRIES: Final = 2_000
_PLAIN_CLUSTER: Final = Cluster()
_NUMBER: Final = re.compile(r"\b(?:n|log-)(\d+)\b")


def sort_key(schedule: Schedule) -> tuple[Any, ...]:
    """Return a key that orders schedules by how simple they are to read. It compares the number of
    faults, of operations, the cluster, the workload, how plain each fault is, the numbers of the
    brokers and partitions that faults name, and last the text."""
    cluster, workload = schedule.cluster, schedule.workload
    names = _NUMBER.findall(msgspec.json.encode(schedule.faults).decode())
    return (
        len(schedule.faults),
        len(workload.operations),
        cluster.brokers,
        cluster.replication_factor,
        cluster.voters,
        cluster.partitions,
        cluster.flush != _PLAIN_CLUSTER.flush,
        cluster.unclean_election != _PLAIN_CLUSTER.unclean_election,
        cluster.retention_records,
        cluster.fetch_max_bytes != _PLAIN_CLUSTER.fetch_max_bytes,
        workload.clients,
        workload.consumers,
        workload.in_flight,
        workload.idempotent,
        workload.batch,
        workload.duration_ms,
        workload.payload_bytes,
        workload.rate,
        tuple(_plainness(fault) for fault in schedule.faults),
        tuple(map(int, names)),
        schedule.to_json(),
    )


def _plainness(fault: Fault) -> tuple[int, ...]:
    """Return how plain a fault is: how few plainer forms its kind knows, then the times."""
    kind, after = kind_of(fault), fault.after
    return (
        len(list(kind.as_plainer_kind())),
        len(list(kind.plainer())),
        len(list(on_fewer(fault))),
        fault.for_ms or 0,
        fault.at_ms or 0,
        0 if after is None else after.nth,
        0 if after is None else after.delay_ms,
        after is not None and after.since != "",
    )


@dataclass(slots=True)
class Shrinking:
    """A shrink in progress: the smallest failing schedule so far, and the number of runs. `tries`
    counts runs of the judge. At `max_tries` (`exhausted`) only needless faults are still removed.
    When `stop` returns True the shrink ends at once (`stopped`). No candidate is judged twice."""

    smallest: Schedule
    fails_alike: FailsAlike
    max_tries: int = DEFAULT_TRIES
    passes: tuple[Pass, ...] = SIMULATED_PASSES
    stop: Stop = never
    tries: int = 0
    stopped: bool = False
    _verdicts: dict[str, bool] = field(default_factory=dict)

    @property
    def exhausted(self) -> bool:
        """Return whether the limit of runs or time ended the shrink before it was done."""
        return self.stopped or self.tries >= self.max_tries

    def run(self) -> Schedule:
        """Shrink until no pass finds a smaller schedule. Return the smallest."""
        while True:
            before = self.smallest
            self._fewer_faults()
            for propose in self.passes:
                self._sweep(propose)
            if self.smallest == before or self.exhausted:
                self._only_needed_faults()
                return self.smallest

    def _only_needed_faults(self) -> None:
        """Remove each needless fault, budget or not: a reader would take it for a cause."""
        while any(self._try(fewer, beyond=True) for fewer in without_each_fault(self.smallest)):
            pass

    def _fewer_faults(self) -> None:
        """Remove faults by delta debugging, large chunks first."""
        whole = self.smallest

        def fails(faults: Sequence[Fault]) -> bool:
            return self._try(keeping(whole, faults))

        minimize_list(list(whole.faults), fails)

    def _sweep(self, propose: Pass) -> None:
        """Try each proposal once. After a success, continue at the same place in the proposals for
        the smaller schedule: to start again each time would repeat nearly everything."""
        proposals, at = list(propose(self.smallest)), 0
        while at < len(proposals) and not self.exhausted:
            if self._try(proposals[at]):
                proposals = list(propose(self.smallest))
            else:
                at += 1

    def _try(self, candidate: Schedule, *, beyond: bool = False) -> bool:
        """Accept a candidate if it is smaller and fails alike; `beyond` the budget if need be."""
        if sort_key(candidate) >= sort_key(self.smallest):
            return False
        key = candidate.digest()
        if key not in self._verdicts:
            self.stopped = self.stopped or self.stop()
            if self.stopped or (self.exhausted and not beyond) or not possible(candidate):
                return False
            self.tries += 1
            self._verdicts[key] = self.fails_alike(candidate)
        if self._verdicts[key]:
            self.smallest = candidate
        return self._verdicts[key]


def minimize_list(items: list[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """Return the items that remain when chunks are left out as long as the rest still fails: first
    large chunks (the complements of ddmin), then single items. `fails(items)` must be True. If
    `fails` is deterministic, no single remaining item can be left out."""
    chunk = max(1, len(items) // 2)
    while items:
        at, removed = 0, False
        while at < len(items):
            rest = items[:at] + items[at + chunk :]
            if fails(rest):
                items, removed = rest, True
            else:
                at += chunk
        if chunk == 1 and not removed:
            break
        chunk = max(1, chunk // 2) if not removed else min(chunk, max(1, len(items) // 2))
    return items
