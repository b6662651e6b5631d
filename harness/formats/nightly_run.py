"""The summary of a nightly run: `store/nightly/NNNN.json` (docs/file-formats.md).

A summary is derived from the nightly run's journal. The index page, the JUnit file and later
nightly runs read only summaries, because run folders may be gone by then.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from node.formats.bounds import LargeCount, Number, Seconds
from node.formats.host_errors import reason
from node.formats.json_input import Unreadable, read_file

FORMAT_VERSION: Final = 1
FOLDER: Final = "nightly"
_DIGITS: Final = 12
ROLES: Final = ("leader", "follower", "lagging", "controller", "voter", "none")
"""The roles of nodes that a fault acts on. `follower`: in the ISR of all its partitions; `lagging`:
not in one of these ISRs; `none`: a fault without nodes."""
PHASES: Final = ("in-sync", "isr-short", "leaderless")
"""The states of partitions when a fault came, of which the worst one counts: led with the whole
ISR, led, without a leader."""


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """A class of failure in one nightly run: how often it occurred, and how to see it again. `key`
    is a digest of protocol, world and class (12 hexadecimal digits), the same in every nightly run.
    `expected` says that the protocol is known to break this property. `faults` (a number) and
    `schedule` are of the smallest schedule of this nightly run, -1 and "" if only earlier nightly
    runs have one. Paths are relative to the store."""

    key: str
    protocol: str
    world: str
    property: str
    name: str
    expected: bool
    count: LargeCount
    sentence: str = ""
    faults: Number = -1
    schedule: str = ""
    replay: str = ""
    page: str = ""


class VerdictCounts(msgspec.Struct, kw_only=True):
    """The runs of one protocol in one world, counted by verdict and by broken property."""

    protocol: str
    world: str
    runs: LargeCount = 0
    verdicts: dict[str, LargeCount] = {}
    broken: dict[str, LargeCount] = {}


class Storms(msgspec.Struct, kw_only=True):
    """The number of real storms of one protocol with one set of fault kinds."""

    protocol: str
    kinds: str
    runs: LargeCount = 0


class SystemStorms(msgspec.Struct, kw_only=True):
    """The storms on one version of a third-party system with the settings `given`, counted by
    verdict, and its failures counted by class."""

    system: str
    version: str
    given: str = ""
    runs: LargeCount = 0
    verdicts: dict[str, LargeCount] = {}
    buckets: dict[str, LargeCount] = {}

    @property
    def name(self) -> str:
        """The system with version and settings, under which its buckets are kept."""
        return system_label(self.system, self.version, self.given)


class RowRuns(msgspec.Struct, kw_only=True):
    """The runs of one row of `harness/systems/rows.json`: it holds if at least `least` of its `of`
    runs end as `expect`. `lost` counts the lost records of each run; `missing` says why no run is
    possible here, "" if one is."""

    name: str
    expect: str
    least: LargeCount
    of: LargeCount
    version: str = ""
    verdicts: dict[str, LargeCount] = {}
    lost: list[LargeCount] = []
    missing: str = ""

    def add(self, verdict: str, lost: int, version: str) -> None:
        self.verdicts[verdict] = self.verdicts.get(verdict, 0) + 1
        self.lost.append(lost)
        self.version = version

    @property
    def as_expected(self) -> int:
        """The number of runs that ended as expected."""
        return self.verdicts.get(self.expect, 0)

    @property
    def holds(self) -> bool | None:
        """Return whether the row holds; None while its runs leave that open. A run without a
        verdict speaks neither for the row nor against it."""
        against = len(self.lost) - self.as_expected - self.verdicts.get("unknown", 0)
        if against > self.of - self.least:
            return False
        return True if self.as_expected >= self.least else None

    def __str__(self) -> str:
        if self.missing:
            return f"{self.name}: not run: {self.missing}"
        label = f"{self.name} ({self.version})" if self.version else self.name
        others = [f"{n} {v}" for v, n in self.verdicts.items() if v != self.expect]
        ran = f"{self.as_expected} of {len(self.lost)} {self.expect}" if self.lost else "no run"
        return f"{label}: {', '.join([ran, *others])}; it holds with {self.least} of {self.of}"


class TimeToBug(msgspec.Struct, frozen=True, kw_only=True):
    """One search for a known bug. `seconds` of one core are the time until it was found, or the
    time that was spent in vain."""

    code: str
    name: str
    protocol: str
    breaks: str
    found: bool
    schedules: LargeCount
    seconds: Seconds


class Canary(msgspec.Struct, frozen=True, kw_only=True):
    """A real run with a bug turned on, which must fail. `result`: "failed" (as it should), "missed"
    (it did not fail), "" if there is no verdict."""

    result: str = ""
    bug: str = ""
    sentence: str = ""
    seconds: Seconds = 0.0


class Unmet(msgspec.Struct, frozen=True, kw_only=True):
    """A saved schedule whose replay did not do what the schedule expects."""

    file: str
    world: str
    expected: str
    verdict: str
    sentence: str
    is_finding: bool = False
    """Whether the schedule was once found on a protocol expected to hold: no longer failing is good
    news."""


class Totals(msgspec.Struct, kw_only=True):
    """The amount of work that a nightly run did."""

    schedules: LargeCount = 0
    search_seconds: Seconds = 0.0
    virtual_seconds: Seconds = 0.0
    events: LargeCount = 0
    failures: LargeCount = 0
    real_runs: LargeCount = 0
    storms: LargeCount = 0
    replays: LargeCount = 0
    replays_met: LargeCount = 0
    determinism_runs: LargeCount = 0
    cut_off: LargeCount = 0

    @property
    def schedules_per_s(self) -> float:
        """Searched schedules per second, over all cores together."""
        return self.schedules / self.search_seconds if self.search_seconds else 0.0


class NightlyRun(msgspec.Struct, kw_only=True):
    """One nightly run. `state`: finished, stopped, disk-full, failed, or running (also if it was
    killed).

    `red` are the reasons why it is red, one sentence each; `uncovered` the parts of the plan
    without a result, because of which it is neither red nor green. `skipped` maps a kind of work to
    why it could not be done here; `problems` are those of the harness. `open` are the unexpected
    buckets of earlier nightly runs that did not occur in this run and whose schedules were not seen
    to pass either. `proved_nothing` are real runs without a verdict, and why. `coverage` counts
    faults by `kind/role/phase`. `expected` maps a protocol to what is known of each property
    ("holds", "violable"). `real`: whether runs of real processes were requested; without them there
    is no canary. `rows` are those that were asked for. `cells` counts verdicts by protocol and
    world, `differing` are failed checks of determinism.
    """

    number: LargeCount
    seed: int
    state: str
    started: str
    budget_s: Seconds
    used_s: Seconds
    cores: LargeCount
    machine: str = ""
    real: bool = True
    format: Number = FORMAT_VERSION
    shares: dict[str, Seconds] = {}
    spent: dict[str, Seconds] = {}
    totals: Totals = msgspec.field(default_factory=Totals)
    cells: list[VerdictCounts] = []
    storms: list[Storms] = []
    systems: list[SystemStorms] = []
    rows: list[RowRuns] = []
    buckets: list[Bucket] = []
    known_bugs: list[TimeToBug] = []
    canary: Canary = Canary()
    unmet: list[Unmet] = []
    differing: list[str] = []
    coverage: dict[str, LargeCount] = {}
    expected: dict[str, dict[str, str]] = {}
    kinds: tuple[str, ...] = ()
    red: list[str] = []
    uncovered: list[str] = []
    skipped: dict[str, str] = {}
    open: list[str] = []
    proved_nothing: list[str] = []
    problems: list[str] = []


def system_label(system: str, version: str, given: str) -> str:
    """Return a name for a version of a system with its settings: `nats 2.15.1 sync=always`."""
    return " ".join(filter(None, (system, version, given)))


def label_of(identity: str) -> str:
    """Return the name of a system from its `StormSubject.identity`, without its server's path."""
    name, *given = identity.split("+")
    return system_label(name, "", " ".join(one for one in given if not one.startswith("server=")))


def equal_reasons(reasons: Iterable[tuple[str, str]]) -> list[str]:
    """Group names by their reason. Return a line for each different reason, with the first name and
    the number of others."""
    about: dict[str, list[str]] = {}
    for name, why in reasons:
        about.setdefault(why, []).append(name)
    more = {why: f" and {len(names) - 1} more" if names[1:] else "" for why, names in about.items()}
    return [f"{names[0]}{more[why]}: {why}" for why, names in about.items()]


def bucket_of(
    protocol: str, world: str, name: str, *, expected: bool = False, **about: Any
) -> Bucket:
    """Return the bucket of a class of failures, with count 0. Its key is the same in every nightly
    run; its property is the first word of `name`."""
    key = hashlib.sha256("\0".join((protocol, world, name)).encode()).hexdigest()[:_DIGITS]
    about |= {"property": name.partition(":")[0], "expected": expected}
    return Bucket(key=key, protocol=protocol, world=world, name=name, count=0, **about)


def nightly_runs(store: Path) -> tuple[list[NightlyRun], list[str]]:
    """Return a store's nightly runs in rising order, and a sentence for each unreadable file."""
    found, unread = [], []
    for file in sorted((store / FOLDER).glob("*.json")):
        try:
            nightly = read_file(file, NightlyRun)
        except (OSError, Unreadable) as error:
            unread.append(f"{FOLDER}/{file.name} cannot be read: {reason(error)}")
            continue
        if nightly.format == FORMAT_VERSION:
            found.append(nightly)
        else:
            unread.append(
                f"{FOLDER}/{file.name} has format {nightly.format}, "
                f"this page reads {FORMAT_VERSION}"
            )
    found.sort(key=lambda nightly: nightly.number)
    return found, unread


MOST_NAMED: Final = 20
_WORDS: Final = dict(zip(PHASES, ("all in sync", "an ISR short", "no leader"), strict=True))


def never_met(coverage: Mapping[str, int], kinds: Iterable[str]) -> list[str]:
    """Return the fault kinds that never met some states of a partition, each with those states:
    `kill (no leader)`. `coverage` counts faults that took effect by `kind/role/phase`, where the
    phase is the state of the partition. A kind that never took effect is listed without states."""
    met: dict[str, set[str]] = {}
    for name, count in coverage.items():
        kind, _, where = name.partition("/")
        if count:
            met.setdefault(kind, set()).add(where.rpartition("/")[2])
    found = []
    for kind in sorted(set(kinds)):
        missing = [_WORDS[phase] for phase in PHASES if phase not in met.get(kind, ())]
        if len(missing) == len(PHASES):
            found.append(kind)
        elif missing:
            found.append(f"{kind} ({', '.join(missing)})")
    return found


def rate_of_new(coverage: Mapping[str, int]) -> float:
    """Return about how often the next fault meets a role and state that none of its kind has met:
    the share of those met once (Good and Turing). 1 if there is no fault."""
    total = sum(coverage.values())
    return sum(count == 1 for count in coverage.values()) / total if total else 1.0


def in_words(pairs: list[str], most: int = MOST_NAMED) -> str:
    """Return the first `most` items as a comma list, with the number of others; "" for none."""
    more = f" and {len(pairs) - most} more" if len(pairs) > most else ""
    return ", ".join(pairs[:most]) + more
