"""A million hostile messages to the sockets of a live cluster: nothing ends, and nothing grows.

The fast versions are `tests/node/core/test_hostile_messages.py` (every field of every message) and
`tests/nemesis/links/scripts/hub.txt` (commands of the hub). HOSTILE_MESSAGES changes the number."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
import zmq

from harness.runs import run_folder
from harness.systems.floodmark.cluster import FloodmarkCluster
from harness.systems.floodmark.system import HUB_LINKS, SYSTEM
from nemesis.formats.schedule import Cluster, Schedule, Workload
from node.formats.messages import AnyMessage
from node.formats.wire import ADMIN, envelope, fetch_body
from tests.support.waiting import until

pytestmark = pytest.mark.nightly

MESSAGES = int(os.environ.get("HOSTILE_MESSAGES", "1000000"))
POOL = 4000
GROWTH_BYTES = 64 << 20
KINDS: tuple[type[AnyMessage], ...] = AnyMessage.__args__  # type: ignore[attr-defined]
NUMBERS = (0, 1, -1, -2, 2**30, 2**31, 2**32, 2**62, 2**63 - 1, -(2**63), 2**64 - 1, 1.5)
TEXTS = ("", "n1", "n2", "v1", "c1", "log-0", "__cluster_metadata-0", "x" * 5000, "\0", "n9")
NAMES = ("n1", "n2", "n3", "v1", "c1", ADMIN, "n9", "", "\0", "n" * 64)


class Storm:
    """Hostile frames, drawn once and sent again and again."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self.pool = [self._message() for _ in range(POOL)]

    def _message(self) -> list[bytes]:
        rng = self._rng
        to, source = rng.choice(NAMES), rng.choice(NAMES)
        how = rng.random()
        if how < 0.1:
            return [rng.randbytes(rng.randrange(200)) for _ in range(rng.randrange(1, 12))]
        if how < 0.2:
            return [envelope(to, source, rng.randbytes(rng.randrange(100)))]
        if how < 0.25:
            return [envelope(to, source, b"\x91" * rng.choice((10, 5000)))]
        kind = rng.choice(KINDS)
        fields: dict[str, Any] = {"kind": kind.__struct_config__.tag}
        fields |= {name: self._value() for name in kind.__struct_fields__ if rng.random() < 0.9}
        if "partition" in fields and rng.random() < 0.8:
            fields["partition"] = rng.choice(("log-0", "log-1", "__cluster_metadata-0"))
        frames = [envelope(to, source, msgspec.msgpack.encode(fields))]
        if rng.random() < 0.5:
            odd = rng.randbytes(rng.randrange(80))
            frames.append(fetch_body(rng.randrange(2**31), rng.randrange(2**62), [odd]))
        return frames

    def _value(self) -> Any:
        rng = self._rng
        small = rng.randrange(20)
        simple = (rng.choice(NUMBERS), small, small, rng.choice(TEXTS), rng.random() < 0.5)
        return rng.choice((*simple, [], [[1, 2]], None, {}, {"a": ["n1", 1]}))

    def send(
        self, sockets: list[zmq.Socket[bytes]], count: int, meanwhile: Callable[[], object]
    ) -> int:
        """Send to the sockets alternately; return how many messages were taken."""
        taken = 0
        for number in range(count):
            if number % 200 == 0:
                meanwhile()
            with contextlib.suppress(zmq.Again):
                sockets[number % len(sockets)].send_multipart(self.pool[number % POOL])
                taken += 1
        return taken


@contextlib.contextmanager
def storming(folder: Path) -> Iterator[FloodmarkCluster]:
    schedule = Schedule(
        cluster=Cluster(partitions=2), workload=Workload(clients=2, consumers=1, rate=5)
    )
    cluster = SYSTEM.launch(schedule, run_folder.create(folder, "storm"), links=HUB_LINKS)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


def resident(pids: dict[str, int]) -> dict[str, int]:
    """Bytes of memory of each process."""
    return {name: psutil.Process(pid).memory_info().rss for name, pid in pids.items()}


def outlet(address: str, context: zmq.Context[Any]) -> zmq.Socket[bytes]:
    made: zmq.Socket[bytes] = context.socket(zmq.PUSH)
    made.set(zmq.LINGER, 0)
    made.set(zmq.SNDTIMEO, 2000)
    made.connect(address)
    return made


def raw_garbage(addresses: list[str], rng: random.Random, times: int) -> None:
    """Send bytes that are not ZeroMQ, or only begin like it."""
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48)
    for number in range(times):
        path = addresses[number % len(addresses)].removeprefix("ipc://")
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as raw:
            raw.settimeout(2)
            raw.connect(path)
            raw.sendall(greeting * (number % 2) + rng.randbytes(300))


def test_a_live_cluster_survives_a_storm_of_hostile_messages(tmp_path: Path) -> None:
    """Sent to every socket. No process ends or grows, and writes go on."""
    storm, context = Storm(1), zmq.Context()
    with storming(tmp_path) as cluster:
        clients = cluster.clients()
        clients.ask("go")

        def acked_more(than: int = 0) -> bool:
            # Clients whose reports nobody reads stop before long.
            cluster.poll()
            return clients.status.acked > than

        until(lambda: acked_more(3), "writes")
        assert cluster.hub is not None
        pids = {name: each.process.pid for name, each in cluster.processes._running.items()}
        pids |= {
            "hub": cluster.hub.child.pid,
            "clients": clients._process.pid,
            "harness": os.getpid(),
        }
        everywhere = list(cluster._addresses.values())
        sockets = [outlet(address, context) for address in everywhere]
        storm.send(sockets, POOL, acked_more)
        before = resident(pids)
        began, taken = time.monotonic(), storm.send(sockets, MESSAGES, acked_more)
        raw_garbage(everywhere, random.Random(2), 400)
        context.destroy(linger=0)
        took_s = time.monotonic() - began
        acked = clients.status.acked
        until(lambda: acked_more(acked), "writes go on")
        grown = {name: size - before[name] for name, size in resident(pids).items()}
        assert cluster.ended() == ()
        assert list(cluster.problems) == []
        assert clients.status.problem == ""
        assert cluster.hub is not None
        stats = cluster.hub.stats()
        clients.close()
    most = {name: f"{size >> 20} MB" for name, size in grown.items()}
    sys.stderr.write(f"{taken:,} in {took_s:.0f} s, grown {most}, {stats}\n")
    assert taken > MESSAGES * 0.99
    assert max(grown.values()) < GROWTH_BYTES, most
