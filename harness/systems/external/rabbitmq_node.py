"""A node of RabbitMQ, for the adapters of its streams and of its quorum queues."""

import subprocess
import sys
from collections.abc import Sequence

from harness.systems.adapter import PATH, Adapter, Node, Setting, http_json
from node.formats.errors import UsageError

# Says where nodes listen instead of epmd, which is one for a host and knows nothing of a proxy. A
# part of RabbitMQ asks the usual module all the same, which answers with -erl_epmd_port.
DISCOVERY = """-module(discovery).
-export([start_link/0, register_node/2, register_node/3, port_please/2]).
start_link() -> ignore.
register_node(_, _) -> {ok, 1}.
register_node(_, _, _) -> {ok, 1}.
port_please([$n, N | _], _) -> {port, list_to_integer(os:getenv([$n, N])), 5}.
"""
# Also answers as a web server who leads the queues. It calls nothing of a RabbitMQ that starts: a
# caller that waits there keeps old code of the feature flags alive, and the start never ends.
TELLS_LEADERS = (
    DISCOVERY.replace("-> ignore", "-> spawn(fun listen/0), ignore")
    + """\
listen() ->
    {ok, [[Host, Port]]} = init:get_argument(probe),
    {ok, Ip} = inet:parse_address(Host),
    Options = [{ip, Ip}, {reuseaddr, true}, {active, false}],
    {ok, Socket} = gen_tcp:listen(list_to_integer(Port), Options),
    serve(Socket).
serve(Socket) ->
    {ok, Asked} = gen_tcp:accept(Socket),
    _ = gen_tcp:recv(Asked, 0, 1000),
    _ = gen_tcp:send(Asked, try told() catch _:_ -> "" end),
    gen_tcp:close(Asked),
    serve(Socket).
told() ->
    true = lists:keymember(rabbit, 1, application:which_applications()),
    Queues = lists:join(",", [queue(Q) || Q <- rabbit_amqqueue:list(<<"/">>)]),
    ["HTTP/1.0 200 OK\\r\\n\\r\\n{", Queues, "}"].
queue(Q) ->
    {Id, _} = amqqueue:get_pid(Q),
    #{nodes := Nodes} = amqqueue:get_type_state(Q),
    Leader = case ra_leaderboard:lookup_leader(Id) of {_, Node} -> Node; _ -> none end,
    Names = lists:join("\\",\\"", [atom_to_list(N) || N <- [Leader | Nodes]]),
    Name = element(4, amqqueue:get_name(Q)),
    io_lib:format("\\"~s\\":[\\"~s\\"]", [Name, Names]).
"""
)
# A node that joins calls those that it knows, and a start during such a call may never end.
AFTER = """
import os, socket, sys, time
until = time.monotonic() + 120
for host, port in (address.split(":") for address in sys.argv[1].split()):
    while socket.socket().connect_ex((host, int(port))) and time.monotonic() < until:
        time.sleep(0.1)
os.execvp(sys.argv[2], sys.argv[2:])
"""
PARTITIONS = ("ignore", "pause_minority", "autoheal")
# Paths are relative to a node's folder.
_VARIABLES = """HOME=. RABBITMQ_MNESIA_BASE=. RABBITMQ_LOG_BASE=. RABBITMQ_LOGS=- RABBITMQ_LOG=error
RABBITMQ_ALLOW_INPUT=true RABBITMQ_USE_LONGNAME=true RABBITMQ_CONF_ENV_FILE=none
RABBITMQ_CONFIG_FILE=none RABBITMQ_ENABLED_PLUGINS_FILE=plugins"""


class RabbitMQNode(Adapter):
    """The start of a node. `plugins` are those of the server, `discovery` is a module of Erlang."""

    needs = "install rabbitmq-server (Debian), and pip install '.[rabbitmq]' in a clone"
    settings = (
        Setting("home", "/usr/lib/rabbitmq", "the folder of its bin", (PATH,), program=True),
        Setting("partitions", "ignore", "cluster_partition_handling", PARTITIONS),
    )
    plugins, discovery = "[].", DISCOVERY
    probed = ("probe",)
    failover_ms, restart_ms, start_s = 10_000, 16_000, 180.0

    def command(self, me: Node, others: Sequence[Node]) -> list[str]:
        if not (me.folder / "plugins").exists():
            (me.folder / "discovery.erl").write_text(self.discovery)
            subprocess.run(["erlc", "discovery.erl"], cwd=me.folder, check=True, timeout=60)
            (me.folder / "plugins").write_text(self.plugins)
        nodes = sorted((me, *others), key=lambda node: node.name)
        seeds = ",".join(f"'{node.name}@{node.host}'" for node in nodes)
        # Two that give up would form two clusters, so only the first one does, after 1.5 s.
        tries = 3 if me is nodes[0] else 200
        erlang = f"""RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-noinput -name {me.name}@{me.host}
            -setcookie floodmark +S 2:2 -pa . -start_epmd false -epmd_module discovery
            -erl_epmd_port {me.listens["peer"]}
            -kernel net_ticktime 3 inet_dist_use_interface {{{me.host.replace(".", ",")}}}
            inet_dist_listen_min {me.listens["peer"]} inet_dist_listen_max {me.listens["peer"]}
            -rabbit cluster_nodes {{[{seeds}],disc}} loopback_users []
            cluster_formation [{{discovery_retry_limit,{tries}}}]
            cluster_partition_handling {self.setting["partitions"]} {self.listeners(me)}"""
        ports = [f"{node.name}={node.dialed['peer']}" for node in nodes]
        own = [f"RABBITMQ_NODENAME={me.name}@{me.host}", erlang, *ports]
        before = [node.listen("client") for node in nodes[: nodes.index(me)]]
        is_new = not (me.folder / f"{me.name}@{me.host}").exists()
        wait = [sys.executable, "-ISc", AFTER, " ".join(before * is_new)]
        return [*wait, "env", *_VARIABLES.split(), *own, f"{self.home}/bin/rabbitmq-server"]

    def listeners(self, me: Node) -> str:
        """Return arguments of Erlang that say where a node listens for clients and probes."""
        raise NotImplementedError

    def version(self) -> str:
        for folder in self.home.glob("lib/rabbitmq_server-*"):
            return folder.name.partition("-")[2]
        raise UsageError(f"{self.home} has no lib/rabbitmq_server: {self.needs}")


def queues(node: Node) -> dict[str, list[str]]:
    """Return the leader of each queue, and then its members, as a node knows them."""
    told = http_json(node.listen("probe"), "/")
    return {name: [each.partition("@")[0] for each in nodes] for name, nodes in told.items()}
