"""A turn as data: one order, which all worlds carry out, and in which a turn can stand anywhere."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator

import pytest

from node.core.api import Effects, Event, Mark, Outgoing, Tick
from node.core.turn import Turn, TurnStep, carry_out, take
from node.formats import trace
from node.formats.messages import MetadataRequest
from tests.support.paths import ROOT

WORLDS = ("node/runtime/loop.py", "harness/sim/node.py", "harness/explore/node_model.py")
ORDER = "node/core/turn.py"
OBSERVER = "harness/sim/step_invariant.py"  # It steps the core for a turn, between two looks.


def sources(*folders: str) -> Iterator[tuple[str, ast.AST]]:
    for folder in folders:
        for file in sorted((ROOT / folder).rglob("*.py")):
            yield str(file.relative_to(ROOT)), ast.parse(file.read_text())


def test_the_worlds_carry_out_turns_and_know_no_order_of_their_own() -> None:
    """A module that steps a core, or asks when a message may leave, knows an order."""
    orders, worlds = set(), set()
    for name, tree in sources("node", "harness/sim", "harness/explore"):
        for each in ast.walk(tree):
            if isinstance(each, ast.ImportFrom) and each.module == "node.core.turn":
                worlds |= {name} & {name for alias in each.names if alias.name == "carry_out"}
            if isinstance(each, ast.Attribute):
                steps = each.attr == "step" and ast.unparse(each.value).endswith("core")
                if steps or each.attr == "mark":
                    orders.add(name)
    assert worlds == set(WORLDS)
    assert orders == {ORDER, OBSERVER}


class Hands:
    """A world that notes what it does."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def trace(self, events: list[trace.TraceEvent]) -> None:
        self.done.append("trace")

    def commit(self, *, flush: bool) -> None:
        self.done.append("flush" if flush else "commit")

    def send(self, messages: list[Outgoing]) -> None:
        self.done += [f"send {each.mark.value}" for each in messages]


class Core:
    """A core whose steps have drawn effects."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def step(self, now_us: int, event: Event) -> Effects:
        rng = self._rng
        marks = rng.choices(list(Mark), (4, 2, 1), k=rng.randrange(4))
        names = rng.choices((trace.APPEND, trace.HW, trace.ACK, trace.ROLE), k=rng.randrange(3))
        events = []
        for name in names:
            fields = dict.fromkeys(trace.FIELDS[name], rng.randrange(4))
            events.append(trace.event(name, "log-0", **fields))
        return Effects(
            [Outgoing("n2", MetadataRequest(), mark=mark) for mark in marks],
            events,
            flush=rng.random() < 0.2,
        )


def drawn(seed: int) -> Turn:
    rng = random.Random(seed)
    return take(Core(rng), 1, [Tick()] * rng.randrange(1, 4), deadline_us=0)


@pytest.mark.parametrize("seed", range(200))
def test_a_turn_that_stood_anywhere_is_carried_out_as_if_it_had_not(seed: int) -> None:
    rng, turn, whole, parts = random.Random(seed), drawn(seed), Hands(), Hands()
    assert carry_out(turn, whole) == len(turn.steps)
    at = 0
    for step in turn.steps:
        if rng.random() < 0.7:
            at = carry_out(turn, parts, at, stop=(step,))
            assert turn.steps[at] is step
    assert carry_out(turn, parts, at) == len(turn.steps)
    assert parts.done == whole.done


@pytest.mark.parametrize("seed", range(200))
def test_the_disk_has_what_the_trace_says_and_the_trace_what_was_sent(seed: int) -> None:
    turn, hands = drawn(seed), Hands()
    carry_out(turn, hands)
    order = [word.split()[0] for word in hands.done]
    commit = next(place for place, word in enumerate(order) if word in ("commit", "flush"))
    assert order.count("commit") + order.count("flush") == 1
    assert order.count("trace") == bool(turn.trace)
    sends = [place for place, word in enumerate(order) if word == "send"]
    traced = order.index("trace") if turn.trace else -1
    assert all(place > traced for place in sends)
    late = [n for n, word in enumerate(hands.done) if word == f"send {Mark.AFTER_COMMIT.value}"]
    assert all(place > commit for place in late)
    if TurnStep.SEND_EARLY not in turn.steps:
        assert all(place > commit for place in sends)
        assert traced > commit or traced == -1


def test_a_deadline_that_has_come_is_a_tick_behind_the_messages_and_only_once() -> None:
    class Asks(Core):
        def step(self, now_us: int, event: Event) -> Effects:
            stepped.append(event)
            return Effects(deadline_us=now_us)

    stepped: list[Event] = []
    take(Asks(random.Random()), 5, [], deadline_us=5)
    take(Asks(random.Random()), 5, [], deadline_us=6)
    take(Asks(random.Random()), 5, [], deadline_us=0)
    take(Asks(random.Random()), 5, [], deadline_us=5, ticks=False)
    take(Asks(random.Random()), 5, [], deadline_us=6, ticks=False, first=True)
    assert stepped == [Tick(), Tick()]
