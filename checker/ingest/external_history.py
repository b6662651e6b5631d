"""Histories that other tools recorded: recognised, and made into run folders that can be judged.

A Jepsen history (`history.edn`, or its operations as JSON lines) is translated; a bare history in
our own form is used as it is. The run folder is made beside the file, `<file>.floodmark`, so that
results stand next to what they are about; it is rebuilt each time.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

import msgspec

from checker.evidence.run_meta import RunMeta
from checker.formats.errors import CheckerError
from checker.ingest.edn import EdnError, read_forms, read_line
from checker.ingest.jepsen import NotAnOperation, Translator
from checker.ingest.jepsen_columns import translate
from checker.ingest.line_shapes import NotPlain
from checker.ingest.lines import Block, Line, Problems, lines_of, read_blocks, read_lines
from checker.ingest.read_history import read_history
from checker.ingest.source import Ingested, Source, why
from harness.formats.history import Op, encode
from harness.formats.problem import Problem
from node.formats.files import write_whole
from node.formats.json_input import JsonReader, Unreadable
from node.formats.run_folder_entries import foreign_entry, hole_in

SUFFIX: Final = ".floodmark"
HISTORIES: Final = ("history.edn", "history.jsonl", "history.json")
_jepsen: Final = JsonReader(Any)
_PROBED_LINES: Final = 20
_BLOCK_BYTES: Final = 4 << 20
_ALL: Final = 1 << 30
# Nothing is known of the system but what its clients say: markers of transactions may leave gaps.
_PROMISE: Final = {"contiguous_offsets": False}

LINES: Final[Mapping[str, Callable[[bytes], Sequence[Any]]]] = {
    "edn": read_line,
    "jepsen": lambda line: [_jepsen.decode(line)],
}


def external_history_in(path: Path) -> Path | None:
    """Return the history file that `path` names or holds, if it is not a run folder of our own."""
    if path.is_file():
        return path
    if (path / "run.json").exists():
        return None
    for name in HISTORIES:
        # history.jsonl alone may be ours, of a run whose run.json was lost.
        if (file := path / name).is_file() and (name != "history.jsonl" or form_of(file) != "own"):
            return file
    return None


def form_of(file: Path) -> str:
    """Return "edn", "jepsen" (JSON lines) or "own", by the first lines that can be understood."""
    if file.suffix == ".edn":
        return "edn"
    for line in _first_lines(file):
        try:
            found = _jepsen.decode(line.data)
        except Unreadable:
            if line.data.lstrip()[:2] in (b"{:", b"#j", b"[{"):
                return "edn"
            continue
        if isinstance(found, dict):
            return "jepsen" if "op" not in found and "type" in found else "own"
    return "own"


def _first_lines(file: Path) -> Iterator[Line]:
    try:
        for number, line in enumerate(read_lines(file)):
            if number == _PROBED_LINES:
                return
            yield line
    except OSError:
        return


def run_folder_of(file: Path, promise: Mapping[str, Any] = _PROMISE) -> Path:
    """Make the run folder of an external history. Raises CheckerError if it cannot be written."""
    folder = file.with_name(file.name + SUFFIX)
    if why := hole_in(file):
        raise CheckerError(f"{file} {why}.")
    if folder.is_symlink():
        raise CheckerError(
            f"{folder} is a link: results are not written where it leads; remove it."
        )
    target = folder / "history.jsonl"
    with contextlib.suppress(OSError):
        target.unlink()
    if why := foreign_entry(folder):
        raise CheckerError(f"{folder}: {why}: results are not written there; remove it.")
    form = form_of(file)
    try:
        folder.mkdir(exist_ok=True)
        about: dict[str, Any] = {
            "format": 2,
            "run": file.name,
            "name": file.stem,
            "state": "finished",
            "source": form,
            "promise": {**_PROMISE, **promise},
            "capabilities": [],
            "complete_reads": True,
        }
        if form == "own":
            _place(file, target)
        else:
            about |= _translate(file, form, target)
        write_whole(folder / "run.json", msgspec.json.encode(about) + b"\n")
    except OSError as error:
        raise CheckerError(f"{folder} cannot be written: {error.strerror}.") from None
    return folder


def _place(file: Path, target: Path) -> None:
    """Put a history into its run folder unchanged: as a hard link, or as a copy if the file system
    has none. Raises OSError."""
    try:
        os.link(file.resolve(), target)
    except OSError:
        shutil.copyfile(file, target)


def validate(file: Path) -> list[str]:
    """Return what is wrong with a history on which line, in sentences; none if all is well with it.

    Unknown fields count as wrong here, and nothing is summed up. Raises OSError.
    """
    problems = Problems(in_full=_ALL)
    form = form_of(file)
    if form == "own":
        into = Ingested(RunMeta(), problems=problems)
        read_history(Source(0, file.parent, "history", file), into)
    else:
        forms = forms_of(form, read_blocks(file))
        count = sum(1 for _ in ops_of(file, forms, Translator(), problems))
        if not count and not problems:
            problems.add("empty", f"{file.name} has no operation in it: there is nothing to judge.")
    return [*problems.sentences(), *problems.notes]


def ops_of(
    file: Path, forms: Iterable[tuple[int, Any]], translator: Translator, problems: Problems
) -> Iterator[Op]:
    """Yield the operations of a Jepsen history in our form; what is no operation is a problem."""
    for number, found in forms:
        if isinstance(found, Exception):
            sentence = f"{file.name} line {number} cannot be read: {why(found)}."
            problems.add(f"{file.name}: line", sentence)
            translator.lines_lost = True
            continue
        try:
            op = translator.take(found)
        except NotAnOperation as error:
            sentence = f"{file.name} line {number} is not an operation: {error}."
            problems.add(f"{file.name}: operation", sentence)
            translator.lines_lost = True
            op = error.op
        if op is not None:
            yield op


def _translate(file: Path, form: str, target: Path) -> dict[str, Any]:
    """Write a Jepsen history in our form; return the fields for run.json."""
    translator, problems = Translator(), Problems()
    with target.open("wb") as out:
        out.writelines(_translated(file, form, translator, problems))
    return {
        "partitions": {partition: [] for partition in sorted(translator.partitions)},
        "problems": [Problem(kind="history-line", sentence=each) for each in problems.sentences()],
        "history_whole": not problems,
    }


def _translated(
    file: Path, form: str, translator: Translator, problems: Problems
) -> Iterator[bytes]:
    """Yield the lines of a Jepsen history in our form: by column, and one by one from the first
    block on in which something is odd."""
    blocks = read_blocks(file, _BLOCK_BYTES)
    odd: list[Block] = []
    forms: Iterable[tuple[int, Any]]
    try:
        for number, text in blocks:
            try:
                yield translate(text, LINES[form], translator)
            except NotPlain:
                odd.append((number, text))
                break
        forms = forms_of(form, chain(odd, blocks))
    except OSError as error:
        forms = [(0, EdnError(str(error.strerror)))]
    yield from map(encode, ops_of(file, forms, translator, problems))


def _json_forms(first: int, block: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the forms of some lines of JSON, all at once if all is well with them."""
    try:
        found = _jepsen.decode_lines(block)
    except Unreadable:
        found = []
    if found and len(found) == block.count(b"\n") and block.endswith(b"\n"):
        yield from enumerate(found, first)
        return
    for line in lines_of(first, block):
        try:
            yield line.number, _jepsen.decode(line.data)
        except Unreadable as error:
            yield line.number, error


def forms_of(form: str, blocks: Iterable[Block]) -> Iterator[tuple[int, Any]]:
    """Yield the operations of a history with their lines; an exception for a broken one."""
    try:
        if form == "edn":
            yield from read_forms(line for block in blocks for line in lines_of(*block))
            return
        for first, block in blocks:
            yield from _json_forms(first, block)
    except OSError as error:
        yield 0, EdnError(str(error.strerror))
