"""An adapter as a system under test: its answers to what the harness asks before a process runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import msgspec

from harness.systems.adapter import Adapter
from harness.systems.disks import DECLARED, KINDS_ON, PLAIN, USER_SPACE
from harness.systems.external import calls
from harness.systems.external.links import ABILITIES
from harness.systems.external.load import AdapterChoice, complete_settings, settings_of
from harness.systems.external.versions import servers_of
from harness.systems.interface import NO_LINKS, Limits, System
from nemesis.faults import KINDS, Operate, Upgrade, kinds_on
from nemesis.formats.schedule import Cluster, Schedule, Send, Timings, Workload
from nemesis.links.abilities import LinkAbilities
from nemesis.strace import SYSCALL
from nemesis.wall_clocks import KINDS_OF_CLOCKS
from node.formats.errors import FloodmarkError, UsageError

if TYPE_CHECKING:
    from harness.runs.run_folder import RunDir
    from harness.systems.external.cluster import ExternalCluster

VERSION_TIMEOUT_S: Final = 10.0
LEAST_RECOVERY_MS: Final = 15_000
FAILOVERS_OF_A_RECOVERY: Final = 4
_LAG_MS: Final = 1000
_BY_SIGNALS: Final = ("kill", "stop", "restart", "pause", "resume")
_OURS: Final = ("voters", "min_isr", "flush", "protocol", "retention_records", "fetch_max_bytes")


class ExternalSystem(System):
    """A third-party system, through its adapter."""

    unused = _OURS
    link_forms: tuple[str, ...] = (*ABILITIES, NO_LINKS)
    disk_forms: tuple[str, ...] = (PLAIN, USER_SPACE)

    def __init__(self, place: str, adapter: type[Adapter], given: Mapping[str, str]) -> None:
        """Keep the class, with its settings. `place` is where other processes find the class;
        `given` are settings."""
        self._place = place
        self.adapter = adapter
        self._given = dict(given)
        self.name = place
        self.summary = adapter.summary
        self.needs = adapter.needs
        self.restart_ms, self.change_ms = adapter.restart_ms, adapter.change_ms
        self.change_after_ms, self.operations = adapter.change_after_ms, adapter.operations
        if adapter.links_needed:
            self.link_forms = (adapter.links_needed, NO_LINKS)
        if adapter.unsynced:
            self.disk_forms = (PLAIN, USER_SPACE, DECLARED)

    def with_settings(self, given: Mapping[str, str]) -> Self:
        made = type(self)(self._place, self.adapter, given)
        made.name = self.name
        complete_settings(self.name, settings_of(self.adapter), given)
        return made

    @property
    def short_name(self) -> str:
        """The name of the system; for an adapter that is not installed, the name of its class."""
        installed = ":" not in self.name and not self.name.endswith(".py")
        return self.name if installed else self.adapter.__name__

    @property
    def settings(self) -> dict[str, str]:
        return complete_settings(self.name, settings_of(self.adapter), self._given)

    @property
    def servers(self) -> dict[str, str]:
        return {server.name: server.sha256 for server in servers_of(self._made)}

    @property
    def programs(self) -> dict[str, str]:
        return {one.name: one.default for one in settings_of(self.adapter) if one.program}

    @property
    def safe_settings(self) -> dict[str, str] | None:
        """The adapter's settings, with the safe value of each that has one; None if none has."""
        safe = {one.name: one.safe for one in self.adapter.settings if one.safe}
        return {**self._given, **safe} if safe else None

    def setting_help(self) -> tuple[str, ...]:
        return tuple(
            f"{one.name}={one.default}"
            + f" ({', '.join(one.values)})" * bool(one.values)
            + f": {one.help}"
            + f"; {one.safe} is safe" * bool(one.safe)
            for one in settings_of(self.adapter)
        )

    @property
    def choice(self) -> AdapterChoice:
        """The adapter with its settings, for other processes."""
        return AdapterChoice(place=self._place, settings=self.settings)

    @property
    def faults(self) -> Collection[str]:  # type: ignore[override]
        """The kinds of faults that can be done to any process, its disk, its clock and its links,
        restricted to the adapter's `faults`."""
        possible = {*_BY_SIGNALS, *KINDS_ON[USER_SPACE], SYSCALL}
        if self.adapter.clock_by_libc:
            possible |= KINDS_OF_CLOCKS
        possible |= {*self._made.changes}
        possible |= {"operate"} if self.operations else set()
        for abilities in ABILITIES.values():
            possible |= set(kinds_on(abilities)) - set(kinds_on(None))
        declared = self.adapter.faults
        return tuple(k for k in KINDS if k in possible and (declared is None or k in declared))

    def link_abilities(self, form: str) -> LinkAbilities | None:
        return ABILITIES.get(form)

    def launch(
        self, schedule: Schedule, folder: RunDir, *, links: str, disk: str = PLAIN
    ) -> ExternalCluster:
        from harness.systems.external.cluster import ExternalCluster

        return ExternalCluster(self.choice, self.name, schedule, folder, links, disk)

    def version(self) -> str:
        return self._version

    @cached_property
    def _version(self) -> str:
        for one in self.adapter.settings:
            place = self.settings[one.name]
            if one.program and place != one.default and not Path(place).exists():
                raise UsageError(f"--set {one.name}={place}: there is no such file or folder")
        servers_of(self._made)
        try:
            return str(calls.begin(self._made.version, timeout_s=VERSION_TIMEOUT_S).result())
        except FloodmarkError:
            raise
        except calls.Late as error:
            raise FloodmarkError(f"system '{self.name}': {error}") from None
        except Exception as error:
            raise UsageError(
                f"system '{self.name}': version raised {calls.in_words(error)}"
            ) from None

    @cached_property
    def _made(self) -> Adapter:
        return self.choice.load()

    def complete(self, cluster: Cluster) -> Cluster:
        """Return the cluster with the voters that the adapter needs, and with timings that match
        its failover time."""
        cluster = msgspec.structs.replace(super().complete(cluster), voters=self._made.voters)
        if cluster.timings == Timings():
            session_ms = max(self.adapter.failover_ms // 2, 2 * Timings().heartbeat_ms)
            timings = msgspec.structs.replace(
                cluster.timings, session_ms=session_ms, lag_ms=_LAG_MS
            )
            cluster = msgspec.structs.replace(cluster, timings=timings)
        return cluster

    def check(self, schedule: Schedule) -> None:
        """Refuse a schedule that this system cannot carry out, or if its server is not installed.
        Raises UsageError."""
        super().check(schedule)
        work = schedule.workload
        counts = [one.count for one in work.operations if isinstance(one, Send)]
        if max(work.batch, work.batch_most, *counts) > 1:
            raise UsageError(
                f"system '{self.name}' takes one record a send: --batch must be 1, and in a "
                "schedule batch_most 0 and each count 1"
            )
        if not (self.adapter.writes("read") or self.has_members):
            raise UsageError(f"system '{self.name}' cannot be read: it needs --set members=N")
        self._check_changes(schedule)
        self.version()

    def _check_changes(self, schedule: Schedule) -> None:
        """Refuse changes of version without versions, and unknown actions of an operator."""
        known = len(servers_of(self._made))
        for index, fault in enumerate(schedule.faults):
            where = f"fault {index} ({fault.what})"
            if isinstance(fault, Upgrade) and (fault.protocol or known < 2):
                raise UsageError(f"{where}: needs --set servers=A,B, and no protocol")
            if isinstance(fault, Operate) and fault.action not in self.operations:
                there = ", ".join(self.operations)
                raise UsageError(f"{where}: '{fault.action}' is none of {there}")

    @property
    def has_members(self) -> bool:
        return self._made.group_members > 0

    def workload(self, workload: Workload) -> Workload:
        return msgspec.structs.replace(workload, batch=1, batch_most=0)

    def limits(self, cluster: Cluster) -> Limits:
        """Return the time limits; a recovery may take several failovers, because a machine may be
        busy."""
        failover_ms = self.adapter.failover_ms
        usual_ms = max(LEAST_RECOVERY_MS, FAILOVERS_OF_A_RECOVERY * failover_ms)
        return Limits(failover_ms, max(usual_ms, self.adapter.recovery_ms), failover_ms)

    def run_options(self) -> tuple[str, ...]:
        given = [
            word for name, value in self._given.items() for word in ("--set", f"{name}={value}")
        ]
        return ("--system", self.name, *given)
