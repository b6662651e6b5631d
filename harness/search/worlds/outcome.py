"""The outcome of one run of a schedule as a search needs it: its failure, and what caused it.

Runs in the simulated world are made here, runs of real processes in `harness.search.worlds.real`.
The cause of a failure is the second half of its bucket (class of failures). Schedules that fail by
the same bug should get the same name, so it contains no node, offset, epoch or time. Different bugs
should get different names, so it says which step lost the record or kept a wrong one, and by which
rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from msgspec.structs import replace

from checker.formats.anomalies import AGREEMENT, EXERCISE
from checker.formats.story import Story, StoryStep
from checker.formats.verdict import Anomaly, Verdict
from checker.story import evidence, story
from harness.sim.network import AffectedMessage
from harness.sim.node import IDEAL, LatencyProfile
from harness.sim.run import SimResult, StopAt, simulate
from nemesis.faults import KINDS
from nemesis.formats.fault_log import FaultLine
from nemesis.formats.schedule import Schedule
from nemesis.view import ClusterView
from node.formats import trace
from node.formats.errors import FloodmarkError
from node.formats.event_text import parse

ELECTED_WITHOUT: Final = "elected-without"
VOTED: Final = "by-votes"
NEVER_CUT: Final = "never-cut"


def of_record(
    history: Sequence[StoryStep], events: Iterable[Mapping[str, Any]], partition: str
) -> str:
    """Return the first wrong step in the history of a record, "" if none is: "cut:RULE",
    "overwritten", or for a leader that lacks it by which rule: "elected-without:in-sync"."""
    step = next((s for s in history if s.breaks), None)
    if step is None:
        return ""
    if step.breaks != ELECTED_WITHOUT:
        return step.breaks
    return f"{step.breaks}:{_election_rule(step, events, partition)}"


def _election_rule(step: StoryStep, events: Iterable[Mapping[str, Any]], partition: str) -> str:
    """Return the rule by which a leader was elected, from the controller's state at that time."""
    isr: Sequence[str] = ()
    elr: Sequence[str] = ()
    right = VOTED
    for event in _events(events, partition, trace.PARTITION):
        if event["t_us"] > step.t_us:
            break
        if event["leader"] == step.node:
            # It may have led before: the rule of its latest election counts.
            right = right if right != VOTED else _right(event, isr, elr)
        else:
            right = VOTED
        isr, elr = event["isr"], event["elr"]
    return right


def _right(event: Mapping[str, Any], isr: Sequence[str], elr: Sequence[str]) -> str:
    if event["unclean"]:
        return "unclean"
    if event["leader"] in isr:
        return "in-sync"
    return "eligible" if event["leader"] in elr else "outside"


def of_divergence(
    events: Iterable[Mapping[str, Any]], partition: str, node: str = "", until_us: int | None = None
) -> str:
    """Return why two logs differ: "kept:RULE" with the rule of the last truncation of `node` ("":
    of any replica), which chose what was kept; "kept:never-cut" without a truncation."""
    rule = NEVER_CUT
    for event in _events(events, partition, trace.TRUNCATED):
        if until_us is not None and event["t_us"] > until_us:
            break
        if node in ("", event["node"]):
            rule = event["reason"]
    return f"kept:{rule}"


def _events(
    events: Iterable[Mapping[str, Any]], partition: str, name: str
) -> list[Mapping[str, Any]]:
    found = [e for e in events if e["event"] == name and e.get("partition") == partition]
    return sorted(found, key=lambda e: (e["t_us"], e["node"]))


UNKNOWN_CAUSE: Final = "?"
"""The cause in a bucket's name if none is known."""


def visibly_broken(result: SimResult) -> tuple[str, ...]:
    """Return the properties that the checker or an invariant visible from outside finds broken."""
    checked = [p.property for p in result.checked.properties if p.verdict is Verdict.INVALID]
    seen = [b.property for b in result.violations if b.visible]
    return tuple(dict.fromkeys([*checked, *seen]))


def failure_of(result: SimResult, about: str = "") -> Failure | None:
    """Return the first failure of a run that clients, traces or logs show, None if there is none:
    a violated invariant, else an anomaly that the checker found. With `about`, only that property
    counts."""
    seen = [violation.anomaly() for violation in result.violations if violation.visible]
    seen += [anomaly for anomaly in result.checked.anomalies if anomaly.verdict is Verdict.INVALID]
    seen += [Anomaly(property=broken, name="") for broken in visibly_broken(result)]
    first = next((anomaly for anomaly in seen if about in ("", anomaly.property)), None)
    return None if first is None else Failure(result, first, about)


def failure_inside(result: SimResult) -> Failure | None:
    """Return the first violation of a run that only the state of its brokers shows, None if there
    is none."""
    hidden = (violation for violation in result.violations if not violation.visible)
    first = next(hidden, None)
    return None if first is None else Failure(result, first.anomaly(), "")


class Failure:
    """A failure of a run. `first` is the violation or anomaly that shows it. `partition` and
    `offset` are those of the first lost or wrong record, or of the first difference between two
    logs; the offset is -1 if the failure is about no record."""

    def __init__(self, result: SimResult, first: Anomaly, about: str) -> None:
        self._result = result
        self._about = about
        self.first = first
        self.property = first.property
        self.partition = first.partition
        self.offset = first.offset if first.partition else -1
        if first.partition and first.offset < 0:
            self.offset = _first_difference(result, first.partition)

    @property
    def sentence(self) -> str:
        if self._about and self.first.message:
            return f"invalid: {self.first.message}"
        return self._result.sentence

    @cached_property
    def bucket(self) -> str:
        """The class of the failure, `property: cause`. The cause is the first wrong step in the
        history of the lost or wrong record. If there is no such step, it is the name of the
        invariant or anomaly, and for logs that differ also the rule of the last truncation."""
        first, trace = self.first, self._result.trace
        how = ""
        if first.partition and first.offset >= 0:
            how = of_record(self._history(), trace, first.partition)
        if not how and first.property == AGREEMENT and first.partition:
            node, until_us = "", None
            if first not in self._result.checked.anomalies:
                # An invariant is violated at one node, at a known time.
                node = next((w.node for w in first.witnesses if w.node), "")
                until_us = first.t_us if first.t_us >= 0 else None
            how = f"{first.name} {of_divergence(trace, first.partition, node, until_us)}"
        return f"{first.property}: {how or first.name or UNKNOWN_CAUSE}"

    def _history(self) -> list[StoryStep]:
        """Return the history of the lost or wrong record."""
        result, here = self._result, (self.partition, self.offset)
        known = [a for a in result.checked.anomalies if (a.partition, a.offset) == here]
        read_us = next((t_us for a in known if (t_us := story.read_of(a)) is not None), None)
        events = [parse(e) for e in result.trace if e.get("partition", here[0]) == here[0]]
        life = story.life_of(events, self.offset, read_us, result.info.promise.acks)
        return [] if life is None else [story.step_of(moment) for moment in life.moments]

    def story(self) -> Story:
        """Return the story of the failure. The checker names the record; the offset of an
        invariant is often that of a log end."""
        result = self._result
        found = story.subject(result.checked)
        if self._about:
            of_it = (a for a in result.checked.anomalies if a.verdict is Verdict.INVALID)
            found = next((a for a in of_it if a.property == self._about), None)
        if found is None:
            found = replace(self.first, offset=self.offset)
        known = evidence.of(
            found.partition,
            result.info,
            events=result.trace,
            faults=result.faults,
            exits=result.exits,
            ops=result.ops,
            logs=result.logs,
        )
        return story.build(known, found)


def _first_difference(result: SimResult, partition: str) -> int:
    """Return the first offset at which two replicas have different batches; -1 if none."""
    seen: dict[int, str] = {}
    apart: list[int] = []
    for lines in result.logs.values():
        for line in lines:
            if line.partition != partition or not line.count:
                continue
            if seen.setdefault(line.offset, line.hash) != line.hash:
                apart.append(line.offset)
    return min(apart, default=-1)


@dataclass(frozen=True, slots=True)
class ScheduleOutcome:
    """The outcome of one run of a schedule.

    `failed`: clients, traces or logs show a violation. `internal_violation` names the first
    violated invariant that is not visible to them, "" if there is none; data could have been lost
    then. `broken` maps each violated property to the class of its first anomaly, if that is known.
    `bucket` is the class of the failure: its property and its cause, without node, offset or time,
    so that the same bug always has the same one. `fault_coverage` has the `kind/role/phase` of each
    fault. `problem` says why the run could not be made or judged, "" otherwise.

    For real processes only: `lost_disks` are the nodes that lost unsynced writes, `on_links` says
    that a fault on links took effect. `folder` is the run folder if the run failed or could not be
    judged, else "". `result` is the simulated run, None for real processes and for a run that could
    not be made."""

    failed: bool = False
    internal_violation: str = ""
    bucket: str = ""
    property: str = ""
    broken: dict[str, str] = field(default_factory=dict)
    sentence: str = ""
    fault_coverage: tuple[str, ...] = ()
    virtual_us: int = 0
    events: int = 0
    problem: str = ""
    verdict: str = ""
    seconds: float = 0.0
    lost_disks: tuple[str, ...] = ()
    on_links: bool = False
    folder: str = ""
    result: SimResult | None = field(default=None, compare=False, repr=False)


def run_simulated(
    schedule: Schedule,
    seed: int | None = None,
    *,
    stop_at: StopAt = "visible",
    exempt: Callable[[AffectedMessage], bool] | None = None,
    latency: LatencyProfile = IDEAL,
    about: str = "",
) -> ScheduleOutcome:
    """Run a schedule in the simulated world until clients, traces or logs show a violation, or to
    its end. If several properties break, `bucket`, `property` and `sentence` are about `about` if
    it is among them, else about the first. The outcome follows from the schedule and `seed`, by
    default that of its workload. `exempt` and `latency` are as in `simulate`."""
    world = schedule.workload.seed if seed is None else seed
    try:
        result = simulate(schedule, seed=world, stop_at=stop_at, exempt=exempt, latency=latency)
    except FloodmarkError as error:
        return ScheduleOutcome(problem=str(error))
    return outcome_of(result, about)


def outcome_of(result: SimResult, about: str = "") -> ScheduleOutcome:
    """Return the outcome of a simulated run; `about` as in `run_simulated`."""
    broken = visibly_broken(result)
    failure = failure_of(result, about if about in broken else "")
    # A run with few operations, or with faults without a target, is not unknown here.
    unknown = any(
        p.verdict is Verdict.UNKNOWN and p.property != EXERCISE for p in result.checked.properties
    )
    internal = next((b.invariant for b in result.violations if not b.visible), "")
    return ScheduleOutcome(
        failed=failure is not None,
        internal_violation=internal,
        bucket="" if failure is None else failure.bucket,
        property="" if failure is None else failure.property,
        broken=dict.fromkeys(broken, ""),
        sentence=result.sentence if failure is None else failure.sentence,
        fault_coverage=tuple(fault_coverage(result.trace, result.faults).elements()),
        virtual_us=result.virtual_us,
        events=result.events,
        # A run that ended at a violation leaves reads open, so its checks may be unknown.
        problem=result.sentence if unknown and failure is None and not internal else "",
        result=result,
    )


_VIEW_EVENTS: Final = frozenset(
    {trace.STARTED, trace.STOPPED, trace.CONTROLLER, trace.ROLE, trace.ISR, trace.PARTITION}
)
"""The events that a view of the cluster needs, without the frequent ones."""


def fault_coverage(
    events: Iterable[Mapping[str, Any]], faults: Iterable[FaultLine]
) -> Counter[str]:
    """Count the faults by `kind/role/phase`. A fault on several nodes counts once for each role.
    `events` are those of all nodes in the order of time, `faults` the lines of `faults.jsonl`.
    """
    view, found = ClusterView(), Counter[str]()
    due = sorted((f for f in faults if f.action == "inject"), key=lambda f: f.t_us)
    known = (event for event in events if event["event"] in _VIEW_EVENTS)
    event = next(known, None)
    for fault in due:
        while event is not None and event["t_us"] <= fault.t_us:
            view.observe(event)
            event = next(known, None)
        phase = _phase(view)
        nodes = fault.nodes
        roles = dict.fromkeys(_role(view, node) for node in nodes) or {"none": None}
        found.update(f"{fault.what}/{role}/{phase}" for role in roles)
        for node in nodes if KINDS[fault.what].ends_process else ():
            # A killed process traces nothing more.
            view.lost(node)
    return found


def _role(view: ClusterView, node: str) -> str:
    if node == view.controller():
        return "controller"
    if not node.startswith("n"):
        return "voter"
    partitions = view.partitions()
    if any(view.leader(p) == node for p in partitions):
        return "leader"
    return "lagging" if any(node in view.lagging(p) for p in partitions) else "follower"


def _phase(view: ClusterView) -> str:
    partitions = view.partitions()
    if not all(view.leader(p) for p in partitions):
        return "leaderless"
    short = any(0 < len(view.isr(p)) < len(view.replicas(p)) for p in partitions)
    return "isr-short" if short else "in-sync"
