"""A naive replicated log, for the tutorial: one process a node, one file a partition, no library.

    python naive_log.py NAME FOLDER CLIENT_ADDRESS PEER_ADDRESS OTHER=PEER_ADDRESS ...

The leader is n1; n2 if n1 does not answer; and so on. The leader appends a record to its file and
acknowledges it. All others copy from the leader once a second. A request is a line of JSON,
and so is its answer. It loses what it acknowledged: docs/tutorial.md shows when."""

import json
import socket
import socketserver
import sys
import threading
import time
from pathlib import Path

COPY_EVERY_S = 1.0
PEER_LIMIT_S = 0.5


def ask(address, request, limit_s):
    """Send one request to an address such as 127.0.0.1:7001, and return the answer."""
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), limit_s) as connection:
        return exchange(connection, request, limit_s)


def exchange(connection, request, limit_s):
    connection.settimeout(limit_s)
    connection.sendall(json.dumps(request).encode() + b"\n")
    with connection.makefile("rb") as answers:
        line = answers.readline()
    if not line.endswith(b"\n"):
        raise ConnectionError("the connection ended before the answer")
    return json.loads(line)


class Node:
    def __init__(self, name, folder, others):
        self.name, self.folder, self.others = name, Path(folder), others
        self.lock = threading.Lock()
        self.leader = None
        self.logs = {}
        for file in self.folder.glob("*.log"):
            self.write(file.stem, 0, whole_lines(file))

    def write(self, partition, start, records):
        """Replace the log from the offset `start` on by `records`. Nothing is synced to the
        disk."""
        log = self.logs.setdefault(partition, [])
        appending = 0 < start == len(log)
        with (self.folder / f"{partition}.log").open("a" if appending else "w") as file:
            file.writelines(f"{r}\n" for r in (records if appending else log[:start] + records))
        log[start:] = records

    def copy_from(self, name, have):
        """Copy all logs from another node; `have` is how many records of each partition to keep
        here."""
        logs = ask(self.others[name], {"do": "copy", "have": have}, PEER_LIMIT_S)
        with self.lock:
            for partition, (start, records) in logs.items():
                self.write(partition, start, records)

    def follow(self):
        """Copy from the first node before this one that answers; if none does, lead."""
        while True:
            for name in [name for name in self.others if name < self.name] + [self.name]:
                try:
                    if name != self.name:
                        self.copy_from(name, {p: len(log) for p, log in self.logs.items()})
                    self.leader = name
                    break
                except (OSError, ValueError):
                    continue
            time.sleep(COPY_EVERY_S)

    def catch_up(self):
        """Copy all logs from another node after a start: this one may have missed records."""
        for name in self.others:
            try:
                self.copy_from(name, {})
                break
            except (OSError, ValueError):
                continue

    def answer(self, request):
        with self.lock:
            if request["do"] == "leader":
                return {"leader": self.leader}
            if request["do"] == "copy":
                starts = {p: min(request["have"].get(p, 0), len(self.logs[p])) for p in self.logs}
                return {p: (start, self.logs[p][start:]) for p, start in starts.items()}
            if self.leader != self.name:
                return {"error": "not the leader"}
            log = self.logs.setdefault(request["partition"], [])
            if request["do"] == "read":
                return {"records": log[request["from"] :][:500], "end": len(log)}
            self.write(request["partition"], len(log), [request["record"]])
            return {"offset": len(log) - 1}


def whole_lines(file):
    """Return the records of a file, without half a line that a crash left at its end."""
    return file.read_text().split("\n")[:-1]


def serve(address, node):
    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            for line in self.rfile:
                self.wfile.write(json.dumps(node.answer(json.loads(line))).encode() + b"\n")

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = daemon_threads = True

        def handle_error(self, request, client_address):
            """Ignore a connection that broke."""

    host, port = address.split(":")
    threading.Thread(target=Server((host, int(port)), Handler).serve_forever, daemon=True).start()


def main(name, folder, client_address, peer_address, *others):
    node = Node(name, folder, dict(sorted(other.split("=") for other in others)))
    node.catch_up()
    serve(peer_address, node)
    serve(client_address, node)
    node.follow()


if __name__ == "__main__":
    main(*sys.argv[1:])
