"""What is printed of a search on real processes."""

from __future__ import annotations

from collections.abc import Iterator

from harness.formats.system_finding import SystemFinding
from harness.runs.program import command_line
from harness.search.real.system_search import Find, StormCounts
from reports import wording

UNFINISHED = " (the time was over before it was the smallest)"


def found(find: Find) -> str:
    """A find at the moment when it is known, before it is shrunk."""
    finding = find.finding
    return (
        f"found: {finding.bucket} (storm {finding.storms_before + 1}, {finding.family}, "
        f"{finding.seconds_before:.0f} s)\n  {finding.sentence}\n  kept in {find.folder}"
    )


def shrunk(find: Find) -> Iterator[str]:
    """A find for a person: the smallest schedule, what it needs, and how to run it again."""
    finding = find.finding
    yield f"\n{finding.bucket}: {finding.sentence}"
    found = f"found by storm {finding.storms_before + 1}, after {finding.seconds_before:.0f} s"
    found = found if finding.storms_before >= 0 else "a run that failed"
    drawn = f"with {_faults(finding.drawn_faults)}, it failed in {finding.drawn_counts} runs"
    yield f"  {found}; as drawn, {drawn}"
    yield (
        f"  shrunk in {wording.count(finding.shrink_runs, 'run')} to "
        f"{_faults(len(finding.faults))}; failed in {finding.counts} runs"
        f"{'' if finding.shrunk else UNFINISHED}:"
    )
    yield from (f"    {line}" for line in finding.faults)
    for one in finding.without:
        yield f"  without fault {one.fault} ({one.words}): fails in {one.counts} runs"
    yield from _safe(finding)
    if finding.run:
        yield f"  replay: {command_line('run', '--schedule', finding.run)}"
        yield f"  page: {command_line('report', finding.run)}"
    yield f"  kept in {find.folder}"


def _faults(number: int) -> str:
    return wording.count(number, "fault")


def _safe(finding: SystemFinding) -> Iterator[str]:
    """How the same schedule went on the safe configuration."""
    if finding.safe_settings is None:
        yield "  the system declares no safe configuration to compare with"
    elif finding.safe_settings == finding.settings:
        yield "  this is the configuration that is declared safe"
    else:
        words = " ".join(f"--set {name}={value}" for name, value in finding.safe_settings.items())
        said = ", ".join(run.verdict for run in finding.safe_runs) or "there was no time to run it"
        yield f"  safe configuration ({words}): {said}"


def summary(counts: StormCounts) -> str:
    """What a search did."""
    verdicts = ", ".join(f"{n} {verdict}" for verdict, n in sorted(counts.verdicts.items()))
    mean_s = counts.run_seconds / counts.storms if counts.storms else 0.0
    lines = [
        f"{wording.count(counts.storms, 'storm')} in {counts.seconds:.0f} s, {mean_s:.0f} s each: "
        f"{verdicts or 'none ended'}"
    ]
    lines += [f"  {count} x {name}" for name, count in sorted(counts.buckets.items())]
    lines += [f"  problem: {problem}" for problem in counts.problems[:5]]
    return "\n".join(lines)
