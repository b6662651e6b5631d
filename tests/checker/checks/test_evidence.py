"""The evidence that a property needs; without it the property is unknown or not examined."""

from __future__ import annotations

from pathlib import Path

import pytest

from checker.engine.local import check_run
from checker.evidence.needs import Need
from checker.formats.anomalies import (
    AGREEMENT,
    LIVENESS,
    LOG,
    LOST_WRITES,
    OFFSETS,
    PROPERTIES,
    READS,
)
from checker.formats.verdict import RunResult, Verdict
from checker.ingest.external_history import run_folder_of
from tests.support.checker.story import Story, against
from tests.support.paths import ROOT


def of(result: RunResult, name: str) -> tuple[Verdict, str]:
    found = result.properties[PROPERTIES.index(name)]
    return found.verdict, found.reason


def unknown(result: RunResult) -> set[str]:
    """Return the properties that are unknown; nothing may count against the system."""
    assert against(result) == {}
    return {p.property for p in result.properties if p.verdict is Verdict.UNKNOWN}


def whole(*partitions: str) -> Story:
    """Return a run that is valid: written, read, read again at the end, and in all logs."""
    s = Story(*partitions)
    batches = s.busy()
    s.phase("heal")
    s.final((0, 1_000_000, 12))
    s.agree(*batches)
    s.phase("end", 5_000)
    return s


def test_a_log_that_nobody_lists_as_missing(tmp_path: Path) -> None:
    s = whole()
    s.run["brokers"] = []
    folder = s.write(tmp_path)
    (folder / "logs" / "n2.jsonl").unlink()
    result = check_run(folder)
    assert of(result, AGREEMENT)[1].startswith("the log of log-0 on n2 is missing")


EDN = Path(__file__).with_name("read_twice.edn").read_text()
EMPTY_POLL = """\
{:type :invoke, :f :poll, :value [[:poll]], :process 2, :time 11000}
{:type :ok, :f :poll, :value [[:poll ANSWER]], :process 2, :time 12000}
"""


@pytest.mark.parametrize("answer", ["{}", "{0 []}"])
def test_a_final_poll_of_jepsen_gets_nothing_below_what_was_read(
    tmp_path: Path, answer: str
) -> None:
    file = tmp_path / "history.edn"
    file.write_text(EDN)
    result = check_run(run_folder_of(file))
    assert unknown(result) == {LOST_WRITES}, "it may have been about to read on"
    file.write_text(EDN + EMPTY_POLL.replace("ANSWER", answer))
    result = check_run(run_folder_of(file))
    assert unknown(result) == {LOST_WRITES}, "it may have waited in vain"


def test_a_bare_history_examines_no_replica(tmp_path: Path) -> None:
    file = tmp_path / "history.edn"
    file.write_text(EDN)
    result = check_run(run_folder_of(file))
    for name in (AGREEMENT, READS, LOG, LIVENESS):
        assert of(result, name) == (Verdict.NOT_EXAMINED, "There was nothing to judge it by.")
    assert of(result, OFFSETS)[0] is Verdict.VALID


def test_the_document_names_every_need() -> None:
    text = (ROOT / "docs" / "checks.md").read_text().partition("## What each property needs")[2]
    named = {line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")}
    assert {need.value for need in Need} <= named
