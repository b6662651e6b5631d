"""The options of the commands `run`, `check`, `report`, `replay` and `systems`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from checker.formats.verdict import RunResult, Verdict
from harness.formats.options import (
    READABLE,
    WEEK_S,
    WRITABLE_FOLDER,
    Bugs,
    Json,
    Master,
    OnSpark,
    Page,
    Quiet,
    Seed,
    Store,
    SystemOfFolder,
    SystemSettings,
)
from nemesis.formats.cluster_spec import (
    BatchSize,
    ClientCount,
    Milliseconds,
    NodeCount,
    PartitionCount,
    Rate,
    RecordCount,
)
from node.formats.wire_bounds import FetchBytes

EXIT_OVER: Final = 1


class GivenLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on the availability of a run, which change the exit code of a valid one: the longest
    time without an acknowledgement, and the longest 99th percentile of the latency of acknowledged
    sends, in seconds; None: no limit."""

    max_gap_s: (
        Annotated[float, Meta(gt=0, le=WEEK_S, extra={"unit": "s", "option": "max-gap"})] | None
    ) = None
    """Exit with 1 if nothing was acknowledged for longer, such as 5s."""
    p99_s: Annotated[float, Meta(gt=0, le=WEEK_S, extra={"unit": "s", "option": "p99"})] | None = (
        None
    )
    """Exit with 1 if more than one of a hundred acknowledged sends took longer, such as 200ms."""

    def broken_by(self, result: RunResult) -> list[str]:
        """Return a sentence for each limit that a valid run exceeds, or that cannot be checked
        because nothing was measured. Other runs have failed already."""
        return list(self._broken(result)) if result.verdict is Verdict.VALID else []

    def _broken(self, result: RunResult) -> Iterator[str]:
        latency = result.measures.get("latency_ms", {}).get("send", {})
        measured = (
            ("--max-gap", self.max_gap_s, result.measures.get("longest_gap_ms"), "longest gap"),
            ("--p99", self.p99_s, latency.get("p99"), "99th percentile of the latency of sends"),
        )
        for option, limit_s, found_ms, what in measured:
            if limit_s is None:
                continue
            if found_ms is None:
                yield f"the {what} was not measured, so {option} cannot be checked"
            elif found_ms > limit_s * 1000:
                yield f"the {what} was {found_ms:g} ms, and {option} allows {limit_s * 1000:g} ms"


RunStore = Annotated[Store, Meta(description="Folder for run folders.")]


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `run`: a run, and what to show of it. None means that an option is not given.
    A `schedule` gives everything, the system too, except for the options given beside it."""

    system: str | None = None
    """System under test: a name that `floodmark systems` lists, or path/to/file.py:Class [default:
    that of the run folder of --schedule, else floodmark]."""
    settings: SystemSettings = {}
    schedule: Annotated[Path | None, Meta(extra=READABLE)] = None
    """Run this schedule instead of a drawn storm: a schedule file, the name of a ready-made
    schedule, or a run folder (runs its schedule again)."""
    protocol: str | None = None
    """Replication protocol; `floodmark protocols` lists them [default: kafka]."""
    brokers: NodeCount | None = None
    """Number of brokers [default: 3]."""
    voters: Annotated[int, Meta(ge=1, le=5)] | None = None
    """Number of metadata voters: 1, 3 or 5 [default: 1]."""
    partitions: PartitionCount | None = None
    """Number of partitions [default: 4]."""
    replication_factor: NodeCount | None = None
    """Replicas of each partition [default: 3]."""
    min_isr: NodeCount | None = None
    """min.insync.replicas [default: 2]."""
    retention_records: RecordCount | None = None
    """Committed records to keep of a partition, 0: all [default: 0]."""
    fetch_max_bytes: Annotated[FetchBytes | None, Meta(extra={"unit": "B"})] = None
    """Bytes that a follower asks for at once; it gets at least one batch [default: 1048576]."""
    acks: str | None = None
    """Acknowledgements of a send: 0, 1 or all [default: all]."""
    clients: ClientCount | None = None
    """Number of producers [default: 8]."""
    consumers: ClientCount | None = None
    """Number of consumers [default: 4]."""
    rate: Rate | None = None
    """Batches per second of each producer; 0: as fast as possible [default: 10]."""
    batch: BatchSize | None = None
    """Records per batch [default: 5]."""
    idempotent: bool | None = None
    """Producers are idempotent: they send again."""
    members: ClientCount | None = None
    """Members of a group that consumes [default: 0]."""
    time_limit: Annotated[float, Meta(gt=0, le=WEEK_S, extra={"unit": "s"})] | None = None
    """Length of the storm in seconds, or such as 5m [default: 30]."""
    faults: str | None = None
    """Kinds of faults to draw, such as kill,pause,partition; none; all [default: all]."""
    seed: Seed | None = None
    """Seed of the drawn storm and of the workload [default: random]."""
    flush: str | None = None
    """When brokers sync to disk: sync, async or async:MS [default: sync]."""
    bugs: Bugs = ()
    name: str | None = None
    """Name of the run in the store [default: protocol and bugs]."""
    store: RunStore = Path("store")
    links: str | None = None
    """What stands between the nodes: hub or none for our own brokers, proxy, kernel or none for
    other systems; with none, link faults are impossible [default: the first]."""
    disk: str | None = None
    """What the disks of the nodes are: user-space, declared or plain; journal or user-space for our
    own brokers; auto: what the faults need [default: auto]."""
    write_back_ms: Annotated[Milliseconds | None, Meta(extra={"unit": "ms"})] = None
    """Age in ms at which a disk in user space writes back by itself, 0: never, and not when the
    storm begins [default: 30000]."""
    report: bool = True
    """Do not build the page."""
    baseline: bool = True
    """Do not repeat a failed run under a correct protocol for comparison."""
    limits: GivenLimits = GivenLimits()
    spark: OnSpark = True
    quiet: Quiet = False
    json: Json = False
    open: bool = False
    """Open the page in a browser."""


class CheckRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `check`: the runs to judge, and the output."""

    runs: Annotated[tuple[Path, ...], Meta(extra=READABLE)]
    """Run folders, stores, or histories of other tools (history.edn)."""
    spark: OnSpark = True
    json: Json = False
    validate: bool = False
    """Do not judge: only list the lines of the history that are malformed."""
    master: Master = None
    out: Annotated[Path | None, Meta(extra=WRITABLE_FOLDER)] = None
    """Folder for results and tables [default: the run folders]."""
    again: bool = False
    """Judge a run even if nothing changed since its last verdict."""
    promise: Annotated[Path | None, Meta(extra=READABLE)] = None
    """JSON file with what the system of these histories promises (docs/checks.md)."""
    limits: GivenLimits = GivenLimits()
    report: bool = True
    """Do not build the page of a failed run."""


class ReportRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `report`: the runs and findings whose pages are built."""

    runs: Annotated[tuple[Path, ...], Meta(extra=READABLE)]
    """Run folders (store/<name>/<time>), findings (store/findings/<name>), or stores."""


class CompareRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `compare`: two runs, and how they are shown."""

    before: Annotated[Path, Meta(extra=READABLE)]
    """A run folder."""
    after: Annotated[Path, Meta(extra=READABLE)]
    """The run folder to set beside it."""
    json: Json = False


class ReplayRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `replay`. Real runs go to `store` if `keep` is not given."""

    file: Annotated[Path, Meta(extra=READABLE)]
    """A schedule file, the name of a ready-made schedule, a run folder or a finding."""
    system: SystemOfFolder = None
    settings: SystemSettings = {}
    world: Literal["simulated", "real"] | None = None
    """Where to run it: simulated, or real (real processes) [default: simulated, but real for a run
    of another system than our brokers]."""
    times: Annotated[int, Meta(ge=1, le=1000000)] = 1
    """Number of runs; each uses the next seed."""
    expect: str = ""
    """Expected verdict: valid, invalid or invalid:PROPERTY [default: the expectation of the
    schedule]."""
    protocol: str | None = None
    """Run it under this protocol instead of that of the schedule."""
    seed: Seed | None = None
    """Seed of the first run [default: that of the run folder, else of the schedule]."""
    trace: bool = False
    """Print the run step by step, in words."""
    keep: Annotated[Path | None, Meta(extra=WRITABLE_FOLDER)] = None
    """Folder for the run folders [default: store for real runs; simulated runs leave none]."""
    store: Path = Path("store")
    quiet: Quiet = False
    json: Json = False


class SystemCheckRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `systems check`: the adapter to check."""

    system: str
    """path/to/file.py:Class, or the name of a system."""
    settings: SystemSettings = {}
    links: str | None = None
    """What stands between the nodes: proxy, kernel or none [default: the first]."""
    store: RunStore = Path("store")
    quiet: Quiet = False


class SystemRowsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Rows to run."""

    system: str | None = None
    """Rows of this system only [default: all rows]."""
    page: Page = None
    store: RunStore = Path("store")
    quiet: Quiet = False


class SystemGetRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `systems get`: the systems whose servers to download."""

    names: Annotated[tuple[str, ...], Meta(extra={"argument": "names"})] = ()
    """Names of systems; none: all of them."""
    version: tuple[str, ...] = ()
    """A version of the server, or a range A..B; may be repeated."""
