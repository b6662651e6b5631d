"""A nightly run: its jobs, its end, and what it remembers. On a clock that its jobs move."""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from checker.formats.verdict import Verdict
from harness.formats import nightly_journal
from harness.formats.nightly_journal import Ran, Searched
from harness.formats.nightly_run import Bucket, NightlyRun, nightly_runs
from harness.nightly import corpus, plan
from harness.search import findings
from node.core.protocol import REGISTRY
from node.formats.errors import StorageError, UsageError
from tests.support.nightly_fakes import LOST, FakeEnvironment, Killed, NightlyRuns, loses_a_write


@pytest.fixture
def store(tmp_path: Path) -> NightlyRuns:
    return NightlyRuns(tmp_path / "store")


def last(store: NightlyRuns) -> NightlyRun:
    known, unread = nightly_runs(store.store)
    assert not unread
    return known[-1]


def test_a_quiet_nightly_run_does_some_of_everything_and_is_green(
    store: NightlyRuns, capsys: pytest.CaptureFixture[str]
) -> None:
    assert store.nightly() == 0
    nightly = last(store)
    assert nightly.state == "finished"
    assert nightly.canary.result == "failed"
    assert nightly.seed == 1_000_000
    assert nightly.totals.schedules > 0
    assert nightly.totals.determinism_runs > 0
    assert nightly.totals.storms > 0
    assert nightly.known_bugs
    assert nightly.totals.replays > 0
    # Everything but the canary had about its share.
    for share, percent in plan.SHARES.items():
        assert nightly.spent[share] >= 0.4 * 6 * percent, share
    assert nightly.used_s <= 600 + 3 * 30
    said = capsys.readouterr().out
    assert said.startswith("✓ GREEN  nightly run 1, finished after ")
    assert "canary      failed, as it must (ack-before-isr)" in said
    assert "seeds from 1,000,000" in said
    assert len(said.splitlines()) < 24


def test_runs_that_passed_are_rows_and_runs_that_failed_are_whole(store: NightlyRuns) -> None:
    store.nightly(budget_s=900.0)
    journal = nightly_journal.read(nightly_journal.journal_of(store.store, 1))
    ran = [row for row in journal if isinstance(row, Ran)]
    assert len(ran) > 5
    kept = [row.folder for row in ran if (store.store / row.folder).is_dir()]
    assert kept == [row.folder for row in ran if row.why == "canary"]
    assert (store.store / kept[0] / "report.html").is_file()
    assert store.environment is not None
    assert len(store.environment.judged) == 1, "one pipeline over all of them"
    left = {p.name for p in store.store.iterdir()}
    assert left == {"nightly", "index.html", "junit.xml", "nightly-0001-canary"}


def test_the_storms_go_where_fewest_have_been(store: NightlyRuns) -> None:
    store.nightly()
    store.nightly()
    cells = Counter[tuple[str, str]]()
    for nightly in nightly_runs(store.store)[0]:
        for storm in nightly.storms:
            cells[storm.protocol, storm.kinds] += storm.runs
    # The second nightly run goes on where the first one ended, protocols that should hold first.
    assert max(cells.values()) == 1
    assert {protocol for protocol, _ in list(cells)[:3]} == {"kafka", "kip-279", "quorum"}
    past = nightly_runs(store.store)[0]
    assert (plan.least_hit(past, {}, 7).protocol, plan.least_hit(past, {}, 7).kinds) not in cells


def test_a_killed_nightly_run_goes_on_and_counts_nothing_twice(store: NightlyRuns) -> None:
    def dies(environment: FakeEnvironment) -> None:
        def at(number: int) -> None:
            if number == 12:
                raise Killed

        environment.at = at

    with pytest.raises(Killed):
        store.nightly(dies)
    journal = nightly_journal.journal_of(store.store, 1)
    before = nightly_journal.read(journal)
    assert nightly_journal.state_of(before) == "running"
    # It died in the middle of a line.
    with journal.open("ab") as file:
        file.write(b'{"what":"search","protocol":"kaf')

    assert store.nightly() == 0
    after = nightly_journal.read(journal)
    assert after[: len(before)] == before
    keys = Counter(
        row.key for row in after if row.key and not isinstance(row, nightly_journal.Judged)
    )
    assert max(keys.values()) == 1
    numbers = sorted(int(k.split("/")[1]) for k in keys if k.startswith("search/"))
    assert numbers == list(range(len(numbers))), "what was lost was done again, with its seed"
    nightly = last(store)
    assert (nightly.number, nightly.state) == (1, "finished")
    searched = [row for row in after if isinstance(row, Searched)]
    assert nightly.totals.schedules == sum(row.schedules for row in searched)
    assert nightly.used_s <= 600 + 3 * 30, "the time before it died counts"


def test_a_run_that_was_cut_off_is_said_once_and_done_again(store: NightlyRuns) -> None:
    store.nightly(budget_s=60.0)
    cut = store.store / "nightly-0002-storm" / "20260101T000000"
    cut.mkdir(parents=True)
    (cut / "run.json").write_text("{}")
    store.nightly()
    store.nightly(number=2)
    assert [p for p in last(store).problems if "was cut off" in p] == [
        "cut-off/nightly-0002-storm/20260101T000000: a run was cut off; "
        "what there is of it is in nightly-0002-storm/20260101T000000"
    ]
    assert (cut / "run.json").exists()


def test_sigterm_ends_a_nightly_run_well_and_the_next_call_goes_on(
    store: NightlyRuns, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(environment: FakeEnvironment) -> None:
        def at(number: int) -> None:
            if number == 9:
                signal.raise_signal(signal.SIGTERM)

        environment.at = at

    assert store.nightly(stopped) == 2
    nightly = last(store)
    assert nightly.state == "stopped"
    assert capsys.readouterr().out.startswith("? OPEN  nightly run 1, stopped after ")
    unjudged = nightly.canary.result
    assert unjudged == "", "there was no time to judge"

    assert store.nightly() == 0
    assert (last(store).number, last(store).state) == (1, "finished")
    assert last(store).canary.result == "failed", "judged when it went on"


def test_a_fresh_nightly_run_leaves_an_unfinished_one_as_it_is(store: NightlyRuns) -> None:
    store.nightly(lambda environment: setattr(environment, "free", 0))
    assert store.nightly(fresh=True) == 0
    assert [(n.number, n.state) for n in nightly_runs(store.store)[0]] == [
        (1, "disk-full"),
        (2, "finished"),
    ]


def test_a_disk_that_fills_up_ends_the_nightly_run_in_one_sentence(
    store: NightlyRuns, capsys: pytest.CaptureFixture[str]
) -> None:
    def fills(environment: FakeEnvironment) -> None:
        def at(number: int) -> None:
            if number == 15:
                environment.free = 1000

        environment.at = at

    assert store.nightly(fills) == 70
    nightly = last(store)
    assert nightly.state == "disk-full"
    assert nightly.totals.schedules > 0, "what was recorded is kept"
    said = capsys.readouterr()
    assert said.err.strip().endswith("store: less than 512 MB are free")
    assert len(said.err.strip().splitlines()) == 1
    assert (store.store / "index.html").exists()


def test_a_disk_that_refuses_a_line_ends_the_nightly_run_too(
    store: NightlyRuns, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(environment: FakeEnvironment) -> None:
        def at(number: int) -> None:
            if number == 15:
                monkeypatch.setattr("harness.formats.nightly_journal.NightlyJournal.add", refuse)

        environment.at = at

    def refuse(journal: object, row: object) -> None:
        raise StorageError("nightly/0001.jsonl: the disk is full")

    assert store.nightly(full) == 70
    assert capsys.readouterr().err.strip() == "floodmark: nightly/0001.jsonl: the disk is full"
    monkeypatch.undo()
    assert store.nightly() == 0
    assert last(store).number == 1


def test_two_nightly_runs_at_a_time_are_one_too_many(store: NightlyRuns) -> None:
    def again(environment: FakeEnvironment) -> None:
        def at(number: int) -> None:
            with pytest.raises(UsageError, match="another nightly run uses it"):
                NightlyRuns(store.store).nightly()
            environment.at = lambda number: None

        environment.at = at

    assert store.nightly(again) == 0


def test_a_canary_that_lives_makes_the_nightly_run_red(
    store: NightlyRuns, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        store.nightly(lambda environment: setattr(environment, "canary", Verdict.NOT_EXERCISED))
        == 1
    )
    assert last(store).red == ["canary did not fail: not-exercised: a record is gone."]
    assert "DID NOT FAIL" in capsys.readouterr().out


def test_a_schedule_that_comes_out_otherwise_makes_the_nightly_run_red(store: NightlyRuns) -> None:
    assert store.nightly(lambda environment: setattr(environment, "differ", True)) == 1
    assert all(reason.startswith("not deterministic: ") for reason in last(store).red)
    assert last(store).differing


def test_a_piece_whose_process_died_is_a_problem_and_not_tried_again(store: NightlyRuns) -> None:
    assert store.nightly(lambda environment: setattr(environment, "lose", "search/3")) == 0
    assert last(store).problems == ["search/3: its process ended with -9 after 3 s"]


class TestBuckets:
    def test_what_breaks_a_protocol_that_should_hold_is_red_every_nightly_run(
        self, store: NightlyRuns, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cut = loses_a_write("cut")
        assert store.nightly(lambda environment: setattr(environment, "finds", [cut])) == 1
        (bucket,) = (b for b in last(store).buckets if not b.expected)
        assert (bucket.protocol, bucket.world, bucket.property) == ("kafka", "simulated", LOST)
        assert (store.store / bucket.schedule).is_file()
        assert bucket.page == f"{bucket.schedule.rpartition('/')[0]}/simulated/report.html"
        assert (store.store / bucket.page).is_file()
        assert bucket.replay.startswith("floodmark replay ")
        assert f'<a href="{bucket.page}">' in (store.store / "index.html").read_text()
        assert "1 on protocols expected to hold, 1 of them new" in capsys.readouterr().out

        unclean = loses_a_write("unclean", faults=2)
        assert store.nightly(lambda environment: setattr(environment, "finds", [cut, unclean])) == 1
        assert "2 on protocols expected to hold, 1 of them new" in capsys.readouterr().out
        page = (store.store / "index.html").read_text()
        first, second = page.index("kafka · " + unclean.bucket), page.index("kafka · " + cut.bucket)
        assert first < second, "new ones first"
        assert page.count('<span class="pill new">new</span>') == 1
        assert "nightly runs 1 to 2" in page

    def test_the_corpus_keeps_an_old_finding_red_until_it_no_longer_fails(
        self, store: NightlyRuns
    ) -> None:
        store.nightly(lambda environment: setattr(environment, "finds", [loses_a_write("cut")]))
        assert store.nightly() == 1, "no search met it, but its schedule still fails"
        (bucket,) = (b for b in last(store).buckets if not b.expected)
        assert bucket.count == 1
        assert bucket.schedule.startswith("findings/")

        assert store.nightly(lambda environment: setattr(environment, "fixed", True)) == 0
        (fixed,) = last(store).unmet
        assert fixed.is_finding
        assert "no longer fails" in (store.store / "index.html").read_text()

    def test_a_finding_that_somebody_saved_keeps_nightly_runs_red_too(
        self, store: NightlyRuns
    ) -> None:
        """`floodmark search` saves in the same place; so do people."""
        saved = findings.save(loses_a_write("cut"), store.store / "findings")
        assert store.nightly() == 1
        (bucket,) = (b for b in last(store).buckets if not b.expected)
        assert bucket.name == saved.explanation.bucket
        assert bucket.replay == f"floodmark replay {saved.folder}"
        assert (store.store / bucket.schedule).is_file()

        assert store.nightly(lambda environment: setattr(environment, "fixed", True)) == 0
        assert [u.is_finding for u in last(store).unmet] == [True]

    def test_a_finding_of_a_protocol_that_is_known_to_fail_is_no_news(
        self, store: NightlyRuns
    ) -> None:
        cut = loses_a_write("cut")
        cluster = replace(cut.smallest.cluster, protocol="high-watermark")
        findings.save(
            replace(cut, smallest=replace(cut.smallest, cluster=cluster)), store.store / "findings"
        )
        assert store.nightly() == 0
        assert last(store).totals.replays_met == last(store).totals.replays

    def test_a_page_that_fails_costs_the_nightly_run_a_sentence(
        self, store: NightlyRuns, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(folder: Path, tell: object) -> Path:
            raise ZeroDivisionError("a bug of the page")

        monkeypatch.setattr(corpus, "page_of_finding", broken)
        assert (
            store.nightly(lambda environment: setattr(environment, "finds", [loses_a_write("cut")]))
            == 1
        )
        (bucket,) = last(store).buckets
        assert (bucket.page, (store.store / bucket.schedule).is_file()) == ("", True)
        assert store.environment is not None
        assert any("a bug of the page" in sentence for sentence in store.environment.notes)

    def test_only_so_many_findings_of_a_nightly_run_get_a_page(self, store: NightlyRuns) -> None:
        finds = [loses_a_write("cut"), loses_a_write("unclean", faults=2)]
        store.nightly(lambda environment: setattr(environment, "finds", finds), pages=1)
        assert sorted(bool(b.page) for b in last(store).buckets) == [False, True]

    def test_what_was_not_met_again_is_open_and_not_green(
        self, store: NightlyRuns, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert store.nightly(lambda environment: environment.storms.update(quorum="lost")) == 1
        capsys.readouterr()
        assert store.nightly() == 2, "no storm hit it in this run, which proves nothing"
        (line,) = last(store).open
        assert line == f"quorum: {LOST}: lost (real, last met in nightly run 1)"
        said = capsys.readouterr().out
        assert said.startswith("? OPEN  nightly run 2, finished after ")
        assert (
            f"still open  1 bucket of earlier runs, not met again and not seen fixed; "
            f"the first: {line}" in said
        )
        suite = ElementTree.parse(store.store / "junit.xml").getroot()[0]
        assert (suite.get("failures"), suite.get("skipped")) == ("0", "1")

        # Who has understood it removes the run.
        (kept,) = store.store.glob("nightly-0001-quorum*")
        shutil.rmtree(kept)
        assert store.nightly() == 0

    def test_a_finding_that_was_not_replayed_tonight_is_open(self, store: NightlyRuns) -> None:
        cut = loses_a_write("cut")
        assert store.nightly(lambda environment: setattr(environment, "finds", [cut])) == 1
        key = f"replay/simulated/{cut.smallest.digest()}"
        assert store.nightly(lambda environment: setattr(environment, "lose", key)) == 2
        assert last(store).open == [f"kafka: {LOST}: cut (simulated, last met in nightly run 1)"]

    def test_failures_of_protocols_that_are_known_to_fail_are_no_news(
        self, store: NightlyRuns
    ) -> None:
        def known(environment: FakeEnvironment) -> None:
            environment.storms = {
                name: "lost" for name, p in REGISTRY.items() if (LOST, "violable") in p.expected
            }

        # Protocols that should hold have their turn with each kind of fault first.
        nights, found = 0, list[Bucket]()
        while len(found) < 2 and nights < 30:
            nights += 1
            assert store.nightly(known, budget_s=900.0) == 0
            found = [b for nightly in nightly_runs(store.store)[0] for b in nightly.buckets]
        assert found
        assert all(bucket.expected and bucket.world == "real" for bucket in found)
        # Two such runs and the canary's stay of each nightly run.
        runs = list(store.store.glob("nightly-*/*/run.json"))
        assert len([r for r in runs if not r.parent.is_symlink()]) <= nights * 2

    def test_the_same_storm_of_a_protocol_that_should_hold_is(self, store: NightlyRuns) -> None:
        assert store.nightly(lambda environment: environment.storms.update(quorum="lost")) == 1
        (bucket,) = last(store).buckets
        assert (bucket.protocol, bucket.name, bucket.expected) == ("quorum", f"{LOST}: lost", False)
        assert (store.store / bucket.page).is_file()
        assert bucket.replay == f"floodmark run --schedule {bucket.page.rpartition('/')[0]}"


def test_of_each_class_a_few_real_runs_stay_the_smallest_among_them(store: NightlyRuns) -> None:
    for _ in range(4):
        store.nightly(
            lambda environment: environment.storms.update(quorum="lost"), kept_per_class=2
        )
    assert sum(b.count for nightly in nightly_runs(store.store)[0] for b in nightly.buckets) > 2
    there = [run.parent for run in store.store.glob("nightly-*/2*/run.json")]
    assert sum("canary" in str(folder) for folder in there) == 2
    assert sum("canary" not in str(folder) for folder in there) == 2
    (bucket,) = last(store).buckets
    shown = f'<a href="{bucket.page}">page</a>'
    assert shown in (store.store / "index.html").read_text()


def test_a_real_run_that_proves_nothing_says_why(
    store: NightlyRuns, capsys: pytest.CaptureFixture[str]
) -> None:
    assert store.nightly(lambda environment: setattr(environment, "idle", "quorum")) == 0
    why, *_ = last(store).proved_nothing
    assert why.startswith("storm/quorum/")
    assert why.endswith(": not-exercised: fault 0 found no target.")
    assert "no proof    " in capsys.readouterr().out
    assert "fault 0 found no target" in (store.store / "index.html").read_text()


def test_junit_has_a_case_for_each_protocol_and_bucket(store: NightlyRuns) -> None:
    store.nightly(lambda environment: setattr(environment, "finds", [loses_a_write("cut")]))
    root = ElementTree.parse(store.store / "junit.xml").getroot()
    suite = root[0]
    cases = {(c.get("classname"), c.get("name")): c for c in suite}
    assert cases["floodmark.quorum", "search (simulated)"].find("failure") is None
    failed = cases["floodmark.kafka", "search (simulated)"].find("failure")
    assert failed is not None
    (bucket,) = (c for (group, _), c in cases.items() if group == "floodmark.kafka.buckets")
    about = bucket.find("failure")
    assert about is not None
    assert str(about.get("message")).startswith("new in this run, ")
    assert "floodmark replay " in (about.text or "")
    assert cases["floodmark.nightly", "canary"].find("failure") is None
    assert suite.get("tests") == str(len(cases))
    assert suite.get("failures") == "2"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("20m", 1200), ("8h", 28800), ("1h30m", 5400), ("0.5h", 1800)],
)
def test_budgets_are_read(text: str, seconds: float) -> None:
    assert plan.seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "20", "m20", "20 m", "20m5", "0s", "-1h"])
def test_budgets_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--budget is"):
        plan.seconds_of(text)


def test_a_journal_with_damage_in_its_middle_is_refused(store: NightlyRuns) -> None:
    store.nightly(budget_s=60.0)
    journal = nightly_journal.journal_of(store.store, 1)
    lines = journal.read_bytes().split(b"\n")
    lines[2] = lines[2][:20]
    journal.write_bytes(b"\n".join(lines))
    with pytest.raises(StorageError, match=r"0001\.jsonl:3: not a line of a journal"):
        store.nightly(number=1)


def test_two_nightly_runs_share_no_seed() -> None:
    assert plan.seed_of(2) - plan.seed_of(1) == plan.SEEDS_PER_RUN
