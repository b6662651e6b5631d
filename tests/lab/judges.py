"""Drawn schedules judged twice: by our own checks and by the outside judge of the KIP-966 model.

    python -m tests.lab judges [--schedules 1000] [--seed 0] [--first 0] [--bug M2 ...]

Where the two differ, one of them or the system is wrong, or the difference has a reason that
docs/outside-judge.md states. The exit code is 1 if they differ.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec

from checker.formats.verdict import Verdict
from checker.outside.judge import BrokenInvariant, judge_trace
from checker.outside.run_folder import PROTOCOL, why_not_judged
from harness.search.choice_source import RandomChoices
from harness.search.generator import draw_schedule
from harness.sim.run import SimResult, batched_collections, simulate
from nemesis.formats.schedule import Schedule
from node.core.bugs import canonical

OURS: Final = {
    "LeaderCandidateCompleteness": {"candidate-completeness"},
    "ReplicationQuorumSuperset": {"quorum-superset"},
    "ValidControllerIsrAndElr": {"valid-isr-and-elr"},
    "ValidControllerState": {"fenced-in-isr"},
    "LogMatching": {"log-matching", "divergence"},
    "LeaderCompleteness": {"acknowledged-lost", "leader-completeness", "incomplete-leader"},
    "ConsistentRead": {"consistent-read", "acknowledged-lost", "leader-completeness"},
    "NoCommittedRecordLostGlobally": {"acknowledged-lost", "leader-completeness"},
}
"""The invariants and anomalies of ours that state what an invariant of the model states."""


class Disagreement(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule of which only one judge complains, or of which the two complain otherwise."""

    number: int
    ours: tuple[str, ...]
    outside: tuple[str, ...]
    sentences: tuple[str, ...]


class TwoVerdicts(msgspec.Struct, frozen=True, kw_only=True):
    """Schedules that both judged. `agreed_broken` were broken for both; `not_judged` counts those
    of which the model says nothing, by reason. `judge_us` is processor time of the outside judge.
    """

    bugs: tuple[str, ...]
    seed: int
    first: int
    schedules: int
    agreed_sound: int
    agreed_broken: int
    not_judged: dict[str, int]
    disagreements: tuple[Disagreement, ...]
    events: int
    judge_us: int

    @property
    def judged(self) -> int:
        """The number of schedules that both judged."""
        return self.agreed_sound + self.agreed_broken + len(self.disagreements)


def schedule_of(bugs: tuple[str, ...], seed: int, number: int) -> Schedule:
    return draw_schedule(RandomChoices(random.Random(f"two/{seed}/{number}")), PROTOCOL, bugs)


def compare_judges(bugs: tuple[str, ...], seed: int, first: int, schedules: int) -> TwoVerdicts:
    """Judge that many drawn schedules twice, with the known bugs `bugs` turned on."""
    sound = broken = events = judge_ns = 0
    not_judged: Counter[str] = Counter()
    apart = []
    with batched_collections():
        for number in range(first, first + schedules):
            schedule = schedule_of(bugs, seed, number)
            run = simulate(schedule, seed=schedule.workload.seed, stop_at="never")
            promise = msgspec.to_builtins(run.info.promise)
            if why_not := why_not_judged(schedule.cluster.protocol, promise):
                not_judged[why_not] += 1
                continue
            began_ns = time.process_time_ns()
            judge = judge_trace(run.trace)
            judge_ns += time.process_time_ns() - began_ns
            events += judge.events
            ours = complaints(run)
            if not ours and not judge.broken:
                sound += 1
            elif agree(ours, judge.broken):
                broken += 1
            else:
                apart.append(_disagreement(number, run, ours, judge.broken))
    return TwoVerdicts(
        bugs=bugs,
        seed=seed,
        first=first,
        schedules=schedules,
        agreed_sound=sound,
        agreed_broken=broken,
        not_judged=dict(not_judged),
        disagreements=tuple(apart),
        events=events,
        judge_us=judge_ns // 1000,
    )


def complaints(run: SimResult) -> set[str]:
    """Return the complaints of our own checks: invariants, and anomalies of the checker."""
    found = {violation.invariant for violation in run.violations}
    return found | {a.name for a in run.checked.anomalies if a.verdict is Verdict.INVALID}


def agree(ours: set[str], broken: Iterable[BrokenInvariant]) -> bool:
    """Return whether both complain, and each invariant of the model that is broken has one of ours
    beside it."""
    outside = {found.invariant for found in broken}
    return bool(ours and outside) and all(OURS.get(name, set()) & ours for name in outside)


def _disagreement(
    number: int, run: SimResult, ours: set[str], broken: list[BrokenInvariant]
) -> Disagreement:
    said = [violation.sentence for violation in run.violations]
    said += [found.sentence for found in broken]
    return Disagreement(
        number=number,
        ours=tuple(sorted(ours)),
        outside=tuple(found.invariant for found in broken),
        sentences=tuple(said),
    )


def in_words(compared: TwoVerdicts) -> str:
    """Format the comparison for a terminal: the figures, then each disagreement."""
    with_bugs = f" with {' '.join(compared.bugs)}" if compared.bugs else ""
    lines = [
        f"{compared.schedules:,} schedules{with_bugs}: {compared.judged:,} judged by both, "
        f"{compared.agreed_sound:,} sound and {compared.agreed_broken:,} broken for both, "
        f"{len(compared.disagreements):,} judged differently; {compared.events:,} trace events in "
        f"{compared.judge_us / 1e6:.1f} s of a core."
    ]
    lines += [f"  {count:,} not judged: {why}" for why, count in compared.not_judged.items()]
    for each in compared.disagreements:
        ours, outside = " ".join(each.ours) or "nothing", " ".join(each.outside) or "nothing"
        lines.append(f"  schedule {each.number}: ours {ours}; the model {outside}")
        lines += [f"    {sentence}" for sentence in each.sentences]
    return "\n".join(lines)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the comparison."""
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first schedule")
    parser.add_argument("--bug", nargs="*", default=[], help="known bugs that are turned on")


def run(given: argparse.Namespace) -> int:
    """Compare the judges, and print the figures and each disagreement."""
    bugs = tuple(map(canonical, given.bug))
    made = compare_judges(bugs, given.seed, given.first, given.schedules)
    print(in_words(made))
    return int(bool(made.disagreements))
