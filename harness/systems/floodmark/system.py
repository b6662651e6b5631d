"""Our own brokers as a system under test: the answers to what the harness asks before any process
runs."""

from __future__ import annotations

import importlib.metadata
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Final

import msgspec

from harness.systems.disks import JOURNAL, USER_SPACE
from harness.systems.floodmark.brokers import check_upgrades
from harness.systems.interface import NO_LINKS, Limits, System
from nemesis.faults import ElectUnclean, kinds_on
from nemesis.faults.membership import CHANGES
from nemesis.formats.schedule import Cluster, Schedule
from nemesis.links.abilities import HUB, LinkAbilities
from node.core import bugs, idle
from node.core import protocol as protocols
from node.core.protocol import Protocol
from node.formats.errors import UsageError

if TYPE_CHECKING:
    from harness.runs.run_folder import RunDir
    from harness.systems.floodmark.cluster import FloodmarkCluster

HUB_LINKS: Final = "hub"
_SETTLE_MS: Final = 2000
_PROMISES: Final = ("name", "citation", "expected", "clean_only")


class Floodmark(System):
    """Brokers of any protocol of `node.core.protocol`, and the link hub between them."""

    name = "floodmark"
    summary = "our own brokers, with any protocol of `floodmark protocols`"
    faults = tuple(kind for kind in kinds_on(HUB) if kind not in CHANGES)
    simulated = True
    idempotent = True
    link_forms = (HUB_LINKS, NO_LINKS)
    disk_forms = (JOURNAL, USER_SPACE)

    def launch(
        self, schedule: Schedule, folder: RunDir, *, links: str = HUB_LINKS, disk: str = JOURNAL
    ) -> FloodmarkCluster:
        from harness.systems.floodmark.cluster import FloodmarkCluster

        return FloodmarkCluster(schedule, folder, with_hub=links == HUB_LINKS, disk=disk)

    def link_abilities(self, form: str) -> LinkAbilities | None:
        return HUB if form == HUB_LINKS else None

    def version(self) -> str:
        return _version()

    def complete(self, cluster: Cluster) -> Cluster:
        """Return the cluster with the canonical names of its protocol and bugs. Raises UsageError
        for unknown ones, and for a cluster that cannot elect a controller."""
        if cluster.voters == 0:
            raise UsageError("the cluster has no voters, but our own brokers need 1, 3 or 5")
        chosen = protocols.protocol(cluster.protocol)
        if not (cluster.record_epochs or chosen.truncation is protocols.Truncation.OWN_HW):
            raise UsageError(f"record_epochs is false, but {chosen.name} cannot do without epochs")
        timings = cluster.timings
        idle.check(chosen, idle_wait_ms=timings.idle_wait_ms, lag_ms=timings.lag_ms)
        known = tuple(sorted({bugs.canonical(name) for name in cluster.bugs}))
        return msgspec.structs.replace(cluster, protocol=chosen.name, bugs=known)

    def check(self, schedule: Schedule) -> None:
        """Refuse upgrades to a protocol that cannot be mixed with the old one."""
        super().check(schedule)
        check_upgrades(schedule)

    def limits(self, cluster: Cluster) -> Limits:
        """Return the time limits: a recovery may take three sessions, the lag, and two seconds."""
        timings = cluster.timings
        return Limits(
            session_ms=timings.session_ms,
            recovery_ms=3 * timings.session_ms + timings.lag_ms + _SETTLE_MS,
            failover_ms=timings.session_ms + 2 * timings.election_max_ms,
        )

    def baseline(self, schedule: Schedule) -> Schedule:
        """Return the schedule under the nearest protocol that is expected to hold, without bugs."""
        cluster = schedule.cluster
        asked = any(isinstance(fault, ElectUnclean) for fault in schedule.faults)
        clean = cluster.flush == "sync" and not (cluster.unclean_election or asked)
        nearest = nearest_correct(cluster.protocol, clean=clean)
        replaced = msgspec.structs.replace(cluster, protocol=nearest.name, bugs=())
        return msgspec.structs.replace(schedule, cluster=replaced)

    def run_options(self) -> tuple[str, ...]:
        return ()


@cache
def _version() -> str:
    try:
        return importlib.metadata.version("floodmark")
    except importlib.metadata.PackageNotFoundError:
        return ""


def nearest_correct(name: str, *, clean: bool = True) -> Protocol:
    """Return the protocol with the fewest differences from `name` that is expected to hold all
    properties. Among equals, the first in the registry. If not `clean` (flush=sync and no unclean
    election), only a protocol whose promise covers that. Raises UsageError for an unknown name."""
    given = protocols.protocol(name)
    correct = [
        p
        for p in protocols.REGISTRY.values()
        if all(e == "holds" for _, e in p.expected) and (clean or not p.clean_only)
    ]
    choices = [f.name for f in fields(Protocol) if f.name not in _PROMISES]

    def distance(other: Protocol) -> int:
        return sum(getattr(given, choice) != getattr(other, choice) for choice in choices)

    return min(correct, key=distance)


SYSTEM: Final = Floodmark()
