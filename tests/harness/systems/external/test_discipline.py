"""Histories that clients of an external system write, for any adapter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.clients.factory import ClientFactory
from harness.clients.operation_log import HistoryFile
from harness.clients.workload import decode_record
from harness.formats.history import Op, decode
from harness.systems.adapter import Adapter, LogSlice, Node, Record, Refused
from harness.systems.external.calls import CallErrors, ClientConnection, begin
from harness.systems.external.sessions import Sessions
from nemesis.formats.schedule import Cluster, Send, Workload
from tests.support.waiting import until

NODES = tuple(
    Node(name=f"n{n}", folder=Path(), listens={"client": n}, dialed={"client": n})
    for n in (1, 2, 3)
)


class InMemory(Adapter):
    """A list; `then` does something else with the n-th send, counted from 0."""

    def __init__(self, then: dict[int, Callable[[], Any]] | None = None) -> None:
        super().__init__({})
        self.log: list[bytes] = []
        self.then = then or {}
        self.sends = 0
        self.connected: list[tuple[str, str]] = []
        self.closed = 0
        self.is_on_record: Callable[[int], bool] = lambda value: False
        self.was_on_record: list[bool] = []

    async def connect(self, client: str, nodes: Sequence[Node]) -> Any:
        self.connected.append((client, nodes[0].name))
        return object()

    async def close(self, connection: Any) -> None:
        self.closed += 1

    async def send(self, connection: Any, record: Record) -> int:
        self.was_on_record.append(self.is_on_record(record.id))
        number, self.sends = self.sends, self.sends + 1
        if number in self.then:
            done = self.then[number]()
            return int(await done if asyncio.iscoroutine(done) else done)
        self.log.append(record.payload)
        return len(self.log) - 1

    async def read(
        self, connection: Any, partition: str, offset: int, timeout_s: float
    ) -> LogSlice:
        return LogSlice(list(enumerate(self.log))[offset : offset + 3])


def record(
    tmp_path: Path,
    adapter: InMemory,
    clients: int = 1,
    sends: int = 6,
    partitions: int = 1,
    enough: Callable[[], bool] = lambda: True,
    seed: int = 1,
    rate: int = 0,
    **more: Any,
) -> list[Op]:
    """Return the history of clients that send until there were so many and it is `enough`, and of
    the final reads."""
    file = tmp_path / "history.jsonl"
    adapter.is_on_record = lambda value: f'"value":{value}'.encode() in file.read_bytes()
    workload = Workload(
        seed=seed, clients=clients, consumers=1, rate=rate, batch=1, timeout_ms=200, **more
    )

    async def work(sessions: Sessions) -> None:
        sessions.go()
        await reached(lambda: adapter.sends >= sends and enough())
        sessions.stop_writing()
        await reached(lambda: sessions.status().writers_idle)
        sessions.read_everything()
        await reached(lambda: sessions.status().final == "done")
        assert not sessions.status().problem

    return recorded(file, adapter, workload, work, partitions)


def recorded(
    file: Path,
    adapter: InMemory,
    workload: Workload,
    work: Callable[[Sessions], Coroutine[Any, Any, None]],
    partitions: int = 1,
) -> list[Op]:
    """Return the history of clients under a workload."""
    history = HistoryFile(file)
    factory = ClientFactory(cluster=Cluster(partitions=partitions, voters=0), workload=workload)

    async def whole() -> None:
        sessions = Sessions(adapter, factory, NODES, history, show=lambda text: None)
        await sessions.connect()
        await work(sessions)
        await sessions.close()

    asyncio.run(whole())
    history.close()
    return [decode(line) for line in file.read_bytes().splitlines()]


async def reached(is_so: Callable[[], bool]) -> None:
    await asyncio.get_running_loop().run_in_executor(None, until, is_so)


def test_a_plain_method_may_return_what_is_to_be_awaited() -> None:
    async def refuses() -> None:
        raise Refused("not now")

    def change() -> Coroutine[Any, Any, None]:
        return refuses()

    asked = begin(change, timeout_s=5.0)
    assert isinstance(asked.exception(), Refused)


def raising(error: Exception) -> Callable[[], Any]:
    def work() -> Any:
        raise error

    return work


def sends_of(ops: Sequence[Op]) -> list[tuple[str, int]]:
    """(how it ended, process) of each send, in order."""
    return [(op.type, op.process) for op in ops if op.f == "send" and op.type != "invoke"]


def test_every_send_is_on_record_before_it_leaves_and_values_are_unique(tmp_path: Path) -> None:
    adapter = InMemory()
    ops = record(tmp_path, adapter, clients=3, sends=30)
    invoked = [op for op in ops if op.f == "send" and op.type == "invoke"]
    values = [op.sends[0].value for op in invoked]
    assert len(set(values)) == len(values) >= 30
    assert {how for how, _ in sends_of(ops)} == {"ok"}
    assert all(adapter.was_on_record)
    sent = {op.sends[0].offset: op.sends[0].value for op in ops if op.sends and op.type == "ok"}
    assert {n: decode_record(data, 64) for n, data in enumerate(adapter.log)} == sent


@pytest.mark.parametrize(
    ("what", "how"),
    [
        (raising(Refused("no leader")), "fail"),
        (raising(ConnectionError("gone")), "info"),
        (raising(TimeoutError()), "info"),
        (raising(AssertionError("a bug of the adapter")), "info"),
        (raising(asyncio.CancelledError()), "info"),  # type: ignore[arg-type]
        (lambda: -1, "info"),
        (lambda: 1 << 62, "info"),
        (lambda: asyncio.Event().wait(), "info"),
    ],
)
def test_what_send_raises_decides_how_the_operation_ends(
    tmp_path: Path, what: Callable[[], Any], how: str
) -> None:
    adapter = InMemory(then={2: what})
    ended = sends_of(record(tmp_path, adapter))
    assert [each for each, _ in ended[:5]] == ["ok", "ok", how, "ok", "ok"]
    first, *_, last = [process for _, process in ended[:5]]
    # Whoever met the unknown is never heard of again, and its connection is not used again.
    assert (first == last) == (how == "fail")
    # A new connection begins with the next node.
    nodes = [node for client, node in adapter.connected if client == "c1"]
    assert nodes == (["n1"] if how == "fail" else ["n1", "n2"])


def test_final_readers_are_fresh_and_read_all_that_was_acknowledged(tmp_path: Path) -> None:
    adapter = InMemory()
    ops = record(tmp_path, adapter, sends=10)
    final = [op for op in ops if op.final and op.f == "poll"]
    assert {op.client for op in final} == {"c3"}
    assert final[0].reads[0].start == 0
    read = [run for op in final if op.type == "ok" for run in op.reads[0].records]
    assert sum(run.count for run in read) == len(adapter.log)
    assert {op.process for op in final}.isdisjoint(op.process for op in ops if not op.final)


def test_a_send_may_be_acknowledged_without_an_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.systems.external.sessions.QUIET_S", 0.3)

    class WithoutOffsets(InMemory):
        """Tells no offset, and gives the final reader nothing at first."""

        empty_answers = 3

        async def connect(self, client: str, nodes: Sequence[Node]) -> Any:
            return client

        async def send(self, connection: Any, record: Record) -> None:  # type: ignore[override]
            await super().send(connection, record)

        async def read(self, connection: Any, partition: str, *rest: Any) -> LogSlice:
            if connection == "c3" and self.empty_answers:
                self.empty_answers -= 1
                return LogSlice([])
            return await super().read(connection, partition, *rest)

    ops = record(tmp_path, adapter := WithoutOffsets(), sends=10)
    sends = [op for op in ops if op.f == "send" and op.type != "invoke"]
    assert {(op.type, op.sends[0].offset) for op in sends} == {("ok", -1)}
    final = [op.reads[0].records for op in ops if op.final and op.f == "poll" and op.type == "ok"]
    assert sum(run.count for runs in final for run in runs) == len(adapter.log)


def test_an_operation_of_the_schedule_is_one_send(tmp_path: Path) -> None:
    adapter = InMemory()
    told = (Send(client="c1", at_ms=0, payload_bytes=99),)

    async def work(sessions: Sessions) -> None:
        sessions.operate(0)
        assert not sessions.status().writers_idle
        await reached(lambda: sessions.status().writers_idle)
        assert sessions.status().operated == 1

    workload = Workload(clients=0, consumers=0, batch=1, operations=told)
    invoke, ok = recorded(tmp_path / "history.jsonl", adapter, workload, work)
    assert (invoke.step, ok.step, ok.type, ok.sends[0].offset) == (0, 0, "ok", 0)
    assert len(adapter.log[0]) == 99


def test_at_the_end_of_a_run_each_operation_has_an_end(tmp_path: Path) -> None:
    asked: list[str] = []

    class Silent(InMemory):
        async def read(self, *_: Any) -> Any:
            asked.append("read")
            await asyncio.Event().wait()

    adapter = Silent({0: lambda: asyncio.Event().wait()})

    async def work(sessions: Sessions) -> None:
        sessions.go()
        await reached(lambda: bool(adapter.sends and asked))

    workload = Workload(clients=1, consumers=1, batch=1, timeout_ms=60_000)
    ops = recorded(tmp_path / "history.jsonl", adapter, workload, work)
    ends = {op.f: op.type for op in ops if op.type != "invoke" and op.f != "assign"}
    assert ends == {"send": "info", "poll": "fail"}


@pytest.mark.parametrize(("reconnect", "connections"), [(False, 1), (True, 2)])
def test_a_refusal_says_whether_the_client_connects_again(
    reconnect: bool, connections: int
) -> None:
    adapter = InMemory({0: raising(Refused("no leader", reconnect=reconnect))})
    record = Record(partition="log-0", payload=b"", id=1, acks=-1, timeout_s=1)

    async def send_twice() -> int:
        client = ClientConnection(adapter, "c1", NODES, 0, CallErrors(lambda text: None))
        with pytest.raises(Refused):
            await client.send(record)
        return await client.send(record)

    assert asyncio.run(send_twice()) == 0
    assert len(adapter.connected) == connections


def test_an_end_that_follows_the_offset_of_a_read_is_noticed(tmp_path: Path) -> None:
    class Follows(InMemory):
        async def read(self, *asked: Any) -> LogSlice:
            assert self.reads_to_the_end, "a read of the end knows that it is one"
            found = await super().read(*asked)
            return LogSlice(found.records, end=asked[2] + len(found.records))

    async def work(sessions: Sessions) -> None:
        sessions.read_everything()
        await reached(lambda: sessions.status().final == "done")
        said.append(sessions.status().problem)

    said: list[str] = []
    adapter = Follows()
    adapter.log = [b"x"] * 2
    ops = recorded(tmp_path / "history.jsonl", adapter, Workload(clients=0, consumers=0), work)
    assert "states the end 1000002 at offset 1000002 of log-0, where no record can be" in said[0]
    assert len([op for op in ops if op.type == "ok" and op.f == "poll"]) <= 2, "it is no operation"
