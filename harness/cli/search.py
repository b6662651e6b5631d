"""`floodmark search`: looks for a schedule that breaks a protocol or a system, and shrinks it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from harness.cli.common import (
    Bugs,
    Cores,
    Jobs,
    Json,
    Quiet,
    Settings,
    SystemFile,
    one_system,
    print_json,
    results_in,
    worker_count,
)
from harness.cli.values import SEED, WEEK_S, Number, Whole, taking

if TYPE_CHECKING:
    from harness.search.campaign import Campaign
    from harness.search.real.main import SystemSearchRequest

RESERVE: Final = 0.3
"""The share of --seconds that is kept for shrinking and explaining what was found."""


def search(
    protocol: Annotated[
        str | None,
        typer.Option(help="The protocol to break, in simulated worlds [default: kafka]."),
    ] = None,
    system: Annotated[
        str | None,
        typer.Option(
            help="Search on real processes of this system instead; `floodmark systems` lists them."
        ),
    ] = None,
    system_file: SystemFile = None,
    setting: Settings = None,
    bug: Bugs = None,
    faults: Annotated[
        str | None,
        typer.Option(
            help="Kinds of faults of disks that schedules may have beside the others, a comma "
            "list; disk: all that one broker survives. Of a system: all kinds that storms may "
            "have [default: in the simulated world a few of disks; else all but disks, clocks and "
            "system calls; power cuts too]."
        ),
    ] = None,
    dimension: Annotated[
        list[str] | None,
        typer.Option(
            help="What every schedule has: retention, idempotent, clock-rates or "
            "resized-partitions; repeatable."
        ),
    ] = None,
    disks: Annotated[
        str | None,
        typer.Option(
            help="Of a system: how many nodes may lose what they have not synced: none, one or any "
            "[default: any]."
        ),
    ] = None,
    links: Annotated[
        str | None, typer.Option(help="Of a system: what stands between its nodes, as for `run`.")
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help="How to draw: random, or to compare with: drawn (repeats no run with another "
            "end), plain (the faults of a storm) [default: random]."
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(**taking(SEED), help="The same seed tries the same schedules.")
    ] = 0,
    seconds: Annotated[
        float,
        typer.Option(
            **taking(Number(0, WEEK_S)),
            help="End after this many seconds, all that follows a find included; 0: no limit.",
        ),
    ] = 0.0,
    budget: Annotated[
        str | None, typer.Option(help="The same as --seconds, written like 90s, 15m or 1h30m.")
    ] = None,
    schedules: Annotated[
        int,
        typer.Option(
            **taking(Whole(0, 10**9)), help="Stop after this many schedules; 0: no limit."
        ),
    ] = 0,
    until_failure: Annotated[
        bool, typer.Option("--until-failure", help="Stop at the first finding.")
    ] = False,
    no_shrink: Annotated[
        bool, typer.Option("--no-shrink", help="Of a system: only keep what is found.")
    ] = False,
    cores: Cores = 0,
    jobs: Jobs = 0,
    master: Annotated[
        str | None,
        typer.Option(help="URL of a Spark cluster to search on instead of this machine."),
    ] = None,
    store: Annotated[Path, results_in("findings", "findings/ or system-findings/")] = Path("store"),
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Search for a schedule that breaks a protocol, or a system of real processes.

    Runs drawn schedules in simulated worlds, or with --system drawn storms on real processes, and
    shrinks the first failure of each class to the faults that it needs. A find is saved as soon as
    it is known. Needs an end: --seconds, --budget, --schedules or --until-failure; Ctrl-C ends it
    early and keeps what was found. Exit code: 1 when a failure was found, else 0, or 2 when it was
    ended early.
    """
    from harness.search import campaign
    from harness.search.dimensions import late_dimensions
    from harness.search.engines import Subject, disk_faults
    from harness.search.real.main import SystemSearchRequest
    from node.core import bugs
    from node.core import protocol as protocols

    seconds = _seconds(seconds, budget)
    asked = one_system(system, system_file)
    if asked is not None:
        _refuse_beside_system(
            protocol=protocol,
            bug=bug,
            dimension=dimension,
            engine=engine,
            master=master,
            cores=cores or None,
        )
        request = SystemSearchRequest(
            system=asked,
            settings=tuple(setting or ()),
            faults=faults or "",
            disks=disks or "any",
            links=links or "",
            seed=seed,
            seconds=seconds,
            storms=schedules,
            until_failure=until_failure,
            shrinks=not no_shrink,
            jobs=jobs,
            store=store,
        )
        return _search_system(request, quiet=quiet, json=json)
    _refuse_without_system(
        **{"set": setting, "disks": disks, "links": links, "jobs": jobs, "no-shrink": no_shrink}
    )
    wanted = campaign.Campaign(
        subject=Subject(
            protocols.protocol(protocol or "kafka").name,
            tuple(sorted({bugs.canonical(name) for name in bug or ()})),
            disk_faults(faults) if faults else (),
            late_dimensions(dimension or ()),
        ),
        engine=engine or "random",
        seed=seed,
        cores=worker_count(cores),
        budget=campaign.Budget(
            seconds=seconds, schedules=schedules, until_failure=until_failure, reserve=RESERVE
        ),
    )
    wanted.check()
    return _search_simulated(wanted, master, store, quiet=quiet, json=json)


def _seconds(seconds: float, budget: str | None) -> float:
    """The time of the whole command. Raises UsageError when it is told twice."""
    from harness.nightly.plan import seconds_of
    from node.formats.errors import UsageError

    if budget is None:
        return seconds
    if seconds:
        raise UsageError("--budget and --seconds exclude each other")
    return seconds_of(budget)


def _refuse_beside_system(**options: object) -> None:
    """Refuse options that mean nothing to the search on real processes."""
    from node.formats.errors import UsageError

    for name, value in options.items():
        if value:
            raise UsageError(f"--{name} is about simulated worlds, and means nothing to --system")


def _refuse_without_system(**options: object) -> None:
    """Refuse options that mean nothing to the simulated search."""
    from node.formats.errors import UsageError

    for name, value in options.items():
        if value:
            raise UsageError(f"--{name} is about real processes: name a system with --system")


def _search_system(request: SystemSearchRequest, *, quiet: bool, json: bool) -> int:
    """On real processes."""
    from harness.runs.interrupts import Interrupts
    from harness.runs.progress import Progress
    from harness.search.real.main import search_system

    output = (lambda line: None) if json else _print_now
    with Interrupts() as interrupts, Progress(quiet=quiet) as progress:
        result = search_system(request, interrupts, progress, output)
    if json:
        print_json(result)
    return 1 if result.findings else 2 if interrupts.asked else 0


def _print_now(line: str) -> None:
    print(line, flush=True)


def _search_simulated(
    wanted: Campaign, master: str | None, store: Path, *, quiet: bool, json: bool
) -> int:
    """In simulated worlds."""
    from harness.runs.interrupts import Interrupts
    from harness.runs.progress import Progress
    from harness.search.simulated_search import search_simulated

    output = (lambda line: None) if json else print
    with Interrupts() as interrupts, Progress(quiet=quiet) as progress:
        result, finds = search_simulated(wanted, master, store, interrupts, progress, output)
    if json:
        print_json({"result": result, "findings": [str(f) for f in finds.folders.values()]})
    return 1 if result.findings else 2 if interrupts.asked else 0
