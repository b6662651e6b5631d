"""Stop, restart and upgrade: the process of a node is asked to end cleanly."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nemesis.faults.kind import Drawing, Site
from nemesis.faults.process_fault import ProcessFault, ProcessKind
from nemesis.faults.words import target
from nemesis.formats.cluster_spec import Cluster, Workload
from nemesis.formats.fault import NOT_UNDONE
from nemesis.world import World


class Stop(ProcessFault, frozen=True, kw_only=True, tag="stop"):
    """Controlled shutdown: asked to end cleanly (SIGTERM), it hands over what it leads; started
    again after `for_ms`, or by a `restart`, or at the final heal."""


class Restart(ProcessFault, frozen=True, kw_only=True, tag="restart"):
    """Start a dead node; a live one is stopped cleanly (SIGTERM) first."""


class Upgrade(ProcessFault, frozen=True, kw_only=True, tag="upgrade"):
    """A `restart` after which the node, and each later process of it, runs `protocol`.

    Only to one that can live beside the cluster's own, see
    `harness.systems.floodmark.brokers.check_upgrades`.
    """

    protocol: str

    def problems(self, cluster: Cluster, workload: Workload) -> Iterator[str]:
        """As of every fault; and it takes no length."""
        yield from super().problems(cluster, workload)
        if self.for_ms is not None:
            yield NOT_UNDONE


class StopKind(ProcessKind[Stop]):
    """The kind "stop"."""

    struct = Stop
    letter = "H"
    colour = "var(--bad)"
    ends_process = True
    drawing = Drawing(
        targets=(
            ("leader:p", 4),
            ("leader", 2),
            ("follower:p", 2),
            ("follower", 1),
            ("lagging", 1),
            ("any", 2),
            ("minority", 1),
            ("controller", 1),
        ),
        # It is what an operator does, and not every protocol hands over.
        aliases=(),
    )

    def act(self, fault: Stop, site: Site, node: str) -> None:
        """SIGTERM, and wait for the end."""
        site.processes.stop(site.number, node)

    def words(self, fault: Stop) -> str:
        """As a sentence."""
        return f"Shut down {target(fault.on)} in good order"


class RestartKind(ProcessKind[Restart]):
    """The kind "restart"."""

    struct = Restart
    letter = "S"
    colour = "var(--good)"
    lasts = False
    drawing = "what a drawn fault brings down starts again by itself"

    def candidates(self, world: World, nodes: Sequence[str]) -> tuple[str, ...]:
        """All: the dead are started."""
        return tuple(nodes)

    def act(self, fault: Restart, site: Site, node: str) -> None:
        """SIGTERM where it runs, then a new process."""
        site.processes.restart(node)


class UpgradeKind(ProcessKind[Upgrade]):
    """The kind "upgrade"."""

    struct = Upgrade
    letter = "V"
    colour = "var(--good)"
    lasts = False
    drawing = "few protocols can live beside each other"

    def candidates(self, world: World, nodes: Sequence[str]) -> tuple[str, ...]:
        """All: the dead are started."""
        return tuple(nodes)

    def act(self, fault: Upgrade, site: Site, node: str) -> None:
        """A restart with another protocol."""
        site.world.set_protocol(node, fault.protocol)
        site.processes.restart(node)

    def words(self, fault: Upgrade) -> str:
        """As a sentence."""
        return f"Restart {target(fault.on)} with protocol {fault.protocol}"
