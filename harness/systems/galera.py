"""MariaDB with Galera, where each node takes writes: a partition is a table, offset = primary
key."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pymysql
from pymysql.connections import Connection

from harness.systems import adapter
from harness.systems.adapter import LogSlice, Members, Node, Record, Refused

CONFIG = """
skip_name_resolve
skip_grant_tables
socket = socket
max_connections = 200
performance_schema = OFF
binlog_format = ROW
innodb_autoinc_lock_mode = 2
innodb_buffer_pool_size = 32M
innodb_log_file_size = 8M
innodb_flush_method = fsync
innodb_use_native_aio = OFF
innodb_lock_wait_timeout = 1
wsrep_on = ON
wsrep_sst_method = rsync
wsrep_retry_autocommit = 0
"""
PROVIDER = """gcache.size=16M;evs.keepalive_period=PT0.5S;evs.suspect_timeout=PT2S;
evs.inactive_timeout=PT4S;evs.inactive_check_period=PT0.25S;evs.install_timeout=PT4S;
gmcast.peer_timeout=PT2S"""
PROVIDER_FILE = "/usr/lib/galera/libgalera_smm.so"
START = """
config=$1 data=$2 first=$3
mkdir -p "$data"
if [ "$first" = first ] && [ ! -e "$data/grastate.dat" ]; then
  mariadb-install-db --no-defaults --datadir="$data" --skip-test-db --innodb-log-file-size=8M
  set -- --wsrep-new-cluster
elif grep -qs '^safe_to_bootstrap: 1' "$data/grastate.dat"; then
  set -- --wsrep-new-cluster
else
  set --
fi
if [ -e "$data/ibdata1" ] && [ -e "$data/grastate.dat" ]; then
  at=$("$server" --defaults-file="$config" --wsrep-recover --disable-log-error 2>&1 |
    sed -n 's/.*WSREP: Recovered position: *//p')
  set -- ${at:+--wsrep-start-position="$at"} "$@"
fi
exec "$server" --defaults-file="$config" "$@"
"""
"""What the unit of systemd does before it starts the server."""
STATUS = """SHOW STATUS WHERE Variable_name IN
    ('wsrep_ready', 'wsrep_local_state', 'wsrep_incoming_addresses')"""
SYNCED, OUTSIDE = "4", 1047
NOTHING_DONE = (OUTSIDE, 1062, 1146, 1205, 1213)
"""Not in the primary component, lost a race, no table, waited for a lock, deadlock: rolled back."""


class Galera(adapter.Adapter):
    summary = "MariaDB with Galera, a table for each partition"
    needs = "install mariadb-server (Debian), and pip install '.[galera]' in a clone of floodmark"
    words = (
        "committed on all nodes (or fail on all) before the client receives a success confirmation"
    )
    source = "https://mariadb.com/docs/galera-cluster/galera-cluster-quickstart-guides"
    binary = "mariadbd"
    settings = (
        adapter.Setting("flush", "1", "innodb_flush_log_at_trx_commit", ("0", "1", "2"), "1"),
        adapter.Setting("provider", PROVIDER_FILE, "a library", (adapter.PATH,), program=True),
    )
    listens, refuses_root, links_needed = ("client", "group", "ist", "sst"), True, "kernel"
    faults = (
        *("kill", "power-cut", "pause", "resume", "cut", "isolate", "bridge", "ring", "delay"),
        *("stall", "slow", "slow-fsync", "reset", "half-open", "syscall"),
        *("join", "upgrade", "downgrade"),
    )
    changes, fresh_identity = ("join", "upgrade", "downgrade"), False
    upgrades = (("10.6", "10.11"), ("10.11", "11.4"), ("11.4", "11.8"))
    restarts, stop_codes = True, (0, -15, 143, 1)  # 1: it gives up while it still joins.
    failover_ms, restart_ms, recovery_ms, change_ms = 6000, 8000, 40_000, 10_000

    def command(self, me: Node, others: Sequence[Node]) -> list[str]:
        file, peers = me.files / "my.cnf", ",".join(node.dial("group") for node in others)
        group = f"gmcast.listen_addr=tcp://{me.listen('group')};ist.recv_addr={me.listen('ist')}"
        more = {
            "datadir": me.folder / "data",
            "bind_address": me.host,
            "port": me.listens["client"],
            "innodb_flush_log_at_trx_commit": self.setting["flush"],
            "wsrep_provider": self.setting["provider"],
            "wsrep_provider_options": f'"{group};{"".join(PROVIDER.split())}"',
            "wsrep_cluster_address": f"gcomm://{peers}",
            "wsrep_node_name": me.name,
            "wsrep_node_address": me.dial("group"),
            "wsrep_node_incoming_address": me.dial("client"),
            "wsrep_sst_receive_address": me.dial("sst"),
        }
        lines = "".join(f"{name} = {value}\n" for name, value in more.items())
        file.write_text(f"[mysqld]{CONFIG}{lines}")
        first = not me.joins and all(me.name < node.name for node in others)
        words = [str(file), str(me.folder / "data"), "first" if first else "later"]
        return ["sh", "-c", f"server={me.server or self.server}\n{START}", "galera", *words]

    def create(self, nodes: Sequence[Node], partition: str, copies: int) -> None:
        with self.session(nodes[0], 10) as here:
            if len(self.status(here)["wsrep_incoming_addresses"].split(",")) < len(nodes):
                raise RuntimeError("not all nodes are in the cluster")
            fields = "id bigint PRIMARY KEY, payload blob"
            ask(here, f"CREATE TABLE IF NOT EXISTS `{partition}` ({fields})")

    def session(self, node: Node, timeout_s: float) -> Connection:
        return pymysql.connect(
            host=node.host,
            port=node.dialed["client"],
            user="root",
            database="mysql",
            autocommit=True,
            connect_timeout=1,
            read_timeout=timeout_s,
            write_timeout=timeout_s,
        )

    def connect(self, client: str, nodes: Sequence[Node]) -> Connection:
        for node in nodes:
            with suppress(pymysql.Error):
                session = self.session(node, 3)
                if self.status(session)["wsrep_ready"] == "ON":
                    return session
                session.close()
        raise ConnectionError("no node is in the primary component")

    def send(self, connection: Connection, record: Record) -> int:
        table, value = f"`{record.partition}`", record.payload.hex()
        write = f"INSERT INTO {table} SELECT coalesce(max(id) + 1, 0), x'{value}' FROM {table}"
        try:
            return int(ask(connection, f"{write} RETURNING id")[0][0])
        except pymysql.MySQLError as error:
            if error.args[0] in NOTHING_DONE:
                raise Refused(*error.args, reconnect=error.args[0] == OUTSIDE) from None
            raise

    def read(self, connection: Connection, part: str, offset: int, timeout_s: float) -> LogSlice:
        if self.reads_to_the_end:
            ask(connection, "SET SESSION wsrep_sync_wait = 1")
        wanted = f"SELECT id, payload FROM `{part}` WHERE id >= {offset} ORDER BY id LIMIT 500"
        return LogSlice(ask(connection, wanted))

    def status(self, session: Connection) -> dict[str, str]:
        return dict(ask(session, STATUS))

    def ready(self, me: Node) -> bool:
        with self.session(me, 1) as here:
            told = self.status(here)
            return told["wsrep_ready"] == "ON" and told["wsrep_local_state"] == SYNCED

    def members(self, me: Node) -> Members:
        with self.session(me, 1) as here:
            names = self.status(here)["wsrep_incoming_addresses"].split(",")
            return Members(frozenset(names), ask(here, "SELECT version()")[0][0])

    def change(
        self, nodes: Sequence[Node], want: Sequence[Node], partition: str, copies: int
    ) -> None:
        for node in nodes:
            if node not in want and not partition:
                with self.session(node, 1) as there:  # One that is not ready refuses this.
                    ask(there, "SHUTDOWN")


def ask(session: Connection, text: str) -> list[tuple[Any, ...]]:
    """Return the rows of a statement. Raises an error of PyMySQL."""
    with session.cursor() as cursor:
        cursor.execute(text)
        return list(cursor.fetchall())
