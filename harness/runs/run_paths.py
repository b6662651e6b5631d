"""The runs that a person means by a path: a run folder, a finding, a history, or a whole store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from checker.ingest.external_history import (
    SUFFIX,
    external_history_in,
    histories_in,
    is_history,
    run_folder_of,
)
from harness.formats.finding import RECORD, SIMULATED, FoundOn, is_finding
from harness.formats.run_info import Promise
from harness.runs.program import command_line
from node.formats.errors import UsageError
from node.formats.host_errors import reason
from node.formats.json_input import Unreadable, read_file

STORE: Final = "store"
"""The name of a store, unless --store gives another."""
_PARTS: Final = ("run.json", "history.jsonl", "schedule.json")


class _Stated(Promise, frozen=True, kw_only=True, forbid_unknown_fields=True):
    contiguous_offsets: bool = False


def promise_in(file: Path) -> dict[str, Any]:
    """Return the fields of a file with a system's guarantees. Raises UsageError for wrong ones."""
    try:
        found: dict[str, Any] = msgspec.to_builtins(read_file(file, _Stated, follow=True))
    except (OSError, Unreadable) as error:
        raise UsageError(f"{file}: not a promise (see docs/checks.md): {reason(error)}") from None
    return found


def run_folders(paths: Iterable[Path], promise: Mapping[str, Any] | None = None) -> list[Path]:
    """Return the run folders meant by `paths`: run folders, histories of other tools, or stores of
    both.
    `promise` holds the guarantees of the system whose clients recorded the histories. Raises
    UsageError when a path is none of these, CheckerError when a folder cannot be written."""
    found: list[Path] = []
    for path in paths:
        depths = ("*", "*/*", "findings/*/simulated")
        inside = sorted(p.parent for depth in depths for p in path.glob(f"{depth}/run.json"))
        inside = [each for each in inside if _is_reached(each, path) and each.suffix != SUFFIX]
        histories = [] if external_history_in(path) else histories_in(path)
        if histories and (promise is None or not inside):
            found += [*inside, *(run_folder(each, promise) for each in histories)]
            continue
        # The folder of a finding has a schedule, and the run of it inside.
        is_run = promise is not None or any((path / part).exists() for part in _PARTS[:2])
        found += inside if inside and not is_run else [run_folder(path, promise)]
    return found


def _is_reached(folder: Path, store: Path) -> bool:
    """Return whether `folder` is reached from `store` without a link: `latest` is one to another
    run, and a store from elsewhere may have links to folders outside of it."""
    between = (folder, *folder.parents)[: len(folder.relative_to(store).parts)]
    return not any(each.is_symlink() for each in between)


def folders_with_pages(paths: Iterable[Path]) -> list[Path]:
    """Return the folders of runs and findings meant by `paths`, which may be whole stores. The run
    inside a finding is left out: it shares the finding's page. For a finding of real processes, it
    is the run that shows it. Raises as `run_folders` does."""
    found: list[Path] = []
    for path in paths:
        if is_finding(path):
            found.append(_shown_by(path))
            continue
        # The runs of the others are in the store too.
        kept = (each for each in sorted(path.glob("findings/*")) if _is_reached(each, path))
        findings = [each for each in kept if _is_simulated(each)]
        own = {each / SIMULATED for each in findings}
        runs = run_folders([path]) if not findings or holds_runs(path) else []
        found += [*(run for run in runs if run not in own), *findings]
    return found


def _shown_by(finding: Path) -> Path:
    """Return the folder that has the page of a finding. Raises UsageError."""
    if _is_simulated(finding):
        return finding
    run = _found_on(finding).folder_of_run(finding)
    if run is None:
        again = command_line("run", "--schedule", finding)
        raise UsageError(f"{finding}: no run that shows it is kept; to make one: {again}")
    return run


def _is_simulated(path: Path) -> bool:
    """Return whether a folder is that of a finding in the simulated world."""
    return is_finding(path) and _found_on(path).world == "simulated"


def _found_on(finding: Path) -> FoundOn:
    try:
        return read_file(finding / RECORD, FoundOn)
    except FileNotFoundError:
        return FoundOn()
    except (OSError, Unreadable) as error:
        raise UsageError(f"{finding / RECORD}: not a finding: {reason(error)}") from None


def holds_runs(path: Path) -> bool:
    """Return whether a folder is a store with runs."""
    return any(path.glob("*/*/run.json"))


def run_folder(path: Path, promise: Mapping[str, Any] | None = None) -> Path:
    """Return `path` if it is a run folder; for a history, make a run folder with `promise` beside
    it. Raises UsageError when it is neither, CheckerError when the folder cannot be written."""
    if (history := external_history_in(path)) is not None:
        if not is_history(history):
            raise UsageError(
                f"{history}: not a history: no line of it is an operation (docs/file-formats.md)"
            )
        return run_folder_of(history, promise or {})
    if promise is not None:
        raise UsageError(
            f"{path}: --promise is for histories of other tools; a run has its promise in run.json"
        )
    if not path.is_dir():
        raise UsageError(f"{path}: no such run folder")
    if not any((path / part).exists() for part in _PARTS):
        *others, last = _PARTS
        raise UsageError(
            f"{path}: not a run folder (it has no {', '.join(others)} or {last}){_store_in(path)}"
        )
    return path


def _store_in(path: Path) -> str:
    """Ask whether a store next to the path was meant; "" if there is none."""
    store = path / STORE
    return f"; did you mean {'./' if path == Path() else ''}{store}?" if store.is_dir() else ""
