"""A nightly run: its jobs, its end, and what it remembers. On a clock that its jobs move."""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from checker.formats.verdict import Verdict
from harness.formats import nightly_journal
from harness.formats.nightly_journal import Ran, Searched
from harness.formats.nightly_run import Bucket
from harness.nightly import corpus, plan
from harness.search import findings
from node.core.protocol import REGISTRY
from node.formats.errors import StorageError, UsageError
from tests.support.nightly_fakes import LOST, FakeEnvironment, Killed, NightlyRuns, loses_a_write


def test_a_nightly_run_without_failures_does_all_kinds_of_work_and_is_green(
    store: NightlyRuns, capsys: pytest.CaptureFixture[str]
) -> None:
    assert store.nightly() == 0
    nightly = store.last
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


def test_a_valid_run_leaves_a_row_and_an_invalid_one_its_folder(store: NightlyRuns) -> None:
    store.nightly(budget_s=900.0)
    ran = [row for row in store.journal() if isinstance(row, Ran)]
    assert len(ran) > 5
    kept = [row.folder for row in ran if (store.store / row.folder).is_dir()]
    assert kept == [row.folder for row in ran if row.why == "canary"]
    assert (store.store / kept[0] / "report.html").is_file()
    assert store.environment is not None
    assert len(store.environment.judged) == 1, "one pipeline over all of them"
    left = {p.name for p in store.store.iterdir()}
    assert left == {"nightly", "index.html", "junit.xml", "nightly-0001-canary"}


def test_storms_go_to_the_protocols_and_faults_with_fewest_runs(store: NightlyRuns) -> None:
    store.nightly()
    store.nightly()
    cells = Counter[tuple[str, str]]()
    for nightly in store.all:
        for storm in nightly.storms:
            cells[storm.protocol, storm.kinds] += storm.runs
    # The second nightly run goes on where the first one ended, protocols that should hold first.
    assert max(cells.values()) == 1
    assert {protocol for protocol, _ in list(cells)[:3]} == {"kafka", "kip-279", "quorum"}
    past = store.all
    assert (plan.least_hit(past, {}, 7).protocol, plan.least_hit(past, {}, 7).kinds) not in cells


def test_a_killed_nightly_run_resumes_and_counts_nothing_twice(store: NightlyRuns) -> None:
    def dies(environment: FakeEnvironment) -> None:
        raise Killed

    with pytest.raises(Killed):
        store.nightly(at={12: dies})
    before = store.journal()
    assert nightly_journal.state_of(before) == "running"
    # It died in the middle of a line.
    with nightly_journal.journal_of(store.store, 1).open("ab") as file:
        file.write(b'{"what":"search","protocol":"kaf')

    assert store.nightly() == 0
    after = store.journal()
    assert after[: len(before)] == before
    keys = Counter(
        row.key for row in after if row.key and not isinstance(row, nightly_journal.Judged)
    )
    assert max(keys.values()) == 1
    numbers = sorted(int(k.split("/")[1]) for k in keys if k.startswith("search/"))
    assert numbers == list(range(len(numbers))), "what was lost was done again, with its seed"
    nightly = store.last
    assert (nightly.number, nightly.state) == (1, "finished")
    searched = [row for row in after if isinstance(row, Searched)]
    assert nightly.totals.schedules == sum(row.schedules for row in searched)
    assert nightly.used_s <= 600 + 3 * 30, "the time before it died counts"


def test_a_run_that_was_cut_off_is_reported_once_and_repeated(store: NightlyRuns) -> None:
    store.nightly(budget_s=60.0)
    cut = store.store / "nightly-0002-storm" / "20260101T000000"
    cut.mkdir(parents=True)
    (cut / "run.json").write_text("{}")
    store.nightly()
    store.nightly(number=2)
    assert [p for p in store.last.problems if "was cut off" in p] == [
        "cut-off/nightly-0002-storm/20260101T000000: a run was cut off; "
        "what there is of it is in nightly-0002-storm/20260101T000000"
    ]
    assert (cut / "run.json").exists()


def test_sigterm_stops_a_nightly_run_in_order_and_the_next_call_resumes_it(
    store: NightlyRuns, capsys: pytest.CaptureFixture[str]
) -> None:
    assert store.nightly(at={9: lambda environment: signal.raise_signal(signal.SIGTERM)}) == 2
    nightly = store.last
    assert nightly.state == "stopped"
    assert capsys.readouterr().out.startswith("? OPEN  nightly run 1, stopped after ")
    unjudged = nightly.canary.result
    assert unjudged == "", "there was no time to judge"

    assert store.nightly() == 0
    assert (store.last.number, store.last.state) == (1, "finished")
    assert store.last.canary.result == "failed", "judged when it went on"


def test_a_fresh_nightly_run_leaves_an_unfinished_one_as_it_is(store: NightlyRuns) -> None:
    store.nightly(free=0)
    assert store.nightly(fresh=True) == 0
    assert [(n.number, n.state) for n in store.all] == [(1, "disk-full"), (2, "finished")]


def test_a_disk_that_fills_up_ends_the_nightly_run_in_one_sentence(
    store: NightlyRuns, capsys: pytest.CaptureFixture[str]
) -> None:
    def fills(environment: FakeEnvironment) -> None:
        environment.free = 1000

    assert store.nightly(at={15: fills}) == 70
    nightly = store.last
    assert nightly.state == "disk-full"
    assert nightly.totals.schedules > 0, "what was recorded is kept"
    said = capsys.readouterr()
    assert said.err.strip().endswith("store: less than 512 MB are free")
    assert len(said.err.strip().splitlines()) == 1
    assert (store.store / "index.html").exists()


def test_a_disk_that_refuses_a_line_ends_the_nightly_run_too(
    store: NightlyRuns, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(journal: object, row: object) -> None:
        raise StorageError("nightly/0001.jsonl: the disk is full")

    def full(environment: FakeEnvironment) -> None:
        monkeypatch.setattr("harness.formats.nightly_journal.NightlyJournal.add", refuse)

    assert store.nightly(at={15: full}) == 70
    assert capsys.readouterr().err.strip() == "floodmark: nightly/0001.jsonl: the disk is full"
    monkeypatch.undo()
    assert store.nightly() == 0
    assert store.last.number == 1


def test_a_second_nightly_run_in_a_store_is_refused(store: NightlyRuns) -> None:
    def again(environment: FakeEnvironment) -> None:
        with pytest.raises(UsageError, match="another nightly run uses it"):
            NightlyRuns(store.store).nightly()

    assert store.nightly(at={1: again}) == 0


@pytest.mark.parametrize(
    ("changes", "code", "about", "sentence"),
    [
        (
            {"canary": Verdict.NOT_EXERCISED},
            *(1, "red", "canary did not fail: not-exercised: a record is gone."),
        ),
        ({"differ": True}, 1, "red", "not deterministic: "),
        # A job whose process died is not repeated.
        ({"lose": "search/3"}, 0, "problems", "search/3: its process ended with -9 after 3 s"),
    ],
    ids=["canary", "two digests", "process died"],
)
def test_what_went_wrong_is_named(
    store: NightlyRuns, changes: dict[str, Any], code: int, about: str, sentence: str
) -> None:
    assert store.nightly(**changes) == code
    found = getattr(store.last, about)
    assert found
    assert all(each.startswith(sentence) for each in found)


class TestBuckets:
    def test_a_failure_of_a_protocol_that_should_hold_is_red_every_nightly_run(
        self, store: NightlyRuns, capsys: pytest.CaptureFixture[str]
    ) -> None:
        cut = loses_a_write("cut")
        assert store.nightly(finds=[cut]) == 1
        (bucket,) = (b for b in store.last.buckets if not b.expected)
        assert (bucket.protocol, bucket.world, bucket.property) == ("kafka", "simulated", LOST)
        assert (store.store / bucket.schedule).is_file()
        assert bucket.page == f"{bucket.schedule.rpartition('/')[0]}/simulated/report.html"
        assert (store.store / bucket.page).is_file()
        assert bucket.replay.startswith("floodmark replay ")
        assert f'<a href="{bucket.page}">' in store.index
        assert "1 on protocols expected to hold, 1 of them new" in capsys.readouterr().out

        unclean = loses_a_write("unclean", faults=2)
        assert store.nightly(finds=[cut, unclean]) == 1
        assert "2 on protocols expected to hold, 1 of them new" in capsys.readouterr().out
        page = store.index
        first, second = page.index("kafka · " + unclean.bucket), page.index("kafka · " + cut.bucket)
        assert first < second, "new ones first"
        assert page.count('<span class="pill new">new</span>') == 1
        assert "nightly runs 1 to 2" in page

    @pytest.mark.parametrize("saved", [False, True], ids=["of a nightly run", "of a search"])
    def test_the_corpus_keeps_an_old_finding_red_until_it_no_longer_fails(
        self, store: NightlyRuns, saved: bool
    ) -> None:
        """`floodmark search` saves in the same place; so do people."""
        cut = loses_a_write("cut")
        if saved:
            found = findings.save(cut, store.store / "findings")
        else:
            store.nightly(finds=[cut])
        assert store.nightly() == 1, "no search met it, but its schedule still fails"
        (bucket,) = (b for b in store.last.buckets if not b.expected)
        assert (bucket.name, bucket.count) == (found.explanation.bucket if saved else cut.bucket, 1)
        assert (store.store / bucket.schedule).is_file()
        assert bucket.schedule.startswith("findings/")
        assert not saved or bucket.replay == f"floodmark replay {found.folder}"
        if not saved:
            key = f"replay/simulated/{cut.smallest.digest()}"
            assert store.nightly(lose=key) == 2, "it was not replayed: it is open"
            met = f"last met in nightly run {store.last.number - 1}"
            assert store.last.open == [f"kafka: {LOST}: cut (simulated, {met})"]

        assert store.nightly(fixed=True) == 0
        (fixed,) = store.last.unmet
        assert fixed.is_finding
        assert "no longer fails" in store.index

    def test_a_saved_finding_of_a_protocol_that_may_fail_is_not_red(
        self, store: NightlyRuns
    ) -> None:
        cut = loses_a_write("cut")
        cluster = replace(cut.smallest.cluster, protocol="high-watermark")
        findings.save(
            replace(cut, smallest=replace(cut.smallest, cluster=cluster)), store.store / "findings"
        )
        assert store.nightly() == 0
        assert store.last.totals.replays_met == store.last.totals.replays

    def test_a_page_that_cannot_be_built_is_a_note(
        self, store: NightlyRuns, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(folder: Path, tell: object) -> Path:
            raise ZeroDivisionError("a bug of the page")

        monkeypatch.setattr(corpus, "page_of_finding", broken)
        assert store.nightly(finds=[loses_a_write("no-page")]) == 1
        (bucket,) = store.last.buckets
        assert (bucket.page, (store.store / bucket.schedule).is_file()) == ("", True)
        assert store.environment is not None
        assert any("a bug of the page" in sentence for sentence in store.environment.notes)

    def test_a_bucket_not_met_again_is_open_and_not_green(
        self, store: NightlyRuns, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert store.nightly(storms={"quorum": "lost"}) == 1
        (bucket,) = store.last.buckets
        assert (bucket.protocol, bucket.name, bucket.expected) == ("quorum", f"{LOST}: lost", False)
        assert (store.store / bucket.page).is_file()
        assert bucket.replay == f"floodmark run --schedule {bucket.page.rpartition('/')[0]}"
        capsys.readouterr()
        assert store.nightly() == 2, "no storm hit it in this run, which proves nothing"
        (line,) = store.last.open
        assert line == f"quorum: {LOST}: lost (real, last met in nightly run 1)"
        said = capsys.readouterr().out
        assert said.startswith("? OPEN  nightly run 2, finished after ")
        assert "still open  1 bucket of earlier runs, not met again and not seen fixed; " in said
        assert f"the first: {line}" in said
        suite = ElementTree.parse(store.store / "junit.xml").getroot()[0]
        assert (suite.get("failures"), suite.get("skipped")) == ("0", "1")

        # Who has understood it removes the run.
        (kept,) = store.store.glob("nightly-0001-quorum*")
        shutil.rmtree(kept)
        assert store.nightly() == 0

    def test_failures_of_protocols_that_may_fail_are_not_red(self, store: NightlyRuns) -> None:
        storms = {name: "lost" for name, p in REGISTRY.items() if (LOST, "violable") in p.expected}
        # Protocols that should hold have their turn with each kind of fault first.
        nights, found = 0, list[Bucket]()
        while len(found) < 2 and nights < 30:
            nights += 1
            assert store.nightly(storms=storms, budget_s=900.0) in (0, 2)
            assert store.last.red == []
            found = [b for nightly in store.all for b in nightly.buckets]
        assert found
        assert all(bucket.expected and bucket.world == "real" for bucket in found)
        # Two such runs and the canary's stay of each nightly run.
        runs = list(store.store.glob("nightly-*/*/run.json"))
        assert len([r for r in runs if not r.parent.is_symlink()]) <= nights * 2


def test_a_few_real_runs_of_each_class_are_kept(store: NightlyRuns) -> None:
    for _ in range(4):
        store.nightly(storms={"quorum": "lost"}, kept_per_class=2)
    assert sum(b.count for nightly in store.all for b in nightly.buckets) > 2
    there = [run.parent for run in store.store.glob("nightly-*/2*/run.json")]
    assert sum("canary" in str(folder) for folder in there) == 2
    assert sum("canary" not in str(folder) for folder in there) == 2
    (bucket,) = store.last.buckets
    shown = f'<a href="{bucket.page}">page</a>'
    assert shown in store.index


def test_a_real_run_that_proves_nothing_says_why(
    store: NightlyRuns, capsys: pytest.CaptureFixture[str]
) -> None:
    assert store.nightly(idle="quorum") == 2
    why, *_ = store.last.proved_nothing
    assert why.startswith("storm/quorum/")
    assert why.endswith(": not-exercised: fault 0 found no target.")
    assert "no proof    " in capsys.readouterr().out
    assert "fault 0 found no target" in store.index


def test_junit_has_a_case_for_each_protocol_and_bucket(store: NightlyRuns) -> None:
    store.nightly(finds=[loses_a_write("cut")])
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


def test_budgets_are_read() -> None:
    read = {"90s": 90, "20m": 1200, "8h": 28800, "1h30m": 5400, "0.5h": 1800}
    assert {text: plan.seconds_of(text) for text in read} == read
    for text in ("", "20", "m20", "20 m", "20m5", "0s", "-1h"):
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
