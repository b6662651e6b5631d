"""The runs that a path means: none that a link in a store leads to."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.formats.finding import RECORD
from harness.runs.run_paths import folders_with_pages, run_folders


def a_run(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "run.json").write_text("{}")
    return folder


@pytest.mark.parametrize(
    "place", ["storm", "storm/run", "findings", "findings/f", "findings/f/simulated", "report.html"]
)
def test_a_link_in_a_store_leads_to_no_run(tmp_path: Path, place: str) -> None:
    store, outside = tmp_path / "store", tmp_path / "outside"
    own = a_run(store / "own" / "1")
    for there in ("", "run", "f/simulated", "simulated"):
        a_run(outside / there) if there else outside.mkdir()
        (outside / there / RECORD).write_text("{}")
    (outside / "run.json").write_text("{}")
    link = store / place
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(outside)
    assert run_folders([store]) == [own]
    assert {each.resolve() for each in folders_with_pages([store])} == {own}
