"""The plan of a nightly run: shares of time for kinds of work, seeds, and the next job. Pure.

The next job is of the share that has used the least time relative to its size. So a nightly run
that is stopped has done some of everything, and one that continues needs only its journal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from harness.formats.nightly_journal import Ran
from harness.formats.nightly_run import NightlyRun
from harness.formats.options import settings_of
from harness.nightly.requests import NightlyRequest
from harness.search.catalogue.known_bugs import broken_by, correct_protocols, search_targets
from harness.search.worlds.real import StormSubject
from harness.systems import registry
from nemesis.faults import Isolate, aliases
from nemesis.formats.schedule import Cluster, Schedule, Workload
from node.core import protocol as protocols
from node.formats.errors import UsageError

SHARES: Final = {"search": 50, "known-bug": 15, "storm": 22, "replay": 8, "determinism": 5}
"""Percent of the budget. Time of a share without jobs goes to the others."""
SYSTEM: Final = "system"
"""The share of storms on third-party systems, if some are requested."""
ROW: Final = "row"
"""The share of `harness/systems/rows.json`, if it is requested."""
SEEDS_PER_RUN: Final = 1_000_000
"""The number of seeds that a nightly run owns, from its number times this many on."""
CANARY_BUG: Final = "ack-before-isr"
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


class PlannedStorm(msgspec.Struct, frozen=True, kw_only=True):
    """A real storm to draw: protocol and set of fault kinds (a cell of the matrix), and seed."""

    protocol: str
    kinds: str
    seed: int

    @property
    def key(self) -> str:
        """The key of the job in the journal."""
        return f"{self.cell}/{self.seed}"

    @property
    def cell(self) -> str:
        """The first part of the key, which names protocol and fault kinds."""
        return f"storm/{self.protocol}/{self.kinds}"


def fitted(request: NightlyRequest) -> NightlyRequest:
    """Return a request whose jobs are so short that every share gets one in a short run."""
    part_s = request.budget_s / 100
    return msgspec.structs.replace(
        request,
        job_s=min(request.job_s, max(2.0, 2 * part_s)),
        known_bug_s=min(request.known_bug_s, max(3.0, 3 * part_s)),
    )


def shares(systems_share: int, rows_share: int = 0) -> dict[str, float]:
    """Return the percentage of the budget for each kind of work, if storms on third-party systems
    get `systems_share` percent, and the cases of `rows.json` about such systems `rows_share`."""
    asked = {SYSTEM: float(systems_share), ROW: float(rows_share)}
    left = (100 - systems_share - rows_share) / 100
    usual = {name: percent * left for name, percent in SHARES.items()}
    return usual | {name: percent for name, percent in asked.items() if percent}


def next_share(
    spent: Mapping[str, float], idle: Iterable[str], percent: Mapping[str, float] = SHARES
) -> str | None:
    """Return the kind of work with the least time for its percentage; None if all are `idle`."""
    left = [name for name in percent if name not in set(idle)]
    return min(left, key=lambda name: spent.get(name, 0.0) / percent[name], default=None)


def systems_of(text: str | None) -> tuple[StormSubject, ...]:
    """Return the systems and settings that `--systems` names, as in
    `nats,nats+server=DIR/nats-server,redis+wait=2`. Raises UsageError."""
    found: list[StormSubject] = []
    if text is None:
        return ()
    for word in filter(None, (word.strip() for word in text.split(","))):
        name, *given = word.split("+")
        settings = settings_of(given)
        system = registry.find(name, settings)
        if system.simulated:
            raise UsageError(
                f"--systems names '{name}', but a nightly run tests it anyway; leave it out"
            )
        system.version()
        found.append(StormSubject(system=name, settings=settings))
    if not found:
        raise UsageError(
            "--systems is empty; name at least one system, such as nats, or leave the option out"
        )
    return tuple(found)


def numbered(prefix: str, done: set[str], wanted: int) -> list[int]:
    """Return the `wanted` smallest numbers without a job "prefix/number" in `done`."""
    found: list[int] = []
    number = 0
    while len(found) < wanted:
        if f"{prefix}/{number}" not in done:
            found.append(number)
        number += 1
    return found


def least_hit(
    past: Sequence[NightlyRun],
    this_run: Mapping[tuple[str, str], int],
    seed: int,
    unable: Collection[tuple[str, str]] = (),
) -> PlannedStorm | None:
    """Return the next storm, in the cell (protocol and fault kinds) with the fewest runs in all
    nightly runs. Among equals, protocols that are expected to hold come first, then the order of
    the registry. Cells in `unable` are left out; None if no cell is left."""
    counts = dict(this_run)
    for nightly in past:
        for cell in nightly.storms:
            key = (cell.protocol, cell.kinds)
            counts[key] = counts.get(key, 0) + cell.runs
    held = correct_protocols()
    others = [p.name for p in protocols.REGISTRY.values() if broken_by(p)]
    cells = [
        (name, kinds)
        for group in (held, others)
        for kinds in FAULT_SETS
        for name in group
        if not ("power-cut" in kinds and protocols.protocol(name).clean_only)
        and (name, kinds) not in unable
    ]
    if not cells:
        return None
    protocol, kinds = min(cells, key=lambda cell: counts.get(cell, 0))
    return PlannedStorm(protocol=protocol, kinds=kinds, seed=seed)


def expected() -> dict[str, dict[str, str]]:
    """Return what is known of each property ("holds", "violable"), by protocol."""
    return {p.name: dict(p.expected) for p in protocols.REGISTRY.values()}


def is_expected(protocol: str, properties: Iterable[str], bugs: Sequence[str] = ()) -> bool:
    """Return whether a failure is expected: a bug is on, or the protocol is known to break all the
    given properties; one that may lose data is still expected to recover."""
    known = expected().get(protocol, {})
    broken = list(properties)
    return bool(bugs) or (bool(broken) and all(known.get(p) == "violable" for p in broken))


def is_expected_of(run: Ran, properties: Iterable[str]) -> bool:
    """Return whether a failure of these properties is expected of a real run. A third-party system
    is expected to fail unless its configuration is safe, a row if it says so."""
    if run.why == ROW:
        return run.expectation.verdict == "invalid"
    if run.system:
        return not run.holds
    return is_expected(run.protocol, properties, run.bugs)


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


def known_bug_order(past: Sequence[NightlyRun], this_run: Iterable[str]) -> list[str]:
    """Return the codes of the known bugs, those with the fewest searches so far first."""
    counts: dict[str, int] = {}
    for code in [*(search.code for nightly in past for search in nightly.known_bugs), *this_run]:
        counts[code] = counts.get(code, 0) + 1
    return sorted((e.code for e in search_targets()), key=lambda code: counts.get(code, 0))
