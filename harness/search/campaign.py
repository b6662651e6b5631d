"""A search on all cores: workers draw and judge, the parent counts, keeps findings, and stops it.

Each worker is a process with a seed of its own made from the campaign's, so the n-th schedule of a
worker is the same in every campaign with that seed. The first failure of a bucket is shrunk where
it was found; later ones of the same bucket are only counted.
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec
from multiprocess import get_context

from harness.search.attempt import Attempt, attempt
from harness.search.engines import ENGINES, Subject
from harness.search.rerun import anew
from harness.search.shrink import Shrinking
from harness.sim.run import batched_collections
from nemesis.formats.schedule import Expectation, Schedule
from node.formats.errors import UsageError

REPORT_EVERY_S: Final = 0.5
JOIN_S: Final = 10.0
SEEDS_APART: Final = 1024
"""Seeds of workers of neighbouring campaigns do not meet."""
MAX_BUCKETS: Final = 100
"""Buckets a worker shrinks in one campaign; more say that the protocol is plainly broken."""
INNER: Final = "inner-invariant"
"""Stands for the property where only an invariant inside the cluster is broken."""
_COUNTED: Final = ("buckets", "strikes")
"""What workers count by name."""


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """When a campaign ends: after so many seconds or schedules (0: no such limit), or at the first
    finding."""

    seconds: float = 0.0
    schedules: int = 0
    until_failure: bool = False


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One failure, shrunk: how it was found and the smallest schedule that still shows it."""

    bucket: str
    property: str
    sentence: str
    schedule: Schedule
    smallest: Schedule
    schedules_before: int
    seconds_before: float
    shrink_tries: int


class Tally(msgspec.Struct, kw_only=True):
    """What a campaign has done so far. `coverage` counts the decision points met, `states` the
    distinct states of the cluster in the run that had most. `buckets` counts failures by bucket,
    `strikes` faults by `kind/role/phase`."""

    schedules: int = 0
    failures: int = 0
    virtual_us: int = 0
    events: int = 0
    coverage: int = 0
    states: int = 0
    seconds: float = 0.0
    findings: list[Finding] = []
    problems: list[str] = []
    buckets: dict[str, int] = {}
    strikes: dict[str, int] = {}

    @property
    def schedules_per_s(self) -> float:
        """Speed of the campaign, all workers together."""
        return self.schedules / self.seconds if self.seconds else 0.0


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """What is searched, how, and for how long. Failures of the buckets `known` are counted and not
    shrunk again. With `inner` an invariant broken inside the cluster is a failure too, whether a
    client, a trace or a log shows it or not."""

    subject: Subject
    engine: str = "random"
    seed: int = 0
    budget: Budget = Budget()
    cores: int = 1
    shrink_tries: int = 1500
    known: tuple[str, ...] = ()
    inner: bool = False

    def shares(self, parts: int) -> list[Campaign]:
        """The campaign as so many campaigns of one core, each with a seed of its own."""
        share, rest = divmod(self.budget.schedules, parts)
        return [
            msgspec.structs.replace(
                self,
                seed=self.seed * SEEDS_APART + number,
                cores=1,
                budget=msgspec.structs.replace(self.budget, schedules=share + (number < rest)),
            )
            for number in range(parts)
            if not self.budget.schedules or share + (number < rest)
        ]

    def check(self) -> None:
        """Raises UsageError for what cannot be searched."""
        if self.engine not in ENGINES:
            raise UsageError(f"unknown engine '{self.engine}' (known: {', '.join(ENGINES)})")
        if not (self.budget.seconds or self.budget.schedules or self.budget.until_failure):
            raise UsageError("a search needs an end: --seconds, --schedules or --until-failure")
        if not 1 <= self.cores <= 1024:
            raise UsageError("--cores must be 1..1024")


def run(campaign: Campaign, tell: Callable[[Tally], None] = lambda tally: None) -> Tally:
    """Search until the budget is used up; `tell` hears of it every half second.

    Raises UsageError for an impossible campaign. Workers never outlive this call.
    """
    campaign.check()
    context = get_context("spawn")
    stop, news = context.Event(), context.Queue()
    workers = [
        context.Process(target=_work, args=(campaign, number, stop, news), daemon=True)
        for number in range(campaign.cores)
    ]
    for worker in workers:
        worker.start()
    tally = Tally()
    try:
        _listen(campaign, tally, workers, news, tell)
    finally:
        stop.set()
        _end(workers, news, tally)
    return tally


def _listen(
    campaign: Campaign, tally: Tally, workers: list[Any], news: Any, tell: Callable[[Tally], None]
) -> None:
    """Take in what workers say until the campaign is over."""
    began_s = told_s = time.monotonic()
    budget = campaign.budget
    covered: set[str] = set()
    while any(worker.is_alive() for worker in workers):
        with contextlib.suppress(queue.Empty):
            _take(tally, covered, news.get(timeout=REPORT_EVERY_S))
        now_s = time.monotonic()
        tally.seconds = now_s - began_s
        if now_s - told_s >= REPORT_EVERY_S:
            told_s = now_s
            tell(tally)
        out_of_time = bool(budget.seconds) and tally.seconds >= budget.seconds
        enough = bool(budget.schedules) and tally.schedules >= budget.schedules
        if out_of_time or enough or (budget.until_failure and tally.findings):
            return


def _end(workers: list[Any], news: Any, tally: Tally) -> None:
    """Wait for the workers, taking in their last words; one that hangs is killed."""
    deadline_s = time.monotonic() + JOIN_S
    while any(w.is_alive() for w in workers) and time.monotonic() < deadline_s:
        try:
            _take(tally, set(), news.get(timeout=0.05))
        except queue.Empty:
            continue
    for worker in workers:
        if worker.is_alive():
            worker.kill()
        worker.join()


def _take(tally: Tally, covered: set[str], said: dict[str, Any]) -> None:
    tally.schedules += said["schedules"]
    tally.failures += said["failures"]
    tally.virtual_us += said["virtual_us"]
    tally.events += said["events"]
    covered |= set(said["coverage"])
    tally.coverage = max(tally.coverage, len(covered))
    tally.states = max(tally.states, said["states"])
    known = {finding.bucket for finding in tally.findings}
    for found in said["findings"]:
        finding = msgspec.json.decode(found, type=Finding)
        if finding.bucket not in known:
            tally.findings.append(finding)
    tally.problems += [p for p in said["problems"] if p not in tally.problems]
    for name in _COUNTED:
        _add(getattr(tally, name), said[name])


class _Worker:
    """One process of a campaign."""

    def __init__(self, campaign: Campaign, number: int | None, stop: Any, news: Any) -> None:
        self._campaign = campaign
        self._stop = stop
        self._news = news
        mine = [campaign] if number is None else campaign.shares(campaign.cores)[number:][:1]
        self._idle = not mine
        self._limit = (mine[0].budget.schedules if mine else 0) or 1 << 62
        self._seed = mine[0].seed if mine else 0
        self._done = 0
        self._began_s = self._said_s = time.monotonic()
        self._buckets = set(campaign.known)
        self._covered: set[str] = set()
        self._unsaid = _nothing()

    def work(self) -> None:
        """Search until told to stop, or the share of schedules is done."""
        if self._idle:
            return
        engine = ENGINES[self._campaign.engine]
        with batched_collections():
            engine(self._campaign.subject, self._seed, self._judge, self._enough)
        self._say()

    def _enough(self) -> bool:
        if time.monotonic() - self._said_s >= REPORT_EVERY_S:
            self._say()
        return self._done >= self._limit or self._stop.is_set()

    def _judge(self, schedule: Schedule) -> Attempt:
        outcome = attempt(schedule)
        self._done += 1
        unsaid = self._unsaid
        unsaid["schedules"] += 1
        unsaid["virtual_us"] += outcome.virtual_us
        unsaid["events"] += outcome.events
        unsaid["coverage"] += sorted(outcome.coverage - self._covered)
        self._covered |= outcome.coverage
        unsaid["states"] = max(unsaid["states"], outcome.states)
        if outcome.problem and len(unsaid["problems"]) < MAX_BUCKETS:
            unsaid["problems"].append(outcome.problem)
        unsaid["strikes"].update(outcome.strikes)
        if bucket := self._bucket(outcome):
            unsaid["failures"] += 1
            unsaid["buckets"][bucket] += 1
            if bucket not in self._buckets and len(self._buckets) < MAX_BUCKETS:
                self._buckets.add(bucket)
                self._found(schedule, bucket)
        return outcome

    def _bucket(self, outcome: Attempt) -> str:
        """The class of a failure, "" where there is none."""
        if outcome.failed or not self._campaign.inner or not outcome.precursor:
            return outcome.bucket
        return f"{INNER}: {outcome.precursor}"

    def _found(self, schedule: Schedule, bucket: str) -> None:
        """Shrink a failure and say what became of it."""
        seconds = time.monotonic() - self._began_s
        shrinking = Shrinking(
            schedule,
            lambda candidate: self._bucket(attempt(candidate)) == bucket,
            max_tries=self._campaign.shrink_tries,
            anew=anew,
        )
        smallest = shrinking.run()
        shrunk = attempt(smallest)
        finding = Finding(
            bucket=bucket,
            property=shrunk.property or INNER,
            sentence=shrunk.sentence,
            schedule=schedule,
            smallest=as_file(smallest, shrunk),
            schedules_before=self._done,
            seconds_before=seconds,
            shrink_tries=shrinking.tries,
        )
        self._unsaid["findings"].append(msgspec.json.encode(finding))
        self._say()

    def _say(self) -> None:
        self._said_s = time.monotonic()
        self._news.put(self._unsaid)
        self._unsaid = _nothing()


class _Ear:
    """Where a worker without a parent says things: they are counted at once."""

    def __init__(self, budget: Budget) -> None:
        self.tally = Tally()
        self._budget = budget
        self._began_s = time.monotonic()
        self._covered: set[str] = set()

    def put(self, said: dict[str, Any]) -> None:
        """Take in news, as a queue does."""
        _take(self.tally, self._covered, said)

    def is_set(self) -> bool:
        """Whether the search is over, as an event says it."""
        self.tally.seconds = time.monotonic() - self._began_s
        late = bool(self._budget.seconds) and self.tally.seconds >= self._budget.seconds
        return late or (self._budget.until_failure and bool(self.tally.findings))


def search_alone(campaign: Campaign) -> Tally:
    """A campaign of one core in this process. Its seed is taken as a worker's."""
    ear = _Ear(campaign.budget)
    _Worker(campaign, None, ear, ear).work()
    return ear.tally


def merge(tallies: Iterable[Tally]) -> Tally:
    """What several campaigns came to together; of each bucket the first finding is kept."""
    whole = Tally()
    for tally in tallies:
        whole.schedules += tally.schedules
        whole.failures += tally.failures
        whole.virtual_us += tally.virtual_us
        whole.events += tally.events
        whole.coverage = max(whole.coverage, tally.coverage)
        whole.states = max(whole.states, tally.states)
        whole.seconds = max(whole.seconds, tally.seconds)
        known = {finding.bucket for finding in whole.findings}
        whole.findings += [f for f in tally.findings if f.bucket not in known]
        whole.problems += [p for p in tally.problems if p not in whole.problems]
        for name in _COUNTED:
            _add(getattr(whole, name), getattr(tally, name))
    return whole


def _add(counts: dict[str, int], more: dict[str, int]) -> None:
    for name, count in more.items():
        counts[name] = counts.get(name, 0) + count


def as_file(smallest: Schedule, outcome: Attempt) -> Schedule:
    """A shrunk schedule as it is saved: with its name and what it is expected to show. It is no
    longer `drawn`: each of its faults must take effect."""
    return msgspec.structs.replace(
        smallest,
        name=f"{smallest.cluster.protocol}-{outcome.property or INNER}",
        expectation=Expectation(verdict="invalid", property=outcome.property or None),
    )


def _nothing() -> dict[str, Any]:
    return {
        "schedules": 0,
        "failures": 0,
        "virtual_us": 0,
        "events": 0,
        "coverage": [],
        "states": 0,
        "findings": [],
        "problems": [],
        **{name: Counter[str]() for name in _COUNTED},
    }


def _work(campaign: Campaign, number: int, stop: Any, news: Any) -> None:
    """A worker's process: Ctrl-C is the parent's to understand."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _Worker(campaign, number, stop, news).work()


def buckets(tally: Tally) -> Iterator[tuple[str, Finding]]:
    """Findings by bucket, the soonest first."""
    yield from sorted(
        ((f.bucket, f) for f in tally.findings), key=lambda pair: pair[1].seconds_before
    )
