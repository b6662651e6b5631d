"""Stop, restart and upgrade: the process of a node is asked to end cleanly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from nemesis.faults.dice import Spot
from nemesis.faults.kind import ONE_NODE, Drawing, Injected, Site
from nemesis.faults.process_fault import ProcessFault
from nemesis.faults.words import target
from nemesis.formats.fault import Fault
from nemesis.world import ClusterChange, World


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
        site.processes.restart(node)


class Upgrade(Restart, frozen=True, kw_only=True, tag="upgrade"):
    """A `restart` after which the node, and each later process of it, runs another version: our
    own brokers `protocol`, another system its `version` ("": the next one of its servers), after a
    SIGTERM or, if that is `how`, a SIGKILL.

    `harness.systems.floodmark.brokers.check_upgrades` refuses a protocol that cannot be mixed with
    the cluster's own."""

    protocol: str = ""
    version: str = ""
    how: Literal["stop", "kill"] = "stop"

    direction: ClassVar[Literal["upgrade", "downgrade"]] = "upgrade"
    letter = "V"
    drawing = "a version belongs to one system: a search draws it"

    @classmethod
    def compose(cls, spot: Spot) -> Fault:
        """Return a restart with the protocol of the cluster: others may not mix with it."""
        return cls(on=spot.on, protocol=spot.dice.protocol, at_ms=0)

    def candidates(self, world: World, nodes: Sequence[str]) -> tuple[str, ...]:
        """Return the members; of another system those that run."""
        members = tuple(node for node in nodes if world.is_member(node))
        if self.protocol:
            return members
        movable = [n for n in members if self.version or world.can_move(n, self.direction)]
        return tuple(filter(world.is_up, movable))

    def inject(self, site: Site) -> Injected:
        """Restart each node with another protocol; or begin the change of one node's version."""
        if self.protocol:
            return super().inject(site)
        node = site.nodes[0]
        change = ClusterChange(self.direction, node, version=self.version, kill=self.how == "kill")
        return Injected(nodes=(node,), change=site.world.begin_change(change))

    def act(self, site: Site, node: str) -> None:
        site.world.set_protocol(node, self.protocol)
        super().act(site, node)

    def words(self) -> str:
        if self.protocol:
            return f"Restart {target(self.on)} with protocol {self.protocol}"
        do = self.what.capitalize() if self.how == "stop" else f"Kill, then {self.what}"
        return f"{do} {target(self.on)}" + f" to {self.version}" * bool(self.version)


class Downgrade(Upgrade, frozen=True, kw_only=True, tag="downgrade"):
    """The same with an older version."""

    direction = "downgrade"
    simulated = False
    letter = "u"
