"""The search on real processes: what it draws, keeps, shrinks and leaves, with planned verdicts."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from checker.formats.verdict import Verdict
from harness.formats.finding import RECORD, STORE_FOLDER, Finding, RunCounts
from harness.formats.journal import MOST_PROBLEMS
from harness.runs import run_folder
from harness.runs.run import RunOrder
from harness.search import findings, table
from harness.search.draw.families import FAMILIES
from harness.search.draw.storms import StormGenerator
from harness.search.loop import MOST_UNKNOWN, Budget, Search, journal_of
from harness.search.run import saved_findings
from harness.search.search_jobs import SearchJob
from harness.search.worlds import real
from harness.search.worlds.outcome import ScheduleOutcome
from harness.search.worlds.real import StormJob, StormSubject, effects
from harness.systems import registry
from nemesis.faults.dice import Dice
from nemesis.faults.disks import DiskFull
from nemesis.formats import schedule as schedules
from nemesis.formats.fault_log import FaultLine
from nemesis.formats.schedule import Cluster, Fault, Schedule, Workload
from nemesis.ready_made import RESTART_MS
from node.formats.errors import UsageError
from tests.support import trial_adapters
from tests.support.local_pool import LocalPool
from tests.support.storm_fakes import LOST, RUN_S, FakeStorms, Plan, find_of, loses_a_write

TRIAL = f"{trial_adapters.__name__}:Trial"
SAFE = f"{trial_adapters.__name__}:SafeTrial"
ANY_STORMS = range(150)


def storms(disks: str = "any", kinds: tuple[str, ...] = (), seed: int = 1) -> StormGenerator:
    subject = StormSubject(system=TRIAL, disks=disks, kinds=kinds)  # type: ignore[arg-type]
    return StormGenerator(subject, registry.find(TRIAL), seed)


def power_cuts(schedule: Schedule) -> list[Fault]:
    return [fault for fault in schedule.faults if fault.what == "power-cut"]


class TestDrawing:
    def test_a_number_is_always_the_same_storm(self) -> None:
        one, other = storms(), storms()
        assert [one.draw(n) for n in (5, 0, 7)] == [other.draw(n) for n in (5, 0, 7)]
        assert storms(seed=2).draw(0) != one.draw(0)

    @pytest.mark.parametrize("failover_ms", [trial_adapters.Trial.failover_ms, 100, 60_000])
    def test_every_family_is_drawn_and_every_storm_is_possible(
        self, failover_ms: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of the usual system, a very fast one and a very slow one."""
        monkeypatch.setattr(trial_adapters.Trial, "failover_ms", failover_ms)
        system, generator = registry.find(TRIAL), storms()
        drawn = [generator.draw(number) for number in ANY_STORMS]
        assert {storm.family for storm in drawn} == FAMILIES.keys() - {"disk-damaged"}
        for storm in drawn:
            system.check(storm.schedule)
            schedules.check(storm.schedule, source="a drawn storm")
            ends = [(f.at_ms or 0) + (f.for_ms or 0) for f in storm.schedule.faults]
            assert 0 < max(ends) < storm.schedule.workload.duration_ms
            assert storm.schedule.drawn

    def test_most_storms_have_few_faults(self) -> None:
        generator = storms()
        counts = Counter(len(generator.draw(n).schedule.faults) for n in ANY_STORMS)
        assert sum(n for faults, n in counts.items() if faults <= 4) > 0.9 * len(ANY_STORMS)

    @pytest.mark.parametrize(("disks", "most"), [("none", 0), ("one", 1), ("any", 99)])
    def test_no_more_disks_lose_something_than_may(self, disks: str, most: int) -> None:
        generator = storms(disks)
        cuts = [power_cuts(generator.draw(number).schedule) for number in ANY_STORMS]
        assert max(map(len, cuts)) <= most
        on = {getattr(cut, "on", "") for found in cuts for cut in found}
        assert (on >= {"all", "majority"}) is (disks == "any")
        assert bool(on & {"all", "majority", "minority"}) is (disks == "any")
        assert bool(on) is (disks != "none")

    def test_kinds_that_are_named_are_all_that_is_drawn(self) -> None:
        generator = storms(kinds=("kill", "cut"))
        drawn = [generator.draw(n) for n in ANY_STORMS]
        kinds = {fault.what for storm in drawn for fault in storm.schedule.faults}
        assert kinds == {"kill", "cut"}
        with pytest.raises(UsageError, match="cannot take 'upgrade'"):
            storms(kinds=("upgrade",))

    def test_the_disk_of_one_node_is_damaged_before_the_leader_fails(self) -> None:
        generator = storms(kinds=("kill", "bit-flip"))
        drawn = [s.schedule.faults for s in map(generator.draw, range(60)) if "disk" in s.family]
        assert len(drawn) > 20
        for first, second, *rest in drawn:
            assert (first.what, second.what, second.on) == ("bit-flip", "kill", "leader:log-0")
            assert (first.at_ms or 0) + (first.for_ms or 0) < (second.at_ms or 0)
            assert {f.on for f in rest if f.what == "bit-flip"} <= {first.on}

    def test_it_has_the_consumers_that_are_asked_for(self) -> None:
        subject = StormSubject(system=TRIAL, consumers=3)
        storm = StormGenerator(subject, registry.find(TRIAL), 1).draw(0).schedule
        assert (storm.workload.clients, storm.workload.consumers) == (5, 3)

    def test_a_fault_that_has_no_target_is_aimed_at_nobody(self) -> None:
        generator = storms(kinds=("kill", "ring"))
        drawn = [generator.draw(n) for n in ANY_STORMS]
        rings = {s.family for s in drawn for f in s.schedule.faults if f.what == "ring"}
        assert rings == {"plain"}

    @pytest.mark.parametrize(("restart_ms", "killed"), [(2000, True), (2500, True), (60000, False)])
    def test_a_follower_that_falls_behind_is_back_when_the_leader_fails(
        self, restart_ms: int, killed: bool
    ) -> None:
        system = registry.find(TRIAL)
        system.restart_ms = restart_ms
        generator = StormGenerator(StormSubject(system=TRIAL, disks="one"), system, 1)
        late_ms = 0.25 * system.limits(Cluster()).session_ms + 100
        kinds = set()
        for storm in map(generator.draw, range(400)):
            if storm.family == "stale-takes-over":
                away = [f for f in storm.schedule.faults if f.on.startswith("follower:")]
                fails = max(f.at_ms for f in storm.schedule.faults if f.on.startswith("leader:"))
                for fault in away:
                    kinds.add(fault.what)
                    slow_ms = (restart_ms - RESTART_MS) * (fault.what == "kill")
                    assert fault.at_ms + fault.for_ms + slow_ms <= fails + late_ms
        assert kinds > {"pause", "isolate"}
        assert ("kill" in kinds) is killed

    def test_only_a_store_with_a_map_is_drawn_with_a_full_one(self) -> None:
        limits = {True: set[str](), False: set[str]()}
        for maps, found in limits.items():
            dice = Dice(Cluster(), Workload(), random.Random(1), maps=maps)
            found.update(DiskFull.draw_on(dice, "n1", 0, 1).limit for _ in range(50))
        assert limits == {True: {"map", "file-system"}, False: {"file-system"}}
        generator = storms(kinds=("disk-full", "kill"))
        drawn = [fault for n in ANY_STORMS for fault in generator.draw(n).schedule.faults]
        assert {fault.limit for fault in drawn if isinstance(fault, DiskFull)} == {"file-system"}


@pytest.mark.parametrize(
    ("system", "name"),
    [
        (TRIAL, "trial"),
        ("a/Own.py:MyLog", "mylog"),
        ("/anywhere/my+own log.py", "my_own_log"),
        ("a/../..py", "_"),
        (f"/{'x' * 99}.py", "x" * 50),
    ],
)
def test_a_search_leaves_its_files_in_the_store_whatever_the_system_is_called(
    system: str, name: str, tmp_path: Path
) -> None:
    file = journal_of(tmp_path, StormSubject(system=system), 3)
    assert file.parent == tmp_path / "searches"
    assert file.name.startswith(f"{name}-3-")
    run_folder.create(tmp_path, f"search-{file.stem}-0000-smaller")


UNTIL_FOUND = Budget(until_failure=True)


@pytest.fixture
def storm(monkeypatch: pytest.MonkeyPatch) -> Any:

    def search(plan: Plan, store: Path, budget: Budget, system: str = TRIAL, **more: Any) -> Search:
        return FakeStorms(plan, monkeypatch).search(store, system, budget, **more)

    return search


def cuts_power_and_kills(job: StormJob, run: int) -> ScheduleOutcome | bool:
    """Play a planted loss: it needs a power cut, and a kill after it began."""
    cut = next(iter(power_cuts(job.schedule)), None)
    if cut is None:
        return False
    later = [f for f in job.schedule.faults if f.what == "kill"]
    return loses_a_write(job, "n2") if later else False


class TestFinding:
    def test_a_find_is_on_disk_before_it_is_shrunk(self, storm: Any, tmp_path: Path) -> None:
        seen: list[Finding] = []

        def report(finding: Finding, folder: Path) -> None:
            (file,) = tmp_path.glob(f"{STORE_FOLDER}/*/{RECORD}")
            seen.append(findings.load(file.parent))
            assert schedules.load(folder) == finding.drawn == schedules.load(folder / "drawn.json")
            assert Path(finding.run).is_dir()

        storm(cuts_power_and_kills, tmp_path, UNTIL_FOUND, report=report)
        (finding,) = seen
        assert (finding.bucket, finding.disks, finding.world) == (f"{LOST}: one disk", 1, "real")
        assert finding.counts == RunCounts(failed=1, of=1)
        assert finding.seconds_before == RUN_S * (finding.schedules_before + 1)
        assert not finding.shrunk

    def test_the_same_failure_is_kept_once_and_counted(self, storm: Any, tmp_path: Path) -> None:
        made = storm(lambda job, run: True, tmp_path, Budget(schedules=6), shrinks=False)
        assert made.total.buckets == {f"{LOST}: processes only": 6}
        assert len(made.kept) == 1
        assert len(list(tmp_path.glob("search-*"))) == 1

    def test_records_that_are_only_not_delivered_are_another_class(
        self, storm: Any, tmp_path: Path
    ) -> None:
        def plan(job: StormJob, run: int) -> ScheduleOutcome:
            name = "unseen" if len(seen) % 2 else "vanished"
            seen.append(name)
            outcome = loses_a_write(job)
            outcome.broken[LOST] = name
            return outcome

        seen: list[str] = []
        made = storm(plan, tmp_path, Budget(schedules=4), shrinks=False)
        assert made.total.buckets == {
            f"{LOST}: processes only": 2,
            f"{LOST}: processes only, undelivered only": 2,
        }
        assert [finding.anomaly for finding in made.kept.values()] == ["vanished", "unseen"]

    def test_a_run_that_comes_to_nothing_is_a_problem_and_no_finding(
        self, storm: Any, tmp_path: Path
    ) -> None:
        broken = ScheduleOutcome(verdict="unknown", problem="n1 did not start")
        made = storm(lambda job, run: broken, tmp_path, Budget(schedules=2))
        assert made.kept == {}
        assert made.total.problems == ["n1 did not start"]
        assert made.total.verdicts == {"unknown": 2}

    def test_the_first_runs_that_cannot_be_judged_are_kept(
        self, storm: Any, tmp_path: Path
    ) -> None:
        def plan(job: StormJob, run: int) -> ScheduleOutcome:
            unknown = {"failed": False, "verdict": "unknown", "problem": job.name}
            return dataclasses.replace(loses_a_write(job), **unknown)

        made = storm(plan, tmp_path, Budget(schedules=25))
        total, folders = made.total, [str(each) for each in tmp_path.glob("search-*/*T*")]
        assert sorted(folders) == sorted(total.unknown_runs)
        assert (len(folders), len(total.problems)) == (MOST_UNKNOWN, MOST_PROBLEMS)
        assert f"could not be judged: {folders[0]}" in table.summary(total, 0, 1.0)

    def test_only_the_runs_of_that_search_are_swept(self, tmp_path: Path) -> None:
        names = ("loss-1", "loss-1-0003", "loss-1-0003-smaller", "loss-10-0003")
        for name in names:
            (tmp_path / name / "20260101T000000").mkdir(parents=True)
        findings.sweep(tmp_path, "loss-1", [f"elsewhere/{names[1]}/20260101T000000"])
        assert sorted(each.name for each in tmp_path.iterdir()) == [names[1], names[3]]


def test_a_saved_finding_is_tried_before_anything_is_drawn(
    storm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = find_of(storm(cuts_power_and_kills, tmp_path, UNTIL_FOUND))
    subject = StormSubject(system=TRIAL, disks="one")
    saved = saved_findings(subject.find(), tmp_path)
    assert [finding.shrunk for finding in saved] == [True]
    said: list[str] = []

    def search(plan: Plan, **more: Any) -> Search:
        def report(finding: Finding, folder: Path) -> None:
            said.append(table.found(finding, folder, ""))

        return storm(plan, tmp_path, UNTIL_FOUND, saved=saved, report=report, **more)

    again = search(cuts_power_and_kills)
    assert (again.total.schedules, again.total.runs) == (0, 1), "nothing is drawn or shrunk"
    assert find_of(again).smallest == first.smallest
    (line,) = said
    assert line.startswith(f"fails again: {first.bucket}\n  invalid: a record is gone.\n  replay: ")
    assert len(list(tmp_path.glob(f"{STORE_FOLDER}/*"))) == 1
    large = replace(first, drawn=replace(first.drawn, name="large"), smallest=first.drawn)
    storms = FakeStorms(lambda job, run: False, monkeypatch)
    storms.search(tmp_path, TRIAL, Budget(schedules=1), saved=[first, large])
    assert storms.jobs[0].schedule == first.smallest, "in the order that is given"
    # Once it holds, the search goes on as without it.
    held = storm(lambda job, run: False, tmp_path, Budget(schedules=2), saved=saved)
    assert (held.total.schedules, held.total.runs) == (2, 2 + subject.most_runs)
    assert held.kept == {}
    other = StormSubject(system=TRIAL, settings={"speed": "slow"})
    assert saved_findings(other.find(), tmp_path) == []


@pytest.mark.integration
class TestBudget:
    @pytest.mark.parametrize(
        ("finds", "reserve", "runs"),
        [
            pytest.param(False, 0.0, 10, id="all of the time"),
            pytest.param(True, 0.4, 6, id="a find leaves time to shrink it"),
        ],
    )
    def test_the_time_ends_a_search(
        self, storm: Any, finds: bool, reserve: float, runs: int, tmp_path: Path
    ) -> None:
        budget = Budget(seconds=10 * RUN_S, reserve=reserve)
        made = storm(lambda job, run: finds, tmp_path, budget, shrinks=False)
        assert made.total.runs == runs

    def test_stopping_kills_what_runs_and_leaves_nothing(self, storm: Any, tmp_path: Path) -> None:
        def at(number: int) -> None:
            if number == 3:
                # What a killed run has written so far.
                (tmp_path / f"{stem()}-0003" / "20260101T000000").mkdir(parents=True)
                stopped.append(number)

        def stem() -> str:
            (file,) = tmp_path.glob("searches/*.jsonl")
            return f"search-{file.stem}"

        stopped: list[int] = []
        pool = LocalPool(2)
        pool.at = at
        made = storm(
            lambda job, run: False,
            tmp_path,
            Budget(schedules=9),
            pool=pool,
            stop=lambda: bool(stopped),
        )
        assert (made.total.runs, len(pool.killed)) == (3, 1)
        assert list(tmp_path.glob("search-*")) == []


class TestShrinking:
    def test_a_planted_loss_shrinks_to_what_it_needs(self, storm: Any, tmp_path: Path) -> None:
        made = storm(cuts_power_and_kills, tmp_path, UNTIL_FOUND)
        kept = find_of(made)
        assert findings.load(findings.folder_of(tmp_path, kept)) == kept
        assert kept.shrunk
        assert sorted(fault.what for fault in kept.smallest.faults) == ["kill", "power-cut"]
        assert len(kept.faults) == 2
        assert kept.counts == RunCounts(failed=2, of=2)
        assert [one.counts for one in kept.without] == 2 * [RunCounts(failed=0, of=2)]
        workload = kept.smallest.workload
        assert (workload.clients, workload.consumers) == (1, 0)
        assert kept.smallest.cluster.partitions == 1
        assert all((fault.at_ms or 0) % 500 == 0 for fault in kept.smallest.faults)
        # Only a failing run of the smallest schedule stays.
        assert [str(folder) for folder in tmp_path.glob("search-*/*T*")] == [kept.run]

    @pytest.mark.parametrize(("fails", "counts"), [((1,), "2 of 3"), ((), "1 of 3")])
    def test_the_majority_of_three_runs_decides(
        self, storm: Any, fails: tuple[int, ...], counts: str, tmp_path: Path
    ) -> None:
        drawn: list[Schedule] = []

        def plan(job: StormJob, run: int) -> bool:
            drawn.append(job.schedule)
            again = job.schedule.faults == drawn[0].faults and len(drawn) > 1
            return len(drawn) == 1 or (again and len(drawn) - 2 in fails)

        find = find_of(storm(plan, tmp_path, UNTIL_FOUND))
        assert find.smallest == find.drawn
        assert str(find.drawn_counts) == counts
        assert find.shrunk == (counts == "2 of 3")


class TestSafeConfiguration:
    @pytest.mark.parametrize("system", [SAFE, TRIAL])
    def test_the_smallest_schedule_is_run_on_it_too(
        self, monkeypatch: pytest.MonkeyPatch, system: str, tmp_path: Path
    ) -> None:
        storms = FakeStorms(
            lambda job, run: not job.subject.settings and cuts_power_and_kills(job, run),
            monkeypatch,
        )
        find = find_of(storms.search(tmp_path, system, UNTIL_FOUND))
        if system == TRIAL:
            assert find.safe_settings is None, "it declares none"
            assert not any(job.subject.settings for job in storms.jobs)
            return
        assert (find.safe_settings or {})["sync"] == "always"
        assert [run.verdict for run in find.safe_runs] == ["valid", "valid"]
        assert storms.jobs[-1].schedule == find.smallest
        assert len(findings.load(findings.folder_of(tmp_path, find)).safe_runs) == 2


class TestOutcome:
    def test_a_fault_that_was_injected_without_effect_took_nothing(self, tmp_path: Path) -> None:
        lines = [
            *_lines(0, "lying-fsync", "n1", writes=0),
            *_lines(1, "lying-fsync", "n2", writes=3),
            *_lines(2, "cut", "n1", connections=0),
            FaultLine(fault=3, what="power-cut", action="skipped", t_us=1, nodes=("n3",)),
        ]
        assert _effects(tmp_path, lines) == (("n2",), False)
        lines += _lines(4, "isolate", "n1", connections=2)
        assert _effects(tmp_path, lines) == (("n2",), True)

    def test_a_long_storm_of_a_slow_system_has_time(self) -> None:
        subject, schedule = StormSubject(system=TRIAL), storms().draw(0).schedule
        longer = replace(schedule, workload=replace(schedule.workload, duration_ms=3_600_000))
        assert subject.longest_run_s(longer) > 3600 + 15
        job = SearchJob(key="", subject=subject, seed=1, first=0, count=1)
        assert subject.longest_s(job) == subject.longest_run_s(schedule)


def _lines(fault: int, what: str, node: str, **counts: int) -> list[FaultLine]:
    return [
        FaultLine(fault=fault, what=what, action="inject", t_us=1, nodes=(node,)),
        FaultLine(fault=fault, what=what, action="heal", t_us=2, nodes=(node,)),
        FaultLine(fault=fault, what=what, action="effect", t_us=2, nodes=(node,), **counts),
    ]


def _effects(folder: Path, lines: list[FaultLine]) -> tuple[tuple[str, ...], bool]:
    text = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    (folder / "faults.jsonl").write_bytes(text + b"{\n")
    return effects(folder)


def test_a_search_keeps_one_valid_storm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(order: RunOrder) -> Any:
        folder = tmp_path / order.name / f"run-{next(numbers)}"
        folder.mkdir(parents=True)
        verdict = SimpleNamespace(verdict=verdicts.pop(), broken={}, sentence="")
        return SimpleNamespace(folder=folder, seconds=1.0, error=None, verdict=verdict)

    verdicts, numbers = [Verdict.VALID, Verdict.VALID, Verdict.NOT_EXERCISED], itertools.count()
    monkeypatch.setattr(real, "run_once", run)
    schedule = storms().draw(0).schedule
    job = StormJob(
        subject=StormSubject(system=TRIAL), schedule=schedule, store=str(tmp_path), name="s"
    )
    job.do()
    assert not list(tmp_path.iterdir()), "one that was not exercised shows little"
    job.do()
    job.do()
    assert [each.name for each in tmp_path.iterdir()] == [real.VALID_STORM]
