"""Scripts of the hub and of the TCP proxy, and what those of the hub do not reach."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from nemesis.formats.message_log import MessageLine, MessageSampler
from nemesis.links import hub
from nemesis.links.hub_control import HubConfig, HubControl
from nemesis.links.link_process import LinksGone, RemoveRule
from nemesis.links.rule import LinkRule
from node.runtime.children import EXIT_ORPHANED
from tests.support.python_process import PythonProcess
from tests.support.runtime_rig import until_gone
from tests.support.scripts import beside, proving
from tests.support.stage_hub import Net, free_addresses, one_net
from tests.support.waiting import PATIENCE_S, until

test_script = pytest.mark.integration(proving(beside(__file__)))


@pytest.fixture
def net() -> Net:
    made = one_net()
    made.begin()
    return made


READER = """
import os, sys, zmq
inbox = zmq.Context().socket(zmq.PULL)
inbox.bind(sys.argv[1])
print("up", flush=True)
while True:
    print(inbox.recv_multipart()[0][-1:].hex(), flush=True)
"""


@contextlib.contextmanager
def reader_of(address: str) -> Iterator[PythonProcess]:
    """Yield a process that prints a line for each message it gets; it can be paused."""
    reader = PythonProcess("-c", READER, address)
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
        assert reader.line() == "up"
        forwarded = net.control.stats().forwarded

        def reached() -> bool:
            n1.send("n2", 1)
            return net.control.stats().forwarded > forwarded

        until(reached)
        assert reader.line()
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
            assert reader.line()


def test_what_is_written_down_of_garbage_can_be_read_again() -> None:
    kept = MessageSampler()
    fields = {"kind": ["no", "text"], "partition": "p" * 1000, "offset": 2**64 - 1, "hw": 3}
    line = kept.line(1, "s" * 1000, "r", "dropped", fields)
    assert line is not None
    again = msgspec.json.decode(msgspec.json.encode(line), type=MessageLine)
    assert again == line
    assert (again.kind, again.offset, again.hw, len(again.partition)) == ("?", -1, 3, 240)


@pytest.mark.integration
def test_a_hub_that_has_ended_answers_nobody(tmp_path: Path) -> None:
    with contextlib.closing(Net(tmp_path)) as own:
        own.control.wait_ready()
        own.control.child.kill()
        with pytest.raises(LinksGone, match="the link hub ended by itself, with code -9"):
            own.control.stats()


@pytest.mark.integration
def test_a_silent_hub_is_reported_and_its_late_answer_skipped(net: Net) -> None:
    os.kill(net.control.child.pid, signal.SIGSTOP)
    try:
        with pytest.raises(LinksGone, match="did not answer within"):
            net.control.stats(0.05)
    finally:
        os.kill(net.control.child.pid, signal.SIGCONT)
    number = net.control.add(LinkRule(senders=("n1",), receivers=("n2",), action="drop"))
    assert net.control.stats().rules.keys() == {number}


@pytest.mark.integration
def test_a_hub_that_confirms_no_rule_is_killed(tmp_path: Path) -> None:
    """It would be unknown whether the rule is in force."""
    with contextlib.closing(Net(tmp_path)) as own:
        own.control.wait_ready()
        os.kill(own.control.child.pid, signal.SIGSTOP)
        with pytest.raises(LinksGone, match="did not answer"):
            own.control.ask(RemoveRule(number=1), 0.05)
        own.control.child.join(PATIENCE_S)
        assert own.control.child.exitcode == -signal.SIGKILL


@pytest.mark.integration
def test_a_port_taken_is_one_sentence(tmp_path: Path, net: Net) -> None:
    output = tmp_path / "second.txt"
    config = msgspec.structs.replace(net.config, output_file=str(output))
    second = HubControl(config)
    with contextlib.closing(second), pytest.raises(LinksGone, match="with code 73"):
        second.wait_ready()
    assert output.read_text().startswith(f"link hub: cannot listen on {config.bind}: ")
    assert output.read_text().count("\n") == 1


PARENT = """
import os, signal, sys
import msgspec
from nemesis.links.hub_control import HubConfig, HubControl
from node.formats.errors import FloodmarkError
if __name__ == "__main__":
    config = msgspec.json.decode(sys.argv[1], type=HubConfig)
    config = msgspec.structs.replace(config, parent_pid=os.getpid() + int(sys.argv[2]))
    control = HubControl(config)
    try:
        control.wait_ready()
        os.kill(control.child.pid, signal.SIGINT)  # Ctrl-C is the harness's affair
        control.stats()
    except FloodmarkError:
        print(control.child.exitcode, flush=True)
    print(control.child.pid, flush=True)
    signal.pause()
"""


def parent(tmp_path: Path, wrong_by: int) -> PythonProcess:
    (bind,) = free_addresses(1)
    config = HubConfig(bind=bind, nodes={}, seed=0, parent_pid=0)
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    return PythonProcess(script, msgspec.json.encode(config).decode(), wrong_by)


@pytest.mark.integration
def test_the_hub_dies_with_its_parent(tmp_path: Path) -> None:
    with parent(tmp_path, 0) as harness:
        pid = int(harness.line())
        harness.kill()
        until_gone(pid)


@pytest.mark.integration
def test_a_hub_whose_parent_is_gone_already_does_not_start(tmp_path: Path) -> None:
    with parent(tmp_path, 1) as harness:
        assert harness.line() == str(EXIT_ORPHANED)
        harness.kill()
