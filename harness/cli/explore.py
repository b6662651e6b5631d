"""`floodmark explore`: everything that can happen within bounds, on the shipped core."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from harness.cli.common import Bugs, Cores, Json, Quiet, print_json, results_in, worker_count
from harness.cli.values import WEEK_S, Number, Whole, WritableFile, taking

_FEW: dict[str, Any] = taking(Whole(0, 9))


def explore(
    protocol: Annotated[str, typer.Option(help="The protocol to explore.")] = "kafka",
    bug: Bugs = None,
    brokers: Annotated[int, typer.Option(**taking(Whole(1, 5)), help="Number of brokers.")] = 2,
    voters: Annotated[int, typer.Option(**taking(Whole(1, 5)), help="Number of voters.")] = 1,
    copies: Annotated[
        int, typer.Option(**taking(Whole(0, 5)), help="Replicas; 0: one on each broker.")
    ] = 0,
    min_isr: Annotated[int, typer.Option(**taking(Whole(1, 5)), help="min.insync.replicas.")] = 1,
    flush: Annotated[str, typer.Option(help="sync or async.")] = "sync",
    records: Annotated[int, typer.Option(**_FEW, help="Records that clients send.")] = 1,
    retries: Annotated[
        int, typer.Option(**_FEW, help="Records of idempotent producers that are sent again.")
    ] = 0,
    reads: Annotated[int, typer.Option(**_FEW, help="Reads by clients.")] = 0,
    kills: Annotated[int, typer.Option(**_FEW, help="Kills of brokers.")] = 0,
    voter_kills: Annotated[int, typer.Option(**_FEW, help="Kills of voters.")] = 0,
    power_cuts: Annotated[int, typer.Option(**_FEW, help="Power cuts.")] = 0,
    crashes: Annotated[
        int, typer.Option(**_FEW, help="Ends of a process between its commit and its messages.")
    ] = 0,
    restarts: Annotated[
        int | None, typer.Option(**_FEW, help="Restarts [default: one for each that ended].")
    ] = None,
    losses: Annotated[int, typer.Option(**_FEW, help="Messages that are lost.")] = 0,
    doubles: Annotated[int, typer.Option(**_FEW, help="Messages of which a copy is late.")] = 0,
    late_registrations: Annotated[
        int, typer.Option(**_FEW, help="Second, late copies of answers to registrations.")
    ] = 0,
    delays: Annotated[int, typer.Option(**_FEW, help="Messages that others overtake.")] = 0,
    late_metadata: Annotated[
        int, typer.Option(**_FEW, help="Messages of or to voters that others overtake.")
    ] = 0,
    cuts: Annotated[int, typer.Option(**_FEW, help="Cuts between two brokers.")] = 0,
    fencings: Annotated[
        int, typer.Option(**_FEW, help="Cuts of a live broker from the voters.")
    ] = 0,
    elections: Annotated[int, typer.Option(**_FEW, help="Elections by an operator.")] = 0,
    moves: Annotated[int, typer.Option(**_FEW, help="Moves of replicas by an operator.")] = 0,
    calm: Annotated[
        bool, typer.Option("--calm", help="Leave nodes alone while messages are under way.")
    ] = False,
    inner: Annotated[
        bool, typer.Option("--inner", help="Invariants that no client sees broken count too.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Step merged states again, from their other forms.")
    ] = False,
    memory: Annotated[
        int, typer.Option(**taking(Whole(0, 10**6)), help="Stop at this many MiB; 0: no limit.")
    ] = 6000,
    seconds: Annotated[
        float,
        typer.Option(
            **taking(Number(0, WEEK_S)), help="Stop after this much processor time; 0: no limit."
        ),
    ] = 0.0,
    cores: Cores = 0,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            **taking(WritableFile()), help="File to continue from; it is written at every end."
        ),
    ] = None,
    real: Annotated[
        bool, typer.Option("--real", help="Look for the form for real processes too.")
    ] = False,
    store: Annotated[Path, results_in("they", "explored/")] = Path("store"),
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Explore everything that can happen within bounds.

    Steps the brokers themselves, breadth first, while the clock stands still. Prints the bounds,
    the reductions, and the shortest counterexample as a schedule that fails in the simulated world.
    Exit code: 1 when an invariant was violated, 0 when none was within the bounds, 2 when that is
    open at a limit.
    """
    from harness.sim import compiled

    compiled.leave()
    from harness.explore.bounds import Bounds
    from harness.explore.explorer import ExplorationLimits
    from harness.explore.run import ExploreRequest
    from harness.explore.run import explore as run
    from harness.runs.interrupts import Interrupts
    from harness.runs.progress import Progress

    bounds = Bounds(
        protocol=protocol,
        bugs=tuple(bug or ()),
        brokers=brokers,
        voters=voters,
        copies=copies,
        min_isr=min_isr,
        flush=flush,
        records=records,
        retries=retries,
        reads=reads,
        kills=kills,
        voter_kills=voter_kills,
        power_cuts=power_cuts,
        crashes=crashes,
        restarts=restarts,
        losses=losses,
        doubles=doubles,
        late_registrations=late_registrations,
        delays=delays,
        late_metadata=late_metadata,
        cuts=cuts,
        fencings=fencings,
        elections=elections,
        moves=moves,
        calm=calm,
    ).checked()
    request = ExploreRequest(
        bounds=bounds,
        limits=ExplorationLimits(seconds=seconds, memory_mb=memory),
        inner=inner,
        check=check,
        cores=worker_count(cores),
        checkpoint=checkpoint,
        real=real,
        store=store,
    )
    with Interrupts() as interrupts, Progress(quiet=quiet) as progress:
        progress.phase(f"exploring {bounds.protocol}", seconds)
        explored = run(request, stop=lambda: interrupts.asked, told=progress.tell)
    if json:
        print_json(explored)
    else:
        _print(explored)
    return explored.exit_code


def _print(explored: Any) -> None:
    from harness.explore.report import lines
    from harness.runs.program import command_line

    for line in lines(explored.result):
        print(line)
    if explored.confirmed:
        print(f"simulated: {explored.sentence}")
        print(f"replay: {command_line('replay', explored.folder)}")
    elif explored.result.counterexamples:
        print(f"simulated: none of {explored.tried} counterexamples failed there as a schedule")
