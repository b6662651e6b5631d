"""`floodmark replay`: runs a schedule again and compares the verdicts with its expectation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.cli.common import print_json
from harness.runs.requests import ReplayRequest

if TYPE_CHECKING:
    from harness.replay.replay import ReplayOutcome
    from nemesis.formats.schedule import Expectation


def replay(request: ReplayRequest) -> int:
    """Run a schedule again, simulated or on real processes.

    Exit code: 0 when the verdicts are what the schedule (or --expect) expects, else 1."""
    from harness.replay import replay as replays

    schedule = replays.requested_schedule(request)
    outcomes: list[ReplayOutcome] = []
    for outcome in replays.replay(request, print):
        outcomes.append(outcome)
        if not request.json:
            print(_line(len(outcomes), request.times, outcome))
    met = replays.is_met(schedule.expectation, outcomes)
    failed = sum(outcome.failed for outcome in outcomes)
    if request.json:
        place = replays.world_of(request)
        result = {"schedule": schedule.digest(), "world": place, "failed": failed}
        print_json(result | {"of": request.times, "met": met, "runs": outcomes})
    else:
        print(f"failed {failed} of {request.times}; {_expected(schedule.expectation, met)}")
    return 0 if met else 1


def _expected(expected: Expectation, met: bool) -> str:
    if expected.verdict == "any":
        return "the schedule expects nothing in particular"
    about = f" ({expected.property})" if expected.property else ""
    return f"expected {expected.verdict}{about}: {'met' if met else 'not met'}"


def _line(number: int, times: int, outcome: ReplayOutcome) -> str:
    count = f"{number}/{times} " if times > 1 else ""
    at = f"  {outcome.folder}" if outcome.folder else ""
    return f"{count}seed {outcome.seed}: {outcome.sentence}{at}"
