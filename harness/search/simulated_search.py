"""A whole search in simulated worlds: what `floodmark search` does without a system.

A finding is on disk from the moment when it is known; it is explained, and its form for real
processes is looked for, when the search is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from harness.formats import not_tried
from harness.formats.options import worker_count
from harness.runs.interrupts import Interrupts
from harness.runs.judge import require_spark
from harness.runs.program import command_line
from harness.runs.progress import Progress
from harness.search import campaign, deadline, findings
from harness.search.campaign import Budget, Campaign, CampaignResult, Finding
from harness.search.deadline import Stop
from harness.search.engines import Subject, disk_faults
from harness.search.explain import as_lines
from harness.search.findings import SavedFinding
from harness.search.real_schedule import WORLDS, RealSchedule
from harness.search.requests import SearchRequest
from node.core import bugs
from node.core.protocol import protocol
from reports import wording

Print = Callable[[str], None]
RESERVE: Final = 0.3
"""The share of the budget that is kept to shrink and explain a find."""
NO_TIME: Final = "the time was over before a real schedule was found"
UNFINISHED: Final = " (the time was over before it was the smallest)"


def campaign_of(request: SearchRequest) -> Campaign:
    """Return the campaign that is asked for. Raises UsageError."""
    request.check()
    campaign = Campaign(
        subject=Subject(
            protocol(request.protocol or "kafka").name,
            tuple(sorted({bugs.canonical(name) for name in request.bugs})),
            disk_faults(request.faults) if request.faults else (),
        ),
        engine=request.engine or "random",
        seed=request.seed,
        cores=worker_count(request.jobs),
        budget=Budget(
            seconds=request.budget_s,
            schedules=request.schedules,
            until_failure=request.until_failure,
            reserve=RESERVE,
        ),
    )
    campaign.check()
    return campaign


def search_simulated(
    wanted: Campaign,
    master: str | None,
    store: Path,
    interrupts: Interrupts,
    progress: Progress,
    output: Print,
) -> tuple[CampaignResult, Finds]:
    """Search, keep what is found below `store`, and explain it while there is time.

    `master` is the URL of a Spark cluster to search on, None for this machine; `output` takes what
    is worth reading. Raises UsageError, SparkMissing, OSError.
    """
    is_late = deadline.after(wanted.budget.seconds)
    finds = Finds(store / "findings", output, lambda: is_late() or interrupts.asked)
    progress.phase(f"searching {wanted.subject.protocol}", wanted.budget.seconds)

    def report(result: CampaignResult) -> None:
        progress.tell(_status(result))
        finds.keep(result)

    if master is None:
        result = campaign.run(wanted, report, lambda: interrupts.asked)
    else:
        require_spark()
        from harness.search.spark_campaign import run_on_spark

        result = run_on_spark(wanted, master)
    output(_summary(result))
    finds.keep(result)
    for name, finding in campaign.buckets(result):
        progress.phase(f"explaining {name}")
        finds.explain(finding)
    return result, finds


class SearchedSimulated(msgspec.Struct, frozen=True, kw_only=True):
    """A search that is over, and the folders of its findings."""

    result: CampaignResult
    findings: list[str]


def search_asked(
    request: SearchRequest, interrupts: Interrupts, progress: Progress, output: Print
) -> SearchedSimulated:
    """Carry out the search that is asked for (see `search_simulated`)."""
    wanted = campaign_of(request)
    result, finds = search_simulated(
        wanted, request.master, request.store, interrupts, progress, output
    )
    return SearchedSimulated(result=result, findings=[str(f) for f in finds.folders.values()])


class Finds:
    """The findings of a search on disk, from the moment when they are known; by bucket."""

    def __init__(self, store: Path, output: Print, stop: Stop) -> None:
        self.folders: dict[str, Path] = {}
        self._store = store
        self._output = output
        self._stop = stop

    def keep(self, result: CampaignResult) -> None:
        """Write down what is new."""
        for finding in result.findings:
            known = self.folders.get(finding.bucket)
            self.folders[finding.bucket] = findings.keep(finding, self._store, known)
            if known is None:
                self._output(f"found: {finding.bucket} ({self.folders[finding.bucket]})")

    def explain(self, finding: Finding) -> None:
        """Say why it fails, and look for its form on real processes, while there is time."""
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
        f"{result.failures:,} failures, {wording.count(len(result.findings), 'kind')}"
    )


def _summary(result: CampaignResult) -> str:
    problems = "".join(f"\n  problem: {problem}" for problem in result.problems[:5])
    # Of the kinds that were drawn: a schedule is drawn from few kinds of scenarios.
    kinds = {name.partition("/")[0] for name in result.fault_coverage}
    never = not_tried.in_words(not_tried.never_met(result.fault_coverage, kinds))
    pairs = f"\n  never met: {never}" if never else ""
    return f"{_status(result)} in {result.seconds:.1f} s{pairs}{problems}"


def _finding_lines(finding: Finding, saved: SavedFinding) -> Iterator[str]:
    """A finding for a person, and how to run it again."""
    yield f"\n{finding.bucket}"
    faults = wording.count(len(finding.smallest.faults), "fault")
    yield (
        f"  found after {wording.count(finding.schedules_before, 'schedule')} of one worker, "
        f"{finding.seconds_before:.1f} s; shrunk in {finding.shrink_tries} runs to "
        f"{faults}{'' if finding.shrunk else UNFINISHED}"
    )
    yield from (f"  {line}" for line in as_lines(saved.explanation))
    yield f"  replay: {command_line('replay', saved.folder)}"
    yield f"  page: {command_line('report', saved.folder)}"


def _real(real: RealSchedule | None, saved: SavedFinding) -> str:
    if real is None:
        return "no real schedule was found"
    return (
        f"{command_line('replay', saved.folder, '--world', 'real', '--times', 10)} "
        f"(fails in {real.failing_worlds} of {WORLDS} simulated worlds with real latency)"
    )
