"""etcd by HTTP and JSON: a record is a key of its own under its partition, offset = revision."""

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from contextlib import suppress
from http.client import HTTPConnection
from typing import Any

from harness.systems import adapter
from harness.systems.adapter import LogSlice, Members, Node, Record, Refused, Roles
from node.formats.json_input import MOST_OPEN_BYTES, decode


class Etcd(adapter.Adapter):
    summary = "etcd, a key for each record, ordered by revision"
    needs = "pip install '.[etcd]' in a clone of floodmark"
    binary = "etcd"
    words = "Any completed operations are durable"
    source = "https://etcd.io/docs/v3.5/learning/api_guarantees/"
    contiguous = False
    failover_ms, change_after_ms, fresh_identity = 4000, 8000, False
    changes = ("join", "leave", "replace", "return", "upgrade", "downgrade")
    upgrades = (("3.4", "3.5"),)
    operations = ("move-leader", "compact", "defragment")

    def command(self, me: Node, others: Sequence[Node]) -> list[str]:
        peers = sorted(f"{node.name}=http://{node.dial('peer')}" for node in (me, *others))
        flags = {
            "name": me.name,
            "data-dir": me.folder / "data",
            "listen-peer-urls": f"http://{me.listen('peer')}",
            "listen-client-urls": f"http://{me.listen('client')}",
            "initial-advertise-peer-urls": f"http://{me.dial('peer')}",
            "advertise-client-urls": f"http://{me.dial('client')}",
            "initial-cluster": ",".join(peers),
        }
        flags |= {"initial-cluster-state": "existing"} if me.joins else {}
        return [me.server or self.server, *(f"--{flag}={value}" for flag, value in flags.items())]

    def connect(self, client: str, nodes: Sequence[Node]) -> HTTPConnection:
        for node in nodes:
            with suppress(OSError):
                connection = HTTPConnection(node.dial("client"), timeout=1)
                connection.connect()
                return connection
        raise ConnectionError("no member answers")

    def create(self, nodes: Sequence[Node], partition: str, copies: int) -> None:
        ask(self.connect("setup", nodes), "kv/range", 1, key=text(partition))

    def admit(self, nodes: Sequence[Node], joining: Node) -> None:
        if joining.dial("peer") not in self.members(nodes[0]).names:
            peers = [f"http://{joining.dial('peer')}"]
            ask(self.connect("setup", nodes), "cluster/member/add", 2, peerURLs=peers)

    def change(
        self, nodes: Sequence[Node], want: Sequence[Node], partition: str, copies: int
    ) -> None:
        connection, names = self.connect("setup", nodes), {node.dial("peer") for node in want}
        for member in () if partition else listed(connection):
            if not dialed(member) & names:
                ask(connection, "cluster/member/remove", 2, ID=member["ID"])

    def members(self, me: Node) -> Members:
        connection = HTTPConnection(me.listen("client"), timeout=1)
        names = frozenset[str]().union(*map(dialed, listed(connection)))
        return Members(names, adapter.http_json(me.listen("client"), "/version")["etcdserver"])

    def operate(self, action: str, me: Node, nodes: Sequence[Node]) -> None:
        here = self.connect("operator", [me])
        header = ask(here, "kv/range", 1, key=text("-"))["header"]
        if action == "defragment":
            ask(here, "maintenance/defragment", 4)
        elif action == "compact":
            ask(here, "kv/compaction", 4, revision=header["revision"], physical=True)
        elif not any(self.hands_over(node, header["member_id"]) for node in nodes):
            raise Refused("no member leads, or it leads already")

    def hands_over(self, node: Node, to: str) -> bool:
        """Return whether a member led and gave its leadership to another one."""
        with suppress(OSError, RuntimeError):
            there = self.connect("operator", [node])
            ask(there, "maintenance/transfer-leadership", 4, targetID=to)
            return True
        return False

    def send(self, connection: HTTPConnection, record: Record) -> int:
        key, value = f"{record.partition}/{record.id}", record.payload
        answer = ask(connection, "kv/put", record.timeout_s, key=text(key), value=text(value))
        return int(answer["header"]["revision"])

    def read(self, connection: HTTPConnection, part: str, offset: int, s: float) -> LogSlice:
        place = {"key": text(f"{part}/"), "range_end": text(f"{part}0"), "limit": 500}
        order = {"sort_target": "MOD", "sort_order": "ASCEND", "min_mod_revision": offset}
        found = ask(connection, "kv/range", s, **place, **order).get("kvs", ())
        return LogSlice([(int(r["mod_revision"]), b64decode(r["value"])) for r in found])

    def probe(self, me: Node) -> dict[str, Roles]:
        connection = HTTPConnection(me.listen("client"), timeout=1)
        connection.request("GET", "/debug/vars")
        raft = decode(connection.getresponse().read(MOST_OPEN_BYTES), dict)["raft.status"]
        if raft["raftState"] != "StateLeader":
            return {}
        names = {int(member["ID"]): member.get("name", "") for member in listed(connection)}
        near = [i for i, p in raft["progress"].items() if p["match"] >= raft["commit"] - 100]
        return {"*": Roles(int(raft["term"]), tuple(names[int(i, 16)] for i in near))}


def ask(connection: HTTPConnection, call: str, timeout_s: float, **body: Any) -> dict[str, Any]:
    """Call etcd's JSON gateway and return the answer. Raises RuntimeError for an error of etcd."""
    if connection.sock is not None:
        connection.sock.settimeout(timeout_s)
    connection.request("POST", f"/v3/{call}", json.dumps(body))
    told = connection.getresponse()
    answer: dict[str, Any] = decode(told.read(MOST_OPEN_BYTES), dict)
    if told.status != 200:
        raise RuntimeError(answer.get("message", told.reason))
    return answer


def listed(connection: HTTPConnection) -> list[dict[str, Any]]:
    """Return the members that a member knows by itself."""
    found: list[dict[str, Any]]
    found = ask(connection, "cluster/member/list", 1, linearizable=False)["members"]
    return found


def dialed(member: dict[str, Any]) -> set[str]:
    """Return the addresses at which the others dial a member."""
    return {url.removeprefix("http://") for url in member["peerURLs"]}


def text(data: str | bytes) -> str:
    """Encode a key or value in base64, as the API wants it."""
    return b64encode(data.encode() if isinstance(data, str) else data).decode()
