"""A run that is continued from another one is the run of its schedule from the start."""

from __future__ import annotations

import random
import signal

import psutil
import pytest
from msgspec.structs import replace

from harness.search.attempt import attempt
from harness.search.choice_source import RandomChoices
from harness.search.generator import draw_schedule
from harness.search.guidance import strike
from harness.sim import copies
from harness.sim.branches import branches, may_branch, without_messages
from harness.sim.network import AffectedMessage
from harness.sim.run import SimResult, simulate
from nemesis.faults import Cut, ElectUnclean, Kill, Link, Reassign
from nemesis.formats.schedule import After, Cluster, Schedule, Workload

CALM = Schedule(
    cluster=Cluster(), workload=Workload(clients=1, consumers=1, rate=20.0, duration_ms=600)
)
KILLED = replace(
    CALM, faults=(Kill(on="n2", at_ms=100, for_ms=200), Cut(on="n3", to="rest", at_ms=300))
)


def essence(result: SimResult) -> tuple[object, ...]:
    return (
        result.digest,
        result.schedule.digest(),
        result.info.schedule_digest,
        result.sentence,
        result.events,
        result.virtual_us,
        sorted(result.states),
    )


def family(seed: int) -> tuple[Schedule, list[Schedule]]:
    """A drawn schedule; continued otherwise, and with each fault left out."""
    rng = random.Random(seed)
    protocol = rng.choice(("kafka", "kip-279", "quorum", "liftbridge", "high-watermark"))
    choose = RandomChoices(rng)
    base = draw_schedule(choose, protocol)
    moments = attempt(base).moments
    others = [strike(base, rng.choice(moments), choose) for _ in range(3) if moments]
    faults = base.faults
    others += [replace(base, faults=(*faults[:i], *faults[i + 1 :])) for i in range(len(faults))]
    longest = max(each.workload.duration_ms for each in (base, *others))
    workload = replace(base.workload, duration_ms=longest)
    return replace(base, workload=workload), [replace(each, workload=workload) for each in others]


@pytest.mark.parametrize("seed", range(4))
def test_a_branch_is_the_run_of_its_schedule(seed: int) -> None:
    base, others = family(seed)
    made = branches(base, others, essence, seed=seed, stop_at="visible")
    possible = [number for number, other in enumerate(others) if may_branch(base, other)]
    assert set(made) <= set(possible)
    if not simulate(base, seed=seed, stop_at="visible").violations:
        assert set(made) == set(possible)
    for number, found in made.items():
        assert found == essence(simulate(others[number], seed=seed, stop_at="visible")), number


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
def test_many_branches_are_the_runs_of_their_schedules(seed: int) -> None:
    test_a_branch_is_the_run_of_its_schedule(seed)


def test_what_happens_while_a_command_is_carried_out_is_seen_at_once() -> None:
    """Whatever else the branches wait for: a fault that waits for it comes at the same time."""
    moved = Reassign(partition="log-0", replicas="n1,n2,n3", at_ms=100)
    after = After(event="partition", match={"partition": "log-0"})
    waits = Kill(on="n3", after=after, for_ms=100)
    other = Kill(on="n3", after=After(event="isr", match={}), for_ms=100)
    base = replace(CALM, faults=(moved, other))
    others = [replace(CALM, faults=(moved, waits))]
    made = branches(base, others, essence, seed=1, stop_at="never")
    assert made == {0: essence(simulate(others[0], seed=1, stop_at="never"))}


def test_a_message_that_passes_is_the_only_difference() -> None:
    lost = Link(on="rest", to="n2", action="drop", kinds=("fetch-response",), at_ms=50, for_ms=200)
    schedule = replace(CALM, faults=(lost,))
    made = without_messages(schedule, (0, 2, 10_000), essence, seed=1, stop_at="never")
    assert set(made) == {0, 2}
    for number, found in made.items():
        met = iter(range(1 << 30))

        def only(message: AffectedMessage, number: int = number, met: object = met) -> bool:
            return next(met) == number  # type: ignore[call-overload, no-any-return]

        assert found == essence(simulate(schedule, seed=1, stop_at="never", exempt=only))


@pytest.mark.parametrize(
    "other",
    [
        replace(KILLED, workload=replace(KILLED.workload, seed=7)),
        replace(KILLED, cluster=Cluster(min_isr=1)),
        # Another promise.
        replace(KILLED, faults=(*KILLED.faults, ElectUnclean(partition="log-0", at_ms=500))),
    ],
)
def test_what_has_another_past_is_not_continued(other: Schedule) -> None:
    assert branches(KILLED, [other], essence, seed=1, stop_at="never") == {}


def test_copies_that_fail_are_missing_and_none_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    others = [replace(KILLED, faults=KILLED.faults[:count]) for count in (0, 1)]

    def fails(result: SimResult) -> str:
        if len(result.schedule.faults) == 0:
            raise MemoryError
        signal.pause()
        return ""

    monkeypatch.setattr(copies, "LIMIT_S", 2.0)
    before = set(psutil.Process().children())
    assert branches(KILLED, others, fails, seed=1, stop_at="never") == {}
    assert set(psutil.Process().children()) <= before


def test_no_copy_is_made_after_stop() -> None:
    others = [replace(KILLED, faults=KILLED.faults[:count]) for count in (0, 1)]
    asked = iter((False, True))
    made = branches(KILLED, others, essence, seed=1, stop_at="never", stop=lambda: next(asked))
    assert len(made) == 1
