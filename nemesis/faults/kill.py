"""Kill: the process of a node ends without warning."""

from __future__ import annotations

from nemesis.faults.kind import ONE_NODE, Drawing, Site
from nemesis.faults.process_fault import ProcessFault


class Kill(ProcessFault, frozen=True, kw_only=True, tag="kill"):
    """The node gets a SIGKILL; it starts again after `for_ms`, by a `restart`, or at the end."""

    letter = "K"
    colour = "var(--bad)"
    ends_process = True
    drawing = Drawing(
        targets=(
            *ONE_NODE,
            *(("minority", 1), ("majority", 0.7), ("all", 0.7), ("controller", 1), ("voters", 1)),
        ),
        delays_follower=(6,),
        fails_leader=(0,),
        restarts=(0,),
    )

    def act(self, site: Site, node: str) -> None:
        site.processes.kill(site.number, node)
