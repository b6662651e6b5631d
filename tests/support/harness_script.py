"""A client session under a script: what it sends and records, with time and answers made up."""

from __future__ import annotations

import random
from itertools import count

from harness.clients.consumer import Consumer
from harness.clients.metadata_cache import MetadataCache
from harness.clients.producer import Producer
from harness.clients.scripted import ScriptedConsumer, ScriptedProducer
from harness.clients.session import Session, Thread
from harness.clients.types import Answer, PollSettings, SendSettings, SessionEffects, ToSend
from harness.clients.workload import SendPlan, encode_batch
from harness.formats.history import Op
from node.core import batch
from node.core.messages import (
    AnyMessage,
    Error,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from node.formats.wire import fetch_body

BROKERS = ("n1", "n2", "n3")
MS = 1000
STRIDE = 10


class Scripted:
    """Drives one session; `ops` is its history, `out` what it sent and nobody has answered."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.now_us = 1_000_000
        self.deadline_us = 0
        self.ops: list[Op] = []
        self.out: list[ToSend] = []

    def step(self, answer: Answer | None = None) -> Scripted:
        self._take(self.session.step(self.now_us, answer))
        return self

    def after(self, ms: int) -> Scripted:
        """Time passes, with a step wherever the session asked for one."""
        end_us = self.now_us + ms * MS
        while self.deadline_us <= end_us:
            self.now_us = max(self.now_us, self.deadline_us)
            self.step()
        self.now_us = end_us
        return self.step()

    def answer(self, source: str, message: AnyMessage, body: bytes | None = None) -> Scripted:
        return self.step(Answer(source, message, body))

    def pending(self, kind: type[AnyMessage]) -> ToSend:
        """The newest message of a kind."""
        return [sent for sent in self.out if isinstance(sent.message, kind)][-1]

    def number_of(self, kind: type[AnyMessage]) -> int:
        return sum(isinstance(sent.message, kind) for sent in self.out)

    def leaders(
        self, leader: str, epoch: int = 1, partitions: tuple[str, ...] = ("log-0",)
    ) -> Scripted:
        """Answer the metadata request that is out."""
        asked = self.pending(MetadataRequest)
        known = dict.fromkeys(partitions, (leader, epoch))
        return self.answer(asked.to, MetadataResponse(corr=asked.message.corr, leaders=known))

    def produced(
        self,
        error: Error = Error.NONE,
        *,
        appended: bool = False,
        offset: int = -1,
        leader: str = "",
    ) -> Scripted:
        """Answer the newest send."""
        asked = self.pending(ProduceRequest)
        assert isinstance(asked.message, ProduceRequest)
        return self.answer(
            asked.to,
            ProduceResponse(
                corr=asked.message.corr,
                partition=asked.message.partition,
                error=error,
                appended=appended,
                base_offset=offset,
                leader=leader,
            ),
        )

    def fetched(
        self,
        batches: list[bytes] | None = None,
        *,
        hw: int = 0,
        error: Error = Error.NONE,
        log_end: int = -1,
        leader: str = "",
        body: bytes | None = None,
    ) -> Scripted:
        """Answer the newest poll."""
        asked = self.pending(FetchRequest)
        assert isinstance(asked.message, FetchRequest)
        response = FetchResponse(
            corr=asked.message.corr,
            partition=asked.message.partition,
            error=error,
            offset=asked.message.offset,
            log_end=log_end,
            leader=leader,
        )
        return self.answer(asked.to, response, body or fetch_body(1, hw, batches or []))

    def story(self) -> list[str]:
        """The history in short: `send ok @5`, `poll fail timeout`, .."""
        return [_short(op) for op in self.ops]

    def _take(self, effects: SessionEffects) -> None:
        self.ops += effects.ops
        self.out += effects.messages
        self.deadline_us = effects.deadline_us
        assert self.deadline_us > self.now_us, "a session must not ask to be stepped in the past"


def _short(op: Op) -> str:
    parts = [op.f, op.type]
    if op.sends and op.sends[0].offset >= 0:
        parts.append(f"@{op.sends[0].offset}")
    if op.f == "poll" and op.type == "ok":
        parts += [f"{r.offset}+{r.count}={r.value}" for r in op.reads[0].records]
    if op.error:
        parts.append(op.error)
    return " ".join(parts)


def producer(
    *,
    acks: int = -1,
    width: int = 1,
    interval_us: int = 10_000_000,
    idempotent: bool = False,
    partitions: tuple[str, ...] = ("log-0",),
) -> Scripted:
    """A producer of one partition whose next send is far away once it has sent."""
    threads = [Thread(count(lane, STRIDE)) for lane in range(width)]
    return Scripted(
        Producer(
            "c1",
            MetadataCache(BROKERS, 0, 50 * MS),
            threads,
            count().__next__,
            plan=SendPlan(partitions, interval_us, random.Random(1)),
            settings=SendSettings(
                batch=5, record_bytes=16, acks=acks, timeout_us=3000 * MS, idempotent=idempotent
            ),
            retry_us=50 * MS,
        )
    )


def consumer(
    partitions: tuple[str, ...] = ("log-0",), targets: dict[str, int] | None = None
) -> Scripted:
    """A consumer, or with `targets` a final reader."""
    return Scripted(
        Consumer(
            "c9",
            MetadataCache(BROKERS, 0, 50 * MS),
            Thread(count(8, STRIDE)),
            count().__next__,
            partitions=partitions,
            targets=targets,
            settings=PollSettings(wait_ms=100, timeout_us=1000 * MS, pause_us=10 * MS),
            retry_us=50 * MS,
        )
    )


def operator(form: type[ScriptedProducer] | type[ScriptedConsumer]) -> Scripted:
    """A client that does nothing but what it is told."""
    leaders, next_op = MetadataCache(BROKERS, 0, 50 * MS), count().__next__
    thread = Thread(count(0, STRIDE))
    if form is ScriptedConsumer:
        settings = PollSettings(wait_ms=100, timeout_us=1000 * MS)
        return Scripted(
            ScriptedConsumer(
                "c1", leaders, thread, next_op, partitions=("log-0",), settings=settings
            )
        )
    plan, sending = SendPlan((), 0, random.Random(1)), SendSettings(timeout_us=3000 * MS)
    return Scripted(ScriptedProducer("c1", leaders, [thread], next_op, plan=plan, settings=sending))


def records(offset: int, value: int, size: int = 5, epoch: int = 1) -> bytes:
    """A stored batch."""
    return batch.stamp(encode_batch("log-0", value, size, 16), offset, epoch)
