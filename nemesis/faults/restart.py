"""Stop, restart and upgrade: the process of a node is asked to end cleanly."""

from __future__ import annotations

from collections.abc import Sequence

from nemesis.faults.kind import ONE_NODE, Drawing, Site
from nemesis.faults.process_fault import ProcessFault
from nemesis.world import World


class Stop(ProcessFault, frozen=True, kw_only=True, tag="stop"):
    """A controlled shutdown: the node is asked to end cleanly (SIGTERM) and transfers its
    leaderships. It is started again after `for_ms`, by a `restart`, or at the final heal."""

    letter = "H"
    colour = "var(--bad)"
    sentence = "Shut down {on} in good order"
    ends_process = True
    # No alias: it is what an operator does, and not every protocol transfers leadership.
    drawing = Drawing(targets=(*ONE_NODE, ("minority", 1), ("controller", 1)), aliases=())

    def act(self, site: Site, node: str) -> None:
        """Send SIGTERM, and wait for the end."""
        site.processes.stop(site.number, node)


class Restart(ProcessFault, frozen=True, kw_only=True, tag="restart"):
    """A new process of a node is started; one that runs is stopped cleanly (SIGTERM) before."""

    letter = "S"
    colour = "var(--good)"
    lasts = False
    drawing = "what a drawn fault brings down starts again by itself"

    def candidates(self, world: World, nodes: Sequence[str]) -> tuple[str, ...]:
        """Return all nodes: those that are down can be started."""
        return tuple(nodes)

    def act(self, site: Site, node: str) -> None:
        """Send SIGTERM to a running node, then start a new process."""
        site.processes.restart(node)


class Upgrade(Restart, frozen=True, kw_only=True, tag="upgrade"):
    """A `restart` after which the node, and each later process of it, runs `protocol`.

    `harness.systems.floodmark.brokers.check_upgrades` refuses a protocol that cannot be mixed with
    the cluster's own."""

    protocol: str

    letter = "V"
    sentence = "Restart {on} with protocol {protocol}"
    drawing = "few protocols can live beside each other"

    def act(self, site: Site, node: str) -> None:
        """Restart a node with another protocol."""
        site.world.set_protocol(node, self.protocol)
        super().act(site, node)
