"""One run of real processes, from its order to its verdict: cluster up, storm, evidence, judge."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from harness.clients.factory import ClientFactory
from harness.formats.problem import Problem, ProblemKind, rank
from harness.formats.run_info import RunInfo, SystemVersion
from harness.runs import run_folder
from harness.runs.clock import now_us
from harness.runs.host import kind_of, too_busy, waited
from harness.runs.interrupts import Interrupts, StopNow
from harness.runs.judge import SparkSoon, bring_finding, get_ready, judge, tidy
from harness.runs.program import command_line
from harness.runs.progress import Progress
from harness.runs.run_folder import RunDir
from harness.runs.storm import Storm
from harness.systems.external.links import KERNEL_LINKS
from harness.systems.interface import ClusterUnderTest, System
from harness.systems.setup import Resolved
from nemesis.formats.fault_log import FaultLine
from nemesis.formats.schedule import Schedule
from nemesis.injector import Injector
from nemesis.links import namespaces
from node.formats.errors import FloodmarkError
from node.formats.host_errors import refused

if TYPE_CHECKING:
    from checker.formats.verdict import RunResult

_VERSIONED: Final = ("floodmark", "pyzmq", "lmdb", "msgspec", "pyspark")


class RunOrder(NamedTuple):
    """A schedule, what it runs `on`, and the run folder `store`/`name` to make. `command` is the
    command line that started it, `source` the path that it repeats, None for a new schedule. `seed`
    is that of the run, None for that of the workload."""

    schedule: Schedule
    on: Resolved
    name: str
    store: Path
    command: tuple[str, ...] = ()
    source: Path | None = None
    seed: int | None = None


class Run:
    """One run of a schedule on real processes, in a run folder of its own."""

    def __init__(self, order: RunOrder, *, progress: Progress, interrupts: Interrupts) -> None:
        """Make the run folder. Raises UsageError or StorageError when that cannot be done."""
        self.order = order
        self.schedule = order.schedule
        self._system = order.on.system
        self._progress = progress
        self._interrupts = interrupts
        self.folder = run_folder.create(order.store, order.name)
        self.info = _info_of_a_process(order, self.folder)
        self.folder.reserve()
        self.folder.write_info(self.info)
        self.folder.write_schedule(order.schedule)
        self._faults = self.folder.append_only("faults.jsonl")
        self.last_op_us = 0

    def execute(self, on_storm: Callable[[], None] = lambda: None) -> None:
        """Run the schedule and collect the evidence; `on_storm` is called when the cluster is up.
        An error before that is raised as FloodmarkError. A later one becomes a problem of the run,
        which goes on to collect the rest. StopNow ends it at once."""
        cluster: ClusterUnderTest | None = None
        try:
            on = self.order.on
            cluster = on.system.launch(self.schedule, self.folder, links=on.links, disk=on.disk)
            self._start(cluster)
            on_storm()
            self._go_through(cluster)
            interrupted = any(each.kind == "interrupted" for each in self.info.problems)
            self.info.state = "interrupted" if interrupted else "finished"
        except StopNow:
            self.info.state = "interrupted"
            self._problem("interrupted", "The run was stopped at once, before all was collected.")
            raise
        except FloodmarkError as error:
            self._problem("not-started", str(error))
            raise
        except OSError as error:
            why = f"the host refused what the run needs: {refused(error)}"
            self._problem("not-started", why)
            raise FloodmarkError(why) from None
        finally:
            if cluster is not None:
                self._try(cluster.close)
                self._problems(cluster.problems)
                self.info.bypassed = cluster.bypassed
            self._faults.close()
            self._seal()

    def _start(self, cluster: ClusterUnderTest) -> None:
        """Bring the cluster up and record its versions and settings."""
        info = self.info
        self._progress.phase("starting the cluster")
        info.phases.start_us = now_us()
        # Nothing is worth saving yet: Ctrl-C here ends the run at once.
        self._interrupts.at_once = True
        cluster.start()
        self._interrupts.at_once = False
        if not self._system.simulated:
            took_ms = (now_us() - info.phases.start_us) // 1000
            info.failover_ms += max(self._system.restart_ms, took_ms)
        info.capabilities, info.promise = cluster.capabilities, cluster.promise
        info.partitions = {name: tuple(nodes) for name, nodes in cluster.partitions.items()}
        self._save()

    def _go_through(self, cluster: ClusterUnderTest) -> None:
        """Go through the storm and all later phases, even if an earlier one failed."""
        factory = ClientFactory(cluster=self.schedule.cluster, workload=self.schedule.workload)
        injector = Injector(
            self.schedule,
            cluster.world,
            cluster.view,
            random.Random(self.info.seed),
            self._record,
            clients=factory.working,
            voters=self.info.voters,
        )
        clients = cluster.clients()
        storm = Storm(
            self.schedule,
            self.info,
            cluster,
            clients,
            injector,
            session_ms=self._system.limits(self.schedule.cluster).session_ms,
            progress=self._progress,
            interrupts=self._interrupts,
        )
        try:
            for phase in storm.phases():
                began_us, before = now_us(), waited(cluster.output_folder)
                lost = Counter(cluster.undelivered)
                self._try(phase)
                if phase == storm.recover:
                    self.info.undelivered = dict(Counter(cluster.undelivered) - lost)
                    self._note_a_busy_machine(
                        "recovery", cluster.output_folder, before, began_us, storm.waited_for
                    )
                elif phase == storm.read_everything and clients.status.final == "running":
                    self._note_a_busy_machine(
                        "final reads", cluster.output_folder, before, began_us
                    )
                self._save()
            status = clients.status
            self.last_op_us = status.last_op_us
            if status.problem:
                self._problem("clients-ended", status.problem)
        finally:
            clients.close()
        self._try(lambda: self._collect(cluster))
        for sentence in injector.problems:
            self._problem("not-healed", sentence)
        self._note_interruption(storm)

    def _note_a_busy_machine(
        self,
        what: str,
        output: Path,
        before: Mapping[int, float],
        began_us: int,
        waited_for: str = "",
    ) -> None:
        """Note that a phase that took all its time, as it waited for something, proves nothing if
        processes could not run."""
        if now_us() - began_us < self.info.recovery_limit_ms * 1000:
            return
        # The looks take their time too, on such a machine.
        after = waited(output)
        if sentence := too_busy(what, before, after, (now_us() - began_us) / 1e6):
            more = f"; it waited for this: {waited_for}" if waited_for else ""
            if lost := self.info.undelivered:
                to = ", ".join(f"{count} to {node}" for node, count in sorted(lost.items()))
                more += f"; messages that did not get through: {to}"
            self._problem("too-busy", f"{sentence}{more}")

    def _note_interruption(self, storm: Storm) -> None:
        """Note that storm or recovery ended early: the run proves nothing about the rest."""
        if self._interrupts.terminated:
            self._problem("interrupted", "The run was ended by SIGTERM before it was over.")
        elif self._interrupts.asked and not storm.is_complete:
            self._problem(
                "interrupted", "The run was interrupted before its recovery was complete."
            )

    def _collect(self, cluster: ClusterUnderTest) -> None:
        """Stop the nodes and read out their logs."""
        self._progress.phase("stopping the cluster")
        cluster.stop()
        self.info.phases.end_us = now_us()
        self._progress.phase("reading the replicas' logs")
        for sentence in cluster.dump_logs(self.folder.path / "logs"):
            self._problem("log-not-read", sentence)
        # A reassignment leaves replicas elsewhere, and some systems tell them only by their logs.
        self.info.partitions = {p: tuple(nodes) for p, nodes in cluster.partitions.items()}
        self.info.membership = cluster.membership
        if self.info.membership is not None:
            self.info.brokers = self.info.membership.nodes

    def _try(self, part: Callable[[], None], kind: ProblemKind = "phase-failed") -> None:
        try:
            part()
        except FloodmarkError as error:
            self._problem(kind, str(error))
        except OSError as error:
            self._problem("disk-failed", f"the host refused: {refused(error)}")
        except MemoryError:
            self._problem(
                "no-memory", "the harness ran out of memory: free some, or run fewer nodes"
            )

    def _problem(self, kind: ProblemKind, sentence: str) -> None:
        self._problems([Problem(kind=kind, sentence=sentence)])

    def _problems(self, found: Iterable[Problem]) -> None:
        """Add problems; the gravest comes first. If the disk or the memory of the host caused one,
        it is of that kind."""
        by_cause = [msgspec.structs.replace(p, kind=kind_of(p.sentence) or p.kind) for p in found]
        self.info.problems = sorted(dict.fromkeys([*self.info.problems, *by_cause]), key=rank)

    def _record(self, line: FaultLine) -> None:
        self._faults.write(msgspec.json.encode(line) + b"\n")

    def _seal(self) -> None:
        """Write the last run.json, and seal the run; its verdict says if that fails."""
        self.folder.release()
        try:
            self.folder.write_info(self.info)
            self.folder.seal()
        except FloodmarkError as error:
            self._problem("not-saved", str(error))
            self._save()

    def _save(self) -> None:
        """Write run.json again; on a full disk the older one stays, which is good enough."""
        self._try(lambda: self.folder.write_info(self.info), "not-saved")


def first_info(
    schedule: Schedule,
    seed: int,
    system: System,
    *,
    world: str,
    now_us: int,
    name: str = "",
    run: str = "",
    links: str = "",
    disk: str = "",
) -> RunInfo:
    """Return the contents of `run.json` before a run begins; `now_us` is the clock of its world."""
    cluster, limits = schedule.cluster, system.limits(schedule.cluster)
    factory = ClientFactory(cluster=cluster, workload=schedule.workload)
    return RunInfo(
        run=run,
        name=name,
        seed=seed,
        schedule_digest=schedule.digest(),
        replay="",
        system=SystemVersion(
            name=system.name,
            version=system.version(),
            simulated=system.simulated,
            settings=system.settings,
            servers=system.servers,
            links=links,
            disk=disk,
        ),
        world=world,
        state="running",
        protocol=cluster.protocol,
        bugs=cluster.bugs,
        brokers=cluster.broker_names()[: cluster.brokers],
        voters=cluster.voter_names(),
        clients=factory.roles,
        epoch_us=0,
        monotonic_us=now_us,
        recovery_limit_ms=limits.recovery_ms,
        failover_ms=limits.failover_ms,
    )


def _info_of_a_process(order: RunOrder, folder: RunDir) -> RunInfo:
    """Return the same of a run of real processes, which has a host and a moment in history."""
    on, seed = order.on, order.schedule.workload.seed if order.seed is None else order.seed
    info = first_info(
        order.schedule,
        seed,
        on.system,
        world="real",
        now_us=now_us(),
        name=order.name,
        run=folder.run,
        links=on.links,
        disk=on.disk,
    )
    info.command = list(order.command)
    info.replay = command_line("run", *on.system.run_options(), "--schedule", folder.path)
    info.epoch_us = time.time_ns() // 1000
    info.versions, info.host = _versions(), _host()
    return info


def _versions() -> dict[str, str]:
    """Return the versions of the packages that decide a run, if installed."""
    versions = {"python": platform.python_version()}
    for name in _VERSIONED:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _host() -> dict[str, object]:
    return {
        "cpus": os.cpu_count() or 1,
        "process": os.getpid(),
        "load": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }


def machine() -> str:
    """Return the operating system and hardware of this machine, without its host name."""
    return (
        f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}, "
        f"Python {platform.python_version()}"
    )


class RunOutcome(NamedTuple):
    """A run that was made, in `seconds`. `verdict` is None if it has none; `error` says why.
    `interrupted`: a person or program asked it to stop."""

    folder: Path
    info: RunInfo
    seconds: float
    interrupted: bool
    verdict: RunResult | None
    error: FloodmarkError | None = None

    @property
    def result(self) -> RunResult:
        """The verdict. Raises the error if there is none."""
        if self.verdict is None:
            assert self.error is not None
            raise self.error
        return self.verdict


def run_once(
    order: RunOrder,
    *,
    quiet: bool = True,
    began: Callable[[Run, Progress], None] = lambda run, progress: None,
    spark: bool = False,
) -> RunOutcome:
    """Make a run and judge it. `began` is called when it has a folder. With `spark`, a large run is
    judged on Spark. Raises UsageError or StorageError if the run cannot begin. Main thread only."""
    if order.on.links == KERNEL_LINKS:
        namespaces.enter()
    started_s = time.monotonic()
    verdict = error = None
    with Interrupts() as interrupts, Progress(quiet=quiet) as progress:
        run = Run(order, progress=progress, interrupts=interrupts)
        began(run, progress)
        log = run.folder.path / "output" / "spark.txt"
        try:
            verdict = run_and_judge(run, progress, interrupts, SparkSoon(log) if spark else None)
        except FloodmarkError as raised:
            error = raised
    seconds, asked = time.monotonic() - started_s, interrupts.asked
    return RunOutcome(run.folder.path, run.info, seconds, asked, verdict, error)


def run_and_judge(
    run: Run, progress: Progress, interrupts: Interrupts, spark: SparkSoon | None = None
) -> RunResult:
    """Execute a run and judge it; if it repeats a finding, copy that beside it. `spark`, if given,
    judges a large run; it starts during the storm. Raises what `Run.execute` raises."""
    folder = run.folder.path
    try:
        run.execute(on_storm=lambda: get_ready(spark, run.schedule))
    except StopNow:
        progress.note(f"Stopped at once; to judge it: {command_line('check', folder)}")
        raise
    interrupts.at_once = True
    progress.phase("judging")
    result = judge([folder], spark, progress.note)[0]
    bring_finding(run.order.source, folder, progress.note)
    tidy(folder, result)
    return result
