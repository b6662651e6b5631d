"""A cluster that several storms have in turn: starting one may take longer than a storm.

Each storm has a run folder, clients and partitions of its own. Only a cluster that is as good as
new is kept: the judge of a storm ends the cluster unless all was well.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from harness.runs.run_folder import RunDir
from harness.systems.external.cluster import ExternalCluster
from nemesis.faults import KINDS
from nemesis.formats.schedule import Schedule
from nemesis.wall_clocks import KINDS_OF_CLOCKS

MOST_STORMS: Final = 20
"""What a system keeps of earlier storms shall not slow the next ones down."""
_HEALED: Final = frozenset(
    {"kill", "stop", "restart", "pause", "resume", "power-cut"}
    | {name for name, kind in KINDS.items() if kind.on_links}
) - set(KINDS_OF_CLOCKS)


def leaves_no_trace(schedule: Schedule) -> bool:
    """Return whether a system that recovers from the faults of a schedule is as good as new."""
    return all(fault.what in _HEALED for fault in schedule.faults)


class ClusterKeeper:
    """The cluster that is kept, if there is one. Main thread only."""

    def __init__(self, store: Path) -> None:
        """Keep its data in a folder below `store`."""
        self._store = store
        self._like: Any = None
        self._cluster: ExternalCluster | None = None

    @property
    def is_used(self) -> bool:
        """Return whether the present cluster has had a storm before its last one."""
        return self._cluster is not None and self._cluster.storms > 1

    def take(
        self, like: Any, make: Callable[..., ExternalCluster], schedule: Schedule, folder: RunDir
    ) -> ExternalCluster:
        """Return the cluster for a storm: the one that is kept if it is `like` that, else a new
        one."""
        kept = self._cluster
        fit = kept is not None and self._like == like and kept.storms < MOST_STORMS
        if kept and fit and kept.is_healthy:
            kept.go_on(schedule, folder)
            return kept
        self.end()
        home = RunDir(Path(tempfile.mkdtemp(prefix=".cluster-", dir=self._store)))
        self._like, self._cluster = like, make(home=home)
        return self._cluster

    def end(self) -> None:
        """End the cluster that is kept."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.end()
