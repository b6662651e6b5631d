"""Replays: a schedule file is run again and compared with what it expects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from checker.formats.anomalies import PROPERTIES
from checker.formats.verdict import Verdict
from checker.story.story import write_story
from harness.formats.finding import REAL
from harness.formats.history import Op, show_value
from harness.runs.judge import Tell, bring_finding, build_page, summarise
from harness.runs.options import default_name, load_schedule
from harness.runs.program import called
from harness.runs.requests import ReplayRequest
from harness.runs.run import RunOrder, run_once
from harness.sim.run import SimResult, simulate
from harness.systems.setup import Setup, setup_of
from nemesis.formats import schedule as schedules
from nemesis.formats.fault_log import FaultLine
from nemesis.formats.schedule import Expectation, Schedule
from node.formats import trace
from node.formats.errors import UsageError, unknown_name
from node.formats.event_text import action, parse
from node.formats.json_input import read_file
from node.formats.trace import METADATA_PARTITION, TraceEvent


class ReplayOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a replay; `failed`: in the schedule's property. `folder` is "" if not kept."""

    seed: int
    verdict: str
    sentence: str
    failed: bool
    properties: tuple[str, ...] = ()
    digest: str = ""
    folder: str = ""


class _Seeded(msgspec.Struct):
    """The part of run.json that says which run of its schedule a folder has."""

    seed: int | None = None


def replay(request: ReplayRequest, output: Tell = lambda text: None) -> Iterator[ReplayOutcome]:
    """Run the schedule `request.times` times, with rising seeds, and yield each result. `output` is
    called with the trace or summary that `request.trace` asks for. Raises UsageError."""
    schedule = requested_schedule(request)
    first = request.seed
    if first is None and (request.file / "run.json").is_file():
        first = read_file(request.file / "run.json", _Seeded).seed
    first = schedule.workload.seed if first is None else first
    run = _simulated if world_of(request) == "simulated" else _real
    for number in range(request.times):
        yield run(schedule, request, first + number, output)


def world_of(request: ReplayRequest) -> str:
    """Return "simulated" or "real". Raises UsageError for a system without a simulated world."""
    system = _setup_of(request).find()
    if request.world == "simulated" and not system.simulated:
        raise UsageError(
            f"{request.file}: system '{system.name}' has no simulated world; use --world real"
        )
    return request.world or ("simulated" if system.simulated else "real")


def _setup_of(request: ReplayRequest) -> Setup:
    return setup_of(request.file, request.system, request.settings)


def requested_schedule(request: ReplayRequest) -> Schedule:
    """Return the schedule of the requested file. If the request names another protocol than the
    file, its expectation is dropped, because it is about the file's protocol. Raises UsageError."""
    # The folder of a finding has one file for each world.
    real, system = request.file / REAL, _setup_of(request).find()
    is_real = world_of(request) == "real" and real.is_file()
    schedule = load_schedule(real if is_real else request.file)
    if request.protocol is not None and request.protocol != schedule.cluster.protocol:
        cluster = msgspec.structs.replace(schedule.cluster, protocol=request.protocol)
        cluster = system.complete(cluster)
        schedule = msgspec.structs.replace(schedule, cluster=cluster, expectation=Expectation())
    if request.expect:
        expectation = _expectation(request.expect)
        schedule = msgspec.structs.replace(schedule, expectation=expectation)
    schedules.check(schedule, source=str(request.file))
    system.check(schedule)
    return schedule


def _expectation(text: str) -> Expectation:
    verdict, _, which = text.partition(":")
    if verdict == "invalid":
        if which and which not in PROPERTIES:
            raise UsageError(unknown_name("property", which, PROPERTIES))
        return Expectation(verdict="invalid", property=which or None)
    if verdict != "valid" or which:
        raise UsageError(f"--expect is '{text}', but can only be valid, invalid, invalid:PROPERTY")
    return Expectation(verdict="valid")


def _simulated(
    schedule: Schedule, request: ReplayRequest, seed: int, output: Tell
) -> ReplayOutcome:
    """Run the schedule in the simulator to its end, for a verdict as of a real run."""
    keep = None if request.keep is None else request.keep / f"simulated-{seed}"
    result = simulate(schedule, seed=seed, stop_at="never", keep=keep)
    if keep is not None:
        write_story(keep, result.checked)
        bring_finding(request.file, keep, output)
        build_page(keep, output)
    if request.trace:
        output("\n".join([*run_text(result), *(f"waits: {line}" for line in result.stalled)]))
    return ReplayOutcome(
        seed=seed,
        verdict=result.verdict.value,
        sentence=_kept(result, request.protocol) + _sentence(result),
        failed=has_failed(schedule.expectation, result.verdict, result.broken),
        properties=result.broken,
        digest=result.digest,
        folder="" if keep is None else str(keep),
    )


def _kept(result: SimResult, protocol: str | None) -> str:
    """Return the text that the other protocol breaks no property under the schedule."""
    held = result.verdict is Verdict.NOT_EXERCISED and not result.broken
    return f"{protocol} keeps the record: nothing is broken. " if protocol and held else ""


def _sentence(result: SimResult) -> str:
    alone = f" (only the {result.only_seen_by} saw it)" if result.only_seen_by else ""
    # The checker's sentences name operations and replicas, so they come first.
    said = result.sentence if result.only_seen_by == "invariants" else result.checked.sentence
    return said + alone


def _real(schedule: Schedule, request: ReplayRequest, seed: int, output: Tell) -> ReplayOutcome:
    """Run real processes, and judge them in this process."""
    order = RunOrder(
        schedule,
        _setup_of(request).resolved(schedule),
        name=default_name(schedule),
        store=request.keep or request.store,
        command=(*called(), "replay", str(request.file), "--world", "real"),
        source=request.file,
        seed=seed,
    )
    outcome = run_once(order, quiet=request.quiet)
    folder, result = outcome.folder, outcome.result
    build_page(folder, output)
    if request.trace:
        output(summarise(folder, result))
    broken = tuple(result.broken)
    return ReplayOutcome(
        seed=seed,
        verdict=result.verdict.value,
        sentence=result.sentence,
        properties=broken,
        failed=has_failed(schedule.expectation, result.verdict, broken),
        folder=str(folder),
    )


def has_failed(expected: Expectation, verdict: Verdict, broken: tuple[str, ...]) -> bool:
    """Return whether a run is invalid, and breaks the property that the schedule expects."""
    if verdict is not Verdict.INVALID:
        return False
    return expected.property is None or expected.property in broken


def is_met(expected: Expectation, outcomes: Sequence[ReplayOutcome]) -> bool:
    """Return whether one replay failed as a schedule expects, or if "valid", all are valid."""
    match expected.verdict:
        case "invalid":
            return any(outcome.failed for outcome in outcomes)
        case "valid":
            return all(outcome.verdict == "valid" for outcome in outcomes)
    return True


def run_text(result: SimResult) -> Iterator[str]:
    """Yield the lines of a run in the order of their time."""
    origin_us = result.info.phases.storm_us or result.info.phases.start_us
    lines: list[tuple[int, str, str]] = []
    for event in result.trace:
        words = _event(event)
        if words:
            lines.append((event["t_us"], event["node"], words))
    lines += [(line.t_us, "fault", _fault(line)) for line in result.faults]
    for op in result.ops:
        words = _op(op)
        if words:
            lines.append((op.t_us, op.client, words))
    lines += [(b.t_us, "VIOLATION", f"{b.invariant}: {b.sentence}") for b in result.violations]
    for t_us, who, words in sorted(lines, key=lambda line: line[0]):
        yield f"{(t_us - origin_us) / 1e6:10.6f}  {who:<9}  {words}"


def _event(event: TraceEvent) -> str:
    partition = event.get("partition", "")
    repeats = event["event"] in (trace.APPEND, trace.HW) and event["role"] != "leader"
    if partition == METADATA_PARTITION or event["event"] == trace.VOTE or repeats:
        return ""
    words = action(parse(event))
    return f"{partition}: {words}" if partition and words else words


def _fault(line: FaultLine) -> str:
    number = "final heal" if line.fault < 0 else f"{line.action} {line.what}"
    nodes = f" {', '.join(line.nodes)}" if line.nodes else ""
    links = f" on {', '.join('->'.join(link) for link in line.links)}" if line.links else ""
    return f"{number}{nodes}{links}" + (f" ({line.detail})" if line.detail else "")


def _op(op: Op) -> str:
    if op.type == "invoke" or op.f not in ("send", "poll"):
        return ""
    if op.f == "send":
        send = op.sends[0]
        what = f"sent {show_value(send.value)}"
        what += f" and {send.count - 1} more" if send.count > 1 else ""
        what += f" to {send.partition}"
        return (
            f"{what}: {op.type} at {send.offset}"
            if op.type == "ok"
            else (f"{what}: {op.type}, {op.error}")
        )
    return f"read of {op.reads[0].partition}: {op.type}, {op.error}" if op.type != "ok" else ""
