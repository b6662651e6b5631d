"""The dialer of a connection: the kernel's answer about one socket agrees with its table of all."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from nemesis.links.dialers import Dialers, Ends, direct_connections
from tests.support.python_process import PythonProcess
from tests.support.waiting import until


@pytest.fixture(params=["one socket", "table"])
def dialers(request: pytest.FixtureRequest) -> Dialers:
    return Dialers(ask=request.param == "one socket")


@pytest.fixture(params=[socket.AF_INET, socket.AF_INET6], ids=["tcp", "tcp6"])
def dialed(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    """Yield a connection of this process; Java dials IPv4 addresses from IPv6 sockets."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(request.param) as mine:
        host = "::ffff:127.0.0.1" if request.param == socket.AF_INET6 else "127.0.0.1"
        mine.connect((host, listener.getsockname()[1]))
        yield mine


def ends_of(mine: socket.socket) -> Ends:
    return Ends(("127.0.0.1", mine.getsockname()[1]), ("127.0.0.1", mine.getpeername()[1]))


def test_a_connection_has_the_name_of_its_process(dialers: Dialers, dialed: socket.socket) -> None:
    ends = ends_of(dialed)
    assert dialers.name_of(ends) is None
    assert dialers.is_open(ends)
    dialers.set_processes("me", [os.getpid()])
    assert dialers.name_of(ends) == "me"
    dialers.set_processes("me", [1])
    assert dialers.name_of(ends) is None


def test_a_closed_socket_is_nobodys(dialers: Dialers, dialed: socket.socket) -> None:
    ends = ends_of(dialed)
    dialers.set_processes("me", [os.getpid()])
    dialed.close()
    assert not dialers.is_open(ends)
    assert dialers.name_of(ends) is None


GROUPS = """
import os, socket, sys
mine = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
if os.fork():
    mine.close()
    print(mine is not None, flush=True)
    sys.stdin.read()
    os._exit(0)
if sys.argv[2] == "a group of its own":
    os.setpgid(0, 0)
print(mine.getsockname()[1], flush=True)
sys.stdin.read()
"""


@pytest.mark.integration
@pytest.mark.parametrize("where", ["the group", "a group of its own"])
def test_a_connection_of_a_child_has_the_name_of_its_parent(dialers: Dialers, where: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        words = ("-I", "-S", "-c", GROUPS, port, where)
        parent = PythonProcess(*words, start_new_session=True)
        said = sorted([parent.line(), parent.line()])
        ends = Ends(("127.0.0.1", int(said[0])), ("127.0.0.1", port))
        assert dialers.name_of(ends) is None
        dialers.set_processes("n1", [parent.pid])
        assert dialers.name_of(ends) == "n1"
        parent.communicate("")


GENERATIONS = """
import os, socket, sys
def child(begin):
    if os.fork():
        sys.stdin.read()
        os._exit(0)
    begin()
def group():
    os.setpgid(0, 0)
child(group)
middle = os.getpid()
child(os.setsid if sys.argv[2] == "a session of its own" else group)
mine = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print(middle, mine.getsockname()[1], flush=True)
sys.stdin.read()
"""


@pytest.mark.integration
@pytest.mark.parametrize(
    ("where", "name"), [("the session of its parent", "c1"), ("a session of its own", None)]
)
def test_a_program_that_a_named_process_started_in_its_session_has_its_name(
    dialers: Dialers, where: str, name: str | None
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        words = ("-I", "-S", "-c", GENERATIONS, port, where)
        leader = PythonProcess(*words, start_new_session=True)
        middle, dialed = map(int, leader.line().split())
        dialers.set_processes("c1", [middle])
        assert dialers.name_of(Ends(("127.0.0.1", dialed), ("127.0.0.1", port))) == name
        leader.communicate("")


LISTENER = """
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    accepted, _ = listener.accept()
    sys.stdin.read()
"""
DIALER = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))):
    print("dialed", flush=True)
    sys.stdin.read()
"""


@contextmanager
def python(*words: str) -> Iterator[tuple[int, str]]:
    """Run a program until the block ends; yield its pid and the first line that it prints."""
    with PythonProcess("-c", *words) as process:
        yield process.pid, process.line()


def test_connections_between_nodes_are_seen_with_who_dialed() -> None:
    with python(LISTENER) as (listens, port), python(DIALER, port) as (dials, _):
        nodes, dialed = {"n1": [dials], "n2": [listens]}, [("n1", "n2", int(port))]
        # The kernel's table may lack a row that is read while sockets of others end.
        until(lambda: direct_connections(nodes) == dialed)
        # One within a node, or to a process of nobody, concerns no link.
        assert direct_connections({"n1": [dials, listens], "n2": []}) == []
        assert direct_connections({"n1": [dials], "n2": [1]}) == []
