"""Comparison of a run's files with `seal.json`, the lines and digests that its harness recorded
when the run ended (`harness.formats.seal`).

A run of one of our harnesses must have a seal: without it nothing shows that no line is missing. A
difference from the seal is damage, and the run is then unknown, whatever its evidence seems to
show.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from checker.evidence.run_meta import RunMeta
from checker.ingest.lines import Problems
from checker.ingest.source import Source, why
from harness.formats import seal as seals
from harness.formats.seal import HISTORY, PROBES, FileSeal, Seal
from node.formats.json_input import MOST_FILE_BYTES, Unreadable, decode, read_bytes, read_file

_OURS: Final = ("real", "simulated")
_HEAD: Final = ("schedule.json", "faults.jsonl", "exits.jsonl", "messages.jsonl", PROBES)
UNSEALED: Final = (
    "The evidence is not sealed, so that it cannot be known whether it is whole (its harness was "
    "killed, or was of an earlier version)."
)


def check_run(source: Source, meta: RunMeta, tables_only: bool, problems: Problems) -> None:
    """Compare run.json, the small files and the names of all files with the seal; report
    differences to `problems`. `tables_only`: the history is kept as tables."""
    folder = source.folder
    there = (folder / seals.FILE).is_file()
    if not there and not meta.seal:
        if meta.world in _OURS and meta.state != "running":
            problems.add("seal", UNSEALED)
        return
    sealed = _sealed(folder, meta, problems)
    if sealed is None:
        return
    names = set(sealed.files) - ({HISTORY} if tables_only else set())
    for name in sorted(names):
        if not (folder / name).is_file():
            lines = sealed.files[name].lines
            problems.damage(f"{name} is missing: it had {lines} lines when the run was sealed.")
        elif name in _HEAD:
            _compare(folder, name, sealed.files[name], problems)
    for name in sorted({*seals.sealed_names(folder)} - sealed.files.keys()):
        problems.damage(f"{name} was not there when the run was sealed.")
    if tables_only and _tables_seal(folder, meta.seal) is None:
        problems.damage(
            "The history is kept as tables only, and they were not sealed when they were made."
        )


def check_source(source: Source, meta: RunMeta, tables_only: bool, problems: Problems) -> None:
    """Compare the file of a source with what `seal.json` has of it; report a difference to
    `problems`. If a table is read in several parts, only the first part is a reason to compare the
    file."""
    folder = source.folder
    if not meta.seal or not source.path.is_relative_to(folder):
        return
    table = source.path.suffix == ".parquet"
    if table and (not tables_only or source.groups[0]):
        return
    try:
        sealed = (_tables_seal if table else _run_seal)(folder, meta.seal)
    except (OSError, Unreadable):
        return  # Said of the run as a whole.
    known = None if sealed is None else sealed.files.get(source.name)
    if known is not None:
        _compare(folder, source.name, known, problems)
    elif sealed is not None and table:
        problems.damage(f"{source.name} was not there when the tables were made.")


@lru_cache(maxsize=64)
def _run_seal(folder: Path, digest: str) -> Seal:
    """Return the seal with this digest, read once for all files. Raises OSError, Unreadable."""
    content = read_bytes(folder / seals.FILE, MOST_FILE_BYTES)
    if seals.digest_of(content) != digest:
        raise Unreadable(f"{seals.FILE} is another seal")
    return decode(content, Seal)


def _sealed(folder: Path, meta: RunMeta, problems: Problems) -> Seal | None:
    """Return the seal of a run if it belongs to this run.json; else report what is wrong."""
    try:
        content = read_bytes(folder / seals.FILE, MOST_FILE_BYTES)
        sealed = decode(content, Seal)
    except FileNotFoundError:
        problems.damage(f"{seals.FILE} is missing, but run.json names it.")
        return None
    except (OSError, Unreadable) as error:
        problems.damage(f"{seals.FILE} cannot be read: {why(error)}.")
        return None
    if not meta.seal:
        problems.damage(f"run.json does not name {seals.FILE}, which is beside it.")
        return None
    if seals.digest_of(content) != meta.seal:
        problems.damage(f"{seals.FILE} is not the seal that run.json names.")
        return None
    try:
        about = read_file(folder / "run.json", dict[str, Any])
        if seals.digest_of_run(about) != sealed.run:
            problems.damage("run.json was changed after the run was sealed.")
    except (OSError, Unreadable) as error:
        problems.damage(f"run.json cannot be read: {why(error)}.")
    return sealed


def _tables_seal(folder: Path, run_seal: str) -> Seal | None:
    """Return the seal of the tables that stand for the history of the run with this seal."""
    try:
        found = seals.read_seal(folder / seals.TABLES_FILE)
    except (OSError, Unreadable):
        return None
    return found if found.run == run_seal else None


def _compare(folder: Path, name: str, known: FileSeal, problems: Problems) -> None:
    try:
        found = seals.difference(folder / name, known)
    except OSError as error:
        problems.damage(f"{name} cannot be read: {why(error)}.")
        return
    if found is None:
        return
    if name.endswith(".parquet"):
        problems.damage(f"{name} is not as it was when the run was sealed.")
        return
    lines = "lines" if known.lines != 1 else "line"
    count = (
        f"it has {found.lines:,} instead of {known.lines:,} {lines}"
        if found.lines != known.lines
        else f"one of its {known.lines:,} {lines} was changed"
    )
    where = f"{found.first}" if found.first == found.last else f"{found.first} to {found.last}"
    problems.damage(
        f"{name} is not as it was when the run was sealed: {count}, the first difference is in "
        f"line{'s' if found.first != found.last else ''} {where}."
    )
