"""PostgreSQL with streaming replication, whose standbys are promoted by an operator: a partition is
a table, offset = primary key."""

import json
import sys
from collections.abc import Sequence
from contextlib import suppress

from harness.systems import adapter
from harness.systems.adapter import LogSlice, Node, Record, Refused, Roles
from harness.systems.external.postgres_wire import PostgresSession, SqlError
from harness.systems.external.versions import version_of

NODE = "harness.systems.external.postgres_node"
HOME = "/usr/lib/postgresql/15"
COMMITS = ("on", "off", "local", "remote_write", "remote_apply")
FLAGS = """wal_receiver_timeout=3s wal_sender_timeout=3s wal_retrieve_retry_interval=300ms
    max_connections=300 max_wal_senders=20 shared_buffers=16MB lock_timeout=1s wal_keep_size=64MB
    client_connection_check_interval=500ms unix_socket_directories= tcp_user_timeout=3s"""
READ_ONLY = "25006"
NOTHING_DONE = (READ_ONLY, "42P01", "23505", "55P03", "57P03", "53300")
"""Errors before anything is written: read-only, no table, lost a race, too busy, still starting."""


class Postgres(adapter.Adapter):
    summary = "PostgreSQL with streaming replication, a table for each partition"
    needs = "install postgresql (Debian)"
    words = (
        "standby servers that will have received and flushed the commit record to durable storage"
    )
    source = "https://www.postgresql.org/docs/15/warm-standby.html"
    settings = (
        adapter.Setting("home", HOME, "the folder with its bin", (adapter.PATH,), program=True),
        adapter.Setting("commit", "on", "synchronous_commit", COMMITS, "on"),
        adapter.Setting("standbys", "0", "how many standbys must have it", ("0", "1", "2"), "2"),
    )
    listens, refuses_root, operations = ("client",), True, ("promote",)
    failover_ms, restart_ms, recovery_ms, change_ms = 6000, 4000, 30_000, 6000

    def command(self, me: Node, others: Sequence[Node]) -> list[str]:
        nodes = sorted((me, *others), key=lambda node: node.name)
        flags = [f"--{word}" for word in FLAGS.split()]
        flags += [f"--listen_addresses={me.host}", f"--port={me.listens['client']}"]
        flags.append(f"--synchronous_commit={self.setting['commit']}")
        if count := int(self.setting["standbys"]):
            names = ", ".join(node.name for node in nodes)
            flags.append(f"--synchronous_standby_names=ANY {count} ({names})")
        told = {"name": me.name, "here": me.listen("client"), "first": me is nodes[0]}
        told |= {"flags": flags, "peers": {node.name: node.dial("client") for node in others}}
        programs = f"{self.home}/bin"
        return [sys.executable, "-P", "-m", NODE, programs, str(me.folder), json.dumps(told)]

    def version(self) -> str:
        return version_of(f"{self.home}/bin/postgres")

    def create(self, nodes: Sequence[Node], partition: str, copies: int) -> None:
        with self.connect("setup", nodes) as primary:
            known = primary.query("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'", 2)
            if len(known) < len(nodes) - 1:
                raise RuntimeError(f"{len(known)} standbys follow the primary")
            fields = "id bigint PRIMARY KEY, payload bytea"
            primary.query(f'CREATE TABLE IF NOT EXISTS "{partition}" ({fields})', 5)

    def connect(self, client: str, nodes: Sequence[Node]) -> PostgresSession:
        for node in nodes:
            with suppress(OSError, SqlError):
                session = PostgresSession(node.host, node.dialed["client"], 0.7)
                if session.query("SELECT pg_is_in_recovery()", 0.7) == [("f",)]:
                    return session
                session.close()
        raise ConnectionError("no node is primary")

    def send(self, connection: PostgresSession, record: Record) -> int:
        table, value = f'"{record.partition}"', record.payload.hex()
        write = f"""BEGIN; LOCK TABLE {table} IN EXCLUSIVE MODE; INSERT INTO {table}
            SELECT coalesce(max(id) + 1, 0), '\\x{value}' FROM {table} RETURNING id; COMMIT"""
        try:
            return int(connection.query(write, record.timeout_s)[0][0])
        except SqlError as error:
            if error.code in NOTHING_DONE:
                raise Refused(str(error), reconnect=error.code == READ_ONLY) from None
            raise

    def read(
        self, connection: PostgresSession, part: str, offset: int, timeout_s: float
    ) -> LogSlice:
        wanted = f'SELECT id, payload FROM "{part}" WHERE id >= {offset} ORDER BY id LIMIT 500'
        rows = connection.query(wanted, timeout_s)
        return LogSlice([(int(number), bytes.fromhex(text[2:])) for number, text in rows])

    def probe(self, me: Node) -> dict[str, Roles]:
        with PostgresSession(me.host, me.listens["client"], 1) as here:
            if here.query("SELECT pg_is_in_recovery()", 1) != [("f",)]:
                return {}
            ((file,),) = here.query("SELECT pg_walfile_name(pg_current_wal_lsn())", 1)
            names = "SELECT application_name FROM pg_stat_replication WHERE state = 'streaming'"
            return {"*": Roles(int(file[:8], 16), (me.name, *(n for (n,) in here.query(names, 1))))}

    def operate(self, action: str, me: Node, nodes: Sequence[Node]) -> None:
        with PostgresSession(me.host, me.listens["client"], 1) as here:
            try:
                done = here.query("SELECT pg_promote(true, 5)", 6)
            except SqlError as error:
                raise Refused(str(error)) from None
            if done != [("t",)]:
                raise RuntimeError("it was not promoted within 5 s")
