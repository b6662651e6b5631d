"""The table of what is known to be lost in third-party systems."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from harness.formats.finding import Finding, RunCounts, SafeRun
from harness.runs.interrupts import Interrupts
from harness.runs.progress import Progress
from harness.search.catalogue import catalogue, known_bugs, table
from harness.search.catalogue.catalogue import EntryResult, result_in
from harness.search.catalogue.known_bugs import KNOWN_LOSSES, KnownLoss, wanted_losses
from harness.search.loop import Budget, journal_of
from harness.search.requests import BugSearchRequest
from harness.search.worlds.outcome import ScheduleOutcome
from harness.search.worlds.real import StormJob, StormSubject
from harness.systems import registry
from nemesis.formats.schedule import Schedule
from tests.support import trial_adapters
from tests.support.local_pool import LocalPool
from tests.support.storm_fakes import FakeStorms, find_of, loses_a_write

TRIAL = f"{trial_adapters.__name__}:Trial"
ROW = KNOWN_LOSSES[0]


def finding(**changes: object) -> Finding:
    made = Finding(
        world="real",
        subject="nats",
        version="2.15.1",
        bucket="no-lost-acknowledged-write: one disk",
        property="no-lost-acknowledged-write",
        disks=1,
        sentence="invalid: 7 acknowledged records are lost.",
        seed=1,
        number=4,
        family="stale-takes-over",
        schedules_before=4,
        drawn=Schedule(),
        smallest=Schedule(),
        seconds_before=210.0,
        faults=("1.00 s: Kill a follower of log-0, for 4.00 s", "5.00 s: Kill the leader of log-0"),
        counts=RunCounts(failed=3, of=3),
        safe_settings={"sync": "always"},
        safe_runs=(SafeRun(verdict="valid"), SafeRun(verdict="valid")),
    )
    return msgspec.structs.replace(made, **changes)


def searched(seed: int, seconds: float, found: Finding | None) -> EntryResult:
    return EntryResult(
        code=ROW.code,
        seed=seed,
        budget_s=900.0,
        found=found is not None,
        seconds=seconds,
        schedules=seed * 10,
        finding=found,
        version="2.15.1",
    )


def test_each_row_is_a_configuration_of_a_system_that_is_there() -> None:
    assert len({row.code for row in KNOWN_LOSSES}) == len(KNOWN_LOSSES)
    for row in KNOWN_LOSSES:
        assert registry.find(row.system, row.settings).settings.items() >= row.settings.items()


def test_a_finding_of_another_kind_is_not_the_one_that_is_known() -> None:
    assert ROW.shows(finding())
    assert not ROW.shows(finding(disks=0))
    assert not ROW.shows(finding(property="liveness"))
    assert not ROW.shows(finding(anomaly="unseen"))
    cut_off = next(row for row in KNOWN_LOSSES if row.code == "redis-cut-off")
    assert cut_off.shows(finding(on_links=True))
    assert not cut_off.shows(finding())
    acks = next(row for row in KNOWN_LOSSES if row.code == "nats-forgotten-state")
    assert acks.shows(finding(property="delivery", anomaly="acked-redelivered"))
    assert not acks.shows(finding())
    skipped = next(row for row in KNOWN_LOSSES if row.code == "nats-skipped-messages")
    assert skipped.shows(finding(property="delivery", anomaly="not-redelivered"))
    assert not skipped.shows(finding(property="delivery", anomaly="acked-redelivered"))


def test_a_loss_that_a_node_tells_of_is_known_by_its_words(tmp_path: Path) -> None:
    row = next(row for row in KNOWN_LOSSES if row.code == "kafka-unclean")
    assert not row.shows(finding(run=str(tmp_path)))
    log = tmp_path / "output" / "n2.txt"
    log.parent.mkdir(parents=True)
    log.write_text("partition change for log-0-0: leader: 2\n")
    assert not row.shows(finding(run=str(tmp_path)))
    log.write_text("UNCLEAN partition change for log-0-0: leader: 2\n")
    assert row.shows(finding(run=str(tmp_path)))


def known(row: KnownLoss, patch: pytest.MonkeyPatch) -> KnownLoss:
    patch.setattr(known_bugs, "KNOWN_LOSSES", (row,))
    return row


def test_a_failure_that_is_not_the_known_one_hides_no_other_of_its_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[ScheduleOutcome] = []

    def plan(job: StormJob, run: int) -> ScheduleOutcome | bool:
        outcome = loses_a_write(job)
        (Path(outcome.folder) / "told.txt").write_text("yes" if len(runs) == 3 else "")
        runs.append(outcome)
        return len(runs) % 2 == 0 and outcome

    row = KnownLoss(code="told", system=TRIAL, what="one", disks="none", logged=("told.txt", "yes"))
    known(row, monkeypatch)
    FakeStorms(plan, monkeypatch).search(
        *(tmp_path, TRIAL, Budget(until_failure=True)),
        disks="none",
        loss="told",
        wanted=row.shows,
        shrinks=False,
    )
    subject = StormSubject(system=TRIAL, disks="none", loss="told")
    made = result_in(journal_of(tmp_path, subject, 3), row, 3)
    assert made is not None
    assert (made.found, made.schedules) == (True, 4)
    assert made.finding is not None
    assert made.finding.run == runs[3].folder
    assert not Path(runs[1].folder).exists()


def test_a_smaller_schedule_shows_the_known_loss_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan(job: StormJob, run: int) -> ScheduleOutcome:
        cut = any(fault.what == "power-cut" for fault in job.schedule.faults)
        return loses_a_write(job, *(("n1",) if cut else ()))

    row = KnownLoss(code="disk", system=TRIAL, what="one", disks="one", lost_disks=1, safe={})
    known(row, monkeypatch)
    made = FakeStorms(plan, monkeypatch).search(
        *(tmp_path, TRIAL, Budget(until_failure=True)),
        loss="disk",
        wanted=row.shows,
        settled=row.settles,
    )
    found = find_of(made)
    assert len(found.faults) == 1
    assert "Cut the power" in found.faults[0]
    assert found.safe_settings is None


def test_the_table_has_medians_and_the_smallest_schedule() -> None:
    unshrunk = finding(counts=RunCounts(failed=1, of=1), faults=("1.00 s: Kill n1",))
    made = [searched(1, 100.0, unshrunk), searched(2, 300.0, finding()), searched(3, 900.0, None)]
    (cells,) = table.rows([ROW], made)
    assert dict(zip(table.HEADINGS, cells, strict=True)) == {
        "code": ROW.code,
        "on": "nats 2.15.1",
        "breaks": ROW.what,
        "found": "2 of 3",
        "time": "300 s (100 to 900)",
        "schedules": "20",
        "faults": "2",
        "fails in": "3 of 3",
        "safe runs": "valid, valid",
    }
    assert table.details(ROW, made) == (
        f"**{ROW.code}** `no-lost-acknowledged-write: one disk`: Kill a follower of log-0, for "
        "4.00 s; Kill the leader of log-0 (as drawn). Safe: `sync=always`."
    )


def test_a_page_has_the_rows_that_were_searched() -> None:
    known = KNOWN_LOSSES
    text = table.as_markdown(known, [searched(1, 100.0, finding())])
    assert text.count("\n| ") == 2
    assert text.count("\n* **") == 1
    assert max(map(len, text.splitlines())) <= 120
    words = table.as_text(known, [searched(1, 100.0, finding())]).splitlines()
    assert words[1].split()[:3] == ["nats-one-disk", "nats", "2.15.1"]
    # A finding that was run on the safe configuration is shown first.
    smaller = finding(faults=("1.00 s: Kill n1",), safe_runs=())
    assert not ROW.is_complete(smaller)
    assert ROW.is_complete(msgspec.structs.replace(smaller, safe_settings=None))
    shown = table.best(ROW, [searched(1, 1.0, smaller), searched(2, 1.0, finding())])
    assert shown == finding()


def test_the_table_replaces_itself_in_a_document() -> None:
    old = table.put_into("# Systems\n\nText.\n", "| old |")
    new = table.put_into(f"{old}\nMore.\n", "| new |")
    assert new.startswith("# Systems\n\nText.\n\n")
    assert "| new |" in new
    assert "| old |" not in new
    assert new.endswith("\nMore.\n")


def test_the_losses_of_one_system_or_of_all_are_asked_for() -> None:
    assert wanted_losses("all") == list(KNOWN_LOSSES)
    redis = wanted_losses("redis")
    assert {row.system for row in redis} == {"redis"}


def test_searches_for_losses_follow_each_other_and_one_finding_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan(job: StormJob, run: int) -> ScheduleOutcome | bool:
        return loses_a_write(job) if not job.subject.settings else False

    row = KnownLoss(code="one", system=TRIAL, what="one", disks="none", safe={})
    known(row, monkeypatch)
    FakeStorms(plan, monkeypatch)
    request = BugSearchRequest(system=TRIAL, seeds=2, budget_s=1e6, store=tmp_path)
    lines: list[str] = []
    with Interrupts() as interrupts, Progress(quiet=True) as progress:
        made = catalogue.find(request, interrupts, progress, lines.append, LocalPool(size=2))
    assert made.open == []
    assert [(one.code, one.seed, one.found) for one in made.results] == [
        ("one", 0, True),
        ("one", 1, True),
    ]
    # The second finding is kept as it was drawn, because the first has all that is shown.
    assert [line.partition(":")[0] for line in lines if "shrunk" in line] == ["one, seed 0"]
    first, second = (one.finding for one in made.results)
    assert first is not None
    assert row.is_complete(first)
    assert second is not None
    assert second.shrink_runs == 0
