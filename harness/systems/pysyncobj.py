"""PySyncObj, a Raft in Python: a list of records for each partition."""

import json
import socket
import sys
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import Any, BinaryIO, cast

from harness.systems import adapter
from harness.systems.adapter import LogSlice, Node, Record, Refused, Roles
from node.formats.json_input import decode

# The library is imported by the server only: on import it replaces socket.inet_ntop with a function
# of Windows, upon which psutil can list no connections any more.
RELEASE = metadata.version("pysyncobj")
SERVER = "harness.systems.external.pysyncobj_server"
FILES = {"memory": (), "journal": ("journalFile",), "dump": ("journalFile", "fullDumpFile")}
Connection = tuple[socket.socket, BinaryIO]


class PySyncObj(adapter.Adapter):
    summary = "PySyncObj, a Raft in Python with a list for each partition"
    needs = "pip install '.[pysyncobj]' in a clone of floodmark"
    words = "raft protocol for leader election and log replication"
    source = "https://github.com/bakwc/PySyncObj"
    settings = (
        adapter.Setting("files", "memory", "what a node keeps on its disk", tuple(FILES)),
        adapter.Setting("compact", "5000", "logCompactionMinEntries", (adapter.POSITIVE,)),
    )
    failover_ms, stop_codes = 6000, (0,)

    def command(self, me: Node, others: Sequence[Node]) -> list[str]:
        conf: dict[str, Any] = {
            name: str(me.folder / name) for name in FILES[self.setting["files"]]
        }
        conf |= {"bindAddress": me.listen("peer"), "connectionRetryTime": 1.0}
        conf |= {"logCompactionMinEntries": int(self.setting["compact"])}
        peers = [node.dial("peer") for node in (me, *others)]
        told = [me.host, str(me.listens["client"]), json.dumps(conf), *peers]
        return [sys.executable, "-P", "-m", SERVER, *told]

    def version(self) -> str:
        return RELEASE

    def connect(self, client: str, nodes: Sequence[Node]) -> Connection:
        made = socket.create_connection((nodes[0].host, nodes[0].dialed["client"]), 1)
        return made, cast(BinaryIO, made.makefile("rwb"))

    def close(self, connection: Connection) -> None:  # type: ignore[override]
        connection[0].close()

    def create(self, nodes: Sequence[Node], partition: str, copies: int) -> None:
        if not all(ask(self.connect("setup", [node]), 2, "status")[0] for node in nodes):
            raise RuntimeError("not all nodes are ready")

    def send(self, connection: Connection, record: Record) -> int:
        given = [record.partition, record.payload.hex()]
        return int(ask(connection, record.timeout_s, "append", *given, record.timeout_s))

    def read(self, connection: Connection, part: str, offset: int, timeout_s: float) -> LogSlice:
        records = ask(connection, timeout_s, "read", part, offset)
        return LogSlice([(offset + n, bytes.fromhex(text)) for n, text in enumerate(records)])

    def probe(self, me: Node) -> dict[str, Roles]:
        with socket.create_connection((me.host, me.listens["client"]), 1) as made:
            _, term, in_sync = ask((made, cast(BinaryIO, made.makefile("rwb"))), 1, "status")
        return {"*": Roles(term, (me.name, *in_sync))} if term else {}

    def dump(self, me: Node, partition: str) -> Iterator[tuple[int, bytes]]:
        lists = decode((me.folder / "applied").read_bytes(), dict[str, list[str]])
        return ((n, bytes.fromhex(text)) for n, text in enumerate(lists.get(partition, ())))


def ask(connection: Connection, timeout_s: float, *request: Any) -> Any:
    """Return the answer of a node. Raises Refused if it certainly did nothing, else
    RuntimeError."""
    connection[0].settimeout(timeout_s)
    connection[1].write(json.dumps(request).encode() + b"\n")
    connection[1].flush()
    answer, failure = decode(connection[1].readline(), tuple[Any, Any])
    if failure in ("QUEUE_FULL", "NOT_LEADER", "REQUEST_DENIED"):  # Before anything is appended.
        raise Refused(failure)
    if failure:
        raise RuntimeError(failure)
    return answer
