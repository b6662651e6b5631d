"""The faults: one module for each kind, or for a few that belong together.

A new fault is a module with a class of its own, and its name in the table below. docs/faults.md
describes the faults for their users."""

from nemesis.faults.admin import ElectPreferred, ElectUnclean, Reassign, SetMinIsr
from nemesis.faults.breakpoint import Break, Release
from nemesis.faults.clocks import ClockJump, ClockRate, ClockSkew
from nemesis.faults.connections import HalfOpen, Reset, Slow, Stall
from nemesis.faults.disks import (
    BitFlip,
    DiskEmptied,
    DiskFull,
    FsyncError,
    LyingFsync,
    OldCopy,
    ReadError,
    SlowFsync,
    TornWrite,
)
from nemesis.faults.kill import Kill
from nemesis.faults.kind import KINDS, FaultKind, aliases, kind_of, register, storm_kinds
from nemesis.faults.link_fault import kinds_on
from nemesis.faults.membership import Join, Leave, Operate, Replace, Return
from nemesis.faults.messages import Delay, Link, Loss
from nemesis.faults.partitions import Bridge, Cut, Isolate, Ring
from nemesis.faults.pause import Pause, Resume
from nemesis.faults.power_cut import PowerCut
from nemesis.faults.restart import Downgrade, Restart, Stop, Upgrade
from nemesis.faults.syscalls import Syscall

__all__ = [
    "KINDS",
    "BitFlip",
    "Break",
    "Bridge",
    "ClockJump",
    "ClockRate",
    "ClockSkew",
    "Cut",
    "Delay",
    "DiskEmptied",
    "DiskFull",
    "Downgrade",
    "ElectPreferred",
    "ElectUnclean",
    "FaultKind",
    "FsyncError",
    "HalfOpen",
    "Isolate",
    "Join",
    "Kill",
    "Leave",
    "Link",
    "Loss",
    "LyingFsync",
    "OldCopy",
    "Operate",
    "Pause",
    "PowerCut",
    "ReadError",
    "Reassign",
    "Release",
    "Replace",
    "Reset",
    "Restart",
    "Resume",
    "Return",
    "Ring",
    "SetMinIsr",
    "Slow",
    "SlowFsync",
    "Stall",
    "Stop",
    "Syscall",
    "TornWrite",
    "Upgrade",
    "aliases",
    "kind_of",
    "kinds_on",
    "register",
    "storm_kinds",
]

# A seed draws kinds by their place here: a new one goes to the end.
for _kind in (
    *(Kill, PowerCut, Stop, Restart, Upgrade, Pause, Resume),
    *(Cut, Isolate, Bridge, Ring, Delay, Loss, Link, Break, Release),
    *(ElectPreferred, ElectUnclean, Reassign, SetMinIsr),
    *(Stall, Slow, Reset, HalfOpen),
    *(FsyncError, SlowFsync, LyingFsync, DiskFull, TornWrite, BitFlip, OldCopy, DiskEmptied),
    *(ReadError, ClockSkew, ClockJump, Syscall, ClockRate),
    *(Join, Leave, Replace, Return, Downgrade, Operate),
):
    register(_kind)
