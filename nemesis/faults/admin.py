"""Commands to the controller: elections, moves of replicas, min.insync.replicas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

from msgspec.structs import replace

from nemesis.faults.dice import Dice
from nemesis.faults.kind import Drawing, FaultKind, Injected, Site
from nemesis.faults.words import target
from nemesis.formats.cluster_spec import Cluster, Workload
from nemesis.formats.fault import NOT_UNDONE, Fault
from nemesis.world import Command

ROTATE: Final = "rotate"


class AdminFault(Fault, frozen=True, kw_only=True):
    """A command, over when the controller has committed it."""

    def problems(self, cluster: Cluster, workload: Workload) -> Iterator[str]:
        """As of every fault; it takes no length, and its partition is one of the cluster's."""
        yield from super().problems(cluster, workload)
        if self.for_ms is not None:
            yield NOT_UNDONE
        partition = getattr(self, "partition", None)
        if partition is not None and partition not in cluster.partition_names():
            yield f"no partition '{partition}'"


class ElectPreferred(AdminFault, frozen=True, kw_only=True, tag="elect-preferred"):
    """The controller is asked to let the first replica of `partition` lead.

    With `first`, a broker, that replica is put first before: one step of an operator who hands the
    leadership to it.
    """

    partition: str
    first: str = ""

    def problems(self, cluster: Cluster, workload: Workload) -> Iterator[str]:
        """As of every command; and `first` is a broker."""
        yield from super().problems(cluster, workload)
        if self.first and self.first not in cluster.broker_names():
            yield f"first: no broker '{self.first}' in this cluster"


class ElectUnclean(AdminFault, frozen=True, kw_only=True, tag="elect-unclean"):
    """The controller is asked to let any active replica lead, where nobody leads."""

    partition: str


class Reassign(AdminFault, frozen=True, kw_only=True, tag="reassign"):
    """The controller is asked to move `partition` to `replicas`, in this order: "n2,n1".

    "rotate": each replica goes to the next broker, the last one's to the first. "": the move that
    is under way is cancelled.
    """

    partition: str
    replicas: str

    def problems(self, cluster: Cluster, workload: Workload) -> Iterator[str]:
        """As of every command; and the replicas are different brokers."""
        yield from super().problems(cluster, workload)
        if self.replicas not in ("", ROTATE):
            names = self.replicas.split(",")
            unknown = [name for name in names if name not in cluster.broker_names()]
            yield from (f"replicas: no broker '{name}' in this cluster" for name in unknown)
            if len(set(names)) < len(names):
                yield "replicas: each is named once"


class SetMinIsr(AdminFault, frozen=True, kw_only=True, tag="set-min-isr"):
    """The controller is asked to change min.insync.replicas of all partitions."""

    min_isr: int

    def problems(self, cluster: Cluster, workload: Workload) -> Iterator[str]:
        """As of every command; and the value can be reached."""
        yield from super().problems(cluster, workload)
        if not 1 <= self.min_isr <= cluster.replication_factor:
            yield "min_isr must be 1..replication_factor"


F = TypeVar("F", bound=AdminFault)


class AdminKind(FaultKind[F]):
    """A kind of command. Storms draw some, by their names only: not every protocol obeys."""

    colour = "#2d9c9c"
    lasts = False

    def command(self, fault: F, site: Site) -> Command:
        """What the controller is asked for now."""
        raise NotImplementedError

    def inject(self, fault: F, site: Site) -> Injected:
        """Ask. Raises FloodmarkError when the controller refuses or has nothing to change."""
        command = self.command(fault, site)
        site.world.command(command)
        return Injected(detail=" ".join(command.replicas))


class ElectPreferredKind(AdminKind[ElectPreferred]):
    """The kind "elect-preferred"."""

    struct = ElectPreferred
    letter = "F"
    drawing = Drawing(aliases=())

    def command(self, fault: ElectPreferred, site: Site) -> Command:
        """Let the first replica lead."""
        return Command("elect-preferred", fault.partition, (fault.first,) if fault.first else ())

    def draw(self, dice: Dice, at_ms: int) -> ElectPreferred:
        """Of a drawn partition."""
        return ElectPreferred(partition=dice.partition(), at_ms=at_ms)

    def words(self, fault: ElectPreferred) -> str:
        """As a sentence."""
        if fault.first:
            return f"Let {fault.first} lead {fault.partition}, and be its first replica"
        return f"Let the first replica of {fault.partition} lead"


class ElectUncleanKind(AdminKind[ElectUnclean]):
    """The kind "elect-unclean"."""

    struct = ElectUnclean
    letter = "N"
    drawing = "it gives up acknowledged writes, so that a storm could prove nothing"

    def command(self, fault: ElectUnclean, site: Site) -> Command:
        """Let any active replica lead."""
        return Command("elect-unclean", fault.partition)

    def words(self, fault: ElectUnclean) -> str:
        """As a sentence."""
        return f"Let any active replica of {fault.partition} lead if nobody does"


class ReassignKind(AdminKind[Reassign]):
    """The kind "reassign"."""

    struct = Reassign
    letter = "A"
    drawing = Drawing(aliases=())

    def command(self, fault: Reassign, site: Site) -> Command:
        """Move the partition, or cancel its move."""
        if fault.replicas != ROTATE:
            replicas = tuple(fault.replicas.split(",")) if fault.replicas else ()
        else:
            # While a move is under way those it adds stand last.
            before = site.view.replicas(fault.partition)[: site.cluster.replication_factor]
            replicas = rotated(before, site.cluster.broker_names())
        return Command("reassign", fault.partition, replicas)

    def draw(self, dice: Dice, at_ms: int) -> Reassign:
        """Each replica of a drawn partition to the next broker."""
        return Reassign(partition=dice.partition(), replicas=ROTATE, at_ms=at_ms)

    def joined(self, fault: Reassign, other: Fault) -> Iterator[Fault]:
        """With an election of the first replica it is one step of an operator, at either time."""
        if "," not in fault.replicas or not isinstance(other, ElectPreferred):
            return
        if other.partition == fault.partition:
            first = fault.replicas.split(",")[0]
            for when in (other, fault):
                yield replace(other, first=first, at_ms=when.at_ms, after=when.after)

    def words(self, fault: Reassign) -> str:
        """As a sentence."""
        if not fault.replicas:
            return f"Cancel the move of {fault.partition}"
        if fault.replicas == ROTATE:
            return f"Move each replica of {fault.partition} to the next broker"
        return f"Move {fault.partition} to {target(fault.replicas)}"


class SetMinIsrKind(AdminKind[SetMinIsr]):
    """The kind "set-min-isr"."""

    struct = SetMinIsr
    letter = "Q"
    drawing = "it changes what a schedule promises"

    def command(self, fault: SetMinIsr, site: Site) -> Command:
        """Change it."""
        return Command("set-min-isr", min_isr=fault.min_isr)

    def words(self, fault: SetMinIsr) -> str:
        """As a sentence."""
        return f"Set min_isr to {fault.min_isr}"


def rotated(replicas: Sequence[str], brokers: Sequence[str]) -> tuple[str, ...]:
    """Each replica on the broker after its own, in the order of `brokers`."""
    return tuple(brokers[(brokers.index(name) + 1) % len(brokers)] for name in replicas)
