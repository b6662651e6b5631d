"""A cluster that several storms use one after another: starting one may take longer than a storm.

Each storm has a run folder, clients and partitions of its own. A cluster is used again only if all
is well with it after a storm; otherwise it is ended."""

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
    """Return whether all faults of a schedule heal, so that the cluster can be used again
    afterwards."""
    return all(fault.what in _HEALED for fault in schedule.faults)


class ClusterKeeper:
    """The cluster for the next storms, if there is one. Main thread only."""

    def __init__(self, store: Path) -> None:
        """Keep its data in a folder below `store`."""
        self._store = store
        self._like: Any = None
        self._cluster: ExternalCluster | None = None

    def take(
        self, like: Any, make: Callable[..., ExternalCluster], schedule: Schedule, folder: RunDir
    ) -> ExternalCluster:
        """Return the cluster for a storm: the present one if it was made for an equal `like` and is
        healthy, else a new one. `like` is the configuration that a cluster is made for; `make`
        makes a cluster."""
        kept = self._cluster
        fit = kept is not None and self._like == like and kept.storms < MOST_STORMS
        if kept and fit and kept.is_healthy:
            kept.go_on(schedule, folder)
            return kept
        self.end()
        home = RunDir(Path(tempfile.mkdtemp(prefix=".cluster-", dir=self._store)))
        self._like, self._cluster = like, make(home=home)
        return self._cluster

    def end(self) -> bool:
        """End the present cluster; return whether it has had more than one storm."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.end()
        return cluster is not None and cluster.storms > 1
