"""Run folders that somebody sent: links, FIFOs, devices, holes and odd names in them.

Nothing outside of them is written or removed, nothing waits for ever, and the run is unknown."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from checker.engine.local import check_run, check_runs
from checker.formats.errors import CheckerError
from checker.formats.verdict import Verdict
from checker.ingest.external_history import run_folder_of
from harness.replay.pages import at_most, is_invalid
from harness.runs.judge import judge, summarise, wrong_lines
from node.formats.run_folder_entries import foreign_entry
from reports import build
from reports.theme import ReportError
from tests.lab.hostile import a_folder, device, fifo, hole
from tests.support.paths import contents
from tests.support.stage_folder import sound

FILES = (
    *("run.json", "seal.json", "schedule.json", "history.jsonl", "faults.jsonl", "exits.jsonl"),
    *("messages.jsonl", "results.json", "checked.json", "trace/n1.jsonl", "logs/n2.jsonl"),
)


@pytest.fixture(autouse=True)
def nothing_hangs() -> Iterator[None]:
    """End a test that waits for something that never comes."""
    with at_most(60):
        yield


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return sound().write(tmp_path / "run")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """Return a folder outside, with files of the names that a checker writes."""
    made = tmp_path / "outside"
    (made / "ops.parquet").mkdir(parents=True)
    for name in ("results.json", "ops.parquet/part.parquet", "run.json", "history.jsonl"):
        (made / name).write_text("precious")
    return made


def link(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "results.json")


def refused(run: Path, why: str) -> None:
    """Nothing judges the run, or builds a page of it."""
    before = contents(run) if "hole" not in why else {}
    for result in (
        check_run(run, write=True),
        *check_runs([run]),
        *judge([run], None, lambda _: None),
    ):
        assert result.verdict is Verdict.UNKNOWN
        assert why in result.sentence
        assert result.sentence in summarise(run, result)
    assert not is_invalid(run)
    with pytest.raises(ReportError, match="no page is built"):
        build(run)
    assert not before or contents(run) == before


@pytest.mark.parametrize(
    ("name", "instead"),
    [(name, instead) for name in FILES for instead in (link, fifo, device, hole)]
    + [(name, a_folder) for name in FILES if "/" not in name],
)
def test_a_file_that_is_none(
    run: Path, outside: Path, name: str, instead: Callable[[Path, Path], None]
) -> None:
    before = contents(outside)
    (run / name).unlink(missing_ok=True)
    instead(run / name, outside)
    why = {link: "is a link", device: "is a link", fifo: "FIFO", hole: "has a hole"}
    refused(run, f"{name} {why.get(instead, 'is a folder')}" if instead is not fifo else "FIFO")
    assert contents(outside) == before


@pytest.mark.parametrize(
    "name",
    [
        *("tables", "trace", "logs", "tables/ops.parquet"),
        "tables/ops.parquet/part-000000.parquet",
        # The name of a file that is being written can be known before.
        ".results.json.PID",
    ],
)
def test_an_entry_that_leads_out(run: Path, outside: Path, name: str) -> None:
    name = name.replace("PID", str(os.getpid()))
    before = contents(outside)
    shutil.rmtree(run / name, ignore_errors=True)
    (run / name).parent.mkdir(parents=True, exist_ok=True)
    target = outside / "results.json" if name.startswith(".") else outside
    (run / name).symlink_to(target)
    refused(run, f"{name} is a link")
    assert contents(outside) == before


def test_a_name_that_is_no_text(run: Path) -> None:
    (run / "trace" / os.fsdecode(b"\xff.jsonl")).write_bytes(b"{}\n")
    refused(run, "has a name that is no text")


def test_a_name_with_a_newline_is_only_a_name(run: Path) -> None:
    (run / "trace" / "a\nb.jsonl").write_bytes(b"")
    assert check_run(run).verdict is not Verdict.INVALID


def test_the_folder_itself_may_be_a_link(run: Path, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to("run")
    assert check_run(tmp_path / "latest").verdict is Verdict.VALID


def test_what_a_run_has_besides_is_not_looked_at(run: Path, outside: Path) -> None:
    (run / "data").symlink_to(outside)
    os.mkfifo(run / "control")
    assert foreign_entry(run) == ""
    assert check_run(run).verdict is Verdict.VALID


# -- beside a history of another tool


def test_a_folder_for_results_that_leads_out(run: Path, outside: Path, tmp_path: Path) -> None:
    before = contents(outside)
    history = shutil.copy(run / "history.jsonl", tmp_path / "their.jsonl")
    place = tmp_path / "their.jsonl.floodmark"
    place.symlink_to(outside)
    with pytest.raises(CheckerError, match="is a link"):
        run_folder_of(Path(history))
    place.unlink()
    place.mkdir()
    (place / "tables").symlink_to(outside)
    with pytest.raises(CheckerError, match="tables is a link"):
        run_folder_of(Path(history))
    (place / "tables").unlink()
    (place / "history.jsonl").symlink_to("../their.jsonl")
    made = run_folder_of(Path(history))
    assert not (made / "history.jsonl").is_symlink()
    assert check_run(made).verdict is Verdict.VALID
    assert contents(outside) == before


def test_a_history_with_a_hole(tmp_path: Path) -> None:
    file = tmp_path / "history.edn"
    hole(file, tmp_path)
    with pytest.raises(CheckerError, match="has a hole"):
        run_folder_of(file)
    assert "has a hole" in wrong_lines(file)[0]
