"""A whole search on real processes: `floodmark search --system NAME`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final, cast, get_args

import msgspec

from harness.formats.options import worker_count
from harness.formats.system_finding import SystemFinding
from harness.runs.interrupts import Interrupts
from harness.runs.judge import build_page
from harness.runs.options import fault_kinds
from harness.runs.progress import Progress
from harness.search import deadline
from harness.search.real import report
from harness.search.real.families import Disks
from harness.search.real.runner import StormProcesses
from harness.search.real.storms import StormSubject
from harness.search.real.system_search import Find, SearchBudget, StormCounts, SystemSearch
from harness.search.requests import SearchRequest
from harness.systems import registry
from harness.systems.external.links import KERNEL_LINKS
from harness.systems.interface import System
from nemesis.formats.schedule import Cluster
from nemesis.links import namespaces
from node.formats.errors import UsageError

Print = Callable[[str], None]
OUTPUT: Final = "search-output.txt"
CORES_OF_A_CLUSTER: Final = 2
PAGE_S: Final = 10.0
"""What is kept of the time for a page."""


class SystemSearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """What it came to; `folders` are those of the findings."""

    counts: StormCounts
    findings: list[SystemFinding]
    folders: list[str]


def search_system(
    request: SearchRequest, interrupts: Interrupts, progress: Progress, output: Print
) -> SystemSearchResult:
    """Search, report what is found, shrink it while there is time, and run it on the safe
    configuration. `output` takes what is worth reading, as soon as it is known.

    Raises UsageError for what cannot be searched, StorageError when the store cannot be written.
    """
    subject, system = subject_of(request)
    system.check_kinds(subject.kinds)
    is_late = deadline.after(request.budget_s)

    def stop() -> bool:
        return is_late() or interrupts.asked

    jobs = 1 if subject.links == KERNEL_LINKS else request.jobs
    with closing(storm_processes(system, request.store)) as runner:
        search = SystemSearch(
            subject,
            system,
            runner,
            request.store,
            seed=request.seed,
            jobs=worker_count(jobs, cores_each=CORES_OF_A_CLUSTER),
            stop=stop,
            tell=progress.tell,
        )
        progress.phase(f"searching {system.name} {system.version()}", request.budget_s)
        budget = SearchBudget(
            seconds=request.budget_s, storms=request.schedules, until_failure=request.until_failure
        )
        search.search(budget, lambda find: output(report.found(find)))
        output(report.summary(search.counts))
        finds = sorted(search.finds.values(), key=lambda find: find.finding.seconds_before)
        for find in finds if request.shrink else ():
            progress.phase(f"shrinking {find.finding.bucket}")
            finish(search, find, request.budget_s)
            output("\n".join(report.shrunk(find)))
    return SystemSearchResult(
        counts=search.counts,
        findings=[find.finding for find in finds],
        folders=[str(find.folder) for find in finds],
    )


def finish(search: SystemSearch, find: Find, seconds: float) -> None:
    """Shrink a find, run it on the safe configuration, and build its page, as far as there is
    time; the end of it is kept for the latter."""
    kept_s = PAGE_S + (1.5 * search.run_s() if find.finding.safe_settings is not None else 0.0)
    left_s = max(1.0, seconds - search.seconds() - kept_s) if seconds else 0.0
    search.shrink(find, deadline.after(left_s))
    search.pair(find)
    if find.finding.run and not search.is_late():
        build_page(Path(find.finding.run), lambda sentence: None)


def subject_of(request: SearchRequest) -> tuple[StormSubject, System]:
    """What is searched, and the system. Raises UsageError."""
    request.check()
    system = registry.find(request.system or registry.DEFAULT, request.settings)
    if system.simulated:
        raise UsageError(f"system '{system.name}' is searched in simulated worlds: use --protocol")
    disks = request.disks or "any"
    if disks not in get_args(Disks):
        known = ", ".join(get_args(Disks))
        raise UsageError(f"--disks is '{disks}', but can only be {known}")
    links = system.link_form(request.links)
    if links == KERNEL_LINKS:
        if request.jobs > 1:
            raise UsageError("--links kernel has room for one cluster: use --jobs 1")
        namespaces.enter()
    system.version()
    subject = StormSubject(
        system=system.name,
        settings=request.settings,
        links=links,
        kinds=fault_kinds(request.faults),
        disks=cast("Disks", disks),
    )
    return subject, system


def storm_processes(system: System, store: Path) -> StormProcesses:
    """What runs the storms of a system; close it in any case."""
    recovery_ms = system.limits(system.complete(Cluster())).recovery_ms
    return StormProcesses(output_file(store), recovery_ms)


def output_file(store: Path) -> Path:
    """Where the processes of runs print to."""
    store.mkdir(parents=True, exist_ok=True)
    return store / OUTPUT
