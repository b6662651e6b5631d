"""A blind search for whatever the sources of this process break."""

from __future__ import annotations

import time

from msgspec.structs import replace

from harness.search.attempt import Attempt, attempt
from harness.search.escalate import judge_with_escalations
from harness.search.generator import GENERATOR_VERSION
from harness.search.known_bugs import Entry, SearchTarget, drawn_schedule
from nemesis.formats.schedule import Schedule
from tests.support.unplanted.replacements import unplanted_bugs


def blind_search(code: str, seed: int, seconds: float, before: Entry | None) -> Entry:
    """Draw schedules until a run breaks a property, or `seconds` of processor time are used up. An
    earlier search (`before`) is continued; `target.breaks` of the result is what the run broke."""
    bug = next(bug for bug in unplanted_bugs() if bug.code == code)
    target = SearchTarget(
        code=code, name=bug.name, source=bug.file, protocol=bug.protocol, breaks=""
    )
    number, spent_s, others = (
        (before.schedules, before.seconds, before.others) if before is not None else (0, 0.0, 0)
    )
    began_s = time.process_time() - spent_s
    found: tuple[Schedule, Attempt] | None = None
    while found is None and time.process_time() - began_s < seconds:
        first = drawn_schedule(target, seed, number)
        number += 1
        judged = judge_with_escalations(first, attempt)
        found = next(((one, outcome) for one, outcome in judged if outcome.failed), None)
    entry = Entry(
        target=target,
        seed=seed,
        found=found is not None,
        schedules=number,
        seconds=round(time.process_time() - began_s, 1),
        others=others,
        generator_version=GENERATOR_VERSION,
    )
    if found is None:
        return entry
    schedule, outcome = found
    return replace(
        entry,
        target=replace(target, breaks=outcome.property),
        bucket=outcome.bucket,
        sentence=outcome.sentence,
        faults_drawn=len(schedule.faults),
        schedule=schedule,
    )
