"""The record of a failure in a search on real processes: `finding.json` (docs/file-formats.md)."""

from __future__ import annotations

from typing import Final

import msgspec

from checker.formats.anomalies import LOST_WRITES
from node.formats.bounds import LargeCount, Number, Seconds

FOLDER: Final = "system-findings"
"""In the store; each finding has a folder of its own, with the schedules of
`harness.formats.finding`."""
FILE: Final = "finding.json"
UNSEEN: Final = "unseen"


class RunCounts(msgspec.Struct, frozen=True, kw_only=True):
    """In how many of how many runs of one schedule the system failed in the same way."""

    failed: LargeCount = 0
    of: LargeCount = 0

    def __str__(self) -> str:
        return f"{self.failed} of {self.of}"


class WithoutFault(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of the smallest schedule when one of its faults was left out."""

    fault: Number
    words: str
    counts: RunCounts


class SafeRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of the smallest schedule on the configuration that is called safe."""

    verdict: str
    sentence: str = ""
    folder: str = ""


class SystemFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A failure of a system under storms, and the smallest schedule known that shows it.

    `bucket` is its class: the property, how many `disks` lost something, and whether faults were
    `on_links`; `anomaly` is the first of the property. It was found by the
    storm `storm` of the seed, after `storms_before` others and so many seconds of the whole search.
    `counts` are of the smallest schedule, `drawn_counts` of the one that was drawn. `faults` says
    the smallest schedule in words. `shrunk`: no smaller one was found, and the time sufficed to
    look. `run` is the folder of a failing run of the smallest schedule. `safe_settings` is None
    where the system declares no safe configuration.
    """

    system: str
    version: str
    bucket: str
    property: str
    disks: LargeCount
    sentence: str
    seed: int
    storm: LargeCount
    family: str
    storms_before: LargeCount
    seconds_before: Seconds
    on_links: bool = False
    anomaly: str = ""
    settings: dict[str, str] = {}
    shrink_runs: LargeCount = 0
    shrunk: bool = False
    drawn_faults: LargeCount = 0
    faults: tuple[str, ...] = ()
    counts: RunCounts = RunCounts()
    drawn_counts: RunCounts = RunCounts()
    without: tuple[WithoutFault, ...] = ()
    run: str = ""
    safe_settings: dict[str, str] | None = None
    safe_runs: tuple[SafeRun, ...] = ()
    format: Number = 1


def is_undelivered(about: str, anomaly: str) -> bool:
    """Return whether acknowledged writes are missing from what was read, and still in some log:
    then a cluster does not serve them, and nothing says that they are gone."""
    return about == LOST_WRITES and anomaly == UNSEEN
