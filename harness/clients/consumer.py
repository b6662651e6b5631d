"""A consumer: polls its partitions in turn, each from where the last poll ended (pure)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from harness.clients.metadata_cache import MetadataCache
from harness.clients.session import DEFAULT_RETRY_US, Call, Session, Thread
from harness.clients.types import Answer, PollSettings, SessionEffects
from harness.clients.workload import decode_batch
from harness.formats.history import OpType, Read, RecordRun
from node.core import batch
from node.core.messages import Error, FetchRequest, FetchResponse
from node.formats.errors import WireError
from node.formats.wire import split_fetch_body


class Consumer(Session):
    """Polls by turns. With `targets` it is a final reader: from offset 0 until each is reached.

    `done` (final readers only) says that every partition was read up to its target and to the
    high watermark that the last answer stated.
    """

    def __init__(
        self,
        client: str,
        metadata: MetadataCache,
        thread: Thread,
        next_op: Callable[[], int],
        *,
        partitions: Sequence[str],
        settings: PollSettings,
        targets: Mapping[str, int] | None = None,
        retry_us: int = DEFAULT_RETRY_US,
    ) -> None:
        """`targets` maps each partition to the offset that a final reader must reach."""
        super().__init__(client, metadata, [thread], next_op, retry_us)
        self._turns = list(partitions)
        self._settings = settings
        self._targets = None if targets is None else dict(targets)
        self._assigned = False
        self.positions = dict.fromkeys(partitions, 0)

    @property
    def done(self) -> bool:
        """Whether a final reader has nothing left to read."""
        return self._targets is not None and not self._turns and self.idle

    @property
    def missing(self) -> dict[str, int]:
        """Final readers: the partitions not read to their end -> the offset reached."""
        return {partition: self.positions[partition] for partition in self._turns}

    def _invoke(self, now_us: int, thread: Thread, effects: SessionEffects) -> Call | None:
        if not self._assigned:
            self._assign(now_us, thread, effects)
        if not self._turns:
            self.stop()
            return None
        partition = self._turns.pop(0)
        self._turns.append(partition)
        thread.next_us = now_us + self._settings.pause_us
        return self._poll(now_us, thread, effects, partition)

    def _poll(
        self, now_us: int, thread: Thread, effects: SessionEffects, partition: str, step: int = -1
    ) -> Call:
        """Begin to poll a partition."""
        read = Read(partition=partition, start=self.positions[partition])
        final = self._targets is not None
        invocation = self._start(
            now_us, thread, "poll", effects, reads=(read,), final=final, step=step
        )
        return Call(invocation, partition, now_us + self._settings.timeout_us)

    def _request(self, now_us: int, call: Call) -> FetchRequest:
        settings = self._settings
        left_ms = max(0, (call.deadline_us - now_us) // 2000)
        return FetchRequest(
            corr=call.corr,
            partition=call.partition,
            offset=self.positions[call.partition],
            max_wait_ms=min(settings.wait_ms, left_ms),
            max_bytes=settings.max_bytes,
        )

    def _answered(
        self, now_us: int, thread: Thread, call: Call, answer: Answer, effects: SessionEffects
    ) -> None:
        message = answer.message
        assert isinstance(message, FetchResponse)
        if message.error is Error.OFFSET_OUT_OF_RANGE:
            self._end(now_us, thread, call, "fail", effects, error=str(message.error))
            self._restart(thread, call.partition, message)
        elif message.error is not Error.NONE:
            self._metadata.forget(call.partition, call.node)
            self._metadata.hint(call.partition, message.leader, refused_by=call.node)
            self._again(now_us, call, str(message.error))
        else:
            self._read(now_us, thread, call, answer, effects)

    def _read(
        self, now_us: int, thread: Thread, call: Call, answer: Answer, effects: SessionEffects
    ) -> None:
        """Record what was read and move on to its end."""
        try:
            _, hw, data = split_fetch_body(answer.body)
            runs, end = _decode(data, self.positions[call.partition])
        except WireError as error:
            self._end(now_us, thread, call, "fail", effects, error=f"corrupt answer: {error}")
            return
        partition, start = call.partition, call.invocation.reads[0].start
        self.positions[partition] = end
        read = Read(partition=partition, start=start, records=runs, hw=hw, node=answer.source)
        self._end(now_us, thread, call, "ok", effects, reads=(read,))
        if self._targets is not None and end >= max(self._targets[partition], hw):
            self._turns.remove(partition)

    def _restart(self, thread: Thread, partition: str, message: FetchResponse) -> None:
        """The position does not exist there (any more): go on at the nearest one that does.

        As a new process, so that the jump is not taken for a skip within one.
        """
        position = self.positions[partition]
        low, high = message.log_start, message.log_end
        self.positions[partition] = max(low, min(position, high) if high >= 0 else low)
        thread.retire()
        self._assigned = False

    def _expired(self, now_us: int, thread: Thread, call: Call, effects: SessionEffects) -> None:
        error = call.error
        if call.corr != 0:
            self._metadata.forget(call.partition, call.node)
            error = "timeout"
        self._end(now_us, thread, call, "fail", effects, error=error)

    def _assign(self, now_us: int, thread: Thread, effects: SessionEffects) -> None:
        """Put on record which partitions this process reads."""
        final, partitions = self._targets is not None, tuple(self.positions)
        assigned = self._start(
            now_us, thread, "assign", effects, partitions=partitions, final=final
        )
        effects.ops.append(msgspec.structs.replace(assigned, type="ok"))
        self._assigned = True

    def _end(
        self,
        now_us: int,
        thread: Thread,
        call: Call,
        how: OpType,
        effects: SessionEffects,
        *,
        error: str = "",
        reads: tuple[Read, ...] | None = None,
    ) -> None:
        """Record a completion."""
        invocation = call.invocation
        done = msgspec.structs.replace(
            invocation,
            t_us=now_us,
            type=how,
            error=error,
            reads=invocation.reads if reads is None else reads,
        )
        effects.ops.append(done)
        thread.call = None


def _decode(data: bytes, position: int) -> tuple[tuple[RecordRun, ...], int]:
    """The records at and after `position`, and the position after them.

    A batch whose checksum is wrong is decoded record by record, so that the damage shows as
    unreadable values. Raises WireError when not even the batches can be separated.
    """
    if not data:
        return (), position
    try:
        batches = batch.split(data)
    except WireError:
        batches = batch.split(data, check_crc=False)
    runs: list[RecordRun] = []
    end = position
    for each in batches:
        if each.end > position:
            end = max(end, each.end)
            found = decode_batch(each)
            runs += [_from(run, position) for run in found if run.offset + run.count > position]
    return tuple(runs), end


def _from(run: RecordRun, position: int) -> RecordRun:
    """The part of a run at and after `position`: an answer holds whole batches."""
    skip = position - run.offset
    if skip <= 0:
        return run
    return RecordRun(run.offset + skip, run.value + skip, run.count - skip, run.epoch)
