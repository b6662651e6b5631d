"""One client session, with time and the answers of brokers by hand: a stage of scripts.

The output has what it recorded (`p0 send ok @40`: the process, the operation and its end) and what
it sent (`-> n2 produce`). A batch is written `offset+records:value`."""

from __future__ import annotations

import random
from itertools import count, groupby
from typing import Any

from harness.clients.consumer import Consumer, ScriptedConsumer
from harness.clients.producer import Producer, ScriptedProducer
from harness.clients.session import MetadataCache, Session, Thread
from harness.clients.types import PollSettings
from harness.clients.workload import SendPlan, decode_batch, encode_batch
from harness.formats.history import Op
from nemesis.formats.schedule import Poll, Send, Workload
from node.core import batch
from node.core.api import Deliver, Outgoing
from node.formats.messages import (
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
FAR_MS = 10_000
ASKS = " asked who leads"


class ClientStage:
    """A producer whose next send is late, a consumer, a final reader, or one under command."""

    def __init__(self, kind: str = "producer", partitions: int = 1, **options: int) -> None:
        self.partitions = tuple(f"log-{number}" for number in range(partitions))
        self.session = self._session(kind, options)
        self.now_us = 1_000_000
        self.deadline_us = 0
        self.out: list[Outgoing] = []
        self._steps = count()
        self._lines: list[str] = []

    def _session(self, kind: str, options: dict[str, int]) -> Session:
        leaders, next_op = MetadataCache(BROKERS, 0, 50 * MS), count().__next__
        one = Thread(count(0, STRIDE))
        polls = PollSettings(wait_ms=100, timeout_us=1000 * MS, pause_us=10 * MS)
        if kind == "told-consumer":
            names = self.partitions
            return ScriptedConsumer("c1", leaders, one, next_op, partitions=names, settings=polls)
        if kind == "told-producer":
            plan, work = SendPlan((), 0, random.Random(1)), Workload(timeout_ms=3000)
            return ScriptedProducer("c1", leaders, [one], next_op, plan=plan, workload=work)
        if kind == "producer":
            every_ms = options.pop("every_ms", FAR_MS)
            threads = [Thread(count(lane, STRIDE)) for lane in range(options.pop("width", 1))]
            return Producer(
                *("c1", leaders, threads, next_op),
                plan=SendPlan(self.partitions, every_ms * MS, random.Random(1)),
                workload=Workload(batch=5, payload_bytes=16, timeout_ms=3000, **options),  # type: ignore[arg-type]
                retry_us=50 * MS,
            )
        targets = {name: options[f"to_{name[-1]}"] for name in self.partitions if options}
        return Consumer(
            *("c9", leaders, one, next_op),
            partitions=self.partitions,
            targets=targets or None,
            settings=polls,
            retry_us=50 * MS,
        )

    # -- commands

    def step(self, answer: Deliver | None = None) -> None:
        effects = self.session.step(self.now_us, answer)
        self.out += effects.messages
        self.deadline_us = effects.deadline_us
        assert self.deadline_us > self.now_us, "a session must not ask to be stepped in the past"
        self._lines += [op_text(op) for op in effects.ops]
        self._lines += [f"-> {sent.to} {message_text(sent)}" for sent in effects.messages]

    def after(self, ms: int) -> None:
        """Time passes, with a step whenever the session asked for one."""
        end_us = self.now_us + ms * MS
        while self.deadline_us <= end_us:
            self.now_us = max(self.now_us, self.deadline_us)
            self.step()
        self.now_us = end_us
        self.step()

    def leaders(self, leader: str, epoch: int = 1) -> None:
        """Answer the newest metadata request."""
        asked = self._newest(MetadataRequest)
        known = dict.fromkeys(self.partitions, (leader, epoch))
        self._answer(asked.to, MetadataResponse(corr=asked.message.corr, leaders=known))

    def produced(
        self,
        error: str = "",
        *,
        appended: int = 0,
        offset: int = -1,
        leader: str = "",
        source: str = "",
        nth: int = -1,
        corr: int = -1,
    ) -> None:
        """Answer the newest send, or the one of that number; or with another correlation id."""
        asked = self._all(ProduceRequest)[nth]
        about: Any = asked.message
        response = ProduceResponse(
            corr=about.corr if corr < 0 else corr,
            partition=about.partition,
            error=Error(error),
            appended=bool(appended),
            base_offset=offset,
            leader=leader,
        )
        self._answer(source or asked.to, response)

    def refused(self, error: str) -> None:
        """Answer every send with an error, by the same leader, until the operation ends."""
        before = len(self._lines)
        for _ in range(100):
            if any(line.startswith("p") and line.endswith(error) for line in self._lines):
                break
            self.produced(error, leader="n1")
            known = len(self._all(MetadataRequest))
            self.after(70)
            if len(self._all(MetadataRequest)) > known:
                self.leaders("n1")
        self._lines[before:] = self._lines[-1:]

    def fetched(
        self,
        *batches: str,
        hw: int = 0,
        error: str = "",
        log_end: int = -1,
        leader: str = "",
        body: str = "",
        damaged: int = 0,
    ) -> None:
        """Answer the newest poll."""
        asked = self._newest(FetchRequest)
        about: Any = asked.message
        stored = [stored_batch(text) for text in batches]
        if damaged:
            stored[0][-20] ^= 0xFF
        response = FetchResponse(
            corr=about.corr,
            partition=about.partition,
            error=Error(error),
            offset=about.offset,
            log_end=log_end,
            leader=leader,
        )
        answer = body.replace("_", " ").encode() or fetch_body(1, hw, [*map(bytes, stored)])
        self._answer(asked.to, response, answer)

    def echo(self) -> None:
        """Answer the newest message with itself."""
        self._answer(self.out[-1].to, self.out[-1].message)

    def send(self, **options: int) -> None:
        """Tell a client to send a batch."""
        self.session.operate(next(self._steps), Send(client="c1", **options))

    def poll(self) -> None:
        self.session.operate(next(self._steps), Poll(client="c1"))

    def stop(self) -> None:
        """Tell the client to begin nothing more."""
        self.session.stop()

    def end(self) -> None:
        """End the run."""
        self._lines += [op_text(op) for op in self.session.end(self.now_us).ops]

    def is_idle(self) -> str:
        """Return whether nothing is under way."""
        return "idle" if self.session.idle else "at work"

    def missing(self) -> str:
        """Return the offsets that a final reader has still to read."""
        assert isinstance(self.session, Consumer)
        return f"done: {self.session.done}, missing: {self.session.missing}"

    # -- output

    def observe(self) -> list[str]:
        """Return the lines and messages since the last look, questions for leaders in one line."""
        lines, self._lines = self._lines, []
        found: list[str] = []
        for asks, same in groupby(lines, lambda line: line.endswith(ASKS)):
            whom = [*same]
            nodes = " ".join(line.split()[1] for line in whom if asks)
            found += [f"-> {nodes}{ASKS}"] if asks else whom
        return found

    def _answer(self, source: str, message: AnyMessage, body: bytes | None = None) -> None:
        self.step(Deliver(source, message, body))

    def _all(self, kind: type[AnyMessage]) -> list[Outgoing]:
        return [sent for sent in self.out if isinstance(sent.message, kind)]

    def _newest(self, kind: type[AnyMessage]) -> Outgoing:
        return self._all(kind)[-1]


def stored_batch(text: str) -> bytearray:
    """Return a batch in a log, written `offset+records:value`."""
    place, _, value = text.partition(":")
    offset, _, records = place.partition("+")
    made = encode_batch("log-0", int(value), int(records), 16)
    return bytearray(batch.stamp(made, int(offset), 1))


def message_text(sent: Outgoing) -> str:
    """Return a message in short: a batch with its value or what it says of its producer."""
    match sent.message:
        case ProduceRequest(partition=partition, acks=acks):
            assert sent.body is not None
            view = batch.view(sent.body)
            (run,) = decode_batch(view)
            parts = [f"produce {partition} {value_text(run.value)}+{run.count}"]
            parts += [str(tuple(view.produced))] if view.produced else []
            return " ".join(parts if acks == -1 else [*parts, f"acks={acks}"])
        case MetadataRequest():
            return ASKS.strip()
        case FetchRequest(partition=partition, offset=offset):
            return f"fetch {partition} @{offset}"
    return type(sent.message).__name__


def value_text(value: int) -> str:
    """Return the first value of a batch: the process that wrote it, and its number there."""
    return f"{value >> 32}.{value & 0xFFFFFFFF}"


def op_text(op: Op) -> str:
    """Return a line of the history in short: `p0 send ok @5`."""
    parts = [f"p{op.process} {op.f} {op.type}", *(["final"] if op.final else [])]
    parts += [f"step {op.step}"] if op.step >= 0 else []
    for sent in op.sends:
        at = f" @{sent.offset}" if sent.offset >= 0 else ""
        parts.append(f"{sent.partition} {value_text(sent.value)}+{sent.count}{at}")
    for read in op.reads:
        parts.append(f"{read.partition} from {read.start}")
        parts += [f"{r.offset}+{r.count}:{r.value} epoch {r.epoch}" for r in read.records]
        parts += [f"hw {read.hw} of {read.node}"] if op.type == "ok" and op.f == "poll" else []
    return " ".join([*parts, *([op.error] if op.error else [])])
