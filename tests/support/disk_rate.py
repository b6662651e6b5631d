"""How much a disk in user space costs: rounds on a plain folder and on it in turn, as ratios.

    python -m tests.support.disk_rate --system nats --set sync=always --rounds 5

Each round starts three nodes, sends for some seconds with so many sends in flight, and counts
acknowledgements. What the machine does beside concerns both.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness.runs import run_folder
from harness.runs.options import settings_of
from harness.systems import registry
from harness.systems.adapter import Adapter, Node, Record
from harness.systems.disks import PLAIN, USER_SPACE
from harness.systems.external.system import ExternalSystem
from harness.systems.interface import NO_LINKS
from nemesis.formats.schedule import Cluster, Schedule

PAYLOAD = b"x" * 100


async def acknowledged(
    adapter: Adapter, nodes: list[Node], partition: str, in_flight: int, seconds: float
) -> int:
    """Keep so many sends in flight for a while."""
    count, number = 0, 0
    connection: Any = await asyncio.wait_for(_maybe(adapter.connect("c1", nodes)), 10)
    until = time.monotonic() + seconds

    async def send() -> None:
        nonlocal count, number
        while time.monotonic() < until:
            number += 1
            record = Record(partition, PAYLOAD, number, -1, 5.0)
            await _maybe(adapter.send(connection, record))
            count += 1

    await asyncio.gather(*(send() for _ in range(in_flight)))
    await adapter.close(connection)
    return count


async def _maybe(found: Any) -> Any:
    return await found if asyncio.iscoroutine(found) else found


def rate(system: ExternalSystem, disk: str, in_flight: int, seconds: float) -> float:
    """Acknowledgements per second of one cluster."""
    schedule = Schedule(cluster=system.complete(Cluster(partitions=1)))
    with tempfile.TemporaryDirectory(prefix="floodmark-rate-") as place:
        folder = run_folder.create(Path(place), "rate")
        cluster = system.launch(schedule, folder, links=NO_LINKS, disk=disk)
        try:
            cluster.start()
            adapter = system.choice.load()
            nodes = list(cluster.nodes.values())
            partition = schedule.cluster.partition_names()[0]
            done = asyncio.run(acknowledged(adapter, nodes, partition, in_flight, seconds))
        finally:
            cluster.close()
    return done / seconds


def main() -> None:
    """Print the rates of each round, and the ratio of the medians."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--system", default="nats")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=3.0)
    given = parser.parse_args()
    system = registry.find(given.system, settings_of(given.set))
    assert isinstance(system, ExternalSystem)
    rates: dict[str, list[float]] = {PLAIN: [], USER_SPACE: []}
    for number in range(given.rounds):
        for disk in (PLAIN, USER_SPACE) if number % 2 else (USER_SPACE, PLAIN):
            rates[disk].append(rate(system, disk, given.in_flight, given.seconds))
        both = ", ".join(f"{disk} {found[-1]:.0f}" for disk, found in rates.items())
        sys.stdout.write(
            f"{number}: {both}, ratio {rates[USER_SPACE][-1] / rates[PLAIN][-1]:.2f}\n"
        )
        sys.stdout.flush()
    ratios = [user / plain for user, plain in zip(rates[USER_SPACE], rates[PLAIN], strict=True)]
    sys.stdout.write(
        f"{given.system} {' '.join(given.set)}: median of the ratios "
        f"{statistics.median(ratios):.2f} [{min(ratios):.2f}-{max(ratios):.2f}]\n"
    )


if __name__ == "__main__":
    main()
