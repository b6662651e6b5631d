"""Apache Kafka: with a quorum of controllers from 3.9 on, and with ZooKeeper before."""

import shlex
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from harness.systems.adapter import Members, Node, Roles, Setting
from harness.systems.external import kafka_config, kafka_requests
from harness.systems.external.kafka_clients import ACKS, PROTOCOL, KafkaClients
from harness.systems.external.kafka_config import number
from harness.systems.external.kafka_log import read_log
from harness.systems.external.kafka_zookeeper import ZooKeeper
from harness.systems.external.versions import in_order
from node.formats.json_input import decode

Nodes = Sequence[Node]
JVM = """-Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto -Dkafka.logs.dir=.
    -Dlog4j.configuration=file:log4j.properties -Dorg.apache.logging.log4j.level=INFO"""
AGAIN = ["sh", "-c", 'sleep 3; exec "$0" "$@"']  # Until its old session ends its name is taken.
FORMAT = ["sh", "-c", 'eval "$0" && exec "$@"']
OFFSETS = "__consumer_offsets"
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"


class Kafka(KafkaClients):
    summary = "Apache Kafka, a topic for each partition"
    needs = "pip install '.[kafka]' in a clone of floodmark, then floodmark systems get kafka"
    words = "a committed message will not be lost, as long as there is at least one in sync replica"
    source = "https://kafka.apache.org/documentation/#replication"
    binary, standard = "kafka", "4.4.0"
    settings = (
        ACKS,
        Setting("min_isr", "1", "min.insync.replicas", ("1", "2", "3"), "2"),
        Setting("unclean", "false", "unclean.leader.election.enable", ("true", "false"), "false"),
        Setting("elr", "", "eligible.leader.replicas.version, from 4.0 on", ("", "0", "1")),
        Setting("controllers", "combined", "with the brokers, or v1", ("combined", "separate")),
        PROTOCOL,
    )
    listens, unsynced = ("client", "controller"), ("logs/log-*/*.log",)
    failover_ms, restart_ms, change_ms = 9000, 8000, 30_000
    stop_codes = (0, -15, 143, 1)  # 1: it was not up yet.
    upgrades, fresh_identity = (("4.", "4."), ("3.9", "4.")), False

    @property
    def home(self) -> Path:
        return kafka_config.home_of(self.server)

    def version(self) -> str:
        return kafka_config.version_in(self.home)

    @cached_property
    def has_quorum(self) -> bool:
        return in_order(self.version()) >= kafka_config.QUORUM

    @property
    def voters(self) -> int:  # type: ignore[override]
        return int(not self.has_quorum or self.setting["controllers"] == "separate")

    @property
    def changes(self) -> tuple[str, ...]:  # type: ignore[override]
        combined = self.setting["controllers"] == "combined"
        return kafka_config.changes_of(self.version, combined=combined)

    @property
    def speaks(self) -> str:  # type: ignore[override]
        return self.version() if in_order(self.version()) < [0, 10] else ""

    def dump(self, me: Node, partition: str) -> Iterator[tuple[int, bytes]] | None:
        return read_log(me.folder / "logs", partition)

    # -- nodes

    def command(self, me: Node, others: Nodes) -> list[str]:
        home, first, main = kafka_config.home_of(me.server or self.home), [], "kafka.Kafka"
        java = [self.java, *JVM.split(), "-cp", f"{home}/libs/*"]
        if self.has_quorum:
            version = kafka_config.version_in(home)
            config = kafka_config.of_quorum(me, others, self.setting, version)
            if not (me.folder / "logs/meta.properties").exists():
                words = ["kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", "config"]
                words += kafka_config.first_controllers(me, others)
                if elr := self.setting["elr"]:
                    words += ["--feature", f"eligible.leader.replicas.version={elr}"]
                first = [*FORMAT, shlex.join((*java, *words))]
        elif me.is_voter:
            main = "-Dzookeeper.forceSync=no org.apache.zookeeper.server.quorum.QuorumPeerMain"
            config = kafka_config.of_zookeeper(me)
        else:
            first = AGAIN * (me.folder / "config").exists()
            config = kafka_config.of_old_broker(me, others, self.setting)
        for name, lines in (("config", config), ("log4j.properties", kafka_config.LOG4J)):
            (me.folder / name).write_text("\n".join(map(str.strip, lines.splitlines())) + "\n")
        return [*first, *java, *main.split(), "config"]

    # -- metadata, of either generation

    def create(self, nodes: Nodes, partition: str, copies: int) -> None:
        ids = [number(node) for node in nodes]
        turn = int(partition.rpartition("-")[2]) % len(ids)
        replicas = (ids[turn:] + ids[:turn])[:copies]
        if min(map(self.knows, nodes)) < len(nodes):  # One cannot follow whom it does not know.
            raise RuntimeError("not all brokers know all others")
        if not self.has_quorum:
            self.zookeeper(nodes[0]).create(ids, partition, replicas)
        elif partition not in (told := kafka_requests.metadata(nodes[0].dial("client"))).topics:
            own = {"min.insync.replicas": self.setting["min_isr"]}
            own["unclean.leader.election.enable"] = self.setting["unclean"]
            topic = NewTopic(partition, 1, replica_assignment=[replicas], config=own)
            admin = AdminClient(self.options(nodes))
            admin.create_topics([topic])[partition].result(5)
        elif told.topics[partition].leader < 0:
            raise RuntimeError(f"{partition} has no leader")

    def probe(self, me: Node) -> dict[str, Roles]:
        if not self.has_quorum:
            return self.zookeeper(me).led_by(number(me))
        state = decode((me.folder / "logs/__cluster_metadata-0/quorum-state").read_bytes(), dict)
        led = {"": Roles(state["leaderEpoch"])} if state["leaderId"] == number(me) else {}
        topics = kafka_requests.metadata(me.listen("client")).topics
        for topic, part in topics.items():
            if part.leader == number(me):
                isr, replicas = (tuple(f"n{i}" for i in ids) for ids in (part.isr, part.replicas))
                led[topic] = Roles(part.epoch, isr, replicas)
        if led.pop(OFFSETS, None):  # Its leader coordinates every group.
            led |= {f"group:{topic}": Roles() for topic in topics if topic != OFFSETS}
        return led

    def zookeeper(self, node: Node) -> ZooKeeper:
        if not hasattr(self, "client"):
            self.client = ZooKeeper(kafka_config.zookeeper_of(node))
            self.resources.callback(self.client.close)
        return self.client

    def members(self, me: Node) -> Members:
        if not self.has_quorum:
            return Members()
        known = kafka_requests.metadata(me.listen("client")).brokers
        ids = () if self.voters else kafka_requests.voters(me.listen("client"))
        return Members(frozenset(f"n{each}" for each in ids), known[number(me)])

    def change(self, nodes: Nodes, want: Nodes, partition: str, copies: int) -> None:
        address, wanted = nodes[0].dial("client"), [number(node) for node in want]
        if partition:
            kafka_requests.reassign(address, partition, wanted[:copies])
            return
        for topic, part in kafka_requests.metadata(address).topics.items():
            if not {*part.replicas} <= {*wanted}:
                if topic == OFFSETS:  # The others are moved by name.
                    stay = sorted(wanted, key=lambda each: each not in part.replicas)
                    kafka_requests.reassign(address, topic, stay[:3])
                raise RuntimeError(f"{topic} is on a node that leaves")
        for gone, directory in () if self.voters else kafka_requests.voters(address).items():
            if gone not in wanted:
                kafka_requests.remove_voter(address, CLUSTER, gone, directory)
