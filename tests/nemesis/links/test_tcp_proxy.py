"""The TCP proxy as a real process, between nodes that are plain programs."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from harness.systems.ports import PortLease
from nemesis.links.link_process import LinksGone
from nemesis.links.tcp_control import Door, ProxyConfig, TcpLinks
from node.formats.errors import FloodmarkError
from tests.support.python_process import PythonProcess
from tests.support.stage_tcp import HOST, ROLES, Net, one_net, start_node
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.integration


@pytest.fixture
def net() -> Net:
    made = one_net()
    made.begin()
    return made


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


def test_a_rule_that_is_not_in_force_cannot_be_removed(net: Net) -> None:
    with pytest.raises(FloodmarkError, match="there is no link rule 9"):
        net.links.remove(9)


class TestTransparency:
    def test_resets_and_ends_of_connections_pass_the_proxy(self, net: Net) -> None:
        link = net.dial("n1", "n2")
        assert net.echo("n1", link) == "hello"
        net.nodes["n1"]("abort", link)
        until(lambda: net.links.stats().open == 0, "the reset passes")
        net.echo("n1", net.dial("n1", "n2"))
        net.nodes["n2"].kill()
        assert net.receive("n1", link, 1) in ("eof", "ConnectionResetError")

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
        os.kill(links.child.pid, signal.SIGKILL)
        links.child.join()
        assert links.problems == [f"the TCP proxy ended by itself, with code -9 (see {output})"]
        with pytest.raises(LinksGone, match="ended by itself"):
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
        with pytest.raises(LinksGone, match="ended by itself"):
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
                "print(links.child.pid, flush=True)\n"
                "input()\n"
            )
            harness = PythonProcess("-c", script)
            proxy = int(harness.line())
            harness.kill()
            harness.communicate()
            until(lambda: not Path(f"/proc/{proxy}").exists(), "the proxy is gone")
