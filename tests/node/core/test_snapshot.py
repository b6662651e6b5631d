"""A node that is taken apart and made again goes on as if nothing had been, and nodes that count as
equal answer alike, whatever time it is."""

from __future__ import annotations

import random
from typing import Any

import pytest

from node.core import snapshot as snapshots
from node.core.api import Deliver, Tick
from node.core.broker import Broker
from node.core.snapshot import Snapshot, canonical, restore, snapshot
from tests.support import broker_storm
from tests.support.broker_storm import CONDITIONS, Storm
from tests.support.broker_world import World

NAMES = ("all of it", "all of it, three voters", "min_isr 1", "two brokers, min_isr 2")
PROTOCOLS = ("kip-101", "liftbridge", "quorum", "high-watermark")
HOURS_US = 7 * 3_600_000_000


class PatchedWorld(World):
    """A world that takes nodes apart between steps, one in `every`."""

    every = 4

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        self.dice = random.Random(1)
        self.made_again = 0
        super().__init__(*arguments, **keywords)

    def _steps(self, name: str, events: list[Any]) -> None:
        node = self.nodes[name]
        if node._begun and self.dice.randrange(self.every) == 0:
            self.nodes[name] = self.again(node)
            self.made_again += 1
        super()._steps(name, events)

    def again(self, node: Broker) -> Broker:
        taken = snapshot(node)
        made = restore(taken, node.ctx.storage, node.ctx.jitter)
        assert snapshot(made) == taken
        assert canonical(snapshot(made)) == canonical(taken)
        return made


def run(monkeypatch: pytest.MonkeyPatch, world: type[World], **changes: Any) -> World:
    monkeypatch.setattr(broker_storm, "World", world)
    storm = Storm(5, broker_storm.replace(CONDITIONS[changes.pop("name")], **changes))
    storm.run(2)
    return storm.world


@pytest.mark.parametrize("name", NAMES)
def test_a_storm_over_restored_nodes_is_the_same_storm(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = run(monkeypatch, World, name=name)
    again = run(monkeypatch, PatchedWorld, name=name)
    assert isinstance(again, PatchedWorld)
    assert again.made_again > 100
    assert (again.trace, again.mail, again.sent) == (plain.trace, plain.mail, plain.sent)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_so_it_is_under_every_protocol(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = run(monkeypatch, World, name="loss", protocol=protocol)
    again = run(monkeypatch, PatchedWorld, name="loss", protocol=protocol)
    assert (again.trace, again.sent) == (plain.trace, plain.sent)


class EqualWorld(PatchedWorld):
    """Before a step, a node that counts as equal and is another one makes the same step first."""

    def _steps(self, name: str, events: list[Any]) -> None:
        node = self.nodes[name]
        if not node._begun or self.dice.randrange(self.every) or len(events) != 2:
            super()._steps(name, events)
            return
        assert isinstance(node.ctx.jitter, random.Random)
        drawn = node.ctx.jitter.getstate()
        other = equal_to(node, self.dice)
        disk = self.disks[name]
        kept = {n: dict(log) for n, log in disk.logs.items()}, dict(disk.values), list(disk._undo)
        clean = disk.clean
        theirs = steps(other, self.now_us + HOURS_US, events)
        disk.logs, disk.values, disk._undo = kept
        disk.clean = clean
        node.ctx.jitter.setstate(drawn)
        self.expected = theirs
        self.compare(name, events)

    def compare(self, name: str, events: list[Any]) -> None:
        before, sent = len(self.trace), []
        self.posted = sent
        super(PatchedWorld, self)._steps(name, events)
        self.made_again += 1
        node = self.nodes.get(name)
        messages, trace, equal = self.expected
        own = [{k: v for k, v in e.items() if k not in ("t_us", "node")} for e in self.trace]
        assert own[before:] == trace
        assert sent == messages
        assert node is None or canonical(snapshot(node)) == equal

    posted: list[Any] | None = None
    expected: Any = None

    def _post(self, source: str, to: str, message: Any, body: bytes | None) -> None:
        if self.posted is not None and source in self.disks:
            self.posted.append((to, message, body))
        super()._post(source, to, message, body)


def steps(node: Broker, now_us: int, events: list[Any]) -> tuple[Any, Any, Any]:
    """What a node sends and traces, and what it is then."""
    messages, trace = [], []
    for event in events:
        assert isinstance(event, Deliver | Tick)
        effects = node.step(now_us, event)
        messages += [(m.to, m.message, m.body) for m in effects.messages]
        trace += [dict(e) for e in effects.trace]
    return messages, trace, canonical(snapshot(node))


def equal_to(node: Broker, dice: random.Random) -> Broker:
    """Another node with the same canonical value: hours later, with tables in another order, with
    nothing of its log in memory and with an alarm that is too early."""
    taken = snapshot(node)
    moved = Snapshot(taken.now_us + HOURS_US, changed(taken.parts, "", dice))
    assert canonical(moved) == canonical(taken)
    assert moved != taken
    made = restore(moved, node.ctx.storage, node.ctx.jitter)
    for r in made.replicas.values():
        r.log._tail, r.log._tail_bytes = {}, 0
    return made


def changed(value: Any, name: str, dice: random.Random) -> Any:
    if type(value) is int and name.endswith("_us") and name not in ("lag_us", "retry_us"):
        far = abs(value) >= snapshots._SOON_US
        return value if far else value + HOURS_US
    if isinstance(value, snapshots._Part):
        layout = snapshots._layouts[value[0]]
        assert layout is not None
        fields = zip(layout.names, value[1:], strict=True)
        return type(value)((value[0], *[changed(v, n, dice) for n, v in fields]))
    if isinstance(value, snapshots._Pairs):
        pairs = [(key, changed(each, name, dice)) for key, each in value]
        if name in snapshots._UNORDERED:
            dice.shuffle(pairs)
        return type(value)(pairs)
    if isinstance(value, snapshots._List | snapshots._Deque):
        return type(value)([changed(each, name, dice) for each in value])
    return value


@pytest.mark.parametrize("name", NAMES)
def test_nodes_that_count_as_equal_step_alike(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = run(monkeypatch, EqualWorld, name=name)
    assert isinstance(world, EqualWorld)
    assert world.made_again > 100


def test_a_node_that_has_other_state_does_not_count_as_equal() -> None:
    world = World(1)
    world.create_topic()
    leader = world.nodes[world.leader("log-0") or ""]
    before = canonical(snapshot(leader))
    world.produce(leader.ctx.node, "log-0", 1, b"a")
    world.run_for(20)
    assert canonical(snapshot(leader)) != before
