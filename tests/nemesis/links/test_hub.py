"""The link hub as a real process: forwarding, rules, and receivers that do not read."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import zmq
from multiprocess import get_context

from harness.systems.ports import PortLease
from nemesis.formats.message_log import MessageLine, MessageSampler
from nemesis.links import hub
from nemesis.links.hub import HubConfig
from nemesis.links.hub_control import HubControl, HubGone
from nemesis.links.rule import Counts, LinkRule
from node.core import wire
from node.core.messages import FetchRequest, MetadataRequest
from node.formats.errors import FloodmarkError
from node.formats.wire import envelope
from node.runtime.children import EXIT_ORPHANED
from tests.support.paths import ROOT
from tests.support.waiting import PATIENCE_S, until

KNOCK, LAST_KNOCK = -1, 1_000_000_000
DEADLINE_MS = round(PATIENCE_S * 1000)
SPAWN = get_context("spawn")


LEASES: list[PortLease] = []
"""Held until this process ends: no test, here or in a process beside it, gets a port twice."""


def free_addresses(count: int) -> list[str]:
    """Addresses on ports below those that connections are given, so a node can come back."""
    LEASES.append(PortLease(count))
    return [f"tcp://127.0.0.1:{port}" for port in LEASES[-1].ports]


def knock(number: int) -> FetchRequest:
    """Return a message with a number in it."""
    return FetchRequest(partition="log-0", offset=max(number, 0), corr=number)


class Node:
    """A node of the cluster: hears on its own address, speaks to the hub."""

    def __init__(self, name: str, address: str, hub_address: str) -> None:
        self.name = name
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context.linger = 0  # or a test that fails would leave a context that never ends
        self.inbox = self._context.socket(zmq.PULL)
        self.inbox.set(zmq.RCVTIMEO, DEADLINE_MS)
        self.inbox.bind(address)
        self.outbox = self._context.socket(zmq.PUSH)
        self.outbox.set(zmq.SNDHWM, 0)
        self.outbox.connect(hub_address)

    def send(self, to: str, number: int, kind: str = "fetch", body: bytes | None = None) -> None:
        """A message with a number in it."""
        message = knock(number) if kind == "fetch" else MetadataRequest(corr=number)
        self.outbox.send_multipart(wire.encode(to, self.name, message, body))

    def receive(self) -> int:
        """The number of the next message."""
        return wire.decode(self.inbox.recv_multipart())[2].corr

    def die(self) -> None:
        """Close everything, as the kernel does for a killed process."""
        self._context.destroy(linger=0)


class Net:
    """Three nodes around a hub, which runs as a process of its own."""

    def __init__(self, folder: Path) -> None:
        addresses = free_addresses(5)
        self.config = HubConfig(
            bind=addresses[0],
            control=addresses[1],
            nodes=dict(zip(("n1", "n2", "n3"), addresses[2:], strict=True)),
            seed=1,
            parent_pid=os.getpid(),
            output_file=str(folder / "hub.txt"),
        )
        self.process = SPAWN.Process(target=hub.main, args=(self.config,))
        self.process.start()
        self.control = HubControl(
            self.config.control, deadline_ms=DEADLINE_MS, is_alive=self.process.is_alive
        )
        self.nodes: dict[str, Node] = {}

    def open(self) -> None:
        """Wait for the hub, and connect everybody with it."""
        self.control.wait_ready()
        for name in self.config.nodes:
            self.nodes[name] = self.born(name)
        for node in self.nodes.values():
            self.reach(node)

    def born(self, name: str) -> Node:
        return Node(name, self.config.nodes[name], self.config.bind)

    def reach(self, node: Node) -> None:
        """Return once the hub is connected to a node (and the node to the hub), and nothing that
        the node has sent is on its way."""

        def answered() -> int:
            node.send(node.name, KNOCK)
            return node.inbox.poll(20)

        until(answered)
        # What comes from one sender comes in order: after this one there are no others.
        node.send(node.name, LAST_KNOCK)
        while node.receive() != LAST_KNOCK:
            pass

    def renew(self) -> None:
        """Have no rules, whole nodes, and nothing on its way."""
        for number in self.control.stats().rules:
            self.control.remove(number)
        for name in self.config.nodes.keys() - self.nodes.keys():
            self.nodes[name] = self.born(name)
            self.reach(self.nodes[name])
        for sender in self.nodes.values():
            for receiver in self.nodes.values():
                sender.send(receiver.name, LAST_KNOCK)
                last = wire.encode(receiver.name, sender.name, knock(LAST_KNOCK))
                while receiver.inbox.recv_multipart() != last:
                    pass

    def cut(self, sender: str, receiver: str) -> int:
        return self.control.add(LinkRule(senders=(sender,), receivers=(receiver,), action="drop"))

    def close(self) -> None:
        for node in self.nodes.values():
            node.die()
        self.control.close()
        if self.process.is_alive():
            self.process.kill()
        self.process.join()


@pytest.fixture(scope="module")
def one_net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Net]:
    with contextlib.closing(Net(tmp_path_factory.mktemp("net"))) as made:
        made.open()
        yield made


@pytest.fixture
def net(one_net: Net) -> Net:
    one_net.renew()
    return one_net


@pytest.mark.integration
def test_messages_pass_whole_and_in_order(net: Net) -> None:
    n1, n2 = net.nodes["n1"], net.nodes["n2"]
    sent = []
    for number in range(300):
        body = None if number % 3 else bytes([number % 256]) * number * 50
        n1.send("n2", number, body=body)
        message = FetchRequest(partition="log-0", offset=number, corr=number)
        sent.append(wire.encode("n2", "n1", message, body))
    assert [n2.inbox.recv_multipart() for _ in sent] == sent


@pytest.mark.integration
def test_a_cut_drops_one_direction_until_it_is_healed(net: Net) -> None:
    n1, n2, n3 = net.nodes.values()
    there = net.cut("n1", "n2")
    for number in range(5):
        n1.send("n2", number)
        n1.send("n3", number)
    n2.send("n1", 7)
    assert [n3.receive() for _ in range(5)] == [0, 1, 2, 3, 4]
    assert n1.receive() == 7
    assert net.control.remove(there) == Counts(matched=5, dropped=5)
    n1.send("n2", 8)
    assert n2.receive() == 8


@pytest.mark.integration
def test_a_rule_reads_the_header(net: Net) -> None:
    n1, n2 = net.nodes["n1"], net.nodes["n2"]
    net.control.add(
        LinkRule(
            senders=("n1",),
            receivers=("n2",),
            action="drop",
            kinds=("fetch",),
            match={"offset": {"at_least": 3}},
            limit=2,
        )
    )
    for number in range(6):
        n1.send("n2", number)
    n1.send("n2", 9, kind="metadata")
    assert [n2.receive() for _ in range(5)] == [0, 1, 2, 5, 9]


@pytest.mark.integration
def test_delayed_messages_arrive_in_order_even_after_the_heal(net: Net) -> None:
    n1, n2 = net.nodes["n1"], net.nodes["n2"]
    number = net.control.add(
        LinkRule(senders=("n1",), receivers=("*",), action="delay", delay_ms=60, jitter_ms=60)
    )
    for each in range(50):
        n1.send("n2", each)
    until(lambda: net.control.stats().rules[number].delayed == 50)
    net.control.remove(number)
    for each in range(50, 60):
        n1.send("n2", each)
    assert [n2.receive() for _ in range(60)] == list(range(60))
    assert net.control.stats().delayed == 0


@pytest.mark.integration
def test_held_messages_wait_for_the_rule_to_go(net: Net) -> None:
    n1, n2 = net.nodes["n1"], net.nodes["n2"]
    number = net.control.add(
        LinkRule(senders=("n1",), receivers=("n2",), action="hold", kinds=("fetch",), limit=2)
    )
    for each in range(4):
        n1.send("n2", each)
    n1.send("n2", 4, kind="metadata")
    assert [n2.receive() for _ in range(3)] == [2, 3, 4]
    assert net.control.stats().held == 2
    assert net.control.remove(number).held == 2
    n1.send("n2", 5)
    assert [n2.receive() for _ in range(3)] == [0, 1, 5]


@pytest.mark.integration
def test_a_duplicated_message_arrives_twice_in_its_place(net: Net) -> None:
    n1, n2 = net.nodes["n1"], net.nodes["n2"]
    net.control.add(LinkRule(senders=("n1",), receivers=("n2",), action="duplicate", limit=1))
    n1.send("n2", 1, body=b"x" * 100_000)
    n1.send("n2", 2)
    assert [n2.receive() for _ in range(3)] == [1, 1, 2]


@pytest.mark.integration
def test_a_dead_receiver_loses_its_messages(net: Net) -> None:
    n1, n3 = net.nodes["n1"], net.nodes["n3"]
    net.nodes.pop("n2").die()

    def noticed() -> int:
        n1.send("n2", 1)
        return net.control.stats().unreachable.get("n2", 0)

    until(noticed)
    for number in range(100):
        n1.send("n2", number)
    n1.send("n3", 5)
    assert n3.receive() == 5
    reborn = net.nodes["n2"] = net.born("n2")
    # Numbers from 1000 on are sent to the new process; not one of the old may come before them.
    first = 1000
    while not reborn.inbox.poll(20):
        n1.send("n2", first)
        first += 1
    assert reborn.receive() >= 1000


READER = """
import os, sys, zmq
inbox = zmq.Context().socket(zmq.PULL)
inbox.bind(sys.argv[1])
print("up", flush=True)
while True:
    print(inbox.recv_multipart()[0][-1:].hex(), flush=True)
"""


@contextlib.contextmanager
def reader_of(address: str) -> Iterator[subprocess.Popen[str]]:
    """A process that prints a line for each message it gets; it can be paused."""
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, address], stdout=subprocess.PIPE, text=True
    )
    try:
        yield reader
    finally:
        reader.kill()
        reader.communicate()


@pytest.mark.integration
def test_a_paused_receiver_gets_what_fitted_its_queue(net: Net) -> None:
    net.nodes.pop("n2").die()
    n1 = net.nodes["n1"]
    with reader_of(net.config.nodes["n2"]) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "up\n"
        forwarded = net.control.stats().forwarded

        def reached() -> bool:
            n1.send("n2", 1)
            return net.control.stats().forwarded > forwarded

        until(reached)
        assert reader.stdout.readline()
        reader.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, reader.pid, os.WSTOPPED)
        dropped = net.control.stats().unreachable.get("n2", 0)

        def full() -> bool:
            for number in range(100):
                n1.send("n2", number, body=b"x" * 20_000)
            return net.control.stats().unreachable.get("n2", 0) > dropped

        until(full)
        reader.send_signal(signal.SIGCONT)
        # ZeroMQ counts a queue in steps of half its size.
        for _ in range(hub.QUEUE_MESSAGES // 2):
            assert reader.stdout.readline()


@pytest.mark.integration
def test_garbage_is_dropped_and_counted(net: Net) -> None:
    n1, n2 = net.nodes["n1"], net.nodes["n2"]
    before = net.control.stats().garbage
    garbage = [
        [b""],
        [envelope("n2x", "n1", b"\x80")],
        [b"\x02\x02\x02\xff\xfen1", b""],
        [b"\x02\xff\xffn2n1"],
        [envelope("n2", "n1", b"")] * 100,
    ]
    for idle in (True, False):
        if not idle:
            net.control.add(
                LinkRule(senders=("*",), receivers=("n3",), action="drop", kinds=("x",))
            )
        for frames in garbage:
            n1.outbox.send_multipart(frames)
    # Whole, but meaningless: the receiver's to refuse, rules or not.
    n1.outbox.send(envelope("n3", "n1", b"\xc1\xc1"))
    assert net.nodes["n3"].inbox.recv_multipart() == [envelope("n3", "n1", b"\xc1\xc1")]
    n1.send("n2", 5)
    assert n2.receive() == 5
    assert net.control.stats().garbage - before == 2 * len(garbage)


@pytest.mark.integration
@pytest.mark.parametrize(
    "header",
    [b"", b"\xc1", b"\x81\xa1\xff\x01", b"\x91" * 100_000, b"\x80"],
    ids=["empty", "no msgpack", "no text", "deep", "no kind"],
)
def test_headers_that_cannot_be_read_pass_untouched(net: Net, header: bytes) -> None:
    n1, n2 = net.nodes["n1"], net.nodes["n2"]
    net.control.add(
        LinkRule(senders=("*",), receivers=("*",), action="drop", kinds=("x",), match={"y": 1})
    )
    sent = [envelope("n2", "n1", header), b"body"]
    n1.outbox.send_multipart(sent)
    assert n2.inbox.recv_multipart() == sent


@pytest.mark.integration
def test_commands_that_make_no_sense_are_refused(net: Net) -> None:
    before = net.control.stats().garbage
    with pytest.raises(FloodmarkError, match="there is no link rule 77"):
        net.control.remove(77)
    with zmq.Context() as context, context.socket(zmq.REQ) as outsider:
        outsider.connect(net.config.control)
        outsider.send(b"\xc1")
        assert msgspec.msgpack.decode(outsider.recv())["error"]
    assert net.control.stats().garbage == before


RULE = {"senders": ["n1"], "receivers": ["n2"], "action": "drop"}


def rule_with(**fields: object) -> bytes:
    """The command to add a rule, written without its type."""
    return msgspec.msgpack.encode({"do": "add", "rule": RULE | fields})


def command(**fields: object) -> bytes:
    return msgspec.msgpack.encode(fields)


HOSTILE_COMMANDS: dict[str, list[bytes]] = {
    "empty": [b""],
    "no command": [msgspec.msgpack.encode([1, 2])],
    "no such command": [command(do="dance")],
    "bad text": [b"\x81\xa2do\xa3\xff\xfe\xfd"],
    "two frames": [command(do="stats"), command(do="stop")],
    "a hundred thousand levels": [b"\x91" * 100_000],
    "deep in a field that nobody knows": [b"\x82\xa2do\xa5stats\xa1x" + b"\x91" * 100_000],
    "a list of four thousand million": [b"\xdd\xff\xff\xff\xff"],
    "a bound that is a text": [rule_with(match={"offset": {"at_least": "many"}})],
    "a bound that is a list": [rule_with(match={"offset": {"at_most": [1]}})],
    "a value that is a map of maps": [rule_with(match={"offset": {"a": {"b": {}}}})],
    "too many conditions": [rule_with(match=dict.fromkeys(map(str, range(201)), 1))],
    "a delay without end": [rule_with(action="delay", delay_ms=float("inf"))],
    "a delay that is no number": [rule_with(action="delay", delay_ms=float("nan"))],
    "a delay of an age": [rule_with(action="delay", delay_ms=2.0**60)],
    "no part": [rule_with(percent=float("nan"))],
    "a limit below one": [rule_with(limit=-(2**63))],
    "too many senders": [rule_with(senders=["n"] * 3000)],
    "senders that are numbers": [rule_with(senders=[1])],
    "no such rule": [command(do="remove", number=2**62)],
    "a rule below none": [command(do="remove", number=-1)],
    "a rule above all": [command(do="remove", number=2**64 - 1)],
    "too many rules": [
        command(do="set", rules=[msgspec.msgpack.decode(rule_with())["rule"]] * 10_001)
    ],
    "a node without a name": [command(do="node", name="", address="tcp://127.0.0.1:1")],
    "a long name": [command(do="node", name="n" * 65, address="tcp://127.0.0.1:1")],
    "a long address": [command(do="node", name="n9", address="tcp://" + "1" * 300)],
    "no address": [command(do="node", name="n9", address="tcp://\0")],
}


@pytest.mark.integration
def test_no_command_ends_the_hub(net: Net) -> None:
    with zmq.Context() as context, context.socket(zmq.REQ) as outsider:
        outsider.set(zmq.RCVTIMEO, DEADLINE_MS)
        outsider.connect(net.config.control)
        for name, frames in HOSTILE_COMMANDS.items():
            outsider.send_multipart(frames)
            answer = msgspec.msgpack.decode(outsider.recv())
            assert answer["error"], name
            assert "\n" not in answer["error"], name
    n1, n2 = net.nodes["n1"], net.nodes["n2"]
    n1.send("n2", 1)
    assert n2.receive() == 1
    assert net.control.stats().rules == {}


@pytest.mark.integration
def test_a_rule_that_reads_headers_survives_fields_of_any_type(net: Net) -> None:
    n1, n2 = net.nodes["n1"], net.nodes["n2"]
    net.control.add(
        LinkRule(
            senders=("*",),
            receivers=("*",),
            action="drop",
            kinds=("fetch",),
            match={"offset": {"at_least": 5}, "partition": "log-0"},
        )
    )
    values = [None, "7", [7], {"a": 7}, 7.5, float("nan"), True, 2**64 - 1, b"7"]
    for value in values:
        fields = {"kind": "fetch", "partition": "log-0", "offset": value}
        odd = {"kind": value, "partition": value, "offset": 7}
        for header in (fields, odd):
            n1.outbox.send(envelope("n2", "n1", msgspec.msgpack.encode(header)))
    n1.send("n2", 3)
    arrived = 0
    while n2.inbox.recv_multipart() != wire.encode(
        "n2", "n1", FetchRequest(partition="log-0", offset=3, corr=3)
    ):
        arrived += 1
    # Dropped: 7.5 and the highest number; all other fields are no offset of 5 or above.
    assert arrived == 2 * len(values) - 2


def test_what_is_written_down_of_garbage_can_be_read_again() -> None:
    kept = MessageSampler()
    fields = {"kind": ["no", "text"], "partition": "p" * 1000, "offset": 2**64 - 1, "hw": 3}
    line = kept.line(1, "s" * 1000, "r", "dropped", fields)
    assert line is not None
    again = msgspec.json.decode(msgspec.json.encode(line), type=MessageLine)
    assert again == line
    assert (again.kind, again.offset, again.hw, len(again.partition)) == ("?", -1, 3, 240)


@pytest.mark.integration
def test_a_hub_that_was_stopped_answers_nobody(tmp_path: Path) -> None:
    with contextlib.closing(Net(tmp_path)) as own:
        own.control.wait_ready()
        own.control.stop()
        own.process.join(PATIENCE_S)
        assert own.process.exitcode == 0
        with pytest.raises(HubGone, match="the link hub has ended"):
            own.control.stats()


def test_a_silent_hub_is_reported_after_the_deadline() -> None:
    (address,) = free_addresses(1)
    with HubControl(address, deadline_ms=50) as control, pytest.raises(HubGone, match="50 ms"):
        control.stats()


@pytest.mark.integration
def test_a_port_taken_is_one_sentence(tmp_path: Path, net: Net) -> None:
    output = tmp_path / "second.txt"
    config = msgspec.structs.replace(net.config, output_file=str(output))
    second = SPAWN.Process(target=hub.main, args=(config,))
    second.start()
    second.join(PATIENCE_S)
    assert second.exitcode == 70
    assert output.read_text().startswith(f"link hub: cannot listen on {config.bind}: ")
    assert output.read_text().count("\n") == 1


PARENT = """
import os, sys, time
import msgspec
from multiprocess import get_context
from harness.systems.ports import PortLease
from nemesis.links import hub
if __name__ == "__main__":
    config = msgspec.json.decode(sys.argv[1], type=hub.HubConfig)
    config = msgspec.structs.replace(config, parent_pid=os.getpid() + int(sys.argv[2]))
    process = get_context("fork").Process(target=hub.main, args=(config,))
    process.start()
    print(process.pid, flush=True)
    process.join()
    print(process.exitcode, flush=True)
"""


def parent(tmp_path: Path, wrong_by: int) -> tuple[subprocess.Popen[str], HubConfig]:
    bind, control = free_addresses(2)
    config = HubConfig(bind=bind, control=control, nodes={}, seed=0, parent_pid=0)
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    process = subprocess.Popen(
        [sys.executable, str(script), msgspec.json.encode(config).decode(), str(wrong_by)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    return process, config


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


@pytest.mark.integration
def test_the_hub_dies_with_its_parent(tmp_path: Path) -> None:
    started, config = parent(tmp_path, 0)
    with started as harness:
        assert harness.stdout is not None
        pid = int(harness.stdout.readline())
        with HubControl(config.control, deadline_ms=DEADLINE_MS) as control:
            control.wait_ready()
            os.kill(pid, signal.SIGINT)  # Ctrl-C is the harness's affair
            control.stats()
        harness.kill()
        until(lambda: is_gone(pid))


@pytest.mark.integration
def test_a_hub_whose_parent_is_gone_already_does_not_start(tmp_path: Path) -> None:
    started, _ = parent(tmp_path, 1)
    with started as harness:
        assert harness.stdout is not None
        lines = harness.stdout.read().split()
    assert lines[1] == str(EXIT_ORPHANED)
