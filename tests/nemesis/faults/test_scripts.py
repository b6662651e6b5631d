"""Scripts of the nemesis: every command does what its file says (`tests/support/scripts.py`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.scripts import Case, read

CASES = [
    case
    for path in sorted((Path(__file__).parent / "scripts").glob("*.txt"))
    for case in read(path)
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_script(case: Case) -> None:
    assert case.commands, "a script without commands proves nothing"
    assert case.played() == case.lines
