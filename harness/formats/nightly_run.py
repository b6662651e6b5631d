"""The record of a nightly run: `store/nightly/NNNN.json` (docs/file-formats.md). Types only.

A summary is derived from the nightly run's journal and holds all that index, JUnit file and later
nightly runs need: run folders may be gone by then. `harness.nightly` writes it, the index page
reads it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
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
"""Nodes that a fault acts on. `follower`: in every ISR it belongs to; `lagging`: out of one;
`none`: a fault without nodes."""
PHASES: Final = ("in-sync", "isr-short", "leaderless")
"""How the partitions stood, the worst of them: led with the whole ISR, led, without a leader."""


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """One class of failure in one nightly run: how often, and how to see it again.

    `key` names protocol, world and class for good (12 hexadecimal digits). `expected` says that the
    protocol is known to break this property. `faults` and `schedule` are those of the smallest
    schedule of this nightly run, -1 and "" where only earlier nightly runs have one; paths are
    relative to the store.
    """

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
    """Runs of one protocol in one world, by verdict, and how many broke each property."""

    protocol: str
    world: str
    runs: LargeCount = 0
    verdicts: dict[str, LargeCount] = {}
    broken: dict[str, LargeCount] = {}


class Storms(msgspec.Struct, kw_only=True):
    """Real storms of one protocol under one set of fault kinds."""

    protocol: str
    kinds: str
    runs: LargeCount = 0


class SystemStorms(msgspec.Struct, kw_only=True):
    """Storms on one version of another system, in one configuration (`given`), by verdict; and the
    classes of what failed, counted."""

    system: str
    version: str
    given: str = ""
    runs: LargeCount = 0
    verdicts: dict[str, LargeCount] = {}
    buckets: dict[str, LargeCount] = {}

    @property
    def name(self) -> str:
        """The name under which its buckets are kept."""
        return system_label(self.system, self.version, self.given)


class TimeToBug(msgspec.Struct, frozen=True, kw_only=True):
    """One search for a known bug: what it took, or was given, in seconds of a core."""

    code: str
    name: str
    protocol: str
    breaks: str
    found: bool
    schedules: LargeCount
    seconds: Seconds


class Canary(msgspec.Struct, frozen=True, kw_only=True):
    """A real run with a bug turned on, which must be found: "failed" (good), "missed", "" where
    it has not been judged."""

    result: str = ""
    bug: str = ""
    sentence: str = ""
    seconds: Seconds = 0.0


class Unmet(msgspec.Struct, frozen=True, kw_only=True):
    """A saved schedule that did not do what it expects."""

    file: str
    world: str
    expected: str
    verdict: str
    sentence: str
    is_finding: bool = False
    """It was once found on a protocol expected to hold, and no longer fails: good news."""


class Totals(msgspec.Struct, kw_only=True):
    """The amount of work that was done."""

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
        """Of all cores together."""
        return self.schedules / self.search_seconds if self.search_seconds else 0.0


class NightlyRun(msgspec.Struct, kw_only=True):
    """One nightly run. `state`: finished, stopped, disk-full, failed, or running (also of a killed
    one).

    `red` are the reasons why it is red, one sentence each; `uncovered` says which part of the plan
    has no result, so that the run is neither red nor green. `skipped` says why work could not be
    done here, by kind of work; `problems` are about the harness.
    `open` are the buckets of earlier nightly runs that should not be, were not met in this run, and
    were not seen fixed either; `proved_nothing` are real runs without a verdict, and why.
    `coverage` counts faults by `kind/role/phase`. `expected` is, by protocol, what is known of
    each property ("holds", "violable"). `real` is False where no real
    processes were wanted: then there is no canary.
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
    """Return a version of a system, in a configuration: `nats 2.15.1 sync=always`."""
    return " ".join(filter(None, (system, version, given)))


def equal_reasons(reasons: Iterable[tuple[str, str]]) -> list[str]:
    """Group equal reasons: each once, with its first name and the number of others."""
    about: dict[str, list[str]] = {}
    for name, why in reasons:
        about.setdefault(why, []).append(name)
    more = {why: f" and {len(names) - 1} more" if names[1:] else "" for why, names in about.items()}
    return [f"{names[0]}{more[why]}: {why}" for why, names in about.items()]


def bucket_of(
    protocol: str, world: str, name: str, *, expected: bool = False, **about: Any
) -> Bucket:
    """Return a class of failures, not counted yet. Its key is the same in every nightly run; its
    property is the first word of its name."""
    key = hashlib.sha256("\0".join((protocol, world, name)).encode()).hexdigest()[:_DIGITS]
    broken = name.partition(":")[0]
    named: dict[str, Any] = {
        "key": key,
        "protocol": protocol,
        "world": world,
        "name": name,
        "property": broken,
    }
    return Bucket(**named, expected=expected, count=0, **about)


def nightly_runs(store: Path) -> tuple[list[NightlyRun], list[str]]:
    """Return the nightly runs of a store in order, and a sentence for each that cannot be read."""
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
