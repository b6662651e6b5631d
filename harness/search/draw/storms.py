"""The storms of a search on real processes. Pure: a schedule depends on seed and number only."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from harness.search.draw import changes, staying
from harness.search.draw.families import StormDice, draw_faults
from harness.systems.interface import System
from nemesis.draw import at_groups, expand
from nemesis.faults import KINDS, aliases, kinds_on
from nemesis.formats.schedule import Cluster, Expectation, Fault, Schedule, Workload, check
from nemesis.links.abilities import HUB
from nemesis.strace import SYSCALL
from nemesis.wall_clocks import KINDS_OF_CLOCKS
from node.formats.errors import UsageError

if TYPE_CHECKING:
    from harness.search.worlds.real import StormSubject

STORMS_PER_SEED: Final = 100_000
USUAL: Final = Workload(clients=5, consumers=1, rate=10.0, batch=1, payload_bytes=64)
"""Few clients: a search makes many storms on few cores."""
_PARTITIONS: Final = (1, 1, 3)
_TAIL: Final = 0.25
"""The time for which a storm continues after its last fault, in failovers."""
_BEFORE_MS: Final = 1000
_STAYING: Final = 0.05
"""The share of the storms in which a minority fails for good."""


class DrawnStorm(msgspec.Struct, frozen=True, kw_only=True):
    """The storm that was drawn for a number: its schedule, and the family that it belongs to."""

    family: str
    schedule: Schedule


class StormGenerator:
    """A generator of the storms of one seed."""

    def __init__(self, subject: StormSubject, system: System, seed: int) -> None:
        """`system` is the subject's, with settings. Raises UsageError for impossible kinds."""
        self._system = system
        self._seed = seed
        self._disks = subject.disks
        self._consumers = subject.consumers
        links = system.link_form(subject.links or None)
        self._links = system.link_abilities(links)
        possible = self._possible(subject.kinds)
        self._kinds = tuple(kind for kind in possible if kind not in changes.CHANGE_KINDS)
        self._offered = tuple(kind for kind in possible if kind in changes.CHANGE_KINDS)

    def draw(self, number: int) -> DrawnStorm:
        seed = self._seed * STORMS_PER_SEED + number
        rng = random.Random(f"storm search/{self._seed}/{number}")
        system = self._system
        partitions = rng.choice(_PARTITIONS)
        cluster = system.complete(Cluster(partitions=partitions))
        workload = system.workload(replace(USUAL, seed=seed, consumers=self._consumers))
        dice = StormDice(cluster, workload, rng, self._links or HUB, system)
        rested = self._staying(Schedule(cluster=cluster, workload=workload), number)
        if rested is not None:
            return rested
        family, faults = self._changes(cluster, number)
        if family:
            cluster = changes.cluster_for(self._offered, cluster)
        else:
            dice.begin(self._kinds, self._disks, seed)
            family, faults = draw_faults(dice)
        if system.has_members:
            faults = at_groups(faults, f"{self._seed}/{number}")
        schedule = Schedule(
            name=f"{system.short_name}-{family}".lower(),
            cluster=cluster,
            workload=replace(workload, duration_ms=lasting_ms(faults, dice.failover_ms)),
            faults=faults,
            expectation=Expectation(),
            drawn=True,
        )
        check(schedule, source=f"storm {number} of seed {self._seed}")
        return DrawnStorm(family=family, schedule=schedule)

    def _staying(self, plain: Schedule, number: int) -> DrawnStorm | None:
        """Draw a storm with failures that stay, for brokers whose traces show who must go on, by a
        generator of its own; None for none."""
        system = self._system
        rng = random.Random(f"storm search/staying/{self._seed}/{number}")
        kinds = [kind for kind in staying.FOR_GOOD if kind in self._kinds]
        if not (system.simulated and kinds) or rng.random() >= _STAYING:
            return None
        cluster = staying.fit(rng, plain.cluster)
        recovery_ms = system.limits(cluster).recovery_ms
        storm = staying.stays(rng, replace(plain, cluster=cluster), recovery_ms, kinds)
        name = f"{system.short_name}-stays".lower()
        return DrawnStorm(family="stays", schedule=replace(storm, name=name, drawn=True))

    def _changes(self, cluster: Cluster, number: int) -> tuple[str, tuple[Fault, ...]]:
        """Draw a storm with changes of the cluster, by a generator of its own; "" for none."""
        system = self._system
        rng = random.Random(f"storm search/changes/{self._seed}/{number}")
        share = changes.SHARE_WITH_MEMBERS if system.has_members else changes.SHARE
        if not self._offered or (self._kinds and rng.random() >= share):
            return "", ()
        cluster = changes.cluster_for(self._offered, cluster)
        dice = changes.ChangeDice(cluster, USUAL, rng, self._links or HUB, system)
        return changes.draw_changes(dice, self._offered, self._kinds)

    def _possible(self, wanted: tuple[str, ...]) -> tuple[str, ...]:
        """Return the kinds to draw from: all that were named, of an alias the possible ones."""
        system, groups = self._system, aliases()
        named = [kind for kind in wanted if kind not in groups]
        system.check_kinds(tuple(named))
        # Rare kinds are drawn only if they are named: few systems promise to survive them.
        rare = {*KINDS_OF_CLOCKS, SYSCALL}
        usual = {k for k in system.faults if not KINDS[k].on_disks and k not in rare}
        usual -= {*changes.BEYOND}
        by_name = {*wanted} & {*changes.CHANGE_KINDS}
        others = [kind for kind in wanted if kind not in by_name]
        chosen = set(expand(others, Cluster())) | by_name if wanted else usual
        on_links = set(kinds_on(self._links))
        found = tuple(kind for kind in system.faults if kind in chosen and kind in on_links)
        if lost := [kind for kind in named if kind not in found]:
            raise UsageError(
                f"--faults: {system.name} cannot take '{lost[0]}' on links of this form; "
                "choose other --links, or leave it out"
            )
        if not found:
            raise UsageError(
                f"{system.name} can take none of these faults on links of this form; "
                "choose other --faults or --links"
            )
        return found


def lasting_ms(faults: tuple[Fault, ...], failover_ms: int) -> int:
    """Return how many ms a storm must last for all its faults to end within it."""
    ends = [(fault.at_ms or 0) + (fault.for_ms or 0) for fault in faults]
    return max(ends, default=_BEFORE_MS) + round(_TAIL * failover_ms)
