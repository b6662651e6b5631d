"""`floodmark search`: looks for a schedule that breaks a protocol, and shrinks what it finds."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from checker.story import tell
from harness.progress import Progress
from harness.search import campaign
from harness.search.attempt import attempt, place
from harness.search.campaign import Budget, Campaign, Finding, Tally
from harness.search.engines import Subject
from harness.search.explain import counterfactuals
from harness.search.steady import for_real
from harness.sim.run import simulate
from nemesis.schedule import Schedule
from node.core import protocol as protocols
from node.core import switches

EXIT_NOTHING: Final = 0
EXIT_FOUND: Final = 1


class SearchWish(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a search, as typed."""

    protocol: str
    switches: tuple[str, ...] = ()
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
        tuple(sorted({switches.canonical(name) for name in wish.switches})),
    )
    wanted = Campaign(
        subject=subject, engine=wish.engine, seed=wish.seed, cores=wish.cores,
        budget=Budget(
            seconds=wish.seconds, schedules=wish.schedules, until_failure=wish.until_failure
        ),
    )  # fmt: skip
    wanted.check()
    with Progress(quiet=wish.quiet) as progress:
        progress.phase(f"searching {subject.protocol}", wish.seconds)
        if wish.master is None:
            tally = campaign.run(wanted, lambda tally: progress.tell(_status(tally)))
        else:
            from harness.search.spread import run_spread

            tally = run_spread(wanted, wish.master)
    folder = wish.store / "findings"
    files = [save(finding, folder) for _, finding in campaign.buckets(tally)]
    if wish.json:
        print(msgspec.json.encode({"tally": tally, "files": [str(f) for f in files]}).decode())
    else:
        _print(tally, files)
    return EXIT_FOUND if tally.findings else EXIT_NOTHING


def save(finding: Finding, folder: Path) -> Path:
    """Write the smallest schedule of a finding as a file to replay. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{finding.smallest.name}-{finding.smallest.digest()}.json"
    file.write_bytes(finding.smallest.to_pretty_json())
    return file


def save_for_real(finding: Finding, beside: Path) -> Path | None:
    """Write the form that real processes can carry out, None if there is none. Raises OSError."""

    def fails_alike(candidate: Schedule, seed: int) -> bool:
        return finding.property in attempt(candidate, seed, stop_at="never").broken

    found = for_real(finding.smallest, fails_alike)
    if found is None:
        return None
    file = beside.with_name(f"{beside.stem}-real.json")
    file.write_bytes(found.to_pretty_json())
    return file


def _status(tally: Tally) -> str:
    return (
        f"{tally.schedules:,} schedules, {tally.schedules_per_s:.1f}/s, "
        f"{tally.coverage} decisions met, up to {tally.states} states a run, "
        f"{tally.failures:,} failures, "
        f"{len(tally.findings)} kinds"
    )


def _print(tally: Tally, files: list[Path]) -> None:
    print(f"{_status(tally)} in {tally.seconds:.1f} s")
    for problem in tally.problems[:5]:
        print(f"  problem: {problem}")
    for (name, finding), file in zip(campaign.buckets(tally), files, strict=True):
        print(f"\n{name}")
        print(f"  found after {finding.schedules_before:,} schedules of one worker, "
              f"{finding.seconds_before:.1f} s; shrunk in {finding.shrink_tries} runs to "
              f"{len(finding.smallest.faults)} faults")  # fmt: skip
        print("\n".join(story(finding.smallest)))
        for one in counterfactuals(finding.smallest, partial(_fails_as, name)):
            print(f"  without {one.without}: {'still fails' if one.fails else 'does not fail'}")
        print(f"  replay: floodmark replay {file}")
        slow = save_for_real(finding, file)
        if slow is not None:
            print(f"  on real processes: floodmark replay {slow} --world real --times 10")


def _fails_as(bucket: str, schedule: Schedule) -> bool:
    return attempt(schedule).bucket == bucket


def story(schedule: Schedule) -> list[str]:
    """The smallest story of a failing schedule, in lines."""
    result = simulate(schedule, seed=schedule.workload.seed, stop_at="visible")
    partition, offset, _ = place(result)
    lines = [f"  {result.sentence}"]
    if partition and offset >= 0:
        zero_us = result.info.phases.storm_us
        for s in tell(result.trace, result.faults, partition=partition, offset=offset):
            mark = "!" if s.breaks else " "
            lines.append(f"  {mark} {(s.t_us - zero_us) / 1e6:7.3f} s  {s.text}")
    return lines
