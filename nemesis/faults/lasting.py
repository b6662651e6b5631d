"""Faults that the world keeps in force under numbers: on each node, or as rules of links. Here is
the one loop that puts them in force, and the one that ends them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar

from nemesis.faults.kind import Effect, FaultKind, Healed, Injected, Site
from nemesis.processes import CannotAct, refuse_client
from nemesis.world import Lasting
from node.formats.errors import FloodmarkError

Place = tuple[str, Lasting]
"""A node, and what it is to have in force; or "" and a rule of links."""


class LastingFault(FaultKind, frozen=True, kw_only=True):
    """A fault that is in force at some places until the heal. A place that cannot be healed stays
    in `Injected.held`, and is healed again later."""

    whole: ClassVar[bool] = False
    """True if it is in force at all of its places, or at none."""
    counted: ClassVar[str] = ""
    """The field of a `FaultLine` that has the sum of what `remove` returned."""

    def lasting(self) -> Lasting:
        """Return what the fault puts in force."""
        raise NotImplementedError

    def places(self, site: Site) -> Iterable[Place]:
        """Return the places at which the fault shall be in force: by default the nodes."""
        return [(node, self.lasting()) for node in site.nodes]

    def remove(self, site: Site, node: str, number: int) -> Any:
        """End the fault at one place; return its effect. Raises CannotAct if nothing of it is left
        to undo there, another FloodmarkError if it is still in force."""
        return site.world.remove(node, self.lasting(), number)

    def bring_back(self, site: Site, node: str) -> None:
        """Start or resume the process of a healed node, as far as that is up to this fault. Raises
        FloodmarkError if it cannot be; the final heal tries again."""

    def in_force(self, site: Site, held: dict[int, str], places: Sequence[Place]) -> Injected:
        """Return the fault as injected at these places."""
        return Injected(nodes=tuple(held.values()), held=held)

    def effect(self, injected: Injected) -> Effect:
        """Return the effect that all places together had."""
        return Effect(nodes=injected.nodes, counts={self.counted: sum(injected.healed)})

    def inject(self, site: Site) -> Injected:
        """Put the fault in force at each place. Raises FloodmarkError if none took it, or, of a
        `whole` fault, if one did not."""
        held: dict[int, str] = {}
        refused = []
        places = [*self.places(site)]
        for node, what in places:
            try:
                refuse_client(node)
                held[site.world.add(node, what)] = node
            except FloodmarkError as error:
                if self.whole:
                    for number, other in held.items():
                        with suppress(FloodmarkError):
                            self.remove(site, other, number)
                    raise
                refused.append(str(error))
        if not held:
            raise CannotAct("; ".join(refused))
        return replace(self.in_force(site, held, places), detail="; ".join(refused))

    def heal(self, injected: Injected, site: Site) -> Healed:
        """End the fault at each place where it is in force, even if another place fails."""
        failed = []
        notes: list[str] = []
        for number, node in [*injected.held.items()]:
            try:
                self.release(injected, number, site, notes)
            except FloodmarkError as error:
                failed.append(f"{node}: {error}" if node else str(error))
        return Healed(
            nodes=injected.nodes,
            detail="; ".join((*notes, *failed)),
            failed=tuple(failed),
            effect=self.effect(injected),
        )

    def release(self, injected: Injected, number: int, site: Site, notes: list[str]) -> None:
        """End the fault at one place. Raises FloodmarkError if it is still in force there."""
        node = injected.held[number]
        try:
            injected.healed.append(self.remove(site, node, number))
        except CannotAct as error:
            notes.append(str(error))
        del injected.held[number]
        try:
            self.bring_back(site, node)
        except FloodmarkError as error:
            notes.append(str(error))


def start_if_ended(site: Site, node: str) -> None:
    """Start a node whose process has ended by the fault."""
    if not site.world.is_up(node):
        site.view.lost(node)
        site.processes.start_again(site.number, node)
