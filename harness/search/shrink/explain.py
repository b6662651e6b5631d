"""The explanation of a shrunk schedule: the history of the lost or wrong record, and the faults and
messages that the failure depends on.

One at a time, each fault of the schedule and each message that its link faults dropped or held is
left out (the message passes). Several affected messages of one kind on one link are also left out
together. If the schedule still fails, the failure does not depend on what was left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from harness.formats.finding import Counterfactual, Explanation
from harness.search.worlds.outcome import (
    ScheduleOutcome,
    failure_inside,
    failure_of,
    outcome_of,
    run_simulated,
)
from harness.search.worlds.subject import Stop, never
from harness.sim.network import AffectedMessage
from harness.sim.run import simulate
from nemesis.formats.schedule import Schedule
from node.formats.files import write_whole
from reports import wording

_Left = tuple[ScheduleOutcome, dict[str, Any]]
"""An outcome, and the fields of what was left out."""
MOST_MESSAGES: Final = 30
"""The largest number of messages that are left out one by one; each takes a run."""


Bucket = Callable[[ScheduleOutcome], str]
"""The name of the class of an outcome's failure, "" if it did not fail."""


def explain(
    schedule: Schedule, stop: Stop = never, bucket: Bucket = attrgetter("bucket")
) -> Explanation:
    """Explain a failing schedule: run it, and run it again for each fault or message that is left
    out, until `stop` returns True. The result is deterministic unless it is stopped."""
    affected: list[AffectedMessage] = []

    def listen(message: AffectedMessage) -> bool:
        affected.append(message)
        return False

    result = simulate(schedule, seed=schedule.workload.seed, stop_at="visible", exempt=listen)
    failure = failure_of(result) or failure_inside(result)
    if failure is None:
        return Explanation(schedule=schedule.digest(), sentence=result.sentence)
    named = bucket(outcome_of(result))
    changes = []
    for outcome, left_out in chain(
        _faults(schedule),
        _groups(schedule, affected),
        _messages(schedule, affected, result.info.phases.storm_us),
    ):
        instead = bucket(outcome)
        fails = instead == named
        changes.append(Counterfactual(fails=fails, instead="" if fails else instead, **left_out))
        if stop():
            break
    one_by_one = sum(change.kind == "message" for change in changes)
    return Explanation(
        schedule=schedule.digest(),
        bucket=named,
        property=failure.property,
        sentence=result.sentence,
        storm_us=result.info.phases.storm_us,
        partition=failure.partition,
        offset=failure.offset,
        sentences=failure.story().steps,
        counterfactuals=tuple(changes),
        untried=len(affected) - one_by_one,
    )


def write(explanation: Explanation, file: Path) -> None:
    """Write an explanation to a file. Raises StorageError."""
    write_whole(file, msgspec.json.format(msgspec.json.encode(explanation), indent=1) + b"\n")


def as_lines(explanation: Explanation) -> Iterator[str]:
    yield explanation.sentence
    for s in explanation.sentences:
        mark = "!" if s.rule else ">" if s.breaks else " "
        yield f"{mark} {(s.t_us - explanation.storm_us) / 1e6:7.3f} s  {s.text}"
    for one in explanation.counterfactuals:
        if one.kind == "message" and one.fails:
            continue
        result_text = "still fails" if one.fails else "does not fail"
        if one.instead:
            result_text = f"fails in another way ({one.instead})"
        yield f"without {one.without}: {result_text}"


def _faults(schedule: Schedule) -> Iterator[_Left]:
    for index, fault in enumerate(schedule.faults):
        rest = (*schedule.faults[:index], *schedule.faults[index + 1 :])
        outcome = run_simulated(replace(schedule, faults=rest))
        without = f"fault {index} ({wording.intent(fault)})"
        yield outcome, {"kind": "fault", "fault": index, "without": without}


def _groups(schedule: Schedule, affected: list[AffectedMessage]) -> Iterator[_Left]:
    """Yield the result for each group of messages of one kind on one link, if all of them pass."""
    links = Counter(message[1:] for message in affected)
    for (sender, receiver, kind), count in links.items():
        if count < 2:
            continue

        def exempt(
            message: AffectedMessage, group: tuple[str, ...] = (sender, receiver, kind)
        ) -> bool:
            return message[1:] == group

        without = f"the loss of all {count} '{kind}' from {sender} to {receiver}"
        ends = {"sender": sender, "receiver": receiver, "message": kind}
        outcome = run_simulated(schedule, exempt=exempt)
        yield outcome, {"kind": "messages", "without": without, **ends}


def _messages(
    schedule: Schedule, affected: list[AffectedMessage], storm_us: int
) -> Iterator[_Left]:
    """Yield the result for each message, if it passes."""
    for number, (t_us, sender, receiver, kind) in enumerate(affected[:MOST_MESSAGES]):
        at = f"{(t_us - storm_us) / 1e6:.3f} s"
        without = f"the loss of '{kind}' from {sender} to {receiver} at {at}"
        ends = {"sender": sender, "receiver": receiver, "message": kind}
        outcome = run_simulated(schedule, exempt=_only(number))
        yield outcome, {"kind": "message", "without": without, "t_us": t_us, **ends}


def _only(number: int) -> Callable[[AffectedMessage], bool]:
    """Return a filter of the `number`-th affected message: up to there the run is the same."""
    met = iter(range(1 << 62))
    return lambda message: next(met) == number
