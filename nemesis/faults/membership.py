"""Changes of the cluster: members that join, leave and are replaced, and actions of an operator.

The system is asked for the change when the fault is injected; whether the members then say that it
is so is the effect of the fault, in a later line of `faults.jsonl`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from nemesis.faults.kind import ONE_NODE, Drawing, FaultKind, Healed, Injected, Site
from nemesis.faults.words import target
from nemesis.formats.cluster_spec import Cluster, Workload
from nemesis.world import ClusterChange, World
from node.formats.errors import FloodmarkError

ITSELF: Final = "itself"
SPARE: Final = "spare"


SPARES: Final = 2
"""How many spares a drawn storm with joins has."""
CHANGES: Final = ("join", "leave", "replace", "return", "downgrade", "operate")
"""The kinds that only a system with an adapter can take."""


class ChangeFault(FaultKind, frozen=True, kw_only=True):
    """A change on one node. With `lasts`, the heal asks for the opposite change."""

    on: str

    colour = "#8a5fbf"
    simulated = False
    of_members: ClassVar[bool] = True
    """Whether it acts on members, not on nodes outside the cluster."""

    def candidates(self, world: World, nodes: Sequence[str]) -> tuple[str, ...]:
        """Return the members that run; for a fault on new members those that are none."""
        if self.of_members:
            return tuple(node for node in nodes if world.is_member(node) and world.is_up(node))
        outside = [node for node in nodes if not world.is_member(node)]
        left = self.on == "former"
        return tuple(node for node in outside if self.on == node or world.has_left(node) == left)

    def change(self, site: Site, node: str) -> ClusterChange:
        """Return the change that the system is asked for."""
        raise NotImplementedError

    def opposite(self, node: str) -> ClusterChange | None:
        """Return the change that undoes it; None if nothing does."""
        return None

    def inject(self, site: Site) -> Injected:
        """Ask for the change. Raises FloodmarkError while another one is under way."""
        node = site.nodes[0]
        number = site.world.begin_change(self.change(site, node))
        return Injected(nodes=(node,), change=number)

    def heal(self, injected: Injected, site: Site) -> Healed:
        """Ask for the opposite change, if that is possible at the moment."""
        undo = self.opposite(injected.nodes[0])
        try:
            if undo is not None:
                site.world.begin_change(undo)
        except FloodmarkError as error:
            return Healed(nodes=(), detail=str(error))
        return Healed(nodes=injected.nodes)


class Join(ChangeFault, frozen=True, kw_only=True, tag="join"):
    """A node that is no member starts with an empty disk and becomes one. The heal removes it."""

    on: str = SPARE

    letter = "G"
    sentence = "Let {on} join the cluster"
    of_members = False
    drawing = Drawing(targets=((SPARE, 1),), aliases=())

    def change(self, site: Site, node: str) -> ClusterChange:
        return ClusterChange("join", node)

    def opposite(self, node: str) -> ClusterChange:
        return ClusterChange("leave", node)


class Leave(ChangeFault, frozen=True, kw_only=True, tag="leave"):
    """A member leaves. With `alive` it runs until the others have let it go, else it is killed
    first. The heal lets it join again, with an empty disk."""

    alive: bool = True

    letter = "v"
    plain = (("alive", True),)
    drawing = Drawing(targets=ONE_NODE, aliases=())

    def change(self, site: Site, node: str) -> ClusterChange:
        return ClusterChange("leave", node, alive=self.alive)

    def opposite(self, node: str) -> ClusterChange:
        return ClusterChange("join", node)

    def words(self) -> str:
        do = "Remove" if self.alive else "Kill, then remove"
        return f"{do} {target(self.on)} from the cluster"


class Replace(ChangeFault, frozen=True, kw_only=True, tag="replace"):
    """A member leaves, and another node joins in its place: a spare, or "itself" with an empty
    disk."""

    by: str = ITSELF
    alive: bool = False

    letter = "x"
    plain = (("by", ITSELF),)
    lasts = False
    drawing = Drawing(targets=ONE_NODE, aliases=())

    def problems(self, cluster: Cluster, workload: Workload) -> Iterator[str]:
        yield from super().problems(cluster, workload)
        if self.by not in (ITSELF, SPARE, *cluster.broker_names()):
            yield f"by: '{self.by}' is neither a node nor {ITSELF} or {SPARE}"

    def change(self, site: Site, node: str) -> ClusterChange:
        by = node if self.by == ITSELF else self.by
        if by == SPARE:
            outside = [n for n in site.cluster.broker_names() if not site.world.is_member(n)]
            if not outside:
                raise FloodmarkError("there is no spare now")
            by = outside[0]
        return ClusterChange("replace", node, alive=self.alive, by=by)

    def words(self) -> str:
        do = "Replace" if self.alive else "Kill, then replace"
        by = "itself with an empty disk" if self.by == ITSELF else target(self.by)
        return f"{do} {target(self.on)} by {by}"


class Return(ChangeFault, frozen=True, kw_only=True, tag="return"):
    """A node that left is started again with its old disk and name."""

    letter = "q"
    sentence = "Start {on} again, with its old disk"
    of_members = False
    drawing = "vendors forbid it"

    def change(self, site: Site, node: str) -> ClusterChange:
        return ClusterChange("return", node)

    def opposite(self, node: str) -> ClusterChange:
        return ClusterChange("leave", node, alive=False)


class Operate(ChangeFault, frozen=True, kw_only=True, tag="operate"):
    """An operator's action on a node, by the name that the adapter gives it."""

    action: str

    letter = "p"
    sentence = "Have an operator do '{action}' on {on}"
    lasts = False
    drawing = "its actions belong to one system: a search draws them"

    def candidates(self, world: World, nodes: Sequence[str]) -> tuple[str, ...]:
        return tuple(node for node in nodes if world.is_member(node))

    def change(self, site: Site, node: str) -> ClusterChange:
        return ClusterChange("operate", node, action=self.action)
