"""The lists of small bugs fit the sources, and blind search finds most of a sample."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.__main__ import main
from tests.lab.small_bugs import CLASSES, small_bugs

pytestmark = pytest.mark.nightly


def test_each_small_bug_changes_its_source() -> None:
    bugs = small_bugs()
    assert len({bug.code for bug in bugs}) == len(bugs)
    for bug in bugs:
        compile(bug.changed_source(), bug.file, "exec")
        assert bug.kind in CLASSES
        assert bug.because


@pytest.mark.parametrize("engine", ["scenarios", "grammar"])
def test_a_blind_search_finds_easy_bugs(engine: str, tmp_path: Path) -> None:
    easy = ["U01", "U11", "W17", "W28", "X18"]
    words = ["small_bugs", "--only", *easy, "--engine", engine, "--store", str(tmp_path)]
    assert main([*words, "--seconds", "60", "--least", "100"]) == 0
    assert len(list(tmp_path.iterdir())) == len(easy)
