"""`faults.jsonl`: what was really done for each fault of the schedule, one line for each action."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import msgspec
from msgspec import UNSET, UnsetType

from node.formats.bounds import LargeCount, Number, Time

FINAL_HEAL: Final = -1
"""Number of the final heal, where the number of a fault stands otherwise."""
STOPS_A_NODE: Final = ("kill", "stop", "pause", "disk-full")
"""The kinds of faults that stop a node, and leave behind only one that has to recover."""

Action = Literal["inject", "heal", "skipped", "missed", "effect"]


class FaultLine(msgspec.Struct, frozen=True, kw_only=True):
    """One action of the injector for one fault.

    `fault` is the index in the schedule, or FINAL_HEAL; `what` its kind. `action`: "inject",
    "heal", "skipped" (no node for its target; drawn schedules only), "missed" (its trigger never
    came, or it could not be carried out; `detail` says why) or "effect" (at the heal: what it did).
    It took from `t_us` to `done_us`, monotonic microseconds. `on` is the target as the schedule
    names it, or the partition of a command to the controller; `nodes` and `links` are those that
    the target stood for. The counts are in lines of effects: messages dropped, delayed and
    duplicated; connections or packets affected (by links that see no messages); processes stopped
    at a breakpoint; writes to a disk that failed, were late, or are lost; system calls that failed,
    lied, were late, or ended their process; a change of the cluster that was installed, refused, or
    came only `late`, after its time."""

    fault: Number
    what: str
    action: Action
    t_us: Time
    done_us: Time = 0
    on: str = ""
    nodes: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    detail: str = ""
    dropped: LargeCount | UnsetType = UNSET
    delayed: LargeCount | UnsetType = UNSET
    duplicated: LargeCount | UnsetType = UNSET
    stopped: LargeCount | UnsetType = UNSET
    connections: LargeCount | UnsetType = UNSET
    packets: LargeCount | UnsetType = UNSET
    writes: LargeCount | UnsetType = UNSET
    calls: LargeCount | UnsetType = UNSET
    installed: LargeCount | UnsetType = UNSET
    refused: LargeCount | UnsetType = UNSET
    late: LargeCount | UnsetType = UNSET

    @property
    def affected(self) -> int:
        """The number of affected messages, connections, packets, processes, writes, calls or
        changes."""
        counts = (
            *(self.dropped, self.delayed, self.duplicated, self.stopped),
            *(self.connections, self.packets, self.writes, self.calls),
            *(self.installed, self.refused, self.late),
        )
        return sum(count for count in counts if count is not UNSET)


def took_effect(lines: Iterable[tuple[str, int]]) -> bool:
    """Return whether one fault took effect: it was injected and, if its effects were counted, there
    was one. `lines` are the fault's lines as (action, affected)."""
    known = list(lines)
    counts = [affected for action, affected in known if action == "effect"]
    return any(action == "inject" for action, _ in known) and (not counts or any(counts))
