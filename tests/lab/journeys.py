"""Two journeys through the code, and the files that each goes through.

A produce request is followed from the socket of its leader to its acknowledgement: through the loop
and the store of a process, and through the cores of three simulated brokers. A kill is followed
from its time in the schedule to the heal. With `--write` the drawings are put into
docs/architecture.md. Two more journeys are only counted: the request of a run of another system,
from the command line to `run_once`, and a search job of one schedule."""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Final
from unittest.mock import patch

import zmq
from msgspec.structs import replace

from harness.cli.main import main
from harness.search.search_jobs import SearchJob
from harness.search.worlds.simulated import SimulatedSubject
from harness.sim.disk import SimDisk
from harness.sim.run import simulate
from nemesis.faults import Kill
from nemesis.injector import Injector
from node.core import batch
from node.core.api import Deliver, Event, NodeConfig, Tick
from node.core.broker import Broker
from node.formats import wire
from node.formats.messages import (
    CreateTopic,
    FetchRequest,
    FetchResponse,
    ProduceRequest,
    ProduceResponse,
)
from node.runtime.breakpoints import StopRequest
from node.runtime.loop import Loop, TraceFile
from node.runtime.mailbox import Inbox, Outbox
from node.runtime.store import LmdbStorage
from tests.support.paths import ROOT
from tests.support.sim_schedules import plan

DOCUMENT: Final = ROOT / "docs" / "architecture.md"
BEGINS: Final = "<!-- journeys -->\n"
ENDS: Final = "<!-- end of journeys -->\n"
WIDTH: Final = 116


class Journey:
    """The files of some packages whose code runs while the journey goes on, in the order of their
    first call."""

    def __init__(self, *packages: str) -> None:
        self._packages = packages
        self._goes = False
        self.files: list[str] = []

    @contextmanager
    def goes(self, *, on: bool = True) -> Iterator[None]:
        """Note all calls of a block, if the journey goes `on` there."""
        before, self._goes = self._goes, self._goes or on
        sys.setprofile(self._note if self._goes else None)
        try:
            yield
        finally:
            self._goes = before
            if not before:
                sys.setprofile(None)

    def follow(self, owner: type, name: str, when: Callable[..., bool]) -> Any:
        """Return a patch under which the journey goes on during those calls of a method for which
        `when` is true."""
        plain = getattr(owner, name)

        def call(*given: Any) -> Any:
            with self.goes(on=when(*given)):
                return plain(*given)

        return patch.object(owner, name, call)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        file = Path(frame.f_code.co_filename)
        if event == "call" and self._goes and file.is_relative_to(ROOT):
            name = str(file.relative_to(ROOT))
            if name.split("/")[0] in self._packages and name not in self.files:
                self.files.append(name)


class OneBroker:
    """The only broker of a cluster, with a real store and real sockets, turn by turn, beside the
    core of the only voter."""

    def __init__(self, folder: Path, context: zmq.Context[Any]) -> None:
        self._mail = context.socket(zmq.PULL)
        self._mail.bind("inproc://others")
        self._wake = os.pipe()
        self.inbox = Inbox(context, "inproc://n1", self._wake[0])
        self._sender = context.socket(zmq.PUSH)
        self._sender.connect("inproc://n1")
        outbox = Outbox(context, "n1", {"*": "inproc://others"})
        self._storage = storage = LmdbStorage(folder, "boot")
        trace = TraceFile(str(folder / "trace.jsonl"), "n1", 1)
        config = NodeConfig(node="n1", voters=("v1",), brokers=("n1",))
        self._voter = Broker(replace(config, node="v1"), SimDisk(), random.Random(1), 0)
        broker = Broker(config, storage, random.Random(1), 0)
        self._now_us = 0
        self.loop = Loop("n1", broker, storage, self.inbox, outbox, trace, StopRequest())
        self.loop._turn(0, [], [], first=True)

    def close(self) -> None:
        self._storage.close()
        for end in self._wake:
            os.close(end)

    def turn(self) -> None:
        """Take one turn, as `Loop.run` does, 10 ms after the last one."""
        self._now_us += 10_000
        arrived, _ = self.inbox.drain()
        self.loop._turn(self._now_us, self.loop._understand(arrived, []), [])

    def send(self, source: str, message: Any, body: bytes | None = None) -> None:
        self._sender.send_multipart(wire.encode("n1", source, message, body))

    def sent(self) -> list[Any]:
        """Return the messages that left since the last call; those to the voter arrive."""
        self.to_voter(Tick())
        found = []
        while self._mail.poll(0):
            to, source, message, body = wire.decode(self._mail.recv_multipart())
            found.append(message)
            if to == "v1":
                self.to_voter(Deliver(source, message, body))
        return found

    def to_voter(self, event: Event) -> None:
        for out in self._voter.step(self._now_us, event).messages:
            if out.to == "n1":
                self.send("v1", out.message, out.body)


def of_process() -> list[str]:
    """Return the files of a produce request in the process of a leader without followers."""
    journey = Journey("node")
    with tempfile.TemporaryDirectory() as folder, zmq.Context() as context:
        node = OneBroker(Path(folder), context)
        topic = CreateTopic(topic="log", partitions=1, replication_factor=1, min_isr=1)
        request = ProduceRequest(partition="log-0")
        sent: list[Any] = []
        while not any(isinstance(each, ProduceResponse) and not each.error for each in sent):
            node.to_voter(Deliver("admin", topic))
            node.send("c1", request, batch.build(1, b"x"))
            node.turn()
            sent = node.sent()
        node.turn()
        node.send("c1", request, batch.build(1, b"y"))
        with journey.goes():
            node.turn()
        node.close()
        context.destroy(linger=0)
    return journey.files


def of_cores() -> list[str]:
    """Return the files of produce requests, and of what replicates them, in simulated brokers."""
    journey = Journey("node")

    def carries(broker: Broker, now_us: int, event: Any) -> bool:
        message = getattr(event, "message", None)
        if not isinstance(message, ProduceRequest | FetchRequest | FetchResponse):
            return False
        return message.partition == "log-0" and event.source != "c2"

    with journey.follow(Broker, "step", carries):
        simulate(plan(duration_ms=1000), seed=1)
    return journey.files


def of_kill() -> list[str]:
    """Return the files of a kill, from the schedule to the heal."""
    journey = Journey("nemesis", "harness")
    with (
        journey.follow(Injector, "_inject", lambda *_: True),
        journey.follow(Injector, "_heal", lambda *_: True),
    ):
        simulate(plan(Kill(on="n1", at_ms=500, for_ms=500), duration_ms=2000), seed=1)
    return journey.files


def of_request() -> list[str]:
    """Return the files of harness/ from the command line of a run to its first process."""
    adapter = ROOT / "examples" / "naive_log" / "adapter.py"
    words = ["run", "--system", str(adapter), "--faults", "kill", "--quiet"]
    journey = Journey("harness")
    with patch("harness.runs.run.run_once", side_effect=KeyboardInterrupt) as begun:
        for on in (False, True):  # the first time, modules are imported
            with journey.goes(on=on), suppress(SystemExit):
                main(words)
    assert begun.call_count == 2, "the command line was refused"
    return journey.files


def of_job() -> list[str]:
    """Return the files of harness/ that run in a search job of one schedule."""
    journey = Journey("harness")
    for on in (False, True):
        subject = SimulatedSubject(protocol="kafka")
        with journey.goes(on=on):
            SearchJob(key="job", subject=subject, seed=0, first=0, count=1).do()
    return journey.files


def drawing() -> str:
    """Return both journeys as Markdown."""
    alone, replicated, kill = of_process(), of_cores(), of_kill()
    produce = list(dict.fromkeys([*alone, *replicated]))
    parts = [
        "A produce request with acks=all, from the socket of its leader to the acknowledgement, "
        f"goes through {len(produce)} files, {len(alone)} of them if there are no followers:",
        " -> ".join(produce),
        f"A kill goes through {len(kill)} files in the simulated world, from its time to the heal:",
        " -> ".join(kill),
    ]
    wrapped = ["\n".join(textwrap.wrap(part, WIDTH, break_on_hyphens=False)) for part in parts]
    wrapped[1], wrapped[3] = (textwrap.indent(each, "    ") for each in wrapped[1::2])
    return "\n\n".join(wrapped) + "\n"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--write", action="store_true", help="put it into docs/architecture.md")


def run(options: argparse.Namespace) -> int:
    """Print the drawings, or write them into the document."""
    found = drawing()
    if not options.write:
        print(found)
        for name, files in {"a request": of_request(), "a search job": of_job()}.items():
            print(f"{name}: {len(files)} files of harness/: {' -> '.join(files)}")
        return 0
    text = DOCUMENT.read_text()
    before, rest = text.split(BEGINS)
    DOCUMENT.write_text(f"{before}{BEGINS}\n{found}\n{ENDS}{rest.split(ENDS)[1]}")
    return 0
