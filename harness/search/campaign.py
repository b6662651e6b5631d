"""A search campaign: on all cores of this machine, or in this process.

Each worker derives its own seed from the campaign's, so the n-th schedule of a worker is the same
in every campaign with that seed. Workers draw and judge; the parent counts, keeps the findings, and
ends the campaign. The first failure of a bucket is sent as it was drawn, and again when it was
shrunk where it was found; later ones are only counted. Shrinking can be stopped at any moment: then
the smallest schedule so far is sent.
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec
from multiprocess import get_context

from harness.search import deadline
from harness.search.attempt import Attempt, attempt
from harness.search.deadline import Stop, never
from harness.search.engines import ENGINES, Subject
from harness.search.escalate import rerun_without
from harness.search.shrink import Shrinking
from harness.sim.run import batched_collections
from nemesis.formats.schedule import Expectation, Schedule
from node.formats.errors import UsageError, unknown_name
from node.formats.json_input import decode
from node.runtime.reap import REAP_S

REPORT_EVERY_S: Final = 0.5
JOIN_S: Final = 10.0
"""How long shrinking may go on after the last draw, and then the last runs of the workers."""
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
    finding. With a finding the share `reserve` of its seconds is kept: one half to shrink it, the
    other for what its caller does afterwards."""

    seconds: float = 0.0
    schedules: int = 0
    until_failure: bool = False
    reserve: float = 0.0

    def is_used_up(self, result: CampaignResult) -> bool:
        """Whether to draw no further schedule."""
        seconds = self.seconds * (1 - self.reserve if result.findings else 1)
        return (
            (self.seconds > 0 and result.seconds >= seconds)
            or (self.schedules > 0 and result.schedules >= self.schedules)
            or (self.until_failure and any(finding.shrunk for finding in result.findings))
        )


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One failure: how it was found and the smallest schedule known that still shows it.

    `shrunk` is false while it is being shrunk, and where that was stopped before its end.
    """

    bucket: str
    property: str
    sentence: str
    schedule: Schedule
    smallest: Schedule
    schedules_before: int
    seconds_before: float
    shrink_tries: int
    shrunk: bool = True


class CampaignResult(msgspec.Struct, kw_only=True):
    """Totals and findings of a campaign so far. `buckets` counts failures by bucket,
    `fault_coverage` faults by `kind/role/phase`."""

    schedules: int = 0
    failures: int = 0
    virtual_us: int = 0
    events: int = 0
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
            raise UsageError(unknown_name("engine", self.engine, ENGINES))
        if not (self.budget.seconds >= 0 and self.budget.schedules >= 0):
            raise UsageError("--budget and --schedules must not be negative")
        if not (self.budget.seconds or self.budget.schedules or self.budget.until_failure):
            raise UsageError("a search needs an end: --budget, --schedules or --until-failure")
        if not 1 <= self.cores <= 1024:
            raise UsageError("--jobs must be 1..1024")


def run(
    campaign: Campaign,
    report: Callable[[CampaignResult], None] = lambda result: None,
    stop: Stop = never,
) -> CampaignResult:
    """Search until the budget is used up, or `stop`; `report` is called every half second.

    Raises UsageError for an impossible campaign. Workers never outlive this call.
    """
    campaign.check()
    context = get_context("spawn")
    asked, updates = _Asked(context.Event(), context.Event()), context.Queue()
    workers = [
        context.Process(target=_work, args=(campaign, number, asked, updates), daemon=True)
        for number in range(campaign.cores)
    ]
    for worker in workers:
        worker.start()
    result = CampaignResult()
    try:
        _listen(campaign, result, workers, updates, report, stop)
    finally:
        _end(campaign.budget, workers, updates, result, asked, stop)
    return result


class _Asked(NamedTuple):
    """What the parent asks of all workers: to draw nothing more, and to end their shrinking."""

    stop: Any
    finish: Any


def _listen(
    campaign: Campaign,
    result: CampaignResult,
    workers: list[Any],
    updates: Any,
    report: Callable[[CampaignResult], None],
    stop: Stop,
) -> None:
    """Merge the updates of workers until the campaign is over."""
    began_s = reported_s = time.monotonic()
    while any(worker.is_alive() for worker in workers):
        with contextlib.suppress(queue.Empty):
            _merge(result, updates.get(timeout=REPORT_EVERY_S))
        now_s = time.monotonic()
        result.seconds = now_s - began_s
        if now_s - reported_s >= REPORT_EVERY_S:
            reported_s = now_s
            report(result)
        if campaign.budget.is_used_up(result) or stop():
            return


def _end(
    budget: Budget,
    workers: list[Any],
    updates: Any,
    result: CampaignResult,
    asked: _Asked,
    stop: Stop,
) -> None:
    """Let the workers finish their shrinking while there is time, and merge their last updates;
    one that hangs is killed. Its finding is known, as it was drawn."""
    asked.stop.set()
    left_s = budget.seconds * (1 - budget.reserve / 2) - result.seconds
    shrink_s = max(left_s, 1e-3) if budget.seconds else JOIN_S
    _drain(workers, updates, result, deadline.after(shrink_s), stop)
    asked.finish.set()
    _drain(workers, updates, result, deadline.after(JOIN_S))
    for worker in workers:
        if worker.is_alive():
            worker.kill()
        worker.join(REAP_S)


def _drain(workers: list[Any], updates: Any, result: CampaignResult, *ends: Stop) -> None:
    """Merge updates until no worker is left, or one of `ends`."""
    while any(worker.is_alive() for worker in workers) and not any(end() for end in ends):
        with contextlib.suppress(queue.Empty):
            _merge(result, updates.get(timeout=0.05))
    with contextlib.suppress(queue.Empty):
        while True:
            _merge(result, updates.get_nowait())


def _merge(result: CampaignResult, update: dict[str, Any]) -> None:
    result.schedules += update["schedules"]
    result.failures += update["failures"]
    result.virtual_us += update["virtual_us"]
    result.events += update["events"]
    for found in update["findings"]:
        _keep(result.findings, decode(found, Finding))
    result.problems += [p for p in update["problems"] if p not in result.problems]
    for name in _COUNTED:
        _add(getattr(result, name), update[name])


def _keep(findings: list[Finding], finding: Finding) -> None:
    """Keep the first finding of a bucket; what became of its schedule takes its place."""
    for place, known in enumerate(findings):
        if known.bucket == finding.bucket:
            if known.schedule == finding.schedule:
                findings[place] = finding
            return
    findings.append(finding)


class _Worker:
    """One worker of a campaign. It draws until `stop`, and shrinks until `finish`."""

    def __init__(
        self, campaign: Campaign, number: int | None, updates: Any, stop: Stop, finish: Stop
    ) -> None:
        self._campaign = campaign
        self._stop = stop
        self._finish = finish
        self._updates = updates
        mine = [campaign] if number is None else campaign.shares(campaign.cores)[number:][:1]
        self._idle = not mine
        self._limit = (mine[0].budget.schedules if mine else 0) or 1 << 62
        self._seed = mine[0].seed if mine else 0
        self._done = 0
        self._began_s = self._sent_s = time.monotonic()
        self._buckets = set(campaign.known)
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
        return self._done >= self._limit or self._stop()

    def _judge(self, schedule: Schedule) -> Attempt:
        outcome = attempt(schedule)
        self._done += 1
        pending = self._pending
        pending["schedules"] += 1
        pending["virtual_us"] += outcome.virtual_us
        pending["events"] += outcome.events
        if outcome.problem and len(pending["problems"]) < MAX_BUCKETS:
            pending["problems"].append(outcome.problem)
        pending["fault_coverage"].update(outcome.fault_coverage)
        if bucket := self._bucket(outcome):
            pending["failures"] += 1
            pending["buckets"][bucket] += 1
            if bucket not in self._buckets and len(self._buckets) < MAX_BUCKETS:
                self._buckets.add(bucket)
                self._found(schedule, bucket, outcome)
        return outcome

    def _bucket(self, outcome: Attempt) -> str:
        """The bucket of a failure, "" where there is none."""
        if outcome.failed or not self._campaign.internal or not outcome.internal_violation:
            return outcome.bucket
        return f"{INTERNAL}: {outcome.internal_violation}"

    def _found(self, schedule: Schedule, bucket: str, outcome: Attempt) -> None:
        """Send a failure as it was drawn; shrink it, and send what became of it."""
        finding = Finding(
            bucket=bucket,
            property=outcome.property or INTERNAL,
            sentence=outcome.sentence,
            schedule=schedule,
            smallest=as_file(schedule, outcome),
            schedules_before=self._done,
            seconds_before=time.monotonic() - self._began_s,
            shrink_tries=0,
            shrunk=False,
        )
        self._send_finding(finding)
        tries = self._campaign.shrink_tries
        self._send_finding(shrink(finding, self._bucket, tries, self._finish))

    def _send_finding(self, finding: Finding) -> None:
        self._pending["findings"].append(msgspec.json.encode(finding))
        self._send()

    def _send(self) -> None:
        self._sent_s = time.monotonic()
        self._updates.put(self._pending)
        self._pending = _empty_update()


def shrink(
    finding: Finding, bucket_of: Callable[[Attempt], str], tries: int, stop: Stop
) -> Finding:
    """Return the finding with the smallest schedule of the same bucket that `tries` runs show."""
    shrinking = Shrinking(
        finding.schedule,
        lambda candidate: bucket_of(attempt(candidate)) == finding.bucket,
        max_tries=tries,
        rerun=rerun_without,
        stop=stop,
    )
    smallest = shrinking.run()
    shrunk = attempt(smallest)
    return msgspec.structs.replace(
        finding,
        property=shrunk.property or INTERNAL,
        sentence=shrunk.sentence,
        smallest=as_file(smallest, shrunk),
        shrink_tries=shrinking.tries,
        shrunk=not shrinking.stopped,
    )


class _LocalChannel:
    """Takes the updates of a worker without a parent, and says when it must stop and finish."""

    def __init__(self, budget: Budget) -> None:
        self.result = CampaignResult()
        self._budget = budget
        self._began_s = time.monotonic()

    def put(self, update: dict[str, Any]) -> None:
        """Merge an update, as `Queue.put`."""
        _merge(self.result, update)

    def stop(self) -> bool:
        """Whether to draw nothing more."""
        self.result.seconds = time.monotonic() - self._began_s
        return self._budget.is_used_up(self.result)

    def finish(self) -> bool:
        """Whether to end the shrinking."""
        seconds = time.monotonic() - self._began_s
        return bool(self._budget.seconds) and seconds >= self._budget.seconds + JOIN_S


def search_alone(campaign: Campaign) -> CampaignResult:
    """A campaign of one core in this process; its seed is used as a worker's."""
    channel = _LocalChannel(campaign.budget)
    _Worker(campaign, None, channel, channel.stop, channel.finish).work()
    return channel.result


def merge(results: Iterable[CampaignResult]) -> CampaignResult:
    """Return the sum of several results, with the first finding of each bucket."""
    total = CampaignResult()
    for result in results:
        total.schedules += result.schedules
        total.failures += result.failures
        total.virtual_us += result.virtual_us
        total.events += result.events
        total.seconds = max(total.seconds, result.seconds)
        for finding in result.findings:
            _keep(total.findings, finding)
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
        "findings": [],
        "problems": [],
        **{name: Counter[str]() for name in _COUNTED},
    }


def _work(campaign: Campaign, number: int, asked: _Asked, updates: Any) -> None:
    """The process of a worker. The parent handles Ctrl-C."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _Worker(campaign, number, updates, asked.stop.is_set, asked.finish.is_set).work()


def buckets(result: CampaignResult) -> Iterator[tuple[str, Finding]]:
    """Findings by bucket, the soonest first."""
    yield from sorted(
        ((f.bucket, f) for f in result.findings), key=lambda pair: pair[1].seconds_before
    )
