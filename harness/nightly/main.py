"""A whole nightly run, from its journal to its page: `floodmark nightly`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from contextlib import closing
from pathlib import Path

import msgspec

from harness.formats.nightly_run import FOLDER, NightlyRun, nightly_runs
from harness.nightly import plan, rows, summary
from harness.nightly.night import Night, NightlyEnvironment
from harness.nightly.requests import NightlyRequest
from harness.nightly.session import DISK_FULL, NightlySession, open_journal
from harness.runs.interrupts import Interrupts
from harness.runs.progress import Progress
from harness.systems.external.links import enter_for
from node.formats.errors import FloodmarkError, UsageError
from node.formats.files import write_whole
from node.formats.host_errors import reason
from node.formats.json_input import read_bytes
from reports.nightly_page.index_model import still_open

JUNIT = "junit.xml"
MakeEnvironment = Callable[[NightlyRequest, Interrupts, Progress], NightlyEnvironment]


def run_nightly(settings: NightlyRequest, make_environment: MakeEnvironment | None = None) -> int:
    """Start a nightly run, or continue an unfinished one, and report it; return the exit code.
    `make_environment` replaces the real environment in tests. Raises FloodmarkError if the nightly
    run cannot begin, for instance while another process has its journal open."""
    settings = plan.with_whole_budget(settings)
    systems = plan.systems_of(settings.systems, settings.consumers)
    accepted = _accepted(settings.accepted)
    enter_for(s.system for s in (*systems, *(rows.table() if settings.rows else ())))
    settings, journal = open_journal(settings)
    past = [n for n in nightly_runs(settings.store)[0] if n.number < settings.number]
    with closing(journal), Interrupts() as interrupts, Progress(quiet=settings.quiet) as progress:
        environment = (make_environment or _real)(settings, interrupts, progress)
        session = NightlySession(Night(settings, systems, environment, journal, past))
        progress.phase(f"nightly run {settings.number} in {settings.store}", settings.budget_s)
        with closing(environment.pool):
            state = session.work()
        nightly = summary.summarise(journal.rows, settings.store, accepted)
        # On a full disk even the last line may be missing.
        nightly.state = state
        nightly.open = _still_open([*past, nightly], settings.store, accepted)
        return _report(settings, nightly, past, session.sentence)


def _accepted(file: Path | None) -> set[str]:
    """Return the keys in a file of accepted buckets, the first word of each line. Raises
    UsageError if it cannot be read."""
    if file is None:
        return set()
    try:
        lines = read_bytes(file).decode(errors="replace").splitlines()
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {reason(error)}") from None
    return {line.split()[0] for line in lines if line.strip()}


def _still_open(known: list[NightlyRun], store: Path, accepted: Collection[str]) -> list[str]:
    """Return the open buckets of earlier nightly runs that are not accepted, a line each."""
    left = still_open(known, lambda path: bool(path) and (store / path).is_file())
    return [
        f"{s.shown.protocol}: {s.shown.name} ({s.shown.world}, last met in nightly run {s.last})"
        for s in left
        if s.shown.key not in accepted
    ]


def _real(
    settings: NightlyRequest, interrupts: Interrupts, progress: Progress
) -> NightlyEnvironment:
    output = settings.store / FOLDER / f"{settings.number:04d}.txt"
    return NightlyEnvironment(settings.store, output, settings.cores, interrupts, progress)


def _report(
    settings: NightlyRequest, nightly: NightlyRun, past: list[NightlyRun], sentence: str
) -> int:
    """Write the summary, the JUnit file and the index, and print the summary."""
    from reports.nightly_page.index_page import build_index

    if sentence:
        nightly.problems.insert(0, sentence)
        _print_error(sentence)
    known = [*past, nightly]
    code = summary.exit_code(nightly)
    try:
        text = msgspec.json.format(msgspec.json.encode(nightly), indent=1)
        record = settings.store / FOLDER / f"{nightly.number:04d}.json"
        write_whole(record, text + b"\n", settings.store)
        write_whole(settings.junit or settings.store / JUNIT, summary.junit(known))
        page: Path | None = build_index(settings.store)
    except FloodmarkError as error:
        if nightly.state != DISK_FULL:
            _print_error(str(error))
            code = summary.EXIT_HARNESS
        page = None
    if settings.json:
        sys.stdout.write(msgspec.json.encode(nightly).decode() + "\n")
    else:
        sys.stdout.write(summary.summary(known) + "\n")
        if page is not None:
            sys.stdout.write(f"  page        {page}\n")
    return code


def _print_error(sentence: str) -> None:
    print(f"floodmark: {' '.join(sentence.split())}", file=sys.stderr)  # noqa: T201
