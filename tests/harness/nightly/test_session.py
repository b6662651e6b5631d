"""A night: what it does, how it ends, and what it remembers. On a clock that its pieces move."""

from __future__ import annotations

import os
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
from harness.formats.nightly_run import Night, nights
from harness.nightly import corpus, plan
from harness.search import findings
from node.core.protocol import REGISTRY
from node.formats.errors import StorageError, UsageError
from tests.support.nightly_fakes import LOST, FakeHands, Killed, Nights, loses_a_write


@pytest.fixture
def store(tmp_path: Path) -> Nights:
    return Nights(tmp_path / "store")


def last(store: Nights) -> Night:
    known, unread = nights(store.store)
    assert not unread
    return known[-1]


def test_a_quiet_night_does_some_of_everything_and_is_green(
    store: Nights, capsys: pytest.CaptureFixture[str]
) -> None:
    assert store.night() == 0
    night = last(store)
    assert night.state == "finished"
    assert night.canary.result == "failed"
    assert night.seed == 1_000_000
    assert night.totals.schedules > 0
    assert night.totals.twice > 0
    assert night.totals.storms > 0
    assert night.museum
    assert night.totals.replays > 0
    # Everything but the canary had about its share.
    for share, percent in plan.SHARES.items():
        assert night.spent[share] >= 0.4 * 6 * percent, share
    assert night.used_s <= 600 + 3 * 30
    said = capsys.readouterr().out
    assert said.startswith("✓ GREEN  night 1, finished after ")
    assert "canary      failed, as it must (ack-before-isr)" in said
    assert "seeds from 1,000,000" in said
    assert len(said.splitlines()) < 24


def test_runs_that_passed_are_rows_and_runs_that_failed_are_whole(store: Nights) -> None:
    store.night(budget_s=900.0)
    journal = nightly_journal.read(nightly_journal.journal_of(store.store, 1))
    ran = [row for row in journal if isinstance(row, Ran)]
    assert len(ran) > 5
    kept = [row.folder for row in ran if (store.store / row.folder).is_dir()]
    assert kept == [row.folder for row in ran if row.why == "canary"]
    assert (store.store / kept[0] / "report.html").is_file()
    assert store.hands is not None
    assert len(store.hands.judged) == 1, "one pipeline over all of them"
    left = {p.name for p in store.store.iterdir()}
    assert left == {"nights", "index.html", "junit.xml", "night-0001-canary"}


def test_the_storms_go_where_fewest_have_been(store: Nights) -> None:
    store.night()
    store.night()
    cells = Counter[tuple[str, str]]()
    for night in nights(store.store)[0]:
        for storm in night.storms:
            cells[storm.protocol, storm.kinds] += storm.runs
    # The second night goes on where the first one ended, protocols that should hold first.
    assert max(cells.values()) == 1
    assert {protocol for protocol, _ in list(cells)[:3]} == {"kafka", "kip-279", "quorum"}
    past = nights(store.store)[0]
    assert (plan.least_hit(past, {}, 7).protocol, plan.least_hit(past, {}, 7).kinds) not in cells


def test_a_killed_night_goes_on_and_counts_nothing_twice(store: Nights) -> None:
    def dies(hands: FakeHands) -> None:
        def at(number: int) -> None:
            if number == 12:
                raise Killed

        hands.at = at

    with pytest.raises(Killed):
        store.night(dies)
    journal = nightly_journal.journal_of(store.store, 1)
    before = nightly_journal.read(journal)
    assert nightly_journal.state_of(before) == "running"
    # It died in the middle of a line.
    with journal.open("ab") as file:
        file.write(b'{"what":"search","protocol":"kaf')

    assert store.night() == 0
    after = nightly_journal.read(journal)
    assert after[: len(before)] == before
    keys = Counter(
        row.key for row in after if row.key and not isinstance(row, nightly_journal.Judged)
    )
    assert max(keys.values()) == 1
    numbers = sorted(int(k.split("/")[1]) for k in keys if k.startswith("search/"))
    assert numbers == list(range(len(numbers))), "what was lost was done again, with its seed"
    night = last(store)
    assert (night.number, night.state) == (1, "finished")
    searched = [row for row in after if isinstance(row, Searched)]
    assert night.totals.schedules == sum(row.schedules for row in searched)
    assert night.used_s <= 600 + 3 * 30, "the time before it died counts"


def test_a_run_that_was_cut_off_is_said_once_and_done_again(store: Nights) -> None:
    store.night(budget_s=60.0)
    cut = store.store / "night-0002-storm" / "20260101T000000"
    cut.mkdir(parents=True)
    (cut / "run.json").write_text("{}")
    store.night()
    store.night(number=2)
    assert [p for p in last(store).problems if "was cut off" in p] == [
        "cut-off/night-0002-storm/20260101T000000: a run was cut off; "
        "what there is of it is in night-0002-storm/20260101T000000"
    ]
    assert (cut / "run.json").exists()


def test_sigterm_ends_a_night_well_and_the_next_call_goes_on(
    store: Nights, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(hands: FakeHands) -> None:
        def at(number: int) -> None:
            if number == 9:
                os.kill(os.getpid(), signal.SIGTERM)

        hands.at = at

    assert store.night(stopped) == 2
    night = last(store)
    assert night.state == "stopped"
    assert capsys.readouterr().out.startswith("? OPEN  night 1, stopped after ")
    unjudged = night.canary.result
    assert unjudged == "", "there was no time to judge"

    assert store.night() == 0
    assert (last(store).number, last(store).state) == (1, "finished")
    assert last(store).canary.result == "failed", "judged when it went on"


def test_a_fresh_night_leaves_an_unfinished_one_as_it_is(store: Nights) -> None:
    store.night(lambda hands: setattr(hands, "free", 0))
    assert store.night(fresh=True) == 0
    assert [(n.number, n.state) for n in nights(store.store)[0]] == [
        (1, "disk-full"),
        (2, "finished"),
    ]


def test_a_disk_that_fills_up_ends_the_night_in_one_sentence(
    store: Nights, capsys: pytest.CaptureFixture[str]
) -> None:
    def fills(hands: FakeHands) -> None:
        def at(number: int) -> None:
            if number == 15:
                hands.free = 1000

        hands.at = at

    assert store.night(fills) == 70
    night = last(store)
    assert night.state == "disk-full"
    assert night.totals.schedules > 0, "what was recorded is kept"
    said = capsys.readouterr()
    assert said.err.strip().endswith("store: less than 512 MB are free")
    assert len(said.err.strip().splitlines()) == 1
    assert (store.store / "index.html").exists()


def test_a_disk_that_refuses_a_line_ends_the_night_too(
    store: Nights, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(hands: FakeHands) -> None:
        def at(number: int) -> None:
            if number == 15:
                monkeypatch.setattr("harness.formats.nightly_journal.Journal.add", refuse)

        hands.at = at

    def refuse(journal: object, row: object) -> None:
        raise StorageError("nights/0001.jsonl: the disk is full")

    assert store.night(full) == 70
    assert capsys.readouterr().err.strip() == "floodmark: nights/0001.jsonl: the disk is full"
    monkeypatch.undo()
    assert store.night() == 0
    assert last(store).number == 1


def test_two_nights_at_a_time_are_one_too_many(store: Nights) -> None:
    def again(hands: FakeHands) -> None:
        def at(number: int) -> None:
            with pytest.raises(UsageError, match="another night is at work there"):
                Nights(store.store).night()
            hands.at = lambda number: None

        hands.at = at

    assert store.night(again) == 0


def test_a_canary_that_lives_makes_the_night_red(
    store: Nights, capsys: pytest.CaptureFixture[str]
) -> None:
    assert store.night(lambda hands: setattr(hands, "canary", Verdict.NOT_EXERCISED)) == 1
    assert last(store).red == ["canary did not fail: not-exercised: a record is gone."]
    assert "DID NOT FAIL" in capsys.readouterr().out


def test_a_schedule_that_comes_out_otherwise_makes_the_night_red(store: Nights) -> None:
    assert store.night(lambda hands: setattr(hands, "differ", True)) == 1
    assert all(reason.startswith("not deterministic: ") for reason in last(store).red)
    assert last(store).differing


def test_a_piece_whose_process_died_is_a_problem_and_not_tried_again(store: Nights) -> None:
    assert store.night(lambda hands: setattr(hands, "lose", "search/3")) == 0
    assert last(store).problems == ["search/3: its process ended with -9 after 3 s"]


class TestBuckets:
    def test_what_breaks_a_protocol_that_should_hold_is_red_every_night(
        self, store: Nights, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cut = loses_a_write("cut")
        assert store.night(lambda hands: setattr(hands, "finds", [cut])) == 1
        (bucket,) = (b for b in last(store).buckets if not b.expected)
        assert (bucket.protocol, bucket.world, bucket.property) == ("kafka", "simulated", LOST)
        assert (store.store / bucket.schedule).is_file()
        assert bucket.page == f"{bucket.schedule.rpartition('/')[0]}/simulated/report.html"
        assert (store.store / bucket.page).is_file()
        assert bucket.replay.startswith("floodmark replay ")
        assert f'<a href="{bucket.page}">' in (store.store / "index.html").read_text()
        assert "1 on protocols expected to hold, 1 of them new" in capsys.readouterr().out

        unclean = loses_a_write("unclean", faults=2)
        assert store.night(lambda hands: setattr(hands, "finds", [cut, unclean])) == 1
        assert "2 on protocols expected to hold, 1 of them new" in capsys.readouterr().out
        page = (store.store / "index.html").read_text()
        first, second = page.index("kafka · " + unclean.bucket), page.index("kafka · " + cut.bucket)
        assert first < second, "new ones first"
        assert page.count('<span class="pill new">new</span>') == 1
        assert "night 1 to 2" in page

    def test_the_corpus_keeps_an_old_finding_red_until_it_no_longer_fails(
        self, store: Nights
    ) -> None:
        store.night(lambda hands: setattr(hands, "finds", [loses_a_write("cut")]))
        assert store.night() == 1, "no search met it, but its schedule still fails"
        (bucket,) = (b for b in last(store).buckets if not b.expected)
        assert bucket.count == 1
        assert bucket.schedule.startswith("findings/")

        assert store.night(lambda hands: setattr(hands, "mended", True)) == 0
        (mended,) = last(store).unmet
        assert mended.is_finding
        assert "no longer fails" in (store.store / "index.html").read_text()

    def test_a_finding_that_somebody_saved_keeps_nights_red_too(self, store: Nights) -> None:
        """`floodmark search` saves in the same place; so do people."""
        saved = findings.save(loses_a_write("cut"), store.store / "findings")
        assert store.night() == 1
        (bucket,) = (b for b in last(store).buckets if not b.expected)
        assert bucket.name == saved.explanation.bucket
        assert bucket.replay == f"floodmark replay {saved.folder}"
        assert (store.store / bucket.schedule).is_file()

        assert store.night(lambda hands: setattr(hands, "mended", True)) == 0
        assert [u.is_finding for u in last(store).unmet] == [True]

    def test_a_finding_of_a_protocol_that_is_known_to_fail_is_no_news(self, store: Nights) -> None:
        cut = loses_a_write("cut")
        cluster = replace(cut.smallest.cluster, protocol="high-watermark")
        findings.save(
            replace(cut, smallest=replace(cut.smallest, cluster=cluster)), store.store / "findings"
        )
        assert store.night() == 0
        assert last(store).totals.replays_met == last(store).totals.replays

    def test_a_page_that_fails_costs_the_night_a_sentence(
        self, store: Nights, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(folder: Path, tell: object) -> Path:
            raise ZeroDivisionError("a bug of the page")

        monkeypatch.setattr(corpus, "page_of_finding", broken)
        assert store.night(lambda hands: setattr(hands, "finds", [loses_a_write("cut")])) == 1
        (bucket,) = last(store).buckets
        assert (bucket.page, (store.store / bucket.schedule).is_file()) == ("", True)
        assert store.hands is not None
        assert any("a bug of the page" in sentence for sentence in store.hands.told)

    def test_only_so_many_findings_of_a_night_get_a_page(self, store: Nights) -> None:
        finds = [loses_a_write("cut"), loses_a_write("unclean", faults=2)]
        store.night(lambda hands: setattr(hands, "finds", finds), pages=1)
        assert sorted(bool(b.page) for b in last(store).buckets) == [False, True]

    def test_what_was_not_met_again_is_open_and_not_green(
        self, store: Nights, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert store.night(lambda hands: hands.storms.update(quorum="lost")) == 1
        capsys.readouterr()
        assert store.night() == 2, "no storm hit it tonight, which proves nothing"
        (line,) = last(store).open
        assert line == f"quorum: {LOST}: lost (real, last met in night 1)"
        said = capsys.readouterr().out
        assert said.startswith("? OPEN  night 2, finished after ")
        assert (
            f"still open  1 bucket of earlier nights, not met again and not seen mended; "
            f"the first: {line}" in said
        )
        suite = ElementTree.parse(store.store / "junit.xml").getroot()[0]
        assert (suite.get("failures"), suite.get("skipped")) == ("0", "1")

        # Who has understood it removes the run.
        (kept,) = store.store.glob("night-0001-quorum*")
        shutil.rmtree(kept)
        assert store.night() == 0

    def test_a_finding_that_was_not_replayed_tonight_is_open(self, store: Nights) -> None:
        cut = loses_a_write("cut")
        assert store.night(lambda hands: setattr(hands, "finds", [cut])) == 1
        key = f"replay/simulated/{cut.smallest.digest()}"
        assert store.night(lambda hands: setattr(hands, "lose", key)) == 2
        assert last(store).open == [f"kafka: {LOST}: cut (simulated, last met in night 1)"]

    def test_failures_of_protocols_that_are_known_to_fail_are_no_news(self, store: Nights) -> None:
        def known(hands: FakeHands) -> None:
            hands.storms = {
                name: "lost" for name, p in REGISTRY.items() if (LOST, "violable") in p.expected
            }

        for _ in range(3):
            assert store.night(known, budget_s=900.0) == 0
        found = [b for night in nights(store.store)[0] for b in night.buckets]
        assert found
        assert all(bucket.expected and bucket.world == "real" for bucket in found)
        # Two such runs and the canary's stay of each night.
        runs = list(store.store.glob("night-*/*/run.json"))
        assert len([r for r in runs if not r.parent.is_symlink()]) <= 3 * 2

    def test_the_same_storm_of_a_protocol_that_should_hold_is(self, store: Nights) -> None:
        assert store.night(lambda hands: hands.storms.update(quorum="lost")) == 1
        (bucket,) = last(store).buckets
        assert (bucket.protocol, bucket.name, bucket.expected) == ("quorum", f"{LOST}: lost", False)
        assert (store.store / bucket.page).is_file()
        assert bucket.replay == f"floodmark run --schedule {bucket.page.rpartition('/')[0]}"


def test_of_each_class_a_few_real_runs_stay_the_smallest_among_them(store: Nights) -> None:
    for _ in range(4):
        store.night(lambda hands: hands.storms.update(quorum="lost"), kept_of_a_kind=2)
    assert sum(b.count for night in nights(store.store)[0] for b in night.buckets) > 2
    there = [run.parent for run in store.store.glob("night-*/2*/run.json")]
    assert sum("canary" in str(folder) for folder in there) == 2
    assert sum("canary" not in str(folder) for folder in there) == 2
    (bucket,) = last(store).buckets
    shown = f'<a href="{bucket.page}">page of the smallest</a>'
    assert shown in (store.store / "index.html").read_text()


def test_a_real_run_that_proves_nothing_says_why(
    store: Nights, capsys: pytest.CaptureFixture[str]
) -> None:
    assert store.night(lambda hands: setattr(hands, "idle", "quorum")) == 0
    why, *_ = last(store).proved_nothing
    assert why.startswith("storm/quorum/")
    assert why.endswith(": not-exercised: fault 0 found no target.")
    assert "no proof    " in capsys.readouterr().out
    assert "fault 0 found no target" in (store.store / "index.html").read_text()


def test_junit_has_a_case_for_each_protocol_and_bucket(store: Nights) -> None:
    store.night(lambda hands: setattr(hands, "finds", [loses_a_write("cut")]))
    root = ElementTree.parse(store.store / "junit.xml").getroot()
    suite = root[0]
    cases = {(c.get("classname"), c.get("name")): c for c in suite}
    assert cases["floodmark.quorum", "search (simulated)"].find("failure") is None
    failed = cases["floodmark.kafka", "search (simulated)"].find("failure")
    assert failed is not None
    (bucket,) = (c for (group, _), c in cases.items() if group == "floodmark.kafka.buckets")
    about = bucket.find("failure")
    assert about is not None
    assert str(about.get("message")).startswith("new tonight, ")
    assert "floodmark replay " in (about.text or "")
    assert cases["floodmark.night", "canary"].find("failure") is None
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


def test_a_journal_with_damage_in_its_middle_is_refused(store: Nights) -> None:
    store.night(budget_s=60.0)
    journal = nightly_journal.journal_of(store.store, 1)
    lines = journal.read_bytes().split(b"\n")
    lines[2] = lines[2][:20]
    journal.write_bytes(b"\n".join(lines))
    with pytest.raises(StorageError, match=r"0001\.jsonl:3: not a line of a journal"):
        store.night(number=1)


def test_two_nights_share_no_seed() -> None:
    assert plan.seed_of(2) - plan.seed_of(1) == plan.SEEDS_A_NIGHT
