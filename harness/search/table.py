"""The texts that a search prints. Pure, except that it reads explanations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from harness.formats.finding import EXPLANATION, STORE_FOLDER, Explanation, Finding
from harness.formats.journal import SearchedRow
from harness.formats.nightly_run import in_words, never_met, rate_of_new
from harness.runs.program import command_line
from harness.search.findings import again
from harness.search.loop import Budget
from harness.search.shrink.explain import as_lines
from harness.search.shrink.real_schedule import RUNS
from harness.search.worlds.simulated import INTERNAL
from harness.search.worlds.subject import GIVEN
from node.formats.json_input import Unreadable, read_file
from reports import wording

LEAST_RATE: Final = 0.1
"""The fewest runs a second that are worth a word: storms of real processes take their time."""
UNFINISHED: Final = " (the time was over before it was the smallest)"


def status(total: SearchedRow, kinds: int, seconds: float = 0.0) -> str:
    """Return a line on the progress of a search."""
    if not total.runs:
        return "no run has ended yet"
    verdicts = ", ".join(f"{n} {verdict}" for verdict, n in sorted(total.verdicts.items()))
    words = [f"{wording.count(total.schedules, 'schedule')}{f' ({verdicts})' if verdicts else ''}"]
    if seconds >= 1 and total.runs / seconds >= LEAST_RATE:
        words.append(f"{total.runs / seconds:.1f} runs/s")
    words.append(wording.count(total.failures, "failure"))
    words.append(wording.count(kinds, "kind"))
    return ", ".join(words)


def shrinking(finding: Finding) -> str:
    """Return a text on how far the shrinking of a finding has come."""
    if finding.shrunk:
        return f"shrunk to {_faults(len(finding.smallest.faults))}; it is being explained"
    begun = f"shrinking {finding.bucket}: {_faults(len(finding.drawn.faults))}"
    if not finding.shrink_runs:
        return begun
    runs = wording.count(finding.shrink_runs, "run")
    return f"{begun} to {len(finding.smallest.faults)} in {runs}"


def summary(total: SearchedRow, kinds: int, seconds: float) -> str:
    """Return the result of a search with `kinds` of failures; without any, what was not tried."""
    lines = [f"{status(total, kinds, seconds)} in {seconds:.1f} s"]
    lines += [f"  {number} x {name}" for name, number in sorted(total.buckets.items())]
    if total.fault_coverage and not kinds:
        lines += _not_tried(total.fault_coverage)
    lines += [f"  problem: {problem}" for problem in total.problems[:5]]
    lines += [f"  could not be judged: {folder}" for folder in total.unknown_runs]
    return "\n".join(lines)


def _not_tried(coverage: Mapping[str, int]) -> Iterator[str]:
    # Of the kinds that were drawn: a schedule has few kinds of faults.
    drawn = {name.partition("/")[0] for name in coverage}
    if never := in_words(never_met(coverage, drawn)):
        yield f"  not tried, by the state of the partition that a fault hits: {never}"
    new = rate_of_new(coverage)
    yield f"  about {new:.1%} of further faults would hit a role and a state that none has hit"


def began(name: str, seed: int, budget: Budget, store: Path) -> str:
    """Return the line that a search prints at its start."""
    ends = [f"for {budget.seconds:g} s"] * bool(budget.seconds)
    ends += [f"for {wording.count(budget.schedules, 'schedule')}"] * bool(budget.schedules)
    ends += ["until the first failure"] * budget.until_failure
    return (
        f"searching {name}, seed {seed}, {' or '.join(ends)}; "
        f"each kind of failure is kept in {store / STORE_FOLDER}"
    )


def what_follows(budget: Budget, *, shrinks: bool) -> str:
    """Return a text on how a search continues after a finding."""
    left = f", at most until {budget.seconds:g} s" if budget.seconds else ""
    if budget.until_failure:
        return f"the smallest schedule is looked for{left}" if shrinks else "the search ends"
    still = "the search goes on for other kinds of failures"
    return f"{still}, and it is shrunk{left}" if shrinks else f"{still}{left}"


def found(finding: Finding, folder: Path, then: str) -> str:
    """Return the lines that a search prints on a finding before it is shrunk, with what follows; or
    on a saved one, which fails again."""
    if finding.shrunk:
        again_line = command_line(*again(finding, folder))
        return f"fails again: {finding.bucket}\n  {finding.sentence}\n  replay: {again_line}"
    family = f", {finding.family}" if finding.family else ""
    return (
        f"found: {finding.bucket} (schedule {finding.schedules_before + 1}{family}, "
        f"{finding.seconds_before:.0f} s)\n  {finding.sentence}\n  kept in {folder}\n  {then}"
    )


def finished(finding: Finding, folder: Path) -> Iterator[str]:
    """Yield the lines on a shrunk finding: its schedule, needed faults, how to run it again."""
    yield f"\n{finding.bucket}"
    by = f"found by schedule {finding.schedules_before + 1} after {finding.seconds_before:.1f} s"
    yield (
        f"  {finding.family if finding.family == GIVEN else by}; shrunk in"
        f" {wording.count(finding.shrink_runs, 'run')} from "
        f"{_faults(len(finding.drawn.faults))} to {_faults(len(finding.faults))}"
        f"{'' if finding.shrunk else UNFINISHED}"
    )
    if finding.world == "real":
        yield from _on_processes(finding, folder)
    else:
        yield from _simulated(finding, folder)
    yield f"  kept in {folder}"


def _simulated(finding: Finding, folder: Path) -> Iterator[str]:
    try:
        explanation = read_file(folder / EXPLANATION, Explanation)
    except (OSError, Unreadable):
        explanation = Explanation()
    # It may explain what an earlier search found, before the time was over.
    is_of_it = explanation.schedule == finding.smallest.digest()
    lines = as_lines(explanation) if is_of_it else (finding.sentence,)
    yield from (f"  {line}" for line in lines)
    yield f"  replay: {command_line('replay', folder)}"
    yield f"  page: {command_line('report', folder)}"
    if finding.form_failures:
        real = command_line("replay", folder, "--world", "real", "--times", 10)
        yield (
            f"  on real processes: {real} (fails in {finding.form_failures} of {RUNS} "
            "simulated runs with real latency)"
        )
    elif finding.property == INTERNAL:
        yield "  on real processes: not looked for, as no client, trace or log shows it"
    else:
        yield "  on real processes: no schedule was found"


def _on_processes(finding: Finding, folder: Path) -> Iterator[str]:
    yield f"  {finding.sentence}"
    counts = finding.counts
    rate = wording.rate(counts.failed, counts.of)
    yield f"  as drawn it failed in {finding.drawn_counts} runs, shrunk in {rate}:"
    yield from (f"    {line}" for line in finding.faults)
    for one in finding.without:
        yield f"  without fault {one.fault} ({one.words}): fails in {one.counts} runs"
    if finding.safe_settings is None:
        yield "  the system declares no safe configuration to compare with"
    elif finding.safe_settings == finding.settings:
        yield "  this is the configuration that is declared safe"
    else:
        words = " ".join(f"--set {name}={value}" for name, value in finding.safe_settings.items())
        said = ", ".join(run.verdict for run in finding.safe_runs) or "there was no time to run it"
        yield f"  safe configuration ({words}): {said}"
    if finding.run:
        yield f"  replay: {command_line(*again(finding, folder))}"
        yield f"  page: {command_line('report', folder)}"


def _faults(number: int) -> str:
    return wording.count(number, "fault")
