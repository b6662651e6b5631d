"""Members of a group write histories in which a queue that keeps its promise is right, and one that
breaks it is caught."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from checker.engine.local import check_run
from checker.formats.anomalies import DELIVERY, LOST_WRITES
from checker.formats.verdict import Verdict
from checker.ingest.external_history import run_folder_of
from harness.formats.history import Op
from harness.systems.adapter import Adapter, Delivery, GroupPromise, Polled, Position, Refused
from harness.systems.external import load, members
from harness.systems.external.calls import WrongAnswer
from harness.systems.external.members import checked_polled, checked_positions
from harness.systems.external.static_check import mistakes
from tests.harness.systems.external.test_discipline import InMemory, record
from tests.support.checker.group_definitions import judge

WAIT_S = 0.05
PROMISE = GroupPromise(ack_wait_ms=round(WAIT_S * 1000), redelivery_ms=200, counts=True)


POSITIONS = GroupPromise(
    kind="positions", fenced=True, exclusive=True, epochs_rise=True, order="owner", redelivery_ms=50
)


class Queue(InMemory):
    """A queue in memory. `forgets` says what it forgets: "acks", "pending" or nothing."""

    summary, failover_ms, groups = "a queue in memory", 0, PROMISE

    def __init__(self, forgets: str = "") -> None:
        super().__init__()
        self.setting = {"members": "2"}
        self.forgets, self.next = forgets, 0
        self.pending: dict[int, tuple[float, int]] = {}
        self.settled: set[int] = set()

    async def join(self, connection: Any, group: str, member: str, parts: Sequence[str]) -> Any:
        return parts[0]

    async def poll(self, session: Any, limit: int, timeout_s: float) -> Polled:
        now = time.monotonic()
        if self.forgets == "acks" and len(self.settled) > 5:
            self.next, self.forgets = 0, "nothing more"
            self.settled.clear()
        due = [at for at, (when, _) in self.pending.items() if now >= when]
        if self.forgets == "pending":
            due.clear()
        fresh = range(self.next, min(len(self.log), self.next + limit))
        self.next = max(self.next, fresh.stop)
        given = []
        for at in (*due, *fresh):
            times = self.pending.get(at, (0.0, 0))[1] + 1
            self.pending[at] = now + WAIT_S, times
            given.append(Delivery(session, self.log[at], at, -1, times, at))
        return Polled(given)

    async def acknowledge(
        self, session: Any, deliveries: Sequence[Delivery], how: str, timeout_s: float
    ) -> bool:
        for each in deliveries:
            if how == "again" and each.offset in self.pending:
                self.pending[each.offset] = 0.0, self.pending[each.offset][1]
            elif how == "ack":
                self.pending.pop(each.offset, None)
                self.settled.add(each.offset)
        return True

    async def positions(
        self, connection: Any, group: str, parts: Sequence[str], timeout_s: float
    ) -> dict[str, Position]:
        return {parts[0]: Position(min([*self.pending, self.next]), len(self.pending))}


class Log(InMemory):
    """A group with positions, whose last member owns the only partition. `forgets`: commits."""

    summary, failover_ms, groups = "a log in memory", 0, POSITIONS

    def __init__(self, *, forgets: bool = False) -> None:
        super().__init__()
        self.setting = {"members": "2"}
        self.forgets, self.position, self.epoch, self.handed = forgets, -1, 0, 0

    async def join(self, connection: Any, group: str, member: str, parts: Sequence[str]) -> Any:
        self.epoch += 1
        return {"epoch": self.epoch, "part": parts[0], "at": None}

    async def poll(self, session: Any, limit: int, timeout_s: float) -> Polled:
        if session["epoch"] != self.epoch:
            return Polled(assigned={} if session["at"] is not None else None, epoch=self.epoch)
        assigned = None
        if session["at"] is None:
            session["at"] = max(0, self.position)
            self.handed += 1
            assigned = {session["part"]: session["at"]}
            return Polled(assigned=assigned, epoch=self.epoch)
        at, session["at"] = session["at"], min(len(self.log), session["at"] + limit)
        given = (Delivery(session["part"], self.log[n], n) for n in range(at, session["at"]))
        return Polled([*given])

    async def commit(self, session: Any, positions: Mapping[str, int], timeout_s: float) -> int:
        if session["epoch"] != self.epoch:
            raise Refused("of an old epoch")
        (at,) = positions.values()
        self.position = self.position if self.forgets and at > 20 else at
        return self.epoch

    async def positions(
        self, connection: Any, group: str, parts: Sequence[str], timeout_s: float
    ) -> dict[str, Position]:
        return {parts[0]: Position(self.position)}


def history(tmp_path: Path, queue: InMemory, enough: Callable[[], bool] = lambda: True) -> list[Op]:
    # Members of other seeds poll once a second, and a test need not wait for that.
    return record(tmp_path, queue, sends=100, enough=enough, seed=members.EAGER_EVERY, rate=200)


def test_a_queue_that_keeps_its_promise_is_right(tmp_path: Path) -> None:
    queue = Queue()
    ops = history(tmp_path, queue)
    assert judge(ops, PROMISE)[0] <= {"early-redelivery"}
    assert not judge(ops, PROMISE)[1]
    assert not queue.pending
    ended = {(op.f, op.type) for op in ops if op.group}
    assert {("poll", "ok"), ("ack", "ok"), ("join", "ok"), ("position", "ok")} <= ended
    assert {op.member for op in ops if op.group} >= {"m1", "m2", "drain"}


def test_an_ack_that_was_not_answered_is_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Mute(Queue):
        """It answers the first ack of each delivery not at all."""

        def __init__(self) -> None:
            super().__init__()
            self.asked = Counter[tuple[Any, ...]]()

        async def acknowledge(
            self, session: Any, deliveries: Sequence[Delivery], how: str, timeout_s: float
        ) -> bool:
            named = (how, *(each.token for each in deliveries))
            self.asked[named] += 1
            if self.asked[named] == 1:
                raise TimeoutError
            return await super().acknowledge(session, deliveries, how, timeout_s)

    monkeypatch.setattr(members, "AGAIN_AFTER_S", 0.01)
    queue = Mute()
    ops = history(tmp_path, queue, enough=lambda: max(queue.asked.values(), default=0) > 1)
    acks = [op for op in ops if op.f in ("ack", "nack") and op.type != "invoke"]
    known = {(op.f, op.deliveries): op for op in acks if op.type == "info"}
    assert any((op.f, op.deliveries) in known for op in acks if op.type == "ok")
    assert judge(ops, PROMISE)[0] <= {"early-redelivery"}


def test_a_queue_that_cannot_be_read_is_judged_by_what_its_group_was_given(tmp_path: Path) -> None:
    class Unreadable(Queue):
        read = Adapter.read

    assert "read is not written" not in mistakes(Unreadable)
    assert {s.name: s.default for s in load.settings_of(Unreadable)} == {"members": "3"}
    ops = history(tmp_path, Unreadable())
    assert not [op for op in ops if op.reads]
    promise = {"reads": False, "groups": msgspec.to_builtins(PROMISE)}
    result = check_run(run_folder_of(tmp_path / "history.jsonl", promise))
    told = {each.property: each for each in result.properties}
    assert told[LOST_WRITES].verdict is Verdict.NOT_EXAMINED
    assert "Only groups read this system" in told[LOST_WRITES].reason
    assert told[DELIVERY].verdict is Verdict.VALID


def test_a_queue_that_forgets_acks_is_caught(tmp_path: Path) -> None:
    queue = Queue("acks")
    ops = history(tmp_path, queue, lambda: queue.forgets != "acks")
    found, unknown = judge(ops, PROMISE)
    assert ("acked-redelivered" in found, unknown) == (True, set())


def test_a_queue_that_forgets_what_nobody_settled_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "SHARES", (("never", 1),))
    queue = Queue("pending")
    ops = history(tmp_path, queue, lambda: bool(queue.pending))
    found, unknown = judge(ops, PROMISE)
    assert ("not-redelivered" in found, unknown) == (True, set())


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "poll returned None: Expected `object`, got `null`"),
        ({}, "poll returned {}: Expected `object`, got `dict`"),
        (Polled(assigned=["log-0"]), "Expected .* got `array` - at `\\$.assigned`"),
        (Polled(assigned={"log-0": "1"}), "Expected `int`, got `str` - at `\\$.assigned"),
        (Polled(assigned={"log-9": 1}), "poll named 'log-9', which is no partition of the group"),
        (Polled(["x"]), "Expected `object`, got `str` - at `\\$.deliveries"),  # type: ignore[list-item]
        (Polled([Delivery("log-0", b"x", offset=-2)]), "Expected `int` >= -1 - at .*offset"),
        (Polled([Delivery("log-9", b"x")]), "poll named 'log-9', which is no partition"),
    ],
)
def test_a_wrong_answer_of_an_adapter_has_a_sentence(answer: Any, words: str) -> None:
    with pytest.raises(WrongAnswer, match=words):
        checked_polled(answer, 64, ("log-0",))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ([], "positions returned \\[\\]: Expected `object`, got `array`"),
        ({"log-9": Position(1)}, "positions named 'log-9', which is no partition of the group"),
        ({"log-0": 3}, "Expected `object`, got `int`"),
        ({"log-0": Position(-2)}, "Expected `int` >= -1"),
    ],
)
def test_a_wrong_position_has_a_sentence(answer: Any, words: str) -> None:
    with pytest.raises(WrongAnswer, match=words):
        checked_positions(answer, ("log-0",))


def test_a_group_that_does_not_exist_and_a_wrong_confirmation_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members, "MOST_QUIETS", 0.5)

    class Odd(Queue):
        async def acknowledge(self, *_: Any) -> Any:
            return 3

        async def positions(self, *_: Any) -> Any:
            raise KeyError("no group of that name")

    ops = history(tmp_path, Odd())
    said = {(op.f, op.type, op.error) for op in ops if op.error}
    wrong = "WrongAnswer: acknowledge returned 3: Expected `bool`, got `int`"
    assert ("ack", "info", wrong) in said
    assert any(f == "position" and type_ == "fail" for f, type_, _ in said)


def test_a_missing_method_of_a_group_is_named() -> None:
    class Half(Queue):
        acknowledge = InMemory.acknowledge

    words = "acknowledge or commit is not written, and a group of consumers needs it"
    assert words in [*mistakes(Half)]
    assert words not in [*mistakes(Log)]


@pytest.mark.parametrize("forgets", [False, True])
def test_a_group_with_positions_owns_partitions_and_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgets: bool
) -> None:
    monkeypatch.setattr(members, "SHARES", (("now", 1),))
    monkeypatch.setattr(members, "SILENT", (("now", 1),))
    monkeypatch.setattr(members, "CRASH_EVERY_S", 0.4)
    log = Log(forgets=forgets)
    ops = history(tmp_path, log, lambda: log.handed > 2)
    found, unknown = judge(ops, POSITIONS)
    assert ("commit-lost" in found, unknown) == (forgets, set())
    assert found <= {"commit-lost", "stale-position"}
    ended = {(op.f, op.type) for op in ops if op.group}
    assert {("assign", "ok"), ("commit", "ok"), ("join", "ok"), ("position", "ok")} <= ended


def test_a_poll_that_is_not_understood_may_have_delivered_something(tmp_path: Path) -> None:
    class Odd(Log):
        asked = 0

        async def poll(self, *given: Any) -> Any:
            self.asked += 1
            return 3 if self.asked == 5 else await super().poll(*given)

    ended = {op.type for op in history(tmp_path, Odd()) if op.f == "poll" and op.error}
    assert ended == {"info"}


def test_a_commit_without_an_epoch_is_said(tmp_path: Path) -> None:
    class Odd(Log):
        async def commit(self, *_: Any) -> Any:
            return None

    ops = history(tmp_path, Odd())
    said = {op.error for op in ops if op.f == "commit" and op.type == "info"}
    assert "WrongAnswer: commit returned None: Expected `int`, got `null`" in said
