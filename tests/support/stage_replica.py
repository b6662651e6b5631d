"""One replica, or a leader and its follower, stepped by hand; logs are written as in
`log_notation`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from node.core import batch as batches
from node.core import follower, protocol
from node.core.leader import MAX_PENDING_ACKS
from node.core.log import Log
from node.core.replica import Replica, load
from node.core.serve import MAX_CONSUMER_WAITS
from node.formats.messages import (
    AlterPartition,
    AlterPartitionResponse,
    AnyMessage,
    Error,
    FetchRequest,
    FetchResponse,
    ProduceRequest,
)
from node.formats.wire import fetch_body, split_fetch_body
from tests.support.log_notation import (
    PARTITION,
    TEN,
    fill,
    name_of,
    one_batch,
    parse,
    records,
    show,
)
from tests.support.lone_broker import LoneBroker, broker_epoch, placed

CORRUPT: Final[dict[str, Callable[[bytes], bytes]]] = {
    "empty": lambda batch: b"",
    "zeros": lambda batch: bytes(40),
    "text": lambda batch: b"garbage",
    "short": lambda batch: batch[:-1],
    "long": lambda batch: batch + b"x",
    "two": lambda batch: batch + batch,
    "flipped": lambda batch: batch[:-1] + b"X",
    "no-records": lambda batch: batches.build(0, b""),
    "version": lambda batch: batch[:12] + b"\x02" + batch[13:],
    "count": lambda batch: batch[:24] + b"\x03" + batch[25:],
}


class ReplicaStage(LoneBroker):
    """A stage of scripts: one replica. The output has all messages, decisions and new states."""

    def __init__(
        self, node: str = "n1", lag: int = 1000, retention: int = 0, bugs: str = ""
    ) -> None:
        switched = tuple(bugs.split(",")) if bugs else ()
        super().__init__(node, bugs=switched, lag_ms=lag, retention_records=retention)
        self._proposed: list[AlterPartition] = []
        self._traced = self._at = 0
        self._state = ""

    def disk(self, *log: str) -> None:
        """Set the log on the disk before the process starts."""
        fill(Log(PARTITION, self.storage, durable=True), " ".join(log))

    def says(
        self, leader: str, epoch: int, isr: str = "n1,n2,n3", at: int = 0, **more: Any
    ) -> None:
        """Name the leader in the metadata (`-`: none), in the next partition epoch or `at`."""
        self._at = at or self._at + 1
        who = "" if leader == "-" else leader
        self.hears(placed(who, epoch, isr, at=self._at, **more))

    def fetches(
        self,
        replica: str,
        offset: int,
        last_epoch: int = -1,
        *,
        epoch: int | None = None,
        from_process: int | None = None,
        wait_ms: int = 0,
    ) -> None:
        """Fetch as a follower whose log has everything below `offset`."""
        request = FetchRequest(
            partition=PARTITION,
            replica=replica,
            offset=offset,
            last_epoch=last_epoch,
            leader_epoch=self.r.leader_epoch if epoch is None else epoch,
            max_wait_ms=wait_ms,
            broker_epoch=broker_epoch(replica) if from_process is None else from_process,
        )
        self.takes(replica, request)

    def consumes(self, *offsets: int, wait_ms: int = 0, most: int = 0) -> None:
        """Fetch from these offsets as a consumer, each with its own as correlation id."""
        for offset in offsets:
            limit = {"max_bytes": most} if most else {}
            request = FetchRequest(
                partition=PARTITION, offset=offset, max_wait_ms=wait_ms, corr=offset, **limit
            )
            self.takes("c1", request)

    def writes(
        self,
        *corrs: int,
        count: int = 1,
        seq: int = -1,
        producer: int = 7,
        era: int = 0,
        acks: int = -1,
        timeout_ms: int = 3000,
        corrupt: str = "",
    ) -> None:
        """Send a batch for each correlation id; with `seq` as an idempotent producer of the epoch
        `era`, from that sequence on. The batch is `corrupt` in one way."""
        for corr in corrs:
            produced = None if seq < 0 else batches.Produced(producer, era, seq)
            base = self.r.leo
            text = name_of(base, base + count, self.r.leader_epoch).encode().ljust(count)
            data = batches.build(count, text, produced=produced)
            request = ProduceRequest(
                partition=PARTITION, acks=acks, corr=corr, timeout_ms=timeout_ms
            )
            sent = CORRUPT[corrupt](data) if corrupt else data
            self.takes("c1", request, sent)
            seq += count if seq >= 0 else 0

    def crowd(self, of: str) -> None:
        """Add as many waiting clients as allowed: writers for their acknowledgement, consumers for
        the high watermark. The state after it is not shown."""
        if of == "writers":
            self.writes(*range(MAX_PENDING_ACKS))
        else:
            self.consumes(*range(MAX_CONSUMER_WAITS), wait_ms=1000)
        assert self.sent() == []
        self._state = replica_text(self.r)

    def answered(
        self, error: str = "", to: int = -1, isr: str = "", at: int = 0, epoch: int | None = None
    ) -> None:
        """Answer a proposal as the controller; `at` is the partition epoch that it names."""
        response = AlterPartitionResponse(
            partition=PARTITION,
            error=Error(error),
            request_epoch=self._proposed[to].partition_epoch,
            isr=tuple(isr.split(",")) if isr else (),
            leader=self.ctx.node,
            partition_epoch=at,
            leader_epoch=self.r.leader_epoch if epoch is None else epoch,
        )
        self.takes("v1", response)

    def process(self, name: str, epoch: int = 0, fenced: int = 0) -> None:
        """Set the record of a broker in the metadata."""
        self.knows(name, epoch=epoch or None, fenced=bool(fenced))

    def hw(self, offset: int) -> None:
        """Set the high watermark that the replica knows."""
        self.r.hw = offset

    def saved(self, offset: int) -> None:
        """So high a high watermark is known and on disk."""
        self.r.set_hw(self.ctx, offset)
        self.r.save_hw(self.ctx)

    def gone(self, offset: int) -> None:
        """Delete the head of the log up to this offset."""
        self.r.log.delete_head(offset)

    def passes(self, ms: int) -> None:
        self.sleep(ms)

    def passes_before(self, ms: int) -> None:
        """Time passes before there is a replica."""
        self.ctx.now_us += ms * 1000

    def idle(self, ms: int, **followers: int) -> list[str]:
        """Followers fetch every 100 ms from an offset, -1: the log end. Returns proposed ISRs."""
        lines: dict[str, None] = {}
        for _ in range(ms // 100):
            for name, offset in followers.items():
                at = offset if offset >= 0 else self.r.leo + 1 + offset
                self.fetches(name, at, 1 if at else -1)
            self.sleep(100)
            proposed = [m for _, m, _ in self.sent() if isinstance(m, AlterPartition)]
            lines |= {f"proposes {_plain(p.isr)}": None for p in proposed}
        self._traced = len(self.trace)
        return list(lines)

    def round(self, times: int, **followers: int) -> list[str]:
        """So often a record is written, and then 100 ms are idle."""
        lines = []
        for _ in range(times):
            self.writes(0, acks=1)
            lines += self.idle(100, **followers)
        return lines

    def begin_ten(self, hw: int) -> None:
        """Lead epoch 3 with ten records, of which `hw` are committed."""
        self.disk(TEN)
        self.says("n1", 3)
        self.fetches("n2", 10, 2)
        self.fetches("n3", hw, 2 if hw > 5 else 1)
        self.sent()

    def responds(self, source: str, offset: int, last_epoch: int, epoch: int, **more: Any) -> str:
        """Deliver a fetch response: with `records` (`-`: no batch), `hw`, `diverging`, `error`."""
        diverging = tuple(int(n) for n in str(more.get("diverging", "")).split(",") if n)
        data = [one_batch(*one) for one in parse(str(more.get("records", "")).replace(",", " "))]
        if more.get("broken"):
            data = [b"no batch"]
        response = FetchResponse(
            partition=PARTITION,
            offset=offset,
            last_epoch=last_epoch,
            request_epoch=epoch,
            log_end=more.get("log_end", offset),
            log_start=more.get("start", 0),
            diverging=diverging or None,  # type: ignore[arg-type]
            leader=source,
        )
        body = fetch_body(epoch, more.get("hw", 0), data)
        taken = follower.on_response(self.ctx, self.r, source, response, body)
        return "taken" if taken else "ignored"

    def restarts(self) -> None:
        """Start a process, which reads the disk."""
        self.boot(self.now_us)
        self.core.replicas[PARTITION] = load(self.ctx, PARTITION, protocol.KAFKA, durable=True)
        self._traced = 0

    def log(self) -> str:
        """Return the log, and where its epochs begin."""
        epochs = " ".join(f"{epoch}@{start}" for epoch, start in self.r.log.cache.entries())
        return f"{show(self.r.log) or 'empty'} (epochs {epochs or '-'})"

    def observe(self) -> list[str]:
        """Messages, decisions, and the state if it is another one."""
        lines = []
        for to, message, body in self.sent():
            lines.append(f"-> {to} {message_text(message, body)}")
            if isinstance(message, AlterPartition):
                self._proposed.append(message)
        fresh, self._traced = self.trace[self._traced :], len(self.trace)
        lines += [event_text(e) for e in fresh if e["event"] not in _SHOWN_ELSEWHERE]
        if PARTITION in self.core.replicas and (state := replica_text(self.r)) != self._state:
            lines.append(state)
            self._state = state
        return lines


_SHOWN_ELSEWHERE = ("append", "hw", "role", "isr", "proposed")
_HIDDEN = ("partition", "corr", "max_wait_ms", "max_bytes", "request_epoch", "leader", "asked")


def message_text(message: AnyMessage, body: bytes | None = None) -> str:
    """Return a message: its kind, the fields that are not as usual, and the records of its body."""
    fields = msgspec.structs.fields(message)
    usual = {f.name: f.default for f in fields}
    words = [str(message.__struct_config__.tag)]
    if message.corr:
        words.append(f"#{message.corr}")
    for field in fields:
        value = getattr(message, field.name)
        if field.name not in _HIDDEN and value != usual[field.name]:
            words.append(f"{field.name}={_plain(value)}")
    if isinstance(message, FetchResponse) and body is not None:
        words.append(f"[{records(body)}] HW {high_watermark(body)}")
    return " ".join(words)


def _plain(value: object) -> str:
    if isinstance(value, Error):
        return value.value
    if isinstance(value, tuple | list):
        pairs = [
            f"{v[0]}@{v[1]}".removesuffix("@-1") if _is_member(v) else _plain(v) for v in value
        ]
        return ",".join(pairs) or "-"
    return str(value)


def _is_member(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str)


def event_text(event: dict[str, Any]) -> str:
    """Return a decision: the name of a trace event and its fields, without hashes."""
    skipped = ("event", "partition", "hash", "node", "t_us", "incarnation", "batch_end", "prefix")
    words = [f"{k}={_plain(v)}" for k, v in event.items() if k not in skipped and "hash" not in k]
    return " ".join([str(event["event"]), *words])


def replica_text(r: Replica) -> str:
    text = f"{r.role} epoch {r.leader_epoch}.{r.partition_epoch}, LEO {r.leo}, HW {r.hw}"
    if r.log.start:
        text += f", starts at {r.log.start}"
    if r.role == "leader":
        more = [n for n in r.maximal_isr if n not in r.isr]
        text += f", ISR {' '.join(r.isr)}" + (f", perhaps {' '.join(more)}" if more else "")
        text += ", waits for the controller" if r.pending_alter else ""
    return text


def high_watermark(body: bytes | None) -> int:
    """Return the high watermark that a fetch response tells."""
    return split_fetch_body(body)[1]
