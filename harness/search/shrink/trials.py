"""The runs that shrink a finding, and in how many of how many runs each schedule failed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec.structs import replace

from harness.formats.finding import Finding, RunCounts, WithoutFault
from harness.search import findings
from harness.search.deadline import Stop
from harness.search.shrink.passes import without_each_fault
from harness.search.shrink.shrinker import Shrinking
from harness.search.worlds.subject import RunFolders, Subject, drop
from nemesis.faults import kind_of
from nemesis.formats.schedule import Schedule

Save = Callable[[Callable[[], Finding]], None]
"""A function that may write a finding, which it makes only then."""


class Saver:
    """Keeps a finding while it shrinks, at most every so many seconds."""

    def __init__(self, store: Path, every_s: float) -> None:
        self._store = store
        self._every_s = every_s
        self._saved_s = -math.inf

    def __call__(self, finding: Callable[[], Finding]) -> None:
        if time.monotonic() - self._saved_s >= self._every_s:
            findings.keep(finding(), self._store)
            self._saved_s = time.monotonic()


def shrink(
    finding: Finding,
    subject: Subject,
    at: RunFolders,
    *,
    stop: Stop,
    save: Save | None = None,
    tries: int = 0,
) -> Finding:
    """Return the finding with the smallest schedule that fails in the same way in the majority of
    its runs. If the schedule does not fail again in most runs, it is not shrunk. `save` is called
    with each smaller finding; `tries` replaces the subject's limit of runs (0: it does not)."""
    trials = _Trials(finding, subject, at, stop, save)
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

    def __init__(
        self, finding: Finding, subject: Subject, at: RunFolders, stop: Stop, save: Save | None
    ) -> None:
        self.smallest = finding.smallest
        self._finding = finding
        self._subject = subject
        self._at = at
        self._stop = stop
        self._save = save
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
            if self._save is not None:
                self._save(lambda: self.finding(shrunk=False))
                self._drop_others()
        return fails

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
