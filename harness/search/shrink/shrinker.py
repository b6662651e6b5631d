"""The shrinking of a failing schedule to what its failure needs, by delta debugging.

The shrinker is greedy and deterministic: the same schedule and judge give the same result. It
accepts a candidate only if it fails *in the same way* (the judge decides), so that one class of
failure does not become another. All schedules have a total order (`sort_key`), and each accepted
candidate is smaller, so shrinking must end. Passes repeat until none helps. Whatever the budget,
each remaining fault is needed: without it the schedule does not fail in the same way.

Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input" (2002), for lists; the
order follows the idea of Hypothesis's `sort_key` (MacIver and Donaldson, 2020)."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from harness.formats.finding import Finding, RunCounts, WithoutFault
from harness.search import findings
from harness.search.shrink.passes import (
    SIMULATED_PASSES,
    Pass,
    keeping,
    on_fewer,
    possible,
    without_each_fault,
)
from harness.search.worlds.subject import RunFolders, Stop, Subject, drop, never
from nemesis.faults import kind_of
from nemesis.formats.schedule import Cluster, Fault, Schedule

T = TypeVar("T")

FailsAlike = Callable[[Schedule], bool]
"""A function that returns whether a schedule still fails in the way that is being shrunk."""
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


def shrink(
    finding: Finding, subject: Subject, at: RunFolders, *, stop: Stop, tries: int = 0
) -> Finding:
    """Return the finding with the smallest schedule that fails in the same way in the majority of
    its runs. If the schedule does not fail again in most runs, it is not shrunk. Smaller findings
    are kept in the store of `at`, if it has one. `tries` replaces the subject's limit of runs (0:
    it does not)."""
    trials = _Trials(finding, subject, at, stop)
    if not trials.fails_alike(finding.smallest):
        return trials.finding(shrunk=False)
    how = subject.shrinks
    shrinking = Shrinking(
        finding.smallest,
        trials.fails_alike,
        max_tries=tries or how.tries,
        passes=tuple(how.passes),
        stop=stop,
    )
    trials.smallest = shrinking.run()
    done = not (shrinking.stopped if subject.most_runs == 1 else shrinking.exhausted)
    return trials.finding(shrunk=done)


class _Trials:
    """The runs that shrink a finding: of each schedule, in how many of how many runs it failed."""

    def __init__(self, finding: Finding, subject: Subject, at: RunFolders, stop: Stop) -> None:
        self.smallest = finding.smallest
        self._finding = finding
        self._subject = subject
        self._at = at
        self._stop = stop
        self._saved_s = -math.inf
        self._counts = {
            finding.drawn.digest(): finding.drawn_counts,
            finding.smallest.digest(): finding.counts,
        }
        self._runs = {finding.smallest.digest(): finding.run} if finding.run else {}
        self._sentences: dict[str, str] = {}

    def fails_alike(self, schedule: Schedule) -> bool:
        """Run a schedule until it is decided whether it fails in most runs; return whether."""
        most, digest = self._subject.most_runs, schedule.digest()
        known = self._counts.get(digest, RunCounts())
        while not _is_decided(known, most) and not self._stop():
            outcome = self._subject.run(schedule, self._at)
            failed = self._subject.is_alike(self._finding, outcome)
            known = RunCounts(failed=known.failed + failed, of=known.of + 1)
            self._counts[digest] = known
            if failed:
                self._sentences[digest] = outcome.sentence
            if failed and outcome.folder and digest not in self._runs:
                self._runs[digest] = outcome.folder
            else:
                drop(outcome.folder, self._at)
        fails = 2 * known.failed > most
        if fails:
            self.smallest = schedule
            if self._at.store:
                self._save()
                self._drop_others()
        return fails

    def _save(self) -> None:
        """Keep the smaller finding, unless one was kept a short while ago."""
        if time.monotonic() - self._saved_s >= self._subject.shrinks.save_every_s:
            findings.keep(self.finding(shrunk=False), Path(self._at.store))
            self._saved_s = time.monotonic()

    def _drop_others(self) -> None:
        """Drop the runs of schedules that are not shown; that of the drawn one stays to the end."""
        shown = (self.smallest.digest(), self._finding.drawn.digest())
        for other in [digest for digest in self._runs if digest not in shown]:
            drop(self._runs.pop(other), self._at)

    def finding(self, *, shrunk: bool) -> Finding:
        smallest, digest = self.smallest, self.smallest.digest()
        drawn = self._finding.drawn.digest()
        return replace(
            self._finding,
            sentence=self._sentences.get(digest, self._finding.sentence),
            smallest=smallest,
            faults=findings.in_words(smallest),
            shrunk=shrunk,
            shrink_runs=sum(one.of for one in self._counts.values()) - 1,
            counts=self._counts.get(digest, RunCounts()),
            drawn_counts=self._counts[drawn],
            without=tuple(self._without(smallest)),
            run=self._runs.get(digest, ""),
        )

    def _without(self, schedule: Schedule) -> Iterator[WithoutFault]:
        """Return for each fault whether the schedule still fails without it, as far as known."""
        for index, fewer in enumerate(without_each_fault(schedule)):
            known = self._counts.get(fewer.digest())
            if known is not None:
                words = kind_of(schedule.faults[index]).words()
                yield WithoutFault(fault=index, words=words, counts=known)


def _is_decided(counts: RunCounts, most: int) -> bool:
    """Return whether it is known if more than half of `most` runs fail."""
    return 2 * counts.failed > most or 2 * (counts.of - counts.failed) >= most
