"""`floodmark replay`: runs a schedule again and compares the verdicts with its expectation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.common import Json, Quiet, print_json
from harness.cli.values import SEED, Readable, Whole, WritableFolder, taking

if TYPE_CHECKING:
    from harness.runs.replay import ReplayOutcome
    from nemesis.formats.schedule import Expectation


def replay(
    file: Annotated[
        Path,
        typer.Argument(
            **taking(Readable()),
            help="A schedule file, the name of a ready-made schedule, a run folder or a finding.",
        ),
    ],
    world: Annotated[
        str,
        typer.Option(
            help="Where to run it: simulated, or real (real processes) [default: simulated, but "
            "real for a run of another system than our brokers]."
        ),
    ] = "",
    times: Annotated[
        int,
        typer.Option(
            **taking(Whole(1, 1_000_000)), help="Number of runs; each uses the next seed."
        ),
    ] = 1,
    least: Annotated[
        int | None,
        typer.Option(
            **taking(Whole(1, 1_000_000)),
            help="How many runs must match the expectation for exit code 0 [default: 1 if invalid "
            "is expected, all if valid is].",
        ),
    ] = None,
    expect: Annotated[
        str,
        typer.Option(
            help="Expected verdict: valid, invalid or invalid:PROPERTY [default: the expectation "
            "of the schedule]."
        ),
    ] = "",
    protocol: Annotated[
        str | None, typer.Option(help="Run it under this protocol instead of that of the schedule.")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(**taking(SEED), help="Seed of the first run [default: that of the schedule]."),
    ] = None,
    trace: Annotated[
        bool, typer.Option("--trace", help="Print the run step by step, in words.")
    ] = False,
    keep: Annotated[
        Path | None,
        typer.Option(
            **taking(WritableFolder()),
            help="Folder for the run folders [default: store for real runs; simulated runs leave "
            "none].",
        ),
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Run a schedule again, simulated or on real processes.

    Exit code: 0 when the verdicts are what the schedule (or --expect) expects, else 1.
    """
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
        place = replays.world_of(request)
        result = {"schedule": schedule.digest(), "world": place, "failed": failed, "of": times}
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
