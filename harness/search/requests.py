"""Requests of the commands `search`, `bugs find`, `shrink` and `demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from harness.formats.options import (
    READABLE,
    Budget,
    Bugs,
    Consumers,
    FindingsStore,
    Jobs,
    Json,
    OnlyBugs,
    Page,
    Quiet,
    Seed,
    SparkMaster,
    Store,
    SystemOfFolder,
    SystemSettings,
)
from node.formats.errors import UsageError

SIMULATED: Final = {"about": "simulated worlds"}
REAL: Final = {"about": "real processes"}
BUG_BUDGET_S: Final = 300.0
LOSS_BUDGET_S: Final = 900.0


class SearchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to search a protocol in simulated worlds, or with `system` a system of real
    processes. `budget_s` limits the whole command, `schedules` the number of drawn schedules (0: no
    limit). Without `shrink`, findings are saved but not shrunk."""

    protocol: Annotated[str | None, Meta(extra=SIMULATED)] = None
    """The protocol to break, in simulated worlds [default: kafka]."""
    system: str | None = None
    """Search on real processes of this system instead: a name that `floodmark systems` lists, or
    path/to/file.py:Class."""
    settings: Annotated[SystemSettings, Meta(extra=REAL)] = {}
    bugs: Annotated[Bugs, Meta(extra=SIMULATED)] = ()
    faults: str = ""
    """Kinds of faults of disks that schedules may have beside the others, a comma list; disk: all
    that one broker survives. Of a system: all kinds that storms may have [default: in the simulated
    world a few of disks; else all but disks, clocks and system calls; power cuts too]."""
    disks: Annotated[Literal["none", "one", "any"], Meta(extra=REAL)] = "any"
    """Of a system: how many nodes may lose what they have not synced."""
    links: Annotated[str | None, Meta(extra=REAL)] = None
    """Of a system: what stands between its nodes, as for `run`."""
    consumers: Consumers = 1
    seed: Seed = 0
    budget_s: Budget = 0.0
    """End after this time, such as 90s, 15m or 1h30m, with all that follows a find; 0s: no limit.
    """
    schedules: Annotated[int, Meta(ge=0, le=10**9)] = 0
    """Stop after this many schedules; 0: no limit."""
    until_failure: bool = False
    """Stop at the first finding."""
    shrink: Annotated[bool, Meta(extra=REAL)] = True
    """Of a system: only keep what is found."""
    jobs: Jobs = 0
    master: Annotated[SparkMaster | None, Meta(extra=SIMULATED)] = None
    """URL of a Spark cluster to search on instead of this machine."""
    store: FindingsStore = Path("store")
    quiet: Quiet = False
    json: Json = False

    def check(self) -> None:
        """Check the request. Raises UsageError if it has no limit at which the search ends, or an
        option that applies only to the other kind of search (simulated or real)."""
        other = SIMULATED if self.system is not None else REAL
        for field in msgspec.structs.fields(self):
            about = _about(field.type)
            if about == other["about"] and getattr(self, field.name) not in (field.default, {}):
                _refuse(field, about)
        if not (self.budget_s or self.schedules or self.until_failure):
            raise UsageError("a search needs an end: --budget, --schedules or --until-failure")


def _about(hint: Any) -> str:
    """Return the kind of worlds about which an option is, "" for both."""
    metas = getattr(hint, "__metadata__", ())
    return next((m.extra["about"] for m in metas if "about" in (m.extra or {})), "")


def _refuse(field: msgspec.structs.FieldInfo, about: str) -> None:
    """Raise the UsageError for an option about the other kind of world."""
    extra = {key: value for meta in field.type.__metadata__ for key, value in meta.extra.items()}
    option = "--" + "no-" * (field.default is True) + str(extra.get("option", field.name))
    if about == REAL["about"]:
        raise UsageError(f"{option} is about {about}: name a system with --system")
    raise UsageError(f"{option} is about {about}, and not about a --system; leave one of them out")


class BugSearchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to search for known bugs, or for known losses of a third-party `system`."""

    only: OnlyBugs = ()
    budget_s: Budget | None = None
    """Time for each search, of one core or of a system [default: 5m, of a system 15m]."""
    seeds: Annotated[int, Meta(ge=1, le=1000)] = 3
    """Searches for each bug, each with its own seed."""
    system: str | None = None
    """Search for the known losses of this system on real processes instead; all: of all systems."""
    jobs: Jobs = 0
    store: Store = Path("store")
    """Folder for results; they go to its known-bugs/ and findings/."""
    page: Page = None
    quiet: Quiet = False
    json: Json = False

    @property
    def search_s(self) -> float:
        """The time limit of each search in seconds."""
        usual_s = BUG_BUDGET_S if self.system is None else LOSS_BUDGET_S
        return usual_s if self.budget_s is None else self.budget_s


class ShrinkRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to shrink the schedule of a failed run, or of a finding."""

    run: Annotated[Path, Meta(extra=READABLE)]
    """The folder of a run that is invalid, or of a finding."""
    system: SystemOfFolder = None
    settings: SystemSettings = {}
    budget_s: Budget = 900.0
    store: FindingsStore = Path("store")
    quiet: Quiet = False


class BisectRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to find the version in which a schedule begins to fail, or ends to."""

    schedule: Annotated[Path, Meta(extra=READABLE)]
    """A schedule file, or the folder of a run."""
    system: str
    """The system, as for `floodmark run`."""
    settings: SystemSettings = {}
    versions: tuple[str, ...] = ()
    """A range A..B of the versions that can be fetched; may be repeated."""
    server: Annotated[tuple[Path, ...], Meta(extra=READABLE)] = ()
    """An executable, from the oldest to the newest; may be repeated."""
    git: Annotated[Path | None, Meta(extra=READABLE)] = None
    """A clone of the server's sources: --versions is then a range of commits."""
    build: str = ""
    """The shell command that builds the server in a checkout of --git."""
    budget_s: Budget = 3600.0
    store: Store = Path("store")
    """Folder for run folders and rows."""
    json: Json = False
    quiet: Quiet = False


class DemoRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for the demonstration: where its results go."""

    store: Store = Path("store")
    """Folder for results; they go to its findings/."""
    jobs: Jobs = 0
    quiet: Quiet = False
