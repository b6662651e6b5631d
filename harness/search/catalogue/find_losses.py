"""`floodmark bugs find --system`, which finds known losses of third-party systems again.

Each known loss is a row of `known_losses`. Each search for one is a search of
`harness.search.loop` with a journal of its own; it ends at the first finding that shows it."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.formats.finding import Finding
from harness.formats.journal import (
    FINISHED,
    Finished,
    JobJournal,
    SearchBegan,
    Searched,
    SearchRow,
    read_rows,
    state_of,
)
from harness.runs.interrupts import Interrupts
from harness.runs.progress import Progress
from harness.search import loop
from harness.search.catalogue.known_bugs_table import escaped, item
from harness.search.catalogue.known_losses import KNOWN_LOSSES, KnownLoss, row_of, wanted_losses
from harness.search.loop import Budget, Search
from harness.search.requests import BugSearchRequest
from harness.search.run import asked_to_stop, storm_pool, storm_subject
from node.formats.errors import UsageError
from node.formats.files import write_whole

Print = Callable[[str], None]
_PREFIX: Final = "known-loss-"


class LossResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one search for a known loss: whether it was found, in how many seconds and
    schedules, and the finding. `unwanted` counts other failures by bucket, `storms` has the
    versions of the generator."""

    code: str
    seed: int
    budget_s: float
    found: bool
    seconds: float
    schedules: int
    finding: Finding | None = None
    unwanted: dict[str, int] = {}
    problems: list[str] = []
    storms: tuple[int, ...] = ()
    version: str = ""
    state: str = ""

    def is_done(self, seconds: float) -> bool:
        """Return whether the search is finished and needs no repetition of `seconds`."""
        return self.state == FINISHED and (self.found or self.budget_s >= seconds)


def find_losses(
    request: BugSearchRequest, interrupts: Interrupts, progress: Progress, output: Print
) -> list[LossResult]:
    """Search for the known losses, seed by seed, unless the store has the result. Return all
    results of the store. Raises UsageError, or StorageError when the store cannot be written."""
    rows = wanted_losses(request.system or "", request.only)
    for seed in range(1, request.seeds + 1):
        for row in rows:
            if interrupts.asked:
                break
            file = _file(request.store, row, seed)
            before = result_of(file, row, seed)
            if before is not None and before.is_done(request.search_s):
                continue
            try:
                _search(row, seed, request, interrupts, progress, output)
            except UsageError as error:
                if request.system != "all":
                    raise
                output(f"{row.code}: not searched: {error}")
    return results(request.store)


def _search(
    row: KnownLoss,
    seed: int,
    request: BugSearchRequest,
    interrupts: Interrupts,
    progress: Progress,
    output: Print,
) -> None:
    """Make one blind search; the first finding of the row is shrunk, unless another seed did."""
    subject = msgspec.structs.replace(
        storm_subject(row.system, row.settings, disks=row.disks), loss=row.code
    )
    progress.phase(f"{row.code}, seed {seed}", request.search_s)
    complete = any(
        one.finding is not None and is_complete(one.finding)
        for one in results(request.store)
        if one.code == row.code
    )
    with (
        closing(JobJournal[SearchRow](_file(request.store, row, seed), SearchRow)) as journal,
        closing(storm_pool(subject, request.jobs, request.store)) as pool,
    ):
        search = Search(
            subject,
            journal,
            request.store,
            seed=seed,
            budget=Budget(seconds=request.search_s, until_failure=True),
            shrinks=not complete,
            wanted=row.is_found,
            # A finding that fails too rarely gives way to the next one, while there is time.
            settled=is_steady,
            report=lambda finding, folder: output(
                f"{row.code}: {finding.bucket}, {finding.seconds_before:.0f} s, kept in {folder}"
            ),
            version=subject.find().version(),
        )
        search.work(pool, asked_to_stop(search, interrupts, progress))


def results(store: Path) -> list[LossResult]:
    """Return the results of all searches for known losses in a store, sorted by loss and seed."""
    found = []
    for row in KNOWN_LOSSES:
        for file in sorted((store / loop.FOLDER).glob(f"{_PREFIX}{row.code}-[0-9]*.jsonl")):
            made = result_of(file, row, int(file.stem.rpartition("-")[2]))
            found += [made] if made is not None else []
    return sorted(found, key=lambda one: (KNOWN_LOSSES.index(row_of(one.code)), one.seed))


def result_of(file: Path, row: KnownLoss, seed: int) -> LossResult | None:
    """Return the result of the search with this journal, if any. Raises StorageError."""
    rows: list[Any] = read_rows(file, SearchRow)
    began = [each for each in rows if isinstance(each, SearchBegan)]
    if not began:
        return None
    total = Searched(protocol=row.system, seed=seed)
    first: Finding | None = None
    shown: Finding | None = None
    for each in rows:
        if isinstance(each, Searched):
            loop.add(total, each)
            first = first or next(iter(each.findings), None)
        elif isinstance(each, Finished) and (shown is None or not is_steady(shown)):
            shown = each.finding
    worked_s = max(each.worked_s for each in rows)
    shown = shown or first
    return LossResult(
        code=row.code,
        seed=seed,
        budget_s=began[-1].budget_s,
        found=first is not None,
        seconds=round(worked_s if first is None else first.seconds_before, 1),
        schedules=total.schedules,
        finding=shown,
        unwanted={n: c for n, c in total.buckets.items() if shown is None or n != shown.bucket},
        problems=total.problems,
        storms=tuple({each.generator for each in rows if isinstance(each, Searched)}),
        version=(shown is not None and shown.version) or began[-1].version,
        state=state_of(rows),
    )


def is_steady(finding: Finding) -> bool:
    """Return whether the smallest schedule failed in most of its several runs."""
    return 2 * finding.counts.failed > finding.counts.of > 1


def is_complete(finding: Finding) -> bool:
    """Return whether a finding fails in most runs, and was run on a safe configuration, if any."""
    return is_steady(finding) and bool(finding.safe_settings is None or finding.safe_runs)


def _file(store: Path, row: KnownLoss, seed: int) -> Path:
    return store / loop.FOLDER / f"{_PREFIX}{row.code}-{seed}.jsonl"


# -- the table


HEADINGS: Final = (
    "system",
    "configuration",
    "loss",
    "found",
    "blind time",
    "storms",
    "faults",
    "fails in",
    "safe runs",
)
BEGIN: Final = "<!-- known losses: written by `floodmark bugs find --system all --page` -->"
END: Final = "<!-- end of known losses -->"
_NONE: Final = "none"


def cells(row: KnownLoss, made: Sequence[LossResult]) -> tuple[str, ...]:
    """Return the cells of the table for a known loss, in the order of `HEADINGS`, from the results
    `made`. A search without a finding counts with its whole time."""
    shown = best(made)
    version = next((one.version for one in made if one.version), "")
    return (
        f"{row.system} {version}".rstrip(),
        _settings(row.settings) or "default",
        row.loss,
        f"{sum(one.found for one in made)} of {len(made)}" if made else "",
        _span([one.seconds for one in made]),
        " and ".join(str(version) for version in sorted({v for one in made for v in one.storms})),
        "" if shown is None else str(len(shown.faults)),
        "" if shown is None else str(shown.counts),
        "" if shown is None else _safe_runs(shown),
    )


def details(row: KnownLoss, made: Sequence[LossResult]) -> str:
    """Return a paragraph on the smallest schedule that shows a known loss; "" if none does."""
    shown = best(made)
    if shown is None:
        return ""
    storms = [one.schedules for one in made]
    words = [re.sub(r"^\s*[\d.]+ s:?\s+", "", line) for line in shown.faults]
    told = [f"{'; '.join(words)}{'' if shown.shrink_runs else ' (as drawn)'}"]
    told.append(f"Storms: {statistics.median(storms):.0f}")
    if shown.safe_settings is not None:
        told.append(f"Safe: {_settings(shown.safe_settings)}")
    return f"**{row.code}**: {'. '.join(told)}."


def best(made: Sequence[LossResult]) -> Finding | None:
    """Return the finding to show, None if there is none. One that fails in most runs comes first,
    then one that was run on the safe configuration, then one with few faults."""
    found = [one.finding for one in made if one.finding is not None]
    return min(
        found,
        key=lambda one: (not is_steady(one), not is_complete(one), len(one.faults)),
        default=None,
    )


def as_text(rows: Sequence[KnownLoss], made: Sequence[LossResult]) -> str:
    """Return the results as text, a few lines for each known loss."""
    lines = []
    for row in rows:
        mine = _of(row, made)
        told = zip(HEADINGS, cells(row, mine), strict=True)
        lines.append(f"{row.code}:")
        lines += [f"  {heading}: {cell}" for heading, cell in told if cell]
        lines += [f"  {details(row, mine)}"] if details(row, mine) else []
    return "\n".join(lines)


def as_markdown(rows: Sequence[KnownLoss], made: Sequence[LossResult]) -> str:
    """Return the results as Markdown, schedules below; without losses never searched for."""
    searched = [row for row in rows if _of(row, made)]
    table = [HEADINGS, ("---",) * len(HEADINGS)]
    table += [cells(row, _of(row, made)) for row in searched]
    items = [text for row in searched if (text := details(row, _of(row, made)))]
    lines = [f"| {' | '.join(map(escaped, words))} |" for words in table]
    return "\n".join([*lines, "", *map(item, items)])


def put_into_file(file: Path, table: str) -> None:
    """Replace the table in a document. Raises StorageError."""
    before = file.read_text("utf-8") if file.is_file() else ""
    write_whole(file, put_into(before, table).encode())


def put_into(document: str, table: str, marks: tuple[str, str] = (BEGIN, END)) -> str:
    """Return a document with the table between the two marks, or at its end if it has no marks."""
    section = f"{marks[0]}\n\n{table}\n\n{marks[1]}"
    before, begin, rest = document.partition(marks[0])
    _, end, after = rest.partition(marks[1])
    if begin and end:
        return before + section + after
    return f"{document.rstrip()}\n\n{section}\n".lstrip()


def _of(row: KnownLoss, made: Sequence[LossResult]) -> list[LossResult]:
    return [one for one in made if one.code == row.code]


def _settings(settings: dict[str, str]) -> str:
    return " ".join(f"`{name}={value}`" for name, value in settings.items())


def _safe_runs(finding: Finding) -> str:
    """Return the result of the safe configuration under the same schedule."""
    if finding.safe_settings is None:
        return _NONE
    return ", ".join(run.verdict for run in finding.safe_runs) or "not run"


def _span(values: Sequence[float]) -> str:
    """Return the median, and the least and the most where they differ: `210 s (64 to 480)`."""
    if not values:
        return ""
    text = f"{statistics.median(values):.0f} s"
    if len(values) > 1:
        text += f" ({min(values):.0f} to {max(values):.0f})"
    return text
