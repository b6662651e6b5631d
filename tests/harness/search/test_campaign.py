"""Searches as a whole: from nothing to a shrunk schedule that fails again."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from harness.replay.replay import ReplayOutcome
from harness.runs.progress import Progress
from harness.runs.requests import ReplayRequest
from harness.search import bug_search, campaign, known_bugs, known_bugs_table
from harness.search.attempt import attempt
from harness.search.bug_search import BugSearchRequest, RealReplays, find_bugs
from harness.search.campaign import Budget, Campaign, CampaignResult, merge, search_alone
from harness.search.engines import ENGINES, Subject
from harness.search.findings import save
from harness.search.generator import GENERATOR_VERSION
from harness.search.known_bugs import SearchTarget
from harness.search.real_schedule import RealSchedule
from nemesis import ready_made
from nemesis.formats.schedule import Schedule, load
from node.formats.errors import FloodmarkError

READS_AHEAD = Subject("kafka", ("read-beyond-hw",))
"""A bug that any follower that lags a little reproduces."""
ENOUGH_S = 3600.0
"""More than the search for it takes on any machine: it ends with its find."""


def looking(**changes: object) -> Campaign:
    made = Campaign(subject=READS_AHEAD, budget=Budget(until_failure=True), shrink_tries=60)
    return replace(made, **changes)


def test_a_search_finds_shrinks_and_saves_what_fails_again(tmp_path: Path) -> None:
    (finding,) = search_alone(looking()).findings
    assert finding.property == "reads-below-hw"
    assert len(finding.smallest.faults) <= 1

    kept = save(finding, tmp_path)
    schedule = load(kept.folder)
    assert schedule == finding.smallest
    assert load(kept.folder / "drawn.json") == finding.schedule
    assert schedule.expectation.property == "reads-below-hw"
    outcome = attempt(schedule)
    assert (outcome.bucket, outcome.property) == (finding.bucket, finding.property)


@pytest.mark.integration
def test_a_search_in_workers_finds_what_one_of_them_finds_alone() -> None:
    wanted = looking(cores=2, budget=Budget(schedules=6))
    alone = [finding for share in wanted.shares(2) for finding in search_alone(share).findings]
    found = campaign.run(wanted).findings
    assert {finding.bucket for finding in found} == {finding.bucket for finding in alone}
    for finding in found:
        twins = [other for other in alone if other.schedule == finding.schedule]
        assert twins, "drawn in workers only"
        # Shrinking ends ten seconds after the last draw: where it did, more is left.
        if finding.shrunk:
            assert finding.smallest in [twin.smallest for twin in twins]


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_keeps_to_its_budget_and_repeats_itself(engine: str) -> None:
    wanted = Campaign(subject=Subject("kafka"), engine=engine, seed=5, budget=Budget(schedules=3))
    first, second = search_alone(wanted), search_alone(wanted)
    assert first.schedules == 3
    assert not first.problems
    assert (first.events, first.virtual_us) == (second.events, second.virtual_us)


def test_schedules_are_shared_out_and_tallies_put_together() -> None:
    shares = looking(budget=Budget(schedules=5)).shares(3)
    assert [share.budget.schedules for share in shares] == [2, 2, 1]
    assert len({share.seed for share in shares}) == 3
    assert len(looking(budget=Budget(schedules=2)).shares(3)) == 2

    (finding,) = search_alone(looking()).findings
    other = replace(finding, bucket="another")
    parts = [
        CampaignResult(schedules=3, findings=[finding]),
        CampaignResult(schedules=40, findings=[finding, other]),
    ]
    whole = merge(parts)
    assert whole.schedules == 43
    assert [found.bucket for found in whole.findings] == [finding.bucket, "another"]


def test_real_replays_of_known_bugs_go_on_where_they_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (target,) = [e for e in known_bugs.search_targets() if e.code == "M19"]
    shrunk = known_bugs.drawn_schedule(target, 0, 0)
    forms, seeds = [], []

    def form(schedule: Schedule, breaks: str) -> RealSchedule:
        forms.append(breaks)
        return RealSchedule(replace(schedule, name="slow"), 28)

    def fails_every_other_time(request: ReplayRequest) -> Iterator[ReplayOutcome]:
        assert (request.world, load(request.file).name) == ("real", "slow")
        seeds.append(request.seed)
        if len(seeds) == 3:
            raise FloodmarkError("a process could not be started")
        yield ReplayOutcome(seed=0, verdict="invalid", sentence="lost", failed=len(seeds) % 2 == 1)

    monkeypatch.setattr(bug_search, "real_schedule", form)
    monkeypatch.setattr(bug_search, "replay", fails_every_other_time)
    request = BugSearchRequest(real=4, store=tmp_path)
    with pytest.raises(FloodmarkError, match="could not be started"):
        list(RealReplays(tmp_path, target, 0, shrunk).replays(request))
    again = RealReplays(tmp_path, target, 0, shrunk)
    assert again.done.cell == "1 of 2"
    list(again.replays(request))
    assert again.done.cell == "2 of 4"
    assert [seed - shrunk.workload.seed for seed in seeds] == [0, 1, 2, 2, 3]
    assert forms == [target.breaks]
    # Enough is enough; and what was found better since has a row of its own.
    assert not list(RealReplays(tmp_path, target, 0, shrunk).replays(request))
    assert RealReplays(tmp_path, target, 0, known_bugs.drawn_schedule(target, 0, 1)).done.of == 0


def test_an_entry_with_a_real_schedule_comes_before_one_without() -> None:
    (target,) = [e for e in known_bugs.search_targets() if e.code == "M19"]
    small, larger = (
        known_bugs.Entry(
            target=target,
            seed=seed,
            found=True,
            schedules=1,
            seconds=1.0,
            faults=faults,
            schedule=known_bugs.drawn_schedule(target, 0, seed),
            bucket=f"of {faults}",
        )
        for seed, faults in ((0, 3), (1, 2))
    )
    missing = known_bugs_table.ReplayCount(code="M19", seed=1, failed=0, of=0)
    replayed = known_bugs_table.ReplayCount(code="M19", seed=0, failed=2, of=3, failing_worlds=20)
    (row,) = known_bugs_table.rows([target], [small, larger], [missing, replayed])
    assert (row.faults, row.bucket, row.real) == (2, "of 2", "2 of 3")
    (row,) = known_bugs_table.rows([target], [small, larger], [missing])
    assert row.real == "no form"


def found(request: BugSearchRequest) -> bool:
    """Whether a search found all that it was asked for."""
    return find_bugs(request, Progress(quiet=True)).is_complete(request.only)


@pytest.mark.integration
def test_a_store_of_known_bugs_keeps_finds_and_shows_open_rows(tmp_path: Path) -> None:
    request = BugSearchRequest(
        only=("M19", "LB1"),
        seeds=1,
        budget_s=0.0,
        store=tmp_path,
        quiet=True,
        page=tmp_path / "known-bugs.md",
    )
    # Without time nothing is found, and nothing is left out of the table.
    assert found(request) is False
    assert (tmp_path / "known-bugs.md").read_text().count("| open |") == 2

    # With time the open ones are searched for again; LB1 is not asked for any more.
    assert found(replace(request, only=("M19",), budget_s=ENOUGH_S, jobs=2)) is True
    page = (tmp_path / "known-bugs.md").read_text()
    assert "1 of 2 rows found by blind search; open: LB1." in page

    schedule = load(tmp_path / "known-bugs" / "m19-0.schedule.json")
    assert "reads-below-hw" in attempt(schedule, stop_at="never").broken
    explained = tmp_path / "known-bugs" / "m19-0.explain.json"
    assert json.loads(explained.read_text())["schedule"] == schedule.digest()
    explained.unlink()
    kept = (tmp_path / "known-bugs" / "m19-0.entry.json").stat().st_mtime_ns
    assert found(replace(request, only=("M19",), budget_s=ENOUGH_S)) is True
    assert (tmp_path / "known-bugs" / "m19-0.entry.json").stat().st_mtime_ns == kept
    assert explained.is_file(), "what is not explained yet is explained later"


def test_an_open_search_goes_on_where_it_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    hard = next(e for e in known_bugs.search_targets() if e.code == "LB3")
    tried: list[int] = []

    def noted(target: SearchTarget, seed: int, number: int) -> Schedule:
        tried.append(number)
        return drawn(target, seed, number)

    drawn = known_bugs.drawn_schedule
    monkeypatch.setattr(known_bugs, "drawn_schedule", noted)
    first = known_bugs.search(hard, 0, math.inf, schedules=2)
    second = known_bugs.search(hard, 0, math.inf, schedules=3, before=first)
    assert tried == [0, 1, 2]
    assert (second.schedules, second.seconds >= first.seconds) == (3, True)
    # What was drawn in another way says nothing about what would be drawn now.
    known_bugs.search(hard, 0, math.inf, schedules=1, before=replace(second, generator_version=0))
    assert tried == [0, 1, 2, 0]


def test_every_bug_and_every_broken_promise_is_searched_for() -> None:
    made = list(known_bugs.search_targets())
    assert len({target.code for target in made}) == len(made)
    assert [e.breaks for e in made if e.protocol == "kip-101" and not e.bug] == [
        "no-lost-acknowledged-write",
        "committed-prefix-agreement",
        "offsets-and-order",
        "log-and-metadata",
        "liveness",
    ]
    assert known_bugs.correct_protocols() == ["kip-279", "kafka", "quorum"]


AT_FAULT = SearchTarget(
    code="x", name="x", source="", protocol="high-watermark", breaks="no-lost-acknowledged-write"
)
"""The protocol itself loses the write."""


@pytest.mark.parametrize("breaks", ["liveness", "log-and-metadata"])
def test_a_search_for_liveness_or_metadata_escalates_nothing(breaks: str) -> None:
    """The very schedule that a search for lost records would go on from."""
    schedule = ready_made.load("kip-101-scenario-1")
    lost = AT_FAULT.judge(schedule)
    assert lost.internal_violation == "candidate-completeness"
    other = replace(AT_FAULT, breaks=breaks)
    assert other.judge(schedule) == dataclasses.replace(lost, internal_violation="")


@pytest.mark.integration
def test_a_failure_that_needs_no_bug_does_not_count_for_the_bug() -> None:
    bug = "keep-elr-at-min-isr"
    losing = ready_made.load("kip-101-scenario-1")
    with_bug = replace(losing, cluster=replace(losing.cluster, bugs=(bug,)))
    assert known_bugs.reproduces(AT_FAULT, with_bug) is not None
    assert known_bugs.reproduces(replace(AT_FAULT, bug=bug), with_bug) is None


def test_runs_of_a_correct_protocol_are_counted_by_generator() -> None:
    correct = known_bugs.check_correct("kafka", seed=0, first=3, schedules=2)
    assert not correct.findings
    assert correct.virtual_s > 1
    earlier = replace(correct, generator_version=GENERATOR_VERSION - 1)
    (line,) = known_bugs_table.correct_lines([correct, earlier])
    versions = f"{GENERATOR_VERSION - 1}, {GENERATOR_VERSION}"
    assert line.startswith(f"kafka (generator {versions}): 4 schedules, ")
