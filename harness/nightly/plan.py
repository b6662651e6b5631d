"""The plan of a nightly run: the shares of kinds of work, and what is expected to fail. Pure.

The next job is of the kind of work that has used the least time relative to its share. So a nightly
run that is stopped has done some of everything, and one that continues needs only its journal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from harness.formats.nightly_journal import Ran
from harness.formats.options import settings_of
from harness.nightly.requests import NightlyRequest
from harness.search.worlds.real import StormSubject
from harness.systems import registry
from node.core import protocol as protocols
from node.formats.errors import UsageError

T = TypeVar("T")
SHARES: Final = {"search": 50, "known-bug": 15, "storm": 22, "replay": 8, "determinism": 5}
"""Percent of the budget. Time of a share without jobs goes to the others."""
SYSTEM: Final = "system"
"""The share of storms on third-party systems, if some are requested."""
ROW: Final = "row"
"""The share of `harness/systems/rows.json`, if it is requested."""
CANARY: Final = "canary"
SEEDS_PER_RUN: Final = 1_000_000
"""The number of seeds that a nightly run owns, from its number times this many on."""


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
    return {name: percent for name, percent in (usual | asked).items() if percent > 0}


def next_share(
    spent: Mapping[str, float], idle: Iterable[str], percent: Mapping[str, float] = SHARES
) -> str | None:
    """Return the kind of work with the least time for its percentage; None if all are `idle`."""
    left = [name for name in percent if name not in set(idle)]
    return min(left, key=lambda name: spent.get(name, 0.0) / percent[name], default=None)


def with_whole_budget(request: NightlyRequest) -> NightlyRequest:
    """Return a request whose `--systems` are those of `--systems-only`, with the whole budget that
    rows leave."""
    if request.systems_only is None:
        return request
    share = 100 - (request.rows_share if request.rows else 0)
    return msgspec.structs.replace(request, systems=request.systems_only, systems_share=share)


def systems_of(text: str | None, consumers: int = 1) -> tuple[StormSubject, ...]:
    """Return the systems and settings that `--systems` names, as in
    `nats,nats+server=DIR/nats-server,redis+wait=2`, each with `consumers`. Raises UsageError."""
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
        found.append(StormSubject(system=name, settings=settings, consumers=consumers))
    if not found:
        raise UsageError(
            "--systems is empty; name at least one system, such as nats, or leave the option out"
        )
    return tuple(found)


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


def rotated(items: Sequence[T], number: int) -> list[T]:
    """Return a list that begins at another item in each nightly run."""
    start = number % max(1, len(items))
    return [*items[start:], *items[:start]]
