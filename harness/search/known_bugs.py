"""The museum: every known bug, found again from nothing, cut down, and shown.

A subject is a historical bug turned on in a correct protocol, or a promise that a faulty protocol
is known to break. For each, a blind search (`drawing.py` knows no bug) goes on until a run breaks
the very property that the bug is said to break; that run is shrunk and made steady. A bug that is
not found within the budget stays in the table as an open one. Everything follows from the subject
and a seed, so work can be interrupted and goes on where it stopped (`Entry` is what is kept).
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from harness.search.attempt import Attempt, attempt
from harness.search.choice_source import RandomChoices
from harness.search.escalate import judged
from harness.search.generator import GENERATOR_VERSION, draw_schedule
from harness.search.rerun import anew
from harness.search.shrink import Shrinking
from harness.search.stabilise import JITTERS, steadiness, steady
from harness.sim.run import simulate
from nemesis.formats.schedule import Expectation, Schedule
from node.core import protocol as protocols
from node.core.bugs import KNOWN_BUGS

STORE_FOLDER: Final = "known-bugs"
"""The folder of a store that keeps what was found."""
SHRINK_TRIES: Final = 1_000
CHUNK: Final = 250
"""Schedules of a correct protocol that are tried in one piece of work."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the museum: what is broken, under which protocol, and what it must break.

    `code` is short and unique; `bug` is "" where the protocol itself is at fault.
    """

    code: str
    name: str
    source: str
    protocol: str
    breaks: str
    bug: str = ""

    @property
    def bugs(self) -> tuple[str, ...]:
        """The bugs to turn on."""
        return (self.bug,) if self.bug else ()


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What one search for one exhibit came to. Times are seconds of one core.

    `others` counts failures that did not break the property named (or break it without the bug
    too). `drawing` is the generation of what drew the schedules. `steady` is in how many of 20
    moods of the network the shrunk schedule still fails. `schedule` is the shrunk schedule; None
    when nothing was found.
    """

    exhibit: Target
    seed: int
    found: bool
    schedules: int
    seconds: float
    drawing: int = 0
    others: int = 0
    bucket: str = ""
    sentence: str = ""
    faults_drawn: int = 0
    faults: int = 0
    shrink_tries: int = 0
    shrink_seconds: float = 0.0
    steady: int = 0
    schedule: Schedule | None = None


class Guarded(msgspec.Struct, frozen=True, kw_only=True):
    """What a stretch of schedules on a correct protocol came to: nothing, or `findings`."""

    protocol: str
    seed: int
    first: int
    schedules: int
    seconds: float
    virtual_s: float
    events: int
    findings: tuple[tuple[str, Schedule], ...] = ()
    problems: tuple[str, ...] = ()


def exhibits() -> Iterator[Target]:
    """All subjects in the order of the catalogue: the bugs, then what faulty protocols break."""
    for exhibit in KNOWN_BUGS:
        yield Target(
            code=exhibit.code,
            name=exhibit.name,
            source=exhibit.seen_in,
            bug=exhibit.name,
            protocol=exhibit.protocol,
            breaks=exhibit.breaks,
        )
    for protocol in protocols.REGISTRY.values():
        for number, broken in enumerate(broken_by(protocol), start=1):
            yield Target(
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


def drawn(exhibit: Target, seed: int, number: int) -> Schedule:
    """The `number`-th schedule of a search. All subjects share them: nothing is drawn for a bug."""
    rng = random.Random(f"museum/{seed}/{number}")
    return draw_schedule(RandomChoices(rng), exhibit.protocol, exhibit.bugs)


def shows(exhibit: Target, schedule: Schedule) -> Attempt | None:
    """The run of a schedule to its end if it breaks the property named, because of the bug.

    With the bug turned off it must hold: some protocols break the property anyway.
    """
    outcome = attempt(schedule, stop_at="never", about=exhibit.breaks)
    if exhibit.breaks not in outcome.broken:
        return None
    if exhibit.bug:
        cluster = replace(schedule.cluster, bugs=())
        without = attempt(replace(schedule, cluster=cluster), stop_at="never")
        if exhibit.breaks in without.broken:
            return None
    return outcome


def unfinished(entry: Entry, seconds: float) -> bool:
    """Whether a search has not found its exhibit, and may go on for `seconds` in all."""
    return not entry.found and (entry.drawing != GENERATOR_VERSION or entry.seconds < seconds)


def hunt_on(exhibit: Target, seed: int, seconds: float, before: Entry | None) -> Entry:
    """`hunt` on from `before`, as one piece of work."""
    return hunt(exhibit, seed, seconds, before=before)


def hunt(
    exhibit: Target,
    seed: int,
    seconds: float,
    *,
    shrink: bool = True,
    before: Entry | None = None,
    schedules: int = 1 << 62,
) -> Entry:
    """Search for an exhibit, at most `seconds` of this core and `schedules`; shrink what is found,
    if asked to. Each schedule counts once, with all that may follow from it (`pursue`).

    `before` is how far an earlier search came: this one goes on there, and its seconds count. Where
    what is drawn has changed since, it begins anew. Unshrunk, the entry's schedule is the one that
    was drawn, and nothing is known of its steadiness.
    """
    goes_on = before is not None and before.drawing == GENERATOR_VERSION
    number, spent_s, others = (
        (before.schedules, before.seconds, before.others) if goes_on and before else (0, 0.0, 0)
    )
    began_s = time.process_time() - spent_s
    while number < schedules and time.process_time() - began_s < seconds:
        first = drawn(exhibit, seed, number)
        number += 1
        for schedule, quick in judged(first, attempt, lambda other: _elsewhere(exhibit, other)):
            # Most runs show nothing; one that does is looked at to its end.
            if not quick.failed:
                continue
            outcome = shows(exhibit, schedule)
            if outcome is None:
                others += 1
                continue
            found = _entry(exhibit, seed, number, time.process_time() - began_s, others)
            found = replace(
                found,
                found=True,
                bucket=outcome.bucket,
                sentence=outcome.sentence,
                faults_drawn=len(schedule.faults),
                faults=len(schedule.faults),
                schedule=schedule,
            )
            return _reduced(found) if shrink else found
    return _entry(exhibit, seed, number, time.process_time() - began_s, others)


def _elsewhere(exhibit: Target, outcome: Attempt) -> bool:
    """Whether a run broke something, and not yet what is looked for."""
    return outcome.failed and exhibit.breaks not in outcome.broken


def _entry(exhibit: Target, seed: int, schedules: int, seconds: float, others: int) -> Entry:
    return Entry(
        exhibit=exhibit,
        seed=seed,
        found=False,
        schedules=schedules,
        seconds=round(seconds, 1),
        others=others,
        drawing=GENERATOR_VERSION,
    )


def _reduced(found: Entry) -> Entry:
    """Shrink a finding and say how steady it is."""
    began_s = time.process_time()
    exhibit, schedule = found.exhibit, found.schedule
    assert schedule is not None

    def alike(candidate: Schedule, world: int | None = None) -> bool:
        if world not in (None, candidate.workload.seed):
            return exhibit.breaks in attempt(candidate, world, stop_at="never").broken
        shown = shows(exhibit, candidate)
        return shown is not None and shown.bucket == found.bucket

    shrinking = Shrinking(schedule, alike, max_tries=SHRINK_TRIES, anew=anew)
    smallest = shrinking.run()
    sure = steadiness(smallest, alike)
    if sure < JITTERS:
        run = simulate(smallest, seed=smallest.workload.seed, stop_at="visible")
        smallest = steady(smallest, run.trace, run.info.phases.storm_us, alike)
        sure = steadiness(smallest, alike)
    smallest = replace(
        smallest,
        name=f"{exhibit.code}-{exhibit.breaks}".lower(),
        expectation=Expectation(verdict="invalid", property=exhibit.breaks),
    )
    return replace(
        found,
        sentence=attempt(smallest).sentence,
        faults=len(smallest.faults),
        shrink_tries=shrinking.tries,
        shrink_seconds=round(time.process_time() - began_s, 1),
        steady=sure,
        schedule=smallest,
    )


def guard(protocol: str, seed: int, first: int, schedules: int = CHUNK) -> Guarded:
    """Try schedules number `first` and on, on a protocol that should keep every promise.

    An invariant broken inside the cluster is a finding too, seen by clients or not.
    """
    began_s = time.process_time()
    subject = Target(code=protocol, name=protocol, source="", protocol=protocol, breaks="")
    findings, problems, virtual_us, events = [], [], 0, 0
    for number in range(first, first + schedules):
        schedule = drawn(subject, seed, number)
        outcome = attempt(schedule)
        virtual_us += outcome.virtual_us
        events += outcome.events
        # Where an unclean election is allowed, or disks may lie, inner invariants are off.
        if outcome.failed or outcome.precursor:
            findings.append((outcome.bucket or f"precursor: {outcome.precursor}", schedule))
        if outcome.problem:
            problems.append(outcome.problem)
    return Guarded(
        protocol=protocol,
        seed=seed,
        first=first,
        schedules=schedules,
        seconds=round(time.process_time() - began_s, 1),
        virtual_s=round(virtual_us / 1e6, 1),
        events=events,
        findings=tuple(findings),
        problems=tuple(dict.fromkeys(problems)),
    )
