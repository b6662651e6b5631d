"""The order of things in a turn, and when the core is told of the time."""

from __future__ import annotations

from typing import Any, cast

import pytest

from node.core import wire
from node.core.api import Deliver, Effects, Event, Mark, Outgoing, Shutdown, Tick
from node.core.messages import MetadataRequest
from node.formats.errors import InvariantBroken
from node.formats.trace import STOPPED, event
from node.runtime import loop as loop_module
from node.runtime.loop import TURNS_BEHIND, Loop, StopRequest

MOST_WAITS = 10_000
FRAMES = wire.encode("n1", "c1", MetadataRequest())


class World:
    """Everything around the loop, written down as it is used; time moves only when waited for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[Any] = []
        self.more: list[bool] = []
        self.waits: list[int] = []
        self.mail: list[tuple[list[list[bytes]], bool]] = []
        self.unauthenticated: list[int] = []
        self.effects: list[Effects] = []
        self.breaks = False
        self.now_us = 1_000_000
        self.stop = StopRequest()
        monkeypatch.setattr(loop_module, "monotonic_us", lambda: self.now_us)
        here = cast(Any, self)
        self.loop = Loop("n1", here, here, here, here, here, self.stop)

    def step(self, now_us: int, happened: Event) -> Effects:
        """The core: answers with the next prepared effects, then stops or breaks."""
        self.done.append((type(happened), now_us))
        if isinstance(happened, Deliver):
            self.more.append(happened.more)
        if self.breaks and not self.effects:
            raise InvariantBroken("no more")
        return self.effects.pop(0) if self.effects else Effects(stopped=True)

    def wait(self, timeout_ms: int) -> None:
        """The inbox: mail if there is some, else the time passes."""
        self.waits.append(timeout_ms)
        assert len(self.waits) < MOST_WAITS, "the loop waits for what never comes"
        if not self.mail:
            self.now_us += timeout_ms * 1000

    def drain(self) -> tuple[list[list[bytes]], bool]:
        """The inbox."""
        return self.mail.pop(0) if self.mail else ([], True)

    def turned_away(self) -> int:
        """The inbox: how many outsiders it refused."""
        return self.unauthenticated.pop(0) if self.unauthenticated else 0

    def commit(self) -> None:
        """The storage."""
        self.done.append("commit")

    def flush(self) -> None:
        """The storage."""
        self.done.append("flush")

    def write(self, now_us: int, events: list[Any]) -> None:
        """The trace file."""
        self.done.append(("trace", len(events)))

    def show(self, now_us: int, events: list[Any], to: object) -> None:
        """The trace of a failed turn."""
        self.done.append(("shown", len(events)))

    def send(self, messages: list[Outgoing]) -> None:
        """The outbox."""
        self.done.append(("send", [one.to for one in messages]))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A loop with nothing real around it."""
    return World(monkeypatch)


def says(*to: str, early: str = "", deadline_us: int = 0, flush: bool = False) -> Effects:
    """Effects of a step: one trace event, messages to `to`, and one to `early` before commit."""
    messages = [Outgoing(name, MetadataRequest()) for name in to]
    if early:
        messages.append(Outgoing(early, MetadataRequest(), mark=Mark.BEFORE_COMMIT))
    return Effects(messages=messages, trace=[event(STOPPED)], deadline_us=deadline_us, flush=flush)


def run(world: World, *effects: Effects) -> list[Any]:
    """Run until the prepared effects are used up; what was done, without the steps."""
    world.effects = list(effects)
    world.loop.run()
    return [one for one in world.done if not (isinstance(one, tuple) and isinstance(one[0], type))]


def steps(world: World) -> list[Any]:
    """The kinds of events stepped."""
    return [one[0] for one in world.done if isinstance(one, tuple) and isinstance(one[0], type)]


def test_a_turn_is_commit_then_trace_then_send(world: World) -> None:
    world.mail = [([FRAMES], True), ([FRAMES], True)]
    done = run(world, says("a", "b"))
    assert done[:3] == ["commit", ("trace", 1), ("send", ["a", "b"])]


def test_many_messages_share_one_commit(world: World) -> None:
    world.mail = [([FRAMES] * 3, True), ([FRAMES], True)]
    done = run(world, Effects(), says("a"), says("b"), says("c"))
    assert done[:4] == ["commit", "commit", ("trace", 3), ("send", ["a", "b", "c"])]
    assert steps(world) == [Tick, Deliver, Deliver, Deliver, Deliver]


def test_each_message_says_whether_others_of_its_turn_follow(world: World) -> None:
    world.mail = [([FRAMES] * 3, True), ([FRAMES], True)]
    run(world, *[Effects()] * 4)
    assert world.more == [True, True, False, False]


def test_what_leaves_early_is_after_the_trace_and_before_the_commit(world: World) -> None:
    world.mail = [([FRAMES] * 2, True), ([FRAMES], True)]
    done = run(world, Effects(), says("late"), says("late-too", early="early"))
    assert done[1:5] == [
        ("trace", 2),
        ("send", ["early"]),
        "commit",
        ("send", ["late", "late-too"]),
    ]


def test_a_flush_takes_the_commits_place(world: World) -> None:
    world.mail = [([FRAMES] * 2, True), ([FRAMES], True)]
    done = run(world, Effects(), says("a", flush=True), says("b"))
    assert done[1:4] == ["flush", ("trace", 2), ("send", ["a", "b"])]


def test_the_last_turn_is_flushed(world: World) -> None:
    world.mail = [([FRAMES] * 5, True)]
    done = run(world, Effects(), Effects(stopped=True, trace=[event(STOPPED)]), says("never"))
    assert done == ["commit", "flush", ("trace", 1), "flush"]


def test_a_failing_step_commits_traces_and_sends_nothing(world: World) -> None:
    world.mail = [([FRAMES] * 2, True)]
    world.breaks = True
    with pytest.raises(InvariantBroken):
        run(world, Effects(), says("a"))
    assert world.done == [
        (Tick, 1_000_000),
        "commit",
        (Deliver, 1_000_000),
        (Deliver, 1_000_000),
        ("shown", 1),
    ]


def test_the_core_gets_a_tick_at_its_deadline_and_not_before(world: World) -> None:
    run(world, Effects(deadline_us=1_002_500), Effects(deadline_us=1_002_501))
    assert world.waits == [3, 0]
    assert [one for one in world.done if isinstance(one, tuple)] == [
        (Tick, 1_000_000),
        (Tick, 1_003_000),
        (Tick, 1_003_000),
    ]


def test_without_a_deadline_the_core_sleeps(world: World) -> None:
    world.mail = [([], True)] * 5 + [([FRAMES], True)]
    run(world, Effects())
    assert steps(world) == [Tick, Deliver]
    assert world.waits == [1000] * 6


def test_mail_comes_before_the_time(world: World) -> None:
    """One turn, one tick at most, and after the messages."""
    world.mail = [([FRAMES] * 2, True), ([FRAMES], True)]
    run(world, *[Effects(deadline_us=1)] * 4)
    assert steps(world) == [Tick, Deliver, Deliver, Tick, Deliver]


def test_a_paused_node_reads_its_mail_before_it_judges_silence(world: World) -> None:
    world.mail = [([FRAMES], False)] * (TURNS_BEHIND + 1) + [([FRAMES], True)] * 2
    run(world, *[Effects(deadline_us=1)] * (TURNS_BEHIND + 5))
    expected = [Tick] + [Deliver] * TURNS_BEHIND + [Tick] + [Deliver] * 2 + [Tick] + [Deliver]
    assert steps(world)[: len(expected)] == expected


def test_a_request_to_stop_is_passed_on_once(world: World) -> None:
    world.stop.asked = True
    run(world, Effects(), Effects(), Effects(deadline_us=1))
    assert steps(world).count(Shutdown) == 1
    assert world.waits[0] == 0


def test_a_core_that_never_stops_is_given_up_on(world: World) -> None:
    world.stop.asked = True
    world.effects = [Effects()] * 1000
    world.loop.run()
    assert world.loop.gave_up
    assert world.now_us == 1_000_000 + loop_module.HAND_OVER_US
    assert world.done[-1] == "flush"


def test_what_is_refused_is_counted_and_the_trace_stays_small(world: World) -> None:
    """A flood of what nobody understands, and of outsiders, gets a bounded number of events."""
    flood = 40
    per_turn = 2 * loop_module.MAX_REFUSALS_TRACED // flood
    world.mail = [([[b"garbage"]] * per_turn, False) for _ in range(flood)]
    world.mail.append(([FRAMES], True))
    world.unauthenticated = [1000] * (flood - 1)
    world.effects = [Effects()]
    world.loop.run()
    traced = sum(count for kind, count in [d for d in world.done if d[0] == "trace"])
    assert traced <= loop_module.MAX_REFUSALS_TRACED + flood
    assert world.loop.refused >= flood * per_turn
    assert world.loop.unauthenticated == 1000 * (flood - 1)
