"""The options of the `floodmark bench` commands: how long, how often and how large."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from harness.formats.options import (
    HOUR_S,
    WRITABLE_FILE,
    Budget,
    Json,
    Master,
    OnSpark,
    Quiet,
    Seed,
    Store,
)

LoadBudget = Annotated[Budget, Meta(gt=0, le=HOUR_S, description="Time to measure each load.")]


class BenchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `bench`: loads of our own brokers, and a storm that is judged."""

    budget_s: LoadBudget = 4.0
    batch: Annotated[int, Meta(ge=1, le=10_000, description="Records per batch.")] = 100
    record_bytes: Annotated[
        int, Meta(ge=16, le=100_000, description="Bytes per record, at least 16.")
    ] = 100
    judged_s: Annotated[
        float,
        Meta(
            ge=0,
            le=HOUR_S,
            description="Length in seconds of a storm that is judged, to measure the time to a "
            "verdict; 0: no storm.",
            extra={"option": "judged"},
        ),
    ] = 30.0
    quiet: Quiet = False
    json: Json = False


class CheckBench(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `bench check`: histories to generate and to judge."""

    ops: Annotated[
        tuple[int, ...],
        Meta(ge=1_000, le=10**9, description="Operations of a history; repeatable."),
    ] = (10_000, 100_000, 1_000_000, 10_000_000)
    keys: Annotated[int, Meta(ge=1, le=10_000, description="Number of partitions.")] = 20
    poll_records: Annotated[int, Meta(ge=1, le=10_000, description="Records per poll.")] = 5
    hot: Annotated[
        tuple[float, ...],
        Meta(
            ge=0,
            le=1,
            description="Share of the sends, 0 to 1, that go to the first partition; repeatable, "
            "to compare.",
        ),
    ] = (0.0,)
    seed: Annotated[Seed, Meta(description="Seed of the generated history.")] = 1
    lines: Annotated[
        bool,
        Meta(description="Also measure histories of lines: ours, and Jepsen's as JSON and EDN."),
    ] = False
    spark: OnSpark = True
    master: Master = None
    quiet: Quiet = False
    json: Json = False


class SimBench(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `bench sim`: schedules of the simulated world."""

    budget_s: Annotated[
        Budget, Meta(gt=0, le=HOUR_S, description="Processor time for each shape of schedule.")
    ] = 10.0
    protocol: Annotated[str, Meta(description="Replication protocol.")] = "kafka"
    seed: Annotated[Seed, Meta(description="Seed of the schedules.")] = 1
    quiet: Quiet = False
    json: Json = False


class PeersBench(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `bench peers`: loads of several systems."""

    clients: Annotated[
        tuple[int, ...], Meta(ge=1, le=1000, description="Clients of a load; repeatable.")
    ] = (1, 64)
    rounds: Annotated[
        int, Meta(ge=1, le=100, description="How often each system has its turn.")
    ] = 3
    budget_s: LoadBudget = 3.0
    quiet: Quiet = False
    json: Json = False


class SoakRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `bench soak`: how long its storms are, and how large their cluster is."""

    budget_s: Annotated[Budget, Meta(gt=0, description="Time for all storms together.")] = 3600.0
    storm_s: Annotated[
        float,
        Meta(gt=0, le=HOUR_S, description="Seconds of each storm.", extra={"option": "storm"}),
    ] = 45.0
    brokers: int = 5
    partitions: int = 50
    seed: Annotated[Seed, Meta(description="Seed of the first storm.")] = 1
    store: Annotated[Store, Meta(description="Folder for the runs; valid ones are removed.")] = (
        Path("store")
    )
    samples: Annotated[
        Path | None,
        Meta(
            description="File to which each storm appends a line of figures.", extra=WRITABLE_FILE
        ),
    ] = None
    quiet: Quiet = False
    json: Json = False
