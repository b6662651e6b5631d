"""A node without floodmark: `python -I -S tcp_node.py HOST PORT...` echoes on each port.

It does what lines of its standard input say, one JSON list a line, and answers each with one line:
`dial NAME HOST PORT`, `send NAME TEXT`, `flood NAME BYTES` (sends without waiting, as much as
fits), `receive NAME BYTES SECONDS`, `close NAME`, `abort NAME`, `heard` (bytes that its echo
servers got), `connections` (how many they accepted), `child` (from now on a child process in a
session of its own obeys)."""

import json
import os
import socket
import struct
import sys
import threading

LIMIT_S = 120.0


class Node:
    """Echo servers in threads, and named connections."""

    def __init__(self, host, ports):
        self.heard = 0
        self.accepted = 0
        self.dialed = {}
        for port in ports:
            listener = socket.create_server((host, port), backlog=64)
            threading.Thread(target=self.listen, args=(listener,), daemon=True).start()

    def listen(self, listener):
        while True:
            connection, _ = listener.accept()
            self.accepted += 1
            threading.Thread(target=self.echo, args=(connection,), daemon=True).start()

    def echo(self, connection):
        try:
            while data := connection.recv(1 << 16):
                self.heard += len(data)
                connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def obey(self, what, *rest):
        try:
            return getattr(self, "do_" + what)(*rest)
        except TimeoutError:
            return "timeout"
        except OSError as error:
            return type(error).__name__

    def do_dial(self, name, host, port):
        self.dialed[name] = socket.create_connection((host, port), LIMIT_S)
        return "ok"

    def do_send(self, name, text):
        self.dialed[name].settimeout(LIMIT_S)
        self.dialed[name].sendall(text.encode())
        return "ok"

    def do_flood(self, name, most):
        sent = 0
        self.dialed[name].setblocking(False)
        try:
            while sent < most:
                sent += self.dialed[name].send(bytes(min(65536, most - sent)))
        except BlockingIOError:
            pass
        return sent

    def do_receive(self, name, size, seconds):
        found = b""
        self.dialed[name].settimeout(seconds)
        while len(found) < size:
            data = self.dialed[name].recv(size - len(found))
            if not data:
                return "eof"
            found += data
        return found.decode()

    def do_close(self, name):
        self.dialed.pop(name).close()
        return "ok"

    def do_abort(self, name):
        mine = self.dialed.pop(name)
        mine.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        mine.close()
        return "ok"

    def do_heard(self):
        return self.heard

    def do_connections(self):
        return self.accepted

    def do_child(self):
        if os.fork():
            threading.Event().wait()
        os.setsid() if os.getpid() == os.getsid(0) else os.setpgid(0, 0)
        return "ok"


def main(host, *ports):
    node = Node(host, [int(port) for port in ports])
    answer("ready")
    for line in sys.stdin:
        answer(node.obey(*json.loads(line)))


def answer(value):
    os.write(1, json.dumps(value).encode() + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
