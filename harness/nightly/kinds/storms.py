"""The storms of a nightly run on real processes: the canary, our protocols, third-party systems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from checker.formats.verdict import Verdict
from harness.formats.journal import Lost, add_to
from harness.formats.nightly_journal import AnyRow, Ran, Skipped
from harness.formats.nightly_run import Canary, NightlyRun, Storms, SystemStorms
from harness.nightly import plan
from harness.nightly.counting import Counting, real_class
from harness.nightly.night import Kind
from harness.runs.options import to_schedule
from harness.runs.requests import RunRequest
from harness.search.catalogue.known_bugs import broken_by, correct_protocols
from harness.search.draw.storms import StormGenerator
from harness.search.jobs import Job
from nemesis.faults import Isolate, aliases
from nemesis.formats.schedule import Cluster, Schedule, Workload
from node.core import protocol as protocols
from node.formats.errors import UsageError

MOST_LOSSES_OF_A_CELL: Final = 2
MEMBERS: Final = 3
"""Members of the group of a storm with an odd seed."""
CANARY_BUG: Final = "ack-before-isr"
_CANARY_RESULTS: Final = {Verdict.INVALID.value: "failed", Verdict.UNKNOWN.value: ""}
FAULT_SETS: Final = (
    *aliases(),
    "kill",
    "pause",
    "delay",
    "loss",
    "kill,pause,partition",
    "power-cut",
    "stall",
)
"""The sets of fault kinds of a nightly run's storms. In storms with power cuts brokers run with
flush=async, so protocols that promise durability only with flush=sync get no such storms."""
Cell = tuple[str, str]
"""A protocol and a set of fault kinds."""


class CanaryStorm(Kind):
    """A storm that must fail, before all else."""

    name, real = plan.CANARY, True

    def jobs(self) -> list[Job]:
        if self.name in self.night.journal.done():
            return []
        return [self.night.real(self.name, canary(), self.name)]

    @staticmethod
    def count(row: Ran, to: Counting) -> None:
        to.nightly.canary = Canary(
            result=_CANARY_RESULTS.get(row.verdict, "missed"),
            bug=", ".join(row.bugs),
            sentence=row.sentence,
            seconds=row.seconds,
        )


def canary() -> Schedule:
    """Return a storm that must fail: a bug acknowledges too soon, then leaders are isolated."""
    faults = tuple(
        Isolate(on=f"leader:log-{number}", at_ms=1500 + 3500 * number, for_ms=2500)
        for number in range(2)
    )
    return Schedule(
        name="canary",
        cluster=Cluster(partitions=2, bugs=(CANARY_BUG,)),
        workload=Workload(seed=1, clients=4, consumers=2, duration_ms=8500),
        faults=faults,
    )


class OwnStorms(Kind):
    """Storms on the protocols: each is of the cell with the fewest runs in all nightly runs."""

    name, real = "storm", True

    def jobs(self) -> list[Job]:
        night = self.night
        while (cell := least_hit(night.rows(self.name), night.past)) is not None:
            protocol, kinds = cell
            seed = night.seed + sum(not isinstance(row, Skipped) for row in night.rows(self.name))
            flush = "async" if "power-cut" in kinds else None
            request = RunRequest(
                protocol=protocol,
                faults=kinds,
                seed=seed,
                flush=flush,
                time_limit=night.request.storm_s,
                members=MEMBERS if seed % 2 else None,
            )
            try:
                schedule = to_schedule(request)
            except UsageError as error:
                night.skip(f"{self.name}/{protocol}/{kinds}", error)
                continue
            if not night.fits(schedule):
                return []
            key, name = "/".join((self.name, *cell, str(seed))), f"{protocol}-{kinds}"
            return [night.real(key, schedule, name.replace(",", "-"), kinds=kinds)]
        return []

    @staticmethod
    def count(row: Ran, to: Counting) -> None:
        to.totals.storms += 1
        cell = (row.protocol, row.kinds)
        known = next((s for s in to.nightly.storms if (s.protocol, s.kinds) == cell), None)
        if known is None:
            known = Storms(protocol=row.protocol, kinds=row.kinds)
            to.nightly.storms.append(known)
        known.runs += 1
        to.real_run(row)


def least_hit(rows: Iterable[AnyRow], past: Iterable[NightlyRun]) -> Cell | None:
    """Return the cell with the fewest runs, in `past` nightly runs and by the rows of this one, of
    those that start here; None if none does. Among equals, protocols that should hold come first,
    then the order of the registry."""
    begun: Counter[Cell] = Counter()
    lost: Counter[Cell] = Counter()
    for row in rows:
        _, protocol, kinds, *_ = (*row.key.split("/"), "", "")
        begun[protocol, kinds] += not isinstance(row, Skipped)
        lost[protocol, kinds] += MOST_LOSSES_OF_A_CELL * isinstance(row, Skipped)
        lost[protocol, kinds] += isinstance(row, Lost)
    for storms in (storms for nightly in past for storms in nightly.storms):
        begun[storms.protocol, storms.kinds] += storms.runs
    cells = (cell for cell in _cells() if lost[cell] < MOST_LOSSES_OF_A_CELL)
    return min(cells, key=lambda cell: begun[cell], default=None)


def _cells() -> list[Cell]:
    others = [p.name for p in protocols.REGISTRY.values() if broken_by(p)]
    return [
        (name, kinds)
        for group in (correct_protocols(), others)
        for kinds in FAULT_SETS
        for name in group
        if not ("power-cut" in kinds and protocols.protocol(name).clean_only)
    ]


class ThirdPartyStorms(Kind):
    """Storms on third-party systems: the next is of the one with the fewest, and each version gets
    the same storms."""

    name, real = plan.SYSTEM, True

    def jobs(self) -> list[Job]:
        night = self.night
        begun = Counter(row.key.rpartition("/")[0] for row in night.rows(self.name))
        subject = min(night.systems, key=lambda one: begun[f"{self.name}/{one.identity}"])
        about = f"{self.name}/{subject.identity}"
        system = subject.find()
        storm = StormGenerator(subject, system, night.request.number).draw(begun[about])
        if not night.fits(storm.schedule):
            return []
        more = {"kinds": storm.family, "setup": subject}
        name = system.short_name.lower()
        return [night.real(f"{about}/{begun[about]}", storm.schedule, name, **more)]

    @staticmethod
    def count(row: Ran, to: Counting) -> None:
        known = next((one for one in to.nightly.systems if one.name == row.protocol), None)
        if known is None:
            known = SystemStorms(system=row.system, version=row.version, given=row.given)
            to.nightly.systems.append(known)
        known.runs += 1
        add_to(known.verdicts, row.verdict)
        if row.verdict == Verdict.INVALID:
            add_to(known.buckets, real_class(row).name)
        to.real_run(row)
