"""Faults that are commands to the controller: elections, moves of replicas, MinISR. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from nemesis.formats.schedule import (
    Cluster,
    ElectPreferred,
    ElectUnclean,
    Fault,
    Reassign,
    SetMinIsr,
)
from nemesis.view import ClusterView

ROTATE: Final = "rotate"


class Command(NamedTuple):
    """What the controller is asked for, in words that need no knowledge of its messages.

    `replicas` belongs to `reassign` (none: cancel) and to `elect-preferred` (who is put first, or
    nobody), `min_isr` to `set-min-isr`, which concerns all partitions.
    """

    what: Literal["elect-preferred", "elect-unclean", "reassign", "set-min-isr"]
    partition: str = ""
    replicas: tuple[str, ...] = ()
    min_isr: int = 0


def command_of(fault: Fault, view: ClusterView, cluster: Cluster) -> Command | None:
    """The command that carries out a fault now; None: it is not one of the controller's."""
    match fault:
        case ElectPreferred(partition=partition, first=first):
            return Command("elect-preferred", partition, (first,) if first else ())
        case ElectUnclean(partition=partition):
            return Command("elect-unclean", partition)
        case Reassign(partition=partition):
            return Command("reassign", partition, _replicas(fault, view, cluster))
        case SetMinIsr(min_isr=min_isr):
            return Command("set-min-isr", min_isr=min_isr)
    return None


def _replicas(fault: Reassign, view: ClusterView, cluster: Cluster) -> tuple[str, ...]:
    if fault.replicas != ROTATE:
        return tuple(fault.replicas.split(",")) if fault.replicas else ()
    # While a move is under way those it adds stand last.
    before = view.replicas(fault.partition)[: cluster.replication_factor]
    return rotated(before, cluster.broker_names())


def rotated(replicas: Sequence[str], brokers: Sequence[str]) -> tuple[str, ...]:
    """Each replica on the broker after its own, in the order of `brokers`."""
    return tuple(brokers[(brokers.index(name) + 1) % len(brokers)] for name in replicas)
