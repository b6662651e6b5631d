"""A log on one node, in a file: `python -I -S trial_node.py FOLDER HOST PORT`. Stdlib only.

Requests and answers are one JSON line each: {"append": text, "to": partition} -> {"offset": n},
{"from": n, "of": partition} -> {"records": [text, ..]}. It writes to a file per partition without
syncing it, and has them again after a restart."""

import json
import os
import signal
import socketserver
import sys
import threading


class Log:
    """The records of each partition."""

    def __init__(self, folder):
        self.folder = folder
        self.lock = threading.Lock()
        self.records = {}

    def of(self, partition):
        if partition not in self.records:
            path = os.path.join(self.folder, f"{partition}.log")
            open(path, "ab").close()
            with open(path, "rb") as file:
                whole = file.read().rpartition(b"\n")
            with open(path, "wb") as file:
                file.write(whole[0] + whole[1])
            self.records[partition] = whole[0].decode().splitlines()
        return self.records[partition]

    def answer(self, asked):
        with self.lock:
            if "append" not in asked:
                return {"records": self.of(asked["of"])[asked["from"] : asked["from"] + 500]}
            records = self.of(asked["to"])
            with open(os.path.join(self.folder, f"{asked['to']}.log"), "ab") as file:
                file.write(asked["append"].encode() + b"\n")
            records.append(asked["append"])
            return {"offset": len(records) - 1}


class Handler(socketserver.StreamRequestHandler):
    """One connection."""

    def handle(self):
        for line in self.rfile:
            self.wfile.write(json.dumps(self.server.log.answer(json.loads(line))).encode() + b"\n")


class Server(socketserver.ThreadingTCPServer):
    """A thread for each connection."""

    allow_reuse_address = True
    daemon_threads = True


def main(folder, host, port):
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    with Server((host, int(port)), Handler) as server:
        server.log = Log(folder)
        server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
