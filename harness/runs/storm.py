"""The middle of a run: storm, heal, recovery, end of writing, final reads.

There are no fixed sleeps: a phase ends when its condition is met, or at its time limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, NamedTuple

from harness.formats.run_info import RunInfo
from harness.runs.clock import Pace, RealPace
from harness.runs.interrupts import Interrupts
from harness.systems.interface import ClusterUnderTest, RunClients
from nemesis.faults.words import listing
from nemesis.formats.schedule import Schedule
from nemesis.injector import Injector
from node.formats.trace import METADATA_PARTITION

SHOW_EVERY_S: Final = 0.25
LEAST_RECOVERY_S: Final = 2.0
STOP_MARGIN_S: Final = 2.0
PATIENCE_S: Final = 60.0
"""Final reads that make progress may take so much longer than the storm."""
CLIENTS_START_S: Final = 30.0
CATCH_UP_S: Final = 1.0
MEMBERS_S: Final = 600.0
"""A bound for the final heal of members, which has limits of its own."""
_PASSING: Final = ("node-ended", "suspended")


class ProgressState(NamedTuple):
    """The state of a run at one moment: operations so far, leaders by partition, active faults."""

    acked: int = 0
    failed: int = 0
    unknown: int = 0
    leaders: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


class ProgressDisplay:
    """A display of the phases of a run. This base class shows nothing."""

    def phase(self, name: str, limit_s: float = 0.0) -> None:
        """Show that a new phase begins; it should take `limit_s` seconds (0: unknown)."""

    def show(self, moment: ProgressState) -> None:
        """Show the state of the run at one moment."""


@dataclass(eq=False)
class Storm:
    """The phases of clients and fault injector in a run; `info.phases` gets the start of each
    phase. All parts must be ready; nothing happens before `run_storm`. `session_ms` is how long the
    system lets a silent node count as alive; `pace` is how time passes (None: real time).

    Any phase may raise FloodmarkError (the link hub died, ..); the other phases can still be
    tried. `is_complete`: storm and recovery took place as planned, so a later interrupt costs no
    evidence. `waited_for`: what the recovery lacked when its time was over, "" if nothing."""

    schedule: Schedule
    info: RunInfo
    cluster: ClusterUnderTest
    clients: RunClients
    injector: Injector
    _: KW_ONLY
    session_ms: int
    progress: ProgressDisplay = field(default_factory=ProgressDisplay)
    interrupts: Interrupts | None = None
    pace: Pace | None = None
    waited_for: str = field(default="", init=False)
    is_complete: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._pace = RealPace() if self.pace is None else self.pace
        self._next_step_ms: int | None = 0
        self._shown_us = 0
        self._started_again: set[str] = set()

    @property
    def _asked_to_stop(self) -> bool:
        return self.interrupts is not None and self.interrupts.asked

    def phases(self) -> tuple[Callable[[], None], ...]:
        return (self.run_storm, self.heal, self.recover, self.stop_writing, self.read_everything)

    def run_storm(self) -> None:
        """Run workload and faults for the duration of the schedule."""
        # The process of the clients may still be starting; faults wait until it reports.
        self._until(lambda: self.clients.status.t_us > 0, CLIENTS_START_S)
        duration_s = self.schedule.workload.duration_ms / 1000
        self.progress.phase("storm", duration_s)
        self.info.phases.storm_us = self._pace.now_us()
        self.clients.ask("go")
        # From the first step on the injector counts events.
        self._next_step_ms = self.injector.step(0)
        self._until(lambda: self._asked_to_stop or self._played(), duration_s, faults=True)
        self.is_complete = not self._asked_to_stop

    def _played(self) -> bool:
        """Return whether a scripted storm is over: nothing waits, no client is at work."""
        if not self.schedule.workload.scripted:
            return False
        status = self.clients.status
        return (
            self.injector.exhausted
            and status.operated == self.injector.operated
            and status.writers_idle
        )

    def heal(self) -> None:
        """End all faults; from here on the cluster must make progress."""
        if not self.info.phases.storm_us:
            return
        self.cluster.resume_suspended()  # a suspended hub would answer no heal
        self.injector.heal_all()
        self._until(self.cluster.heal_members, MEMBERS_S)
        self.injector.note_outcomes()
        self.info.phases.heal_us = self._pace.now_us()
        self.clients.ask("healed", self.info.phases.heal_us)

    def recover(self) -> None:
        """Keep writing for a minimum time, until every partition has acknowledged a write and has
        all replicas in sync; if clients cannot write, only until the latter."""
        limit_s = self.info.recovery_limit_ms / 1000
        if not self.info.phases.heal_us or self._asked_to_stop:
            self.is_complete = False
            return
        self.progress.phase("recovery", limit_s)
        enough_us = self._pace.now_us() + round(self._patient_s(LEAST_RECOVERY_S) * 1e6)
        writes = self.schedule.workload.clients > 0
        names = self.schedule.cluster.partition_names()
        wanted = set(names) if writes else set()
        healed = {name: self.cluster.view.hw(name) for name in names}

        def recovered() -> bool:
            if not self.info.phases.in_sync_us and self._all_in_sync(healed):
                self.info.phases.in_sync_us = self._pace.now_us()
            long_enough = self._pace.now_us() >= enough_us
            acked = self.clients.status.progress.keys() >= wanted
            return long_enough and acked and self.info.phases.in_sync_us > 0

        self._until(lambda: recovered() or self._asked_to_stop, limit_s)
        if not recovered():
            self.waited_for = self._not_recovered(healed, wanted)
        self.is_complete = self.is_complete and not self._was_cut_short(recovered)
        progress = self.clients.status.progress
        if wanted and progress.keys() >= wanted:
            self.info.phases.recovered_us = max(progress.values(), default=0)

    def _not_recovered(self, healed: Mapping[str, int], wanted: set[str]) -> str:
        """Name what the recovery waited for: the first partition without a leader, with a replica
        that is not in sync, or without an acknowledgement; "" if there is none."""
        view, found = self.cluster.view, list[str]()
        for name in healed:
            leader, lacking = view.leader(name), sorted({*view.replicas(name)} - {*view.isr(name)})
            if leader is None and view.leader_epoch(name) >= 0:
                found.append(f"{name} had no leader")
            elif self.cluster.tells_in_sync and lacking and view.isr(name):
                found.append(f"{listing(lacking)} of {name} not in sync")
            elif name in wanted - self.clients.status.progress.keys():
                found.append(f"{name} acknowledged nothing")
        more = f" (and {len(found) - 1} more)" if found[1:] else ""
        return f"{found[0]}{more}" if found else ""

    def _was_cut_short(self, is_over: Callable[[], bool]) -> bool:
        """Return whether an interrupt ended a phase before its time."""
        return self._asked_to_stop and not is_over()

    def _all_in_sync(self, healed: Mapping[str, int]) -> bool:
        """Return whether each partition's ISR has all replicas, or the system has none and all are
        past `healed`, the high watermark after the heal, or never says."""
        view = self.cluster.view
        return not self.cluster.tells_in_sync or all(
            len(view.isr(name)) >= max(1, len(view.replicas(name)))
            or (not view.isr(name) and view.common_hw(name) > hw)
            for name, hw in healed.items()
        )

    def stop_writing(self) -> None:
        """Let producers finish what they have begun."""
        self.progress.phase("letting writers finish")
        asked_us = self._pace.now_us()
        self.clients.ask("stop_writing")

        def finished() -> bool:
            status = self.clients.status
            return status.t_us > asked_us and status.writers_idle

        self._until(finished, self.schedule.workload.timeout_ms / 1000 + STOP_MARGIN_S)
        self.info.phases.stop_writing_us = self._pace.now_us()

    def read_everything(self) -> None:
        """Read every partition to its end with new clients, for as long as they make progress."""
        self.progress.phase("final reads")
        began_us = progressed_us = self.info.phases.final_us = self._pace.now_us()
        patience_us = self.info.recovery_limit_ms * 1000
        self.clients.ask("read_everything")
        seen = self.clients.status.read_records

        def over() -> bool:
            nonlocal seen, progressed_us
            status, now_us = self.clients.status, self._pace.now_us()
            if status.read_records > seen:
                seen, progressed_us = status.read_records, now_us
            # A replica that was behind at the last moment is given time to catch up.
            late = now_us - began_us >= self._patient_s(CATCH_UP_S) * 1e6
            done = status.final == "done" and (late or self._are_alike())
            return done or now_us - progressed_us >= patience_us

        self._until(over, PATIENCE_S + self.schedule.workload.duration_ms / 1000)
        self.cluster.resume_suspended()

    def _are_alike(self) -> bool:
        """Return whether all replicas are known to have equal logs. False in a simulated world:
        waiting saves no time there, and would change recorded schedules' runs."""
        view = self.cluster.view
        names = self.schedule.cluster.partition_names()
        replicas = {name: view.replicas(name) for name in names}
        if len(self.info.voters) > 1:
            replicas[METADATA_PARTITION] = self.info.voters
        if self.pace is not None or not all(
            view.have_equal_logs(*each) for each in replicas.items()
        ):
            return False
        self.info.phases.alike_us = self._pace.now_us()
        return True

    def _patient_s(self, at_most_s: float) -> float:
        """Return the time to wait for a slow event: two sessions, at most `at_most_s`."""
        return min(at_most_s, 2 * self.session_ms / 1000)

    def _until(self, is_over: Callable[[], bool], limit_s: float, *, faults: bool = False) -> bool:
        """Let time pass until `is_over`; False when `limit_s` passed, or the clients gave up."""
        deadline_us = self._pace.now_us() + round(limit_s * 1e6)
        while not is_over():
            if self._is_broken(in_storm=faults):
                return False
            if self._pace.now_us() >= deadline_us:
                if faults:
                    self._catch_up(round(limit_s * 1000))
                return False
            self._watch(faults)
            if self.info.phases.heal_us:
                self._start_what_others_ended()
            self._show()
            wake_us = deadline_us
            if faults and self._next_step_ms is not None:
                wake_us = min(wake_us, self.info.phases.storm_us + self._next_step_ms * 1000)
            self._pace.wait(wake_us)
        return True

    def _is_broken(self, *, in_storm: bool) -> bool:
        """Return whether there is no point in waiting any longer, because the cluster or the
        clients are broken. A process that was ended from outside does not count, because the heal
        starts another, nor one that was suspended, because it goes on."""
        problems = self.cluster.problems
        if problems and any(in_storm or problem.kind not in _PASSING for problem in problems):
            return True
        return bool(self.clients.status.problem)

    def _start_what_others_ended(self) -> None:
        """After the heal, start each node once that was ended from outside since."""
        if not any(problem.kind == "node-ended" for problem in self.cluster.problems):
            return
        world = self.cluster.world
        for node in (*self.info.voters, *self.info.brokers):
            if node not in self._started_again and not world.is_up(node):
                self._started_again.add(node)
                world.start(node)

    def _watch(self, faults: bool) -> None:
        """Feed the injector with what happens; during the storm, let it act."""
        for event in self.cluster.poll():
            # What an event triggers is done before the next one is looked at.
            if self.injector.observe(event) and faults:
                self._next_step_ms = self.injector.step(self._storm_ms())
        if faults and self._next_step_ms is not None and self._storm_ms() >= self._next_step_ms:
            self._next_step_ms = self.injector.step(self._storm_ms())

    def _catch_up(self, end_ms: int) -> None:
        """Do what was due before the end of the storm; late is better than never."""
        while self._next_step_ms is not None and self._next_step_ms < end_ms:
            self._next_step_ms = self.injector.step(end_ms - 1)

    def _storm_ms(self) -> int:
        return (self._pace.now_us() - self.info.phases.storm_us) // 1000

    def _show(self) -> None:
        now_us = self._pace.now_us()
        if now_us - self._shown_us < SHOW_EVERY_S * 1e6:
            return
        self._shown_us = now_us
        status, view = self.clients.status, self.cluster.view
        partitions = self.schedule.cluster.partition_names()
        self.progress.show(
            ProgressState(
                acked=status.acked,
                failed=status.failed,
                unknown=status.unknown,
                leaders=tuple(view.leader(partition) or "" for partition in partitions),
                faults=self.injector.active(),
            )
        )
