"""One simulated run of a schedule, from an empty cluster to its files and their verdict by the
checker that judges real runs too."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import itertools
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from checker.engine.local import check_files, check_run
from checker.formats.verdict import RunResult, Verdict
from checker.output.assemble import write_results
from harness.formats.history import GROUP_STATES, GroupState, LogRun, Op, encode_numbered
from harness.formats.problem import Exit, Problem, rank
from harness.formats.run_info import RunInfo
from harness.runs.run import first_info
from harness.runs.run_folder import RunDir
from harness.runs.storm import Storm
from harness.sim.cluster import NeverStarted, SimCluster, stall_report
from harness.sim.disk import SimDisk
from harness.sim.group_invariant import GroupInvariant
from harness.sim.invariant_checker import InvariantChecker, Violation
from harness.sim.network import AffectedMessage, EventQueue
from harness.sim.node import IDEAL, LatencyProfile, SimNode
from harness.sim.producer_invariant import ProducerInvariant
from harness.sim.state_invariant import MajorityInvariant, StateInvariant
from harness.sim.step_invariant import StepInvariant
from harness.systems.floodmark.system import SYSTEM
from nemesis.formats import message_log
from nemesis.formats.fault_log import FaultLine
from nemesis.formats.message_log import MessageLine
from nemesis.formats.schedule import Schedule
from nemesis.injector import Injector
from node.core.protocol import protocol
from node.formats.errors import FloodmarkError, StorageError
from node.formats.files import cannot_write, make_folder, write_whole
from node.formats.removal import remove
from node.formats.run_folder_entries import RUN_FILES, RUN_FOLDERS
from node.formats.trace import TraceEvent

StopAt = Literal["any", "visible", "never"]
RUNS_PER_COLLECTION: Final = 20
LOOK_S = 5.0
"""The processor time between two looks at whether a run goes on."""
_runs: Final = itertools.count(1)
_encoder: Final = msgspec.json.Encoder()


@dataclass(frozen=True)
class RunFiles:
    """The contents of the files of a run. `output` has what each node printed when it ended."""

    info: RunInfo
    schedule: Schedule
    ops: list[Op]
    trace: list[TraceEvent]
    logs: dict[str, list[LogRun]]
    faults: list[FaultLine]
    exits: list[Exit]
    output: dict[str, list[str]]
    messages: list[MessageLine]
    states: list[GroupState] = field(default_factory=list)

    def check(self, keep: Path | None) -> RunResult:
        """Judge the run. The run folder is written to `keep`; if None, files stay in memory."""
        if keep is None:
            return check_files(self.lines())
        self.write(keep)
        return check_run(keep, write=True)

    def encoded(self) -> dict[str, bytes]:
        """Return the files that the checker reads, by name, as unnumbered lines in memory."""
        encode = _encoder.encode_lines
        found = self.lines().items()
        return {name: each if isinstance(each, bytes) else encode(each) for name, each in found}

    def lines(self) -> dict[str, bytes | list[Any]]:
        """Return the files of the checker as decoded lines, because decoding takes long."""
        nodes = (*self.logs, *self.info.voters)
        by_node: dict[str, list[TraceEvent]] = {node: [] for node in nodes}
        for event in self.trace:
            by_node[event["node"]].append(event)
        return {
            "run.json": _encoder.encode(self.info),
            "schedule.json": self.schedule.to_json(),
            "history.jsonl": self.ops,
            "faults.jsonl": self.faults,
            "exits.jsonl": self.exits,
            **{f"trace/{node}.jsonl": events for node, events in by_node.items()},
            **{f"logs/{node}.jsonl": runs for node, runs in self.logs.items()},
            **({GROUP_STATES: self.states} if self.states else {}),
        }

    def write(self, path: Path) -> None:
        """Write a run folder with its seal, in place of what an earlier run left there. Raises
        StorageError when that fails."""
        made = self.encoded()
        made["history.jsonl"] = encode_numbered(self.ops, 0)
        for name in (*self.info.brokers, *self.info.voters):
            own = (event for event in self.trace if event["node"] == name)
            made[f"trace/{name}.jsonl"] = _encoder.encode_lines(list(_numbered(own)))
        made[message_log.FILE] = _encoder.encode_lines(self.messages)
        for node, output in self.output.items():
            made[f"output/{node}.txt"] = ("\n".join(output) + "\n").encode()
        into = RunDir(path)
        try:
            for name in sorted(RUN_FILES | RUN_FOLDERS):
                remove(path / name, path)
            for part in ("trace", "output", "logs"):
                make_folder(path / part, path.parent)
            for name, text in made.items():
                write_whole(path / name, text, path.parent)
            into.write_info(self.info)
            into.write_schedule(self.schedule)
            into.seal()
        except OSError as error:
            raise StorageError(cannot_write(path, error)) from None


def _numbered(events: Iterable[TraceEvent]) -> Iterator[TraceEvent]:
    """Yield the events of a node with their numbers in its process, as a real node writes them."""
    numbers: Counter[int] = Counter()
    for event in events:
        stamp = {name: event[name] for name in ("t_us", "node", "incarnation")}
        yield {**stamp, "seq": numbers[event["incarnation"]], **event}
        numbers[event["incarnation"]] += 1


@dataclass(frozen=True, kw_only=True, repr=False)
class SimResult(RunFiles):
    """The files of a simulated run, and its result. `verdict` is the worse one of two verdicts, of
    the invariants during the run and of the checker after it. `only_seen_by` names the one that
    alone found a violation ("" if they agree). `violations` has the first violation of each
    invariant. `stalled` says what each replica waits for if the cluster did not recover. `events`
    counts events of the queue; `virtual_us` is the length of the run in virtual microseconds."""

    seed: int
    verdict: Verdict
    sentence: str
    violations: tuple[Violation, ...]
    checked: RunResult
    only_seen_by: Literal["", "invariants", "checker"]
    stalled: tuple[str, ...]
    events: int
    virtual_us: int

    @property
    def broken(self) -> tuple[str, ...]:
        """The properties that are broken according to the invariants or the checker, each once."""
        found = [p.property for p in self.checked.properties if p.verdict is Verdict.INVALID]
        return tuple(dict.fromkeys([*found, *(b.property for b in self.violations)]))

    @cached_property
    def judged(self) -> RunResult:
        """The result of the checker; if that is no failure, with violations that it cannot see."""
        unseen = [b.anomaly() for b in self.violations if not b.visible]
        if not unseen or self.checked.verdict is Verdict.INVALID:
            return self.checked
        broken = {anomaly.property for anomaly in unseen}
        return replace(
            self.checked,
            verdict=Verdict.INVALID,
            sentence=self.sentence,
            properties=tuple(
                replace(p, verdict=Verdict.INVALID) if p.property in broken else p
                for p in self.checked.properties
            ),
            anomalies=(*unseen, *self.checked.anomalies),
        )

    @cached_property
    def digest(self) -> str:
        """A digest of trace, history and faults, 16 hexadecimal digits."""
        whole = hashlib.blake2b(digest_size=8)
        for part in (self.trace, self.ops, self.faults):
            whole.update(_encoder.encode_lines(part))
        return whole.hexdigest()


def simulate(
    schedule: Schedule,
    *,
    seed: int,
    check_invariants: bool = True,
    keep: Path | None = None,
    stop_at: StopAt = "any",
    exempt: Callable[[AffectedMessage], bool] | None = None,
    latency: LatencyProfile = IDEAL,
) -> SimResult:
    """Run a schedule under virtual time and judge it; the result follows from `schedule` and
    `seed`.

    With `check_invariants` the invariants are checked at every step, and the run ends at the first
    violation of any of them ("any"), at the first that the checker must find too ("visible"), or
    only at the end of the schedule ("never"). `exempt` is called with each message that a link rule
    is about to drop or hold; if it returns True, the message passes. If `keep` is a folder, the run
    folder is written there. Raises FloodmarkError when the cluster does not start, or the folder
    cannot be written."""
    with no_collections():
        run = SimRun(
            schedule, seed, check_invariants=check_invariants, stop_at=stop_at, latency=latency
        )
        if exempt is not None:
            run.cluster.network.exempt(exempt)
        if keep is not None:
            run.cluster.network.record(run.messages.append)
        with endless_steps_end(run.cluster.queue):
            run.execute()
        return run.result(keep)


@contextlib.contextmanager
def endless_steps_end(queue: EventQueue) -> Iterator[None]:
    """End a step of a core that never ends by itself: look every `LOOK_S` seconds of processor time
    whether an event was carried out, and raise a FloodmarkError in the present one if none was.
    Signals arrive in the main thread, and in no compiled loop."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen = -1

    def look(number: int, frame: object) -> None:
        nonlocal seen
        if seen == queue.events:
            raise FloodmarkError(f"it never rests: a step takes more than {LOOK_S:g} s")
        seen = queue.events

    before = signal.signal(signal.SIGVTALRM, look)
    signal.setitimer(signal.ITIMER_VIRTUAL, LOOK_S, LOOK_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@contextlib.contextmanager
def no_collections() -> Iterator[None]:
    """Stop Python's garbage collector in the block: collections take a tenth of a run's time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
        elif next(_runs) % RUNS_PER_COLLECTION == 0:
            gc.collect()


@contextlib.contextmanager
def batched_collections() -> Iterator[None]:
    """Collect garbage only after every few runs of the block, and only theirs. Each run leaves some
    thousand objects in cycles, so memory would grow without any collection."""
    enabled = gc.isenabled()
    gc.disable()
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Ended(Exception):
    """The end of a run at a violation."""


class SimRun:
    """One simulated run: its cluster, faults and observers, and the records that it collects."""

    def __init__(
        self,
        schedule: Schedule,
        seed: int,
        *,
        stop_at: StopAt,
        check_invariants: bool = True,
        latency: LatencyProfile = IDEAL,
    ) -> None:
        self.schedule = schedule
        self.seed = seed
        self.stop_at = stop_at
        self.faults: list[FaultLine] = []
        self.messages: list[MessageLine] = []
        hooks = self._on_trace, self._on_history, self._on_end
        self.cluster = SimCluster(schedule, seed, *hooks, latency)
        self.info = first_info(
            schedule, seed, SYSTEM, world="simulated", now_us=self.cluster.now_us()
        )
        self.info.promise = self.cluster.promise
        self.info.capabilities = self.cluster.capabilities
        self.invariants: InvariantChecker | None = None
        self._observers: list[Callable[[str, list[TraceEvent]], None]] = []
        if check_invariants:
            self.invariants = InvariantChecker(
                self._core,
                protocol(schedule.cluster.protocol),
                self.info.promise,
                self._step_and_time,
                self._on_violation,
            )
            self._observers = self._observing(self.invariants)
        self.stalled: tuple[str, ...] = ()
        self._violated = False

    def _observing(
        self, checker: InvariantChecker
    ) -> list[Callable[[str, list[TraceEvent]], None]]:
        """Return the observers of each turn's trace, as one function."""
        found: list[Callable[[str, list[TraceEvent]], None]] = [checker.turn]
        if not self.schedule.cluster.bugs:  # Else the brokers are to depart from their protocol.
            watch = StepInvariant(checker).watch
            for node in self.cluster.nodes.values():
                node.watch = watch
        if checker.disks_kept:
            found.insert(0, StateInvariant(self._core, self._disk, checker).turn)
            found.append(MajorityInvariant(self._core, checker).turn)
            if self.schedule.workload.idempotent:
                found.append(ProducerInvariant(self._core, checker).turn)
            if self.schedule.workload.members:
                found.append(GroupInvariant(self._core, checker).turn)
        return found

    def execute(self) -> None:
        """Go through all phases of a run; end early at a violation."""
        info, cluster = self.info, self.cluster
        info.phases.start_us = cluster.now_us()
        injector = self.injector()
        try:
            self._start()
            info.partitions = {name: tuple(nodes) for name, nodes in cluster.partitions.items()}
            storm = Storm(
                self.schedule,
                info,
                cluster,
                cluster.clients(),
                injector,
                session_ms=SYSTEM.limits(self.schedule.cluster).session_ms,
                pace=cluster,
            )
            for phase in storm.phases():
                phase()
            info.partitions = {name: tuple(nodes) for name, nodes in cluster.partitions.items()}
            self.stalled = stall_report(cluster)
            cluster.stop()
            info.state = "finished"
        except _Ended:
            info.state = "interrupted"
        info.phases.end_us = cluster.now_us()
        info.problems += [Problem(kind="not-healed", sentence=each) for each in injector.problems]

    def _start(self) -> None:
        """Start the cluster. That it has no leaders without any fault is a violation."""
        try:
            self.cluster.start()
        except NeverStarted as error:
            if self.invariants is None:
                raise
            self.invariants.violated("cluster-starts", "", str(error), [])
            raise _Ended from None

    def injector(self) -> Injector:
        """Return an injector for the faults of the schedule."""
        cluster = self.cluster
        return Injector(
            self.schedule,
            cluster.world,
            cluster.view,
            random.Random(self.seed),
            self.faults.append,
            clients=cluster.factory.working,
        )

    def result(self, keep: Path | None) -> SimResult:
        """Read the logs, judge the run, and write its folder to `keep` if that is not None."""
        cluster = self.cluster
        logs = cluster.logs()
        self.info.problems = sorted([*self.info.problems, *cluster.problems], key=rank)
        left = RunFiles(
            info=self.info,
            schedule=self.schedule,
            ops=cluster.clients().ops,
            trace=cluster.trace,
            logs=logs,
            faults=self.faults,
            exits=cluster.exits,
            output=cluster.output,
            messages=self.messages,
            states=cluster.group_states() if self.schedule.workload.members else [],
        )
        checked = left.check(keep)
        violations = tuple(self.invariants.violations) if self.invariants is not None else ()
        verdict = Verdict.INVALID if violations else checked.verdict
        made = SimResult(
            **vars(left),
            seed=self.seed,
            verdict=verdict,
            sentence=_sentence(violations, checked),
            violations=violations,
            checked=checked,
            only_seen_by=_only_seen_by(violations, checked),
            stalled=self.stalled if "liveness" in _invalid(checked) else (),
            events=cluster.queue.events,
            virtual_us=self.info.phases.end_us - self.info.phases.start_us,
        )
        if keep is not None and made.judged is not checked:
            write_results(keep, made.judged)
        return made

    # -- hooks

    def _core(self, name: str) -> Any:
        node = self.cluster.nodes.get(name)
        return None if node is None else node.core

    def _disk(self, name: str) -> SimDisk:
        return self.cluster.nodes[name].disk

    def _step_and_time(self) -> tuple[int, int]:
        return self.cluster.queue.events, self.cluster.now_us()

    def _on_trace(self, node: SimNode, events: list[TraceEvent]) -> None:
        if self.invariants is not None:
            for observe in self._observers:
                observe(node.name, events)
            self._stop()

    def _on_history(self, op: Op) -> None:
        if self.invariants is not None:
            self.invariants.on_history(op)
            self._stop()

    def _on_end(self, end: Exit, output: str) -> None:
        checker = self.invariants
        if checker is not None and checker.disks_kept:
            checker.ended(end.node, end.code or 0, output)
            self._stop()

    def _on_violation(self, violation: Violation) -> None:
        if self.stop_at == "any" or (self.stop_at == "visible" and violation.visible):
            self._violated = True

    def _stop(self) -> None:
        if self._violated:
            raise _Ended


def _invalid(checked: RunResult) -> list[str]:
    return [p.property for p in checked.properties if p.verdict is Verdict.INVALID]


def _sentence(violations: tuple[Violation, ...], checked: RunResult) -> str:
    """Return the first sentence on a run: a violation that clients, traces or logs show first."""
    visible = [violation for violation in violations if violation.visible]
    if visible or (violations and checked.verdict is not Verdict.INVALID):
        return f"invalid: {(visible or violations)[0].sentence}."
    return checked.sentence


def _only_seen_by(
    violations: tuple[Violation, ...], checked: RunResult
) -> Literal["", "invariants", "checker"]:
    """Return which checker alone found a violation. Of liveness the invariants know ends only."""
    known = {violation.property for violation in violations}
    by_checker = [p for p in _invalid(checked) if p != "liveness" or p in known]
    if bool(violations) == bool(by_checker):
        return ""
    return "invariants" if violations else "checker"
