"""The configuration files of Kafka's brokers and controllers, and of ZooKeeper.

Sessions last 3 s, so that a storm has room for several failovers."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from harness.systems.adapter import MEMBERS, Node
from harness.systems.external.versions import in_order
from node.formats.errors import UsageError

SESSION_MS: Final = 6000
GROUPS: Final = f"""group.initial.rebalance.delay.ms=0
        group.consumer.session.timeout.ms={SESSION_MS}
        group.consumer.min.session.timeout.ms={SESSION_MS}
        group.consumer.heartbeat.interval.ms=1000\ngroup.consumer.min.heartbeat.interval.ms=1000"""
"""Settings of brokers for groups; a broker ignores those that its version does not know."""

QUORUM: Final = [3, 9]
"""The first version with a quorum of controllers, which also moves replicas."""
_JOINS: Final = [4, 2]
"""The first version whose controllers join by themselves."""
LOG4J: Final = """log4j.rootLogger=INFO, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender
    log4j.appender.out.layout=org.apache.log4j.PatternLayout
    log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n"""


def of_zookeeper(me: Node) -> str:
    """Return the settings of ZooKeeper."""
    return f"""clientPortAddress={me.host}\nclientPort={me.listens["client"]}
        dataDir={me.folder}\ntickTime=500\nmaxClientCnxns=0\nadmin.enableServer=false"""


def of_old_broker(me: Node, others: Sequence[Node], given: Mapping[str, str]) -> str:
    """Return the settings of a broker that uses ZooKeeper."""
    zookeeper = next(node.dial("client") for node in others if node.is_voter)
    return f"""{_of_broker(me, given)}\nbroker.id={number(me)}
        zookeeper.connect={zookeeper}\nzookeeper.connection.timeout.ms=30000
        zookeeper.session.timeout.ms=3000\nlisteners=PLAINTEXT://{me.listen("client")}
        advertised.listeners=PLAINTEXT://{me.dial("client")}"""


def zookeeper_of(node: Node) -> str:
    """Return the address of ZooKeeper in the settings of a broker."""
    lines = (node.folder / "config").read_text().splitlines()
    (found,) = (line for line in lines if line.startswith("zookeeper.connect="))
    return found.partition("=")[2]


def of_quorum(me: Node, others: Sequence[Node], given: Mapping[str, str], version: str) -> str:
    """Return the settings of a broker, a controller, or both. Its rack says which version it is."""
    nodes = sorted((me, *others), key=lambda node: node.name)
    controllers = [node for node in nodes if node.is_voter] or nodes
    quorum = ",".join(node.dial("controller") for node in controllers)
    does = ["broker"] * (not me.is_voter) + ["controller"] * (me in controllers)
    names = [("PLAINTEXT", "client")] * ("broker" in does)
    names += [("CONTROLLER", "controller")] * ("controller" in does)
    common = f"""node.id={number(me)}\nprocess.roles={",".join(does)}
        listeners={",".join(f"{name}://{me.listen(role)}" for name, role in names)}
        advertised.listeners={",".join(f"{name}://{me.dial(role)}" for name, role in names)}
        controller.listener.names=CONTROLLER\ncontroller.quorum.bootstrap.servers={quorum}
        controller.quorum.auto.join.enable={"true" if me in controllers else "false"}
        broker.session.timeout.ms=3000\nbroker.heartbeat.interval.ms=500"""
    if me.is_voter:
        return f"{common}\nlog.dirs={me.folder}/logs"
    # The last of them would wait for minutes, as controllers without a majority move no leader.
    alone = "" if me not in controllers else "\ncontrolled.shutdown.enable=false"
    return f"{common}\n{_of_broker(me, given)}\nbroker.rack={version}{alone}"


def first_controllers(me: Node, others: Sequence[Node]) -> list[str]:
    """Return how a disk is formatted: with the first controllers and their directories, or without
    them for a node that joins them, or is none."""
    nodes = sorted((me, *others), key=lambda node: node.name)
    controllers = [node for node in nodes if node.is_voter] or nodes
    if me.joins or me not in controllers:
        return ["--no-initial-controllers"]
    found = (f"{number(n)}@{n.dial('controller')}:{_directory(n)}" for n in controllers)
    return ["--initial-controllers", ",".join(found)]


def _directory(node: Node) -> str:
    """Return the id of the first directory of a controller."""
    return urlsafe_b64encode(bytes([number(node)]) * 16).decode().rstrip("=")


def _of_broker(me: Node, given: Mapping[str, str]) -> str:
    return f"""log.dirs={me.folder}/logs\nreplica.lag.time.max.ms=4000
        min.insync.replicas={given["min_isr"]}
        unclean.leader.election.enable={given["unclean"]}
        auto.create.topics.enable=false\noffsets.topic.num.partitions=1
        controlled.shutdown.retry.backoff.ms=500\nlog.cleaner.enable=false
        {GROUPS if int(given.get(MEMBERS.name, 0)) else ""}"""


def number(node: Node) -> int:
    """Return the id of a node: of n1 1, of the controller v1 101."""
    return int(node.name[1:]) + 100 * node.is_voter


def home_of(server: Path | str) -> Path:
    """Return the folder that has the libraries of a server. Raises UsageError."""
    for folder in (Path(server), *Path(server).parents):
        if (folder / "libs").is_dir():
            return folder
    raise UsageError(f"{server}: no folder above it has Kafka's libs")


def version_in(home: Path) -> str:
    """Return the version of the libraries in a folder. Raises UsageError."""
    for jar in home.glob("libs/kafka-clients-*.jar"):
        return jar.stem.removeprefix("kafka-clients-")
    raise UsageError(f"{home}/libs has no kafka-clients")


def changes_of(version: Callable[[], str], *, combined: bool) -> tuple[str, ...]:
    """Return the changes of a cluster of this version; all of them if it is not installed. Only the
    voters name members, so brokers beside separate controllers neither join nor leave."""
    moves = ("reassign", "upgrade", "downgrade")
    with suppress(UsageError):
        if in_order(version()) < QUORUM:
            return moves[1:]
        if in_order(version()) < _JOINS:  # What left could not join again.
            return moves
    return ("join", "leave", "replace", *moves) if combined else moves
