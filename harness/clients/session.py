"""A client of the log: sessions without socket, clock or randomness of their own (pure).

    session.step(now_us, answer or None) -> Effects(messages, history lines, next deadline)

The discipline, on which every verdict rests, beside that of `harness.clients.operation_log`:

* A timeout is never a failure: a send whose answer did not come in time ends `info`.
* A refusal is definite only if the broker says that it appended nothing. Then, and only then, the
  same operation is tried again, at the new leader, until its own deadline; when that passes
  between two attempts the operation ends `fail`. An error after an append ends `info`.
* An idempotent producer also tries again after an attempt in doubt: without an answer in its time,
  or with an error after an append. Such an operation ends `ok`, or at its deadline `info`.
* Late answers are ignored.
* `acks=0` asks for no answer: such a send ends `info` (error "acks=0") the moment it leaves.
* A read has no effect, so a poll without answer ends `fail` and retires no thread.

Producers (`harness.clients.producer`) and consumers (`harness.clients.consumer`) share this module.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from harness.clients.operation_log import OperationLog, ProcessThread
from harness.clients.types import NEVER_US, SessionEffects
from harness.formats.history import Op
from nemesis.formats.schedule import Operation
from node.core.api import Deliver, Outgoing
from node.formats.messages import (
    Error,
    FetchRequest,
    FetchResponse,
    GroupRequest,
    GroupResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)

ASK_TIMEOUT_US = 250_000


class MetadataCache:
    """The leaders that one client believes in, and the times at which it asks again. A belief that
    proved wrong is dropped but its epoch is kept, so that an older answer cannot restore it."""

    def __init__(self, brokers: Sequence[str], first: int, retry_us: int) -> None:
        """Asks `brokers` in turn, beginning with number `first`, every `retry_us` at most."""
        self._brokers = list(brokers)
        self._turn = first % len(self._brokers)
        self._retry_us = retry_us
        self._known: dict[str, tuple[str, int]] = {}
        self._outstanding = 0
        self._asked_us = -NEVER_US
        self.wanted = True

    def leader(self, partition: str) -> str:
        """Return the believed leader, "" when unknown."""
        return self._known.get(partition, ("", -1))[0]

    def forget(self, partition: str, node: str) -> None:
        """Drop the belief that `node` leads, since it refused or did not answer, and ask again."""
        leader, epoch = self._known.get(partition, ("", -1))
        if leader == node:
            self._known[partition] = ("", epoch)
        self.wanted = True

    def hint(self, partition: str, leader: str, *, refused_by: str) -> None:
        """Believe the leader that a refusal named, unless that is the refusing broker itself."""
        epoch = self._known.get(partition, ("", -1))[1]
        if leader and leader != refused_by and leader in self._brokers:
            self._known[partition] = (leader, epoch)

    def refresh(self, now_us: int, every_us: int) -> None:
        """Ask for metadata again if the last request is `every_us` ago. A client that no broker
        refuses would never ask otherwise."""
        if now_us - self._asked_us >= every_us:
            self.wanted = True

    def learn(self, corr: int, leaders: Mapping[str, tuple[str, int]]) -> None:
        """Store the leaders of a metadata answer, except those with an older epoch than the known
        ones. `corr` is the number of the request."""
        for partition, (leader, epoch) in leaders.items():
            if epoch >= self._known.get(partition, ("", -1))[1]:
                self._known[partition] = (leader, epoch)
        if corr == self._outstanding:
            self._outstanding = 0
            self.wanted = False

    def whom_to_ask(self, now_us: int, corr: int) -> str:
        """Return the broker to ask now in request number `corr`; "" if there is none yet."""
        if not self.wanted or now_us < self.next_ask_us():
            return ""
        broker = self._brokers[self._turn]
        self._turn = (self._turn + 1) % len(self._brokers)
        self._outstanding, self._asked_us = corr, now_us
        return broker

    def next_ask_us(self) -> int:
        """Return the time at which `whom_to_ask` next names a broker; NEVER_US if nothing is to be
        asked."""
        if not self.wanted:
            return NEVER_US
        wait = ASK_TIMEOUT_US if self._outstanding else self._retry_us
        return self._asked_us + wait


Request = ProduceRequest | FetchRequest | GroupRequest
Response = ProduceResponse | FetchResponse | GroupResponse

HOPELESS: Final = frozenset({Error.CORRUPT_BATCH, Error.INVALID_REQUEST})
"""Refusals that no other attempt would change."""

DEFAULT_RETRY_US: Final = 50_000


@dataclass(slots=True)
class Call:
    """One operation in progress: its invocation, and its current attempt, if one is in flight. The
    attempt is abandoned at `overdue_us`. `attempted`: there has been an attempt. `in_doubt`: one of
    the attempts may have taken effect, or may still do so."""

    invocation: Op
    partition: str
    deadline_us: int
    body: bytes | None = None
    corr: int = 0
    node: str = ""
    not_before_us: int = 0
    error: str = "no leader known"
    overdue_us: int = NEVER_US
    attempted: bool = False
    in_doubt: bool = False


@dataclass(slots=True)
class Thread(ProcessThread):
    """A thread of a session: the time of its next invocation, and the operation in progress."""

    next_us: int = 0
    call: Call | None = None


class Session:
    """The base of producers and consumers: threads, their operations and attempts, and the search
    for leaders. A subclass says what to invoke next, how to make an attempt, and how an operation
    ends."""

    def __init__(
        self,
        client: str,
        metadata: MetadataCache,
        threads: list[Thread],
        next_op: Callable[[], int],
        retry_us: int = DEFAULT_RETRY_US,
    ) -> None:
        """`next_op` numbers operations over all clients of a run."""
        self.client = client
        self._metadata = metadata
        self._threads = threads
        self._log = OperationLog(client, next_op, self._record)
        self._now_us = 0
        self._effects = SessionEffects()
        self._retry_us = retry_us
        self._corr = 0
        self._stopped = False
        self._pending: deque[tuple[int, Operation]] = deque()

    @property
    def idle(self) -> bool:
        """Return whether no operation is in progress or pending."""
        # Asked many times a virtual second of each client: a loop takes a third of `all`.
        for thread in self._threads:
            if thread.call is not None:
                return False
        return self._stopped or not self._pending

    def operate(self, step: int, operation: Operation) -> None:
        """Queue operation number `step` of the schedule; it begins after those queued before it."""
        self._pending.append((step, operation))
        self._threads[0].next_us = 0

    def stop(self) -> None:
        """Begin no more operations; those in progress still complete."""
        self._stopped = True

    def step(self, now_us: int, answer: Deliver | None = None) -> SessionEffects:
        """Process an answer, or only the passing of time; return messages, history lines and the
        next deadline."""
        effects = self._effects = SessionEffects()
        self._now_us = now_us
        if answer is not None:
            self._take(answer)
        for thread in self._threads:
            self._drive(thread)
        corr = self._new_corr()
        if self._metadata.wanted:
            self._ask(corr)
            effects.deadline_us = min(effects.deadline_us, self._metadata.next_ask_us())
        return effects

    def end(self, now_us: int) -> SessionEffects:
        """Complete the operations in progress as at their deadline: no more answers will come."""
        self._effects, self._now_us = SessionEffects(), now_us
        self.stop()
        for thread in self._threads:
            if thread.call is not None:
                self._expired(thread, thread.call)
        return self._effects

    # -- for subclasses

    def _invoke(self, thread: Thread) -> Call | None:
        """Begin the next operation of a thread whose time has come; None when there is none."""
        raise NotImplementedError

    def _request(self, call: Call) -> Request:
        """Return the message of the attempt that begins: its number is `call.corr`."""
        raise NotImplementedError

    def _answered(self, thread: Thread, call: Call, answer: Deliver) -> None:
        """Finish a call whose attempt was answered, or prepare another attempt."""
        raise NotImplementedError

    def _expired(self, thread: Thread, call: Call) -> None:
        """End a call whose deadline passed; `call.corr` is 0 if no attempt is out."""
        raise NotImplementedError

    def _overdue(self, call: Call) -> None:
        """Go on with a call whose attempt was not answered in its time; the call has some left."""
        raise NotImplementedError

    def _sent(self, thread: Thread, call: Call) -> None:
        """Note that an attempt has just been handed over."""

    def _next_operation(self, thread: Thread) -> tuple[int, Operation] | None:
        """Take the operation of the schedule that comes next; without any the thread waits."""
        if not self._pending:
            thread.next_us = NEVER_US
            return None
        step, operation = self._pending.popleft()
        # Much may have happened since the last one: look first who leads.
        self._metadata.forget(operation.partition, self._metadata.leader(operation.partition))
        return step, operation

    def _again(self, call: Call, error: str) -> None:
        """Try the call again, a little later: certainly nothing happened."""
        call.corr, call.error, call.overdue_us = 0, error, NEVER_US
        call.not_before_us = self._now_us + self._retry_us

    # -- the machinery

    def _take(self, answer: Deliver) -> None:
        message = answer.message
        if isinstance(message, MetadataResponse):
            self._metadata.learn(message.corr, message.leaders)
            return
        if not isinstance(message, Response):
            return
        for thread in self._threads:
            call = thread.call
            if call is not None and call.corr == message.corr != 0:
                if message.partition == call.partition and answer.source == call.node:
                    self._answered(thread, call, answer)
                return

    def _drive(self, thread: Thread) -> None:
        """Begin, attempt or end what is due, and note when this thread is due again."""
        if thread.call is not None and self._now_us >= thread.call.deadline_us:
            self._expired(thread, thread.call)
        elif thread.call is not None and self._now_us >= thread.call.overdue_us:
            self._overdue(thread.call)
        if thread.call is None and not self._stopped and self._now_us >= thread.next_us:
            thread.call = self._invoke(thread)
        call = thread.call
        if call is not None and call.corr == 0 and self._now_us >= call.not_before_us:
            self._attempt(thread, call)
        due_us = self._due_us(thread)
        if due_us < self._effects.deadline_us:
            self._effects.deadline_us = due_us

    def _due_us(self, thread: Thread) -> int:
        call = thread.call
        if call is None:
            return NEVER_US if self._stopped else thread.next_us
        if call.corr == 0 and self._metadata.leader(call.partition):
            due_us = call.not_before_us
        else:
            due_us = call.overdue_us
        return due_us if due_us < call.deadline_us else call.deadline_us

    def _attempt(self, thread: Thread, call: Call) -> None:
        leader = self._metadata.leader(call.partition)
        if not leader:
            self._metadata.wanted = True
            return
        call.corr, call.node, call.attempted = self._new_corr(), leader, True
        self._effects.messages.append(Outgoing(leader, self._request(call), call.body))
        self._sent(thread, call)

    def _ask(self, corr: int) -> None:
        broker = self._metadata.whom_to_ask(self._now_us, corr)
        if broker:
            self._effects.messages.append(Outgoing(broker, MetadataRequest(corr=corr)))

    def _record(self, op: Op) -> None:
        self._effects.ops.append(op)

    def _new_corr(self) -> int:
        self._corr += 1
        return self._corr
