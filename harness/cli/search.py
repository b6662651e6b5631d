"""`floodmark search`: looks for a schedule that breaks a protocol, and shrinks what it finds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from harness.runs.progress import Progress
from harness.search import campaign
from harness.search.campaign import Budget, Campaign, Finding, Tally
from harness.search.engines import Subject
from harness.search.explain import in_lines
from harness.search.findings import Saved, save, save_real
from harness.search.real_schedule import WORLDS, RealForm
from node.core import bugs
from node.core import protocol as protocols

EXIT_NOTHING: Final = 0
EXIT_FOUND: Final = 1


class SearchWish(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a search, as typed."""

    protocol: str
    bugs: tuple[str, ...] = ()
    engine: str = "random"
    seed: int = 0
    seconds: float = 0.0
    schedules: int = 0
    until_failure: bool = False
    cores: int = 1
    master: str | None = None
    store: Path = Path("store")
    json: bool = False
    quiet: bool = False


def search_command(wish: SearchWish) -> int:
    """Carry out `floodmark search`; 1 when something was found, else 0. Raises UsageError."""
    subject = Subject(
        protocols.protocol(wish.protocol).name,
        tuple(sorted({bugs.canonical(name) for name in wish.bugs})),
    )
    wanted = Campaign(
        subject=subject,
        engine=wish.engine,
        seed=wish.seed,
        cores=wish.cores,
        budget=Budget(
            seconds=wish.seconds, schedules=wish.schedules, until_failure=wish.until_failure
        ),
    )
    wanted.check()
    with Progress(quiet=wish.quiet) as progress:
        progress.phase(f"searching {subject.protocol}", wish.seconds)
        if wish.master is None:
            tally = campaign.run(wanted, lambda tally: progress.tell(_status(tally)))
        else:
            from harness.search.spark_campaign import run_spread

            tally = run_spread(wanted, wish.master)
        if not wish.json:
            print(_summary(tally))
        folders = []
        for name, finding in campaign.buckets(tally):
            progress.phase(f"explaining {name}")
            kept = save(finding, wish.store / "findings")
            folders.append(str(kept.folder))
            if not wish.json:
                print("\n".join(_told(finding, kept)))
            progress.phase("making a form of it for real processes")
            form = save_real(finding, kept.folder)
            if not wish.json:
                print(f"  {_real_line(form, kept.folder)}")
    if wish.json:
        print(msgspec.json.encode({"tally": tally, "findings": folders}).decode())
    return EXIT_FOUND if tally.findings else EXIT_NOTHING


def _status(tally: Tally) -> str:
    return (
        f"{tally.schedules:,} schedules, {tally.schedules_per_s:.1f}/s, "
        f"{tally.coverage} decisions met, up to {tally.states} states a run, "
        f"{tally.failures:,} failures, "
        f"{len(tally.findings)} kinds"
    )


def _summary(tally: Tally) -> str:
    problems = "".join(f"\n  problem: {problem}" for problem in tally.problems[:5])
    return f"{_status(tally)} in {tally.seconds:.1f} s{problems}"


def _told(finding: Finding, kept: Saved) -> Iterator[str]:
    """A finding for a person, and how to run it again."""
    yield f"\n{finding.bucket}"
    yield (
        f"  found after {finding.schedules_before:,} schedules of one worker, "
        f"{finding.seconds_before:.1f} s; shrunk in {finding.shrink_tries} runs to "
        f"{len(finding.smallest.faults)} faults"
    )
    yield from (f"  {line}" for line in in_lines(kept.explanation))
    yield f"  replay: floodmark replay {kept.folder}"
    yield f"  page: floodmark report {kept.folder}"


def _real_line(form: RealForm | None, folder: Path) -> str:
    if form is None:
        return "on real processes: no form of it was found that should fail there"
    return (
        f"on real processes: floodmark replay {folder} --world real --times 10 "
        f"(fails in {form.surely} of {WORLDS} rough simulated worlds)"
    )
