"""A real broker process around a fake core, and its one client: a stage of scripts.

Partitions choose what the core does (`runtime_fakes.FakeCore`). Requests are numbered from 0."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path
from typing import Any, Final

import msgspec

from node.formats import wire
from node.formats.messages import MetadataRequest, ProduceRequest, ProduceResponse
from node.formats.wire import envelope
from node.runtime.breakpoints import Breakpoint
from node.runtime.store import LmdbStorage
from tests.support import runtime_fakes
from tests.support.runtime_rig import BODY, Node
from tests.support.waiting import until

_GOOD: Final = wire.encode("n1", "c1", MetadataRequest())
GARBAGE: Final = (
    [b"x"],
    [b""],
    [b"", b"", b""],
    [_GOOD[0][:5]],
    [_GOOD[0].replace(b"c1", b"\xff\xfe")],
    [envelope("n1", "c1", b"\xc1")],
    [b"\x07" + _GOOD[0][1:]],
    [*_GOOD, b"a", b"b"],
    wire.encode("n9", "c1", MetadataRequest()),
    [envelope("n1", "c1", msgspec.msgpack.encode({"kind": "nonsense"}))],
)


class ProcessStage:
    """The process, which is not started yet; `peer` is a node that cannot be reached."""

    def __init__(self, core: str = "FakeCore", peer: str = "", **changes: Any) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="floodmark-process-")
        if peer:
            changes["peers"] = {peer: "tcp://127.0.0.1:1"}
        self._node = Node(Path(self._place.name), getattr(runtime_fakes, core), **changes)
        self._corr = 0

    def __del__(self) -> None:
        """Leave no process behind."""
        self._node.__exit__()

    # -- its life

    def start(self) -> None:
        self._node.start()

    def stop(self) -> str:
        return f"exit code {self._node.stop()}"

    def kill(self) -> str:
        self._node.process.kill()
        return self.ended()

    def ended(self) -> str:
        return f"exit code {self._node.ended()}"

    def signal(self, name: str) -> None:
        os.kill(self._node.process.pid, getattr(signal, name))

    def second(self, what: str) -> list[str]:
        """Start a process in another folder with one of the places of this one."""
        with tempfile.TemporaryDirectory() as place:
            taken = getattr(self._node.config, what)
            with Node(Path(place), runtime_fakes.FakeCore, **{what: taken}) as other:
                code = other.start().ended()
                return [f"exit code {code}", other.output().strip().replace(taken, what)]

    # -- what its client says and hears

    def produce(self, partition: str, times: int = 1) -> str:
        """Write batches one by one, and return where the last one is, right behind the others."""
        places = []
        for _ in range(times):
            self.send(partition)
            places.append(self._answer())
        number, offset = places[0]
        assert places == [(number + more, offset + more) for more in range(times)]
        return f"request {places[-1][0]} at {places[-1][1]}"

    def send(self, partition: str, times: int = 1) -> None:
        """Write batches, and wait for no answer."""
        for _ in range(times):
            self._node.send(ProduceRequest(corr=self._corr, partition=partition), BODY)
            self._corr += 1

    def receive(self) -> str:
        """Return which request the next answer is to, and the offset in it."""
        number, offset = self._answer()
        return f"request {number} at {offset}"

    def _answer(self) -> tuple[int, int]:
        answer = self._node.receive()
        assert isinstance(answer, ProduceResponse)
        return answer.corr, answer.base_offset

    def garbage(self) -> None:
        for frames in GARBAGE:
            self._node.outbox.send_multipart(frames)

    # -- breakpoints

    def breaks(self, event: str, **more: Any) -> None:
        """Order the process to stop at a place of a turn."""
        match = msgspec.json.decode(more.pop("match", "{}"))
        number = more.pop("number", 7)
        self._node.breakpoints.order({number: Breakpoint(event, match, **more)}, {})

    def release(self) -> None:
        self._node.breakpoints.order({}, {})

    def reached(self) -> str:
        return f"reached {' '.join(map(str, self._node.breakpoints.reached()))}"

    # -- what it leaves behind

    def trace(self, event: str, *fields: str, at_least: int = 0) -> list[str]:
        """Return these fields of the events of a name, once there are so many."""
        until(lambda: len(self._node.trace(event)) >= at_least, f"{at_least} {event}")
        found = [" ".join(str(one[name]) for name in fields) for one in self._node.trace(event)]
        if len(found) < 9 and fields:
            return found
        return [f"{len(found)} events {' '.join({*found})}".strip()]

    def says(self, *words: int | str) -> None:
        """Wait until its output has these words."""
        text = " ".join(map(str, words))
        until(lambda: text in self._node.output(), text)

    def last_line(self) -> str:
        return self._node.output().splitlines()[-1]

    def stored(self, partition: str) -> str:
        """Return how many batches of a partition the dead process has left."""
        store = LmdbStorage(self._node.config.data_dir, "boot-1")
        count = len(list(store.batches(partition)))
        store.close()
        journal = (Path(self._node.config.data_dir) / "journal").stat().st_size
        return f"{count} batches, {'nothing' if not journal else 'something'} in the journal"
