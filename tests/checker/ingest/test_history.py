"""A history.jsonl read in parts and in blocks is what it is when read at once or by line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from checker.ingest.external_history import run_folder_of
from checker.ingest.ingest import tables_of
from checker.ingest.lines import Problems
from checker.ingest.read_run_files import read_meta
from checker.ingest.source import Source
from node.formats.json_input import JsonReader, Unreadable
from tests.checker.ingest.test_read_jepsen import facts, rows_by_table
from tests.support.checker.goldens import GOLDENS


def both(folder: Path, patch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Return the results of reading a history in blocks and line by line."""

    def refused(*_: Any) -> Any:
        raise Unreadable("not at once")

    found = []
    for alone in (False, True):
        with patch.context() as change:
            if alone:
                change.setattr(JsonReader, "decode_lines", refused)
            source = Source(0, folder, "history", folder / "history.jsonl")
            into = tables_of(source, read_meta(folder, Problems()))
            found.append((rows_by_table(into), facts(into), into.problems.sentences()))
    return found[0], found[1]


@pytest.mark.parametrize("bad", [False, True])
def test_blocks_of_lines_are_what_they_are_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: bool
) -> None:
    for name, golden in GOLDENS.items():
        at_once, alone = both(golden.story(bad=bad).write(tmp_path / name), monkeypatch)
        assert at_once == alone, name


ODD_LINES = Path(__file__).with_name("odd_lines.txt").read_text().splitlines()
"""Lines with escapes for bytes that are no text."""


@pytest.mark.parametrize("text", ODD_LINES)
def test_a_line_with_anything_odd_in_it_is_reported_however_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    line = text.encode().decode("unicode_escape").encode("latin-1")
    first = b'{"op":0,"t_us":4,"process":0,"client":"c","type":"invoke","f":"poll"}\n'
    last = b'{"op":9,"t_us":9,"process":9,"client":"c","type":"invoke","f":"poll"}\n'
    file = tmp_path / "history.jsonl"
    file.write_bytes(first + line + b"\n" + last)
    at_once, alone = both(run_folder_of(file), monkeypatch)
    assert at_once == alone
