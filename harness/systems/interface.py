"""The interface between the harness and a system under test.

`System` says what a system is, before any process runs: a new one is a subclass in a module of its
own (see `harness.systems.registry`). `ClusterUnderTest` is one cluster of it, `RunClients` the
clients of a run. Our own brokers (`harness.systems.floodmark`) are the first implementation. All
systems are judged by the same checks, as far as their evidence allows.

The phases (`harness.runs.storm`) call in this order: `launch`, `start`, `clients`, and ask them to
`go`; during the storm `poll` many times a second and `world` for each fault; after the heal they
ask the clients `healed`, `stop_writing` and `read_everything`; then `stop`, `dump_logs`,
`close`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from harness.clients.types import Status
from harness.formats.problem import Problem
from harness.formats.run_info import MemberRecord, Promise
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


ClientRequest = Literal["go", "operate", "healed", "stop_writing", "read_everything"]


class RunClients(Protocol):
    """The clients of a run, in whatever process; they write `history.jsonl`.

    A line is an `Op` (`harness.formats.history`), and every value of a run is written only once.
    The sessions of `harness.clients` speak our brokers' protocol; another system uses its own
    client library and writes the lines before and after its calls.

    `go` starts the workload, `operate` its operation of that number. After `healed`,
    acknowledgements of sends since that time count as recovery. After `stop_writing` producers
    begin no more operations; the caller waits for `status.writers_idle`. The final reads, which
    `read_everything` begins, are over once `status.final` is "done"."""

    @property
    def status(self) -> Status:
        """The latest known status; its `problem` is set when the clients cannot go on."""

    def ask(self, what: ClientRequest, *arguments: int) -> None:
        """Make a request to the clients."""

    def close(self) -> None:
        """End the clients."""


class ClusterUnderTest:
    """A replicated log of several processes that can be started, faulted, healed and read out.

    `view` knows the leaders, so that a fault can aim at `leader:log-0`. It is fed with trace
    events: by the cluster while that starts, afterwards by the caller of `poll`. A system whose
    nodes write no trace makes `role` and `isr` events (`node.formats.trace`) from the reports of
    its own tools. While the view knows no ISR, the recovery phase lasts until its limit (unless
    `tells_in_sync` is False), and faults that aim at a role take no effect."""

    view: ClusterView
    bypassed: tuple[str, ...] = ()
    """The connections between nodes that no link fault touches, a sentence each: those of the end
    of `start` and of `stop`."""

    @property
    def output_folder(self) -> Path:
        """The folder for the output of the processes."""
        return Path()

    @property
    def problems(self) -> list[Problem]:
        """The problems that the system did not cause, and that make the run unknown
        (`harness.formats.problem`). Such are a part of the harness that ended, or a signal to a
        process that the harness did not send."""
        return []

    @property
    def undelivered(self) -> dict[str, int]:
        """The number of messages so far that its links lost by no fault, because a receiver or the
        links themselves had no room for them."""
        return {}

    @property
    def capabilities(self) -> tuple[str, ...]:
        """The kinds of evidence that a run of it leaves for the checks: "trace", "logs", "hw",
        "epochs"."""
        return ()

    @property
    def tells_in_sync(self) -> bool:
        """Return whether its view learns which nodes are in sync; else no phase waits for that."""
        return True

    @property
    def promise(self) -> Promise:
        """The promise of the system in its present configuration."""
        raise NotImplementedError

    @property
    def partitions(self) -> dict[str, tuple[str, ...]]:
        """The nodes with a replica of each partition."""
        raise NotImplementedError

    @property
    def world(self) -> World:
        """The object through which faults act on its nodes and links; only after `start`."""
        raise NotImplementedError

    def start(self) -> None:
        """Start all processes; return when every partition can be written to. Raises FloodmarkError
        if that takes too long."""
        raise NotImplementedError

    def clients(self) -> RunClients:
        """Start the clients of the workload, which do nothing until `go`."""
        raise NotImplementedError

    def poll(self) -> list[TraceEvent]:
        """Return the trace events since the last call, in any order; also notice processes that
        ended."""
        raise NotImplementedError

    def ended(self) -> tuple[str, ...]:
        """Return the nodes whose process ended by itself (by no fault and no `stop`), as of the
        last `poll`."""
        raise NotImplementedError

    def resume_suspended(self) -> None:
        """Resume processes that neither a fault nor the harness has suspended, a problem of the
        run; called at the heal, and after the final reads."""

    def heal_members(self) -> bool:
        """Make the members of the start the members again, after the heal of all other faults;
        return whether that is over. Called again until it is."""
        return True

    @property
    def membership(self) -> MemberRecord | None:
        """The members at the start and at the end, if there were changes."""
        return None

    def stop(self) -> None:
        """Stop all processes that still run, in order if possible: the brokers first, while there
        is a controller, then the voters."""
        raise NotImplementedError

    def dump_logs(self, folder: Path) -> list[str]:
        """Write each node's logs to `folder`/<node>.jsonl; return problems as sentences. An empty
        log is written too, because a partition without an opening line counts as missing from the
        dump."""
        return []

    def close(self) -> None:
        """End all processes and free all ports. May be called at any moment, and twice."""


class Limits(NamedTuple):
    """The time limits of a system in ms: `session_ms` until a silent node counts as dead,
    `recovery_ms` from the heal to progress in every partition, `failover_ms` from the death of a
    leader to the next acknowledgement."""

    session_ms: int
    recovery_ms: int
    failover_ms: int


class System:
    """A replicated log that can be put under test. The registry sets `name`.

    `summary` is a line for `floodmark systems`, `needs` says what must be installed for it.
    `faults` are the kinds of faults it can take, from which a storm is drawn. `simulated`: its
    schedules also run in the simulated world (`harness.sim`), which knows only our own brokers.
    `link_forms` are the forms of links between its nodes, the usual one first; with NO_LINKS they
    are connected directly, and no fault on links is possible. `disk_forms` are the forms of its
    nodes' disks (`harness.systems.disks`). `unused` are options of `floodmark run` that mean
    nothing to it. `idempotent`: it supports idempotent producers. `restart_ms` is the time from the
    start of a node until it takes part again, `change_ms` that of a change of the cluster at most,
    `change_after_ms` that from the start until one is possible; an operator does `operations`."""

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
    change_ms: int = 5000
    change_after_ms: int = 0
    operations: tuple[str, ...] = ()

    def launch(
        self, schedule: Schedule, folder: RunDir, *, links: str, disk: str
    ) -> ClusterUnderTest:
        """Return a cluster for a schedule, in a run folder; no process starts yet. `links` is one
        of `link_forms`, `disk` one of `disk_forms`."""
        raise NotImplementedError

    def with_settings(self, given: Mapping[str, str]) -> System:
        """Return the same system with other values of its settings. Raises UsageError for an
        unknown one."""
        for name in given:
            raise UsageError(f"system '{self.name}' has no setting '{name}'")
        return self

    @property
    def settings(self) -> dict[str, str]:
        """The value of each setting; also kept in run.json."""
        return {}

    @property
    def servers(self) -> dict[str, str]:
        """The SHA-256 of each version in which its nodes may run, if there are several."""
        return {}

    @property
    def programs(self) -> dict[str, str]:
        """The defaults of the settings that name a program, which no file may choose."""
        return {}

    @property
    def safe_settings(self) -> dict[str, str] | None:
        """The settings of the configuration that is declared safe; None if there is none."""
        return None

    def setting_help(self) -> tuple[str, ...]:
        """Return a line for each setting: its name, its default, its purpose."""
        return ()

    def link_form(self, asked: str | None) -> str:
        """Return the requested form of links, or the usual one for None. Raises UsageError."""
        if asked is None:
            return self.link_forms[0]
        if asked not in self.link_forms:
            raise UsageError(
                f"--links is '{asked}', but for system '{self.name}' it can only be "
                f"{', '.join(self.link_forms)}"
            )
        return asked

    def disk_form(self, asked: str | None, kinds: Collection[str] = ()) -> str:
        """Return the requested form of disks, or the one for faults of these kinds. Raises
        UsageError."""
        return choose(asked, self.disk_forms, kinds)

    def link_abilities(self, form: str) -> LinkAbilities | None:
        """Return what links of this form can do to messages; None if there are direct
        connections."""
        return None

    @property
    def has_members(self) -> bool:
        """Whether members of a group consume what clients send."""
        return False

    def workload(self, workload: Workload) -> Workload:
        """Return a workload, changed so that this system can take it."""
        return workload

    def version(self) -> str:
        """Return the version that would run, "" if that is unknown."""
        return ""

    @property
    def short_name(self) -> str:
        """The name of the system without the path of its module or file."""
        return self.name.rpartition(":")[2]

    def complete(self, cluster: Cluster) -> Cluster:
        """Return the cluster with the full names of its protocol (of another system: the system's
        name) and bugs, and the voters that the system has. Raises UsageError for an unknown one."""
        if cluster.bugs:
            raise UsageError(f"system '{self.name}' has no bug '{cluster.bugs[0]}'")
        own = self.short_name
        if cluster.protocol not in (Cluster().protocol, own):
            raise UsageError(f"system '{self.name}' has no protocol '{cluster.protocol}'")
        return msgspec.structs.replace(cluster, protocol=own, voters=0)

    def check(self, schedule: Schedule) -> None:
        """Refuse a schedule that this system cannot carry out. Raises UsageError."""
        if schedule.workload.idempotent and not self.idempotent:
            raise UsageError(f"the clients of system '{self.name}' have no idempotent producers")
        if schedule.workload.members and not self.simulated:
            raise UsageError(
                f"--members is about our own brokers; with system '{self.name}' use --set members=N"
            )
        if schedule.cluster.spares and "join" not in self.faults:
            raise UsageError(f"system '{self.name}' has no spares: nothing can join it")
        for index, fault in enumerate(schedule.faults):
            kind = fault.what
            if kind not in self.faults:
                raise UsageError(f"fault {index} ({kind}): {self._refusal(kind)}")
            if kind in wall_clocks.KINDS_OF_CLOCKS:
                wall_clocks.library()
            elif kind == strace.SYSCALL:
                strace.program()

    def check_kinds(self, kinds: tuple[str, ...]) -> None:
        """Refuse kinds of faults that this system cannot take. Raises UsageError."""
        for kind in kinds:
            if kind not in self.faults:
                raise UsageError(self._refusal(kind))

    def limits(self, cluster: Cluster) -> Limits:
        """Return the time limits for the system in this cluster."""
        return Limits(session_ms=5_000, recovery_ms=30_000, failover_ms=10_000)

    def baseline(self, schedule: Schedule) -> Schedule | None:
        """Return the schedule under a protocol that is expected to hold, to compare a failed run
        with it in the simulated world; None if there is none."""
        return None

    def run_options(self) -> tuple[str, ...]:
        """Return the options of `floodmark run` that select this system and its settings."""
        return ("--system", self.name)

    def _refusal(self, kind: str) -> str:
        return f"system '{self.name}' cannot take '{kind}' (it can: {', '.join(self.faults)})"
