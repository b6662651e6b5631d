"""The cluster and the workload of a schedule, and the triggers that wait for an event (a leaf).

Part of the schedule file, `nemesis.formats.schedule`, from which everybody imports these names.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec


class Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of everything in the file: immutable, and no unknown field passes."""


class Timings(Strict, frozen=True, kw_only=True):
    """Every timeout of the cluster. Kafka's own defaults would make a 30 s storm pointless."""

    heartbeat_ms: int = 200
    session_ms: int = 1500
    lag_ms: int = 1000
    fetch_wait_ms: int = 100
    fetch_timeout_ms: int = 500
    retry_ms: int = 50
    election_min_ms: int = 300
    election_max_ms: int = 600
    hw_checkpoint_ms: int = 500
    idle_wait_ms: int = 300
    leader_timeout_ms: int = 1500


class Cluster(Strict, frozen=True, kw_only=True):
    """The cluster under test: `brokers` n1.. carry partitions log-0.., `voters` v1.. the metadata.

    `flush` is "sync" (every acknowledged turn is on disk) or "async" (every `flush_interval_ms`).
    """

    protocol: str = "kafka"
    brokers: int = 3
    voters: int = 1
    partitions: int = 4
    replication_factor: int = 3
    min_isr: int = 2
    flush: Literal["sync", "async"] = "sync"
    flush_interval_ms: int = 1000
    unclean_election: bool = False
    bugs: tuple[str, ...] = ()
    timings: Timings = Timings()

    def broker_names(self) -> tuple[str, ...]:
        """n1, n2, ..."""
        return tuple(f"n{i}" for i in range(1, self.brokers + 1))

    def voter_names(self) -> tuple[str, ...]:
        """v1, v2, ..."""
        return tuple(f"v{i}" for i in range(1, self.voters + 1))

    def partition_names(self) -> tuple[str, ...]:
        """log-0, log-1, ..."""
        return tuple(f"log-{i}" for i in range(self.partitions))


class After(Strict, frozen=True, kw_only=True):
    """A trigger: the `nth` trace event called `event` whose fields equal those of `match`.

    A value in `match` of the form {"at_least": n} or {"at_most": n} compares numbers. `node` and
    `partition` are matched like fields. `delay_ms` is waited after it.
    """

    event: str
    match: dict[str, Any] = {}
    nth: int = 1
    delay_ms: int = 0


class _Operation(Strict, frozen=True, kw_only=True, tag_field="what"):
    """One client operation: exactly one of `at_ms` and `after` says when it begins.

    `client` is a client of its own, numbered on after producers and consumers; it either sends or
    polls, one operation after another. `must` "ok": the run proves nothing if it ends otherwise.
    """

    client: str
    partition: str = "log-0"
    at_ms: int | None = None
    after: After | None = None
    must: Literal["ok", "any"] = "ok"


class Send(_Operation, frozen=True, kw_only=True, tag="send"):
    """Send one batch of `count` records of `payload_bytes` each."""

    count: int = 1
    payload_bytes: int = 64
    acks: Literal[0, 1, -1] = -1


class Poll(_Operation, frozen=True, kw_only=True, tag="poll"):
    """Read once, from where this client's last poll of the partition ended."""


Operation = Send | Poll
OPERATION_TYPES: Final = (Send, Poll)


class Workload(Strict, frozen=True, kw_only=True):
    """What the clients do: `clients` producers and `consumers`, drawn from `seed`.

    `rate` is batches per second and producer (0: as fast as answers come), `batch` records a
    batch of `payload_bytes` each, `acks` 0, 1 or -1 (all). `duration_ms` is the storm; writing
    goes on after the last heal until the cluster has recovered. `operations` are begun one by one,
    beside what is drawn; with them alone (a scripted workload) the storm ends as soon as all of
    it is done, at `duration_ms` at the latest.
    """

    seed: int = 0
    operations: tuple[Operation, ...] = ()
    clients: int = 8
    consumers: int = 4
    rate: float = 10.0
    batch: int = 5
    payload_bytes: int = 64
    acks: Literal[0, 1, -1] = -1
    in_flight: int = 1
    timeout_ms: int = 3000
    duration_ms: int = 30_000

    @property
    def scripted(self) -> bool:
        """Whether the clients do nothing but `operations`."""
        return not self.clients and not self.consumers and bool(self.operations)

    def operators(self) -> dict[str, type[Operation]]:
        """The clients of the operations, in their order, and what each of them does."""
        kinds = {operation.client: type(operation) for operation in self.operations}
        return {name: kinds[name] for name in sorted(kinds, key=lambda n: (len(n), n))}
