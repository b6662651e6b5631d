"""The search on real processes: what it draws, keeps, shrinks and leaves, with planned verdicts."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from harness.formats.system_finding import FILE, FOLDER, RunCounts, SystemFinding
from harness.search.real.attempt import StormJob, StormOutcome, effects
from harness.search.real.families import FAMILIES
from harness.search.real.runner import longest_run_s
from harness.search.real.storms import StormGenerator, StormSubject
from harness.search.real.system_search import Find, SearchBudget, SystemSearch
from harness.systems import registry
from nemesis.faults.dice import Dice
from nemesis.faults.disks import DiskFull
from nemesis.formats import schedule as schedules
from nemesis.formats.fault_log import FaultLine
from nemesis.formats.schedule import Cluster, Fault, Schedule, Workload
from node.formats.errors import UsageError
from node.formats.json_input import read_file
from tests.support import trial_adapters
from tests.support.storm_fakes import LOST, RUN_S, FakeStorms, Plan, loses_a_write

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
        assert {storm.family for storm in drawn} == FAMILIES.keys()
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

    def test_a_fault_that_has_no_target_is_aimed_at_nobody(self) -> None:
        generator = storms(kinds=("kill", "ring"))
        drawn = [generator.draw(n) for n in ANY_STORMS]
        rings = {s.family for s in drawn for f in s.schedule.faults if f.what == "ring"}
        assert rings == {"plain"}

    def test_only_a_store_with_a_map_is_drawn_with_a_full_one(self) -> None:
        limits = {True: set[str](), False: set[str]()}
        for maps, found in limits.items():
            dice = Dice(Cluster(), Workload(), random.Random(1), maps=maps)
            found.update(DiskFull.draw_on(dice, "n1", 0, 1).limit for _ in range(50))
        assert limits == {True: {"map", "file-system"}, False: {"file-system"}}
        generator = storms(kinds=("disk-full", "kill"))
        drawn = [fault for n in ANY_STORMS for fault in generator.draw(n).schedule.faults]
        assert {fault.limit for fault in drawn if isinstance(fault, DiskFull)} == {"file-system"}


def a_search(
    runner: FakeStorms | Plan,
    store: Path,
    system: str = TRIAL,
    jobs: int = 1,
    stop: Callable[[], bool] = lambda: False,
) -> SystemSearch:
    made = runner if isinstance(runner, FakeStorms) else FakeStorms(runner)
    return SystemSearch(
        *(StormSubject(system=system, disks="one"), registry.find(system), made, store),
        seed=3,
        jobs=jobs,
        stop=stop,
        clock_s=made.now_s,
    )


def not_told(find: Find) -> None:
    """Take no notice of a find."""


def first_find(
    runner: FakeStorms | Plan, store: Path, system: str = TRIAL
) -> tuple[SystemSearch, Find]:
    """Search until something is found."""
    made = a_search(runner, store, system)
    made.search(UNTIL_FOUND, not_told)
    return made, find_of(made)


def cuts_power_and_kills(job: StormJob, run: int) -> StormOutcome | bool:
    """A planted loss: it needs a power cut, and a kill after it began."""
    cut = next(iter(power_cuts(job.schedule)), None)
    if cut is None:
        return False
    later = [f for f in job.schedule.faults if f.what == "kill"]
    return loses_a_write(job, "n2") if later else False


def lost_power(job: StormJob) -> tuple[str, ...]:
    """The disk that lost something, if one did."""
    return ("n2",) if power_cuts(job.schedule) else ()


def find_of(found: SystemSearch) -> Find:
    (find,) = found.finds.values()
    return find


UNTIL_FOUND = SearchBudget(until_failure=True)


class TestFinding:
    def test_a_find_is_on_disk_before_it_is_shrunk(self, tmp_path: Path) -> None:
        seen: list[SystemFinding] = []

        def report(find: Find) -> None:
            (file,) = tmp_path.glob(f"{FOLDER}/*/{FILE}")
            seen.append(read_file(file, SystemFinding))
            saved = schedules.load(file.parent / "schedule.json")
            assert saved == find.drawn == schedules.load(file.parent / "drawn.json")
            assert Path(find.finding.run).is_dir()

        made = a_search(cuts_power_and_kills, tmp_path)
        made.search(UNTIL_FOUND, report)
        (finding,) = seen
        assert (finding.bucket, finding.disks) == (f"{LOST}: one disk", 1)
        assert finding.counts == RunCounts(failed=1, of=1)
        assert finding.seconds_before == RUN_S * (finding.storms_before + 1)
        assert not finding.shrunk

    def test_the_same_failure_is_kept_once_and_counted(self, tmp_path: Path) -> None:
        made = a_search(lambda job, run: True, tmp_path)
        made.search(SearchBudget(storms=6), not_told)
        assert made.counts.buckets == {f"{LOST}: processes only": 6}
        assert len(made.finds) == 1
        assert len(list(tmp_path.glob("search-*/*/schedule.json"))) == 0
        assert len(list(tmp_path.glob("search-*"))) == 1

    def test_records_that_are_only_not_delivered_are_another_class(self, tmp_path: Path) -> None:
        def plan(job: StormJob, run: int) -> StormOutcome:
            name = "unseen" if len(seen) % 2 else "vanished"
            seen.append(name)
            return replace(loses_a_write(job), broken={LOST: name})

        seen: list[str] = []
        made = a_search(plan, tmp_path)
        made.search(SearchBudget(storms=4), not_told)
        assert made.counts.buckets == {
            f"{LOST}: processes only": 2,
            f"{LOST}: processes only, undelivered only": 2,
        }
        assert [find.finding.anomaly for find in made.finds.values()] == ["vanished", "unseen"]

    def test_storms_side_by_side_are_those_of_the_seed(self, tmp_path: Path) -> None:
        drawn = []
        for jobs in (1, 3):
            runner = FakeStorms(lambda job, run: False)
            a_search(runner, tmp_path, jobs=jobs).search(SearchBudget(storms=7), not_told)
            drawn.append([job.schedule for job in runner.jobs])
        assert drawn[0] == drawn[1]
        assert len(drawn[0]) == 7

    def test_another_search_of_the_same_seed_leaves_the_runs_of_the_first(
        self, tmp_path: Path
    ) -> None:
        first = a_search(lambda job, run: job.name.endswith("2"), tmp_path)
        first.search(SearchBudget(storms=2), not_told)
        # The second storm is under way when the second search ends.
        runner = FakeStorms(lambda job, run: False)
        second = a_search(runner, tmp_path, stop=lambda: bool(runner.jobs), jobs=2)
        second.search(SearchBudget(), not_told)
        assert runner.killed > 0
        assert Path(find_of(first).finding.run).is_dir()

    def test_a_run_that_comes_to_nothing_is_a_problem_and_no_finding(self, tmp_path: Path) -> None:
        broken = StormOutcome(verdict="unknown", problem="n1 did not start")
        made = a_search(lambda job, run: broken, tmp_path)
        made.search(SearchBudget(storms=2), not_told)
        assert made.finds == {}
        assert made.counts.problems == ["storm 0: n1 did not start", "storm 1: n1 did not start"]


class TestBudget:
    @pytest.mark.parametrize(
        ("finds", "reserve", "jobs", "storms"),
        [
            pytest.param(False, 0.0, 2, 10, id="all of the time"),
            pytest.param(True, 0.4, 1, 6, id="a find leaves time to shrink it"),
        ],
    )
    def test_the_time_ends_a_search(
        self, finds: bool, reserve: float, jobs: int, storms: int, tmp_path: Path
    ) -> None:
        runner = FakeStorms(lambda job, run: finds)
        made = a_search(runner, tmp_path, jobs=jobs)
        made.search(SearchBudget(seconds=10 * RUN_S, reserve=reserve), not_told)
        assert (made.counts.storms, runner.killed) == (storms, jobs - 1)

    def test_stopping_kills_what_runs_and_leaves_nothing(self, tmp_path: Path) -> None:
        stopped: list[int] = []
        runner = FakeStorms(lambda job, run: False)

        def stop_after_the_third(number: int) -> None:
            if number == 3:
                (tmp_path / "search-trial-3-0004").mkdir()  # What a killed run has written so far.
                stopped.append(number)

        runner.at = stop_after_the_third
        made = a_search(runner, tmp_path, jobs=2, stop=lambda: bool(stopped))
        made.search(SearchBudget(), not_told)
        assert (made.counts.storms, runner.killed) == (3, 1)
        assert list(tmp_path.iterdir()) == []

    def test_shrinking_ends_with_the_time_and_keeps_the_smallest(self, tmp_path: Path) -> None:
        runner = FakeStorms(cuts_power_and_kills)
        made, find = first_find(runner, tmp_path)
        end_s = runner.clock_s + 5 * RUN_S
        made.shrink(find, lambda: runner.clock_s >= end_s)
        assert runner.clock_s <= end_s + RUN_S
        saved = schedules.load(find.folder / "schedule.json")
        assert saved == find.smallest
        assert not read_file(find.folder / FILE, SystemFinding).shrunk


class TestShrinking:
    def test_a_planted_loss_shrinks_to_what_it_needs(self, tmp_path: Path) -> None:
        made, find = first_find(cuts_power_and_kills, tmp_path)
        made.shrink(find)
        kept = read_file(find.folder / FILE, SystemFinding)
        assert kept == find.finding
        assert kept.shrunk
        assert sorted(fault.what for fault in find.smallest.faults) == ["kill", "power-cut"]
        assert len(kept.faults) == 2
        assert kept.counts == RunCounts(failed=2, of=2)
        assert [one.counts for one in kept.without] == 2 * [RunCounts(failed=0, of=2)]
        workload = find.smallest.workload
        assert (workload.clients, workload.consumers) == (1, 0)
        assert find.smallest.cluster.partitions == 1
        assert all((fault.at_ms or 0) % 500 == 0 for fault in find.smallest.faults)
        # Only failing runs of the smallest and of the drawn schedule stay.
        folders = {str(folder) for folder in tmp_path.glob("search-*/*T*")}
        assert len(folders) == 2
        assert kept.run in folders
        # Runs end when the majority is known.
        assert set(find.counts.values()) <= {RunCounts(failed=2, of=2), RunCounts(failed=0, of=2)}
        made.confirm(find)
        assert find.finding.counts == RunCounts(failed=3, of=3)

    def test_a_run_that_does_not_show_what_is_wanted_does_not_count(self, tmp_path: Path) -> None:
        made = a_search(lambda job, run: loses_a_write(job, *lost_power(job)), tmp_path)
        made.search(SearchBudget(storms=20), not_told)
        find = made.finds[f"{LOST}: one disk"]
        find.wanted = lambda finding: finding.disks == 1 and Path(finding.run).is_dir()
        made.shrink(find)
        assert [fault.what for fault in find.smallest.faults] == ["power-cut"]
        assert find.finding.counts == RunCounts(failed=2, of=2)

    @pytest.mark.parametrize(("fails", "counts"), [((1,), "2 of 3"), ((), "1 of 3")])
    def test_the_majority_of_three_runs_decides(
        self, fails: tuple[int, ...], counts: str, tmp_path: Path
    ) -> None:
        drawn: list[Schedule] = []

        def plan(job: StormJob, run: int) -> bool:
            drawn.append(job.schedule)
            again = job.schedule.to_json() == find_of(made).drawn.to_json() if made.finds else False
            return len(drawn) == 1 or (again and run in fails)

        made = a_search(plan, tmp_path)
        made.search(UNTIL_FOUND, not_told)
        find = find_of(made)
        made.shrink(find)
        assert find.smallest == find.drawn
        assert str(find.finding.drawn_counts) == counts
        assert find.finding.shrunk == (counts == "2 of 3")


class TestSafeConfiguration:
    @pytest.mark.parametrize("system", [SAFE, TRIAL])
    def test_the_smallest_schedule_is_run_on_it_too(self, system: str, tmp_path: Path) -> None:
        runner = FakeStorms(
            lambda job, run: not job.subject.settings and cuts_power_and_kills(job, run)
        )
        made, find = first_find(runner, tmp_path, system)
        before = len(runner.jobs)
        made.pair(find)
        if system == TRIAL:
            assert find.finding.safe_settings is None, "it declares none"
            assert len(runner.jobs) == before
            return
        assert (find.finding.safe_settings or {})["sync"] == "always"
        assert [run.verdict for run in find.finding.safe_runs] == ["valid", "valid"]
        assert runner.jobs[-1].schedule == find.smallest
        kept = json.loads((find.folder / FILE).read_text())
        assert len(kept["safe_runs"]) == 2


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
        storm = storms().draw(0).schedule
        usual_s = longest_run_s(storm, 15_000)
        longer = replace(storm, workload=replace(storm.workload, duration_ms=3_600_000))
        assert longest_run_s(longer, 15_000) > 3600 + 15
        assert longest_run_s(storm, 600_000) - usual_s == 585


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
