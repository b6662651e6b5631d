"""What a search draws strikes: acts that last over several elections wait for events that come."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from harness.search import drawing
from harness.search.acts import Act
from harness.search.choosing import RandomChooser
from harness.search.turmoil import churn, contest, relapse, seesaw, succession
from harness.sim.run import simulate


@pytest.mark.parametrize(
    ("act", "protocol"),
    [
        (churn, "kafka"), (churn, "quorum"), (contest, "quorum"), (seesaw, "kafka"),
        (relapse, "kafka"), (succession, "kip-279"),
    ],
)  # fmt: skip
def test_most_faults_of_an_act_take_effect(
    act: Act, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing, "_mask", lambda choose, votes: [act])
    monkeypatch.setattr(drawing, "MAX_ACTS", 1)
    became: Counter[str] = Counter()
    for number in range(6):
        schedule = drawing.draw_schedule(RandomChooser(random.Random(number)), protocol)
        result = simulate(schedule, seed=number, stop_at="never")
        assert not result.breaches
        became.update(line["action"] for line in result.faults if line["fault"] >= 0)
    assert became["inject"] > became["missed"] + became["skipped"]
