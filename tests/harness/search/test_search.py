"""Searches in simulated worlds: from nothing to a shrunk schedule that fails again, and on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from checker.formats.verdict import RunResult, Verdict
from harness.formats.finding import DRAWN, EXPLANATION, README, RECORD, SCHEDULE, Finding
from harness.formats.journal import JobJournal, SearchedRow, SearchRow, read_rows, state_of
from harness.search import findings, table
from harness.search.jobs import EndedJob, JobProcesses
from harness.search.loop import Budget, Search, journal_of
from harness.search.search_jobs import FinishJob
from harness.search.shrink.real_schedule import real_schedule
from harness.search.spark_jobs import SparkJobs
from harness.search.worlds.outcome import ScheduleOutcome, run_simulated
from harness.search.worlds.simulated import SimulatedSubject
from harness.sim import run
from harness.sim.invariant_checker import Violation
from nemesis import ready_made
from nemesis.formats.schedule import Cluster, Fault, load
from node.formats.errors import FloodmarkError, StorageError, UsageError
from reports import wording
from tests.lab.stores import store_of
from tests.support.local_pool import LocalPool
from tests.support.nightly_fakes import Killed

READS_AHEAD = SimulatedSubject(protocol="kafka", bugs=("read-beyond-hw",), chunk=3)
"""A bug that any follower that lags a little reproduces."""
HELD = SimulatedSubject(protocol="kafka", chunk=3)


class Quick(LocalPool):
    """Spends little on a finding."""

    def do(self, job: Any) -> object:
        if isinstance(job, FinishJob):
            job = replace(job, tries=3, form=False, seconds=0.2)
        return job.do()


def searched(
    store: Path,
    pool: Any,
    budget: Budget,
    subject: SimulatedSubject = READS_AHEAD,
    stop: Callable[[], bool] = lambda: False,
    **more: Any,
) -> Search:
    file = journal_of(store, subject, 0)
    with closing(JobJournal[SearchRow](file, SearchRow)) as journal:
        made = Search(subject, journal, store, seed=0, budget=budget, **more)
        made.work(pool, stop)
    return made


UNTIL_FOUND = Budget(until_failure=True)


@pytest.mark.integration
def test_a_search_finds_shrinks_and_saves_what_fails_again(tmp_path: Path) -> None:
    told: list[Finding] = []
    made = searched(
        tmp_path,
        LocalPool(),
        UNTIL_FOUND,
        report=lambda finding, folder: told.append(findings.load(folder)),
    )
    (finding,) = made.kept.values()
    assert finding.property == "reads-below-hw"
    assert len(finding.smallest.faults) <= 1
    # It was on disk as it was drawn before it was shrunk.
    (drawn,) = told
    assert (drawn.shrunk, finding.shrunk) == (False, True)
    assert drawn.smallest.faults == drawn.drawn.faults == finding.drawn.faults

    (folder,) = (tmp_path / "findings").iterdir()
    assert findings.load(folder) == finding
    assert load(folder) == finding.smallest
    assert load(folder / DRAWN) == finding.drawn
    assert {README, RECORD, SCHEDULE, EXPLANATION} <= {file.name for file in folder.iterdir()}
    assert finding.bucket in (folder / README).read_text()
    outcome = run_simulated(load(folder))
    assert (outcome.bucket, outcome.property) == (finding.bucket, finding.property)
    assert load(folder).expectation.property == "reads-below-hw"


@pytest.mark.parametrize(
    "spark",
    [
        pytest.param(False, marks=pytest.mark.integration),
        pytest.param(True, marks=[pytest.mark.nightly, pytest.mark.xdist_group("spark")]),
    ],
)
def test_processes_find_what_is_found_in_one(tmp_path: Path, spark: bool) -> None:
    budget, file = Budget(schedules=9), tmp_path / "out.txt"
    alone = searched(tmp_path / "alone", LocalPool(), budget, shrinks=False)
    with closing(SparkJobs("local[2]") if spark else JobProcesses(2, file, jobs_each=2)) as pool:
        found = searched(tmp_path / "elsewhere", pool, budget, shrinks=False, local=not spark)
    assert found.total.schedules == alone.total.schedules == 9
    assert (found.total.events, found.total.buckets) == (alone.total.events, alone.total.buckets)
    assert found.kept.keys() == alone.kept.keys() != set()


@pytest.mark.integration
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_search_that_is_killed_goes_on_and_does_nothing_twice(tmp_path: Path, at: int) -> None:
    def dies(number: int) -> None:
        if number == at:
            raise Killed

    budget = Budget(schedules=6)
    whole = searched(tmp_path / "whole", Quick(), budget)
    killed = Quick()
    killed.at = dies
    with pytest.raises(Killed):
        searched(tmp_path / "killed", killed, budget)
    resumed = Quick()
    again = searched(tmp_path / "killed", resumed, budget)
    assert again.resumed
    assert again.total.events == whole.total.events
    assert again.total.buckets == whole.total.buckets
    assert again.kept.keys() == whole.kept.keys() == again.done
    done = [job.key for job in killed.jobs[: at - 1]] + [job.key for job in resumed.jobs]
    assert len(done) == len(set(done))
    # One that ended by itself begins again.
    assert not searched(tmp_path / "killed", Quick(), budget).resumed


def test_an_answer_that_is_there_when_a_search_stops_counts(tmp_path: Path) -> None:
    pool = LocalPool(2)
    pool.kill = lambda: [EndedJob(j, j.do(), 0.0) for j in pool.jobs[1:]]  # type: ignore[method-assign]
    made = searched(tmp_path, pool, Budget(schedules=60), HELD, lambda: len(pool.jobs) > 1)
    assert made.total.schedules == 6


def test_a_search_that_only_loses_its_jobs_ends(tmp_path: Path) -> None:
    pool = LocalPool()
    pool.do = lambda job: None  # type: ignore[method-assign]
    with pytest.raises(FloodmarkError, match="5 jobs were lost in a row"):
        searched(tmp_path, pool, Budget(seconds=60))


def test_what_another_generator_drew_is_drawn_again(tmp_path: Path) -> None:
    file = journal_of(tmp_path, HELD, 0)
    with closing(JobJournal[SearchRow](file, SearchRow)) as journal:
        row = SearchedRow(subject="kafka", seed=0, schedules=3, generator=HELD.generator - 1)
        journal.add(row)
        journal.add(replace(row, first=3, generator=HELD.generator))
    pool = Quick()
    searched(tmp_path, pool, Budget(schedules=6), HELD)
    assert [job.key for job in pool.jobs] == ["search/0"]


def test_what_explains_an_earlier_schedule_is_not_shown(tmp_path: Path) -> None:
    made = searched(tmp_path, Quick(), UNTIL_FOUND)
    (finding,) = made.kept.values()
    folder = findings.folder_of(tmp_path, finding)
    assert "appends offset" in "".join(table.finished(finding, folder))
    other = replace(finding, smallest=replace(finding.smallest, cluster=Cluster()))
    said = "".join(table.finished(other, folder))
    assert finding.sentence in said
    assert "appends offset" not in said


def test_one_that_is_stopped_shrinks_later(tmp_path: Path) -> None:
    pool = Quick()
    pool.endless = (FinishJob,)
    first = searched(tmp_path, pool, UNTIL_FOUND, stop=lambda: len(pool.jobs) > 1)
    (drawn,) = first.kept.values()
    assert not drawn.shrunk
    assert isinstance(pool.killed[0], FinishJob)
    rest = Quick()
    second = searched(tmp_path, rest, UNTIL_FOUND)
    assert [type(job) for job in rest.jobs] == [FinishJob]
    assert second.done == set(second.kept)


class TestJournals:
    """A journal or finding that is cut, damaged, of another version, or of another command."""

    def test_another_command_is_refused_and_nothing_is_lost(self, tmp_path: Path) -> None:
        file = journal_of(tmp_path, READS_AHEAD, 0)
        with closing(JobJournal[SearchRow](file, SearchRow)) as journal:
            journal.add(SearchedRow(subject="kafka", seed=0, schedules=3))
            with pytest.raises(UsageError, match="another command works on it"):
                searched(tmp_path, LocalPool(), UNTIL_FOUND)
            assert len(journal.rows) == 1
        assert file.read_bytes().count(b"\n") == 1

    @pytest.mark.integration
    @pytest.mark.needs("mount")
    @pytest.mark.parametrize("kind", ["full", "read-only"])
    def test_a_disk_that_fails_loses_nothing(self, tmp_path: Path, kind: str) -> None:
        with store_of(kind, tmp_path) as store:
            searched(store.folder, LocalPool(), Budget(schedules=3), HELD, stop=lambda: True)
            file = journal_of(store.folder, HELD, 0)
            before = file.read_bytes()
            store.fail()
            with pytest.raises(StorageError, match=r"cannot be written|no space|full"):
                searched(store.folder, LocalPool(), Budget(schedules=999), HELD)
            assert file.read_bytes()[: len(before)] == before
            if kind == "full":
                (store.folder / "filler").unlink()
                before_it = sum(isinstance(row, SearchedRow) for row in read_rows(file, SearchRow))
                made = searched(store.folder, LocalPool(), Budget(schedules=3), HELD)
                assert made.total.schedules == 3 * before_it

    def test_half_a_line_is_cut_off(self, tmp_path: Path) -> None:
        searched(tmp_path, LocalPool(), Budget(schedules=3), HELD, stop=lambda: True)
        file = journal_of(tmp_path, HELD, 0)
        whole = file.read_bytes()
        for half in (b'{"what":"sear', b'{"what":"sear\n'):
            file.write_bytes(whole + half)
            with closing(JobJournal[SearchRow](file, SearchRow)) as journal:
                assert state_of(journal.rows) == "stopped"
            assert file.read_bytes() == whole

    @pytest.mark.parametrize(
        ("line", "sentence"),
        [
            (b"nonsense", r":2: not a line of a journal: .*; move the file away to begin again"),
            (b'{"what":"began","format":99}', "has format 99, and this floodmark reads 1"),
        ],
    )
    def test_damage_is_refused(self, tmp_path: Path, line: bytes, sentence: str) -> None:
        searched(tmp_path, LocalPool(), Budget(schedules=3), HELD)
        file = journal_of(tmp_path, HELD, 0)
        lines = file.read_bytes().splitlines()
        file.write_bytes(b"\n".join([lines[0], line, *lines[1:], b""]))
        before = file.read_bytes()
        with pytest.raises(StorageError, match=sentence):
            searched(tmp_path, LocalPool(), Budget(schedules=3), HELD)
        assert file.read_bytes() == before

    def test_a_damaged_finding_is_written_again(self, tmp_path: Path) -> None:
        pool = Quick()
        pool.endless = (FinishJob,)
        searched(tmp_path, pool, UNTIL_FOUND, stop=lambda: len(pool.jobs) > 1)
        (folder,) = (tmp_path / "findings").iterdir()
        for text, sentence in ((b"{", "not a finding"), (b'{"format": 1}', "not a finding")):
            (folder / RECORD).write_bytes(text)
            with pytest.raises(StorageError, match=sentence):
                findings.load(folder)
        made = searched(tmp_path, Quick(), UNTIL_FOUND)
        assert [findings.load(folder)] == list(made.kept.values())


def test_the_search_for_a_real_schedule_makes_no_run_after_its_end() -> None:
    schedule = ready_made.load("kip-279-scenario-1")
    runs = count()
    assert (
        real_schedule(schedule, "committed-prefix-agreement", stop=lambda: next(runs) >= 2) is None
    )
    assert next(runs) == 3


def test_the_sentence_of_a_finding_is_about_its_property() -> None:
    inner = Violation("candidate-completeness", 1, 1, "a candidate lacks a record")
    visible = Violation("read-below-hw", 2, 2, "c3 read too much")
    valid = RunResult(run="r", verdict=Verdict.VALID, sentence="valid: all of it.")
    lost = RunResult(run="r", verdict=Verdict.INVALID, sentence="invalid: 3 are lost.")
    assert run._sentence((inner, visible), lost) == "invalid: c3 read too much."
    assert run._sentence((inner,), lost) == "invalid: 3 are lost."
    assert run._sentence((inner,), valid) == "invalid: a candidate lacks a record."
    assert run._sentence((), valid) == "valid: all of it."


def test_a_search_says_what_it_did_not_try_only_if_it_found_nothing() -> None:
    total = SearchedRow(subject="kafka", seed=0, runs=2, schedules=2)
    total.fault_coverage = {"kill/leader/in-sync": 3, "kill/leader/leaderless": 1}
    said = table.summary(total, 0, 1.0)
    assert "not tried, by the state of the partition that a fault hits: kill (an ISR short)" in said
    assert "about 25.0% of further faults would hit a role and a state that none has hit" in said
    assert "found" not in said
    assert "further faults" not in table.summary(total, 1, 1.0)


def test_a_search_says_how_far_it_has_shrunk(tmp_path: Path) -> None:
    (finding,) = searched(tmp_path, Quick(), UNTIL_FOUND).kept.values()
    needed = finding.smallest.faults
    begun = replace(finding, shrunk=False, shrink_runs=0, smallest=finding.drawn)
    drawn = _faults(finding.drawn.faults)
    assert table.shrinking(begun) == f"shrinking {finding.bucket}: {drawn}"
    later = replace(begun, shrink_runs=12, smallest=finding.smallest)
    said = table.shrinking(later)
    assert said == f"{table.shrinking(begun)} to {len(needed)} in 12 runs"
    whole = table.shrinking(replace(later, shrunk=True))
    assert whole == f"shrunk to {_faults(needed)}; it is being explained"


def _faults(faults: Sequence[Fault]) -> str:
    return wording.count(len(faults), "fault")


def test_an_invariant_inside_the_cluster_counts_for_a_protocol_that_should_hold() -> None:
    inside = ScheduleOutcome(internal_violation="log-as-on-disk")
    correct = SimulatedSubject(protocol="kafka")
    assert correct.bucket(inside) == "internal-invariant: log-as-on-disk"
    assert replace(correct, bugs=("read-beyond-hw",)).bucket(inside) == ""
    liftbridge = replace(correct, protocol="liftbridge")
    assert liftbridge.bucket(inside) == ""
    broken = [Violation(name, 1, 1, "") for name in ("log-as-on-disk", "state-as-specified")]
    of_steps = dataclasses.replace(inside, result=SimpleNamespace(violations=broken))
    assert liftbridge.bucket(of_steps) == "internal-invariant: state-as-specified"
    assert replace(liftbridge, bugs=("read-beyond-hw",)).bucket(of_steps) == ""
