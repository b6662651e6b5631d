"""`floodmark search`: looks for a schedule that breaks a protocol, and shrinks what it finds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.common import Bugs, Json, Quiet, print_json, worker_count

if TYPE_CHECKING:
    from harness.search.campaign import Finding, Tally
    from harness.search.findings import SavedFinding


def search(
    protocol: Annotated[str, typer.Option(help="The protocol to break.")] = "kafka",
    bug: Bugs = None,
    engine: Annotated[str, typer.Option(help="random, guided or hypothesis.")] = "random",
    seed: Annotated[int, typer.Option(help="The same seed tries the same schedules.")] = 0,
    seconds: Annotated[float, typer.Option(help="Stop after so long; 0: no limit.")] = 0.0,
    schedules: Annotated[int, typer.Option(help="Stop after so many; 0: no limit.")] = 0,
    until_failure: Annotated[
        bool, typer.Option("--until-failure", help="Stop at the first finding.")
    ] = False,
    cores: Annotated[int, typer.Option(help="Worker processes; 0: one a core.")] = 0,
    master: Annotated[
        str | None, typer.Option(help="Search on the cores of this Spark master instead.")
    ] = None,
    store: Annotated[Path, typer.Option(help="Findings go to findings/ there.")] = Path("store"),
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Look for a schedule that breaks a protocol, in simulated worlds; exit 1 when one is found."""
    from harness.runs.progress import Progress
    from harness.search import campaign
    from harness.search.engines import Subject
    from harness.search.findings import save, save_real
    from node.core import bugs
    from node.core import protocol as protocols

    wanted = campaign.Campaign(
        subject=Subject(
            protocols.protocol(protocol).name,
            tuple(sorted({bugs.canonical(name) for name in bug or ()})),
        ),
        engine=engine,
        seed=seed,
        cores=worker_count(cores),
        budget=campaign.Budget(seconds=seconds, schedules=schedules, until_failure=until_failure),
    )
    wanted.check()
    output = (lambda line: None) if json else print
    with Progress(quiet=quiet) as progress:
        progress.phase(f"searching {wanted.subject.protocol}", seconds)
        if master is None:
            tally = campaign.run(wanted, lambda tally: progress.tell(_status(tally)))
        else:
            from harness.search.spark_campaign import run_spread

            tally = run_spread(wanted, master)
        output(_summary(tally))
        folders = []
        for name, finding in campaign.buckets(tally):
            progress.phase(f"explaining {name}")
            saved = save(finding, store / "findings")
            folders.append(str(saved.folder))
            output("\n".join(_finding_lines(finding, saved)))
            progress.phase("looking for a form of it for real processes")
            form = save_real(finding, saved.folder)
            output(f"  on real processes: {_real(None if form is None else form.surely, saved)}")
    if json:
        print_json({"tally": tally, "findings": folders})
    return 1 if tally.findings else 0


def _status(tally: Tally) -> str:
    return (
        f"{tally.schedules:,} schedules, {tally.schedules_per_s:.1f}/s, "
        f"{tally.coverage} decisions met, up to {tally.states} states a run, "
        f"{tally.failures:,} failures, {len(tally.findings)} kinds"
    )


def _summary(tally: Tally) -> str:
    problems = "".join(f"\n  problem: {problem}" for problem in tally.problems[:5])
    return f"{_status(tally)} in {tally.seconds:.1f} s{problems}"


def _finding_lines(finding: Finding, saved: SavedFinding) -> Iterator[str]:
    """A finding for a person, and how to run it again."""
    from harness.search.explain import in_lines

    yield f"\n{finding.bucket}"
    yield (
        f"  found after {finding.schedules_before:,} schedules of one worker, "
        f"{finding.seconds_before:.1f} s; shrunk in {finding.shrink_tries} runs to "
        f"{len(finding.smallest.faults)} faults"
    )
    yield from (f"  {line}" for line in in_lines(saved.explanation))
    yield f"  replay: floodmark replay {saved.folder}"
    yield f"  page: floodmark report {saved.folder}"


def _real(surely: int | None, saved: SavedFinding) -> str:
    from harness.search.real_schedule import WORLDS

    if surely is None:
        return "no form of it was found that should fail there"
    return (
        f"floodmark replay {saved.folder} --world real --times 10 "
        f"(fails in {surely} of {WORLDS} rough simulated worlds)"
    )
