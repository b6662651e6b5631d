"""The check of an adapter: missing parts, then runs without faults, with a kill, a cut, a node that
falls far behind, a power cut, and changes of the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from checker.formats.anomalies import LIVENESS
from checker.formats.verdict import RunResult, Verdict
from harness.formats.history import GROUP_PREFIX
from harness.formats.run_info import RunInfo
from harness.runs.program import called
from harness.runs.run import RunOrder, run_once
from harness.systems.adapter import MAKE_GROUPS, MEMBERS
from harness.systems.external.static_check import mistakes
from harness.systems.external.system import ExternalSystem
from harness.systems.interface import System
from harness.systems.setup import Resolved, kinds_of
from nemesis.faults import Cut, Join, Kill, PowerCut, Replace, Upgrade
from nemesis.formats.schedule import Cluster, Fault, Schedule, Workload
from node.formats.errors import UsageError
from node.formats.json_input import Unreadable, decode

CALM_MS: Final = 4_000
FAULT_AT_MS: Final = 2_000
FAULT_MS: Final = 2_000
_POWER: Final = "power-cut"
HINTS: Final = {
    "duplicate": "the client library sends again by itself after an error: turn its retries off",
    "aborted-read": "send raised Refused for a record that was appended all the same: raise "
    "Refused only when that is impossible",
    "unseen": "the final reads did not reach what was acknowledged: read must return what is "
    "committed, and `end` must not be before it",
    "poll-skip": "read left records out: it must return them from `offset` on",
    "phantom": "read or dump returned what nobody sent: is the payload returned unchanged?",
    "no-progress": "nothing was acknowledged after the faults: connect must find another node, and "
    "failover_ms must be long enough",
    "acked-redelivered": "acknowledge returned True before the system had recorded the acks, or "
    "poll returned what an earlier poll was given: use an inbox for each poll",
    "not-redelivered": "poll never returned what nobody settled: ack_wait_ms must be long enough",
    "undelivered": "create must make the group before the first send, and poll return every record",
    "few-deliveries": "members settled too little: does join return a session, and poll records?",
    "not-converged": "the logs that dump reads differ after everybody was in sync: does it read "
    "all files, and does probe tell who is in sync?",
}
"""What an adapter may have done wrong when a run of a system that should hold finds this."""
PAST_THE_LINKS: Final = (
    "a node that others dial directly advertises what `listen` says: it must be what `dial` says, "
    "or --links kernel, whose faults touch every connection"
)


class CheckStep(NamedTuple):
    """One step of the check: whether it passed, a sentence, hints on a failure, the run folder."""

    name: str
    passed: bool
    sentence: str
    hints: tuple[str, ...] = ()
    folder: Path | None = None


def check_system(
    system: System, store: Path, *, links: str | None = None, quiet: bool = False
) -> Iterator[CheckStep]:
    """Check an adapter; yield each step up to a failure. Raises UsageError without an adapter."""
    if not isinstance(system, ExternalSystem):
        raise UsageError(f"system '{system.name}' has no adapter to check")
    found = list(mistakes(system.adapter))
    yield CheckStep("class", not found, "; ".join(found) or "all that must be there is written")
    if found:
        return
    form = system.link_form(links)
    for of, name, faults in _plans(system, form):
        step = _run(of, name, faults, store, links=form, quiet=quiet)
        yield step
        if not step.passed:
            return


def _plans(system: ExternalSystem, links: str) -> Iterator[tuple[System, str, tuple[Fault, ...]]]:
    """Yield the runs: the system with its settings, what each is called, and its faults."""
    kills, writes = "kill" in system.faults, system.adapter.writes
    # Only the loss of a leader shows how long a failover takes.
    leader = "leader:log-0" if writes("probe", "ready") else "n1"
    yield system, "no fault", ()
    if kills:
        yield system, "kill", (Kill(on=leader, at_ms=FAULT_AT_MS, for_ms=FAULT_MS),)
    if "cut" in system.faults and system.link_abilities(links) is not None:
        yield system, "cut", (Cut(on=leader, to="rest", at_ms=FAULT_AT_MS, for_ms=FAULT_MS),)
    if kills:
        away_ms = 2 * FAULT_MS + system.limits(Cluster()).failover_ms
        yield system, "far behind", (Kill(on="n3", at_ms=FAULT_AT_MS // 2, for_ms=away_ms),)
    if _POWER in system.faults:
        cut = PowerCut(on="n1", at_ms=FAULT_AT_MS, for_ms=FAULT_MS, keep_percent=0)
        with suppress(UsageError):
            system.disk_form(None, (_POWER,))
            yield system, "power cut", (cut,)
    at_ms = max(FAULT_AT_MS, system.change_after_ms)
    changes = {
        "join": Join(at_ms=at_ms, for_ms=system.change_ms),  # At the heal it leaves again.
        "replace": Replace(on="n2", at_ms=at_ms),
        "upgrade": Upgrade(on="n2", at_ms=at_ms),
    }
    for kind, change in changes.items():
        if kind in system.faults and (kind != "upgrade" or len(system.servers) > 1):
            yield system, kind, (change,)
    if writes(*MAKE_GROUPS):
        given = {**system.settings, MEMBERS.name: "3"}
        fault = Kill(on=f"leader:{GROUP_PREFIX}log-0", at_ms=FAULT_AT_MS, for_ms=FAULT_MS)
        yield system.with_settings(given), "group", (fault,) if kills else ()


def _run(
    system: System, name: str, faults: tuple[Fault, ...], store: Path, *, links: str, quiet: bool
) -> CheckStep:
    spares = sum(isinstance(fault, Join) for fault in faults)
    cluster = system.complete(Cluster(partitions=1, spares=spares))
    failover_ms = system.limits(cluster).session_ms if faults else 0
    over_ms = max(((fault.at_ms or 0) + (fault.for_ms or 0) for fault in faults), default=0)
    duration_ms = max(CALM_MS, over_ms) + failover_ms
    usual = Workload(seed=1, clients=4, consumers=2, duration_ms=duration_ms)
    schedule = Schedule(cluster=cluster, workload=system.workload(usual), faults=faults)
    on = Resolved(system, links, system.disk_form(None, kinds_of(schedule)))
    on.check(schedule)
    outcome = run_once(
        RunOrder(schedule, on, f"check-{name.replace(' ', '-')}", store, called()), quiet=quiet
    )
    result, folder = outcome.verdict, outcome.folder
    if result is None:
        return CheckStep(name, False, str(outcome.error), folder=folder)
    unseen = _unseen_changes(folder)
    passed = result.verdict is Verdict.VALID and not unseen
    times, hints = _times(system, outcome.info, result, bool(faults))
    if _POWER in kinds_of(schedule) and not passed:
        # It may lose what it did not sync, but it must go on.
        passed = result.verdict in (Verdict.INVALID, Verdict.NOT_EXERCISED)
        passed = passed and not any(each.property == LIVENESS for each in result.anomalies)
        return CheckStep(name, passed, f"{result.sentence} {times}", hints, folder)
    if "kill" in kinds_of(schedule) and (back_ms := _back_ms(folder)):
        times += (
            f" It took part again after {back_ms / 1000:.1f} s (restart_ms {system.restart_ms})."
        )
        slow = back_ms > system.restart_ms
        hints = (*hints, *((f"declare a longer restart_ms: {back_ms:.0f}",) if slow else ()))
    hints = (*_hints(result), *unseen, *hints)
    return CheckStep(name, passed, f"{result.sentence} {times}", hints, folder)


def _unseen_changes(folder: Path) -> tuple[str, ...]:
    """Return what became of each change that the nodes did not report in time."""
    return tuple(
        f"{line['what']} was not seen to be done: {line['detail']}"
        for line in _lines(folder / "faults.jsonl")
        if any(line.get(outcome) for outcome in ("refused", "late", "unseen"))
    )


def _times(
    system: System, info: RunInfo, result: RunResult, faults: bool
) -> tuple[str, tuple[str, ...]]:
    """Return the times that a run took, beside those that the adapter declares, and hints."""
    start_s = (info.phases.storm_us - info.phases.start_us) / 1e6
    times = f"The start took {start_s:.1f} s (restart_ms {system.restart_ms})"
    if not faults:
        hints = [f"{each}: link faults do not touch it" for each in info.bypassed]
        return f"{times}.", (*hints, *((PAST_THE_LINKS,) if hints else ()))
    failover_ms = system.limits(Cluster()).failover_ms
    gap_ms = float(result.measures.get("longest_gap_ms", 0.0))
    times += f", a failover at most {gap_ms / 1000:.1f} s (failover_ms {failover_ms})."
    late = gap_ms > failover_ms + system.restart_ms
    return times, (f"declare a longer failover_ms: {gap_ms:.0f}",) if late else ()


def _back_ms(folder: Path) -> float:
    """Return how long a node took from its start after a fault until the probe named it in sync, 0
    if nothing shows that."""
    faults, probes = (_lines(folder / name) for name in ("faults.jsonl", "probes.jsonl"))
    for line in faults:
        if line["action"] == "heal" and line["fault"] == 0 and line["nodes"]:
            node, since_us = line["nodes"][0], line["t_us"]
            seen = (each for each in probes if "isr" in each and each["t_us"] > since_us)
            return next((e["t_us"] - since_us for e in seen if node in e["isr"]), 0) / 1000
    return 0.0


def _lines(file: Path) -> list[dict[str, Any]]:
    try:
        return [decode(line, dict[str, Any]) for line in file.read_bytes().splitlines()]
    except (OSError, Unreadable):
        return []


def _hints(result: RunResult) -> tuple[str, ...]:
    """Return advice for the author of the adapter, once for each class of anomaly."""
    names = dict.fromkeys(anomaly.name for anomaly in result.anomalies)
    return tuple(HINTS[name] for name in names if name in HINTS)
