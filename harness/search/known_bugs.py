"""Searches for known bugs: each is turned on in a protocol, found by blind search, and shrunk.

A target is a historical bug turned on in a correct protocol, or a promise that a faulty protocol
is known to break. For each, a blind search (the generator knows no bug) continues until a run
violates the very property that the target names. That run's schedule is shrunk and stabilised.
Everything follows from the target and a seed, so a search can be interrupted and continued
(`Entry` is what is kept).
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from checker.formats.anomalies import LIVENESS, LOG
from harness.search.attempt import Attempt, attempt
from harness.search.choice_source import RandomChoices
from harness.search.escalate import judge_with_escalations, rerun_without
from harness.search.generator import GENERATOR_VERSION, draw_schedule
from harness.search.shrink import Shrinking
from harness.search.stability import STABILITY_RUNS, stabilise, stability
from harness.sim.run import simulate
from nemesis.formats.schedule import Expectation, Schedule
from node.core import protocol as protocols
from node.core.bugs import KNOWN_BUGS

STORE_FOLDER: Final = "known-bugs"
"""The folder of a store that keeps what was found."""
SHRINK_TRIES: Final = 1_000
CHUNK: Final = 250
"""Schedules of a correct protocol that are tried in one job."""


class SearchTarget(msgspec.Struct, frozen=True, kw_only=True):
    """What a search looks for: a known bug, or a promise that a faulty protocol breaks.

    `breaks` is the property that must be violated. `code` is short and unique. `bug` is "" where
    the protocol itself is at fault. `faults` are kinds of faults of disks that schedules may have,
    `dimensions` those of the generator that are on in all of them.
    """

    code: str
    name: str
    source: str
    protocol: str
    breaks: str
    bug: str = ""
    faults: tuple[str, ...] = ()
    dimensions: tuple[str, ...] = ()

    @property
    def bugs(self) -> tuple[str, ...]:
        """The bugs to turn on."""
        return (self.bug,) if self.bug else ()

    @property
    def escalates(self) -> bool:
        """Whether losing records can show what is searched for."""
        return self.breaks not in (LIVENESS, LOG)

    def judge(self, schedule: Schedule) -> Attempt:
        """Run a schedule. Escalations lose records: they leave no cluster waiting, and no log or
        metadata wrong in itself. A search for these escalates no run."""
        outcome = attempt(schedule)
        if not self.escalates:
            return dataclasses.replace(outcome, internal_violation="")
        return outcome


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one search for one target. Times are seconds of one core.

    `others` counts failures of other properties, and of the property without the bug.
    `generator_version` is that of the drawn schedules. `stability` is in how many of 20 jittered
    runs the shrunk schedule still fails. `schedule` is the shrunk schedule, None if nothing was
    found.
    """

    target: SearchTarget
    seed: int
    found: bool
    schedules: int
    seconds: float
    generator_version: int = 0
    others: int = 0
    bucket: str = ""
    sentence: str = ""
    faults_drawn: int = 0
    faults: int = 0
    shrink_tries: int = 0
    shrink_seconds: float = 0.0
    stability: int = 0
    schedule: Schedule | None = None


class CorrectRuns(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a number of runs of a correct protocol. `generator_version` is that of the
    drawn schedules."""

    protocol: str
    generator_version: int
    seed: int
    first: int
    schedules: int
    seconds: float
    virtual_s: float
    events: int
    findings: tuple[tuple[str, Schedule], ...] = ()
    problems: tuple[str, ...] = ()


def search_targets() -> Iterator[SearchTarget]:
    """All subjects in the order of the catalogue: the bugs, then what faulty protocols break."""
    for target in KNOWN_BUGS:
        yield SearchTarget(
            code=target.code,
            name=target.name,
            source=target.seen_in,
            bug=target.name,
            protocol=target.protocol,
            breaks=target.breaks,
            faults=target.faults,
            dimensions=target.dimensions,
        )
    for protocol in protocols.REGISTRY.values():
        for number, broken in enumerate(broken_by(protocol), start=1):
            yield SearchTarget(
                code=f"{protocol.name}-{number}",
                name=protocol.name,
                source=protocol.citation,
                protocol=protocol.name,
                breaks=broken,
            )


def broken_by(protocol: protocols.Protocol) -> list[str]:
    """The properties that a protocol is known to break."""
    return [name for name, expected in protocol.expected if expected == "violable"]


def correct_protocols() -> list[str]:
    """The protocols that are expected to keep every promise."""
    return [p.name for p in protocols.REGISTRY.values() if not broken_by(p)]


def drawn_schedule(target: SearchTarget, seed: int, number: int) -> Schedule:
    """The `number`-th schedule of a search. All targets share them: none is drawn for a bug."""
    # The text of the seed is older than the names here: it must stay, or other schedules follow.
    rng = random.Random(f"museum/{seed}/{number}")
    choose = RandomChoices(rng)
    return draw_schedule(choose, target.protocol, target.bugs, target.faults, target.dimensions)


def reproduces(target: SearchTarget, schedule: Schedule) -> Attempt | None:
    """The whole run of a schedule if it violates the target's property because of the bug.

    With the bug turned off the property must hold: some protocols break it anyway.
    """
    outcome = attempt(schedule, stop_at="never", about=target.breaks)
    if target.breaks not in outcome.broken:
        return None
    if target.bug:
        cluster = replace(schedule.cluster, bugs=())
        without = attempt(replace(schedule, cluster=cluster), stop_at="never")
        if target.breaks in without.broken:
            return None
    return outcome


def unfinished(entry: Entry, seconds: float) -> bool:
    """Whether a search has found nothing, and may continue up to `seconds` in all."""
    outdated = entry.generator_version != GENERATOR_VERSION
    return not entry.found and (outdated or entry.seconds < seconds)


def continue_search(target: SearchTarget, seed: int, seconds: float, before: Entry | None) -> Entry:
    """`search` with positional arguments, as a job of a pool."""
    return search(target, seed, seconds, before=before)


def search(
    target: SearchTarget,
    seed: int,
    seconds: float,
    *,
    shrink: bool = True,
    before: Entry | None = None,
    schedules: int = 1 << 62,
) -> Entry:
    """Search for a target, for at most `seconds` of this core and `schedules`.

    A schedule counts once, with all its escalations. This search continues an earlier one
    (`before`), unless the generator has changed since. Without `shrink` the entry has the drawn
    schedule, and no stability.
    """
    continues = before is not None and before.generator_version == GENERATOR_VERSION
    number, spent_s, others = (
        (before.schedules, before.seconds, before.others) if continues and before else (0, 0.0, 0)
    )
    began_s = time.process_time() - spent_s
    while number < schedules and time.process_time() - began_s < seconds:
        first = drawn_schedule(target, seed, number)
        number += 1
        for schedule, quick in judge_with_escalations(
            first, target.judge, lambda other: _fails_otherwise(target, other)
        ):
            # Few runs fail; only those are run to their end.
            if not quick.failed:
                continue
            outcome = reproduces(target, schedule)
            if outcome is None:
                others += 1
                continue
            found = _entry(target, seed, number, time.process_time() - began_s, others)
            found = replace(
                found,
                found=True,
                bucket=outcome.bucket,
                sentence=outcome.sentence,
                faults_drawn=len(schedule.faults),
                faults=len(schedule.faults),
                schedule=schedule,
            )
            return _shrunk(found) if shrink else found
    return _entry(target, seed, number, time.process_time() - began_s, others)


def _fails_otherwise(target: SearchTarget, outcome: Attempt) -> bool:
    """Whether a run violates another property than that of the target, and may go on to that."""
    return target.escalates and outcome.failed and target.breaks not in outcome.broken


def _entry(target: SearchTarget, seed: int, schedules: int, seconds: float, others: int) -> Entry:
    return Entry(
        target=target,
        seed=seed,
        found=False,
        schedules=schedules,
        seconds=round(seconds, 1),
        others=others,
        generator_version=GENERATOR_VERSION,
    )


def _shrunk(found: Entry) -> Entry:
    """Shrink a finding, and measure its stability."""
    began_s = time.process_time()
    target, schedule = found.target, found.schedule
    assert schedule is not None

    def alike(candidate: Schedule, world: int | None = None) -> bool:
        if world not in (None, candidate.workload.seed):
            return target.breaks in attempt(candidate, world, stop_at="never").broken
        shown = reproduces(target, candidate)
        return shown is not None and shown.bucket == found.bucket

    shrinking = Shrinking(schedule, alike, max_tries=SHRINK_TRIES, rerun=rerun_without)
    smallest = shrinking.run()
    stable_runs = stability(smallest, alike)
    if stable_runs < STABILITY_RUNS:
        run = simulate(smallest, seed=smallest.workload.seed, stop_at="visible")
        smallest = stabilise(smallest, run.trace, run.info.phases.storm_us, alike)
        stable_runs = stability(smallest, alike)
    smallest = replace(
        smallest,
        name=f"{target.code}-{target.breaks}".lower(),
        expectation=Expectation(verdict="invalid", property=target.breaks),
    )
    return replace(
        found,
        sentence=attempt(smallest).sentence,
        faults=len(smallest.faults),
        shrink_tries=shrinking.tries,
        shrink_seconds=round(time.process_time() - began_s, 1),
        stability=stable_runs,
        schedule=smallest,
    )


def check_correct(protocol: str, seed: int, first: int, schedules: int = CHUNK) -> CorrectRuns:
    """Run schedules from number `first` on, on a protocol that should keep every promise.

    A violation inside the cluster is a finding too.
    """
    began_s = time.process_time()
    target = SearchTarget(code=protocol, name=protocol, source="", protocol=protocol, breaks="")
    findings, problems, virtual_us, events = [], [], 0, 0
    for number in range(first, first + schedules):
        schedule = drawn_schedule(target, seed, number)
        outcome = attempt(schedule)
        virtual_us += outcome.virtual_us
        events += outcome.events
        # Internal invariants are off where elections may be unclean, or disks may lose writes.
        if outcome.failed or outcome.internal_violation:
            findings.append(
                (outcome.bucket or f"internal violation: {outcome.internal_violation}", schedule)
            )
        if outcome.problem:
            problems.append(outcome.problem)
    return CorrectRuns(
        protocol=protocol,
        generator_version=GENERATOR_VERSION,
        seed=seed,
        first=first,
        schedules=schedules,
        seconds=round(time.process_time() - began_s, 1),
        virtual_s=round(virtual_us / 1e6, 1),
        events=events,
        findings=tuple(findings),
        problems=tuple(dict.fromkeys(problems)),
    )
