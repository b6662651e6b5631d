"""What a protocol leaves of a follower's log before any record is fetched, for very many pairs of
logs: transitions and questions alone."""

from __future__ import annotations

from node.core.image import PartitionRecord
from node.core.messages import FetchResponse
from tests.support.core_bench import PARTITION
from tests.support.core_scenarios import Node, Variant


class Mending:
    """One leader a log, and one follower whose process starts anew on every log."""

    def __init__(self, variant: Variant, leader_epoch: int) -> None:
        self.variant = variant
        self.record = PartitionRecord(
            partition=PARTITION,
            replicas=("n1", "n2"),
            isr=("n1", "n2"),
            leader="n1",
            leader_epoch=leader_epoch,
            partition_epoch=1,
            min_isr=1,
        )
        self._leaders: dict[str, Node] = {}
        self._disks: dict[str, dict[int, tuple[bytes, bytes]]] = {}
        self._follower = Node("n2", variant, ("", 0))

    def left(self, leads: str, follows: str, hw: int) -> int:
        """Where the follower's log ends when it begins to fetch what the leader has."""
        leader_, mine = self._leader(leads), self._start(follows, hw)
        leader_.r.hw = hw
        leader_.r.peers.clear()
        for _ in range(10):
            sent = mine.sent()
            if not sent:
                return mine.r.leo  # nothing was cut: it asks the same again for ever
            ((to, request, _),) = sent
            assert to == "n1"
            leader_.takes("n2", request, None)
            answers = [m for m in leader_.sent() if m[0] == "n2"]
            if not answers:
                return mine.r.leo  # the leader holds the fetch: it has nothing to say
            ((_, answer, body),) = answers
            if isinstance(answer, FetchResponse) and answer.diverging is None:
                return mine.r.leo
            mine.takes("n1", answer, body)
        raise AssertionError(f"{leads} against {follows}: no end of it")

    def _leader(self, log: str) -> Node:
        if log not in self._leaders:
            self._leaders[log] = Node("n1", self.variant, (log, 0))
            self._leaders[log].hears(self.record)
            self._leaders[log].sent()
        return self._leaders[log]

    def _start(self, log: str, hw: int) -> Node:
        """A new process of the follower on a disk with this."""
        if log not in self._disks:
            node = Node("n2", self.variant, (log, 0))
            self._disks[log] = node.ctx.storage.logs.get(PARTITION, {})
        node = self._follower
        node.replicas.clear()
        node.ctx.storage.logs[PARTITION] = dict(self._disks[log])
        node.ctx.storage.put(f"hw/{PARTITION}", hw.to_bytes(8, "big"), durable=True)
        node.ctx.effects.trace.clear()
        node.hears(self.record)
        return node
