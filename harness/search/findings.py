"""The folders of findings. A finding is written as soon as it is found, and again when it is shrunk
or explained.

`finding.json` is the record. All other files of the folder are derived from it or explain it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from harness.formats.finding import (
    DRAWN,
    EXPLANATION,
    FORMAT,
    README,
    REAL,
    RECORD,
    SCHEDULE,
    STORE_FOLDER,
    Finding,
)
from harness.replay.pages import page_of_finding
from harness.runs.program import command_line
from harness.runs.run_folder import remove
from harness.systems import registry
from nemesis.faults import kind_of
from nemesis.formats.schedule import Fault, Schedule
from node.formats.errors import StorageError
from node.formats.files import as_part, make_folder, write_whole
from node.formats.host_errors import reason
from node.formats.json_input import Unreadable, read_file

FORM: Final = """# {bucket}

{sentence}

`floodmark` found that {subject} fails under the faults of a schedule, and looked for the smallest
schedule that still shows it. {shrunk}

{faults}

It failed in {counts} runs. To run it again:

    {replay}

| file | contents |
|---|---|
| `{record}` | this finding for programs: its class, its schedules, its counts, how it was found |
| `{schedule}` | the smallest schedule: cluster, workload and faults |
| `{drawn}` | the schedule as it was drawn, with {drawn_faults} faults |
| `{explain}` | why it fails, and what changes without each fault or message (simulated world) |
| `{real}` | a slower schedule that also fails on real processes (if one was found) |
"""


def folder_of(store: Path, finding: Finding) -> Path:
    """Return the folder of a finding. It stays the same while the schedule shrinks."""
    bugs = "".join(f"+{bug}" for bug in finding.drawn.cluster.bugs)
    name = f"{subject_in_names(finding.subject)}{bugs}-{finding.property}-{finding.drawn.digest()}"
    return store / STORE_FOLDER / as_part(name)


def subject_in_names(subject: str) -> str:
    """Return a protocol or system as a part of the names of files and runs: that of its class, or
    of its file if the class is not named."""
    return as_part(Path(subject.rpartition(":")[2].lower()).stem)[:50].replace("+", "_")


def keep(finding: Finding, store: Path) -> Path:
    """Write a finding and its schedules to its folder, and return that. Raises StorageError."""
    folder = make_folder(folder_of(store, finding), store)
    for name, text in {
        RECORD: msgspec.json.format(msgspec.json.encode(finding), indent=1) + b"\n",
        SCHEDULE: finding.smallest.to_pretty_json(),
        DRAWN: finding.drawn.to_pretty_json(),
        README: _readme(finding, folder).encode(),
    }.items():
        write_whole(folder / name, text, store)
    return folder


def load(folder: Path) -> Finding:
    """Return the finding in a folder. Raises StorageError if damaged or of another version."""
    file = folder / RECORD
    try:
        finding = read_file(file, Finding)
    except OSError as error:
        raise StorageError(f"{file}: cannot be read: {reason(error)}") from None
    except Unreadable as error:
        raise StorageError(f"{file}: not a finding: {error}; move its folder away") from None
    if finding.format != FORMAT:
        raise StorageError(
            f"{file}: has format {finding.format}, and this floodmark reads {FORMAT}: "
            "use the version that wrote it"
        )
    return finding


def load_all(store: Path) -> Iterator[tuple[Path, Finding]]:
    """Yield the folders of a store's findings that can be read, each with its finding."""
    for file in sorted((store / STORE_FOLDER).glob(f"*/{RECORD}")):
        try:
            yield file.parent, load(file.parent)
        except StorageError:
            continue


def latest(store: Path, finding: Finding) -> Finding:
    """Return a finding as the store has it, perhaps smaller; else the given one."""
    try:
        return load(folder_of(store, finding))
    except StorageError:
        return finding


def keep_unless_smaller(finding: Finding, store: Path) -> Path:
    """Write a finding to the store, unless an earlier search of real processes (same version of the
    system) has a shrunk one there. Return its folder."""
    before = latest(store, finding)
    is_older = before is not finding and before.version == finding.version
    if is_older and before.world == "real" and before.shrunk:
        return folder_of(store, finding)
    return keep(finding, store)


def build_page(folder: Path) -> Path | None:
    """Run a finding in the simulated world and build its page. Return that, None on failure."""
    try:
        return page_of_finding(folder, lambda sentence: None)
    except Exception as error:
        sys.stderr.write(f"the page of {folder}: {type(error).__name__}: {error}\n")
        return None


def sweep(store: Path, prefix: str, keep: Iterable[str] = ()) -> None:
    """Remove the run folders (`prefix/*` and `prefix-*/*`) of a search that no finding refers to,
    except `keep`: their jobs were killed before they were recorded."""
    kept = {Path(run).parts[-2:] for run in keep}  # a store may move, or be named from elsewhere
    for _, finding in load_all(store):
        runs = (finding.run, *(run.folder for run in finding.safe_runs))
        kept |= {Path(run).parts[-2:] for run in runs if run}
    for run in (*store.glob(f"{prefix}/*"), *store.glob(f"{prefix}-*/*")):
        if run.is_dir() and not run.is_symlink() and run.parts[-2:] not in kept:
            remove(run, store)


def in_words(schedule: Schedule) -> tuple[str, ...]:
    """Return the faults of a schedule as lines for a person: time, fault, length."""
    return tuple(map(_line, schedule.faults))


def _line(fault: Fault) -> str:
    lasts = "" if fault.for_ms is None else f", for {fault.for_ms / 1000:.2f} s"
    if fault.after is not None:
        return f"after {fault.after.event}: {kind_of(fault).words()}{lasts}"
    return f"{(fault.at_ms or 0) / 1000:.2f} s: {kind_of(fault).words()}{lasts}"


def again(finding: Finding, folder: Path) -> tuple[str | Path, ...]:
    """Return the words of the command that runs the smallest schedule of a finding again."""
    if finding.world == "simulated":
        return ("replay", folder)
    confirms = ("--system", finding.subject) if registry.is_a_place(finding.subject) else ()
    return ("run", *confirms, "--schedule", folder)


def _readme(finding: Finding, folder: Path) -> str:
    settings = "".join(f" {name}={value}" for name, value in finding.settings.items())
    replay = command_line(*again(finding, folder))
    return FORM.format(
        bucket=finding.bucket,
        sentence=finding.sentence,
        subject=f"`{f'{finding.subject} {finding.version}'.strip()}`{settings}",
        shrunk="These faults are enough:" if finding.shrunk else "It was not shrunk to its end:",
        faults="\n".join(f"* {line}" for line in finding.faults) or "* none",
        counts=finding.counts,
        replay=replay,
        record=RECORD,
        schedule=SCHEDULE,
        drawn=DRAWN,
        drawn_faults=len(finding.drawn.faults),
        explain=EXPLANATION,
        real=REAL,
    )
