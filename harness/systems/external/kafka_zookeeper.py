"""The metadata of a Kafka before 3.9, as ZooKeeper has it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from kazoo.client import KazooClient

from harness.systems.adapter import Roles
from node.formats.json_input import decode


class ZooKeeper:
    """A connection to ZooKeeper."""

    def __init__(self, address: str) -> None:
        self._client = KazooClient(address, timeout=4)
        self._client.start(2)

    def close(self) -> None:
        """End the connection."""
        self._client.stop()

    def create(self, ids: Sequence[int], topic: str, replicas: Sequence[int]) -> None:
        """Make a topic with one partition once all brokers are there, and the last one is the
        controller. Raises until that is so and the topic has a leader."""
        there = sorted(map(int, self._client.get_children("/brokers/ids")))
        controller = self._ask("/controller")["brokerid"]
        if len(there) < len(ids) or controller != ids[-1]:
            self._client.delete("/controller")
            raise RuntimeError(f"not all brokers are up ({there}), or {controller=} is not last")
        path = f"/brokers/topics/{topic}"
        if not self._client.exists(path):
            plan = {"version": 1, "partitions": {"0": replicas}}
            self._client.create(path, json.dumps(plan).encode())
        self._ask(f"{path}/partitions/0/state")

    def led_by(self, broker: int) -> dict[str, Roles]:
        """Return what a broker leads, as `Adapter.probe` does."""
        found = {}
        if self._ask("/controller")["brokerid"] == broker:
            found[""] = Roles(int(self._ask("/controller_epoch")))
        for topic in self._client.get_children("/brokers/topics"):
            state = self._ask(f"/brokers/topics/{topic}/partitions/0/state")
            if state["leader"] == broker:
                isr = tuple(f"n{each}" for each in state["isr"])
                found[topic] = Roles(state["leader_epoch"], isr)
        return found

    def _ask(self, path: str) -> Any:
        return decode(self._client.get(path)[0], object)
