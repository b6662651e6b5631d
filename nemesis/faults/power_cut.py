"""Power cut: a kill that also takes data which the node had not synced."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Final

import msgspec

from nemesis.faults.dice import Spot
from nemesis.faults.kind import ONE_NODE, Drawing, Effect, Injected, Requirement, Site
from nemesis.faults.process_fault import ProcessFault
from nemesis.faults.words import target
from nemesis.formats.fault import Fault

REORDERED: Final = 0.3
"""How often a power cut reorders writes, where the disk can."""


class PowerCut(ProcessFault, frozen=True, kw_only=True, tag="power-cut"):
    """Each node gets a SIGKILL and loses the tail of its unsynced writes; it is started again as
    after a kill.

    `keep_percent` of the unsynced bytes remain (None: drawn for each node). Those are the bytes
    written first or, if `reordered`, those of drawn writes (None: drawn, if the disk can do both).
    """

    keep_percent: Annotated[int, msgspec.Meta(ge=0, le=100)] | None = None
    reordered: bool | None = None

    letter = "X"
    plainer_kind = "kill"
    colour = "var(--bad)"
    ends_process = True
    loss = "unsynced"
    needs = frozenset({Requirement.UNSYNCED})
    # No alias: what it may cost depends on how the brokers flush.
    drawing = Drawing(
        targets=(
            *ONE_NODE[:5],
            *(("isr:p", 1.5), ("any", 2), ("minority", 1), ("majority", 0.7), ("all", 0.7)),
        ),
        aliases=(),
    )

    @classmethod
    def compose(cls, spot: Spot) -> Fault:
        """Draw a power cut that mostly keeps nothing, or a drawn part for each node."""
        keep = spot.dice.weighted(((0, 5), (None, 4), (50, 1)))
        return msgspec.structs.replace(super().compose(spot), keep_percent=keep)

    def inject(self, site: Site) -> Injected:
        """Cut the power of each node. If files are declared as unsynced and no byte was taken, the
        fault has no effect: the loss that it was to test did not happen."""
        taken: list[int] = []
        injected = self.on_each(site, lambda node: self._cut(site, node, taken))
        if any(taken) or not site.world.declares_unsynced:
            return injected
        return replace(injected, effect=Effect(nodes=injected.nodes, counts={"writes": 0}))

    def _cut(self, site: Site, node: str, taken: list[int]) -> str:
        """Send SIGKILL, then take unsynced data; return how much was kept, as a phrase. Append the
        number of bytes that were taken to `taken`."""
        percent = self.keep_percent
        keep = site.rng.random if percent is None else lambda: percent / 100
        shuffle = self._shuffle(site)
        before, after = site.processes.power_cut(site.number, node, keep, shuffle)
        taken.append(before - after)
        assumption = site.world.power_cut_assumption
        order = "" if shuffle is None else ", in another order"
        kept = f"{node} kept {after} of {before} unsynced bytes{order}"
        return f"{kept} ({assumption})" if assumption else kept

    def _shuffle(self, site: Site) -> int | None:
        """Return the seed of another order, if writes shall be reordered."""
        reordered = self.reordered
        if reordered is None:
            some = self.keep_percent not in (0, 100) and site.world.reorders_writes
            reordered = some and site.rng.random() < REORDERED
        return site.rng.getrandbits(31) if reordered else None

    def plainer(self) -> Iterator[PowerCut]:
        for keep in (0, 100):
            if self.keep_percent not in (0, keep):
                yield msgspec.structs.replace(self, keep_percent=keep)
        if self.reordered is not False:
            yield msgspec.structs.replace(self, reordered=False)

    def words(self) -> str:
        kept = "a drawn part" if self.keep_percent is None else f"{self.keep_percent} %"
        order = ", in another order" if self.reordered else ""
        return f"Cut the power of {target(self.on)}: {kept} of the unsynced bytes remain{order}"
