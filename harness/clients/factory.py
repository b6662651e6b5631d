"""The clients of one run: their names and roles, and the sessions that act for them (pure).

Producers are c1 .. c<clients>, consumers follow, then the clients of the schedule's own operations,
then the readers of the final reads. A real run and the simulator make the same sessions from the
same schedule."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Final

import msgspec

from harness.clients.consumer import Consumer, ScriptedConsumer
from harness.clients.member import THREADS, GroupMember
from harness.clients.producer import Producer, ScriptedProducer
from harness.clients.session import MetadataCache, Thread
from harness.clients.types import PollSettings
from harness.clients.workload import polled_partitions, send_plan
from nemesis.formats.schedule import Cluster, Send, Workload

PRODUCER: Final = "producer"
CONSUMER: Final = "consumer"
SCRIPTED_PRODUCER: Final = "scripted-producer"
SCRIPTED_CONSUMER: Final = "scripted-consumer"
MEMBER: Final = "member"
FINAL_READER: Final = "final-reader"
DRAIN: Final = "drain"
MAX_FINAL_READERS: Final = 4
POLL_TIMEOUT_MS: Final = 1000


class ClientFactory(msgspec.Struct, frozen=True, kw_only=True):
    """Makes the sessions of a run; `roles` maps each client to its role, in order."""

    cluster: Cluster
    workload: Workload

    @property
    def roles(self) -> dict[str, str]:
        """The role of each client, in order: c1 -> "producer", ..."""
        workload = self.workload
        readers = min(MAX_FINAL_READERS, self.cluster.partitions)
        roles = [PRODUCER] * workload.clients + [CONSUMER] * workload.consumers
        roles += [
            SCRIPTED_PRODUCER if kind is Send else SCRIPTED_CONSUMER
            for kind in workload.scripted_clients().values()
        ]
        roles += [MEMBER] * workload.members
        roles += [FINAL_READER] * readers + [DRAIN] * (workload.members > 0)
        return {f"c{number}": role for number, role in enumerate(roles, start=1)}

    @property
    def working(self) -> tuple[str, ...]:
        """The clients that work in the storm: all but the final readers."""
        last = (FINAL_READER, DRAIN)
        return tuple(client for client, role in self.roles.items() if role not in last)

    @property
    def writing(self) -> tuple[str, ...]:
        """The clients that stop at the end of writing: producers, and those of the schedule's
        operations."""
        writing = (PRODUCER, SCRIPTED_PRODUCER, SCRIPTED_CONSUMER)
        return tuple(client for client, role in self.roles.items() if role in writing)

    def sessions(self, next_op: Callable[[], int]) -> dict[str, Producer | Consumer | GroupMember]:
        """Return the storm's sessions by client; `next_op` numbers the operations of the run."""
        made: dict[str, Producer | Consumer | GroupMember] = {}
        for number, (client, role) in enumerate(self.roles.items()):
            if role == PRODUCER:
                made[client] = self._producer(client, number, next_op)
            elif role == CONSUMER:
                made[client] = self._consumer(client, number, next_op)
            elif role == SCRIPTED_PRODUCER:
                made[client] = self._producer(client, number, next_op, ScriptedProducer)
            elif role == SCRIPTED_CONSUMER:
                made[client] = self._scripted_consumer(client, number, next_op)
            elif role == MEMBER:
                made[client] = self._member(client, number, next_op)
        return made

    def final_readers(
        self, next_op: Callable[[], int], targets: Mapping[str, int]
    ) -> dict[str, Consumer | GroupMember]:
        """Return new consumers that read every partition from 0 to at least its target offset, and
        the member that drains what is left for the group."""
        names = [client for client, role in self.roles.items() if role == FINAL_READER]
        everything = list(targets)
        made: dict[str, Consumer | GroupMember] = {}
        for index, client in enumerate(names):
            mine = {name: targets[name] for name in everything[index :: len(names)]}
            settings = PollSettings(timeout_us=POLL_TIMEOUT_MS * 1000, pause_us=0)
            number = len(self.working) + index
            made[client] = self._reader(Consumer, client, number, next_op, mine, settings, mine)
        for number, (client, role) in enumerate(self.roles.items()):
            if role == DRAIN:
                made[client] = self._member(client, number, next_op, drains=True)
        return made

    def _member(
        self, client: str, number: int, next_op: Callable[[], int], *, drains: bool = False
    ) -> GroupMember:
        return GroupMember(
            client,
            self._metadata(number),
            self._threads(number, THREADS),
            next_op,
            partitions=self.cluster.partition_names(),
            timings=self.cluster.timings,
            timeout_us=self.workload.timeout_ms * 1000 * (2 if drains else 1),
            rng=random.Random(f"{self.workload.seed}/{client}/group"),
            drains=drains,
            retry_us=self._retry_us,
        )

    def _producer(
        self, client: str, number: int, next_op: Callable[[], int], form: type[Producer] = Producer
    ) -> Producer:
        workload = self.workload
        rng = random.Random(f"{workload.seed}/{client}/sends")
        plan = send_plan(workload, self.cluster.partition_names(), rng)
        width = workload.in_flight if form is Producer else 1
        return form(
            client,
            self._metadata(number),
            self._threads(number, width),
            next_op,
            plan=plan,
            workload=workload,
            retry_us=self._retry_us,
        )

    def _consumer(self, client: str, number: int, next_op: Callable[[], int]) -> Consumer:
        partitions = polled_partitions(
            self.cluster.partition_names(), number - self.workload.clients, self.workload.consumers
        )
        wait_ms = self.cluster.timings.fetch_wait_ms
        timeout_ms = min(self.workload.timeout_ms, POLL_TIMEOUT_MS + wait_ms)
        settings = PollSettings(wait_ms=wait_ms, timeout_us=timeout_ms * 1000)
        return self._reader(Consumer, client, number, next_op, partitions, settings)

    def _scripted_consumer(self, client: str, number: int, next_op: Callable[[], int]) -> Consumer:
        settings = PollSettings(
            wait_ms=self.cluster.timings.fetch_wait_ms, timeout_us=self.workload.timeout_ms * 1000
        )
        named = {o.partition: 0 for o in self.workload.operations if o.client == client}
        return self._reader(ScriptedConsumer, client, number, next_op, named, settings)

    def _reader(
        self,
        form: type[Consumer],
        client: str,
        number: int,
        next_op: Callable[[], int],
        partitions: Iterable[str],
        settings: PollSettings,
        targets: Mapping[str, int] | None = None,
    ) -> Consumer:
        return form(
            client,
            self._metadata(number),
            self._threads(number, 1)[0],
            next_op,
            partitions=tuple(partitions),
            targets=targets,
            settings=settings,
            retry_us=self._retry_us,
        )

    @property
    def _retry_us(self) -> int:
        return self.cluster.timings.retry_ms * 1000

    def _metadata(self, number: int) -> MetadataCache:
        return MetadataCache(self.cluster.broker_names(), number, self._retry_us)

    def _threads(self, number: int, width: int) -> list[Thread]:
        """Return the threads of client `number`; no two threads of a run share a process number."""
        lanes = max(self.workload.in_flight, THREADS if self.workload.members else 1)
        stride, first = len(self.roles) * lanes, 1 + number * lanes
        return [Thread(count(first + lane, stride)) for lane in range(width)]
