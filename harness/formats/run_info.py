"""`run.json`: what was run, what the system promises, and when each phase began
(docs/file-formats.md)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, Literal

import msgspec

from harness.formats.problem import Problem
from node.formats.bounds import LargeCount, Milliseconds, Number, OptionalTime, Time

FORMAT_VERSION: Final = 2


class GroupPromise(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The promise of a system about the groups of its consumers.

    `kind`: each record is settled alone ("acks"), or a group has one position in a partition.
    `at_least_once`: every record is delivered until it is settled. `durable`: a confirmed ack or
    commit is not forgotten. `fenced`: a commit of a member whose epoch was superseded is refused.
    `fenced_reads`: a position is stated to the owner only, at its epoch. `exclusive`: a partition
    has one owner in an epoch. `epochs_rise`: epochs never start over. `counts`: `times` counts
    every delivery. `order`: first deliveries come in log order ("first"), or all that one owner
    gets ("owner"). A record may stay unsettled for `ack_wait_ms` and is delivered again at most
    `redelivery_ms` later, and `max_deliver` times at most (-1: no limit). A partition has an owner
    `rebalance_ms` after the last change of members.
    """

    kind: Literal["acks", "positions"] = "acks"
    at_least_once: bool = True
    durable: bool = True
    fenced: bool = False
    fenced_reads: bool = False
    exclusive: bool = False
    epochs_rise: bool = False
    counts: bool = False
    order: Literal["none", "first", "owner"] = "none"
    ack_wait_ms: Milliseconds = 0
    redelivery_ms: Milliseconds = 5_000
    max_deliver: Number = -1
    rebalance_ms: Milliseconds = 30_000


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """The promise of the system under test for this run, the only source of policy for the checker.

    The defaults are the strictest promise, so that a file that cannot be read excuses no failure.
    `committed_kept` is False if more disks may lose unsynced data than the flush mode survives,
    `disks_kept` is False if more disks may lose synced data than the protocol survives.
    `staleness_ms` is the largest age of an answer, -1 without a promise. `retention`: the oldest
    records of a partition may be deleted, except the newest `retention_records` committed ones.
    `idempotent`: producers repeat a send whose result is unknown, and a record is in a partition at
    most once. `compaction`: all records of a key but the newest may be deleted. `isolation`: under
    read_uncommitted, readers may get records of transactions that abort. `delivery`: under
    at-least-once, producers repeat a send whose result is unknown, and a record may be there
    several times. `reads`: a partition can be read without consuming it, so that final reads show
    what it kept. `groups`: what holds for groups of consumers, None if the run has none. `words`
    are the words of a vendor about the system, `source` is where they are published.
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
    reads: bool = True
    groups: GroupPromise | None = None
    words: str = ""
    source: str = ""

    @property
    def committed_stays(self) -> bool:
        """Return whether committed records may never be rolled back. acks=0 and acks=1 weaken
        acknowledgements only. If even acks=all is not durable (after an unclean election, or a loss
        of unsynced data on too many brokers), committed records may be rolled back too."""
        unharmed = self.committed_kept and not self.unclean_election
        return unharmed and (self.durable_acks or self.acks != -1)


class Phases(msgspec.Struct, kw_only=True):
    """The begin of each phase of a run, in microseconds of the monotonic clock; 0 for never."""

    start_us: Time = 0
    storm_us: Time = 0
    heal_us: Time = 0
    recovered_us: Time = 0
    in_sync_us: Time = 0
    stop_writing_us: Time = 0
    final_us: Time = 0
    alike_us: Time = 0
    drain_us: Time = 0
    end_us: Time = 0


class SystemVersion(msgspec.Struct, frozen=True, kw_only=True):
    """The system under test. `version` is "" if it is unknown. `simulated`: whether its schedules
    can also be run in the simulated world. `settings` are those of the system itself, `servers` the
    SHA-256 of each of its versions if it has several, `links` and `disk` how its network and its
    disks were made (docs/file-formats.md)."""

    name: str = "floodmark"
    version: str = ""
    simulated: bool = True
    settings: dict[str, str] = {}
    servers: dict[str, str] = {}
    links: str = ""
    disk: str = ""


class MemberRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The members of a cluster that was changed: at the start, and after the final heal, with their
    identities and versions. `nodes` are all that had a process. `said` is which members each of
    them listed at the end (no node: it lists none, or the final heal did not reach all changes),
    `expected` the names under which each may be listed. `stuck` says what of the final heal did not
    come, "" if all did."""

    nodes: tuple[str, ...] = ()
    initial: tuple[str, ...] = ()
    final: tuple[str, ...] = ()
    identities: dict[str, str] = {}
    versions: dict[str, str] = {}
    said: dict[str, list[str]] = {}
    expected: dict[str, tuple[str, ...]] = {}
    stuck: str = ""


class RunInfo(msgspec.Struct, kw_only=True):
    """The description of a run. Every field has a default, so that an incomplete file can be read.

    `source` is the form of a history that another tool recorded, "" for our own runs. For such a
    history the checker sets `complete_reads` (clients read all records). `undelivered` counts, by
    receiver, messages that the links lost during the recovery by no fault: a process was not there
    or did not read, or the host was overloaded. `seal` is the digest of `seal.json`, "" before the
    end of the run. `failover_ms` is how long a failover of the system takes at most, 0 if it is
    unknown; that of a third-party system includes a restart: as declared, or as long as the start
    of the cluster took if that was longer. `bypassed` are connections between nodes that no link
    fault touches."""

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
    recovery_limit_ms: Milliseconds = 0
    failover_ms: Milliseconds = 0
    versions: dict[str, Any] = {}
    host: dict[str, Any] = {}
    problems: list[Problem] = []
    undelivered: dict[str, Number] = {}
    bypassed: tuple[str, ...] = ()
    membership: MemberRecord | None = None
    source: str = ""
    complete_reads: bool = False
    seal: str = ""


FIELDS: Final = {field.name: field.type for field in msgspec.structs.fields(RunInfo)}


def understood(
    found: Mapping[str, Any], wanted: Collection[str]
) -> tuple[dict[str, Any], list[str]]:
    """Return the `wanted` fields of a run.json that are there and valid, and a sentence for each
    that is not valid."""
    fields, problems = {}, []
    for name in FIELDS:
        if name in wanted and name in found:
            try:
                fields[name] = msgspec.convert(found[name], FIELDS[name])
            except msgspec.ValidationError as error:
                problems.append(f"run.json: {name} is not understood: {error}.")
    return fields, problems


def unknown_promises(found: Mapping[str, Any]) -> list[str]:
    """Return the fields of the `promise` in a run.json that this version does not know."""
    promise = found.get("promise")
    known = Promise.__struct_fields__
    return [name for name in promise if name not in known] if isinstance(promise, dict) else []
