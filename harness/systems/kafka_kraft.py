"""Apache Kafka without ZooKeeper (KRaft), from the folder of a release: written from general
knowledge of its settings, and never started, for want of such a release."""

import shlex
from collections.abc import Iterator, Sequence

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from harness.systems.adapter import Node, Promise, Roles, Setting
from harness.systems.external.kafka_protocol import ACKS, KafkaProtocol, read_log, release_in

WORDS = "a committed message will not be lost, as long as there is at least one in sync replica"
CLUSTER_ID = "Zmxvb2RtYXJrLWtyYWZ0MA"


class KafkaKraft(KafkaProtocol):
    summary = "Apache Kafka in KRaft mode (untested), a topic for each partition"
    needs = "pip install 'floodmark[kafka]', and --set home=DIR with the folder of a release"
    settings = (
        ACKS,
        Setting("min_isr", "2", "min.insync.replicas", ("1", "2", "3")),
        Setting("unclean", "false", "unclean.leader.election.enable", ("true", "false")),
        Setting("home", "", "the folder of a release of Kafka"),
    )
    unsynced = ("logs/*/*.log",)
    failover_ms = 9000

    def command(self, me: Node, others: Sequence[Node]) -> list[str]:
        every = sorted((me, *others), key=lambda node: node.name)
        voters = ",".join(f"{node.name[1:]}@{node.dial('peer')}" for node in every)
        config = {
            "process.roles": "broker,controller",
            "node.id": me.name[1:],
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://{me.listen('client')},CONTROLLER://{me.listen('peer')}",
            "advertised.listeners": f"PLAINTEXT://{me.dial('client')}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": me.folder / "logs",
            "min.insync.replicas": self.setting["min_isr"],
            "unclean.leader.election.enable": self.setting["unclean"],
            "broker.session.timeout.ms": 3000,
            "broker.heartbeat.interval.ms": 500,
            "replica.lag.time.max.ms": 4000,
            "auto.create.topics.enable": "false",
            "offsets.topic.num.partitions": 1,
        }
        lines = "".join(f"{name}={value}\n" for name, value in config.items())
        (me.folder / "server.properties").write_text(lines)
        java = [self.java, "-Xmx512m", "-cp", f"{self.home}/libs/*"]
        run = [*java, "kafka.Kafka", "server.properties"]
        if (me.folder / "logs" / "meta.properties").exists():
            return run
        tool = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", "server.properties"]
        return ["sh", "-c", f"{shlex.join([*java, *tool])} && exec {shlex.join(run)}"]

    def version(self) -> str:
        return release_in(self.home)

    def promise(self) -> Promise:
        return Promise(words=WORDS, source="https://kafka.apache.org/documentation/#replication")

    def create(self, nodes: Sequence[Node], partition: str, copies: int) -> None:
        admin, ids = self.admin(nodes[0]), [int(node.name[1:]) for node in nodes]
        known = admin.list_topics(timeout=2)
        if len(known.brokers) < len(nodes):
            raise RuntimeError(f"{len(known.brokers)} brokers are there")
        if partition not in known.topics:
            turn = int(partition.rpartition("-")[2]) % len(ids)
            replicas = (ids[turn:] + ids[:turn])[:copies]
            topic = NewTopic(partition, num_partitions=1, replica_assignment=[replicas])
            admin.create_topics([topic])[partition].result(5)

    def probe(self, me: Node) -> dict[str, Roles]:
        found = {}
        for name, topic in self.admin(me).list_topics(timeout=1).topics.items():
            if (first := topic.partitions.get(0)) and f"n{first.leader}" == me.name:
                found[name] = Roles(-1, tuple(f"n{number}" for number in first.isrs))
        return found

    def dump(self, me: Node, partition: str) -> Iterator[tuple[int, bytes]] | None:
        return read_log(me.folder / "logs", partition)

    def admin(self, node: Node) -> AdminClient:
        kept: dict[str, AdminClient] = self.__dict__.setdefault("admins", {})
        if node.name not in kept:
            kept[node.name] = AdminClient(self.options([node]))
            self.resources.callback(kept.clear)
        return kept[node.name]
