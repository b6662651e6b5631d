"""The TCP proxy as a real process, between nodes that are plain programs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.systems.ports import PortLease
from nemesis.links.rule import Action, LinkRule
from nemesis.links.tcp_control import Door, ProxyConfig, ProxyGone, ProxyStats, TcpLinks
from nemesis.links.tcp_rules import CLIENTS, WINDOW_BYTES
from node.formats.errors import FloodmarkError
from tests.support.paths import ROOT
from tests.support.tcp_process import PROGRAM, TcpProcess
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.integration

HOST = "127.0.0.1"
ROLES = ("client", "peer")


def start_node(*ports: int) -> TcpProcess:
    """A node's process, in a session of its own."""
    return TcpProcess([*PROGRAM, HOST, *map(str, ports)], own_session=True)


class Net:
    """Three nodes with two roles each, a client, and the proxy between them."""

    def __init__(self, folder: Path) -> None:
        self.names = ("n1", "n2", "n3")
        self.lease = PortLease(len(self.names) * len(ROLES) * 2)
        free = iter(self.lease.ports)
        self.real = {(n, r): next(free) for n in self.names for r in ROLES}
        self.doors = {(n, r): next(free) for n in self.names for r in ROLES}
        self.links = TcpLinks(
            ProxyConfig(
                doors=tuple(
                    Door(
                        node=node,
                        role=role,
                        listen=(HOST, self.doors[node, role]),
                        target=(HOST, self.real[node, role]),
                    )
                    for node, role in self.doors
                ),
                shared_clients=("c1", "c2"),
                parent_pid=os.getpid(),
                output_file=str(folder / "links.txt"),
            )
        )
        self.links.wait_ready()
        self.nodes: dict[str, TcpProcess] = {}
        self.before = ProxyStats()

    def begin(self) -> None:
        """New processes, whole links."""
        for number in self.links.stats().rules:
            self.links.remove(number)
        for node in self.nodes.values():
            node.kill()
        self.nodes.clear()
        for name in (*self.names, CLIENTS):
            self.start(name)
        self.links.remove(self.rule("*", "*", "reset"))
        until(lambda: self.links.stats().open == 0, "no connections are left")
        self.before = self.links.stats()

    def start(self, name: str) -> None:
        """Start a node, or the client, which listens nowhere."""
        ports = [] if name == CLIENTS else [self.real[name, role] for role in ROLES]
        self.nodes[name] = start_node(*ports)
        self.links.set_processes(name, [self.nodes[name].process.pid])

    def accepted(self) -> dict[str, int]:
        """Connections since the test began, by who dialed whom."""
        counts = Counter(self.links.stats().accepted)
        return dict(counts - Counter(self.before.accepted))

    def dial(self, a: str, b: str, name: str = "", role: str = "peer") -> str:
        """A connection from `a` to `b`; returns what it is called in `a`."""
        name = name or b
        assert self.nodes[a]("dial", name, HOST, self.doors[b, role]) == "ok"
        return name

    def dial_in_vain(self, a: str, b: str) -> str:
        """What becomes of a connection that is reset, at once or a moment later."""
        said = self.nodes[a]("dial", "in vain", HOST, self.doors[b, "peer"])
        return str(self.receive(a, "in vain", 1) if said == "ok" else said)

    def echo(self, a: str, name: str, text: str = "hello") -> Any:
        """Send from `a` and receive what comes back."""
        sent = self.nodes[a]("send", name, text)
        return self.receive(a, name, len(text)) if sent == "ok" else sent

    def receive(self, a: str, name: str, size: int, seconds: float = PATIENCE_S) -> Any:
        """What has arrived at `a`."""
        return self.nodes[a]("receive", name, size, seconds)

    def rule(self, a: str, b: str, action: Action, **fields: Any) -> int:
        """Put a rule in force from `a` to `b` (comma lists of names)."""
        senders, receivers = tuple(a.split(",")), tuple(b.split(","))
        return self.links.add(
            LinkRule(senders=senders, receivers=receivers, action=action, **fields)
        )

    def await_acted(self, number: int, times: int = 1) -> None:
        """Until a rule has done something to so many connections."""
        until(lambda: self.links.stats().rules[number].acted >= times, f"rule {number} acts")

    def close(self) -> None:
        """Leave nothing behind."""
        for node in self.nodes.values():
            node.kill()
        self.links.close()
        self.lease.release()


@pytest.fixture(scope="module")
def one_net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Net]:
    with contextlib.closing(Net(tmp_path_factory.mktemp("net"))) as made:
        yield made


@pytest.fixture
def net(one_net: Net) -> Net:
    one_net.begin()
    return one_net


def test_every_pair_and_role_is_named_and_carried(net: Net) -> None:
    for a in net.nodes:
        for b in net.names:
            for role in ROLES:
                if a != b:
                    assert net.echo(a, net.dial(a, b, f"{b}{role}", role), f"{a}{b}{role}")
    assert net.accepted() == {
        f"{a}>{b} {role}": 1 for a in net.nodes for b in net.names for role in ROLES if a != b
    }
    assert net.links.stats().unknown == net.before.unknown


class TestWhoDials:
    def test_a_new_process_of_a_node_and_its_children_are_the_node(self, net: Net) -> None:
        net.nodes["n1"].kill()
        net.start("n1")
        net.echo("n1", net.dial("n1", "n2"))
        assert net.nodes["n1"]("child") == "ok"
        net.echo("n1", net.dial("n1", "n3"))
        assert net.accepted() == {"n1>n2 peer": 1, "n1>n3 peer": 1}

    def test_who_is_not_known_in_time_is_counted_and_only_cut_by_rules_about_everybody(
        self, net: Net
    ) -> None:
        outsider = start_node()
        net.nodes["outsider"] = outsider
        cut = net.rule("n2,n3,c1,c2", "n1", "drop")
        assert net.echo("outsider", net.dial("outsider", "n1")) == "hello"
        assert net.links.stats().unknown == net.before.unknown + 1
        assert net.accepted() == {"?>n1 peer": 1}
        everybody = net.rule("*", "n1", "drop")
        net.dial("outsider", "n1", "again")
        net.await_acted(everybody)
        assert net.links.remove(cut).acted == 0

    @pytest.mark.parametrize("dialer", ["", "c7"])
    def test_who_is_named_a_moment_later_or_has_a_door_of_its_own_is_not_unknown(
        self, dialer: str
    ) -> None:
        with PortLease(2) as lease:
            door, real = lease.ports
            only = Door(
                node="n1", role="x", listen=(HOST, door), target=(HOST, real), dialer=dialer
            )
            node, me = start_node(real), start_node()
            config = ProxyConfig(doors=(only,), naming_s=PATIENCE_S, parent_pid=os.getpid())
            links = TcpLinks(config)
            try:
                links.wait_ready()
                me("dial", "n1", HOST, door)
                me("send", "n1", "x")
                if not dialer:
                    links.set_processes("n4", [me.process.pid])
                assert me("receive", "n1", 1, PATIENCE_S) == "x"
                assert links.stats().accepted == {f"{dialer or 'n4'}>n1 x": 1}
            finally:
                links.close()
                node.kill()
                me.kill()


class TestCut:
    def test_bytes_wait_for_the_heal_and_arrive_in_order(self, net: Net) -> None:
        link = net.dial("n1", "n2")
        assert net.echo("n1", link) == "hello"
        cut = net.rule("n1", "n2", "drop"), net.rule("n2", "n1", "drop")
        net.nodes["n1"]("send", link, "late")
        net.await_acted(cut[0])
        net.nodes["n1"]("send", link, "later")
        assert net.nodes["n2"]("heard") == len("hello")
        counts = [net.links.remove(number) for number in cut]
        assert net.receive("n1", link, 9) == "latelater"
        assert [each.of for each in counts] == ["connections"] * 2
        # Between the two removals the echo of what waited may meet the second rule.
        assert [each.matched for each in counts] == [1, 1]
        assert counts[0].held == 1

    def test_links_beside_a_cut_are_untouched(self, net: Net) -> None:
        net.rule("n1", "n2", "drop")
        assert net.echo("n1", net.dial("n1", "n3")) == "hello"
        assert net.echo("n3", net.dial("n3", "n2")) == "hello"
        assert net.echo(CLIENTS, net.dial(CLIENTS, "n2")) == "hello"

    def test_one_way_the_other_direction_has_a_window(self, net: Net) -> None:
        link = net.dial("n1", "n2")
        assert net.echo("n1", link) == "hello"
        cut = net.rule("n2", "n1", "drop")
        net.nodes["n1"]("flood", link, 4 * WINDOW_BYTES)
        until(lambda: net.nodes["n2"]("heard") == WINDOW_BYTES + len("hello"), "a window")
        net.await_acted(cut)
        net.links.remove(cut)
        until(lambda: net.nodes["n2"]("heard") == 4 * WINDOW_BYTES + len("hello"), "the rest")

    @pytest.mark.parametrize(("a", "b"), [("n1", "n2"), ("n2", "n1")])
    def test_a_new_connection_comes_about_at_the_heal(self, net: Net, a: str, b: str) -> None:
        """In either direction: its first packets need both."""
        cut = net.rule(a, b, "drop")
        link = net.dial("n1", "n2")
        net.nodes["n1"]("send", link, "hello")
        net.await_acted(cut)
        assert net.nodes["n2"]("connections") == 0
        net.links.remove(cut)
        assert net.receive("n1", link, 5) == "hello"

    def test_who_gives_up_during_the_cut_was_never_there(self, net: Net) -> None:
        cut = net.rule("n1", "n2", "drop")
        for way in ("close", "abort"):
            link = net.dial("n1", "n2")
            net.nodes["n1"]("send", link, "hello")
            until(lambda: net.links.stats().open == 1, "it is there")
            net.await_acted(cut)
            net.nodes["n1"](way, link)
            until(lambda: net.links.stats().open == 0, "it is gone")
        net.links.remove(cut)
        assert net.echo("n1", net.dial("n1", "n2")) == "hello"
        assert net.nodes["n2"]("connections") == 1

    def test_the_end_of_a_sender_is_late_too(self, net: Net) -> None:
        link = net.dial("n1", "n2")
        net.echo("n1", link)
        cut = net.rule("n1", "n2", "drop")
        net.nodes["n1"]("send", link, "last words")
        net.nodes["n1"].kill()
        net.await_acted(cut)
        assert net.nodes["n2"]("heard") == 5
        net.links.remove(cut)
        until(lambda: net.nodes["n2"]("heard") == 15, "they arrive")
        until(lambda: net.links.stats().open == 0, "both ends are closed")

    def test_a_link_under_two_cuts_is_whole_when_both_are_healed(self, net: Net) -> None:
        link = net.dial("n1", "n2")
        first, second = net.rule("n1", "n2", "drop"), net.rule("n1,n3", "n2", "drop")
        net.nodes["n1"]("send", link, "hello")
        net.await_acted(first)
        net.links.remove(first)
        net.await_acted(second)
        assert net.nodes["n2"]("heard") == 0
        net.links.remove(second)
        assert net.receive("n1", link, 5) == "hello"

    def test_the_links_of_clients_fail_together_or_not_at_all(self, net: Net) -> None:
        with pytest.raises(FloodmarkError, match="so the links of c1 alone cannot fail"):
            net.rule("c1", "n1", "drop")
        cut = net.rule("c2,c1", "n1", "drop")
        link = net.dial(CLIENTS, "n1")
        net.await_acted(cut)
        net.links.remove(cut)
        assert net.echo(CLIENTS, link) == "hello"


class TestOtherFaults:
    def test_stall_holds_bytes_and_lets_connections_come_about(self, net: Net) -> None:
        stall = net.rule("n1", "n2", "hold")
        link = net.dial("n1", "n2")
        net.nodes["n1"]("send", link, "hello")
        until(lambda: net.nodes["n2"]("connections") == 1, "it is accepted")
        net.await_acted(stall)
        assert net.nodes["n2"]("heard") == 0
        assert net.links.remove(stall).held == 1
        assert net.receive("n1", link, 5) == "hello"

    def test_delay_adds_to_a_round_trip(self, net: Net) -> None:
        link = net.dial("n1", "n2")
        net.echo("n1", link)
        delay = net.rule("n1", "n2", "delay", delay_ms=60_000)
        net.nodes["n1"]("send", link, "late")
        net.await_acted(delay)
        assert net.links.remove(delay).delayed == 1
        assert net.receive("n1", link, 1, 0.01) == "timeout"
        short = net.rule("n1", "n3", "delay", delay_ms=30, jitter_ms=10)
        assert net.echo("n1", net.dial("n1", "n3")) == "hello"
        assert net.links.remove(short).delayed == 1

    def test_slow_passes_a_little_at_a_time_and_the_rest_at_the_heal(self, net: Net) -> None:
        link = net.dial("n1", "n2")
        net.echo("n1", link)
        slow = net.rule("n1", "n2", "slow", bytes_per_s=20)
        net.nodes["n1"]("send", link, "x" * 100_000)
        until(lambda: net.nodes["n2"]("heard") > 5, "some")
        assert net.nodes["n2"]("heard") < 50_000
        assert net.links.remove(slow).delayed == 1
        assert net.receive("n1", link, 100_000) == "x" * 100_000

    def test_reset_ends_what_is_there_and_what_comes(self, net: Net) -> None:
        link, other = net.dial("n1", "n2"), net.dial("n1", "n3")
        assert net.echo("n1", link) == net.echo("n1", other) == "hello"
        back = net.dial("n2", "n1")
        assert net.echo("n2", back) == "hello"
        reset = net.rule("n1", "n2", "reset")
        assert net.receive("n1", link, 1) == "ConnectionResetError"
        assert net.receive("n2", back, 1) == "ConnectionResetError"
        assert net.dial_in_vain("n1", "n2") == "ConnectionResetError"
        assert net.echo("n1", other) == "hello"
        assert net.links.remove(reset).dropped == 3
        assert net.echo("n1", net.dial("n1", "n2", "after")) == "hello"

    @pytest.mark.parametrize("believer", ["n1", "n2"])
    def test_half_open_ends_for_one_side(self, net: Net, believer: str) -> None:
        mine, theirs = net.dial("n1", "n2"), net.dial("n2", "n1")
        links = {"n1": mine, "n2": theirs}
        for node, link in links.items():
            assert net.echo(node, link) == "hello"
        loser = "n2" if believer == "n1" else "n1"
        half = net.rule(believer, loser, "half-open")
        assert net.receive(loser, links[loser], 1) == "ConnectionResetError"
        assert net.nodes[believer]("send", links[believer], "anybody?") == "ok"
        assert net.receive(believer, links[believer], 1, 0.01) == "timeout"
        again = net.dial(loser, believer, "again")
        assert net.echo(loser, again) == "hello"
        assert net.links.remove(half).dropped == 2
        assert net.receive(believer, links[believer], 1) == "ConnectionResetError"
        assert net.echo(loser, again) == "hello"

    def test_what_bytes_cannot_do_is_refused(self, net: Net) -> None:
        with pytest.raises(FloodmarkError, match="the TCP proxy cannot duplicate"):
            net.rule("n1", "n2", "duplicate")
        with pytest.raises(FloodmarkError, match="sees no single messages"):
            net.rule("n1", "n2", "drop", percent=50)
        with pytest.raises(FloodmarkError, match="there is no link rule 9"):
            net.links.remove(9)
        assert net.echo("n1", net.dial("n1", "n2")) == "hello"


class TestTransparency:
    def test_resets_and_ends_of_connections_pass_the_proxy(self, net: Net) -> None:
        link = net.dial("n1", "n2")
        assert net.echo("n1", link) == "hello"
        net.nodes["n1"]("abort", link)
        until(lambda: net.links.stats().open == 0, "the reset passes")
        net.echo("n1", net.dial("n1", "n2"))
        net.nodes["n2"].kill()
        assert net.receive("n1", link, 1) in ("eof", "ConnectionResetError")

    def test_bytes_on_their_way_between_two_dead_ends_harm_nobody(self, net: Net) -> None:
        link = net.dial("n1", "n2")
        net.echo("n1", link)
        delay = net.rule("n1", "n2", "delay", delay_ms=100)
        net.nodes["n1"]("send", link, "late")
        net.await_acted(delay)
        net.nodes["n1"].kill()
        net.nodes["n2"].kill()
        until(lambda: net.links.stats().open == 0, "nothing is left of it")

    def test_a_node_that_is_down_resets_and_is_found_again(self, net: Net) -> None:
        net.nodes["n2"].kill()
        assert net.dial_in_vain("n1", "n2") == "ConnectionResetError"
        assert net.links.stats().refused == net.before.refused + 1
        net.start("n2")
        assert net.echo("n1", net.dial("n1", "n2")) == "hello"

    def test_much_passes_whole_and_a_reader_that_stops_holds_its_sender_up(self, net: Net) -> None:
        link = net.dial("n1", "n2")
        net.echo("n1", link)
        os.kill(net.nodes["n2"].process.pid, signal.SIGSTOP)
        net.nodes["n1"]("flood", link, 1 << 30)
        sent = net.nodes["n1"]("flood", link, 1 << 30)
        assert sent < 1 << 28, "buffers are bounded"
        os.kill(net.nodes["n2"].process.pid, signal.SIGCONT)
        net.echo("n1", net.dial("n1", "n2", "second"))


class TestLife:
    def test_its_death_is_a_problem_of_the_run(self, tmp_path: Path) -> None:
        output = str(tmp_path / "links.txt")
        links = TcpLinks(ProxyConfig(doors=(), parent_pid=os.getpid(), output_file=output))
        links.wait_ready()
        assert links.problems == []
        os.kill(links._child.pid, signal.SIGKILL)
        links._child.join()
        assert links.problems == [f"the TCP proxy ended by itself, with code -9 (see {output})"]
        with pytest.raises(ProxyGone, match="ended by itself"):
            links.remove(1)
        links.close()
        assert links.problems == []

    def test_what_it_carried_is_the_last_line_of_its_output(self, tmp_path: Path) -> None:
        output = tmp_path / "links.txt"
        links = TcpLinks(ProxyConfig(doors=(), parent_pid=os.getpid(), output_file=str(output)))
        links.wait_ready()
        links.close()
        links.close()
        assert json.loads(output.read_text())["accepted"] == {}

    def test_an_address_that_is_taken_is_one_sentence(self, net: Net, tmp_path: Path) -> None:
        door = Door(
            node="n1", role="peer", listen=(HOST, net.doors["n1", "peer"]), target=(HOST, 1)
        )
        output = tmp_path / "taken.txt"
        links = TcpLinks(
            ProxyConfig(doors=(door,), parent_pid=os.getpid(), output_file=str(output))
        )
        with pytest.raises(ProxyGone, match="ended by itself"):
            links.wait_ready()
        links.close()
        assert f"cannot listen on {HOST}:{net.doors['n1', 'peer']} for n1" in output.read_text()

    def test_it_ends_with_a_harness_that_is_killed(self, tmp_path: Path) -> None:
        with PortLease(1) as lease:
            script = (
                "import os\n"
                "from nemesis.links.tcp_control import Door, ProxyConfig, TcpLinks\n"
                f"door = Door(node='n1', role='r', listen=('{HOST}', {lease.ports[0]}), "
                f"target=('{HOST}', 1))\n"
                "links = TcpLinks(ProxyConfig(doors=(door,), parent_pid=os.getpid()))\n"
                "links.wait_ready()\n"
                "print(links._child.pid, flush=True)\n"
                "input()\n"
            )
            harness = subprocess.Popen(
                [sys.executable, "-c", script],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
            )
            assert harness.stdout is not None
            proxy = int(harness.stdout.readline())
            harness.kill()
            harness.communicate()
            until(lambda: not Path(f"/proc/{proxy}").exists(), "the proxy is gone")
