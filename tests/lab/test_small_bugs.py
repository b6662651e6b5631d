"""The lists of small bugs fit the sources, and blind search finds most of a sample."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.__main__ import main
from tests.lab.small_bugs import CLASSES, small_bugs


def test_each_small_bug_changes_its_source() -> None:
    bugs = small_bugs()
    assert len({bug.code for bug in bugs}) == len(bugs)
    for bug in bugs:
        compile(bug.changed_source(), bug.file, "exec")
        assert bug.kind in CLASSES
        assert bug.because


SETS = {
    "easy": ["U01", "U11", "W17", "W28", "X18"],
    "liveness": ["Y26", "Y27", "Y28", "Y29", "Y30"],
    "inside": ["W19", "W23", "X17", "X21", "X24", "Y02", "Y15", "Y16"],
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", SETS)
def test_a_blind_search_finds_bugs(name: str, tmp_path: Path) -> None:
    words = ["small_bugs", "--only", *SETS[name], "--kinds", *CLASSES]
    assert main([*words, "--store", str(tmp_path), "--seconds", "60", "--least", "100"]) == 0
    assert len(list(tmp_path.iterdir())) == len(SETS[name])


@pytest.mark.nightly
def test_a_blind_search_finds_most_of_the_list_of_somebody_else(tmp_path: Path) -> None:
    words = ["small_bugs", "--lists", "A", "--kinds", *CLASSES, "--seconds", "60"]
    assert main([*words, "--store", str(tmp_path), "--least", "75"]) == 0
