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
from nemesis.faults.kind import KINDS as KINDS
from nemesis.faults.kind import FaultKind as FaultKind
from nemesis.faults.kind import aliases as aliases
from nemesis.faults.kind import kind_of as kind_of
from nemesis.faults.kind import register as register
from nemesis.faults.kind import storm_kinds as storm_kinds
from nemesis.faults.link_fault import kinds_on as kinds_on
from nemesis.faults.membership import Join, Leave, Operate, Replace, Return
from nemesis.faults.messages import Delay, Link, Loss
from nemesis.faults.partitions import Bridge, Cut, Isolate, Ring
from nemesis.faults.power_cut import PowerCut
from nemesis.faults.process_fault import Kill, Pause, Resume
from nemesis.faults.restart import Downgrade, Restart, Stop, Upgrade
from nemesis.faults.syscalls import Syscall

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
