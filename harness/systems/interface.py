"""The interface between the harness and a system under test.

`System` says what a system is, before any process runs: a new one is a subclass in a module of its
own (see `harness.systems.registry`). `ClusterUnderTest` is one cluster of it, `RunClients` the
clients of a run. Our own brokers (`harness.systems.floodmark`) are the first implementation. All
are judged by the same checks, as far as their capabilities go.

The phases (`harness.runs.storm`) call in this order: `launch`, `start`, `clients`, `RunClients.go`;
during the storm `poll` many times a second and `world` for each fault; after the heal
`RunClients.healed`, `stop_writing`, `read_everything`, `close`; then `stop`, `dump_logs`, `close`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec

from harness.clients.types import Status
from harness.formats.problem import Problem
from harness.formats.run_info import Promise
from harness.runs.run_folder import RunDir
from harness.systems.disks import PLAIN, choose
from nemesis import strace, wall_clocks
from nemesis.formats.schedule import Cluster, Schedule, Workload
from nemesis.links.abilities import LinkAbilities
from nemesis.ready_made import RESTART_MS
from nemesis.view import ClusterView
from nemesis.world import World
from node.formats.errors import UsageError
from node.formats.trace import TraceEvent

NO_LINKS: Final = "none"


class RunClients(Protocol):
    """The clients of a run, wherever they live; they write `history.jsonl`.

    A line is an `Op` (`harness.formats.history`), and every value of a run is written once only.
    The sessions of `harness.clients` speak our brokers' protocol; another system brings its own
    client library and writes the lines around its calls.
    """

    @property
    def pid(self) -> int:
        """The process that they live in."""

    @property
    def status(self) -> Status:
        """The newest status known; its `problem` is set when the clients can do no more."""

    def go(self) -> None:
        """Start the workload."""

    def operate(self, operation: int) -> None:
        """Have its client begin an operation of the workload, by its number."""

    def healed(self, t_us: int) -> None:
        """Tell from when on an acknowledgement counts as recovery."""

    def stop_writing(self) -> None:
        """Have producers invoke nothing more; wait for `status.writers_idle`."""

    def read_everything(self) -> None:
        """Begin the final reads; they are over once `status.final` is "done"."""

    def close(self) -> None:
        """End them."""


class ClusterUnderTest:
    """A replicated log of several processes that can be started, faulted, healed and read out.

    `view` knows who leads what, so that a fault can aim at `leader:log-0`: it is kept up to date
    while the cluster starts, afterwards by the caller of `poll`. It is fed with trace events. A
    system whose nodes write no trace makes `role` and `isr` events (`node.formats.trace`) of what
    its own tools report. While the view knows no ISR, the recovery phase lasts until its limit
    (unless `tells_in_sync` is False), and faults that aim at a role take no effect.
    """

    view: ClusterView

    @property
    def output_folder(self) -> Path:
        """The folder where its processes print, if they do."""
        return Path()

    @property
    def problems(self) -> list[Problem]:
        """The problems that the system did not cause: a part of the harness that ended, a process
        ended by a signal that the harness did not send (`harness.formats.problem`). They make a run
        unknown."""
        return []

    @property
    def rejected(self) -> dict[str, int]:
        """By process, how often it refused what came from outside of the run; a process that cannot
        know is left out."""
        return {}

    @property
    def capabilities(self) -> tuple[str, ...]:
        """The evidence that a run of it leaves for the checks: "trace", "logs", "hw", "epochs"."""
        return ()

    @property
    def goes_on(self) -> bool:
        """Return whether `stop` and `close` leave the nodes running, for another run."""
        return False

    @property
    def tells_in_sync(self) -> bool:
        """Return whether its view comes to know who is in sync; else no phase waits for that."""
        return True

    @property
    def promise(self) -> Promise:
        """The promise of the system in its present configuration."""
        raise NotImplementedError

    @property
    def partitions(self) -> dict[str, tuple[str, ...]]:
        """Partition -> its replicas."""
        raise NotImplementedError

    @property
    def world(self) -> World:
        """The way in which faults act on its nodes and links; only after `start`."""
        raise NotImplementedError

    def start(self) -> None:
        """Start all processes; return when every partition can be written to.

        Raises FloodmarkError, in one sentence, when that does not come.
        """
        raise NotImplementedError

    def clients(self) -> RunClients:
        """Start the clients of the workload, silent until `go`."""
        raise NotImplementedError

    def poll(self) -> list[TraceEvent]:
        """Return the trace events since the last call, in any order; also notice processes that
        ended."""
        raise NotImplementedError

    def ended(self) -> tuple[str, ...]:
        """Return the nodes whose process ended by itself (by no fault and no `stop`), as far as
        `poll` has seen."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop everything that still runs, cleanly if possible: brokers while there is still a
        controller, then voters."""
        raise NotImplementedError

    def dump_logs(self, folder: Path) -> list[str]:
        """Write each replica's log to `folder`/<node>.jsonl, empty ones too: a partition without
        its opening line was left out of the dump. Return problems, in sentences."""
        return []

    def close(self) -> None:
        """Leave nothing behind: no process, no port. May be called at any moment, and twice."""


class Limits(NamedTuple):
    """The time that a system may take, in ms: until a silent node counts as dead, from the heal to
    progress in every partition, and from the death of a leader to the next acknowledgement."""

    session_ms: int
    recovery_ms: int
    failover_ms: int


class System:
    """A replicated log that can be put under test.

    The registry sets `name`. `summary` is a line for `floodmark systems`, `needs` what must be
    installed for it. `faults` are the kinds of faults it can take, of which a storm is drawn.
    `simulated`: its schedules also run in the simulated world (`harness.sim`), which knows our own
    brokers only. `link_forms` are what can stand between its nodes, the usual one first; with
    NO_LINKS they are connected directly, and no fault on links is possible. `disk_forms` are what
    the disks of its nodes can be (`harness.systems.disks`). `unused` are options of `floodmark run`
    that mean nothing to it. `idempotent`: its producers may be. `restart_ms` is how long a node
    takes until it takes part again.
    """

    name: str = ""
    summary: str = ""
    needs: str = ""
    faults: Collection[str] = ("kill", "pause", "restart", "stop")
    simulated: bool = False
    link_forms: tuple[str, ...] = (NO_LINKS,)
    disk_forms: tuple[str, ...] = (PLAIN,)
    unused: tuple[str, ...] = ()
    idempotent: bool = False
    restart_ms: int = RESTART_MS

    def launch(
        self, schedule: Schedule, folder: RunDir, *, links: str, disk: str
    ) -> ClusterUnderTest:
        """Return a cluster as the schedule describes it, in a run folder; no process starts yet.
        `links` is one of `link_forms`, `disk` one of `disk_forms`."""
        raise NotImplementedError

    def with_settings(self, given: Mapping[str, str]) -> System:
        """Return the same system with settings of its own. Raises UsageError for one that it has
        not."""
        for name in given:
            raise UsageError(f"system '{self.name}' has no setting '{name}'")
        return self

    @property
    def settings(self) -> dict[str, str]:
        """The value of each setting; also kept in run.json."""
        return {}

    @property
    def safe_settings(self) -> dict[str, str] | None:
        """The settings of the configuration that is declared safe; None where none is."""
        return None

    def setting_help(self) -> tuple[str, ...]:
        """Return a line for each setting: its name, its default, what it is for."""
        return ()

    def link_form(self, asked: str | None) -> str:
        """Return the form of the links that is asked for, or the usual one. Raises UsageError."""
        if asked is None:
            return self.link_forms[0]
        if asked not in self.link_forms:
            raise UsageError(
                f"--links is '{asked}', but for system '{self.name}' it can only be "
                f"{', '.join(self.link_forms)}"
            )
        return asked

    def disk_form(self, asked: str | None, kinds: Collection[str] = ()) -> str:
        """Return the form of the disks that is asked for, or the one for faults of these kinds.
        Raises UsageError."""
        return choose(asked, self.disk_forms, kinds)

    def link_abilities(self, form: str) -> LinkAbilities | None:
        """Return what links of this form can do; None: the nodes are connected directly."""
        return None

    def workload(self, workload: Workload) -> Workload:
        """Return the usual workload as this system can take it."""
        return workload

    def version(self) -> str:
        """Return which version would run, "" when that cannot be known."""
        return ""

    @property
    def short_name(self) -> str:
        """Its name without the place where it is defined."""
        return self.name.rpartition(":")[2]

    def complete(self, cluster: Cluster) -> Cluster:
        """Return the cluster with its protocol (for one that has a single one: the system's name)
        and its bugs spelled out. Raises UsageError for what this system does not know."""
        if cluster.bugs:
            raise UsageError(f"system '{self.name}' has no bug '{cluster.bugs[0]}'")
        own = self.short_name
        if cluster.protocol not in (Cluster().protocol, own):
            raise UsageError(f"system '{self.name}' has no protocol '{cluster.protocol}'")
        return msgspec.structs.replace(cluster, protocol=own)

    def check(self, schedule: Schedule) -> None:
        """Raise UsageError for what this system cannot carry out."""
        if schedule.workload.idempotent and not self.idempotent:
            raise UsageError(f"the clients of system '{self.name}' have no idempotent producers")
        for index, fault in enumerate(schedule.faults):
            kind = fault.what
            if kind not in self.faults:
                raise UsageError(f"fault {index} ({kind}): {self._refusal(kind)}")
            if kind in wall_clocks.KINDS_OF_CLOCKS:
                wall_clocks.library()
            elif kind == strace.SYSCALL:
                strace.program()

    def check_kinds(self, kinds: tuple[str, ...]) -> None:
        """Raise UsageError when a storm shall have a kind of fault that this system cannot take."""
        for kind in kinds:
            if kind not in self.faults:
                raise UsageError(self._refusal(kind))

    def voters(self, cluster: Cluster) -> tuple[str, ...]:
        """Return the nodes beside the brokers that keep the metadata."""
        return ()

    def limits(self, cluster: Cluster) -> Limits:
        """Return how long to wait for it."""
        return Limits(session_ms=5_000, recovery_ms=30_000, failover_ms=10_000)

    def baseline(self, schedule: Schedule) -> Schedule | None:
        """Return the schedule under a protocol that should hold, to compare a failing run with in
        simulated worlds; None if there is none."""
        return None

    def run_options(self) -> tuple[str, ...]:
        """Return the options of `floodmark run` that name this system as it was asked for."""
        return ("--system", self.name)

    def _refusal(self, kind: str) -> str:
        return f"system '{self.name}' cannot take '{kind}' (it can: {', '.join(self.faults)})"
