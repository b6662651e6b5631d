"""The options of the commands `run`, `check`, `report`, `replay` and `systems`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

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
from harness.runs.limits import GivenLimits
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


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `run`: a run, and what to show of it. None means that an option is not given.
    A `schedule` gives everything, the system too, except for the options given beside it."""

    system: Annotated[
        str | None,
        Meta(
            description="System under test: a name that `floodmark systems` lists, or "
            "path/to/file.py:Class [default: that of the run folder of --schedule, else floodmark]."
        ),
    ] = None
    settings: SystemSettings = {}
    schedule: Annotated[
        Path | None,
        Meta(
            description="Run this schedule instead of a drawn storm: a schedule file, the name of "
            "a ready-made schedule, or a run folder (runs its schedule again).",
            extra=READABLE,
        ),
    ] = None
    protocol: Annotated[
        str | None,
        Meta(
            description="Replication protocol; `floodmark protocols` lists them [default: kafka]."
        ),
    ] = None
    brokers: Annotated[NodeCount | None, Meta(description="Number of brokers [default: 3].")] = None
    voters: (
        Annotated[
            int, Meta(ge=1, le=5, description="Number of metadata voters: 1, 3 or 5 [default: 1].")
        ]
        | None
    ) = None
    partitions: Annotated[
        PartitionCount | None, Meta(description="Number of partitions [default: 4].")
    ] = None
    replication_factor: Annotated[
        NodeCount | None, Meta(description="Replicas of each partition [default: 3].")
    ] = None
    min_isr: Annotated[NodeCount | None, Meta(description="min.insync.replicas [default: 2].")] = (
        None
    )
    retention_records: Annotated[
        RecordCount | None,
        Meta(description="Committed records to keep of a partition, 0: all [default: 0]."),
    ] = None
    fetch_max_bytes: Annotated[
        FetchBytes | None,
        Meta(
            extra={"unit": "B"},
            description="Bytes that a follower asks for at once; it gets at least one batch "
            "[default: 1048576].",
        ),
    ] = None
    acks: Annotated[
        str | None, Meta(description="Acknowledgements of a send: 0, 1 or all [default: all].")
    ] = None
    clients: Annotated[
        ClientCount | None, Meta(description="Number of producers [default: 8].")
    ] = None
    consumers: Annotated[
        ClientCount | None, Meta(description="Number of consumers [default: 4].")
    ] = None
    rate: Annotated[
        Rate | None,
        Meta(
            description="Batches per second of each producer; 0: as fast as possible [default: 10]."
        ),
    ] = None
    batch: Annotated[BatchSize | None, Meta(description="Records per batch [default: 5].")] = None
    idempotent: Annotated[
        bool | None, Meta(description="Producers are idempotent: they send again.")
    ] = None
    members: Annotated[
        ClientCount | None, Meta(description="Members of a group that consumes [default: 0].")
    ] = None
    time_limit: (
        Annotated[
            float,
            Meta(
                gt=0,
                le=WEEK_S,
                extra={"unit": "s"},
                description="Length of the storm in seconds, or such as 5m [default: 30].",
            ),
        ]
        | None
    ) = None
    faults: Annotated[
        str | None,
        Meta(
            description="Kinds of faults to draw, such as kill,pause,partition; none; all "
            "[default: all]."
        ),
    ] = None
    seed: Annotated[
        Seed | None,
        Meta(description="Seed of the drawn storm and of the workload [default: random]."),
    ] = None
    flush: Annotated[
        str | None,
        Meta(description="When brokers sync to disk: sync, async or async:MS [default: sync]."),
    ] = None
    bugs: Bugs = ()
    name: Annotated[
        str | None, Meta(description="Name of the run in the store [default: protocol and bugs].")
    ] = None
    store: Annotated[Store, Meta(description="Folder for run folders.")] = Path("store")
    links: Annotated[
        str | None,
        Meta(
            description="What stands between the nodes: hub or none for our own brokers, proxy, "
            "kernel or none for other systems; with none, link faults are impossible "
            "[default: the first]."
        ),
    ] = None
    disk: Annotated[
        str | None,
        Meta(
            description="What the disks of the nodes are: user-space, declared or plain; journal "
            "or user-space for our own brokers; auto: what the faults need [default: auto]."
        ),
    ] = None
    write_back_ms: Annotated[
        Milliseconds | None,
        Meta(
            extra={"unit": "ms"},
            description="Age in ms at which a disk in user space writes back by itself, 0: never, "
            "and not when the storm begins [default: 30000].",
        ),
    ] = None
    report: Annotated[bool, Meta(description="Do not build the page.")] = True
    baseline: Annotated[
        bool,
        Meta(description="Do not repeat a failed run under a correct protocol for comparison."),
    ] = True
    limits: GivenLimits = GivenLimits()
    spark: OnSpark = True
    quiet: Quiet = False
    json: Json = False
    open: Annotated[bool, Meta(description="Open the page in a browser.")] = False


class CheckRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `check`: the runs to judge, and the output."""

    runs: Annotated[
        tuple[Path, ...],
        Meta(
            description="Run folders, stores, or histories of other tools (history.edn).",
            extra=READABLE,
        ),
    ]
    spark: OnSpark = True
    json: Json = False
    validate: Annotated[
        bool,
        Meta(description="Do not judge: only list the lines of the history that are malformed."),
    ] = False
    master: Master = None
    out: Annotated[
        Path | None,
        Meta(
            description="Folder for results and tables [default: the run folders].",
            extra=WRITABLE_FOLDER,
        ),
    ] = None
    again: Annotated[
        bool, Meta(description="Judge a run even if nothing changed since its last verdict.")
    ] = False
    promise: Annotated[
        Path | None,
        Meta(
            description="JSON file with what the system of these histories promises "
            "(docs/checks.md).",
            extra=READABLE,
        ),
    ] = None
    limits: GivenLimits = GivenLimits()
    report: Annotated[bool, Meta(description="Do not build the page of a failed run.")] = True


class ReportRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `report`: the runs and findings whose pages are built."""

    runs: Annotated[
        tuple[Path, ...],
        Meta(
            description="Run folders (store/<name>/<time>), findings (store/findings/<name>), or "
            "stores.",
            extra=READABLE,
        ),
    ]


class CompareRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `compare`: two runs, and how they are shown."""

    before: Annotated[Path, Meta(description="A run folder.", extra=READABLE)]
    after: Annotated[Path, Meta(description="The run folder to set beside it.", extra=READABLE)]
    json: Json = False


class ReplayRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `replay`. Real runs go to `store` if `keep` is not given."""

    file: Annotated[
        Path,
        Meta(
            description="A schedule file, the name of a ready-made schedule, a run folder or a "
            "finding.",
            extra=READABLE,
        ),
    ]
    system: SystemOfFolder = None
    settings: SystemSettings = {}
    world: Annotated[
        str,
        Meta(
            description="Where to run it: simulated, or real (real processes) [default: simulated, "
            "but real for a run of another system than our brokers]."
        ),
    ] = ""
    times: Annotated[
        int, Meta(ge=1, le=1_000_000, description="Number of runs; each uses the next seed.")
    ] = 1
    expect: Annotated[
        str,
        Meta(
            description="Expected verdict: valid, invalid or invalid:PROPERTY [default: the "
            "expectation of the schedule]."
        ),
    ] = ""
    protocol: Annotated[
        str | None, Meta(description="Run it under this protocol instead of that of the schedule.")
    ] = None
    seed: Annotated[
        Seed | None, Meta(description="Seed of the first run [default: that of the schedule].")
    ] = None
    trace: Annotated[bool, Meta(description="Print the run step by step, in words.")] = False
    keep: Annotated[
        Path | None,
        Meta(
            description="Folder for the run folders [default: store for real runs; simulated runs "
            "leave none].",
            extra=WRITABLE_FOLDER,
        ),
    ] = None
    store: Path = Path("store")
    quiet: Quiet = False
    json: Json = False


class SystemCheckRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `systems check`: the adapter to check."""

    system: Annotated[str, Meta(description="path/to/file.py:Class, or the name of a system.")]
    settings: SystemSettings = {}
    links: Annotated[
        str | None,
        Meta(
            description="What stands between the nodes: proxy, kernel or none [default: the first]."
        ),
    ] = None
    store: Annotated[Store, Meta(description="Folder for run folders.")] = Path("store")
    quiet: Quiet = False


class SystemRowsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Rows to run."""

    system: Annotated[
        str | None, Meta(description="Rows of this system only [default: all rows].")
    ] = None
    page: Page = None
    store: Annotated[Store, Meta(description="Folder for run folders.")] = Path("store")
    quiet: Quiet = False


class SystemGetRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `systems get`: the systems whose servers to download."""

    names: Annotated[
        tuple[str, ...],
        Meta(description="Names of systems; none: all of them.", extra={"argument": "names"}),
    ] = ()
    version: Annotated[
        tuple[str, ...],
        Meta(description="A version of the server, or a range A..B; may be repeated."),
    ] = ()
