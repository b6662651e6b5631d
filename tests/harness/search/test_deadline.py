"""The end of a search: nothing that was found is lost, and nothing goes on for long."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import msgspec
from msgspec.structs import replace

from checker.formats.verdict import RunResult, Verdict
from harness.search import campaign, deadline, findings
from harness.search.attempt import attempt
from harness.search.campaign import Budget, Campaign, CampaignResult, Finding
from harness.search.engines import Subject
from harness.search.real_schedule import real_schedule
from harness.search.shrink import Shrinking
from harness.sim import run
from harness.sim.invariant_checker import Violation
from nemesis import ready_made
from nemesis.formats.schedule import Schedule, load

READS_AHEAD = Subject("kafka", ("read-beyond-hw",))


def test_the_end_is_so_many_seconds_away_and_without_seconds_there_is_none() -> None:
    clock = iter([10.0, 14.9, 15.0])
    is_late = deadline.after(5.0, lambda: next(clock))
    assert (is_late(), is_late()) == (False, True)
    assert not deadline.after(0.0)()


class Channel:
    """Collects the updates of a worker, which must finish at once when it has a finding."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    def put(self, update: dict[str, list[bytes]]) -> None:
        self.findings += [msgspec.json.decode(f, type=Finding) for f in update["findings"]]

    def found(self) -> bool:
        return bool(self.findings)


def wanted() -> Campaign:
    return Campaign(subject=READS_AHEAD, budget=Budget(until_failure=True), shrink_tries=60)


def test_shrinking_ends_at_once_with_what_it_has() -> None:
    channel = Channel()
    campaign._Worker(wanted(), None, channel, channel.found, channel.found).work()
    drawn, stopped = channel.findings
    assert not stopped.shrunk
    assert stopped.smallest == drawn.smallest
    assert attempt(stopped.smallest).bucket == drawn.bucket

    asked = count()
    shrinking = Shrinking(drawn.schedule, lambda s: bool(s.faults), stop=lambda: next(asked) == 3)
    assert len(shrinking.run().faults) >= 1
    assert shrinking.stopped
    assert shrinking.tries <= 3


def test_a_part_of_the_seconds_is_kept_for_what_was_found() -> None:
    budget = Budget(seconds=10.0, reserve=0.3)
    found = Finding(
        bucket="a: b",
        property="a",
        sentence="",
        schedule=Schedule(),
        smallest=Schedule(),
        schedules_before=1,
        seconds_before=1.0,
        shrink_tries=0,
        shrunk=False,
    )
    assert not budget.is_used_up(CampaignResult(seconds=9.9))
    assert budget.is_used_up(CampaignResult(seconds=10.0))
    assert budget.is_used_up(CampaignResult(seconds=7.1, findings=[found]))
    first = Budget(until_failure=True)
    assert not first.is_used_up(CampaignResult(findings=[found]))
    assert first.is_used_up(CampaignResult(findings=[replace(found, shrunk=True)]))


def test_a_finding_is_reported_as_drawn_before_it_is_shrunk(tmp_path: Path) -> None:
    channel = Channel()
    campaign._Worker(wanted(), None, channel, channel.found, deadline.never).work()
    drawn, shrunk = channel.findings
    assert (drawn.shrunk, shrunk.shrunk) == (False, True)
    assert drawn.smallest.faults == drawn.schedule.faults
    assert len(shrunk.smallest.faults) < len(drawn.smallest.faults)
    assert (drawn.bucket, drawn.schedule) == (shrunk.bucket, shrunk.schedule)

    kept: list[Finding] = []
    for finding in (drawn, replace(drawn, schedule=shrunk.smallest), shrunk):
        campaign._keep(kept, finding)
    assert kept == [shrunk], "what became of the first schedule of a bucket"

    # The shrunk form takes the folder of the drawn one.
    first = findings.keep(drawn, tmp_path)
    saved = findings.save(shrunk, tmp_path, before=first, stop=lambda: True)
    assert [folder.name for folder in tmp_path.iterdir()] == [saved.folder.name]
    assert load(saved.folder) == shrunk.smallest
    assert saved.explanation.bucket == shrunk.bucket
    assert len(saved.explanation.counterfactuals) <= 1, "it was stopped"
    assert findings.save_real_schedule(shrunk, saved.folder, stop=lambda: True) is None


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
