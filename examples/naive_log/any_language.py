"""The adapter of the naive log with a client in JavaScript: `client.js`.

floodmark run --system examples/naive_log/any_language.py:NaiveLogByNode"""

from pathlib import Path

import adapter

from floodmark import ClientProgram


class NaiveLogByNode(ClientProgram):
    summary = "the naive log of the tutorial, with a client in JavaScript"
    needs = "apt-get install nodejs"
    failover_ms = adapter.NaiveLog.failover_ms
    unsynced = adapter.NaiveLog.unsynced
    command = adapter.NaiveLog.command
    probe = adapter.NaiveLog.probe
    dump = adapter.NaiveLog.dump

    def client(self, name, nodes):
        program = Path(__file__).with_name("client.js")
        return ["node", str(program), *(node.dial("client") for node in nodes)]
