"""Faults of system calls of a process, injected by strace: they fail, lie, take long or kill it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

import msgspec

from nemesis.faults.dice import Dice
from nemesis.faults.kind import ONE_NODE, Drawing, Site
from nemesis.faults.lasting import LastingFault, start_if_ended
from nemesis.faults.words import nth, target
from nemesis.formats.cluster_spec import Cluster, Workload
from nemesis.world import CallFails

Group = Literal["sync", "write", "read", "open"]
_IN_WORDS: Final = {
    "sync": "fsync and the like",
    "write": "writes",
    "read": "reads",
    "open": "opening files",
}


class Syscall(LastingFault, frozen=True, kw_only=True, tag="syscall"):
    """System calls of the group `calls` in the processes of `on` fail, lie, take longer or kill the
    process, from the `nth` call on.

    `action` "error": they fail with `errno` (the name of the error) without being made. "lie": they
    are confirmed and not made. "delay": they take `delay_ms` longer. "kill": the `nth` call kills
    the process."""

    on: str
    action: Literal["error", "lie", "delay", "kill"]
    calls: Group = "sync"
    errno: Annotated[str, msgspec.Meta(pattern="^E[A-Z0-9]{1,15}$")] = "EIO"
    delay_ms: Annotated[int, msgspec.Meta(ge=0, le=60_000)] = 0
    nth: Annotated[int, msgspec.Meta(ge=1, le=65_535)] = 1

    letter = "y"
    plain = (("nth", 1),)
    plainer_kind = "kill"
    colour = "#6b5b95"
    on_processes = True
    ends_process = True
    counted = "calls"
    simulated = False
    drawing = Drawing(targets=ONE_NODE, aliases=())

    def problems(self, cluster: Cluster, workload: Workload) -> Iterator[str]:
        yield from super().problems(cluster, workload)
        if self.action == "lie" and self.calls != "sync":
            yield "action lie needs calls sync: other calls return a result"
        if (self.action == "delay") != bool(self.delay_ms):
            yield "action delay needs delay_ms, and no other action takes it"

    def lasting(self) -> CallFails:
        return CallFails(self.calls, self.action, self.errno, self.delay_ms, self.nth)

    def bring_back(self, site: Site, node: str) -> None:
        start_if_ended(site, node)

    @classmethod
    def draw_fields(cls, dice: Dice, on: str) -> dict[str, Any]:
        """Draw action and calls, mostly syncs: a process that cannot even write shows less."""
        action = dice.weighted((("error", 2), ("lie", 1), ("delay", 1), ("kill", 2)))
        calls = "sync" if action == "lie" or dice.chance(0.7) else "write"
        delay_ms = dice.between(1, 0.3 * dice.timings.session_ms) if action == "delay" else 0
        nth = dice.between(1, 30)
        return {"action": action, "calls": calls, "delay_ms": delay_ms, "nth": nth}

    def words(self) -> str:
        which, on = _IN_WORDS[self.calls], target(self.on)
        since = "" if self.nth == 1 else f", from the {nth(self.nth)} on"
        match self.action:
            case "kill":
                return f"Kill {on} at its {nth(self.nth)} call of {which}"
            case "error":
                return f"Let {which} of {on} fail with {self.errno}{since}"
            case "lie":
                return f"Let {which} of {on} be confirmed and not done{since}"
        return f"Let {which} of {on} take {self.delay_ms} ms longer{since}"
