"""The jobs of a nightly run in simulated worlds: a job goes in, a row of the journal comes out.

A job is complete in itself, so that a worker process can do it, and so that the same job gives the
same result. The work itself is done by `harness.search` and `harness.replay.replay`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from harness.formats.nightly_journal import (
    AnyRow,
    DeterminismChecked,
    KnownBugSearched,
    Replayed,
    Searched,
)
from harness.nightly import corpus
from harness.replay.replay import is_met, replay, requested_schedule
from harness.runs.requests import ReplayRequest
from harness.search import known_bugs
from harness.search.attempt import Attempt
from harness.search.campaign import Budget, Campaign, search_alone
from harness.search.engines import Subject, random_engine
from harness.sim.run import simulate
from nemesis.formats.schedule import Schedule
from node.formats.errors import FloodmarkError

FAILED: Final = "could not be run"


class Job(msgspec.Struct, frozen=True, kw_only=True, tag_field="job"):
    """What all jobs have: `key` names the job in the journal."""

    key: str


class SearchJob(Job, frozen=True, tag="search"):
    """Search a protocol that is expected to hold, for so long; known buckets are not shrunk. What
    is found is saved in `store`, the first `pages` findings with a page."""

    protocol: str
    seed: int
    budget: Budget
    shrink_tries: int
    store: str
    pages: int = 0
    known: tuple[str, ...] = ()


class KnownBugJob(Job, frozen=True, tag="known-bug"):
    """Search for one known bug, for at most so many seconds of a core."""

    code: str
    seed: int
    seconds: float


class DeterminismJob(Job, frozen=True, tag="determinism"):
    """Draw so many schedules and run each. Two processes do the same job."""

    protocol: str
    seed: int
    runs: int


class ReplayJob(Job, frozen=True, tag="replay"):
    """Replay a saved schedule."""

    file: str


AnyJob = SearchJob | KnownBugJob | DeterminismJob | ReplayJob


class Digests(msgspec.Struct, frozen=True, kw_only=True):
    """What one of the two processes of a `DeterminismJob` saw: a digest a schedule."""

    schedules: tuple[Schedule, ...]
    digests: tuple[str, ...]


def do(job: AnyJob) -> AnyRow | Digests:
    """Carry out a job. Raises FloodmarkError when it is invalid."""
    match job:
        case SearchJob():
            return _search(job)
        case KnownBugJob():
            return _known_bug(job)
        case DeterminismJob():
            return _digests(job)
        case ReplayJob():
            return _replay(job)


def compared(job: DeterminismJob, first: Digests, second: Digests) -> DeterminismChecked:
    """The row of a determinism check, from the results of its two processes."""
    pairs = zip(first.schedules, first.digests, second.digests, strict=True)
    return DeterminismChecked(
        key=job.key,
        protocol=job.protocol,
        seed=job.seed,
        runs=len(first.digests),
        differing=[schedule for schedule, one, other in pairs if one != other],
    )


def _search(job: SearchJob) -> Searched:
    wanted = Campaign(
        subject=Subject(job.protocol),
        seed=job.seed,
        budget=job.budget,
        shrink_tries=job.shrink_tries,
        known=job.known,
        internal=True,
    )
    wanted.check()
    result = search_alone(wanted)
    problems = result.problems[:10]
    kept = [
        corpus.keep(finding, Path(job.store), problems.append, with_page=number < job.pages)
        for number, finding in enumerate(result.findings)
    ]
    return Searched(
        key=job.key,
        protocol=job.protocol,
        seed=job.seed,
        schedules=result.schedules,
        virtual_us=result.virtual_us,
        events=result.events,
        failures=result.failures,
        buckets=result.buckets,
        fault_coverage=result.fault_coverage,
        problems=problems,
        kept=kept,
    )


def _known_bug(job: KnownBugJob) -> KnownBugSearched:
    target = next(e for e in known_bugs.search_targets() if e.code == job.code)
    entry = known_bugs.search(target, job.seed, job.seconds, shrink=False)
    return KnownBugSearched(
        key=job.key,
        code=target.code,
        name=target.name,
        protocol=target.protocol,
        breaks=target.breaks,
        found=entry.found,
        schedules=entry.schedules,
        core_s=entry.seconds,
    )


def _digests(job: DeterminismJob) -> Digests:
    schedules: list[Schedule] = []
    digests: list[str] = []

    def judge(schedule: Schedule) -> Attempt:
        schedules.append(schedule)
        try:
            digests.append(simulate(schedule, seed=schedule.workload.seed, stop_at="never").digest)
        except FloodmarkError as error:
            digests.append(f"{FAILED}: {error}")
        return Attempt()

    random_engine(Subject(job.protocol), job.seed, judge, lambda: len(digests) >= job.runs)
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
