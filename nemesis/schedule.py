"""The Schedule: cluster + workload + faults + expectation, as one versioned file (a leaf).

The file is the currency: random draw, search, replay, shrink, both worlds and the report all speak
it. It holds everything a verdict depends on. Unknown names are errors everywhere. Times are
milliseconds since the workload began. Design section 4.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from nemesis.matching import is_bound
from node import trace
from node.errors import UsageError

FORMAT_VERSION: Final = 1
MAX_FAULTS: Final = 10_000
COMMON_FIELDS: Final = ("event", "node", "incarnation", "partition", "t_us")
"""Fields that trace events carry beside those of `node.trace.FIELDS`."""


class _Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of everything in the file: immutable, and no unknown field passes."""


class Timings(_Strict, frozen=True, kw_only=True):
    """Every timeout of the cluster. Kafka's own defaults would make a 30 s storm pointless."""

    heartbeat_ms: int = 200
    session_ms: int = 1500
    lag_ms: int = 1000
    fetch_wait_ms: int = 100
    fetch_timeout_ms: int = 500
    retry_ms: int = 50
    election_min_ms: int = 300
    election_max_ms: int = 600
    hw_checkpoint_ms: int = 500
    idle_wait_ms: int = 300
    leader_timeout_ms: int = 1500


class Cluster(_Strict, frozen=True, kw_only=True):
    """The cluster under test: `brokers` n1.. carry partitions log-0.., `voters` v1.. the metadata.

    `flush` is "sync" (every acknowledged turn is on disk) or "async" (every `flush_interval_ms`).
    """

    protocol: str = "kafka"
    brokers: int = 3
    voters: int = 1
    partitions: int = 4
    replication_factor: int = 3
    min_isr: int = 2
    flush: Literal["sync", "async"] = "sync"
    flush_interval_ms: int = 1000
    unclean_election: bool = False
    switches: tuple[str, ...] = ()
    timings: Timings = Timings()

    def broker_names(self) -> tuple[str, ...]:
        """n1, n2, ..."""
        return tuple(f"n{i}" for i in range(1, self.brokers + 1))

    def voter_names(self) -> tuple[str, ...]:
        """v1, v2, ..."""
        return tuple(f"v{i}" for i in range(1, self.voters + 1))

    def partition_names(self) -> tuple[str, ...]:
        """log-0, log-1, ..."""
        return tuple(f"log-{i}" for i in range(self.partitions))


class Workload(_Strict, frozen=True, kw_only=True):
    """What the clients do: `clients` producers and `consumers`, drawn from `seed`.

    `rate` is batches per second and producer (0: as fast as answers come), `batch` records a
    batch of `payload_bytes` each, `acks` 0, 1 or -1 (all). `duration_ms` is the storm; writing
    goes on after the last heal until the cluster has recovered.
    """

    seed: int = 0
    clients: int = 8
    consumers: int = 4
    rate: float = 10.0
    batch: int = 5
    payload_bytes: int = 64
    acks: Literal[0, 1, -1] = -1
    in_flight: int = 1
    timeout_ms: int = 3000
    duration_ms: int = 30_000


class After(_Strict, frozen=True, kw_only=True):
    """A trigger: the `nth` trace event called `event` whose fields equal those of `match`.

    A value in `match` of the form {"at_least": n} or {"at_most": n} compares numbers. `node` and
    `partition` are matched like fields. `delay_ms` is waited after it.
    """

    event: str
    match: dict[str, Any] = {}
    nth: int = 1
    delay_ms: int = 0


class _Fault(_Strict, frozen=True, kw_only=True, tag_field="what"):
    """Common to all faults: exactly one of `at_ms` and `after`; `for_ms` None lasts to the heal."""

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
    match: dict[str, Any] = {}
    percent: int = 100
    delay_ms: int = 0
    jitter_ms: int = 0
    limit: int | None = None


Fault = (
    Kill | PowerCut | Restart | Pause | Resume
    | Cut | Isolate | Bridge | Ring | Delay | Loss | Link
)  # fmt: skip
FAULT_TYPES: Final[tuple[type[_Fault], ...]] = (
    Kill, PowerCut, Restart, Pause, Resume, Cut, Isolate, Bridge, Ring, Delay, Loss, Link,
)  # fmt: skip
FAULT_NAMES: Final = tuple(str(t.__struct_config__.tag) for t in FAULT_TYPES)


class Expectation(_Strict, frozen=True, kw_only=True):
    """What `replay` must see to exit 0; `property` narrows an `invalid` to one property."""

    verdict: Literal["valid", "invalid", "any"] = "any"
    property: str | None = None


class Schedule(_Strict, frozen=True, kw_only=True):
    """One whole experiment. `drawn` marks faults drawn at random: a missing target is a skip."""

    floodmark_schedule: int = FORMAT_VERSION
    name: str = ""
    cluster: Cluster = Cluster()
    workload: Workload = Workload()
    faults: tuple[Fault, ...] = ()
    expectation: Expectation = Expectation()
    drawn: bool = False

    def to_json(self) -> bytes:
        """The canonical form: every field written out, keys sorted, one trailing newline."""
        return msgspec.json.encode(self, order="sorted") + b"\n"

    def to_pretty_json(self) -> bytes:
        """The canonical form indented for a person."""
        return msgspec.json.format(self.to_json(), indent=2) + b"\n"

    def digest(self) -> str:
        """12 hexadecimal digits that name this schedule: a hash of the canonical form."""
        return hashlib.sha256(self.to_json()).hexdigest()[:12]


# Roles name nodes by what they do at the moment of injection; ":partition" narrows some of them.
ROLES: Final = (
    "leader", "follower", "lagging", "controller", "any", "minority", "majority", "all",
    "voters", "clients", "rest",
)  # fmt: skip
ROLES_OF_A_PARTITION: Final = ("leader", "follower", "lagging")
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


def parse(text: bytes, *, source: str = "schedule") -> Schedule:
    """Read and check a schedule. Raises UsageError with the one thing that is wrong and where."""
    try:
        head = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise UsageError(f"{source}: not JSON: {error}") from None
    version = head.get("floodmark_schedule") if isinstance(head, dict) else None
    if version != FORMAT_VERSION:
        raise UsageError(
            f"{source}: floodmark_schedule is {version!r}, this floodmark reads {FORMAT_VERSION}"
        )
    faults = head.get("faults")
    for index, fault in enumerate(faults if isinstance(faults, list) else ()):
        what = fault.get("what") if isinstance(fault, dict) else None
        if what not in FAULT_NAMES:
            raise UsageError(
                f"{source}: fault {index}: unknown fault {what!r} (known: {', '.join(FAULT_NAMES)})"
            )
    try:
        schedule = msgspec.json.decode(text, type=Schedule)
    except msgspec.ValidationError as error:
        raise UsageError(f"{source}: {error}") from None
    check(schedule, source=source)
    return schedule


def load(path: Path) -> Schedule:
    """Read a schedule file, or the `schedule.json` of a run folder."""
    file = path / "schedule.json" if path.is_dir() else path
    try:
        return parse(file.read_bytes(), source=str(file))
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}") from None


def check(schedule: Schedule, *, source: str = "schedule") -> None:
    """Refuse what no run could carry out. Raises UsageError. Protocol and switch names are the
    broker's to know and are checked where a run is made."""
    cluster, workload = schedule.cluster, schedule.workload
    problems = list(_check_shape(cluster, workload))
    if len(schedule.faults) > MAX_FAULTS:
        problems.append(f"{len(schedule.faults)} faults, at most {MAX_FAULTS} are allowed")
    clients = workload.clients + workload.consumers
    for index, fault in enumerate(schedule.faults):
        name = fault.__struct_config__.tag
        where = f"fault {index} ({name})"
        if (fault.at_ms is None) == (fault.after is None):
            problems.append(f"{where}: needs exactly one of at_ms and after")
        if fault.after is not None:
            problems += [f"{where}: after: {wrong}" for wrong in _check_after(fault.after)]
        for times in ("at_ms", "for_ms", "delay_ms", "jitter_ms"):
            value = getattr(fault, times, None)
            if value is not None and value < 0:
                problems.append(f"{where}: {times} is negative")
        for field in ("on", "to"):
            target = getattr(fault, field, None)
            if target is not None and (wrong := check_target(target, cluster, clients)):
                problems.append(f"{where}: {field}: {wrong}")
        for kind in getattr(fault, "kinds", ()):
            if kind not in trace.MESSAGE_KINDS:
                known = ", ".join(trace.MESSAGE_KINDS)
                problems.append(f"{where}: no message of kind '{kind}' (known: {known})")
        if isinstance(fault, Loss | Link) and not 0 < fault.percent <= 100:
            problems.append(f"{where}: percent must be 1..100")
        if isinstance(fault, Link):
            problems += [f"{where}: {wrong}" for wrong in _check_link(fault)]
        if isinstance(fault, PowerCut) and not 0 <= (fault.keep_percent or 0) <= 100:
            problems.append(f"{where}: keep_percent must be 0..100")
    if problems:
        raise UsageError(f"{source}: {problems[0]}")


def _check_after(after: After) -> list[str]:
    """Triggers that could never come, in words."""
    if after.event not in trace.FIELDS:
        return [f"unknown trace event '{after.event}' (known: {', '.join(trace.FIELDS)})"]
    wrong = []
    known = {*COMMON_FIELDS, *trace.FIELDS[after.event]}
    if unknown := sorted(after.match.keys() - known):
        wrong.append(f"'{after.event}' has no field '{unknown[0]}' (it has {sorted(known)})")
    wrong += _check_bounds(after.match)
    if after.nth < 1:
        wrong.append("nth must be at least 1")
    if after.delay_ms < 0:
        wrong.append("delay_ms is negative")
    return wrong


def _check_link(link: Link) -> list[str]:
    """Link rules that could never act, in words."""
    kinds = link.kinds or trace.MESSAGE_KINDS
    known = {field for kind in kinds for field in trace.MESSAGE_FIELDS.get(kind, ())}
    known |= {"kind", "body_bytes"}
    wrong = []
    if unknown := sorted(link.match.keys() - known):
        of = f" of kind {', '.join(link.kinds)}" if link.kinds else ""
        wrong.append(f"match: no message{of} has a field '{unknown[0]}' (known: {sorted(known)})")
    wrong += _check_bounds(link.match)
    if link.limit is not None and link.limit < 1:
        wrong.append("limit must be at least 1")
    if link.action in ("drop", "hold") and (link.delay_ms or link.jitter_ms):
        wrong.append(f"a {link.action} takes no delay_ms or jitter_ms")
    return wrong


def _check_bounds(match: dict[str, Any]) -> list[str]:
    """Bounds of a match that are none, in words."""
    return [
        f"match: {field}: a bound is written at_least or at_most"
        for field, value in match.items()
        if isinstance(value, dict) and not is_bound(value)
    ]


def _check_shape(cluster: Cluster, workload: Workload) -> list[str]:
    """Impossible sizes of the cluster or the workload, in words."""
    wrong = []
    if not 1 <= cluster.brokers <= 99:
        wrong.append("brokers must be 1..99")
    if cluster.voters not in (1, 3, 5):
        wrong.append("voters must be 1, 3 or 5")
    if not 1 <= cluster.partitions <= 10_000:
        wrong.append("partitions must be 1..10000")
    if not 1 <= cluster.replication_factor <= cluster.brokers:
        wrong.append(
            f"replication_factor {cluster.replication_factor} needs as many brokers, "
            f"there are {cluster.brokers}"
        )
    if not 1 <= cluster.min_isr <= max(1, cluster.replication_factor):
        wrong.append(f"min_isr {cluster.min_isr} must be 1..replication_factor")
    if cluster.flush_interval_ms < 1:
        wrong.append("flush_interval_ms must be positive")
    timings = cluster.timings
    if min(msgspec.structs.astuple(timings)) < 1:
        wrong.append("every timing must be positive")
    if timings.election_min_ms > timings.election_max_ms:
        wrong.append("election_min_ms is above election_max_ms")
    if timings.heartbeat_ms * 2 > timings.session_ms:
        wrong.append("session_ms must be at least two heartbeats")
    if not 0 <= workload.clients <= 1000 or not 0 <= workload.consumers <= 1000:
        wrong.append("clients and consumers must be 0..1000")
    if not 1 <= workload.batch <= 10_000 or not 16 <= workload.payload_bytes <= 100_000:
        wrong.append("batch must be 1..10000 and payload_bytes 16..100000")
    if workload.rate < 0 or workload.in_flight < 1 or workload.timeout_ms < 1:
        wrong.append("rate must be >= 0, in_flight and timeout_ms positive")
    if workload.duration_ms < 1:
        wrong.append("duration_ms must be positive")
    return wrong
