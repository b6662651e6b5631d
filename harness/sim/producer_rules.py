"""Rules about what a leader appends and answers to producers, from docs/protocols.md ("Produce",
"Idempotent producers")."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.sim.before import replica_of
from harness.sim.step import Before, BrokerStep
from node.core import batch as batches
from node.core.batch import BatchView
from node.core.protocol import BelowMinIsr, Commit
from node.core.replica import Replica
from node.formats.errors import WireError
from node.formats.messages import Error, ProduceRequest, ProduceResponse
from node.formats.trace import GROUPS_PARTITION

_Key = tuple[str, str, str, int]
"""Node, partition, client and number of a request."""


class ProduceRules:
    """A memory of where the batch of each unanswered request was written."""

    def __init__(self) -> None:
        self._written: dict[_Key, set[tuple[int, int]]] = {}

    def request(self, s: BrokerStep, r: Replica, b: Before) -> Iterator[str]:
        """Yield what is wrong with the answer to a request, and with what was appended."""
        m = s.message
        if not b.serving or r.partition == GROUPS_PARTITION:
            return
        if b.role != "leader" or r.role != "leader":
            return
        try:
            batch = batches.view(s.body)
        except WireError:
            return
        if batch.control or len(r.acks) >= 10_000:
            return
        error, kept = _judged(s, r, m, batch, b.known)
        appended = r.leo - b.leo
        if appended != (0 if error or kept else batch.count):
            yield f"appended {appended} records of a batch that should be " + (
                f"refused: {error}" if error else f"known at {kept}" if kept else "appended"
            )
            return
        said = next(s.sent(ProduceResponse, s.source), None)
        if error and m.acks and (said is None or said.error is not error):
            yield f"answered a batch with {said and (said.error or 'no error')}, not {error}"
        if not error or error is Error.DUPLICATE_SEQUENCE:
            where = kept or ((b.leo, r.leo) if not error else (-1, -1))
            key = (s.node, r.partition, s.source, m.corr)
            self._written.setdefault(key, set()).add(where)

    def answer(self, s: BrokerStep, to: str, m: ProduceResponse) -> Iterator[str]:
        """Yield what is wrong with an answer to a producer."""
        where = self._written.get((s.node, m.partition, to, m.corr), set())
        r = replica_of(s.core, m.partition)
        if m.error:
            # Who does not know the partition refuses a second copy, and knows of no first one.
            if r is not None and where and not m.appended and not _refuses(s, to, m):
                yield f"denied that it appended the batch, with {m.error}"
            return
        if r is not None and not any(base == m.base_offset for base, _ in where):
            yield f"acknowledged a batch at {m.base_offset}, and has it at {sorted(where)}"


def _refuses(s: BrokerStep, to: str, m: ProduceResponse) -> bool:
    """Return whether an answer is to a request of this step that appended nothing: a second copy of
    it may be refused when the first was not."""
    asked = type(s.message) is ProduceRequest and (s.source, s.message.corr) == (to, m.corr)
    return asked and s.r is not None and s.before is not None and s.r.leo == s.before.leo


def _judged(
    s: BrokerStep, r: Replica, m: ProduceRequest, batch: BatchView, known: Any
) -> tuple[Error, tuple[int, int] | None]:
    """Return the error of the answer; or where the batch is, if the log has it already."""
    waits = r.protocol.commit is Commit.ISR and m.acks == -1
    if waits and r.protocol.below_min_isr is BelowMinIsr.REFUSE and len(r.isr) < r.min_isr:
        return Error.NOT_ENOUGH_REPLICAS, None
    mine = batch.produced
    if mine is None:
        return Error.NONE, None
    if not known:
        return (Error.UNKNOWN_PRODUCER if mine.sequence else Error.NONE), None
    last = known[-1]
    if mine.epoch < last.epoch:
        return Error.FENCED_PRODUCER_EPOCH, None
    if mine.epoch > last.epoch:
        return (Error.OUT_OF_ORDER_SEQUENCE if mine.sequence else Error.NONE), None
    for kept in reversed(known):
        if kept.sequence == mine.sequence and kept.end - kept.base == batch.count:
            return Error.NONE, (kept.base, kept.end)
    after = last.sequence + last.end - last.base
    if mine.sequence == after:
        return Error.NONE, None
    gap = mine.sequence > after
    return (Error.OUT_OF_ORDER_SEQUENCE if gap else Error.DUPLICATE_SEQUENCE), None
