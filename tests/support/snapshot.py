"""Snapshots of sentences: texts for people, kept in a file beside the test that compares them.

`pytest --update` writes the files again; the difference is then read like any other change."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

Snapshot = Callable[[Path, dict[str, Iterable[str]]], None]
"""Compares a file with texts by title, each a sequence of lines."""
_NUMBER = re.compile(r"\b[0-9a-f]{12}\b|\d[\d.,:]*\d|\d")


def masked(line: str) -> str:
    """Return a line with `#` for each number, because numbers depend on the timing of a run."""
    return _NUMBER.sub("#", line)


def compare(update: bool, file: Path, texts: dict[str, Iterable[str]]) -> None:
    """Compare the file with these texts, or write it if `update`."""
    found = "".join(
        f"== {title}\n" + "".join(f"{x}\n" for x in lines) for title, lines in texts.items()
    )
    if update:
        file.write_text(found, "utf-8")
        return
    kept = file.read_text("utf-8")
    if found != kept:
        lines = difflib.unified_diff(kept.splitlines(), found.splitlines(), "kept", "found", n=1)
        pytest.fail(f"{file.name} differs; `pytest --update` writes it again:\n" + "\n".join(lines))
