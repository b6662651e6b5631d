"""The world as the nemesis needs it: processes to kill, pause and stop, links to put rules on, a
controller to command, and clients with scripted operations."""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

from nemesis.links.rule import LinkRule
from node.formats.errors import FloodmarkError
from node.runtime.breakpoints import Breakpoint
from node.runtime.damage import DiskDamage
from node.runtime.failing_disk import DiskFails

COMMAND_LIMIT_US: Final = 2_000_000
"""How long a command may take: nothing else of a schedule happens meanwhile."""


class Command(NamedTuple):
    """A request to the controller, independent of its messages. `replicas` belongs to `reassign`
    (none: cancel) and to `elect-preferred` (the broker that becomes the first replica, or none),
    `min_isr` to `set-min-isr`, which concerns all partitions."""

    what: Literal["elect-preferred", "elect-unclean", "reassign", "set-min-isr"]
    partition: str = ""
    replicas: tuple[str, ...] = ()
    min_isr: int = 0


class ClusterChange(NamedTuple):
    """A change of a running cluster that takes its time: of its members, of the version of a
    `node`, of the `replicas` of a partition (`copies` of them), or an `action` of an operator.

    `alive`: a node that leaves still runs until the others have let it go. `by` is the node that
    replaces it. `version`: that of the node's next processes; "" is the next one in that direction.
    `kill`: its process is killed instead of stopped."""

    what: Literal[
        "join", "leave", "replace", "reassign", "upgrade", "downgrade", "return", "operate"
    ]
    node: str = ""
    alive: bool = True
    by: str = ""
    version: str = ""
    kill: bool = False
    partition: str = ""
    replicas: tuple[str, ...] = ()
    action: str = ""


class ChangeOutcome(NamedTuple):
    """The end of a change. "installed": the members say so; "refused": the system refused it, and
    nothing changed; "late": the members say so, but only after its time was over; "unseen": it was
    asked for, and no member says so. `detail` is a sentence with times and witnesses."""

    what: Literal["installed", "refused", "late", "unseen"]
    detail: str = ""


class CallFails(NamedTuple):
    """A failure of a group of system calls of a process, from the `nth` call on. "error": they fail
    with the error named `errno`. "lie": they are confirmed and not made. "delay": they return
    `delay_ms` later. "kill": the `nth` call kills the process."""

    calls: Literal["sync", "write", "read", "open"]
    action: Literal["error", "lie", "delay", "kill"]
    errno: str = "EIO"
    delay_ms: int = 0
    nth: int = 1


class DiskCopy(NamedTuple):
    """A copy of a disk as it is when the copy is added. Its removal replaces the disk of the node,
    which is down then, by the copy."""


Lasting = LinkRule | Breakpoint | DiskFails | DiskCopy | CallFails
"""A thing that a world keeps in force, under a number, until it is removed."""
_LASTING: Final[dict[type, str]] = {
    LinkRule: "have its links fail",
    Breakpoint: "stop at a breakpoint",
    DiskFails: "have its disks fail",
    DiskCopy: "have its disks copied",
    CallFails: "have its system calls fail",
}


class World:
    """The cluster under test, as the injector drives it: real processes, or a simulator. Every call
    returns when the thing is done. Any may raise FloodmarkError with one sentence if it cannot be
    done; the injector records that and goes on. The methods here refuse; a world overrides those
    that it can carry out."""

    power_cut_assumption: str = ""
    """An assumption about the bytes that a power cut takes; "" if they are known."""
    declares_unsynced: bool = False
    """Whether a power cut takes bytes of files that the system declares as unsynced."""
    reorders_writes: bool = False
    """Whether a power cut can keep a write and lose one before it."""

    def kill(self, node: str) -> None:
        """Send SIGKILL to a node's process, which may be paused."""
        raise _unable("be killed")

    def power_cut(self, node: str, keep: float, shuffle: int | None = None) -> tuple[int, int]:
        """Kill the node, and keep only the share `keep` (0 to 1) of its unsynced bytes: the first
        written or, with a seed to `shuffle`, drawn ones (only if the disk `reorders_writes`).
        Return the number of unsynced bytes before and after."""
        raise _unable("lose its power")

    def start(self, node: str) -> None:
        """Start a new process of a node that is down; return long before it is ready."""
        raise _unable("be started")

    def stop(self, node: str) -> None:
        """Ask a running node to end cleanly (SIGTERM) and wait until it has."""
        raise _unable("be stopped")

    def pause(self, node: str) -> None:
        """Suspend a node's process (SIGSTOP)."""
        raise _unable("be paused")

    def resume(self, node: str) -> None:
        """Let a node's suspended process go on (SIGCONT)."""
        raise _unable("be resumed")

    def is_up(self, node: str) -> bool:
        """Return whether the node has a process, paused or not."""
        return False

    def is_paused(self, node: str) -> bool:
        """Return whether the node's process is paused; False if it has none."""
        return False

    def add(self, node: str, what: Lasting) -> int:
        """Put something in force on a node, also in its later processes ("": a rule of links);
        return its number. If it raises, it had no effect."""
        raise _unable(_LASTING[type(what)])

    def remove(self, node: str, what: Lasting, number: int) -> Any:
        """End what was put in force under this number; return its effect: the `Counts` of a rule,
        how many writes or calls it affected, how many batches the old copy lost. If it raises, it
        can be removed again."""
        raise _unable(_LASTING[type(what)])

    def damage_disk(self, node: str, damage: DiskDamage) -> str:
        """Damage the disk of a node that is down; return a description of the damage."""
        raise _unable("have its disks damaged")

    def shift_clock(self, node: str, by_ms: int) -> None:
        """Move the wall clock of the node's processes, later ones too, and no other clock."""
        raise _unable("have a wall clock of its own")

    def set_clock_rate(self, node: str, percent: int) -> None:
        """Let the clock that the node measures its timeouts with run at `percent` of the true rate,
        in later processes too."""
        raise _unable("have a clock of another rate")

    def operate(self, operation: int) -> None:
        """Have its client begin operation number `operation` of the workload."""
        raise _unable("take operations of a schedule")

    def command(self, command: Command) -> int | None:
        """Send a command to the controller; return when the controller has committed it. A world in
        which that takes its time returns the number of the change (`begin_change`). Raises
        FloodmarkError if it refuses, if there is nothing to change, or if no answer comes within
        COMMAND_LIMIT_US: the outcome is unknown then."""
        raise _unable("take commands")

    def is_member(self, node: str) -> bool:
        """Return whether the node is a member of the cluster: no spare, and not one that left."""
        return True

    def has_left(self, node: str) -> bool:
        """Return whether the node was a member before, and is none."""
        return False

    def can_move(self, node: str, direction: Literal["upgrade", "downgrade"]) -> bool:
        """Return whether there is a newer (or older) version than the node has."""
        return True

    def begin_change(self, change: ClusterChange) -> int:
        """Begin a change and return its number; `outcome` says how it ended. There is only one at a
        time: raises FloodmarkError while another is under way, and for an impossible one."""
        raise _unable(f"take '{change.what}'")

    def outcome(self, number: int) -> ChangeOutcome | None:
        """Return how a change ended; None while it is under way."""
        return None

    def set_protocol(self, node: str, protocol: str) -> None:
        """Have the node's next processes run `protocol`."""
        raise _unable("run another protocol")

    def now_us(self) -> int:
        """Return the clock of the run, in microseconds."""
        raise NotImplementedError


def refuse_shuffle(shuffle: int | None) -> None:
    """Raise FloodmarkError if a power cut shall reorder writes (`shuffle` is a seed); for disks
    that keep their order."""
    if shuffle is not None:
        raise FloodmarkError("the disks of this run keep writes in order: set reordered to false")


def _unable(what: str) -> FloodmarkError:
    return FloodmarkError(f"the system under test cannot {what} here")
