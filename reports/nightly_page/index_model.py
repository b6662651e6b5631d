"""The results of all nightly runs together: buckets, known bugs, fault coverage. Pure.

A bucket is a class of failures: the same protocol breaks the same property in the same way."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final

from harness.formats.nightly_run import Bucket, NightlyRun, SystemStorms, TimeToBug
from reports import wording

TREND: Final = 30
"""The number of nightly runs in a sparkline."""


@dataclass(frozen=True)
class BucketTrend:
    """One bucket over all nightly runs.

    `shown` has its smallest schedule, `counts` the failures in each of the last runs, `total` those
    in all runs. `is_gone`: the last run replayed its schedule, which no longer fails."""

    shown: Bucket
    first: int
    last: int
    total: int
    counts: tuple[int, ...]
    is_new: bool
    is_gone: bool

    @property
    def is_current(self) -> bool:
        """Whether the last nightly run met a failure of this bucket."""
        return self.counts[-1] > 0


@dataclass(frozen=True)
class Square:
    """The results of one protocol for one property: `expected` is "holds" or how it should break,
    `found` the number of failures in `runs` runs."""

    expected: str
    found: int
    runs: int

    @property
    def tone(self) -> str:
        """The colour class: `holds`, `found` as expected, `missing` (expected, but never found),
        `broken` (unexpected), `none` (never run)."""
        if self.expected == "holds" and self.found:
            return "broken"
        if not self.runs:
            return "none"
        if self.expected == "holds":
            return "holds"
        return "found" if self.found else "missing"


@dataclass(frozen=True)
class BugSummary:
    """One known bug over all nightly runs: its last search, the numbers of searches and finds, the
    median effort of a search, and the seconds of the last ones, -1 for one without a find."""

    about: TimeToBug
    searches: int
    found: int
    schedules: float
    seconds: float
    trend: tuple[float, ...]
    last: int


@dataclass(frozen=True)
class VersionsCompared:
    """The storms of two versions of a system in one configuration. A bucket may be missing by
    chance: the numbers of storms say how much was tried."""

    older: SystemStorms
    newer: SystemStorms

    @property
    def words(self) -> str:
        """Format the comparison: `nats: 2.12.1 (9 storms) to 2.15.1 (8): gone: lost (3 of 9)`."""
        both = (self.older, self.newer)
        named: dict[str, list[str]] = {"gone": [], "new": [], "in both": []}
        for name in sorted({*self.older.buckets, *self.newer.buckets}):
            failed = [(each.buckets.get(name, 0), each.runs) for each in both]
            counts = [f"{count} of {runs}" for count, runs in failed if count]
            how = "in both" if len(counts) == 2 else "gone" if failed[0][0] else "new"
            named[how].append(f"{name} ({', then '.join(counts)})")
        told = "; ".join(f"{how}: {', '.join(names)}" for how, names in named.items() if names)
        given = f" with {self.older.given}" if self.older.given else ""
        versions = (f"{each.version} ({wording.count(each.runs, 'storm')})" for each in both)
        return (
            f"{self.older.system}{given}: {' to '.join(versions)}: {told or 'no failure in either'}"
        )


def buckets(nightly_runs: Sequence[NightlyRun]) -> list[BucketTrend]:
    """Return all buckets: unexpected before expected, new before old, then the most recent."""
    if not nightly_runs:
        return []
    latest = nightly_runs[-1].number
    met: dict[str, list[tuple[int, Bucket]]] = {}
    for nightly in nightly_runs:
        for bucket in nightly.buckets:
            met.setdefault(bucket.key, []).append((nightly.number, bucket))
    shown = [nightly.number for nightly in nightly_runs[-TREND:]]
    found = []
    for times in met.values():
        counts = {number: bucket.count for number, bucket in times}
        smallest = min((b for _, b in reversed(times)), key=lambda b: (not b.schedule, b.faults))
        folder = smallest.schedule.rpartition("/")[0]
        unmet = [u.file for u in nightly_runs[-1].unmet if u.is_finding]
        found.append(
            BucketTrend(
                shown=smallest,
                first=times[0][0],
                last=times[-1][0],
                total=sum(counts.values()),
                counts=tuple(counts.get(number, 0) for number in shown),
                is_new=times[0][0] == latest,
                is_gone=bool(folder) and any(file.endswith(folder) for file in unmet),
            )
        )
    found.sort(key=lambda b: (b.shown.expected, not b.is_new, -b.last, -b.total, b.shown.key))
    return found


def still_open(
    nightly_runs: Sequence[NightlyRun], is_there: Callable[[str], bool]
) -> list[BucketTrend]:
    """Return the unexpected buckets that may still fail: the last nightly run neither met them nor
    saw them fixed, and `is_there` finds their schedules in the store."""
    return [
        trend
        for trend in buckets(nightly_runs)
        if not (trend.shown.expected or trend.is_current or trend.is_gone)
        and is_there(trend.shown.schedule)
    ]


def new_buckets(nightly_runs: Sequence[NightlyRun]) -> set[str]:
    """Return the keys of the buckets that are new in the last nightly run."""
    return {trend.shown.key for trend in buckets(nightly_runs) if trend.is_new}


def squares(nightly_runs: Sequence[NightlyRun]) -> dict[str, dict[str, Square]]:
    """Return the expected and found failures of all nightly runs, by protocol and property. A
    search for a known bug counts only if the bug is that of a whole protocol."""
    if not nightly_runs:
        return {}
    known = nightly_runs[-1].expected
    runs, found = Counter[str](), Counter[tuple[str, str]]()
    for nightly in nightly_runs:
        for cell in nightly.cells:
            runs[cell.protocol] += cell.runs
            for name, count in cell.broken.items():
                found[cell.protocol, name] += count
        for search in nightly.known_bugs:
            if search.name == search.protocol:
                runs[search.protocol] += search.schedules
                found[search.protocol, search.breaks] += search.found
    return {
        protocol: {
            name: Square(expected, found[protocol, name], runs[protocol])
            for name, expected in properties.items()
        }
        for protocol, properties in known.items()
    }


def known_bugs(nightly_runs: Sequence[NightlyRun]) -> list[BugSummary]:
    """Return the known bugs: those never found first, then the longest median time to the bug.

    Medians are over searches; a search without a find counts with the whole time that it was
    given."""
    searches: dict[str, list[TimeToBug]] = {}
    last: dict[str, int] = {}
    for nightly in nightly_runs:
        for search in nightly.known_bugs:
            searches.setdefault(search.code, []).append(search)
            last[search.code] = nightly.number
    rows = [
        BugSummary(
            about=times[-1],
            searches=len(times),
            found=sum(t.found for t in times),
            schedules=median(t.schedules for t in times),
            seconds=median(t.seconds for t in times),
            trend=tuple(t.seconds if t.found else -1.0 for t in times[-TREND:]),
            last=last[code],
        )
        for code, times in searches.items()
    ]
    return sorted(rows, key=lambda row: (row.found > 0, -row.seconds, row.about.code))


def systems(nightly_runs: Sequence[NightlyRun]) -> list[SystemStorms]:
    """Return the storms of each version and configuration of other systems, over all nightly runs.
    Versions of a system are in their order."""
    found: dict[str, SystemStorms] = {}
    for nightly in nightly_runs:
        for one in nightly.systems:
            known = found.setdefault(
                one.name, SystemStorms(system=one.system, version=one.version, given=one.given)
            )
            known.runs += one.runs
            for into, more in ((known.verdicts, one.verdicts), (known.buckets, one.buckets)):
                for name, count in more.items():
                    into[name] = into.get(name, 0) + count
    return sorted(found.values(), key=lambda one: (one.system, one.given, _in_order(one.version)))


def versions_compared(nightly_runs: Sequence[NightlyRun]) -> list[VersionsCompared]:
    """Compare each version of a system with the next newer one run in the same configuration."""
    return [
        VersionsCompared(older, newer)
        for older, newer in pairwise(systems(nightly_runs))
        if (older.system, older.given) == (newer.system, newer.given)
    ]


def _in_order(version: str) -> tuple[tuple[int, ...], str]:
    """Order version numbers: 2.9.10 before 2.12.1."""
    return tuple(int(part) for part in re.findall(r"\d+", version)), version


def canary_failed(nightly_runs: Sequence[NightlyRun]) -> tuple[int, int]:
    """Return the number of the last nightly run in which the canary failed, as it must, and how
    many runs ago that was; 0 and -1 if there is none."""
    for age, nightly in enumerate(reversed(nightly_runs)):
        if nightly.canary.result == "failed":
            return nightly.number, age
    return 0, -1


def coverage(nightly_runs: Sequence[NightlyRun]) -> dict[str, dict[str, int]]:
    """Return how often a fault took effect in all nightly runs, by fault kind and then `role/phase`
    of its victim. Every kind that a storm can draw has a row, if only an empty one."""
    known = nightly_runs[-1].kinds if nightly_runs else ()
    table: dict[str, dict[str, int]] = {kind: {} for kind in known}
    for nightly in nightly_runs:
        for name, count in nightly.coverage.items():
            kind, _, where = name.partition("/")
            row = table.setdefault(kind, {})
            row[where] = row.get(where, 0) + count
    return table
