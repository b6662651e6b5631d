"""`floodmark replay`: a schedule file once more, against what it expects."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.common import Json, Quiet, print_json

if TYPE_CHECKING:
    from harness.runs.replay import ReplayOutcome
    from nemesis.formats.schedule import Expectation


def replay(
    file: Annotated[
        Path, typer.Argument(help="A schedule file, a ready-made one's name, or a run folder.")
    ],
    world: Annotated[str, typer.Option(help="simulated or real.")] = "simulated",
    times: Annotated[int, typer.Option(help="How often; each time with the next seed.")] = 1,
    least: Annotated[
        int | None, typer.Option(help="How many must be as expected [invalid: 1; valid: all].")
    ] = None,
    expect: Annotated[
        str, typer.Option(help="valid, invalid or invalid:PROPERTY [what the schedule says].")
    ] = "",
    protocol: Annotated[str | None, typer.Option(help="Under another protocol.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the first run [the workload's].")] = None,
    trace: Annotated[bool, typer.Option("--trace", help="List every step in words.")] = False,
    keep: Annotated[
        Path | None, typer.Option(help="Leave the run folders there [simulated: none].")
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Run a schedule again; exit 0 when the runs are what it expects, 1 when not."""
    from harness.runs import replay as replays

    request = replays.ReplayRequest(
        file=file,
        world=world,
        times=times,
        least=least,
        expect=expect,
        protocol=protocol,
        seed=seed,
        trace=trace,
        keep=keep,
        quiet=quiet,
    )
    schedule = replays.requested_schedule(request)
    outcomes: list[ReplayOutcome] = []
    for outcome in replays.replay(request, print):
        outcomes.append(outcome)
        if not json:
            print(_line(len(outcomes), times, outcome))
    met = replays.is_met(schedule.expectation, outcomes, least)
    failed = sum(outcome.failed for outcome in outcomes)
    if json:
        result = {"schedule": schedule.digest(), "world": world, "failed": failed, "of": times}
        print_json(result | {"met": met, "runs": outcomes})
    else:
        print(f"failed {failed} of {times}; {_expected(schedule.expectation, met)}")
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
