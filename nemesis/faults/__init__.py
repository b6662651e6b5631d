"""The faults: one module each, or one for a few that belong together.

A new fault is a module with its struct and its `FaultKind`, and one line in the table below.
docs/faults.md describes the faults for their users.
"""

from typing import Any

from nemesis.faults.admin import (
    ElectPreferred,
    ElectPreferredKind,
    ElectUnclean,
    ElectUncleanKind,
    Reassign,
    ReassignKind,
    SetMinIsr,
    SetMinIsrKind,
)
from nemesis.faults.breakpoint import Break, BreakKind, Release, ReleaseKind
from nemesis.faults.kill import Kill, KillKind
from nemesis.faults.kind import KINDS, FaultKind, aliases, kind_of, register, storm_kinds
from nemesis.faults.messages import Delay, DelayKind, Link, Loss, LossKind, RuleKind
from nemesis.faults.partitions import (
    Bridge,
    BridgeKind,
    Cut,
    CutKind,
    Isolate,
    IsolateKind,
    Ring,
    RingKind,
)
from nemesis.faults.pause import Pause, PauseKind, Resume, ResumeKind
from nemesis.faults.power_cut import PowerCut, PowerCutKind
from nemesis.faults.restart import Restart, RestartKind, Stop, StopKind, Upgrade, UpgradeKind

__all__ = [
    "KINDS",
    "Break",
    "Bridge",
    "Cut",
    "Delay",
    "ElectPreferred",
    "ElectUnclean",
    "FaultKind",
    "Isolate",
    "Kill",
    "Link",
    "Loss",
    "Pause",
    "PowerCut",
    "Reassign",
    "Release",
    "Restart",
    "Resume",
    "Ring",
    "SetMinIsr",
    "Stop",
    "Upgrade",
    "aliases",
    "kind_of",
    "register",
    "storm_kinds",
]

# A seed draws kinds by their place here: a new one goes to the end.
_ALL: tuple[FaultKind[Any], ...] = (
    KillKind(),
    PowerCutKind(),
    StopKind(),
    RestartKind(),
    UpgradeKind(),
    PauseKind(),
    ResumeKind(),
    CutKind(),
    IsolateKind(),
    BridgeKind(),
    RingKind(),
    DelayKind(),
    LossKind(),
    RuleKind(),
    BreakKind(),
    ReleaseKind(),
    ElectPreferredKind(),
    ElectUncleanKind(),
    ReassignKind(),
    SetMinIsrKind(),
)
for _kind in _ALL:
    register(_kind)
