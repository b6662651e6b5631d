"""The faults of a schedule, as data (a leaf): what, when, on whom, for how long.

Part of the schedule file, `nemesis.formats.schedule`, from which everybody imports these names.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

import msgspec

from nemesis.formats.cluster_spec import After, Cluster, Strict


class _Fault(Strict, frozen=True, kw_only=True, tag_field="what"):
    """Common to all faults: exactly one of `at_ms` and `after`; `for_ms` None lasts to the heal.

    A fault with a `name` can be undone by a `release`.
    """

    name: str = ""
    at_ms: int | None = None
    after: After | None = None
    for_ms: int | None = None


class Kill(_Fault, frozen=True, kw_only=True, tag="kill"):
    """SIGKILL; started again after `for_ms`, or by a `restart`, or at the final heal."""

    on: str


class PowerCut(_Fault, frozen=True, kw_only=True, tag="power-cut"):
    """SIGKILL, and each node loses the tail of its unsynced writes; started again as after a kill.

    `keep_percent` of the unsynced bytes remain; None: drawn, for each node apart.
    """

    on: str
    keep_percent: int | None = None


class Restart(_Fault, frozen=True, kw_only=True, tag="restart"):
    """Start a dead node; a live one is stopped cleanly (SIGTERM) first."""

    on: str


class Pause(_Fault, frozen=True, kw_only=True, tag="pause"):
    """SIGSTOP; continued after `for_ms`, or by a `resume`, or at the final heal."""

    on: str


class Resume(_Fault, frozen=True, kw_only=True, tag="resume"):
    """SIGCONT."""

    on: str


class Stop(_Fault, frozen=True, kw_only=True, tag="stop"):
    """Controlled shutdown: asked to end cleanly (SIGTERM), it hands over what it leads; started
    again after `for_ms`, or by a `restart`, or at the final heal."""

    on: str


class Upgrade(_Fault, frozen=True, kw_only=True, tag="upgrade"):
    """A `restart` after which the node, and each later process of it, runs `protocol`.

    Only to one that can live beside the cluster's own, see
    `harness.systems.floodmark.brokers.check_upgrades`.
    """

    on: str
    protocol: str


class ElectPreferred(_Fault, frozen=True, kw_only=True, tag="elect-preferred"):
    """The controller is asked to let the first replica of `partition` lead.

    With `first`, a broker, that replica is put first before: one step of an operator who hands the
    leadership to it.
    """

    partition: str
    first: str = ""


class ElectUnclean(_Fault, frozen=True, kw_only=True, tag="elect-unclean"):
    """The controller is asked to let any active replica lead, where nobody leads."""

    partition: str


class Reassign(_Fault, frozen=True, kw_only=True, tag="reassign"):
    """The controller is asked to move `partition` to `replicas`, in this order: "n2,n1".

    "rotate": each replica goes to the next broker, the last one's to the first. "": the move that
    is under way is cancelled.
    """

    partition: str
    replicas: str


class SetMinIsr(_Fault, frozen=True, kw_only=True, tag="set-min-isr"):
    """The controller is asked to change min.insync.replicas of all partitions."""

    min_isr: int


class Cut(_Fault, frozen=True, kw_only=True, tag="cut"):
    """No message passes from `on` to `to`; nor back, when `two_way`."""

    on: str
    to: str
    two_way: bool = True


class Isolate(_Fault, frozen=True, kw_only=True, tag="isolate"):
    """Cut `on` from all other brokers and voters, and from the clients too when `clients`."""

    on: str
    clients: bool = False


class Bridge(_Fault, frozen=True, kw_only=True, tag="bridge"):
    """Two halves of the brokers, cut from each other, that both still reach `on`."""

    on: str


class Ring(_Fault, frozen=True, kw_only=True, tag="ring"):
    """Majorities-ring: every broker reaches a majority, no two the same one."""


class Delay(_Fault, frozen=True, kw_only=True, tag="delay"):
    """Messages from `on` to `to` wait `delay_ms` +- `jitter_ms`; order within a link is kept."""

    on: str
    to: str
    delay_ms: int
    jitter_ms: int = 0
    two_way: bool = True
    kinds: tuple[str, ...] = ()


class Loss(_Fault, frozen=True, kw_only=True, tag="loss"):
    """`percent` of the messages from `on` to `to` vanish (only of `kinds`, when given)."""

    on: str
    to: str
    percent: int
    two_way: bool = True
    kinds: tuple[str, ...] = ()


class Link(_Fault, frozen=True, kw_only=True, tag="link"):
    """One link rule to the letter: `action` on the messages from `on` to `to` that fit.

    `kinds` and `match` narrow it to kinds of messages and to header fields (bounds as in `After`);
    of those that fit, `percent` are acted on, at most `limit` a direction.
    """

    on: str
    to: str
    action: Literal["drop", "delay", "duplicate", "hold"]
    two_way: bool = False
    kinds: tuple[str, ...] = ()
    match: dict[str, Any] = msgspec.field(default_factory=dict)
    percent: int = 100
    delay_ms: int = 0
    jitter_ms: int = 0
    limit: int | None = None


class Break(_Fault, frozen=True, kw_only=True, tag="break"):
    """A breakpoint: the process stops in the turn that emits the `nth` event that matches.

    Armed when the fault is injected, in the processes of `on` and in those that are started later;
    it counts from then on, in each process apart, and stops one process of a node once. `before`
    says where in the turn: "send", everything is on disk and in the trace, and no message of the
    turn has left; "commit", nothing of the turn has been written, and only what does not wait for
    the disk has left. `for_ms` counts from the stop.
    """

    on: str
    event: str
    match: dict[str, Any] = msgspec.field(default_factory=dict)
    nth: int = 1
    before: Literal["send", "commit"] = "send"


class Release(_Fault, frozen=True, kw_only=True, tag="release"):
    """Undo the faults called `of` now: let go what is held, stopped, cut, paused or down."""

    of: str


Fault = (
    Kill
    | PowerCut
    | Stop
    | Restart
    | Upgrade
    | Pause
    | Resume
    | Cut
    | Isolate
    | Bridge
    | Ring
    | Delay
    | Loss
    | Link
    | Break
    | Release
    | ElectPreferred
    | ElectUnclean
    | Reassign
    | SetMinIsr
)
FAULT_TYPES: Final[tuple[type[_Fault], ...]] = (
    Kill,
    PowerCut,
    Stop,
    Restart,
    Upgrade,
    Pause,
    Resume,
    Cut,
    Isolate,
    Bridge,
    Ring,
    Delay,
    Loss,
    Link,
    Break,
    Release,
    ElectPreferred,
    ElectUnclean,
    Reassign,
    SetMinIsr,
)
FAULT_NAMES: Final = tuple(str(t.__struct_config__.tag) for t in FAULT_TYPES)

# Roles name nodes by what they do at the moment of injection; ":partition" narrows some of them.
ROLES: Final = (
    "leader",
    "follower",
    "lagging",
    "isr",
    "controller",
    "any",
    "minority",
    "majority",
    "all",
    "voters",
    "clients",
    "rest",
)
ROLES_OF_A_PARTITION: Final = ("leader", "follower", "lagging", "isr")
_NODE = re.compile(r"[nvc][1-9]\d*")


def check_target(text: str, cluster: Cluster, clients: int) -> str | None:
    """What is wrong with a target, None if nothing: a node, a comma list of nodes, or a role."""
    role, _, partition = text.partition(":")
    if role in ROLES:
        if partition and role not in ROLES_OF_A_PARTITION:
            return f"role '{role}' takes no partition"
        if partition and partition not in cluster.partition_names():
            return f"no partition '{partition}' (there are {', '.join(cluster.partition_names())})"
        return None
    nodes = {*cluster.broker_names(), *cluster.voter_names()}
    for name in text.split(","):
        if _NODE.fullmatch(name) is None:
            return f"'{name}' is neither a node nor a role ({', '.join(ROLES)})"
        if name[0] != "c" and name not in nodes:
            return f"no node '{name}' in this cluster"
        if name[0] == "c" and int(name[1:]) > clients:
            return f"no client '{name}' in this workload"
    return None
