"""A whole search, from request to results: `floodmark search`, simulated or on real processes."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from harness.formats.finding import Finding
from harness.formats.journal import JobJournal, SearchedRow, SearchRow
from harness.formats.options import worker_count
from harness.runs.interrupts import Interrupts
from harness.runs.judge import Tell, require_spark
from harness.runs.options import fault_kinds
from harness.runs.progress import Progress
from harness.search import findings, table
from harness.search.draw.families import Disks
from harness.search.draw.storms import StormGenerator
from harness.search.jobs import JobProcesses, Pool
from harness.search.loop import Budget, Search, journal_of
from harness.search.requests import SearchRequest
from harness.search.worlds.real import OUTPUT, StormSubject
from harness.search.worlds.simulated import SimulatedSubject, disk_faults
from harness.search.worlds.subject import Stop, Subject
from harness.systems import registry
from harness.systems.external.links import KERNEL_LINKS
from harness.systems.interface import System
from nemesis.links import namespaces
from node.core import bugs
from node.core import protocol as protocols
from node.formats.errors import UsageError
from node.formats.files import make_folder

JOBS_EACH: Final = 500
"""The number of simulated jobs after which a process is replaced: memory stays bounded."""
MOST_SAVED: Final = 8
"""The most saved findings that a search of a system tries first."""
STORMS_EACH: Final = 100


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a search over all its sessions; `folders` are the folders of its findings."""

    total: SearchedRow
    seconds: float
    findings: list[Finding]
    folders: list[str]


def search(
    request: SearchRequest, interrupts: Interrupts, progress: Progress, output: Tell
) -> SearchResult:
    """Search, save findings, shrink and explain them while there is time. A search of the store
    that was stopped is continued. `output` gets messages on findings as soon as they are known.
    Raises UsageError for an impossible search, StorageError when the store cannot be written."""
    subject = subject_of(request)
    file = journal_of(request.store, subject, request.seed)
    # In the simulated world a schedule fails again for certain.
    saved = []
    if isinstance(subject, StormSubject):
        saved = saved_findings(subject.find(), request.store)
    with (
        closing(pool_of(request, subject)) as pool,
        closing(JobJournal[SearchRow](file, SearchRow)) as journal,
    ):
        progress.phase(f"searching {subject.name}", request.budget_s)
        budget = Budget(
            seconds=request.budget_s,
            schedules=request.schedules,
            until_failure=request.until_failure,
        )
        output(table.began(subject.name, request.seed, budget, request.store))
        then = table.what_follows(budget, shrinks=request.shrink)
        running = Search(
            subject,
            journal,
            request.store,
            seed=request.seed,
            budget=budget,
            shrinks=request.shrink,
            report=lambda finding, folder: output(table.found(finding, folder, then)),
            finished=lambda finding, folder: output("\n".join(table.finished(finding, folder))),
            local=not request.master,
            saved=saved,
        )
        if running.resumed:
            output(f"goes on after {table.status(running.total, len(running.kept))}")
        running.work(pool, asked_to_stop(running, interrupts, progress))
    output(table.summary(running.total, len(running.kept), running.seconds()))
    found = sorted(running.kept.values(), key=lambda finding: finding.seconds_before)
    return SearchResult(
        total=running.total,
        seconds=running.seconds(),
        findings=found,
        folders=[str(findings.folder_of(request.store, finding)) for finding in found],
    )


def saved_findings(system: System, store: Path) -> list[Finding]:
    """Return the saved findings of a system of real processes with the same settings, at most
    `MOST_SAVED`, those with the fewest faults first. An adapter that is named by its path is known
    by its class: the path depends on where a command is called."""
    of_system = (findings.subject_in_names(system.name), system.settings)
    saved = [
        finding
        for _, finding in findings.load_all(store)
        if finding.world == "real"
        and (findings.subject_in_names(finding.subject), finding.settings) == of_system
    ]
    return sorted(saved, key=lambda finding: len(finding.faults))[:MOST_SAVED]


def asked_to_stop(running: Search, interrupts: Interrupts, progress: Progress) -> Stop:
    """Return a `Stop` that returns True after Ctrl-C, and shows the progress at each call."""

    def stop() -> bool:
        # A narrow terminal cuts the end.
        words = [table.shrinking(finding) for finding in running.shrinking()]
        words.append(table.status(running.total, len(running.kept), running.seconds()))
        progress.tell("; ".join(words))
        return interrupts.asked

    return stop


def subject_of(request: SearchRequest) -> Subject:
    """Return the protocol or system to search. Raises UsageError."""
    if request.system is not None:
        return storm_subject(
            request.system,
            request.settings,
            faults=request.faults,
            disks=request.disks,
            links=request.links,
            consumers=request.consumers,
        )
    return SimulatedSubject(
        protocol=protocols.protocol(request.protocol or "kafka").name,
        bugs=tuple(sorted({bugs.canonical(name) for name in request.bugs})),
        faults=disk_faults(request.faults) if request.faults else (),
    )


def pool_of(request: SearchRequest, subject: Subject) -> Pool:
    """Return the pool of a search, for the caller to close. Raises UsageError, FloodmarkError."""
    if request.master:
        require_spark()
        from harness.search.spark_jobs import SparkJobs

        return SparkJobs(request.master)
    if isinstance(subject, StormSubject):
        return storm_pool(request.jobs, request.store, subject.links)
    return simulated_pool(request.jobs, request.store)


def simulated_pool(jobs: int, store: Path) -> JobProcesses:
    """Return a pool for jobs of simulated runs; 0 `jobs` means one process per core."""
    return JobProcesses(worker_count(jobs), output_file(store), jobs_each=JOBS_EACH)


def storm_pool(jobs: int, store: Path, links: str = "") -> JobProcesses:
    """Return a pool for storms; 0 `jobs` is one for two cores. Raises UsageError on some links."""
    if links == KERNEL_LINKS:
        if jobs > 1:
            raise UsageError("--links kernel has room for one cluster: use --jobs 1")
        namespaces.enter()
        jobs = 1
    jobs = jobs or max(1, worker_count(0) // 2)
    return JobProcesses(jobs, output_file(store), jobs_each=STORMS_EACH)


def output_file(store: Path) -> Path:
    """Return the file to which processes of jobs print. Raises StorageError."""
    return make_folder(store) / OUTPUT


def storm_subject(
    system: str,
    settings: dict[str, str],
    *,
    faults: str = "",
    disks: Disks = "any",
    links: str | None = None,
    consumers: int = 1,
) -> StormSubject:
    """Return the system to search, with its settings. Raises UsageError if it cannot be."""
    found = registry.find(system, settings)
    if found.simulated:
        raise UsageError(f"system '{found.name}' is searched in simulated worlds: use --protocol")
    found.version()
    subject = StormSubject(
        system=found.name,
        settings=settings,
        links=found.link_form(links or None),
        kinds=fault_kinds(faults),
        disks=disks,
        consumers=consumers,
    )
    found.check_kinds(subject.kinds)
    StormGenerator(subject, found, 0)
    return subject
