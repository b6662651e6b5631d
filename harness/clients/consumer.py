"""A consumer: polls its partitions in turn, each from where the last poll ended (pure)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from harness.clients.session import DEFAULT_RETRY_US, Call, MetadataCache, Session, Thread
from harness.clients.types import PollSettings
from harness.clients.workload import decode_batch
from harness.formats.history import Read, RecordRun
from nemesis.formats.schedule import Poll
from node.core import batch
from node.core.api import Deliver
from node.formats.errors import WireError
from node.formats.messages import Error, FetchRequest, FetchResponse
from node.formats.wire import split_fetch_body


class Consumer(Session):
    """A client that polls its partitions in turn. With `targets` it is a final reader: it reads
    each partition from offset 0 up to its target and to the high watermark that the last answer
    stated, and then is `done`."""

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
        """Return whether a final reader has read all its partitions; False for other consumers."""
        return self._targets is not None and not self._turns and self.idle

    @property
    def missing(self) -> dict[str, int]:
        """The partitions that a final reader has not read to their end -> offset reached."""
        return {partition: self.positions[partition] for partition in self._turns}

    def _invoke(self, thread: Thread) -> Call | None:
        if not self._assigned:
            self._assign(thread)
        if not self._turns:
            self.stop()
            return None
        partition = self._turns.pop(0)
        self._turns.append(partition)
        thread.next_us = self._now_us + self._settings.pause_us
        return self._poll(thread, partition)

    def _poll(self, thread: Thread, partition: str, step: int = -1) -> Call:
        read = Read(partition=partition, start=self.positions[partition])
        final = self._targets is not None
        invocation = self._log.invoke(
            self._now_us, thread, "poll", reads=(read,), final=final, step=step
        )
        return Call(invocation, partition, self._now_us + self._settings.timeout_us)

    def _request(self, call: Call) -> FetchRequest:
        settings = self._settings
        left_ms = max(0, (call.deadline_us - self._now_us) // 2000)
        return FetchRequest(
            corr=call.corr,
            partition=call.partition,
            offset=self.positions[call.partition],
            max_wait_ms=min(settings.wait_ms, left_ms),
            max_bytes=settings.max_bytes,
        )

    def _answered(self, thread: Thread, call: Call, answer: Deliver) -> None:
        message = answer.message
        assert isinstance(message, FetchResponse)
        if message.error is Error.OFFSET_OUT_OF_RANGE:
            self._fail(thread, call, str(message.error))
            self._restart(thread, call.partition, message)
        elif message.error is not Error.NONE:
            self._metadata.forget(call.partition, call.node)
            self._metadata.hint(call.partition, message.leader, refused_by=call.node)
            self._again(call, str(message.error))
        else:
            self._read(thread, call, answer)

    def _read(self, thread: Thread, call: Call, answer: Deliver) -> None:
        """Record what was read and move on to its end."""
        try:
            _, hw, data = split_fetch_body(answer.body)
            runs, end = decode_records(data, self.positions[call.partition])
        except WireError as error:
            self._fail(thread, call, f"corrupt answer: {error}")
            return
        partition, start = call.partition, call.invocation.reads[0].start
        self.positions[partition] = end
        read = Read(partition=partition, start=start, records=runs, hw=hw, node=answer.source)
        self._log.polled(self._now_us, call.invocation, read)
        thread.call = None
        if self._targets is not None and end >= max(self._targets[partition], hw):
            self._turns.remove(partition)

    def _restart(self, thread: Thread, partition: str, message: FetchResponse) -> None:
        """Go on at the nearest position that exists there: this one does not (any more).

        As a new process, so that the jump is not taken for a skip within one.
        """
        position = self.positions[partition]
        low, high = message.log_start, message.log_end
        self.positions[partition] = max(low, min(position, high) if high >= 0 else low)
        thread.retire()
        self._assigned = False

    def _expired(self, thread: Thread, call: Call) -> None:
        error = call.error
        if call.corr != 0:
            self._metadata.forget(call.partition, call.node)
            error = "timeout"
        self._fail(thread, call, error)

    def _assign(self, thread: Thread) -> None:
        """Put on record which partitions this process reads."""
        final = self._targets is not None
        self._log.assign(self._now_us, thread, tuple(self.positions), final=final)
        self._assigned = True

    def _fail(self, thread: Thread, call: Call, error: str) -> None:
        """Record a poll that was not answered with records."""
        self._log.not_polled(self._now_us, call.invocation, error)
        thread.call = None


def decode_records(data: bytes, position: int) -> tuple[tuple[RecordRun, ...], int]:
    """Return the records at and after `position`, and the position after them.

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
    """Return the part of a run at and after `position`: an answer holds whole batches."""
    skip = position - run.offset
    if skip <= 0:
        return run
    return RecordRun(run.offset + skip, run.value + skip, run.count - skip, run.epoch)


class ScriptedConsumer(Consumer):
    """A consumer that polls the partitions of the schedule, each from the end of its last poll."""

    def _invoke(self, thread: Thread) -> Call | None:
        next_one = self._next_operation(thread)
        if next_one is None:
            return None
        step, poll = next_one
        assert isinstance(poll, Poll)
        if not self._assigned:
            self._assign(thread)
        return self._poll(thread, poll.partition, step)
