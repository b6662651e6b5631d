"""The rows of docs/systems: a nightly run and a command run them, and the document has them all."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from checker.formats.anomalies import AGREEMENT, PROPERTIES
from harness.formats.nightly_journal import Ran, Skipped
from harness.formats.nightly_run import RowRuns
from harness.nightly import rows
from harness.nightly.rows import BEGIN, END, SystemRow
from harness.search.catalogue.table import put_into
from harness.search.jobs import JobProcesses
from node.formats.errors import FloodmarkError
from tests.support import trial_adapters
from tests.support.command import exit_code
from tests.support.nightly_fakes import NightlyRuns
from tests.support.paths import ROOT

TRIAL = f"{trial_adapters.__name__}:Trial"
KEEPS = SystemRow(system=TRIAL, settings={"speed": "fast"}, expect="valid", least=2, of=2)
LOSES = SystemRow(system=TRIAL, settings={"speed": "slow"}, expect="invalid", least=1, of=2)
GONE = SystemRow(system=TRIAL, settings={"broken": "version"}, expect="valid", least=1, of=1)


def tabled(monkeypatch: pytest.MonkeyPatch, *table: SystemRow) -> None:
    monkeypatch.setattr(rows, "table", lambda: list(table))


@pytest.mark.nightly
@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=row.name, marks=pytest.mark.needs(row.system.partition("_")[0]))
        for row in rows.table()
    ],
)
def test_a_row_holds(row: SystemRow, tmp_path: Path) -> None:
    with closing(JobProcesses(1, tmp_path / rows.OUTPUT)) as pool:
        runs = rows.run_row(row, tmp_path, pool, lambda: False, print)
    assert runs.holds, str(runs)


def test_the_document_has_every_row() -> None:
    document = (ROOT / "docs/systems/README.md").read_text("utf-8")
    assert put_into(document, rows.lines(document, ()), (BEGIN, END)) == document


def test_a_row_is_about_known_things() -> None:
    for row in rows.table():
        assert row.about in ("", *PROPERTIES), row.name
        assert row.least <= row.of


@pytest.mark.parametrize(
    ("about", "broken", "verdict", "counts"),
    [
        ("", {}, "valid", "valid"),
        (AGREEMENT, {AGREEMENT: "divergence", "liveness": "stuck"}, "invalid", "invalid"),
        (AGREEMENT, {"liveness": "stuck"}, "invalid", "valid"),
        (AGREEMENT, {}, "not-exercised", "not-exercised"),
    ],
)
def test_a_row_about_one_property_counts_that_one(
    about: str, broken: dict[str, str], verdict: str, counts: str
) -> None:
    row = SystemRow(system="kafka", about=about, expect="invalid", least=1, of=1)
    ran = Ran(key="row/1", why="row", protocol="", verdict=verdict, sentence="", broken=broken)
    assert row.verdict_of(ran) == counts


@pytest.mark.parametrize(
    ("verdicts", "holds"),
    [
        ("", None),
        ("invalid", None),
        ("invalid invalid", True),
        ("valid", None),
        ("valid not-exercised", False),
        ("invalid unknown unknown", None),
        ("valid invalid invalid", True),
    ],
)
def test_a_row_holds_when_enough_runs_end_as_expected(verdicts: str, holds: bool | None) -> None:
    runs = RowRuns(name="nats", expect="invalid", least=2, of=3)
    for verdict in verdicts.split():
        runs.add(verdict, 0, "1.0")
    assert runs.holds is holds


def test_a_nightly_run_runs_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = NightlyRuns(tmp_path)
    tabled(monkeypatch, KEEPS, LOSES)
    assert store.nightly(rows=True, budget_s=900.0, storms={"slow": "lost"}) == 0
    kept, lost = store.last.rows
    assert (kept.verdicts, kept.holds) == ({"valid": 2}, True)
    assert (lost.verdicts, lost.holds, lost.lost) == ({"invalid": 2}, True, [1, 1])
    assert not [b for b in store.last.buckets if "Trial" in b.protocol], "a known loss is no news"
    ran = [row for row in store.journal() if isinstance(row, Ran) and row.why == "row"]
    assert [row.expectation.verdict for row in ran] == ["invalid", "invalid", "valid", "valid"]


def test_a_row_that_does_not_hold_is_red(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = NightlyRuns(tmp_path)
    tabled(monkeypatch, KEEPS, LOSES)
    assert store.nightly(rows=True, budget_s=900.0, storms={"fast": "lost"}) == 1
    assert [line.split(" (1.0)")[1] for line in store.last.red] == [
        ": 0 of 2 valid, 2 invalid; it holds with 2 of 2",
        ": 0 of 2 invalid, 2 valid; it holds with 1 of 2",
    ]
    assert "row does not hold" in capsys.readouterr().out
    junit = (store.store / "junit.xml").read_text()
    assert junit.count("<failure message=") == 2
    kept = [row.kept for row in store.journal() if isinstance(row, Ran) and row.why == "row"]
    assert any(kept), "a loss that should not be stays"


def test_a_row_without_its_server_is_not_green(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = NightlyRuns(tmp_path)
    tabled(monkeypatch, KEEPS, GONE)
    assert store.nightly(rows=True, budget_s=900.0) == 2
    (skipped,) = (row for row in store.journal() if isinstance(row, Skipped))
    assert skipped.key == f"row/{GONE.name}"
    (why,) = store.last.uncovered
    assert why.startswith(f"row is open: {GONE.name}: not run: ")
    assert f"not covered {why[:60]}" in capsys.readouterr().out


def test_the_command_writes_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page, losing = tmp_path / "page.md", {"slow"}
    page.write_text("# Systems\n")

    def do_one(job: Any, *_: Any) -> Ran:
        row: Ran = job.row()
        if job.setup.settings.get("broken") == "hangs":
            raise FloodmarkError("its process ended")
        row.verdict = "invalid" if job.setup.settings["speed"] in losing else "valid"
        row.lost = 7 * (row.verdict == "invalid")
        return row

    def run(*table: SystemRow) -> int:
        tabled(monkeypatch, *table)
        return exit_code(["systems", "rows", "--page", f"{page}", "--store", f"{tmp_path}"])

    monkeypatch.setattr(rows, "do_one", do_one)
    assert run(KEEPS, LOSES) == 0
    written = page.read_text()
    assert "| `speed=slow` | drawn storms | 2/2 invalid | 7 |" in written
    said = capsys.readouterr()
    assert said.out.startswith(f"ok   {KEEPS.name} (1.0): 2 of 2 valid; it holds with 2 of 2\n")
    # A row that cannot be run keeps its last result.
    losing.clear()
    assert run(GONE, LOSES) == 1
    assert "**does not hold**: 0/2 invalid" in page.read_text()
    hangs = SystemRow(system=TRIAL, settings={"broken": "hangs"}, expect="valid", least=1, of=1)
    assert run(hangs) == 2
    assert "**open**: 0/1 valid" in page.read_text()
    capsys.readouterr()
    assert run(GONE) == 2
    assert capsys.readouterr().out.endswith(f"open {GONE.name}: not run: {why_gone()}\n")


def why_gone() -> str:
    with pytest.raises(FloodmarkError) as caught:
        GONE.job(0, Path(), "row")
    return str(caught.value)
