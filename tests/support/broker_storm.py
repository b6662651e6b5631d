"""Storms over `World`: faults are drawn from one seed while clients write; then comes a calm,
and what must be true after it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from node.core.messages import AdminRequest, ElectLeader, ReassignReplicas, SetMinIsr
from node.formats.timings import Timings
from tests.support.broker_world import Lossiness, World

PARTITIONS = ("log-0", "log-1")
SHORT = Timings(
    heartbeat_ms=20,
    session_ms=120,
    lag_ms=60,
    fetch_wait_ms=10,
    fetch_timeout_ms=40,
    retry_ms=5,
    election_min_ms=60,
    election_max_ms=120,
    hw_checkpoint_ms=30,
)


ALL_FAULTS = (
    "kill",
    "kill",
    "isolate",
    "cut",
    "cut",
    "heal",
    "heal",
    "restart",
    "restart twice",
    "pause",
    "pause",
    "resume",
)
NODE_FAULTS = ("kill", "kill", "isolate", "cut", "heal", "heal", "restart")


@dataclass(frozen=True)
class Conditions:
    """The cluster of a storm, what its links do, and which faults are drawn. Latency in us."""

    brokers: int = 3
    voters: int = 1
    rf: int = 3
    min_isr: int = 2
    lossiness: Lossiness = field(default_factory=Lossiness)
    latency_us: tuple[int, int] = (100, 2000)
    timings: Timings = field(default_factory=Timings)
    flush_interval_ms: int = 0
    protocol: str = "kafka"
    faults: tuple[str, ...] = ALL_FAULTS
    commands: tuple[str, ...] = ()
    lose_all: bool = False


MOVES = ("move", "move", "cancel", "prefer", "stop")
STORMY = Lossiness(lose=0.05, double=0.1, late=0.05, late_us=2_000_000)
CONDITIONS = {
    "faults of nodes": Conditions(faults=NODE_FAULTS),
    "faults of nodes, three voters": Conditions(faults=NODE_FAULTS, voters=3),
    "loss": Conditions(lossiness=Lossiness(lose=0.1)),
    "doubles": Conditions(lossiness=Lossiness(double=0.2)),
    "delays of seconds": Conditions(lossiness=Lossiness(late=0.05)),
    "all of it": Conditions(lossiness=STORMY),
    "all of it, three voters": Conditions(lossiness=STORMY, voters=3),
    "five voters": Conditions(voters=5, lossiness=Lossiness(double=0.1, late=0.02)),
    "slow links": Conditions(voters=3, latency_us=(20_000, 150_000)),
    "short patience": Conditions(latency_us=(100, 9000), timings=SHORT),
    "two brokers, min_isr 1": Conditions(brokers=2, rf=2, min_isr=1),
    "two brokers, min_isr 2": Conditions(brokers=2, rf=2, min_isr=2, lossiness=STORMY),
    "five brokers": Conditions(brokers=5, voters=3, lossiness=STORMY),
    "four copies": Conditions(brokers=4, rf=4),
    "min_isr 1": Conditions(min_isr=1),
    "min_isr 3": Conditions(min_isr=3),
    "led by votes": Conditions(protocol="quorum", lossiness=STORMY),
    "led by votes, five copies": Conditions(
        protocol="quorum", brokers=5, rf=5, voters=3, lossiness=Lossiness(double=0.1, late=0.05)
    ),
    "power cuts": Conditions(flush_interval_ms=200),
    "moves": Conditions(brokers=5, commands=MOVES),
    "moves in a storm": Conditions(brokers=5, voters=3, commands=MOVES, lossiness=STORMY),
    "moves and power cuts": Conditions(
        brokers=4, commands=MOVES, flush_interval_ms=200, lossiness=Lossiness(late=0.05)
    ),
    "moves and min_isr": Conditions(brokers=4, commands=(*MOVES, "min_isr"), lossiness=STORMY),
    "moves before KIP-966": Conditions(brokers=5, commands=MOVES, protocol="kip-279"),
    "all power fails": Conditions(
        flush_interval_ms=500, commands=("stop", "elect unclean"), lose_all=True
    ),
    "power cuts, five copies": Conditions(
        brokers=5, rf=5, min_isr=3, voters=3, flush_interval_ms=200, lossiness=STORMY
    ),
}


class Storm:
    """One storm. `World` asserts its invariants at every step of it."""

    def __init__(self, seed: int, conditions: Conditions, bugs: tuple[str, ...] = ()) -> None:
        self.conditions = conditions
        self.rng = random.Random(seed)
        self.world = World(
            seed,
            brokers=conditions.brokers,
            voters=conditions.voters,
            latency_us=conditions.latency_us,
            timings=conditions.timings,
            flush_interval_ms=conditions.flush_interval_ms,
            bugs=bugs,
            protocol=conditions.protocol,
        )
        self.sent: dict[int, tuple[str, bytes, int]] = {}
        self.power_cuts = 0
        self.world.run_for(1500)
        self.world.create_topic(
            partitions=len(PARTITIONS), rf=conditions.rf, min_isr=conditions.min_isr
        )
        self.world.run_for(500)
        self.unsettle_links()

    def unsettle_links(self) -> None:
        self.world.lossiness = replace(self.conditions.lossiness)

    def produce(self) -> None:
        rng, world = self.rng, self.world
        partition = rng.choice(PARTITIONS)
        to = world.leader(partition) or rng.choice(world.broker_names)
        if rng.random() < 0.2:
            to = rng.choice(world.broker_names)
        corr, acks = len(self.sent), rng.choice([-1, -1, -1, 1])
        payload = f"{partition}/{corr}".encode()
        self.sent[corr] = (partition, payload, acks)
        world.produce(to, partition, corr, payload, acks=acks)

    def break_something(self) -> None:
        world, rng = self.world, self.rng
        names = list(world.disks) if len(world.voter_names) >= 3 else list(world.broker_names)
        victim = rng.choice(names)
        if rng.random() < 0.4:
            victim = world.leader(rng.choice(PARTITIONS)) or victim
        kinds = list(self.conditions.faults)
        if self.conditions.flush_interval_ms:
            kinds += ["power"] * (4 if self.conditions.lose_all else 1)
        kind = rng.choice(kinds)
        if kind == "heal":
            world.heal()
            self.unsettle_links()
        elif kind == "resume":
            for name in list(world.paused):
                world.resume(name)
        elif kind == "isolate":
            world.isolate(victim)
        elif kind == "cut":
            self._cut(victim, rng.choice(names))
        elif victim in world.nodes:
            self._stop(kind, victim)

    def command(self, kind: str) -> None:
        """Ask for something, and do not wait for the answer. Each voter is asked."""
        rng, world = self.rng, self.world
        if kind == "stop":
            victim = rng.choice(world.broker_names)
            if victim in world.nodes:
                world.stop(victim)
            return
        partition = rng.choice(PARTITIONS)
        size = rng.randint(self.conditions.min_isr, len(world.broker_names))
        command: AdminRequest = ElectLeader(partition=partition, unclean=kind == "elect unclean")
        if kind in ("move", "cancel"):
            target = tuple(rng.sample(world.broker_names, size)) if kind == "move" else ()
            command = ReassignReplicas(partition=partition, replicas=target)
        elif kind == "min_isr":
            command = SetMinIsr(topic="log", min_isr=rng.randint(1, 3))
        assert world.invariants is not None
        if kind in ("move", "min_isr"):
            world.invariants.steady = False
        if kind == "elect unclean":
            world.invariants.promises = False
        for voter in world.voter_names:
            world.send(voter, command)

    def _cut(self, a: str, b: str) -> None:
        if a != b:
            self.world.cut |= {(a, b)} if self.rng.random() < 0.5 else {(a, b), (b, a)}

    def _stop(self, kind: str, victim: str) -> None:
        world, rng = self.world, self.rng
        if kind == "pause":
            world.pause(victim)
        elif kind == "power":
            self._power_cut(victim)
        else:
            world.kill(victim)
        if kind.startswith("restart"):
            world.start(victim)
        if kind == "restart twice":
            world.run(world.now_us + rng.choice([0, 100, 1000, 5000, 1_500_000]))
            if victim in world.nodes:
                world.kill(victim)
                world.start(victim)

    def _power_cut(self, victim: str) -> None:
        world = self.world
        if victim not in world.broker_names:
            return
        too_many = self.power_cuts >= self.conditions.min_isr - 1
        if too_many and not self.conditions.lose_all:
            return
        self.power_cuts += 1
        if too_many:
            assert world.invariants is not None
            world.invariants.promises = False
            for name in world.broker_names:
                if name in world.nodes and self.rng.random() < 0.7:
                    world.power_cut(name)
        if victim in world.nodes:
            world.power_cut(victim)

    def run(self, steps: int = 40) -> None:
        rng, world = self.rng, self.world
        for _ in range(steps):
            if rng.random() < 0.5:
                self.break_something()
            if self.conditions.commands and rng.random() < 0.5:
                self.command(rng.choice(self.conditions.commands))
            for _ in range(rng.randint(1, 10)):
                self.produce()
                world.run_for(rng.randint(1, 60))
            world.run_for(rng.choice([0, 50, 500, 2000]))
        world.heal()
        world.run_for(2_000)
        world.heal()  # a node that was shutting down at the first heal has stopped now
        world.run_for(10_000)

    def problems(self) -> list[str]:
        """What is still wrong after the storm and the calm; empty if nothing."""
        world, found = self.world, []
        away = [n for n in world.broker_names if world.nodes[n].membership.fenced]  # type: ignore[union-attr]
        if away:
            found.append(f"still fenced: {' '.join(away)}")
        for partition in PARTITIONS:
            found += self._problems_of(partition)
            if world.nodes["n1"].ctx.image.partitions[partition].target:
                found.append(f"{partition}: is still being moved")
        return found

    def _problems_of(self, partition: str) -> list[str]:
        world = self.world
        leader = world.leader(partition)
        if leader is None:
            return [f"{partition}: nobody leads"]
        found = []
        replicas = world.nodes[leader].replicas[partition].replicas
        log = world.payloads(leader, partition)
        differ = [name for name in replicas if world.payloads(name, partition) != log]
        if differ:
            found.append(f"{partition}: {' '.join(differ)} not as {leader}")
        for corr, answer in world.answers().items():
            where, payload, acks = self.sent[corr]
            if where != partition:
                continue
            at = answer.base_offset
            kept = self.world.invariants is None or self.world.invariants.promises
            if kept and not answer.error and acks == -1 and log[at : at + 1] != [payload]:
                found.append(f"{partition}: acknowledged {payload!r} is lost")
            if answer.error and not answer.appended and payload in log:
                found.append(f"{partition}: refused {payload!r} is in the log")
        return found

    def acknowledged(self) -> int:
        return sum(not answer.error for answer in self.world.answers().values())
