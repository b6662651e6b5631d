"""The reasons why a schedule fails, found by leaving out its faults and affected messages."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec.structs import replace

from harness.formats import finding
from harness.formats.finding import Counterfactual, Explanation
from harness.search.shrink import explain
from nemesis import ready_made
from nemesis.faults import Cut
from tests.harness.search.worlds.test_outcome import kip_101, trickle
from tests.support.snapshot import Snapshot

BOUNCED = kip_101(146)
LATE = Cut(on="n2", to="clients", at_ms=1, for_ms=1)
CUT = Cut(on="n1", to="rest", at_ms=2, for_ms=400)
SCHEDULES = {
    "KIP-101's loss in two kills, with an irrelevant cut": replace(
        BOUNCED, faults=(*BOUNCED.faults, LATE)
    ),
    "a leader is cut off after it acknowledged what it alone has": trickle(
        CUT, protocol="kafka", bugs=("ack-before-isr",)
    ),
    "two leaders, two records at one offset": ready_made.load("kip-279-scenario-1"),
}


def test_failures_are_explained_step_by_step(tmp_path: Path, snapshot: Snapshot) -> None:
    """Each fault, the messages of each kind, and each message alone are left out in turn."""
    found = {title: explain.explain(schedule) for title, schedule in SCHEDULES.items()}
    texts = {
        title: [f"{told.bucket}, {told.partition} at {told.offset}", *explain.as_lines(told)]
        for title, told in found.items()
    }
    snapshot(Path(__file__).with_name("explanations.txt"), texts)
    told, file = next(iter(found.values())), tmp_path / finding.EXPLANATION
    explain.write(told, file)
    assert msgspec.json.decode(file.read_bytes(), type=Explanation) == told
    # Another failure that comes instead is named.
    one = Counterfactual(kind="fault", without="fault 0 (Kill n1)", fails=False, instead="other: x")
    *_, last = explain.as_lines(replace(told, counterfactuals=(one,)))
    assert last.endswith("fails in another way (other: x)")


def test_what_breaks_inside_the_cluster_is_explained_too() -> None:
    calm = trickle(LATE, protocol="kafka", bugs=("ack-before-isr",))
    told = explain.explain(calm, bucket=lambda outcome: outcome.internal_violation)
    assert (told.bucket, told.partition) == ("acknowledged-early", "log-0")
    assert any(step.rule for step in told.sentences), "no step is named that breaks a rule"
    assert [(one.fault, one.fails) for one in told.counterfactuals] == [(0, True)]
