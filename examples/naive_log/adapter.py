"""The adapter of the naive log: how a node is started, how a client sends and reads.

floodmark run --system examples/naive_log/adapter.py:NaiveLog"""

import socket
import sys
from pathlib import Path

import naive_log

from floodmark import Adapter, LogSlice, Refused, Roles

LIMIT_S = 1.0


class NaiveLog(Adapter):
    summary = "the naive log of the tutorial, which loses data"
    failover_ms = 3000
    unsynced = ("*.log",)

    def command(self, me, others):
        peers = [f"{node.name}={node.dial('peer')}" for node in others]
        own = [me.name, str(me.folder), me.listen("client"), me.listen("peer")]
        return [sys.executable, naive_log.__file__, *own, *peers]

    def create(self, nodes, partition, copies):
        for node in nodes:  # a log begins with its first record, so it is enough that all follow n1
            told = naive_log.ask(node.dial("client"), {"do": "leader"}, LIMIT_S)
            if told["leader"] != "n1":
                raise RuntimeError(f"{node.name} follows {told['leader']}, not n1")

    def connect(self, client, nodes):
        return nodes  # this log's clients make a connection for each request

    def send(self, nodes, record):
        request = {"do": "append", "partition": record.partition, "record": record.payload.hex()}
        return ask_leader(nodes, request, record.timeout_s)["offset"]

    def read(self, nodes, partition, offset, timeout_s):
        request = {"do": "read", "partition": partition, "from": offset}
        answer = ask_leader(nodes, request, timeout_s)
        records = [bytes.fromhex(record) for record in answer["records"]]
        return LogSlice(list(enumerate(records, offset)), answer["end"])

    def probe(self, me):  # optional: lets a fault aim at the leader
        told = naive_log.ask(me.listen("client"), {"do": "leader"}, LIMIT_S)
        return {"*": Roles()} if told["leader"] == me.name else {}

    def dump(self, me, partition):  # optional: lets floodmark see whether a record is gone
        file = Path(me.folder) / f"{partition}.log"
        if not file.exists():
            return None
        return enumerate(bytes.fromhex(line) for line in naive_log.whole_lines(file))


def ask_leader(nodes, request, limit_s):
    """Return the leader's answer. A node that cannot be reached, or does not lead, has not acted on
    the request."""
    for node in nodes:
        host, port = node.dial("client").split(":")
        try:
            connection = socket.create_connection((host, int(port)), limit_s)
        except OSError:
            continue
        with connection:
            answer = naive_log.exchange(connection, request, limit_s)
        if "error" not in answer:
            return answer
    raise Refused("no node leads")
