"""A search campaign: on all cores of this machine, or in this process.

Each worker derives its own seed from the campaign's, so the n-th schedule of a worker is the same
in every campaign with that seed. Workers draw and judge; the parent counts, keeps the findings, and
ends the campaign. The first failure of a bucket is shrunk where it was found, later ones are only
counted.
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
from harness.search.escalate import rerun_without
from harness.search.shrink import Shrinking
from harness.sim.run import batched_collections
from nemesis.formats.schedule import Expectation, Schedule
from node.formats.errors import UsageError

REPORT_EVERY_S: Final = 0.5
JOIN_S: Final = 10.0
SEEDS_APART: Final = 1024
"""Seeds of workers of neighbouring campaigns do not meet."""
MAX_BUCKETS: Final = 100
"""Buckets that a worker shrinks in one campaign; with more the protocol is plainly broken."""
INTERNAL: Final = "internal-invariant"
"""Stands for the property of a failure that only an internal invariant shows."""
_COUNTED: Final = ("buckets", "fault_coverage")
"""The counters by name."""


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


class CampaignResult(msgspec.Struct, kw_only=True):
    """What a campaign has done so far. `coverage` counts the decision points met, `states` the
    distinct states of the cluster in the run that had most. `buckets` counts failures by bucket,
    `fault_coverage` faults by `kind/role/phase`."""

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
    fault_coverage: dict[str, int] = {}

    @property
    def schedules_per_s(self) -> float:
        """Speed of the campaign, all workers together."""
        return self.schedules / self.seconds if self.seconds else 0.0


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """What is searched, how, and for how long. Failures of the buckets `known` are counted and not
    shrunk again. With `internal` an invariant broken inside the cluster is a failure too, whether a
    client, a trace or a log shows it or not."""

    subject: Subject
    engine: str = "random"
    seed: int = 0
    budget: Budget = Budget()
    cores: int = 1
    shrink_tries: int = 1500
    known: tuple[str, ...] = ()
    internal: bool = False

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
        for name in ("seconds", "schedules"):
            if not getattr(self.budget, name) >= 0:
                raise UsageError(f"--{name} must not be negative")
        if not (self.budget.seconds or self.budget.schedules or self.budget.until_failure):
            raise UsageError("a search needs an end: --seconds, --schedules or --until-failure")
        if not 1 <= self.cores <= 1024:
            raise UsageError("--cores must be 1..1024")


def run(
    campaign: Campaign, report: Callable[[CampaignResult], None] = lambda result: None
) -> CampaignResult:
    """Search until the budget is used up; `report` is called every half second.

    Raises UsageError for an impossible campaign. Workers never outlive this call.
    """
    campaign.check()
    context = get_context("spawn")
    stop, updates = context.Event(), context.Queue()
    workers = [
        context.Process(target=_work, args=(campaign, number, stop, updates), daemon=True)
        for number in range(campaign.cores)
    ]
    for worker in workers:
        worker.start()
    result = CampaignResult()
    try:
        _listen(campaign, result, workers, updates, report)
    finally:
        stop.set()
        _end(workers, updates, result)
    return result


def _listen(
    campaign: Campaign,
    result: CampaignResult,
    workers: list[Any],
    updates: Any,
    report: Callable[[CampaignResult], None],
) -> None:
    """Merge the updates of workers until the campaign is over."""
    began_s = reported_s = time.monotonic()
    budget = campaign.budget
    covered: set[str] = set()
    while any(worker.is_alive() for worker in workers):
        with contextlib.suppress(queue.Empty):
            _merge(result, covered, updates.get(timeout=REPORT_EVERY_S))
        now_s = time.monotonic()
        result.seconds = now_s - began_s
        if now_s - reported_s >= REPORT_EVERY_S:
            reported_s = now_s
            report(result)
        out_of_time = bool(budget.seconds) and result.seconds >= budget.seconds
        enough = bool(budget.schedules) and result.schedules >= budget.schedules
        if out_of_time or enough or (budget.until_failure and result.findings):
            return


def _end(workers: list[Any], updates: Any, result: CampaignResult) -> None:
    """Wait for the workers and merge their last updates; one that hangs is killed."""
    deadline_s = time.monotonic() + JOIN_S
    while any(w.is_alive() for w in workers) and time.monotonic() < deadline_s:
        try:
            _merge(result, set(), updates.get(timeout=0.05))
        except queue.Empty:
            continue
    for worker in workers:
        if worker.is_alive():
            worker.kill()
        worker.join()


def _merge(result: CampaignResult, covered: set[str], update: dict[str, Any]) -> None:
    result.schedules += update["schedules"]
    result.failures += update["failures"]
    result.virtual_us += update["virtual_us"]
    result.events += update["events"]
    covered |= set(update["coverage"])
    result.coverage = max(result.coverage, len(covered))
    result.states = max(result.states, update["states"])
    known = {finding.bucket for finding in result.findings}
    for found in update["findings"]:
        finding = msgspec.json.decode(found, type=Finding)
        if finding.bucket not in known:
            result.findings.append(finding)
    result.problems += [p for p in update["problems"] if p not in result.problems]
    for name in _COUNTED:
        _add(getattr(result, name), update[name])


class _Worker:
    """One worker of a campaign."""

    def __init__(self, campaign: Campaign, number: int | None, stop: Any, updates: Any) -> None:
        self._campaign = campaign
        self._stop = stop
        self._updates = updates
        mine = [campaign] if number is None else campaign.shares(campaign.cores)[number:][:1]
        self._idle = not mine
        self._limit = (mine[0].budget.schedules if mine else 0) or 1 << 62
        self._seed = mine[0].seed if mine else 0
        self._done = 0
        self._began_s = self._sent_s = time.monotonic()
        self._buckets = set(campaign.known)
        self._covered: set[str] = set()
        self._pending = _empty_update()

    def work(self) -> None:
        """Search until the campaign ends, or the worker's share of schedules is done."""
        if self._idle:
            return
        engine = ENGINES[self._campaign.engine]
        with batched_collections():
            engine(self._campaign.subject, self._seed, self._judge, self._enough)
        self._send()

    def _enough(self) -> bool:
        if time.monotonic() - self._sent_s >= REPORT_EVERY_S:
            self._send()
        return self._done >= self._limit or self._stop.is_set()

    def _judge(self, schedule: Schedule) -> Attempt:
        outcome = attempt(schedule)
        self._done += 1
        pending = self._pending
        pending["schedules"] += 1
        pending["virtual_us"] += outcome.virtual_us
        pending["events"] += outcome.events
        pending["coverage"] += sorted(outcome.coverage - self._covered)
        self._covered |= outcome.coverage
        pending["states"] = max(pending["states"], outcome.states)
        if outcome.problem and len(pending["problems"]) < MAX_BUCKETS:
            pending["problems"].append(outcome.problem)
        pending["fault_coverage"].update(outcome.fault_coverage)
        if bucket := self._bucket(outcome):
            pending["failures"] += 1
            pending["buckets"][bucket] += 1
            if bucket not in self._buckets and len(self._buckets) < MAX_BUCKETS:
                self._buckets.add(bucket)
                self._found(schedule, bucket)
        return outcome

    def _bucket(self, outcome: Attempt) -> str:
        """The bucket of a failure, "" where there is none."""
        if outcome.failed or not self._campaign.internal or not outcome.internal_violation:
            return outcome.bucket
        return f"{INTERNAL}: {outcome.internal_violation}"

    def _found(self, schedule: Schedule, bucket: str) -> None:
        """Shrink a failure, and send the finding."""
        seconds = time.monotonic() - self._began_s
        shrinking = Shrinking(
            schedule,
            lambda candidate: self._bucket(attempt(candidate)) == bucket,
            max_tries=self._campaign.shrink_tries,
            rerun=rerun_without,
        )
        smallest = shrinking.run()
        shrunk = attempt(smallest)
        finding = Finding(
            bucket=bucket,
            property=shrunk.property or INTERNAL,
            sentence=shrunk.sentence,
            schedule=schedule,
            smallest=as_file(smallest, shrunk),
            schedules_before=self._done,
            seconds_before=seconds,
            shrink_tries=shrinking.tries,
        )
        self._pending["findings"].append(msgspec.json.encode(finding))
        self._send()

    def _send(self) -> None:
        self._sent_s = time.monotonic()
        self._updates.put(self._pending)
        self._pending = _empty_update()


class _LocalChannel:
    """Takes the updates of a worker without a parent, and says when it must stop."""

    def __init__(self, budget: Budget) -> None:
        self.result = CampaignResult()
        self._budget = budget
        self._began_s = time.monotonic()
        self._covered: set[str] = set()

    def put(self, update: dict[str, Any]) -> None:
        """Merge an update, as `Queue.put`."""
        _merge(self.result, self._covered, update)

    def is_set(self) -> bool:
        """Whether the campaign is over, as `Event.is_set`."""
        self.result.seconds = time.monotonic() - self._began_s
        late = bool(self._budget.seconds) and self.result.seconds >= self._budget.seconds
        return late or (self._budget.until_failure and bool(self.result.findings))


def search_alone(campaign: Campaign) -> CampaignResult:
    """A campaign of one core in this process; its seed is used as a worker's."""
    channel = _LocalChannel(campaign.budget)
    _Worker(campaign, None, channel, channel).work()
    return channel.result


def merge(results: Iterable[CampaignResult]) -> CampaignResult:
    """The sum of several results; of each bucket the first finding is kept."""
    total = CampaignResult()
    for result in results:
        total.schedules += result.schedules
        total.failures += result.failures
        total.virtual_us += result.virtual_us
        total.events += result.events
        total.coverage = max(total.coverage, result.coverage)
        total.states = max(total.states, result.states)
        total.seconds = max(total.seconds, result.seconds)
        known = {finding.bucket for finding in total.findings}
        total.findings += [f for f in result.findings if f.bucket not in known]
        total.problems += [p for p in result.problems if p not in total.problems]
        for name in _COUNTED:
            _add(getattr(total, name), getattr(result, name))
    return total


def _add(counts: dict[str, int], more: dict[str, int]) -> None:
    for name, count in more.items():
        counts[name] = counts.get(name, 0) + count


def as_file(smallest: Schedule, outcome: Attempt) -> Schedule:
    """A shrunk schedule as it is saved: with a name and an expectation, and no longer `drawn`, so
    that each of its faults must take effect."""
    return msgspec.structs.replace(
        smallest,
        name=f"{smallest.cluster.protocol}-{outcome.property or INTERNAL}",
        expectation=Expectation(verdict="invalid", property=outcome.property or None),
    )


def _empty_update() -> dict[str, Any]:
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


def _work(campaign: Campaign, number: int, stop: Any, updates: Any) -> None:
    """The process of a worker. The parent handles Ctrl-C."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _Worker(campaign, number, stop, updates).work()


def buckets(result: CampaignResult) -> Iterator[tuple[str, Finding]]:
    """Findings by bucket, the soonest first."""
    yield from sorted(
        ((f.bucket, f) for f in result.findings), key=lambda pair: pair[1].seconds_before
    )
