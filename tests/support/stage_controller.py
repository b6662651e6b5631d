"""One voter, its own majority, that is asked as the controller: a stage of scripts.

Every broker of `start` is started and is heard until it is fenced; the first `rf` are replicas of
log-0. The output of a command is the answer to it, and how log-0 and the brokers have changed."""

from __future__ import annotations

from typing import Any

from node.core.api import Deliver, NodeConfig, Tick
from node.core.image import PartitionRecord
from node.formats.messages import (
    AlterPartition,
    AnyMessage,
    CreateTopic,
    ElectLeader,
    Error,
    Heartbeat,
    ReassignReplicas,
    RegisterBroker,
    ReplicaLogInfo,
    ReplicaLogInfoRequest,
    SetMinIsr,
)
from tests.support.log_notation import PARTITION
from tests.support.lone_broker import LoneCore
from tests.support.stage_replica import message_text

BROKERS = ("n1", "n2", "n3", "n4", "n5")
NO_PARTITION = PartitionRecord(
    partition="", replicas=(), isr=(), leader="", leader_epoch=-1, partition_epoch=-1, min_isr=0
)


class ControllerStage(LoneCore):
    """Voter v1 as the controller of n1, n2..; every question to it is a command."""

    def __init__(
        self,
        min_isr: int = 2,
        start: str = "n1,n2,n3",
        protocol: str = "kafka",
        unclean: int = 0,
        rf: int = 3,
    ) -> None:
        config = NodeConfig(
            node="v1",
            voters=("v1",),
            brokers=BROKERS,
            protocol=protocol,
            unclean_election=bool(unclean),
        )
        super().__init__(config)
        self.boot()
        self.alive: list[str] = []
        self.incarnations: dict[str, int] = {}
        self.epochs: dict[str, int] = {}
        self._seen = NO_PARTITION
        self._brokers: dict[str, str] = {}
        self._asked: list[str] = []
        self._do(Tick())
        for name in start.split(",") if start else ():
            self.start(name)
        if start:
            self._ask(
                CreateTopic(topic="log", partitions=1, replication_factor=rf, min_isr=min_isr)
            )
        self.observe()

    def _do(self, event: Deliver | Tick, after_ms: int = 0) -> list[AnyMessage]:
        out = self.step(event, after_ms)
        self._asked += [m.to for m in out if isinstance(m.message, ReplicaLogInfoRequest)]
        return [m.message for m in out if not isinstance(m.message, ReplicaLogInfoRequest)]

    def _ask(self, message: AnyMessage, source: str = "c1") -> list[AnyMessage]:
        return self._do(Deliver(source, message))

    @property
    def state(self) -> PartitionRecord:
        """Return the controller's record of log-0."""
        return self.core.ctx.image.partitions.get(PARTITION, NO_PARTITION)

    # -- brokers ----------------------------------------------------------------------------------

    def register(self, name: str, incarnation: int = 1, lost_data: int = 0) -> str:
        since = incarnation if lost_data else 1
        answers = self._ask(
            RegisterBroker(broker=name, incarnation=incarnation, intact_since=since), name
        )
        if answers[-1].error is Error.NONE:  # type: ignore[union-attr]
            self.epochs[name] = answers[-1].broker_epoch  # type: ignore[union-attr]
        return message_text(answers[-1])

    def enroll(self, *names: str, lost_data: int = 0) -> list[str]:
        """Register new processes, which are not unfenced yet."""
        lines = []
        for name in names:
            self.incarnations[name] = self.incarnations.get(name, 0) + 1
            self.register(name, self.incarnations[name], lost_data=lost_data)
            lines += self.observe()
        return lines

    def beat(self, *names: str, epoch: int = 0, behind: int = -1, stop: int = 0) -> list[str]:
        """Heartbeats of brokers with the epoch that is `epoch` off, which lack `behind` records."""
        return [self._beat(name, epoch, behind, stop) for name in names]

    def _beat(self, name: str, epoch: int = 0, behind: int = -1, stop: int = 0) -> str:
        end = self.core.quorum.r.leo
        beat = Heartbeat(
            broker=name,
            broker_epoch=self.epochs[name] + epoch,
            metadata_offset=1 << 40 if behind < 0 else end - behind,
            want_shutdown=bool(stop),
        )
        return message_text(self._ask(beat, name)[-1])

    def start(self, *names: str, lost_data: int = 0) -> list[str]:
        """Register new processes, which catch up with the metadata and are heard from then on."""
        lines = []
        for name in names:
            lines += self.enroll(name, lost_data=lost_data)
            self.unfence(name)
        return lines

    def show(self) -> str:
        """Show the controller's record of log-0."""
        return record_text(self.state)

    def unfence(self, *names: str) -> None:
        """Let registered brokers be heard from now on."""
        for name in names:
            self._beat(name)
            self.alive.append(name)

    def fence(self, *names: str) -> list[str]:
        """Brokers fall silent, one after the other, until their sessions are over."""
        lines = []
        for name in names:
            self.alive.remove(name)
            self.wait(1600)
            lines += self.observe()
        return lines

    def wait(self, ms: int, deaf: str = "") -> None:
        """Time passes; every live broker is heard, and a `deaf` one applies no metadata."""
        stuck = self.core.quorum.r.leo - 1
        for _ in range(max(1, ms // 100)):
            self.ctx.now_us += min(ms, 100) * 1000
            for other in self.alive:
                self._beat(other, behind=self.core.quorum.r.leo - stuck if other == deaf else -1)
            self._do(Tick())

    def restart(self, after: int = 0) -> None:
        """Another process of the voter leads, `after` ms later; then nothing is heard."""
        self.boot(self.now_us + after * 1000)
        self._do(Tick())

    def silence(self, ms: int) -> None:
        """Time passes, and no broker is heard."""
        self._do(Tick(), ms)

    # -- what is asked ----------------------------------------------------------------------------

    def alter(self, *isr: str, **fields: Any) -> str:
        """Propose an ISR as the leader. A member without an epoch has any, `n3@` has its present
        one, and `n3@-1` the one before that. Numbers are differences to the right ones."""
        state = self.state
        right = {
            "partition": PARTITION,
            "broker": state.leader,
            "leader_epoch": state.leader_epoch,
            "broker_epoch": self.epochs.get(fields.get("broker", state.leader), -1),
            "partition_epoch": state.partition_epoch,
        }
        for name, value in fields.items():
            right[name] = right[name] + value if isinstance(value, int) else value
        proposal = AlterPartition(isr=tuple(self._member(one) for one in isr), **right)  # type: ignore[arg-type]
        return message_text(self._ask(proposal, state.leader)[-1])

    def _member(self, text: str) -> tuple[str, int]:
        name, at, off = text.partition("@")
        return name, self.epochs[name] + int(off or 0) if at else -1

    def _admin(self, command: AnyMessage) -> str:
        end = self.core.quorum.r.leo
        answer = self._ask(command)[-1]
        error = f"{answer.error.value}: " if answer.error else ""  # type: ignore[union-attr]
        said = f"{error}{answer.detail}" or "done"  # type: ignore[union-attr]
        return said if (self.core.quorum.r.leo > end) == (said == "done") else f"{said} (records!)"

    def reassign(self, *replicas: str, partition: str = PARTITION) -> str:
        """Move a partition; without replicas, cancel the move."""
        return self._admin(ReassignReplicas(partition=partition, replicas=replicas))

    def elect(self, partition: str = PARTITION, first: str = "", unclean: int = 0) -> str:
        """Elect the preferred replica, or make `first` the preferred one, or elect uncleanly."""
        return self._admin(ElectLeader(partition=partition, first=first, unclean=bool(unclean)))

    def min_isr(self, number: int, topic: str = "log") -> str:
        """Change min.insync.replicas."""
        return self._admin(SetMinIsr(topic=topic, min_isr=number))

    def topic(self, name: str, partitions: int = 1, rf: int = 3, min_isr: int = 2) -> list[str]:
        """Create a topic; returns where its partitions are."""
        said = self._admin(
            CreateTopic(topic=name, partitions=partitions, replication_factor=rf, min_isr=min_isr)
        )
        made = self.core.ctx.image.partitions.items()
        return [said, *(f"{p}: {' '.join(s.replicas)}" for p, s in made if p != PARTITION)]

    def log_ends(self, name: str, last_epoch: int, end: int, **off: int) -> None:
        """Report the log end of a replica; `off` are differences to the right epochs."""
        fields = {
            "partition_epoch": self.state.partition_epoch + off.get("partition_epoch", 0),
            "broker_epoch": self.epochs[name] + off.get("broker_epoch", 0),
            "last_epoch": last_epoch,
            "end_offset": end,
        }
        self._ask(ReplicaLogInfo(partition=PARTITION, **fields), name)  # type: ignore[arg-type]

    # -- what happened ----------------------------------------------------------------------------

    def observe(self) -> list[str]:
        """Questions for log ends, and how log-0 and the brokers have changed."""
        asked, self._asked = self._asked, []
        lines = [f"asks {' '.join(dict.fromkeys(asked))} for log ends"] if asked else []
        if self.state != self._seen:
            self._seen = self.state
            lines.append(record_text(self.state))
        image = self.core.ctx.image
        now = {
            name: "stopping" if b.stopping else "fenced" if b.fenced else "active"
            for name, b in image.brokers.items()
        }
        lines += [f"{n} is {what}" for n, what in now.items() if self._brokers.get(n) != what]
        self._brokers = now
        return lines


def record_text(s: PartitionRecord) -> str:
    """Format the controller's record of a partition; empty sets are left out."""
    sets = {"replicas": s.replicas, "adding": s.adding, "removing": s.removing, "target": s.target}
    moving = sets if s.target or s.replicas != ("n1", "n2", "n3") else {}
    sets = {**moving, "ISR": s.isr, "ELR": s.elr, "last known": s.last_known_elr}
    shown = ", ".join(f"{name} {' '.join(of)}" for name, of in sets.items() if of)
    leader = f"{s.leader} leads" if s.leader else "no leader"
    unclean = ", unclean" if s.unclean else ""
    min_isr = f", MinISR {s.min_isr}" if s.min_isr != 2 else ""
    return f"{leader} epoch {s.leader_epoch}.{s.partition_epoch}: {shown}{min_isr}{unclean}"
