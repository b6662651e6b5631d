"""The storms of a search on real processes: faults arranged around a failover. Pure.

Each family is a way in which replicated systems of any kind are known to fail. The kinds of faults,
their targets and lengths are random; no family is made for one system. All times are fractions of
`failover_ms`, which the system declares. Faults aim at roles, so that a family need not know who
leads.

Swarm testing (Groce et al., 2012): each storm has only some kinds of faults, often a single one,
because kinds that are always present get in each other's way."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final, Literal

from msgspec.structs import replace

from harness.systems.interface import System
from nemesis.draw import draw
from nemesis.faults import KINDS, PowerCut
from nemesis.faults.dice import Dice
from nemesis.faults.kind import Drawing, FaultKind
from nemesis.faults.link_fault import LinkFault
from nemesis.formats.schedule import Cluster, Fault, Workload
from nemesis.links.abilities import LinkAbilities
from nemesis.ready_made import RESTART_MS

STORMS_VERSION: Final = 28
"""The version of these families; under another one a seed draws another storm."""
Disks = Literal["none", "one", "any"]
"""The number of nodes that may lose unsynced writes in a storm that a system must survive."""
PARTITION: Final = "log-0"
LEADER: Final = f"leader:{PARTITION}"
FOLLOWER: Final = f"follower:{PARTITION}"
ANOTHER: Final = f"another-follower:{PARTITION}"
POWER_CUT: Final = "power-cut"
PLAIN_MS: Final = 9000
"""The length of a plain storm without its part that depends on the failover."""
LEAST_MS: Final = 10
"""The length of the shortest fault."""
_WEIGHTS: Final = {"kill": 4.0, "pause": 2.0, "isolate": 2.0}
"""The weights with which kinds are drawn, for kinds with another weight than one."""
_SWARMS: Final = ((1, 0.35), (2, 0.40), (99, 0.25))
"""Numbers of kinds of faults in a storm, with their weights."""


class StormDice(Dice):
    """The random choices of one storm: its faults, their times, the nodes that may lose data."""

    def __init__(
        self,
        cluster: Cluster,
        workload: Workload,
        rng: random.Random,
        links: LinkAbilities,
        system: System,
    ) -> None:
        """Prepare to draw one storm of a system, which says how long a failover takes: from the
        death of a leader to the first acknowledgement of the next one."""
        super().__init__(cluster, workload, rng, links, maps=system.simulated)
        self.cluster, self.workload = cluster, workload
        self.system, self.failover_ms = system, system.limits(cluster).session_ms
        self.slow_ms = max(0, system.restart_ms - RESTART_MS)

    def begin(self, kinds: Sequence[str], disks: Disks, seed: int) -> None:
        """Choose the kinds of faults of this storm, of those that the system and its links can
        take. `seed` is that of a plain storm."""
        self.seed, self.disks = seed, disks
        self._usable = [kind for kind in kinds if _usable(kind, disks)]
        self.kinds = self._swarm(self._usable)
        self.damages = [kind for kind in self._usable if KINDS[kind].loss == "noticed"]
        """The kinds that damage the disk of a node that is down, if the search names some."""
        self._power_cuts = {"none": 0, "one": 1, "any": 99}[disks] * (POWER_CUT in kinds)
        self.power_factor = 2.0 if disks == "one" else 1.0
        cuts = [KINDS[kind] for kind in ("isolate", "cut") if kind in kinds]
        self.cut_off = cuts[0] if cuts else None

    @property
    def can_cut_power(self) -> bool:
        """Return whether one more node may lose its unsynced data."""
        return self._power_cuts > 0

    def failovers(self, low: float, high: float) -> int:
        """Return a random time in ms, between two multiples of the duration of a failover."""
        return self.between(low * self.failover_ms, high * self.failover_ms)

    def away(self, at_ms: int, for_ms: int) -> list[Fault]:
        """Return a fault that keeps records from a follower for `for_ms`; [] if no kind can. A slow
        start counts: a node that is down for some seconds is away for longer."""
        down_ms = for_ms - self.slow_ms
        kind = self._kind(
            lambda kind: (
                _drawing(kind).delays_follower and (down_ms >= LEAST_MS or not kind.ends_process)
            )
        )
        if kind is None:
            return []
        lasts = down_ms if kind.ends_process else for_ms
        return [kind.draw_on_follower(self, PARTITION, at_ms, lasts)]

    def fails(self, on: str, at_ms: int, for_ms: int, *, power: float = 0.0) -> list[Fault]:
        """Return a fault by which a node does not work for `for_ms`; with the probability `power`,
        or twice as often if one disk may lose data, it also loses its unsynced data. An empty list
        if no kind can do that."""
        if self.can_cut_power and self.chance(self.power_factor * power):
            return [self.power_cut(on, at_ms, for_ms)]
        kind = self._kind(lambda kind: _drawing(kind).fails_leader)
        return [] if kind is None else [kind.draw_on(self, on, at_ms, for_ms)]

    def power_cut(self, on: str, at_ms: int, for_ms: int) -> Fault:
        """Return a power cut that keeps none, half or a random part of the unsynced bytes."""
        self._power_cuts -= 1
        keep = self.weighted(((0, 4), (50, 1), (None, 1)))
        return PowerCut(on=on, at_ms=at_ms, for_ms=for_ms, keep_percent=keep)

    def link(self, on: str, at_ms: int, for_ms: int) -> list[Fault]:
        """Return a fault on the links of a node; an empty list if links can take none."""
        on_links = [kind for kind in self.kinds if issubclass(KINDS[kind], LinkFault)]
        kinds = [kind for kind in on_links if _drawing(KINDS[kind]).targets]
        if not kinds:
            return []
        return [KINDS[self.rng.choice(kinds)].draw_on(self, on, at_ms, for_ms)]

    def _swarm(self, kinds: Sequence[str]) -> tuple[str, ...]:
        """Return the kinds of this storm, in the order of the registry."""
        left, wanted = list(kinds), self.weighted(_SWARMS)
        chosen: set[str] = set()
        while left and len(chosen) < wanted:
            kind = self.weighted([(kind, _WEIGHTS.get(kind, 1.0)) for kind in left])
            left.remove(kind)
            chosen.add(kind)
        return tuple(kind for kind in kinds if kind in chosen)

    def _kind(self, fits: Callable[[type[FaultKind]], object]) -> type[FaultKind] | None:
        """Draw a kind of fault that fits, of this storm's kinds if possible."""
        for among in (self.kinds, self._usable):
            fit = [(KINDS[k], _WEIGHTS.get(k, 1.0)) for k in among if fits(KINDS[k])]
            if fit:
                return self.weighted(fit)
        return None


def _usable(kind: str, disks: Disks) -> bool:
    """Return whether storms may have a kind at any place; power cuts have places of their own."""
    drawn = isinstance(KINDS[kind].drawing, Drawing) and kind != POWER_CUT
    return drawn and (not KINDS[kind].loss or disks == "any")


def _drawing(kind: type[FaultKind]) -> Drawing:
    assert isinstance(kind.drawing, Drawing), kind.drawing
    return kind.drawing


Family = Callable[[StormDice], list[Fault]]


def stale_takes_over(dice: StormDice) -> list[Fault]:
    """Draw a storm in which one follower, or all of them, fall behind. They come back at about the
    time when the up-to-date nodes fail; of these the leader stays away longest."""
    began = dice.between(800, 1800)
    fails = began + dice.failovers(0.25, 0.9)
    back = fails + dice.failovers(-0.05, 0.25)
    everybody = dice.chance(0.25 / dice.power_factor)
    found = []
    for number in range(dice.copies - 1 if everybody else 1):
        at = began + 100 * number
        found += dice.away(at, back - at)
    if not everybody:
        found += dice.fails(ANOTHER, fails, dice.failovers(0.05, 0.35), power=0.4)
    away_ms = dice.failovers(1.0, 1.5) + dice.slow_ms
    found += dice.fails(LEADER, fails + dice.between(0, 50), away_ms, power=0.15)
    return found


def successor_fails(dice: StormDice) -> list[Fault]:
    """Draw a storm in which the leader fails, and before that is noticed, or while the next one
    takes over, followers fail too. All are away for longer than a failover."""
    at = dice.between(1000, 2500)
    found = dice.fails(LEADER, at, dice.failovers(1.1, 1.7), power=0.1)
    for _ in range(max(1, (dice.copies - 1) // 2)):
        at += dice.failovers(0.02, 0.35)
        found += dice.fails(FOLLOWER, at, dice.failovers(0.5, 1.1), power=0.1)
    return found


def failures_in_a_row(dice: StormDice) -> list[Fault]:
    """Draw a storm in which two or three nodes fail one after the other around a failover, the
    leader mostly first. The next one fails while it takes over, or before it is elected."""
    at = dice.between(1000, 2000)
    found: list[Fault] = []
    for number in range(dice.weighted(((2, 3), (3, 1)))):
        on = dice.weighted(((LEADER, 3), (FOLLOWER, 1 if not number else 4)))
        lasts = dice.failovers(0.8, 1.6) if not number else dice.failovers(0.4, 1.3)
        found += dice.fails(on, at, lasts, power=0.15)
        at += dice.failovers(0.03, 0.7)
    return found


def leader_cut_off(dice: StormDice) -> list[Fault]:
    """Draw a storm in which the leader is cut off from the others for longer than a failover, with
    or without its clients; sometimes a node fails around the time of the heal. The leader of a
    group may also be back when the next one has hardly begun: it goes on delivering meanwhile."""
    at = dice.between(1000, 2500)
    lasts = dice.failovers(0.7 if dice.system.has_members else 1.1, 1.7)
    if dice.cut_off is None:
        return dice.fails(LEADER, at, lasts)
    found: list[Fault] = [dice.cut_off.draw_on(dice, LEADER, at, lasts)]
    if dice.chance(0.3):
        on = dice.weighted(((LEADER, 1), (FOLLOWER, 1)))
        near = at + lasts + dice.failovers(-0.3, 0.1)
        found += dice.fails(on, near, dice.failovers(0.2, 0.8), power=0.2)
    return found


def power_lost(dice: StormDice) -> list[Fault]:
    """Draw a storm in which many nodes, or one, lose power at once and are back soon."""
    at = dice.between(3000, 5000)
    on = LEADER
    if dice.disks == "any":
        on = dice.weighted((("all", 2), ("majority", 2), ("minority", 0.5), (LEADER, 0.5)))
    if not dice.can_cut_power:
        return dice.fails("majority", at, dice.failovers(0.05, 0.3))
    found = [dice.power_cut(on, at, dice.failovers(0.05, 0.3))]
    # A majority is enough to lose what nobody else has; of one disk the others have a copy.
    if dice.chance(0.2 if on in ("all", "majority") else 0.7):
        found = [*dice.away(at - dice.failovers(0.2, 0.3), dice.failovers(0.2, 0.6)), *found]
    return found


def links_then_failover(dice: StormDice) -> list[Fault]:
    """Draw a storm in which links of leader or follower are faulty while the leader fails."""
    at, lasts = dice.between(800, 1800), dice.failovers(0.6, 1.3)
    found = dice.link(dice.weighted(((LEADER, 1), (FOLLOWER, 2))), at, lasts)
    fails = at + dice.between(0.3 * lasts, 0.9 * lasts)
    return found + dice.fails(LEADER, fails, dice.failovers(0.8, 1.4), power=0.2)


def disk_damaged(dice: StormDice) -> list[Fault]:
    """Draw a storm in which the disk of one node is damaged, once or twice. After each time that it
    is back the leader fails, so that it may take over, or must tell what it has left."""
    at = dice.between(1500, 3000)
    found: list[Fault] = []
    for _ in range(dice.weighted(((1, 2), (2, 1)))):
        kind, lasts = KINDS[dice.rng.choice(dice.damages)], dice.failovers(0.05, 0.3)
        found.append(kind.draw_on(dice, FOLLOWER, at, lasts))
        at += lasts + dice.system.restart_ms + dice.failovers(0, 0.3)
        found += dice.fails(LEADER, at, dice.failovers(0.5, 1.2))
        at += dice.failovers(1.0, 1.4)
    return found


def plain_storm(dice: StormDice) -> list[Fault]:
    """Draw a storm as `floodmark run` does."""
    duration_ms = PLAIN_MS + dice.failovers(0.5, 1.0)
    kinds = (*dice.kinds, *([POWER_CUT] if dice.disks == "any" and dice.can_cut_power else []))
    workload = replace(dice.workload, duration_ms=duration_ms)
    known = (dice.cluster, workload, kinds, dice.seed, dice.links)
    return list(draw(*known, maps=dice.maps, restart_ms=dice.system.restart_ms))


FAMILIES: Final[dict[str, tuple[Family, float]]] = {
    "stale-takes-over": (stale_takes_over, 36),
    "successor-fails": (successor_fails, 18),
    "failures-in-a-row": (failures_in_a_row, 12),
    "leader-cut-off": (leader_cut_off, 12),
    "power-lost": (power_lost, 12),
    "links-then-failover": (links_then_failover, 4),
    "plain": (plain_storm, 6),
    "disk-damaged": (disk_damaged, 60),
}
"""The families by name, with their weights. A seed draws by place and weight."""
_POWER_LOST_BY_DISKS: Final = {"any": 2.0, "one": 1.0, "none": 0.4}
"""Factors of the weight of lost power: without power cuts it is little more than kills."""
_STALE_BY_DISKS: Final = {"any": 1.0, "one": 2.0, "none": 1.0}
"""Factors of the weight of stale followers: what one disk loses, they must not have."""
_CUT_OFF_WITH_MEMBERS: Final = 5.0
"""The factor of the weight of a leader that is cut off, for groups: their leader delivers alone."""


def draw_faults(storm: StormDice) -> tuple[str, tuple[Fault, ...]]:
    """Draw the faults of a storm. Return the name of its family, and the faults in the order of
    time."""
    disks: Disks = storm.disks if storm.can_cut_power else "none"
    weights = {name: weight for name, (_, weight) in FAMILIES.items()}
    weights["power-lost"] *= _POWER_LOST_BY_DISKS[disks]
    weights["stale-takes-over"] *= _STALE_BY_DISKS[disks]
    weights["leader-cut-off"] *= _CUT_OFF_WITH_MEMBERS if storm.system.has_members else 1
    weights["disk-damaged"] *= bool(storm.damages)
    name = storm.weighted(tuple(weights.items()))
    family, _ = FAMILIES[name]
    found = family(storm) or plain_storm(storm)
    late_ms = max(0, -min((fault.at_ms or 0 for fault in found), default=0))
    timed = [_timed(fault, late_ms) for fault in found]
    return name, tuple(sorted(timed, key=lambda fault: fault.at_ms or 0))


def _timed(fault: Fault, late_ms: int) -> Fault:
    """Return a fault later by `late_ms`, with a length of at least `LEAST_MS`. If a failover is
    very long or short, a computed time may lie before the storm, or an end before its beginning."""
    at_ms = None if fault.at_ms is None else fault.at_ms + late_ms
    for_ms = None if fault.for_ms is None else max(LEAST_MS, fault.for_ms)
    return replace(fault, at_ms=at_ms, for_ms=for_ms)
