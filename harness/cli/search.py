"""`floodmark search`: looks for a schedule that breaks a protocol, and shrinks what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from harness.cli.common import Bugs, Json, Quiet, print_json, worker_count
from harness.cli.values import CORES, SEED, WEEK_S, Number, Whole, WritableFolder, taking

if TYPE_CHECKING:
    from harness.search.campaign import CampaignResult, Finding
    from harness.search.deadline import Stop
    from harness.search.findings import SavedFinding
    from harness.search.real_schedule import RealSchedule

RESERVE: Final = 0.3
"""The share of --seconds that is kept for shrinking and explaining what was found."""
NO_TIME: Final = "the time was over before a real schedule was found"
UNFINISHED: Final = " (the time was over before it was the smallest)"


def search(
    protocol: Annotated[str, typer.Option(help="The protocol to break.")] = "kafka",
    bug: Bugs = None,
    faults: Annotated[
        str | None,
        typer.Option(
            help="Kinds of faults of disks that schedules may have beside the others, a comma "
            "list; disk: all that one broker survives."
        ),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(help="How schedules are drawn: random, guided (by coverage) or hypothesis."),
    ] = "random",
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
    schedules: Annotated[
        int,
        typer.Option(
            **taking(Whole(0, 10**9)), help="Stop after this many schedules; 0: no limit."
        ),
    ] = 0,
    until_failure: Annotated[
        bool, typer.Option("--until-failure", help="Stop at the first finding.")
    ] = False,
    cores: Annotated[
        int, typer.Option(**taking(CORES), help="Number of worker processes; 0: one per core.")
    ] = 0,
    master: Annotated[
        str | None,
        typer.Option(help="URL of a Spark cluster to search on instead of this machine."),
    ] = None,
    store: Annotated[
        Path,
        typer.Option(
            **taking(WritableFolder()), help="Folder for results; findings go to its findings/."
        ),
    ] = Path("store"),
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Search for a schedule that breaks a protocol.

    Runs drawn schedules in simulated worlds, and shrinks the first failure of each class to the
    faults that it needs. A find is saved as soon as it is known. Needs an end: --seconds,
    --schedules or --until-failure; Ctrl-C ends it early and keeps what was found. Exit code: 1 when
    a failure was found, else 0, or 2 when it was ended early.
    """
    from harness.runs.interrupts import Interrupts
    from harness.runs.progress import Progress
    from harness.search import campaign, deadline
    from harness.search.engines import Subject, disk_faults
    from node.core import bugs
    from node.core import protocol as protocols

    wanted = campaign.Campaign(
        subject=Subject(
            protocols.protocol(protocol).name,
            tuple(sorted({bugs.canonical(name) for name in bug or ()})),
            disk_faults(faults) if faults else (),
        ),
        engine=engine,
        seed=seed,
        cores=worker_count(cores),
        budget=campaign.Budget(
            seconds=seconds, schedules=schedules, until_failure=until_failure, reserve=RESERVE
        ),
    )
    wanted.check()
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
    problems = "".join(f"\n  problem: {problem}" for problem in result.problems[:5])
    return f"{_status(result)} in {result.seconds:.1f} s{problems}"


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
