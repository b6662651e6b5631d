"""The cluster and the workload of a schedule, triggers that wait for an event, and their checks.

They are part of the schedule file: `nemesis.formats.schedule` exports these names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from node.formats import trace
from node.formats.timings import Timings as Timings
from node.formats.wire_bounds import DEFAULT_FETCH_BYTES, MAX_PRODUCERS, MAX_WAIT_MS, FetchBytes

COMMON_FIELDS: Final = ("event", "node", "incarnation", "partition", "t_us")
"""Fields that trace events carry beside those of `node.formats.trace.FIELDS`."""
MAX_SCRIPTED_CLIENTS: Final = 100
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=MAX_WAIT_MS)]
PositiveMilliseconds = Annotated[int, msgspec.Meta(ge=1, le=MAX_WAIT_MS)]
RecordCount = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
Seed = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
NodeCount = Annotated[int, msgspec.Meta(ge=1, le=99)]
PartitionCount = Annotated[int, msgspec.Meta(ge=1, le=10_000)]
ClientCount = Annotated[int, msgspec.Meta(ge=0, le=1000)]
Rate = Annotated[float, msgspec.Meta(ge=0, le=1e6)]
BatchSize = Annotated[int, msgspec.Meta(ge=1, le=10_000)]
PayloadBytes = Annotated[int, msgspec.Meta(ge=16, le=100_000)]


class Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of all values in a schedule file: immutable, and unknown fields are refused."""


def out_of_bounds(made: Strict) -> str | None:
    """Return why a value that was made in code would be refused in a file, as a sentence; None if
    it would not."""
    try:
        msgspec.convert(msgspec.to_builtins(made), type(made))
    except msgspec.ValidationError as error:
        return in_words(error)
    return None


def in_words(error: Exception) -> str:
    """Return the error of a decoder with the field first: "after.nth: expected `int` >= 1"."""
    text, _, path = str(error).partition(" - at `$")
    path = path.removesuffix("`").removeprefix(".")
    return f"{path}: {text[0].lower()}{text[1:]}" if path else text


def is_voter(name: str) -> bool:
    """Return whether a node's name is that of a voter: v1, v2, ..."""
    return name[:1] == "v" and name[1:].isdigit()


class Cluster(Strict, frozen=True, kw_only=True):
    """The cluster under test: `brokers` (n1, n2, ...) have the partitions log-0, log-1, ...;
    `voters` (v1, ...) have the metadata. A system without such nodes has 0 voters. `spares` are
    brokers numbered on, which run only after a `join`.

    `flush` is "sync" (every acknowledged turn is on disk) or "async" (flushed every
    `flush_interval_ms`). With `retention_records` a leader keeps at least that many committed
    records of a partition, and deletes older ones (0: it keeps all). Followers ask for at most
    `fetch_max_bytes` of a partition at once, and get at least one batch (Kafka:
    `replica.fetch.max.bytes`). A disk in user space writes back data that is `write_back_ms` old
    (Linux: `dirty_expire_centisecs`), and all data that it has when the storm begins; 0: it does
    neither. Without `record_epochs` brokers of `high-watermark` write the message format before
    KIP-101, in which records have no leader epoch."""

    protocol: str = "kafka"
    brokers: NodeCount = 3
    voters: int = 1
    spares: int = 0
    partitions: PartitionCount = 4
    replication_factor: NodeCount = 3
    min_isr: NodeCount = 2
    flush: Literal["sync", "async"] = "sync"
    flush_interval_ms: PositiveMilliseconds = 1000
    retention_records: RecordCount = 0
    fetch_max_bytes: FetchBytes = DEFAULT_FETCH_BYTES
    write_back_ms: Milliseconds = 30_000
    unclean_election: bool = False
    record_epochs: bool = True
    bugs: tuple[str, ...] = ()
    timings: Timings = Timings()

    def broker_names(self) -> tuple[str, ...]:
        """Return the names of the brokers, spares last: n1, n2, ..."""
        return tuple(f"n{i}" for i in range(1, self.brokers + self.spares + 1))

    def spare_names(self) -> tuple[str, ...]:
        """Return the names of the brokers that run only after a `join`."""
        return self.broker_names()[self.brokers :]

    def voter_names(self) -> tuple[str, ...]:
        """Return the names of the voters: v1, v2, ..."""
        return tuple(f"v{i}" for i in range(1, self.voters + 1))

    def partition_names(self) -> tuple[str, ...]:
        """Return the names of the partitions: log-0, log-1, ..."""
        return tuple(f"log-{i}" for i in range(self.partitions))

    def problems(self) -> Iterator[str]:
        """Yield why there can be no such cluster, one sentence each. The names of protocols and
        bugs are checked by the system under test, when a run is prepared."""
        if not 0 <= self.spares <= 99 - self.brokers:
            yield "spares must be 0.., and there can be at most 99 brokers with them"
        if self.voters not in (0, 1, 3, 5):
            yield "voters must be 1, 3 or 5 (0: a system without)"
        factor = self.replication_factor
        if factor > self.brokers:
            yield f"replication_factor {factor} needs as many brokers, there are {self.brokers}"
        if self.min_isr > factor:
            yield f"min_isr {self.min_isr} must be 1..replication_factor"
        timings = self.timings
        if min(msgspec.structs.astuple(timings)) < 1:
            yield "every timing must be positive"
        if timings.election_min_ms > timings.election_max_ms:
            yield "election_min_ms is above election_max_ms"
        if timings.heartbeat_ms * 2 > timings.session_ms:
            yield "session_ms must be at least two heartbeats"
        if wrong := out_of_bounds(self):
            yield wrong


class After(Strict, frozen=True, kw_only=True):
    """A trigger: it fires `delay_ms` after the `nth` trace event called `event` whose fields equal
    those of `match`. A value in `match` of the form {"at_least": n} or {"at_most": n} compares
    numbers. `node` and `partition` are matched like other fields. With `since`, the name of a
    fault, events count from its moment (even if it could not be injected then), else from the
    beginning of the storm. With `within_ms` it fires so long after it began to count, at the
    latest."""

    event: str
    match: dict[str, Any] = {}
    nth: AtLeastOne = 1
    delay_ms: Milliseconds = 0
    since: str = ""
    within_ms: Milliseconds | None = None

    def problems(self) -> Iterator[str]:
        """Yield why the trigger could never fire, one sentence each."""
        yield from wrong_event(self.event, self.match, any_name=False)


def wrong_event(event: str, match: Mapping[str, Any], *, any_name: bool = True) -> Iterator[str]:
    """Yield why no trace event called `event` could fit `match`, one sentence each. With `any_name`
    the name "" stands for all names."""
    if event not in trace.FIELDS and not (any_name and not event):
        yield f"unknown trace event '{event}' (known: {', '.join(trace.FIELDS)})"
        return
    known = {*COMMON_FIELDS, *trace.FIELDS.get(event, ())}
    if unknown := sorted(match.keys() - known):
        yield f"'{event}' has no field '{unknown[0]}' (it has {sorted(known)})"
    yield from wrong_match(match)


def wrong_match(match: Mapping[str, Any]) -> Iterator[str]:
    """Yield why no event or message could fit `match`, one sentence each."""
    if wrong := trace.wrong_pattern(match):
        yield wrong


class _Operation(Strict, frozen=True, kw_only=True, tag_field="what"):
    """One client operation: exactly one of `at_ms` and `after` says when it begins.

    `client` is a client of its own, numbered on after producers and consumers; it either sends or
    polls, one operation after another. `must` "ok": the run proves nothing if it ends otherwise."""

    client: str
    partition: str = "log-0"
    at_ms: Milliseconds | None = None
    after: After | None = None
    must: Literal["ok", "any"] = "ok"

    def problems(self, cluster: Cluster, workload: Workload) -> Iterator[str]:
        """Yield why no run of this cluster and workload could do it, one sentence each."""
        if (self.at_ms is None) == (self.after is None):
            yield "needs exactly one of at_ms and after"
        if self.after is not None:
            yield from (f"after: {wrong}" for wrong in self.after.problems())
        first = workload.clients + workload.consumers + 1
        names = [f"c{number}" for number in range(first, first + MAX_SCRIPTED_CLIENTS)]
        if self.client not in names:
            yield f"client '{self.client}' must be one for operations only: {names[0]} or later"
        elif self.client not in names[: len(workload.scripted_clients())]:
            yield f"clients are numbered without gaps from {names[0]} on"
        if not isinstance(self, workload.scripted_clients()[self.client]):
            yield f"client '{self.client}' both sends and polls: use two clients"
        if self.partition not in cluster.partition_names():
            yield f"no partition '{self.partition}'"


class Send(_Operation, frozen=True, kw_only=True, tag="send"):
    """An operation that sends one batch of `count` records of `payload_bytes` each."""

    count: BatchSize = 1
    payload_bytes: PayloadBytes = 64
    acks: Literal[0, 1, -1] = -1


class Poll(_Operation, frozen=True, kw_only=True, tag="poll"):
    """An operation that reads once, from the end of this client's last poll of the partition."""


Operation = Send | Poll


class Workload(Strict, frozen=True, kw_only=True):
    """The work of the clients: `clients` producers and `consumers`, drawn from `seed`.

    `rate` is batches per second and producer (0: as fast as answers come), `batch` the records of a
    batch, of `payload_bytes` each, `acks` 0, 1 or -1 (all). With `batch_most` each batch has from
    `batch` to that many records, small ones more often. `in_flight` is how many sends of a producer
    may be unanswered. `spread` says how often each partition is written to: "even", or "zipf", the
    n-th 1/n times as often as the first. `duration_ms` is the length of the storm; writing goes on
    after the last heal until the cluster has recovered. `operations` are begun one by one, besides
    the drawn ones; if there are only operations (a scripted workload), the storm ends when all are
    done, at `duration_ms` at the latest. `idempotent` producers send a batch again until it is
    acknowledged, and brokers append it once. `members` of a consumer group read and commit."""

    seed: Seed = 0
    operations: tuple[Operation, ...] = ()
    clients: ClientCount = 8
    consumers: ClientCount = 4
    rate: Rate = 10.0
    batch: BatchSize = 5
    batch_most: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 0
    spread: Literal["even", "zipf"] = "even"
    payload_bytes: PayloadBytes = 64
    acks: Literal[0, 1, -1] = -1
    in_flight: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1
    idempotent: bool = False
    members: ClientCount = 0
    timeout_ms: PositiveMilliseconds = 3000
    duration_ms: PositiveMilliseconds = 30_000

    @property
    def scripted(self) -> bool:
        """Return whether the clients do nothing but `operations`."""
        return not self.clients and not self.consumers and bool(self.operations)

    def scripted_clients(self) -> dict[str, type[Operation]]:
        """Return the clients of the operations, in their order, and whether each sends or polls."""
        kinds = {operation.client: type(operation) for operation in self.operations}
        return {name: kinds[name] for name in sorted(kinds, key=lambda n: (len(n), n))}

    def problems(self, cluster: Cluster) -> Iterator[str]:
        """Yield why no clients of this cluster could do this work, one sentence each."""
        if self.batch_most and self.batch_most < self.batch:
            yield "batch_most must be 0 or at least batch"
        if self.members and cluster.retention_records:
            yield "members need retention_records 0: the log of their groups is kept"
        if self.idempotent:
            yield from self._wrong_idempotence(cluster)
        if wrong := out_of_bounds(self):
            yield wrong
        for index, operation in enumerate(self.operations):
            where = f"operation {index} ({operation.__struct_config__.tag})"
            yield from (f"{where}: {wrong}" for wrong in operation.problems(cluster, self))

    def _wrong_idempotence(self, cluster: Cluster) -> Iterator[str]:
        """Yield why brokers could not recognize each batch, one sentence each."""
        sends = [one for one in self.operations if isinstance(one, Send)]
        if any(acks != -1 for acks in (self.acks, *(one.acks for one in sends))):
            yield "idempotent producers need acks -1: what is lost leaves a gap in their sequences"
        if cluster.retention_records:
            yield "idempotent producers need retention_records 0: brokers know batches by their log"
        if self.clients * self.in_flight + len(self.scripted_clients()) > MAX_PRODUCERS:
            yield f"there can be at most {MAX_PRODUCERS} idempotent producers (clients x in_flight)"
        if self.timeout_ms < 4:
            yield "timeout_ms of idempotent producers must be at least 4: a send has four attempts"
