"""Members of a consumer group of a third-party system, on the event loop of its clients.

Each member polls and settles what it gets as consumers do that are not perfect: most of it at once
and some of it late, out of order, after a failover, or never; some of it is given back. Members
crash, and fresh ones take their place. At the end, fresh members drain what is left."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, Final

from msgspec.structs import replace

from harness.clients import workload as workloads
from harness.clients.member import SHARES, delay, way_to_settle
from harness.clients.operation_log import OperationLog, ProcessThread
from harness.formats.history import Delivered, DeliveredRun, GroupPosition, Op, OpKind, OpType
from harness.formats.run_info import GroupPromise
from harness.runs.clock import now_us
from harness.systems.adapter import Adapter, Delivery, Node, Polled, Position, Refused
from harness.systems.external.calls import (
    GRACE_S,
    CallErrors,
    ClientConnection,
    WrongAnswer,
    call,
    checked,
)

GROUP: Final = "group"
POLL_S: Final = 1.0
SETTLE_S: Final = 2.0
PAUSE_S: Final = 0.05
EAGER_EVERY: Final = 4
LAGGING_PAUSE_S: Final = 1.0
"""The pause between polls, but for one seed in `EAGER_EVERY`: a group that lags behind its
producers leaves its leader much to deliver when that is cut off or fails, and the next one too."""
AGAIN_AFTER_S: Final = 0.3
"""How long after an ack that was not answered a member sends it again."""
CRASH_EVERY_S: Final = 10.0
MOST_AT_ONCE: Final = 10
WARM_POLLS: Final = 30
DRAIN_MARGIN_S: Final = 1.0
MOST_QUIETS: Final = 10
"""A drain ends after so many times the quiet that it waits for: something comes again for ever."""
SILENT: Final = (("late", 20), ("never", 80))
"""The same of a member that has gone silent, as one in `SILENT_EVERY` does."""
SILENT_EVERY: Final = 5


class GroupMembers:
    """All members of the one group of a run."""

    def __init__(
        self,
        adapter: Adapter,
        nodes: Sequence[Node],
        partitions: Sequence[str],
        next_op: Callable[[], int],
        next_process: Callable[[], int],
        write: Callable[[Op], None],
        errors: CallErrors,
        *,
        seed: int,
        record_bytes: int,
    ) -> None:
        """Take what all members share; `write` takes each line of the history."""
        self.adapter, self.nodes, self.partitions = adapter, list(nodes), list(partitions)
        self.next_op, self.next_process, self.write, self.errors = (
            *(next_op, next_process),
            *(write, errors),
        )
        promise = adapter.promise().groups
        self.promise = promise if promise is not None else GroupPromise()
        self.commits = self.promise.kind == "positions"
        self.record_bytes = record_bytes
        self._crash_every_s = max(CRASH_EVERY_S, adapter.failover_ms / 1000 + CRASH_EVERY_S / 2)
        self._seed = seed
        self._pause_s = LAGGING_PAUSE_S if seed % EAGER_EVERY else PAUSE_S
        self._names = count(1)
        self._over = asyncio.Event()
        self._held: set[asyncio.Task[None]] = set()

    @property
    def working(self) -> bool:
        """Return whether the storm goes on."""
        return not self._over.is_set()

    def stop(self) -> None:
        """Let members settle what they hold, and leave."""
        self._over.set()

    async def work(self, number: int) -> None:
        """Be one member after another, until the storm is over."""
        rng = random.Random(f"{self._seed}/member/{number}")
        while self.working:
            member = Member(self, f"m{next(self._names)}", number)
            member.silent = rng.randrange(SILENT_EVERY) == 0
            until = time.monotonic() + rng.uniform(0.5, 1.5) * self._crash_every_s
            if await member.join():
                while self.working and time.monotonic() < until:
                    polled = await member.poll(rng.randint(1, MOST_AT_ONCE))
                    if polled is not None:
                        self._settle(member, polled.deliveries, rng)
                    await asyncio.sleep(rng.uniform(0, 2 * self._pause_s))
                if self._over.is_set() and member.held:
                    await asyncio.wait(member.held)
                await member.fetch()
                await member.go("crash" if self.working else "leave")
            await asyncio.sleep(PAUSE_S)

    def _settle(self, member: Member, given: Sequence[Delivery], rng: random.Random) -> None:
        """Begin to settle each delivery in one of the ways of `SHARES`, in any order; in a group
        with positions all of them in one way."""
        by_way: dict[str, list[Delivery]] = {}
        shares = SILENT if member.silent else SHARES
        if self.commits:
            by_way[way_to_settle(rng, shares)] = list(given)
        for delivery in () if self.commits else rng.sample(list(given), len(given)):
            by_way.setdefault(way_to_settle(rng, shares), []).append(delivery)
        soon_ms, late_ms = self.promise.ack_wait_ms // 2, self.adapter.failover_ms + 2000
        for way, mine in by_way.items():
            after_s = delay(rng, way, soon_ms, late_ms) / 1000
            if way != "never" and not (way == "again" and self.commits):
                how = "again" if way == "again" else "ack"
                task = asyncio.ensure_future(self._later(member, mine, how, after_s))
                member.held.add(task)
                self._held.add(task)
                task.add_done_callback(self._held.discard)
                task.add_done_callback(member.held.discard)

    async def _later(
        self, member: Member, given: Sequence[Delivery], how: str, after_s: float
    ) -> None:
        """Settle deliveries some time later, or when the storm is over; again, as consumers do,
        while that is not answered."""
        with suppress(asyncio.CancelledError):
            await self._wait(after_s)
            while not await member.settle(given, how) and self.working:
                await self._wait(AGAIN_AFTER_S)

    async def _wait(self, span_s: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), span_s)

    async def drain(self) -> None:
        """Let a fresh member poll and settle what is left, until nothing came for long enough; then
        fetch the position of every partition."""
        await asyncio.gather(*self._held)
        member = Member(self, "drain", 0)
        for _ in range(WARM_POLLS):
            if member.session is None and not await member.join():
                continue
            if (polled := await member.poll(MOST_AT_ONCE)) is not None:
                await member.settle(polled.deliveries, "ack")
                break
        quiet_s = (self.promise.ack_wait_ms + self.promise.redelivery_ms) / 1000 + DRAIN_MARGIN_S
        since = time.monotonic()
        until = since + MOST_QUIETS * quiet_s
        while time.monotonic() - since < quiet_s and time.monotonic() < until:
            polled = await member.poll(MOST_AT_ONCE * 10, final=True)
            if polled is None or polled.deliveries:
                await member.settle(polled.deliveries if polled else (), "ack")
                since = time.monotonic()
            else:
                await asyncio.sleep(PAUSE_S)
            if polled is None and not await member.join():
                break
        await member.fetch(final=True)
        await member.go("leave")

    async def close(self) -> None:
        """End what is done beside the polls."""
        held = [*self._held]
        for task in held:
            task.cancel()
        await asyncio.gather(*held, return_exceptions=True)


class Member:
    """One member: its connection and session, and the processes that do its operations."""

    def __init__(self, group: GroupMembers, name: str, turn: int) -> None:
        self.group = group
        self.link = ClientConnection(group.adapter, name, group.nodes, turn, group.errors)
        self._log = OperationLog(name, group.next_op, group.write)
        self._about = {"group": GROUP, "member": name}
        self.session: Any = None
        self.silent = False
        self.held = set[asyncio.Task[None]]()
        self._idle: list[ProcessThread] = []

    async def _do(
        self,
        f: OpKind,
        method: Callable[..., Any] | None,
        *arguments: Any,
        timeout_s: float = SETTLE_S,
        completion: Callable[[Any], dict[str, Any]] = lambda answer: {},
        **fields: Any,
    ) -> tuple[Any, OpType]:
        """Do an operation and put it on record; return its answer, None without one, and its
        outcome. `completion(answer)` returns fields of its completion, perhaps another `how`, and
        raises WrongAnswer."""
        thread = self._idle.pop() if self._idle else ProcessThread(self._processes())
        op = self._log.invoke(now_us(), thread, f, **self._about, **fields)
        answer, end = None, dict[str, Any](how="info", error="the run ended")
        try:
            if method is not None:
                answer = await call(method, *arguments, timeout_s=timeout_s + GRACE_S)
            end = {"how": "ok", **completion(answer)}
        except Exception as error:
            answer, failed = None, isinstance(error, Refused) or self._is_without_effect(f, error)
            end = {"how": "fail" if failed else "info", "error": self.group.errors.note(f, error)}
        finally:
            self._log.complete(now_us(), thread, op, **end)
            self._idle.append(thread)
        how: OpType = end["how"]
        return answer, how

    def _is_without_effect(self, f: OpKind, error: Exception) -> bool:
        """Return whether an operation delivers nothing if it ends with an error."""
        if f == "poll":  # An answer that is not understood may have delivered something.
            return self.group.commits and not isinstance(error, WrongAnswer)
        return f == "position"

    def _processes(self) -> Iterator[int]:
        while True:
            yield self.group.next_process()

    async def join(self) -> bool:
        """Connect and join the group; return whether that is certain."""
        self.session = None
        await self.link.close()
        if not await self.link.prepare():
            await asyncio.sleep(PAUSE_S)
            return False
        partitions = self.group.partitions
        self.session, how = await self._do(
            *("join", self.group.adapter.join, self.link.connection),
            *(GROUP, self.link.client, partitions),
            partitions=tuple(partitions),
        )
        return how == "ok"

    async def poll(self, limit: int, *, final: bool = False) -> Polled | None:
        """Poll once; return what was delivered, None if that is not known. Connect again then."""
        if self.session is None and not await self.join():
            return None
        polled, how = await self._do(
            *("poll", self.group.adapter.poll, self.session, limit, POLL_S),
            timeout_s=POLL_S + SETTLE_S,
            completion=self._polled,
            final=final,
        )
        if how == "info" or (how == "fail" and self.group.commits):
            self.session = None
        if polled is None:
            await asyncio.sleep(PAUSE_S)
            return None
        if polled.assigned is not None:
            await self._own(polled.assigned, polled.epoch)
        given: Polled = polled
        return given

    def _polled(self, polled: Any) -> dict[str, Any]:
        deliveries = checked_polled(polled, self.group.record_bytes, self.group.partitions)
        more = {} if polled.since is None else {"since_us": round(polled.since * 1e6)}
        return {"how": "ok" if polled.whole else "info", "deliveries": deliveries, **more}

    async def _own(self, assigned: Mapping[str, int], epoch: int) -> None:
        """Note what the member owns, and where its polls go on."""
        starts = tuple(GroupPosition(partition=n, offset=at) for n, at in assigned.items())
        await self._do(
            *("assign", None),
            completion=lambda answer: {"positions": starts},
            epoch=epoch,
            partitions=tuple(assigned),
        )

    async def _commit(self, given: Sequence[Delivery]) -> None:
        """Commit the positions behind deliveries."""
        behind = {each.partition: each.offset + 1 for each in given}

        await self._do(
            *("commit", self.group.adapter.commit, self.session, behind, SETTLE_S),
            completion=lambda epoch: {"epoch": checked("commit", epoch)},
            positions=tuple(GroupPosition(partition=n, offset=at) for n, at in behind.items()),
        )

    async def settle(self, given: Sequence[Delivery], how: str) -> bool:
        """Settle deliveries, or give them back; return whether to send that again is no use."""
        if not given or self.session is None:
            return True
        if self.group.commits:
            await self._commit(given)
            return True

        def settled(confirmed: Any) -> dict[str, Any]:
            done = checked("acknowledge", confirmed)
            return {} if done else {"how": "info", "error": "not confirmed"}

        answer, outcome = await self._do(
            "ack" if how == "ack" else "nack",
            *(self.group.adapter.acknowledge, self.session, tuple(given), how, SETTLE_S),
            completion=settled,
            deliveries=tuple(delivered(given, self.group.record_bytes)),
        )
        return answer is not None or outcome == "fail"

    async def fetch(self, *, final: bool = False) -> None:
        """Fetch the position of the group in every partition; `final` at the end of the run."""
        if self.link.connection is not None and self.group.adapter.writes("positions"):
            ask, names = self.group.adapter.positions, self.group.partitions
            await self._do(
                *("position", ask, self.link.connection, GROUP, names, SETTLE_S),
                completion=lambda found: {"positions": checked_positions(found, names)},
                final=final,
            )

    async def go(self, how: OpKind) -> None:
        """Leave the group, or crash: its connection ends and nothing is said."""
        await self._do(how, None)
        self.session = None
        await self.link.close()


def _refuse_others(method: str, named: Iterable[str], partitions: Sequence[str]) -> None:
    """Refuse an answer about partitions that are not of the group. Raises WrongAnswer."""
    if others := set(named) - set(partitions):
        raise WrongAnswer(f"{method} named {min(others)!r}, which is no partition of the group")


def checked_positions(found: Any, partitions: Sequence[str]) -> tuple[GroupPosition, ...]:
    """Return the positions of an answer to `positions`, if it is valid. Raises WrongAnswer."""
    positions: dict[str, Position] = checked("positions", found)
    _refuse_others("positions", positions, partitions)
    return tuple(
        GroupPosition(partition=name, offset=at.offset, pending=at.pending)
        for name, at in positions.items()
    )


def checked_polled(
    found: Any, record_bytes: int, partitions: Sequence[str]
) -> tuple[Delivered, ...]:
    """Return the deliveries of an answer to `poll`, if it is valid. Raises WrongAnswer."""
    polled: Polled = checked("poll", found)
    named = (each.partition for each in polled.deliveries)
    _refuse_others("poll", (*named, *(polled.assigned or ())), partitions)
    return tuple(delivered(polled.deliveries, record_bytes))


def delivered(given: Sequence[Delivery], record_bytes: int) -> Iterator[Delivered]:
    """Yield deliveries as the history has them, partition by partition."""
    by_partition: dict[str, list[DeliveredRun]] = {}
    for each in given:
        value = workloads.decode_record(bytes(each.payload), record_bytes)
        runs = by_partition.setdefault(each.partition, [])
        if runs and value >= 0 and _follows(runs[-1], value, each):
            runs[-1] = replace(runs[-1], count=runs[-1].count + 1)
        else:
            runs.append(DeliveredRun(value, 1, each.offset, each.id, each.times))
    for partition, runs in by_partition.items():
        yield Delivered(partition=partition, records=tuple(runs))


def _follows(run: DeliveredRun, value: int, each: Delivery) -> bool:
    after = (
        run.value + run.count,
        run.offset + run.count if run.offset >= 0 else -1,
        run.id + run.count if run.id >= 0 else -1,
    )
    return after == (value, each.offset, each.id) and run.times == each.times
