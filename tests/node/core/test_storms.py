"""Random faults against the pure core under virtual time: nothing acknowledged is ever lost."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from node.formats.trace import METADATA_PARTITION
from tests.support.cores_world import World

PARTITIONS = ("log-0", "log-1")


class Storm:
    """Produces, breaks things, heals, and remembers what was acknowledged."""

    def __init__(
        self, seed: int, voters: int = 1, bugs: tuple[str, ...] = (), protocol: str = "kafka"
    ) -> None:
        self.rng = random.Random(seed)
        self.world = World(seed=seed, voters=voters, bugs=bugs, protocol=protocol)
        self.sent: dict[int, tuple[str, bytes]] = {}
        self.world.run_for(500)
        self.world.create_topic(partitions=len(PARTITIONS))
        self.world.run_for(200)

    def produce(self) -> None:
        partition = self.rng.choice(PARTITIONS)
        to = self.world.leader(partition) or self.rng.choice(self.world.broker_names)
        if self.rng.random() < 0.2:
            to = self.rng.choice(self.world.broker_names)
        corr = len(self.sent)
        payload = f"{partition}/{corr}".encode()
        self.sent[corr] = (partition, payload)
        self.world.produce(to, partition, corr, payload)

    def break_something(self) -> None:
        world, rng = self.world, self.rng
        names = list(world.disks) if len(world.voter_names) >= 3 else list(world.broker_names)
        victim = rng.choice(names)
        if rng.random() < 0.4:
            victim = world.leader(rng.choice(PARTITIONS)) or victim
        kind = rng.choice(["kill", "kill", "isolate", "cut", "heal", "heal", "bounce"])
        if kind == "kill" and victim in world.nodes:
            world.kill(victim)
        elif kind == "bounce" and victim in world.nodes:
            world.kill(victim)
            world.start(victim)
        elif kind == "isolate":
            world.isolate(victim)
        elif kind == "cut":
            other = rng.choice(names)
            if other != victim:
                world.cut.add((victim, other))
        elif kind == "heal":
            world.heal()

    def run(self, steps: int = 60) -> None:
        for _ in range(steps):
            if self.rng.random() < 0.5:
                self.break_something()
            for _ in range(self.rng.randint(1, 12)):
                self.produce()
                self.world.run_for(self.rng.randint(1, 60))
            self.world.run_for(self.rng.choice([0, 50, 500, 2000]))
        self.world.heal()
        self.world.run_for(8000)

    def problems(self) -> list[str]:
        """Breaches of the properties, in words; empty when all hold."""
        world, found = self.world, []
        for partition in PARTITIONS:
            logs = {n: world.payloads(n, partition) for n in world.broker_names}
            if len({tuple(log) for log in logs.values()}) != 1:
                found.append(f"{partition}: logs differ at the end")
            log = logs["n1"]
            for corr, answer in world.answers().items():
                where, payload = self.sent[corr]
                if where != partition:
                    continue
                if not answer.error and payload not in log:
                    found.append(f"{partition}: acknowledged {payload!r} is not in the log")
                if answer.error and not answer.appended and payload in log:
                    found.append(f"{partition}: refused {payload!r} is in the log")
        found += self._prefix_problems()
        return found

    def _prefix_problems(self) -> list[str]:
        committed: dict[tuple[str, int], set[str]] = defaultdict(set)
        leaders: dict[tuple[str, int], set[str]] = defaultdict(set)
        for e in self.world.trace:
            if e["event"] == "hw":
                committed[e["partition"], e["batch_end"]].add(e["hash"])
            if e["event"] == "role" and e["role"] == "leader":
                leaders[e["partition"], e["leader_epoch"]].add(e["node"])
        return [
            *(f"two prefixes at {at}" for at, hashes in committed.items() if len(hashes) > 1),
            *(f"two leaders of {of}" for of, nodes in leaders.items() if len(nodes) > 1),
        ]

    def acknowledged(self) -> int:
        return sum(1 for answer in self.world.answers().values() if not answer.error)


MORE = (pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 12))


@pytest.mark.parametrize("voters", [1, 3])
@pytest.mark.parametrize("seed", [*range(4), *MORE])
def test_no_storm_loses_an_acknowledged_write(seed: int, voters: int) -> None:
    storm = Storm(seed, voters)
    storm.run()
    assert storm.problems() == []
    assert storm.acknowledged() > 20, "a storm in which nothing is written proves nothing"
    assert all(storm.world.leader(p) for p in PARTITIONS), "every partition has a leader again"


@pytest.mark.parametrize("bug", ["ack-before-isr", "elect-any-replica"])
def test_a_storm_finds_the_bug(bug: str) -> None:
    found = 0
    for seed in range(30):
        storm = Storm(seed, bugs=(bug,))
        storm.run()
        found += any("acknowledged" in problem for problem in storm.problems())
        if found:
            return
    pytest.fail(f"no storm of 30 noticed {bug}")


def test_the_same_seed_gives_the_same_trace() -> None:
    traces = []
    for _ in range(2):
        storm = Storm(5, voters=3)
        storm.run(steps=20)
        traces.append(storm.world.trace)
    assert traces[0] == traces[1]
    assert any(e.get("partition") == METADATA_PARTITION for e in traces[0])
