"""One run of a schedule in the simulated world, from nothing to a verdict, in memory."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from checker.formats.verdict import RunResult, Verdict
from harness.formats.exits import Exit
from harness.formats.history import LogRun, Op
from harness.formats.run_info import RunInfo
from harness.runs.interrupts import Interrupts
from harness.runs.progress import Moment
from harness.runs.run import first_info
from harness.runs.storm import Storm
from harness.sim import folder, stall_report
from harness.sim.cluster import SimCluster
from harness.sim.coverage import Coverage, Point
from harness.sim.invariant_checker import Watcher
from harness.sim.latency_profile import CALM, Weather
from harness.sim.network import Struck
from harness.sim.node import SimNode
from harness.sim.violation import Breach
from nemesis.formats.fault_log import FaultLine
from nemesis.formats.schedule import Schedule
from nemesis.injector import Injector
from node.core.protocol import protocol
from node.formats.trace import TraceEvent

StopAt = Literal["any", "visible", "never"]
RUNS_A_COLLECTION: Final = 20
_runs: Final = itertools.count(1)
_encoder: Final = msgspec.json.Encoder()


@dataclass(frozen=True)
class SimResult:
    """What a simulated run came to.

    `verdict` is the worse of the watcher's and the checker's; `saw_more` names the one that alone
    saw a breach ("" when they agree). `breach` is the first invariant that was broken, `breaches`
    the first of each. `waits` says who waits for what when liveness is broken. Times are virtual
    microseconds; `events` are the agenda's, `messages` those sent.
    """

    schedule: Schedule
    seed: int
    verdict: Verdict
    sentence: str
    breaches: tuple[Breach, ...]
    checked: RunResult
    saw_more: Literal["", "watcher", "checker"]
    waits: tuple[str, ...]
    events: int
    messages: int
    virtual_us: int
    states: int
    coverage: frozenset[Point]
    info: RunInfo = field(repr=False)
    ops: list[Op] = field(repr=False)
    trace: list[TraceEvent] = field(repr=False)
    logs: dict[str, list[LogRun]] = field(repr=False)
    faults: list[FaultLine] = field(repr=False)
    exits: list[Exit] = field(repr=False)

    @property
    def breach(self) -> Breach | None:
        """The first breach, None if no invariant was broken."""
        return self.breaches[0] if self.breaches else None

    @property
    def broken(self) -> tuple[str, ...]:
        """The properties that are broken, by checker or watcher, each once."""
        found = [p.property for p in self.checked.properties if p.verdict is Verdict.INVALID]
        return tuple(dict.fromkeys([*found, *(b.property for b in self.breaches)]))

    @cached_property
    def digest(self) -> str:
        """16 hexadecimal digits over trace, history and faults: equal for equal runs."""
        whole = hashlib.blake2b(digest_size=8)
        for part in (self.trace, self.ops, self.faults):
            whole.update(_encoder.encode_lines(part))
        return whole.hexdigest()

    def meets(self) -> bool:
        """Whether the run is what the schedule expects."""
        expected = self.schedule.expectation
        if expected.verdict == "any":
            return True
        if self.verdict.value != expected.verdict:
            return False
        return expected.property is None or expected.property in self.broken


def simulate(
    schedule: Schedule,
    *,
    seed: int,
    watch: bool = True,
    keep: Path | None = None,
    stop_at: StopAt = "any",
    spares: Callable[[Struck], bool] | None = None,
    weather: Weather = CALM,
) -> SimResult:
    """Run a schedule under virtual time; everything follows from `schedule` and `seed`.

    With `watch` the invariants are checked at every step, and the run ends at the first breach:
    of any of them, only of one that the checker should see too ("visible"), or goes on to its end
    in any case ("never"). Messages that `spares` picks pass the faults on links; it hears of each
    one that is to be dropped or held. With `keep` a run folder is written there, as a real run
    leaves one.
    Raises FloodmarkError when the cluster does not come up, or the folder cannot be written.
    """
    with _no_collections():
        run = _SimRun(schedule, seed, watch=watch, stop_at=stop_at, weather=weather)
        if spares is not None:
            run.cluster.network.spare(spares)
        if keep is not None:
            run.cluster.network.record(run.messages.append)
        run.execute()
        return run.result(keep)


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """A run makes hardly any cycles, and all it makes lives to its end: to look through it again
    and again costs a tenth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
        elif next(_runs) % RUNS_A_COLLECTION == 0:
            gc.collect()


@contextlib.contextmanager
def many_runs() -> Iterator[None]:
    """For who makes many runs: garbage is collected after every few of them, and what was there
    before is not looked through again. A run leaves some thousand objects in cycles, so that
    memory stays bounded."""
    enabled = gc.isenabled()
    gc.disable()
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        if enabled:
            gc.enable()


class _Ended(Exception):
    """A breach was found: the run ends here."""


class _Silence:
    """A progress that shows nothing."""

    def phase(self, name: str, limit_s: float = 0.0) -> None:
        """A new part of the run begins."""

    def show(self, moment: Moment) -> None:
        """How things stand."""


class _SimRun:
    """The parts of one run and what is collected from them."""

    def __init__(
        self, schedule: Schedule, seed: int, *, watch: bool, stop_at: StopAt, weather: Weather
    ) -> None:
        self.schedule = schedule
        self.seed = seed
        self.stop_at = stop_at
        self.faults: list[FaultLine] = []
        self.messages: list[dict[str, Any]] = []
        self.coverage = Coverage()
        self.cluster = SimCluster(schedule, seed, self._heed, self._heard, weather)
        self.info = first_info(schedule, seed, world="simulated", now_us=self.cluster.now_us())
        self.info.promise = self.cluster.promise
        self.info.capabilities = self.cluster.capabilities
        self.watcher: Watcher | None = None
        if watch:
            promise = self.info.promise
            self.watcher = Watcher(
                self._core, protocol(schedule.cluster.protocol), promise, self._moment, self._found
            )
        self.waits: tuple[str, ...] = ()
        self._breached = False

    def execute(self) -> None:
        """Go through all phases; end early at a breach."""
        info, cluster = self.info, self.cluster
        info.phases.start_us = cluster.now_us()
        injector = Injector(
            self.schedule,
            cluster.world,
            cluster.view,
            random.Random(self.seed),
            self.faults.append,
            clients=cluster.crew.working,
        )
        try:
            cluster.start()
            info.partitions = {name: tuple(nodes) for name, nodes in cluster.partitions.items()}
            storm = Storm(
                self.schedule,
                info,
                cluster,
                cluster.clients(),
                injector,
                progress=_Silence(),
                interrupts=Interrupts(),
                pace=cluster,
            )
            for phase in storm.phases():
                phase()
            info.partitions = {name: tuple(nodes) for name, nodes in cluster.partitions.items()}
            self.waits = stall_report.who_waits(cluster)
            cluster.stop()
            info.state = "finished"
        except _Ended:
            info.state = "interrupted"
        info.phases.end_us = cluster.now_us()
        info.problems += [*cluster.problems, *injector.problems]

    def result(self, keep: Path | None) -> SimResult:
        """Read out the logs, have everything judged, and sum up."""
        cluster = self.cluster
        logs = cluster.logs()
        left = folder.Left(
            info=self.info,
            schedule=self.schedule,
            ops=cluster.clients().ops,
            trace=cluster.trace,
            logs=logs,
            faults=self.faults,
            exits=cluster.exits,
            words=cluster.words,
            messages=self.messages,
        )
        checked = folder.check(left, keep)
        breaches = tuple(self.watcher.breaches) if self.watcher is not None else ()
        verdict = Verdict.INVALID if breaches else checked.verdict
        sentence = f"invalid: {breaches[0].sentence}." if breaches else checked.sentence
        return SimResult(
            schedule=self.schedule,
            seed=self.seed,
            verdict=verdict,
            sentence=sentence,
            breaches=breaches,
            checked=checked,
            saw_more=_saw_more(breaches, checked),
            waits=self.waits if "liveness" in _invalid(checked) else (),
            events=cluster.agenda.events,
            messages=cluster.network.messages,
            virtual_us=self.info.phases.end_us - self.info.phases.start_us,
            states=self.coverage.states,
            coverage=self.coverage.points,
            info=self.info,
            ops=cluster.clients().ops,
            trace=cluster.trace,
            logs=logs,
            faults=self.faults,
            exits=cluster.exits,
        )

    # -- hooks

    def _core(self, name: str) -> Any:
        node = self.cluster.nodes.get(name)
        return None if node is None else node.core

    def _moment(self) -> tuple[int, int]:
        return self.cluster.agenda.events, self.cluster.now_us()

    def _heed(self, node: SimNode, events: list[TraceEvent]) -> None:
        self.coverage.turn(node.name, node.core, events)
        if self.watcher is not None:
            self.watcher.turn(node.name, events)
            self._stop()

    def _heard(self, op: Op) -> None:
        if self.watcher is not None:
            self.watcher.heard(op)
            self._stop()

    def _found(self, breach: Breach) -> None:
        if self.stop_at == "any" or (self.stop_at == "visible" and breach.visible):
            self._breached = True

    def _stop(self) -> None:
        if self._breached:
            raise _Ended


def _invalid(checked: RunResult) -> list[str]:
    return [p.property for p in checked.properties if p.verdict is Verdict.INVALID]


def _saw_more(
    breaches: tuple[Breach, ...], checked: RunResult
) -> Literal["", "watcher", "checker"]:
    """Who alone saw that something is broken. Liveness is the checker's alone to judge."""
    by_checker = [p for p in _invalid(checked) if p != "liveness"]
    if bool(breaches) == bool(by_checker):
        return ""
    return "watcher" if breaches else "checker"
