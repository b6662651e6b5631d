"""What all nights together say: buckets with their history, trends, what was never tried. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from harness.formats.nightly_run import Bucket, Night

TREND: Final = 30
"""So many nights are drawn in a sparkline."""


@dataclass(frozen=True)
class BucketStory:
    """One bucket over all nights. `is_gone`: the last night replayed its schedule, and that no
    longer fails.

    `shown` has the smallest schedule there is, `counts` how often it was met in each of the last
    nights, `total` in all of them.
    """

    shown: Bucket
    first: int
    last: int
    total: int
    counts: tuple[int, ...]
    is_new: bool
    is_gone: bool

    @property
    def is_tonight(self) -> bool:
        """Whether the last night met it."""
        return self.counts[-1] > 0


@dataclass(frozen=True)
class Square:
    """One protocol and one property: what is known of it, and what was found, in how many runs."""

    expected: str
    found: int
    runs: int

    @property
    def tone(self) -> str:
        """`holds`, `found` as expected, `missing` (expected, never seen), `broken`, `none`."""
        if self.expected == "holds" and self.found:
            return "broken"
        if not self.runs:
            return "none"
        if self.expected == "holds":
            return "holds"
        return "found" if self.found else "missing"


@dataclass(frozen=True)
class KnownBug:
    """One exhibit of the museum over all nights: hunts, finds, and what the finds took."""

    code: str
    name: str
    protocol: str
    breaks: str
    hunts: int
    found: int
    schedules: float
    seconds: float
    trend: tuple[float, ...]
    last: int


@dataclass(frozen=True)
class CanaryStory:
    """The canary: the last night in which it failed as it must, and how many nights ago that is
    (-1: never)."""

    night: int
    age: int
    result: str
    sentence: str


def buckets(nights: Sequence[Night]) -> list[BucketStory]:
    """All buckets: unexpected before expected, new before old, then the most recent."""
    if not nights:
        return []
    tonight = nights[-1].number
    met: dict[str, list[tuple[int, Bucket]]] = {}
    for night in nights:
        for bucket in night.buckets:
            met.setdefault(bucket.key, []).append((night.number, bucket))
    shown = [night.number for night in nights[-TREND:]]
    found = []
    for times in met.values():
        counts = {number: bucket.count for number, bucket in times}
        smallest = min((b for _, b in reversed(times)), key=lambda b: (not b.schedule, b.faults))
        found.append(
            BucketStory(
                shown=smallest,
                first=times[0][0],
                last=times[-1][0],
                total=sum(counts.values()),
                counts=tuple(counts.get(number, 0) for number in shown),
                is_new=times[0][0] == tonight,
                is_gone=_is_gone(nights[-1], smallest),
            )
        )
    found.sort(key=lambda b: (b.shown.expected, not b.is_new, -b.last, -b.total, b.shown.key))
    return found


def _is_gone(night: Night, bucket: Bucket) -> bool:
    folder = bucket.schedule.rpartition("/")[0]
    return any(u.is_finding and folder and u.file.endswith(folder) for u in night.unmet)


def still_open(nights: Sequence[Night], is_there: Callable[[str], bool]) -> list[BucketStory]:
    """What earlier nights found on protocols that should hold and the last one neither met nor saw
    mended, as long as its schedule is in the store (`is_there` of a path)."""
    return [
        story
        for story in buckets(nights)
        if not (story.shown.expected or story.is_tonight or story.is_gone)
        and is_there(story.shown.schedule)
    ]


def new_buckets(nights: Sequence[Night]) -> set[str]:
    """The keys of the buckets that the last night met first."""
    return {story.shown.key for story in buckets(nights) if story.is_new}


def squares(nights: Sequence[Night]) -> dict[str, dict[str, Square]]:
    """By protocol and property, over all nights and both worlds, what was expected and found.

    A hunt of the museum counts where the protocol itself is the exhibit.
    """
    if not nights:
        return {}
    known = nights[-1].expected
    runs = dict.fromkeys(known, 0)
    found: dict[tuple[str, str], int] = {}
    for night in nights:
        for cell in night.cells:
            runs[cell.protocol] = runs.get(cell.protocol, 0) + cell.runs
            for name, count in cell.broken.items():
                key = (cell.protocol, name)
                found[key] = found.get(key, 0) + count
        for hunt in night.museum:
            if hunt.name == hunt.protocol:
                runs[hunt.protocol] = runs.get(hunt.protocol, 0) + hunt.schedules
                key = (hunt.protocol, hunt.breaks)
                found[key] = found.get(key, 0) + hunt.found
    return {
        protocol: {
            name: Square(expected, found.get((protocol, name), 0), runs[protocol])
            for name, expected in properties.items()
        }
        for protocol, properties in known.items()
    }


def league(nights: Sequence[Night]) -> list[KnownBug]:
    """The museum: what was never found first, then the longest median time to the bug.

    Medians are over hunts; one that found nothing counts with all it was given.
    """
    hunts: dict[str, list[tuple[int, bool, int, float]]] = {}
    about = {}
    for night in nights:
        for hunt in night.museum:
            about[hunt.code] = hunt
            times = hunts.setdefault(hunt.code, [])
            times.append((night.number, hunt.found, hunt.schedules, hunt.seconds))
    rows = [
        KnownBug(
            code=code,
            name=about[code].name,
            protocol=about[code].protocol,
            breaks=about[code].breaks,
            hunts=len(times),
            found=sum(t[1] for t in times),
            schedules=_median([t[2] for t in times]),
            seconds=_median([t[3] for t in times]),
            trend=tuple(t[3] if t[1] else -1.0 for t in times[-TREND:]),
            last=times[-1][0],
        )
        for code, times in hunts.items()
    ]
    return sorted(rows, key=lambda row: (row.found > 0, -row.seconds, row.code))


def canary(nights: Sequence[Night]) -> CanaryStory:
    """How the canary is."""
    last = next((n for n in reversed(nights) if n.canary.result == "failed"), None)
    latest = nights[-1].canary if nights else None
    return CanaryStory(
        night=last.number if last else 0,
        age=len(nights) - 1 - nights.index(last) if last else -1,
        result=latest.result if latest else "",
        sentence=latest.sentence if latest else "",
    )


def coverage(nights: Sequence[Night]) -> dict[str, dict[str, int]]:
    """By fault kind and `role/phase`, how often it was struck in all nights.

    Kinds that a storm can be drawn from are there even if they were never struck.
    """
    known = nights[-1].kinds if nights else ()
    table: dict[str, dict[str, int]] = {kind: {} for kind in known}
    for night in nights:
        for name, count in night.coverage.items():
            kind, _, where = name.partition("/")
            row = table.setdefault(kind, {})
            row[where] = row.get(where, 0) + count
    return table


def never(table: dict[str, dict[str, int]]) -> list[str]:
    """What was never tried, in words: kinds that never struck, roles that a kind never struck."""
    found = []
    if idle := [kind for kind, row in table.items() if not row]:
        found.append(f"not at all: {', '.join(idle)}")
    for role, words in (
        ("leader", "a leader"),
        ("follower", "a follower in sync"),
        ("lagging", "a follower that lags behind"),
    ):
        kinds = []
        for kind, row in table.items():
            roles = {where.partition("/")[0] for where in row}
            if row and "none" not in roles and role not in roles:
                kinds.append(kind)
        if kinds:
            found.append(f"on {words}: {', '.join(kinds)}")
    return found


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def speeds(nights: Sequence[Night]) -> Iterator[tuple[int, float]]:
    """Schedules a second of the simulated search, by night."""
    for night in nights[-TREND:]:
        yield night.number, night.totals.schedules_per_s
