"""The real jobs of a nightly run: searches, replays, processes, fault coverage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from harness.formats.finding import REAL, Finding
from harness.nightly import corpus, kinds
from harness.nightly.kinds import DeterminismJob, ReplayJob
from harness.search import findings
from harness.search.search_jobs import FinishJob, SearchJob
from harness.search.shrink.real_schedule import RealSchedule, slow_motion
from harness.search.worlds import simulated as simulated_world
from harness.search.worlds.simulated import INTERNAL, SimulatedSubject
from harness.search.worlds.subject import RunFolders
from nemesis.formats.schedule import Schedule, load
from tests.harness.search.worlds.test_outcome import LOST, bitten

SUBJECT = SimulatedSubject(protocol="high-watermark")
SEARCH = SearchJob(key="search/0", subject=SUBJECT, seed=0, first=0, count=1000)


@pytest.mark.integration
def test_the_finding_of_a_search_becomes_part_of_the_corpus(tmp_path: Path) -> None:
    row = SEARCH.do()
    assert row.fault_coverage
    finding, *_ = row.findings
    assert row.buckets[finding.bucket] >= 1
    assert row.failures == sum(row.buckets.values())
    finished = FinishJob(
        key="search/finding/0",
        subject=SUBJECT,
        finding=finding,
        tries=30,
        place=RunFolders(str(tmp_path)),
        form=False,
        page=True,
    ).do()
    assert (tmp_path / finished.page).is_file()

    (saved,) = (s for s in corpus.simulated(tmp_path) if s.file.startswith(str(tmp_path)))
    assert saved.schedule == load(tmp_path / finished.folder)
    assert corpus.named(Path(saved.file), saved.schedule) == finding.bucket
    again = ReplayJob(key="replay/0", file=saved.file).do()
    assert again.met
    assert again.verdict == "invalid"

    # The next nightly run knows it: it is counted, and no finding.
    known = tuple(row.buckets)
    second = replace(SEARCH, known=known, count=row.schedules).do()
    assert (second.buckets, second.findings) == (row.buckets, [])


@pytest.mark.parametrize(("broken", "forms"), [(LOST, 1), (INTERNAL, 0)])
def test_a_failure_that_clients_see_gets_a_form_for_real_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str, forms: int
) -> None:
    def slow_form(schedule: Schedule, about: str, **_: Any) -> RealSchedule:
        return RealSchedule(slow_motion(schedule), 30)

    monkeypatch.setattr(simulated_world, "real_schedule", slow_form)
    schedule, bucket = bitten()[0]
    finding = Finding(
        subject="kafka",
        bucket=bucket,
        property=broken,
        sentence="lost",
        drawn=schedule,
        smallest=schedule,
        shrunk=True,
    )
    folder = findings.keep(finding, tmp_path)
    SUBJECT.complete(finding, folder, lambda: True, RunFolders())
    made = [s.schedule for s in corpus.real(tmp_path) if s.file.startswith(str(tmp_path))]
    assert made == [slow_motion(schedule)] * forms
    assert (folder / REAL).is_file() == bool(forms)
    # What was found on real processes of a system is none of the corpus.
    findings.keep(replace(finding, world="real"), tmp_path)
    assert not [s for s in corpus.simulated(tmp_path) if s.file.startswith(str(tmp_path))]


@pytest.mark.parametrize("differ", [False, True])
def test_what_two_processes_get_differently_is_not_deterministic(
    differ: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def do_one(job: DeterminismJob, *_: Any) -> Any:
        done.append([(schedule, "1"), (schedule, str(len(done) if differ else 2))])
        return done[-1]

    schedule, done = Schedule(), list[Any]()
    monkeypatch.setattr(kinds, "do_one", do_one)
    output = str(tmp_path / "output.txt")
    row = DeterminismJob(key="determinism/0", protocol="kafka", seed=0, runs=2, output=output).do()
    assert (row.runs, len(done), row.differing) == (2, 2, [schedule] * differ)
