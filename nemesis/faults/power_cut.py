"""Power cut: a kill that also takes what the node had not synced."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec

from nemesis.faults.kill import Kill
from nemesis.faults.kind import ONE_NODE, Drawing, Site
from nemesis.faults.process_fault import ProcessFault
from nemesis.faults.words import target
from nemesis.formats.fault import Fault


class PowerCut(ProcessFault, frozen=True, kw_only=True, tag="power-cut"):
    """SIGKILL, and each node loses the tail of its unsynced writes; started again as after a kill.

    `keep_percent` of the unsynced bytes remain; None: drawn, for each node apart.
    """

    keep_percent: Annotated[int, msgspec.Meta(ge=0, le=100)] | None = None

    letter = "X"
    colour = "var(--bad)"
    ends_process = True
    loss = "unsynced"
    # No alias: what it may cost depends on how the brokers flush.
    drawing = Drawing(
        targets=(
            *ONE_NODE[:5],
            *(("isr:p", 1.5), ("any", 2), ("minority", 1), ("majority", 0.7), ("all", 0.7)),
        ),
        aliases=(),
    )

    def act(self, site: Site, node: str) -> str:
        """SIGKILL, then cut the journal of unsynced writes."""
        percent = self.keep_percent
        keep = site.rng.random if percent is None else lambda: percent / 100
        before, after = site.processes.power_cut(site.number, node, keep)
        assumption = site.world.power_cut_assumption
        kept = f"{node} kept {after} of {before} unsynced bytes"
        return f"{kept} ({assumption})" if assumption else kept

    def as_plainer_kind(self) -> Iterator[Fault]:
        """A kill."""
        yield Kill(on=self.on, at_ms=self.at_ms, after=self.after, for_ms=self.for_ms)

    def plainer(self) -> Iterator[PowerCut]:
        """All of the unsynced bytes are lost, or none."""
        for keep in (0, 100):
            if self.keep_percent not in (0, keep):
                yield msgspec.structs.replace(self, keep_percent=keep)

    def words(self) -> str:
        """As a sentence."""
        kept = "a drawn part" if self.keep_percent is None else f"{self.keep_percent} %"
        return f"Cut the power of {target(self.on)}: {kept} of the unsynced bytes remain"
