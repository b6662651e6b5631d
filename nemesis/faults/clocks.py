"""Faults of clocks: the wall clock of a node is wrong, or the clock that it measures timeouts with
runs at another rate. Its other clocks stay right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final, Self

import msgspec

from nemesis.faults.dice import Dice
from nemesis.faults.kind import ONE_NODE, Drawing, Site
from nemesis.faults.process_fault import ProcessFault
from nemesis.faults.words import target
from nemesis.formats.cluster_spec import Cluster, Workload

MOST_MS: Final = 366 * 24 * 3600 * 1000
Rate = Annotated[int, msgspec.Meta(ge=10, le=1000)]
RATES: Final = (50, 200, 67, 150, 80, 125)
"""Percent of the true rate that are drawn, the plainest first."""
OffsetMs = Annotated[int, msgspec.Meta(ge=-MOST_MS, le=MOST_MS)]


class _WrongClock(ProcessFault, frozen=True, kw_only=True):
    """A fault that moves the wall clock of each node by `offset_ms`."""

    offset_ms: OffsetMs

    colour = "#7a6a4f"
    consequences = frozenset()
    simulated = False

    def problems(self, cluster: Cluster, workload: Workload) -> Iterator[str]:
        yield from super().problems(cluster, workload)
        if not self.offset_ms:
            yield "offset_ms is 0, which changes nothing"

    def act(self, site: Site, node: str) -> None:
        site.world.shift_clock(node, self.offset_ms)

    @classmethod
    def draw_fields(cls, dice: Dice, on: str) -> dict[str, Any]:
        """Draw an offset of a fraction of the session, of a few sessions, or of about an hour,
        forward or back."""
        session = dice.timings.session_ms
        by = dice.weighted(((0.3 * session, 1), (3.0 * session, 2), (3_600_000, 1)))
        sign = -1 if dice.chance(0.5) else 1
        return {"offset_ms": sign * dice.between(0.5 * by, by)}

    def plainer(self) -> Iterator[Self]:
        if self.offset_ms not in (-1000, 1000):
            sign = 1 if self.offset_ms > 0 else -1
            yield msgspec.structs.replace(self, offset_ms=sign * 1000)

    def _distance(self) -> str:
        way = "ahead" if self.offset_ms > 0 else "back"
        return f"{way} by {abs(self.offset_ms) / 1000:g} s"


class ClockSkew(_WrongClock, frozen=True, kw_only=True, tag="clock-skew"):
    """The wall clock is `offset_ms` off (negative: behind) until the heal."""

    letter = "w"
    drawing = Drawing(targets=ONE_NODE, aliases=("clock",))

    def undo(self, site: Site, node: str) -> None:
        site.world.shift_clock(node, -self.offset_ms)

    def words(self) -> str:
        return f"Set the wall clock of {target(self.on)} {self._distance()}"


class ClockJump(_WrongClock, frozen=True, kw_only=True, tag="clock-jump"):
    """The wall clock jumps by `offset_ms` (negative: back) and goes on from there."""

    letter = "j"
    pattern = "dots"
    lasts = False
    drawing = Drawing(targets=ONE_NODE, aliases=("clock",))

    def words(self) -> str:
        return f"Let the wall clock of {target(self.on)} jump {self._distance()}"


class ClockRate(ProcessFault, frozen=True, kw_only=True, tag="clock-rate"):
    """The clock that a node measures its timeouts with runs at `percent` of the true rate until the
    heal, also in later processes. If several such faults are on a node, the last one counts."""

    percent: Rate

    letter = "g"
    sentence = "Let the clock of {on} run at {percent} %"
    colour = "#7a6a4f"
    pattern = "bars"
    consequences = frozenset()
    drawing = Drawing(targets=ONE_NODE, aliases=())

    def problems(self, cluster: Cluster, workload: Workload) -> Iterator[str]:
        yield from super().problems(cluster, workload)
        if self.percent == 100:
            yield "percent is 100, which changes nothing"

    def act(self, site: Site, node: str) -> None:
        site.world.set_clock_rate(node, self.percent)

    def undo(self, site: Site, node: str) -> None:
        """Let the clock run at the true rate again; the time that it gained or lost stays."""
        site.world.set_clock_rate(node, 100)

    @classmethod
    def draw_fields(cls, dice: Dice, on: str) -> dict[str, Any]:
        return {"percent": dice.rng.choice(RATES)}

    def plainer(self) -> Iterator[Self]:
        plain = 50 if self.percent < 100 else 200
        if self.percent != plain:
            yield msgspec.structs.replace(self, percent=plain)
