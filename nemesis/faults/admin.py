"""Faults that are commands to the controller: elections, reassignments, min.insync.replicas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from nemesis.faults.dice import Dice, Spot
from nemesis.faults.kind import Consequence, Drawing, FaultKind, Injected, Requirement, Site
from nemesis.faults.words import target
from nemesis.formats.cluster_spec import Cluster, Workload
from nemesis.formats.fault import Fault
from nemesis.world import Command
from node.formats.errors import FloodmarkError
from node.formats.trace import GROUPS_PARTITION

ROTATE, MOVE, MORE = "rotate", "move", "more"
WORDS: Final = (ROTATE, MOVE, MORE)
_MOVES: Final = {
    "": "Cancel the move of {}",
    ROTATE: "Move each replica of {} to the next broker",
    MOVE: "Move the replica of a follower of {} to another broker",
    MORE: "Give two more brokers a replica of {}",
}


class AdminFault(FaultKind, frozen=True, kw_only=True):
    """A command to the controller; the fault is over when the controller has committed it. A storm
    draws such a kind only if it is asked for by name, because some protocols refuse the command."""

    colour = "#2d9c9c"
    lasts = False
    by_controller = True

    def command(self, site: Site) -> Command:
        """Return the command to the controller."""
        raise NotImplementedError

    def inject(self, site: Site) -> Injected:
        """Send the command. Raises FloodmarkError if the controller refuses or changes nothing."""
        command = self.command(site)
        change = site.world.command(command)
        return Injected(detail=" ".join(command.replicas), change=change)

    def problems(self, cluster: Cluster, workload: Workload) -> Iterator[str]:
        yield from super().problems(cluster, workload)
        partition = getattr(self, "partition", None)
        known = (*cluster.partition_names(), *[GROUPS_PARTITION] * (workload.members > 0))
        if partition is not None and partition not in known:
            yield f"no partition '{partition}'"


class ElectPreferred(AdminFault, frozen=True, kw_only=True, tag="elect-preferred"):
    """A command to let the first replica of `partition` lead.

    With `first`, a broker, that replica becomes the first one before, as an operator does to give
    the leadership to it."""

    partition: str
    first: str = ""

    letter = "F"
    consequences = frozenset({Consequence.ELECTION})
    drawing = Drawing(aliases=())

    def problems(self, cluster: Cluster, workload: Workload) -> Iterator[str]:
        yield from super().problems(cluster, workload)
        if self.first and self.first not in cluster.broker_names():
            yield f"first: no broker '{self.first}' in this cluster"

    def command(self, site: Site) -> Command:
        return Command("elect-preferred", self.partition, (self.first,) if self.first else ())

    @classmethod
    def compose(cls, spot: Spot) -> Fault:
        """Draw a broker that shall lead; rarely it is the first replica, whichever that is."""
        replicas = spot.dice.brokers[: spot.dice.copies]
        others = [name for name in (*replicas, "") if name != spot.leads]
        first = spot.on if spot.on in others else spot.dice.rng.choice(others)
        return cls(partition=spot.partition, first=first, at_ms=0)

    def words(self) -> str:
        if self.first:
            return f"Let {self.first} lead {self.partition}, and be its first replica"
        return f"Let the first replica of {self.partition} lead"


class ElectUnclean(AdminFault, frozen=True, kw_only=True, tag="elect-unclean"):
    """A command to let any active replica lead a partition that has no leader."""

    partition: str

    letter = "N"
    consequences = frozenset({Consequence.ELECTION})
    sentence = "Let any active replica of {partition} lead if nobody does"
    drawing = "it gives up acknowledged writes, so that a storm could prove nothing"

    def command(self, site: Site) -> Command:
        return Command("elect-unclean", self.partition)


class Reassign(AdminFault, frozen=True, kw_only=True, tag="reassign"):
    """A command to move `partition` to `replicas`, in this order: "n2,n1".

    "rotate": each replica moves to the next broker, the last broker's to the first. "move": the
    replica of one follower moves to a broker without one. "more": two more brokers get a replica.
    "": cancel the reassignment under way."""

    partition: str
    replicas: str

    letter = "A"
    drawing = Drawing(aliases=())

    needs = frozenset({Requirement.SPARE_BROKER})
    consequences = frozenset({Consequence.ELECTION, Consequence.ISR_CHANGE})

    def problems(self, cluster: Cluster, workload: Workload) -> Iterator[str]:
        yield from super().problems(cluster, workload)
        if self.replicas not in ("", *WORDS):
            names = self.replicas.split(",")
            unknown = [name for name in names if name not in cluster.broker_names()]
            yield from (f"replicas: no broker '{name}' in this cluster" for name in unknown)
            if len(set(names)) < len(names):
                yield "replicas: name each broker once"

    def command(self, site: Site) -> Command:
        if self.replicas not in WORDS:
            replicas = tuple(self.replicas.split(",")) if self.replicas else ()
            return Command("reassign", self.partition, replicas)
        # While a move is under way those it adds stand last.
        before = site.view.replicas(self.partition)[: site.cluster.replication_factor]
        if self.replicas == ROTATE:
            replicas = rotated(before, site.cluster.broker_names())
            return Command("reassign", self.partition, replicas)
        members = tuple(filter(site.world.is_member, site.cluster.broker_names()))
        free = [name for name in members if name not in before]
        leader = site.view.leader(self.partition)
        followers = [name for name in before if name != leader]
        if not free or not followers:
            raise FloodmarkError(f"{self.partition} has a replica on every member")
        if self.replicas == MORE:
            return Command("reassign", self.partition, (*before, *free[:2]))
        goes = site.rng.choice(followers)
        moved = tuple(site.rng.choice(free) if name == goes else name for name in before)
        return Command("reassign", self.partition, moved)

    @classmethod
    def compose(cls, spot: Spot) -> Fault:
        """Draw an order of some brokers, one broker less, or a rule; after another move mostly the
        first replicas again, or that it is cancelled."""
        dice, names = spot.dice, list(spot.dice.brokers)
        first = names[: dice.copies]
        less = [name for name in first if name != spot.on] or first[:1]
        dice.rng.shuffle(names)
        some = names[: dice.rng.randint(1, len(names))]
        back = 4 if any(isinstance(fault, Reassign) for fault in spot.before) else 0.1
        order = dice.weighted(((some, 4), (less, 2), (first, back), ([], back)))
        free = len(names) > dice.copies
        rule = dice.weighted(((ROTATE, 1), (MOVE, 2 * free), (MORE, free)))
        replicas = rule if dice.chance(0.3) else ",".join(order)
        return cls(partition=spot.partition, replicas=replicas, at_ms=0)

    @classmethod
    def draw_fields(cls, dice: Dice, on: str) -> dict[str, Any]:
        return {"replicas": ROTATE}

    def words(self) -> str:
        sentence = _MOVES.get(self.replicas, f"Move {{}} to {target(self.replicas)}")
        return sentence.format(self.partition)


class SetMinIsr(AdminFault, frozen=True, kw_only=True, tag="set-min-isr"):
    """A command to change min.insync.replicas of all partitions."""

    min_isr: int

    letter = "Q"
    consequences = frozenset({Consequence.ISR_CHANGE})
    sentence = "Set min_isr to {min_isr}"
    drawing = "it changes what a schedule promises"

    @classmethod
    def compose(cls, spot: Spot) -> Fault:
        dice = spot.dice
        last = [fault.min_isr for fault in spot.before if isinstance(fault, SetMinIsr)]
        others = {*range(1, dice.copies + 1)} - {(last or [dice.min_isr])[-1]}
        return cls(min_isr=dice.rng.choice(sorted(others) or [1]), at_ms=0)

    def problems(self, cluster: Cluster, workload: Workload) -> Iterator[str]:
        yield from super().problems(cluster, workload)
        if not 1 <= self.min_isr <= cluster.replication_factor:
            yield "min_isr must be 1..replication_factor"

    def command(self, site: Site) -> Command:
        return Command("set-min-isr", min_isr=self.min_isr)


def rotated(replicas: Sequence[str], brokers: Sequence[str]) -> tuple[str, ...]:
    """Return `replicas`, each moved to the broker after its own, in the order of `brokers`."""
    return tuple(brokers[(brokers.index(name) + 1) % len(brokers)] for name in replicas)
