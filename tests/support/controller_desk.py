"""A desk at which one voter, its own majority, is asked as the controller; and a story as a table.

    event            leader  le  pe  isr      elr  last known

A story is told to it, and printed with a row for each thing that happened.
"""

from __future__ import annotations

import random

from node.core.api import Deliver, NodeConfig, Tick
from node.core.broker import Broker
from node.core.image import PartitionRecord
from node.core.messages import (
    AdminResponse,
    AlterPartition,
    AlterPartitionResponse,
    AnyMessage,
    CreateTopic,
    ElectLeader,
    Error,
    Heartbeat,
    HeartbeatResponse,
    ReassignReplicas,
    RegisterBroker,
    RegisterBrokerResponse,
    ReplicaLogInfo,
    ReplicaLogInfoRequest,
    SetMinIsr,
)
from tests.support.broker_world import MemoryStorage
from tests.support.replica_bench import PARTITION

MS = 1000


class Desk:
    """Voter v1 as the controller of n1, n2..; all asked of it by hand.

    Every broker of `start` is started, and the first `rf` of them are replicas of log-0. A broker
    that was started keeps sending heartbeats until it is stopped.
    """

    def __init__(
        self,
        min_isr: int = 2,
        *,
        start: str = "n1 n2 n3",
        protocol: str = "kafka",
        unclean_election: bool = False,
        rf: int = 3,
    ) -> None:
        self.now_us = 0
        brokers = ("n1", "n2", "n3", "n4", "n5")
        self.disk = MemoryStorage()
        self.config = NodeConfig(
            node="v1",
            voters=("v1",),
            brokers=brokers,
            protocol=protocol,
            unclean_election=unclean_election,
        )
        self.node = Broker(self.config, self.disk, random.Random(0), 0)
        self.alive: list[str] = []
        self.incarnations: dict[str, int] = {}
        self.epochs: dict[str, int] = {}
        self.rows: list[str] = []
        self._step(Tick())
        for name in start.split():
            self.start(name)
        if start:
            self.ask(CreateTopic(topic="log", partitions=1, replication_factor=rf, min_isr=min_isr))
            self.row("topic made")

    def _step(self, event: Deliver | Tick) -> list[AnyMessage]:
        return [m.message for m in self.node.step(self.now_us, event).messages]

    def ask(self, message: AnyMessage, source: str = "c1") -> AnyMessage | None:
        """The answer, if there is one at once."""
        answers = self._step(Deliver(source, message))
        return answers[-1] if answers else None

    def register(
        self, name: str, incarnation: int, *, lost_data: bool = False
    ) -> RegisterBrokerResponse:
        answer = self.ask(
            RegisterBroker(
                broker=name, incarnation=incarnation, intact_since=incarnation if lost_data else 1
            ),
            name,
        )
        assert isinstance(answer, RegisterBrokerResponse)
        return answer

    def beat(
        self,
        name: str,
        *,
        epoch: int | None = None,
        offset: int = 1 << 40,
        want_shutdown: bool = False,
    ) -> HeartbeatResponse:
        beat = Heartbeat(
            broker=name,
            broker_epoch=self.epochs[name] if epoch is None else epoch,
            metadata_offset=offset,
            want_shutdown=want_shutdown,
        )
        answer = self.ask(beat, name)
        assert isinstance(answer, HeartbeatResponse)
        return answer

    def start(self, name: str, *, lost_data: bool = False) -> None:
        """A new process registers, catches up with the metadata and is unfenced."""
        self.enroll(name, lost_data=lost_data)
        self.beat(name)
        self.alive.append(name)

    def enroll(self, name: str, *, lost_data: bool = False) -> None:
        """A new process registers, and is not unfenced yet."""
        self.incarnations[name] = self.incarnations.get(name, 0) + 1
        answer = self.register(name, self.incarnations[name], lost_data=lost_data)
        assert answer.error is Error.NONE
        self.epochs[name] = answer.broker_epoch

    def fence(self, name: str) -> None:
        """The broker falls silent until its session is over; the others do not."""
        self.alive.remove(name)
        for _ in range(16):
            self.now_us += 100 * MS
            for other in self.alive:
                self.beat(other)
            self._step(Tick())

    def restart(self) -> None:
        """Another process of the voter becomes the controller."""
        self.node = Broker(self.config, self.disk, random.Random(1), self.now_us)
        self._step(Tick())

    def alter(self, isr: str, **fields: object) -> AlterPartitionResponse:
        """The leader proposes; a member is `n1`, or `n1@5` with a broker epoch."""
        state = self.state
        members = [m.partition("@") for m in isr.split()]
        proposal = {
            "partition": PARTITION,
            "broker": state.leader,
            "leader_epoch": state.leader_epoch,
            "broker_epoch": self.epochs.get(state.leader, -1),
            "partition_epoch": state.partition_epoch,
            "isr": tuple((name, int(epoch or -1)) for name, _, epoch in members),
        } | fields
        answer = self.ask(AlterPartition(**proposal), state.leader)  # type: ignore[arg-type]
        assert isinstance(answer, AlterPartitionResponse)
        return answer

    def admin(self, command: CreateTopic | ElectLeader | ReassignReplicas | SetMinIsr) -> str:
        """What a command is answered: "" when it was done, else `error: detail`, or a note."""
        answer = self.ask(command)
        assert isinstance(answer, AdminResponse)
        return f"{answer.error}: {answer.detail}" if answer.error else answer.detail

    def reassign(self, replicas: str) -> str:
        """Move log-0; "" cancels."""
        return self.admin(ReassignReplicas(partition=PARTITION, replicas=tuple(replicas.split())))

    def prefer(self) -> str:
        return self.admin(ElectLeader(partition=PARTITION))

    def hand_over(self, to: str) -> str:
        return self.admin(ElectLeader(partition=PARTITION, first=to))

    def elect_unclean(self) -> str:
        return self.admin(ElectLeader(partition=PARTITION, unclean=True))

    def set_min_isr(self, number: int) -> str:
        return self.admin(SetMinIsr(topic="log", min_isr=number))

    def wake(self, ms: int = 200) -> list[tuple[str, ReplicaLogInfoRequest]]:
        """Time passes; whom does the controller ask for the length of a log?"""
        self.now_us += ms * MS
        for name in self.alive:
            self.beat(name)
        out = self.node.step(self.now_us, Tick()).messages
        return [(m.to, m.message) for m in out if isinstance(m.message, ReplicaLogInfoRequest)]

    def log_ends(self, name: str, last_epoch: int, end: int, **fields: int) -> None:
        """A replica says how long its log is."""
        told = {
            "partition_epoch": self.state.partition_epoch,
            "broker_epoch": self.epochs[name],
            "last_epoch": last_epoch,
            "end_offset": end,
        } | fields
        self.ask(ReplicaLogInfo(partition=PARTITION, **told), name)

    @property
    def state(self) -> PartitionRecord:
        return self.node.ctx.image.partitions[PARTITION]

    def row(self, event: str) -> None:
        s = self.state
        isr, elr, last = ("".join(m[1:] for m in of) for of in (s.isr, s.elr, s.last_known_elr))
        leader = s.leader or "-"
        self.rows.append(
            f"{event:<26} {leader:<3} {s.leader_epoch:>2} {s.partition_epoch:>2}"
            f"  isr {isr:<3}  elr {elr:<3}  lost {last}".rstrip()
        )

    def row_of_replicas(self, event: str) -> None:
        """A row about a reassignment: replicas, and those being added and removed."""
        s = self.state
        replicas, adding, removing, isr, elr = (
            "".join(m[1:] for m in of) for of in (s.replicas, s.adding, s.removing, s.isr, s.elr)
        )
        self.rows.append(
            f"{event:<22} {s.leader or '-':<3} {s.leader_epoch:>2} {s.partition_epoch:>2}"
            f"  {replicas:<5} +{adding:<2} -{removing:<2} isr {isr:<4} elr {elr}".rstrip()
        )

    def table(self) -> str:
        return "\n" + "\n".join(self.rows) + "\n"
