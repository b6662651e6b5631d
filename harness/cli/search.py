"""`floodmark search`: looks for a schedule that breaks a protocol or a system, and shrinks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    from harness.search.campaign import Campaign, CampaignResult, Finding
    from harness.search.deadline import Stop
    from harness.search.findings import SavedFinding
    from harness.search.real.main import SystemSearchRequest
    from harness.search.real_schedule import RealSchedule

RESERVE: Final = 0.3
"""The share of --seconds that is kept for shrinking and explaining what was found."""
NO_TIME: Final = "the time was over before a real schedule was found"
UNFINISHED: Final = " (the time was over before it was the smallest)"


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
            help="How to draw: random, guided (by rare states), pct (late links), hypothesis, and "
            "to compare with: drawn, plain [default: random]."
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
    from harness.search import campaign, deadline

    seconds = wanted.budget.seconds
    is_late = deadline.after(seconds)
    output = (lambda line: None) if json else print
    with Interrupts() as interrupts, Progress(quiet=quiet) as progress:
        finds = _Finds(store / "findings", output, lambda: is_late() or interrupts.asked)
        progress.phase(f"searching {wanted.subject.protocol}", seconds)

        def report(result: CampaignResult) -> None:
            progress.tell(_status(result))
            finds.keep(result)

        if master is None:
            result = campaign.run(wanted, report, lambda: interrupts.asked)
        else:
            from harness.search.spark_campaign import run_on_spark

            result = run_on_spark(wanted, master)
        output(_summary(result))
        finds.keep(result)
        for name, finding in campaign.buckets(result):
            progress.phase(f"explaining {name}")
            finds.explain(finding)
    if json:
        print_json({"result": result, "findings": [str(f) for f in finds.folders.values()]})
    return 1 if result.findings else 2 if interrupts.asked else 0


class _Finds:
    """The findings of a search on disk, from the moment when they are known; by bucket."""

    def __init__(self, store: Path, output: Callable[[str], None], stop: Stop) -> None:
        self.folders: dict[str, Path] = {}
        self._store = store
        self._output = output
        self._stop = stop

    def keep(self, result: CampaignResult) -> None:
        """Write down what is new."""
        from harness.search import findings

        for finding in result.findings:
            known = self.folders.get(finding.bucket)
            self.folders[finding.bucket] = findings.keep(finding, self._store, known)
            if known is None:
                self._output(f"found: {finding.bucket} ({self.folders[finding.bucket]})")

    def explain(self, finding: Finding) -> None:
        """Say why it fails, and look for its form on real processes, while there is time."""
        from harness.search import findings

        before = self.folders[finding.bucket]
        saved = findings.save(finding, self._store, before=before, stop=self._stop)
        self.folders[finding.bucket] = saved.folder
        self._output("\n".join(_finding_lines(finding, saved)))
        real = findings.save_real_schedule(finding, saved.folder, stop=self._stop)
        late = real is None and self._stop()
        self._output(f"  on real processes: {NO_TIME if late else _real(real, saved)}")


def _status(result: CampaignResult) -> str:
    return (
        f"{result.schedules:,} schedules, {result.schedules_per_s:.1f}/s, "
        f"{result.failures:,} failures, {len(result.findings)} kinds; {result.states:,} joint "
        f"states, the next schedule shows another one with probability {result.unseen:.2f}"
    )


def _summary(result: CampaignResult) -> str:
    from harness.formats import not_tried

    problems = "".join(f"\n  problem: {problem}" for problem in result.problems[:5])
    # Of the kinds that were drawn: a schedule is drawn from few kinds of scenarios.
    kinds = {name.partition("/")[0] for name in result.fault_coverage}
    never = not_tried.in_words(not_tried.never_met(result.fault_coverage, kinds))
    pairs = f"\n  never met: {never}" if never else ""
    return f"{_status(result)} in {result.seconds:.1f} s{pairs}{problems}"


def _finding_lines(finding: Finding, saved: SavedFinding) -> Iterator[str]:
    """A finding for a person, and how to run it again."""
    from harness.runs.program import command_line
    from harness.search.explain import as_lines

    yield f"\n{finding.bucket}"
    yield (
        f"  found after {finding.schedules_before:,} schedules of one worker, "
        f"{finding.seconds_before:.1f} s; shrunk in {finding.shrink_tries} runs to "
        f"{len(finding.smallest.faults)} faults{'' if finding.shrunk else UNFINISHED}"
    )
    yield from (f"  {line}" for line in as_lines(saved.explanation))
    yield f"  replay: {command_line('replay', saved.folder)}"
    yield f"  page: {command_line('report', saved.folder)}"


def _real(real: RealSchedule | None, saved: SavedFinding) -> str:
    from harness.runs.program import command_line
    from harness.search.real_schedule import WORLDS

    if real is None:
        return "no real schedule was found"
    return (
        f"{command_line('replay', saved.folder, '--world', 'real', '--times', 10)} "
        f"(fails in {real.failing_worlds} of {WORLDS} simulated worlds with real latency)"
    )
