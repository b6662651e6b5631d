"""A server for PySyncObj, which is a library: a node with a replicated list for each partition.

`python -m harness.systems.external.pysyncobj_server HOST PORT CONF NODE OTHERS...`: clients connect
to PORT, CONF is the JSON of a `SyncObjConf`, and NODE and OTHERS are the addresses where the nodes
dial each other. A request is a line [what, ..], an answer a line [result, "why not"]. On SIGTERM a
node writes the records that it has applied to the file `applied`."""

from __future__ import annotations

import json
import os
import signal
import socketserver
import sys
from pathlib import Path
from typing import Any, Final

import pysyncobj

from node.formats.json_input import decode

MOST_A_READ: Final = 500
APPLIED: Final = "applied"
_MATCHES: Final = "match_idx_server_"
_REASONS: Final = {
    code: name for name, code in vars(pysyncobj.FAIL_REASON).items() if name.isupper()
}


class Lists(pysyncobj.SyncObjConsumer):  # type: ignore[misc]
    """The replicated lists of records, one for each partition."""

    def __init__(self) -> None:
        super().__init__()
        self.lists: dict[str, list[str]] = {}

    @pysyncobj.replicated  # type: ignore[untyped-decorator]
    def append(self, partition: str, payload: str) -> int:
        """Append a record to the list of a partition; return its index."""
        self.lists.setdefault(partition, []).append(payload)
        return len(self.lists[partition]) - 1


class NodeServer(socketserver.ThreadingTCPServer):
    """A server of clients, with a thread for each."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, address: tuple[str, int], raft: Any, lists: Lists) -> None:
        super().__init__(address, _Handler)
        self.raft = raft
        self.lists = lists

    def answer(self, what: str, partition: str = "", *given: Any) -> Any:
        """Return the result of a request. Raises SyncObjException if it is refused."""
        if what == "append":
            payload, timeout_s = given
            return self.lists.append(partition, payload, sync=True, timeout=timeout_s)
        if what == "read":
            (offset,) = given
            return self.lists.lists.get(partition, [])[offset : offset + MOST_A_READ]
        status = self.raft.getStatus()
        near = [
            name.removeprefix(_MATCHES)
            for name, index in status.items()
            if name.startswith(_MATCHES) and index >= status["commit_idx"]
        ]
        leads = status["leader"] == self.raft.selfNode
        return self.raft.isReady(), status["raft_term"] if leads else 0, near


class _Handler(socketserver.StreamRequestHandler):
    server: NodeServer

    def handle(self) -> None:
        for line in self.rfile:
            try:
                said = self.server.answer(*decode(line, list[Any])), ""
            except pysyncobj.SyncObjException as error:
                said = None, _REASONS.get(error.errorCode, str(error.errorCode))
            self.wfile.write(json.dumps(said).encode() + b"\n")


def main(host: str, port: str, conf: str, node: str, *others: str) -> None:
    """Serve clients until SIGTERM, then write the file `applied`."""
    # What an earlier process has left says nothing about one that does not end in order.
    Path(APPLIED).unlink(missing_ok=True)
    lists = Lists()
    settings = pysyncobj.SyncObjConf(**decode(conf, dict[str, Any]))
    raft = pysyncobj.SyncObj(node, others, settings, consumers=[lists])

    def write_and_end() -> None:
        try:
            Path(APPLIED).write_text(json.dumps(lists.lists))
        except OSError as error:
            sys.stderr.write(f"{error}\n")
            os._exit(1)
        os._exit(0)

    def stop(number: int, frame: Any) -> None:
        # The thread of the Raft changes the lists: nobody else may write them down.
        raft.addOnTickCallback(write_and_end)

    signal.signal(signal.SIGTERM, stop)
    NodeServer((host, int(port)), raft, lists).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
