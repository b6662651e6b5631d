"""The pieces of a night that happen in simulated worlds: each is a job in, a row out.

A job says everything, so that a worker's process can do it, and so that doing it again gives the
same. Nothing here searches, replays or judges by itself: that is `harness.search` and the replay.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from harness.formats.nightly_journal import AnyRow, Hunted, Replayed, Searched, Twice
from harness.nightly import corpus
from harness.runs.replay import ReplayRequest, is_met, replay, requested_schedule
from harness.search import known_bugs
from harness.search.attempt import Attempt
from harness.search.campaign import Budget, Campaign, search_alone
from harness.search.engines import ENGINES, Subject
from harness.sim.run import simulate
from nemesis.formats.schedule import Schedule
from node.formats.errors import FloodmarkError

FAILED: Final = "could not be run"


class Job(msgspec.Struct, frozen=True, kw_only=True, tag_field="job"):
    """What all jobs have: the key of the piece, in the journal."""

    key: str


class SearchJob(Job, frozen=True, tag="search"):
    """Search a protocol that is expected to hold, for so long; known buckets are not shrunk. What
    is found is saved in `store`, the first `pages` findings with a page."""

    protocol: str
    engine: str
    seed: int
    budget: Budget
    shrink_tries: int
    store: str
    pages: int = 0
    known: tuple[str, ...] = ()


class HuntJob(Job, frozen=True, tag="museum"):
    """Look for one target of the museum, at most so many seconds of a core."""

    code: str
    seed: int
    seconds: float


class TwiceJob(Job, frozen=True, tag="twice"):
    """Draw so many schedules and run each; two processes do the same."""

    protocol: str
    seed: int
    runs: int


class ReplayJob(Job, frozen=True, tag="replay"):
    """Replay a saved schedule."""

    file: str


AnyJob = SearchJob | HuntJob | TwiceJob | ReplayJob


class Digests(msgspec.Struct, frozen=True, kw_only=True):
    """What one of the two processes of a `TwiceJob` saw: a digest a schedule."""

    schedules: tuple[Schedule, ...]
    digests: tuple[str, ...]


def do(job: AnyJob) -> AnyRow | Digests:
    """Carry out a job. Raises FloodmarkError when it makes no sense."""
    match job:
        case SearchJob():
            return _search(job)
        case HuntJob():
            return _hunt(job)
        case TwiceJob():
            return _digests(job)
        case ReplayJob():
            return _replay(job)


def compared(job: TwiceJob, first: Digests, second: Digests) -> Twice:
    """What two processes make of it together."""
    pairs = zip(first.schedules, first.digests, second.digests, strict=True)
    return Twice(
        key=job.key,
        protocol=job.protocol,
        seed=job.seed,
        runs=len(first.digests),
        differing=[schedule for schedule, one, other in pairs if one != other],
    )


def _search(job: SearchJob) -> Searched:
    wanted = Campaign(
        subject=Subject(job.protocol),
        engine=job.engine,
        seed=job.seed,
        budget=job.budget,
        shrink_tries=job.shrink_tries,
        known=job.known,
        internal=True,
    )
    wanted.check()
    tally = search_alone(wanted)
    problems = tally.problems[:10]
    kept = [
        corpus.keep(finding, Path(job.store), problems.append, with_page=number < job.pages)
        for number, finding in enumerate(tally.findings)
    ]
    return Searched(
        key=job.key,
        protocol=job.protocol,
        engine=job.engine,
        seed=job.seed,
        schedules=tally.schedules,
        virtual_us=tally.virtual_us,
        events=tally.events,
        failures=tally.failures,
        buckets=tally.buckets,
        fault_coverage=tally.fault_coverage,
        problems=problems,
        kept=kept,
    )


def _hunt(job: HuntJob) -> Hunted:
    target = next(e for e in known_bugs.search_targets() if e.code == job.code)
    entry = known_bugs.search(target, job.seed, job.seconds, shrink=False)
    return Hunted(
        key=job.key,
        code=target.code,
        name=target.name,
        protocol=target.protocol,
        breaks=target.breaks,
        found=entry.found,
        schedules=entry.schedules,
        core_s=entry.seconds,
    )


def _digests(job: TwiceJob) -> Digests:
    schedules: list[Schedule] = []
    digests: list[str] = []

    def judge(schedule: Schedule) -> Attempt:
        schedules.append(schedule)
        try:
            digests.append(simulate(schedule, seed=schedule.workload.seed, stop_at="never").digest)
        except FloodmarkError as error:
            digests.append(f"{FAILED}: {error}")
        return Attempt()

    ENGINES["random"](Subject(job.protocol), job.seed, judge, lambda: len(digests) >= job.runs)
    return Digests(schedules=tuple(schedules), digests=tuple(digests))


def _replay(job: ReplayJob) -> Replayed:
    request = ReplayRequest(file=Path(job.file), quiet=True)
    schedule = requested_schedule(request)
    outcomes = list(replay(request))
    return Replayed(
        key=job.key,
        file=job.file,
        protocol=schedule.cluster.protocol,
        bugs=schedule.cluster.bugs,
        faults=len(schedule.faults),
        found=corpus.named(Path(job.file), schedule),
        expectation=schedule.expectation,
        met=is_met(schedule.expectation, outcomes),
        verdict=outcomes[0].verdict,
        sentence=outcomes[0].sentence,
    )
