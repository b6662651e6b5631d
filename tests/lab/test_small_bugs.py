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


@pytest.mark.nightly
def test_a_blind_search_finds_easy_bugs(tmp_path: Path) -> None:
    found(["U01", "U11", "W17", "W28", "X18"], tmp_path)


@pytest.mark.nightly
def test_failures_that_stay_show_what_stops_the_rest(tmp_path: Path) -> None:
    found(["Y26", "Y27", "Y28", "Y29", "Y30"], tmp_path)


@pytest.mark.nightly
def test_invariants_show_inside_the_cluster_what_clients_seldom_see(tmp_path: Path) -> None:
    codes = ["W19", "W23", "X17", "X21", "X24", "Y02", "Y15", "Y16"]
    found(codes, tmp_path)


def found(codes: list[str], store: Path) -> None:
    """Check that a search finds all of these bugs."""
    words = ["small_bugs", "--only", *codes, "--kinds", *CLASSES]
    assert main([*words, "--store", str(store), "--seconds", "60", "--least", "100"]) == 0
    assert len(list(store.iterdir())) == len(codes)
