"""A node of PostgreSQL: `python -P -m ... BIN FOLDER CONFIG`.

It starts the server as a primary or as a standby, and does what an operator's script does beside a
cluster whose standbys are promoted by hand: standbys follow the primary with the newest timeline,
and a primary that has been replaced is made again as a standby, as one is that cannot follow."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from harness.systems.external.postgres_wire import PostgresSession, SqlError
from node.formats.json_input import decode

LOOK_S: Final = 0.3
PATIENCE_S: Final = 5.0
"""How long a standby may not follow a primary that answers."""
STATE: Final = """SELECT CASE WHEN pg_is_in_recovery() THEN '' ELSE pg_walfile_name(
    pg_current_wal_lsn()) END, coalesce((SELECT status FROM pg_stat_wal_receiver), '')"""
HBA: Final = "host all all all trust\nhost replication all all trust\n"


class PostgresNode:
    """The server of one node, and the script beside it. A place in the order of primaries is
    (timeline, name); (0, "") is before all of them."""

    def __init__(self, programs: str, folder: str, told: dict[str, Any]) -> None:
        self.programs, self.data = Path(programs), Path(folder) / "data"
        self.name, self.flags, self.peers = told["name"], told["flags"], told["peers"]
        self.here, self.first = told["here"], told["first"]
        self.server: subprocess.Popen[bytes] | None = None
        self.followed = ""

    def ask(self, address: str, query: str = STATE) -> list[tuple[str, ...]] | None:
        """Return the answer of a server, None if it gives none."""
        host, _, port = address.rpartition(":")
        try:
            with PostgresSession(host, int(port), 1) as session:
                return session.query(query, 2)
        except (OSError, SqlError):
            return None

    def look(self) -> tuple[bool, tuple[int, str], str]:
        """Return whether another node has a server, the place of the newest primary among the
        others, and its address."""
        known = {name: rows for name, at in self.peers.items() if (rows := self.ask(at))}
        led = [(int(r[0][0][:8], 16), name) for name, r in known.items() if r[0][0]]
        place = max(led, default=(0, ""))
        return bool(known), place, self.peers.get(place[1], "")

    def run(self) -> int:
        """Keep the server running until it ends or this process is asked to end."""
        signal.signal(signal.SIGTERM, self.stop)
        while True:
            self.prepare()
            self.server = subprocess.Popen(
                [self.programs / "postgres", "-D", self.data, *self.flags]
            )
            if self.watch():
                return self.server.wait()
            self.server.send_signal(signal.SIGQUIT)
            self.server.wait()
            shutil.rmtree(self.data)

    def stop(self, *_: object) -> None:
        """Stop the server, and then this process."""
        if self.server is None:
            sys.exit(0)
        self.server.send_signal(signal.SIGINT)

    def prepare(self) -> None:
        """Wait until it is clear what this node is; copy the primary if it has no data."""
        while True:
            others, place, primary = self.look()
            if (self.data / "postgresql.auto.conf").exists():
                was_primary = not (self.data / "standby.signal").exists()
                if not was_primary or place < (self.timeline(), self.name):
                    return
            shutil.rmtree(self.data, ignore_errors=True)
            if primary:
                self.followed = primary
                link = self.link(primary)
                if self.call("pg_basebackup", "-D", self.data, "-d", link, "-R", "-cfast"):
                    return
            elif self.first and not others:
                self.call("initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-N")
                (self.data / "pg_hba.conf").write_text(HBA)
                return
            time.sleep(LOOK_S)

    def watch(self) -> bool:
        """Follow the newest primary. Return True when the server has ended, and False when its data
        must be made again."""
        assert self.server is not None
        followed_s = time.monotonic()
        while self.server.poll() is None:
            time.sleep(LOOK_S)
            mine, (_, place, primary) = self.ask(self.here), self.look()
            if mine is None or not primary or mine[0][1] == "streaming":
                followed_s = time.monotonic()
            if mine is None or not primary:
                continue
            if mine[0][0]:
                if place > (int(mine[0][0][:8], 16), self.name):
                    return False
            elif primary != self.followed:
                self.followed = primary
                self.ask(self.here, f"ALTER SYSTEM SET primary_conninfo = '{self.link(primary)}'")
                self.ask(self.here, "SELECT pg_reload_conf()")
            elif time.monotonic() > followed_s + PATIENCE_S:
                return False
        return True

    def link(self, primary: str) -> str:
        """Return how this node connects to a primary."""
        host, _, port = primary.rpartition(":")
        return (
            f"host={host} port={port} user=postgres application_name={self.name} connect_timeout=2"
        )

    def timeline(self) -> int:
        """Return the timeline of the data of a server that does not run."""
        told = subprocess.check_output(
            [self.programs / "pg_controldata", "-D", self.data], text=True
        )
        return int(told.partition("TimeLineID:")[2].split()[0])

    def call(self, program: str, *words: str | Path) -> bool:
        return subprocess.call([self.programs / program, *words]) == 0


if __name__ == "__main__":
    os.environ["LC_ALL"] = "C"
    sys.exit(PostgresNode(sys.argv[1], sys.argv[2], decode(sys.argv[3], dict[str, Any])).run())
