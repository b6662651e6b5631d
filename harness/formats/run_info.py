"""`run.json`: what was run, what it promised, and when its phases began (docs/file-formats.md)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, Literal

import msgspec

from harness.formats.problem import Problem
from node.formats.bounds import LargeCount, Milliseconds, Number, OptionalTime, Time

FORMAT_VERSION: Final = 2


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """The promise of the system under test for this run; the checker reads policy only from here.

    The default is the strictest promise, so that nothing is excused by a file that cannot be read.
    `committed_kept` is False where more disks may lose what was not synced than the flush mode
    survives. `disks_kept` is False where more disks may lose what they had synced than the protocol
    survives. `staleness_ms` is how old an answer may be at most, -1 where nothing is promised.
    `retention`: the oldest records of a partition may be deleted, but for the newest committed
    `retention_records`. `idempotent`: producers send again what may have been appended, and a
    record is in a partition once at most. `compaction`: of records with one key all but the newest
    may be deleted. `isolation` is what readers ask for: with read_uncommitted they may get records
    of operations that abort. `delivery`: with at-least-once a producer sends again what may have
    been appended, and a record may be there several times.
    `words` are those of the vendor of another system, `source` says where they stand.
    """

    acks: Number = -1
    flush: str = "sync"
    unclean_election: bool = False
    durable_acks: bool = True
    committed_kept: bool = True
    disks_kept: bool = True
    contiguous_offsets: bool = True
    silence_deposes: bool = True
    staleness_ms: OptionalTime = -1
    retention: bool = False
    retention_records: LargeCount = 0
    idempotent: bool = False
    compaction: bool = False
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    delivery: Literal["once", "at-least-once"] = "once"
    words: str = ""
    source: str = ""

    @property
    def committed_stays(self) -> bool:
        """Return whether committed records may never be rolled back.

        acks 0 or 1 weaken acknowledgements only. Where even acks=all is not durable (unclean
        election, unsynced data lost on too many brokers), committed records may go as well.
        """
        unharmed = self.committed_kept and not self.unclean_election
        return unharmed and (self.durable_acks or self.acks != -1)


class Phases(msgspec.Struct, kw_only=True):
    """The begin of each part of a run, in monotonic microseconds; 0 if it never came."""

    start_us: Time = 0
    storm_us: Time = 0
    heal_us: Time = 0
    recovered_us: Time = 0
    in_sync_us: Time = 0
    stop_writing_us: Time = 0
    final_us: Time = 0
    alike_us: Time = 0
    end_us: Time = 0


class SystemVersion(msgspec.Struct, frozen=True, kw_only=True):
    """The system under test; `version` is "" if it could not be known.

    `simulated`: its schedules can also be run in the simulated world. `settings` are those of the
    system itself, `links` what stood between its nodes, `disk` what their disks were.
    """

    name: str = "floodmark"
    version: str = ""
    simulated: bool = True
    settings: dict[str, str] = {}
    links: str = ""
    disk: str = ""


class RunInfo(msgspec.Struct, kw_only=True):
    """The description of a run by itself. Every field has a default: half a file can still be read.

    `source` is the form of a history that another tool recorded, "" for our own runs. The checker
    says of such a history `complete_reads` (its clients read all that there was) and
    `history_whole` (every line of it could be understood). `rejected` counts by process what
    came from outside of the run and was not heard: connections without a key of the run, messages
    under a name of another process; of a node at least that many. `seal` is the digest of
    `seal.json`, "" while the run goes on. `goes_on`: the cluster was not stopped at the end, for
    another run was to follow on it.
    """

    run: str = ""
    name: str = ""
    seed: int | None = None
    schedule_digest: str = ""
    replay: str = ""
    protocol: str = ""
    format: Number = FORMAT_VERSION
    command: list[str] = []
    bugs: tuple[str, ...] = ()
    system: SystemVersion = SystemVersion()
    world: str = ""
    capabilities: tuple[str, ...] = ()
    promise: Promise = Promise()
    partitions: dict[str, tuple[str, ...]] = {}
    brokers: tuple[str, ...] = ()
    voters: tuple[str, ...] = ()
    clients: dict[str, str] = {}
    phases: Phases = msgspec.field(default_factory=Phases)
    epoch_us: Time = 0
    monotonic_us: Time = 0
    state: str = ""
    goes_on: bool = False
    recovery_limit_ms: Milliseconds = 0
    versions: dict[str, Any] = {}
    host: dict[str, Any] = {}
    problems: list[Problem] = []
    rejected: dict[str, Number] = {}
    source: str = ""
    complete_reads: bool = False
    history_whole: bool = True
    seal: str = ""


FIELDS: Final = {field.name: field.type for field in msgspec.structs.fields(RunInfo)}


def understood(
    found: Mapping[str, Any], wanted: Collection[str]
) -> tuple[dict[str, Any], list[str]]:
    """Return the `wanted` fields of a run.json that are there and can be understood, and a
    sentence for each that cannot."""
    fields, problems = {}, []
    for name in FIELDS:
        if name in wanted and name in found:
            try:
                fields[name] = msgspec.convert(found[name], FIELDS[name])
            except msgspec.ValidationError as error:
                problems.append(f"run.json: {name} is not understood: {error}.")
    return fields, problems


def unknown_promises(found: Mapping[str, Any]) -> list[str]:
    """Return the fields of the promise in a run.json that no promise has."""
    promise = found.get("promise")
    known = Promise.__struct_fields__
    return [name for name in promise if name not in known] if isinstance(promise, dict) else []
