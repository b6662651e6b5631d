"""An invariant of idempotent producers, checked at every step: a replica's state of each producer
equals what the batches in its log say (KIP-98, KAFKA-5494).

Clients do not see such a violation at once, but later: a replica that knows too little appends a
repeated batch again, and one that knows too much acknowledges a batch that its log does not have.
The log is read from the batches on the disk, not from the index of the broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from checker.formats.verdict import Witness
from harness.sim.invariant_checker import InvariantChecker
from node.core.batch import Produced, produced_by
from node.core.broker import Broker
from node.core.producers import WINDOW
from node.core.replica import Replica
from node.core.storage import Storage
from node.formats import trace
from node.formats.trace import TraceEvent

TOO_LITTLE: Final = "forgotten batch"
TOO_MUCH: Final = "batch that is not in the log"
"""The text of a witness: a replica's state lacks, or has, what the log does not say."""
_REBUILDS = frozenset({trace.TRUNCATED, trace.DELETED, trace.ROLE})
_Batch = tuple[int, int, int, int]
"""Producer epoch, first sequence, base offset, end."""


@dataclass(slots=True)
class _Expected:
    """The producers in the log of one `replica` object (a restart loads another), up to `end`."""

    replica: Replica
    end: int = 0
    last: dict[int, tuple[_Batch, ...]] = field(default_factory=dict)

    def note(self, produced: Produced, base: int, end: int) -> None:
        """Note that the log has one more batch."""
        known = self.last.get(produced.producer, ())
        if known and known[-1][0] != produced.epoch:
            known = ()
        batch = (produced.epoch, produced.sequence, base, end)
        self.last[produced.producer] = (*known, batch)[-WINDOW:]


class ProducerInvariant:
    """A check of each turn's trace events. `broker(name)` returns a node's running core."""

    def __init__(self, broker: Callable[[str], Broker | None], checker: InvariantChecker) -> None:
        self._broker = broker
        self._checker = checker
        self._expected: dict[tuple[str, str], _Expected] = {}

    def turn(self, node: str, events: Iterable[TraceEvent]) -> None:
        """Check replicas whose state of producers a node's turn may have changed."""
        for event in events:
            kind = event["event"]
            if kind == trace.APPEND or kind in _REBUILDS:
                self._check(node, event["partition"], kind != trace.APPEND)

    def _check(self, node: str, partition: str, rebuilds: bool) -> None:
        broker = self._broker(node)
        r = None if broker is None else broker.replicas.get(partition)
        if broker is None or r is None or r.log.damage is not None:
            return
        known = self._expected.get((node, partition))
        if rebuilds or known is None or known.replica is not r:
            known = self._expected[node, partition] = _Expected(r)
        changed = _read(known, broker.ctx.storage, partition)
        for producer in known.last if rebuilds else changed:
            expected = known.last[producer]
            if r.producers.last(producer) != expected:
                self._differs(node, partition, producer, r, expected)
                return
        if rebuilds and len(r.producers) > len(known.last):
            self._differs(node, partition, -1, r, ())

    def _differs(
        self, node: str, partition: str, producer: int, r: Replica, expected: tuple[_Batch, ...]
    ) -> None:
        known = r.producers.last(producer)
        # Of what it has too much it may also lack older batches: only the last are kept.
        too_much = producer < 0 or any(batch not in expected for batch in known)
        text = TOO_MUCH if too_much else TOO_LITTLE
        if producer < 0:
            what = f"{len(r.producers)} producers, of which some are not in it"
        else:
            what = f"{_batches(known)} of producer {producer}, but it has {_batches(expected)}"
        self._checker.violated(
            "producers-as-in-log",
            partition,
            f"{node} takes its log of {partition} to have {what}",
            [Witness(what=text, node=node, offset=r.leo, epoch=r.log.last_epoch)],
        )


def _read(known: _Expected, storage: Storage, partition: str) -> set[int]:
    """Read the batches from `known.end` on; returns the producers of those."""
    changed: set[int] = set()
    r = known.replica
    for base, end in r.log.places(known.end):
        if (produced := produced_by(storage.read(partition, base))) is not None:
            known.note(produced, base, end)
            changed.add(produced.producer)
    known.end = r.leo
    return changed


def _batches(last: Iterable[_Batch]) -> str:
    said = [f"{end - base} at {base} (sequence {sequence})" for _, sequence, base, end in last]
    return f"[{', '.join(said)}]"
