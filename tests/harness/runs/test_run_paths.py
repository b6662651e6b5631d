"""The runs that a path means: none that a link in a store leads to."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from checker.engine.local import check_run
from checker.formats.errors import CheckerError
from checker.ingest.external_history import SUFFIX, validate
from harness.formats.finding import RECORD
from harness.runs.run_paths import folders_with_pages, run_folders
from node.formats.errors import UsageError
from tests.support.checker.story import Story


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


def test_a_link_that_a_person_names_is_followed_to_a_run_only(tmp_path: Path) -> None:
    store, run = tmp_path / "store", Story().write(tmp_path / "outside/run")
    for folder in (store, tmp_path / "empty"):
        folder.mkdir()
    for name, target in (("latest", run), ("nothing", tmp_path / "empty")):
        (store / name).symlink_to(target)
    (found,) = run_folders([store / "latest"])
    check_run(found, write=True)
    assert (run / "results.json").is_file()
    assert folders_with_pages([store / "latest"]) == [store / "latest"]
    for pages_or_runs in (run_folders, folders_with_pages):
        with pytest.raises(UsageError, match="not a run folder"):
            pages_or_runs([store / "nothing"])


LINE = "{:process 0, :type :invoke, :f :send, :value [[:send 1 2]], :time 3}\n"


def test_a_store_of_jepsen_is_each_of_its_histories(tmp_path: Path) -> None:
    store = tmp_path / "store"
    for place, packed in (("kafka/20240101", False), ("kafka/20240102", True)):
        (folder := store / place).mkdir(parents=True)
        if packed:
            (folder / "history.edn.gz").write_bytes(gzip.compress(LINE.encode()))
        else:
            (folder / "history.edn").write_text(LINE)
    (store / "kafka" / "latest").symlink_to("20240102")
    (store / "latest").symlink_to("kafka/20240102")
    for promise in (None, {"retention": True}, None):
        found = run_folders([store], promise)
        assert [each.parent.name for each in found] == ["20240101", "20240102"]
        about = [json.loads((each / "run.json").read_text())["promise"] for each in found]
        assert ["retention" in each for each in about] == 2 * [promise is not None]
        assert [(each / "history.edn").read_text() for each in found] == [LINE, LINE]


def test_a_packed_history_is_validated_and_a_damaged_one_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.edn.gz"
    file.write_bytes(gzip.compress(LINE.encode()))
    assert validate(file) == []
    file.write_bytes(gzip.compress(LINE.encode())[:-9])
    with pytest.raises(CheckerError, match="cannot be unpacked"):
        run_folders([file])
    assert [*tmp_path.iterdir()] == [file], "nothing was written"


def test_a_file_that_is_no_history_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    file = tmp_path / "notes.md"
    file.write_text("# Notes\n\n{}\n")
    with pytest.raises(UsageError, match="not a history"):
        run_folders([file])
    assert [*tmp_path.iterdir()] == [file]


def test_a_history_that_lies_where_nothing_can_be_written_is_judged_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file := tmp_path / "history.edn").write_text(LINE)
    monkeypatch.setattr("checker.ingest.external_history.why_not_writable", lambda _: "read-only")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (folder,) = run_folders([file])
    assert folder.is_relative_to(tmp_path / "tmp")
    assert folder.name == f"history.edn{SUFFIX}"
