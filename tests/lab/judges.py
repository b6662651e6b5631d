"""Drawn schedules judged twice: by our own checks and by the outside judge of the KIP-966 model.

    python -m tests.lab judges [--schedules 1000] [--seed 0] [--first 0] [--bug M2 ...]

Where the two differ, one of them or the system is wrong, or the difference has a reason that
docs/outside-judge.md states. The exit code is 1 if they differ without such a reason."""

from __future__ import annotations

import argparse
import random
from collections import Counter
from typing import Final

import msgspec

from checker.formats.anomalies import CATALOGUE, LIVENESS
from checker.formats.verdict import Verdict
from harness.search.grammar.phrases import compose
from harness.sim.run import SimResult, batched_collections, simulate
from node.core.bugs import canonical
from tests.lab.outside_judge.judge import judge_trace
from tests.lab.outside_judge.run_folder import PROTOCOL, why_not_judged

LOST: Final = {"acknowledged-lost", "acknowledged-early"}
"""A record that was acknowledged early and lost before the client knew is no loss of ours."""
OURS: Final = {
    "LeaderCandidateCompleteness": {"candidate-completeness"},
    "ReplicationQuorumSuperset": {"quorum-superset"},
    "ValidControllerIsrAndElr": {"valid-isr-and-elr"},
    "ValidControllerState": {"fenced-in-isr"},
    "LogMatching": {"log-matching", "divergence"},
    "LeaderCompleteness": {"leader-completeness", "incomplete-leader", *LOST},
    "ConsistentRead": {"consistent-read", "acknowledged-lost", "leader-completeness"},
    "NoCommittedRecordLostGlobally": {"leader-completeness", *LOST},
}
"""The invariants and anomalies of ours that state what an invariant of the model states."""
ONLY_OURS: Final = {
    "clean-election",
    "leader-outside-isr",
    "acknowledged-early",
    "divergent-tail",
} | {kind.name for kind in CATALOGUE if kind.property == LIVENESS}
"""What the model has no invariant for (docs/outside-judge.md)."""
SOUND, BROKEN, DIFFER = "sound for both", "broken for both", "judged differently"
KNOWN: Final = "broken for ours only, in what the model does not state"


def judged_twice(bugs: tuple[str, ...], seed: int, number: int) -> tuple[str, list[str]]:
    """Return what both judges say of a drawn schedule, and the sentences of both."""
    schedule = compose(random.Random(f"two/{seed}/{number}"), PROTOCOL, bugs)
    run = simulate(schedule, seed=schedule.workload.seed, stop_at="never")
    promise = msgspec.to_builtins(run.info.promise)
    if why_not := why_not_judged(schedule.cluster.protocol, promise):
        return f"not judged: {why_not}", []
    ours, theirs = complaints(run), judge_trace(run.trace).broken
    outside = {found.invariant for found in theirs}
    names = [" ".join(sorted(each)) or "nothing" for each in (ours, outside)]
    said = [f"ours {names[0]}; the model {names[1]}"]
    said += [each.sentence for each in (*run.violations, *theirs)]
    if not ours and not outside:
        return SOUND, said
    if not outside and ours <= ONLY_OURS:
        return KNOWN, said
    # Each invariant of the model that is broken has one of ours beside it.
    agree = ours and outside and all(OURS.get(name, set()) & ours for name in outside)
    return (BROKEN if agree else DIFFER), said


def complaints(run: SimResult) -> set[str]:
    """Return the complaints of our own checks: invariants, and anomalies of the checker."""
    found = {violation.invariant for violation in run.violations}
    return found | {a.name for a in run.checked.anomalies if a.verdict is Verdict.INVALID}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the comparison."""
    parser.add_argument("--schedules", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first schedule")
    parser.add_argument("--bug", nargs="*", default=[], help="known bugs that are turned on")


def run(given: argparse.Namespace) -> int:
    """Compare the judges, and print each disagreement and the counts."""
    bugs, counts = tuple(map(canonical, given.bug)), Counter[str]()
    with batched_collections():
        for number in range(given.first, given.first + given.schedules):
            outcome, said = judged_twice(bugs, given.seed, number)
            counts[outcome] += 1
            if outcome == DIFFER:
                print(f"schedule {number}:", *said, sep="\n  ")
    print("\n".join(f"{count:,} {outcome}" for outcome, count in counts.most_common()))
    return int(counts[DIFFER] > 0)
