"""Kill: the process of a node ends without warning."""

from __future__ import annotations

from typing import Final

from nemesis.faults.kind import Drawing, Site
from nemesis.faults.process_fault import ProcessFault, ProcessKind


class Kill(ProcessFault, frozen=True, kw_only=True, tag="kill"):
    """SIGKILL; started again after `for_ms`, or by a `restart`, or at the final heal."""


TARGETS: Final = (
    ("leader:p", 4),
    ("leader", 2),
    ("follower:p", 2),
    ("follower", 1),
    ("lagging", 1),
    ("any", 2),
    ("minority", 1),
    ("majority", 0.7),
    ("all", 0.7),
    ("controller", 1),
    ("voters", 1),
)


class KillKind(ProcessKind[Kill]):
    """The kind "kill"."""

    struct = Kill
    letter = "K"
    colour = "var(--bad)"
    ends_process = True
    drawing = Drawing(targets=TARGETS, delays_follower=(6,), fails_leader=(0,), restarts=(0,))

    def act(self, fault: Kill, site: Site, node: str) -> None:
        """SIGKILL."""
        site.processes.kill(site.number, node)
