"""A tick that the simulated world leaves out would have done nothing (`Broker.put_off`)."""

from __future__ import annotations

import random
from copy import copy

import pytest

from harness.explore.snapshot import canonical, restore, snapshot
from harness.search.grammar.phrases import compose
from harness.sim.disk import SimDisk
from harness.sim.run import simulate
from node.core.api import Tick
from node.core.broker import Broker
from node.core.protocol import Commit


@pytest.mark.parametrize("protocol", ["kafka", "quorum", "liftbridge"])
def test_a_tick_that_is_put_off_would_have_done_nothing(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_off = Broker.put_off
    left_out = stepped = 0

    def checked(broker: Broker, now_us: int) -> int:
        nonlocal left_out, stepped
        before, disk, jitter = snapshot(broker), broker.ctx.storage, broker.ctx.jitter
        due_us = put_off(broker, now_us)
        assert isinstance(disk, SimDisk)
        if due_us <= now_us or disk.faults:
            stepped += 1
            return due_us
        left_out += 1
        other = restore(before, SimDisk.of(disk.state()), copy(jitter))
        effects = other.step(now_us, Tick())
        assert (effects.messages, effects.trace, effects.flush) == ([], [], False)
        assert effects.deadline_us == due_us
        # The first tick of a leader by votes also notes that it never looks for laggards.
        if broker.controller is None and broker.protocol.commit is Commit.ISR:
            before_us, broker.ctx.now_us = broker.ctx.now_us, now_us
            assert canonical(other) == canonical(broker)
            broker.ctx.now_us = before_us
        return due_us

    monkeypatch.setattr(Broker, "put_off", checked)
    for number in range(5):
        schedule = compose(random.Random(f"put-off/{number}"), protocol)
        simulate(schedule, seed=number)
    assert left_out > 20, "a run in which no tick is left out proves nothing"
    assert stepped > 20
