"""What explains a failure: messages, counterfactuals, schedules, control, curves, raw lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import reports
from harness.formats.baseline import Baseline, Side
from nemesis.faults import Kill, Pause
from node.formats.event_text import Event
from reports.charts import plots, svg
from reports.messages import messages
from reports.messages.message_events import Known, MessageRow
from reports.run_page import citations, curves, model, reproduction
from reports.run_page.files import Notes
from tests.support import report_fixtures as made
from tests.support import report_kinds as kinds


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return kinds.explained(tmp_path_factory.mktemp("store") / "unclean" / "t")


@pytest.fixture(scope="module")
def folder(failed: Path) -> model.RunFolder:
    return model.read(failed)


@pytest.fixture(scope="module")
def text(failed: Path) -> str:
    return reports.build(failed).read_text("utf-8")


def drawn(*events: Event, low: int = 5) -> list[MessageRow]:
    known = Known(low, low + 1)
    return [row for e in events if (row := known.row(e, "")) is not None]


class TestMessageEvents:
    """A partition led by n1, followed by n2, about offset 5."""

    led = (
        Event("role", node="n1", role="leader", leader="n1", leader_epoch=1, leo=5, hw=5),
        Event("role", node="n2", role="follower", leader="n1", leader_epoch=1, leo=5, hw=5),
    )

    def test_a_followers_append_is_its_leaders_answer(self) -> None:
        copied = Event("append", node="n2", role="follower", base_offset=5, leo=6, leader_epoch=1)
        row = drawn(*self.led, copied)[-1]
        assert (row.sender, row.receiver, row.tone) == ("n1", "n2", "data")
        assert row.text == "fetch-response: offset 5 of epoch 1"

    def test_other_offsets_are_not_drawn(self) -> None:
        other = Event("append", node="n2", role="follower", base_offset=6, leo=9, leader_epoch=1)
        assert len(drawn(*self.led, other)) == 2

    def test_a_watermark_is_told_when_it_passes_and_again_when_it_falls(self) -> None:
        moves = [Event("hw", node="n1", role="leader", hw=hw) for hw in (5, 6, 7, 8)]
        assert [row.text for row in drawn(*self.led, *moves)[2:]] == [
            "moves its high watermark to 6"
        ]
        back = Event("role", node="n2", role="follower", leader="n1", leo=6, hw=4)
        follower = [Event("hw", node="n2", role="follower", hw=hw) for hw in (6, 7)]
        said = [row.text for row in drawn(*self.led, follower[0], back, follower[1])]
        assert [text for text in said if text.startswith("fetch-response")] == [
            "fetch-response: high watermark 6",
            "fetch-response: high watermark 7",
        ]

    def test_a_cut_through_the_place_is_what_broke_it(self) -> None:
        cut = Event("truncated", node="n2", from_leo=9, leo=5, hw=5, reason="own-high-watermark")
        below = Event(
            "truncated", node="n2", from_leo=9, leo=7, hw=5, reason="offset-for-leader-epoch"
        )
        assert [row.breaks for row in drawn(cut, below)] == [True, False]

    def test_a_commit_told_by_three_voters_is_one(self) -> None:
        said = [
            Event("partition", node=v, leader="n2", leader_epoch=2, partition_epoch=3, isr=("n2",))
            for v in ("v1", "v2", "v3")
        ]
        assert [row.text for row in drawn(*said)] == ["commits: n2 leads epoch 2, ISR [n2]"]

    def test_a_process_that_ends_and_begins_again_breaks_its_lifeline(self) -> None:
        ended = Event("exit", node="n2", reason="kill")
        again = Event("started", node="n2", incarnation=2)
        down, up = drawn(ended, again)
        assert (down.down, down.up, up.down, up.up) == ("n2", "", "", "n2")


class TestMessages:
    def test_the_lost_record_from_its_producer_to_its_end(self, folder: model.RunFolder) -> None:
        shown = messages.messages(folder)
        assert shown is not None
        assert {"n1", "n2", "n3", "c3", "v1"} <= set(shown.lifelines)
        produced = next(row for row in shown.rows if row.text.startswith("produce:"))
        assert produced.receiver == "n2", "who appended it"
        acked = next(row for row in shown.rows if row.text.startswith("produce-response:"))
        assert (acked.sender, acked.receiver) == ("n2", "c3")
        assert [row.t_us for row in shown.rows] == sorted(row.t_us for row in shown.rows)
        lost = [row for row in shown.rows if row.tone == "lost"]
        assert len(lost) == 9
        assert lost[0].citation == "messages.jsonl:1"

    def test_what_counts_is_kept_however_much_there_is(self) -> None:
        many = [MessageRow(t, "n1", "n2", "fetch-response", "data") for t in range(500)]
        many[3] = MessageRow(3, "n1", "", "cuts its log", "bad", breaks=True)
        kept = messages._kept(many, 400)
        assert len(kept) == messages.MOST_ROWS
        assert kept[0].breaks
        assert {row.t_us for row in kept[1:]} <= set(range(360, 440))

    def test_a_valid_run_has_no_diagram(self, tmp_path: Path) -> None:
        assert messages.messages(model.read(made.storm(tmp_path / "a" / "b", rate=1))) is None


class TestReproduction:
    def test_the_page_says_what_is_needed(self, text: str) -> None:
        for said in (
            "no-lost-acknowledged-write: elected-without",
            "fault 0 (Isolate n2)",
            "fails differently: liveness: no-progress",
            "4 more affected messages were not left out one by one",
            "As drawn: 8 faults",
            "After shrinking: 1 fault",
            "(removed: not needed)",
            "(simplified)",
        ):
            assert said in text, said
        assert text.count("necessary</span>") == 2
        assert text.count("not needed</span>") == 1

    def test_a_fault_that_was_made_simpler_is_the_same_fault(self) -> None:
        drawn = (Kill(on="n1", at_ms=5), Kill(on="n2", at_ms=9), Pause(on="n1", at_ms=7))
        least = (Kill(on="n2", at_ms=9), Pause(on="n1", at_ms=1, for_ms=3))
        assert reproduction._fates(drawn, least) == {0: "removed", 1: "kept", 2: "simpler"}

    def test_a_run_that_was_not_shrunk_says_so(self, tmp_path: Path) -> None:
        page = reports.build(made.storm(tmp_path / "a" / "b", broken=True, rate=1))
        text = page.read_text("utf-8")
        assert "which of its 8 faults the failure needs is not known" in text
        assert (
            "<code>floodmark report store/a/b</code> makes the baseline run in the simulated world"
            in text
        )
        assert '<span class="name">Baseline run</span><span class="value">not run</span>' in text


class TestBaseline:
    @pytest.mark.parametrize(
        ("fails", "holds", "says"),
        [
            ("invalid", "valid", "what differs between the two is to blame"),
            ("invalid", "not-exercised", "too few operations to prove more"),
            ("invalid", "invalid", "look at the harness, the checker"),
            ("valid", "valid", "this pair proves nothing"),
        ],
    )
    def test_a_pair_proves_only_what_it_shows(self, fails: str, holds: str, says: str) -> None:
        pair = kinds.baseline(holds)
        pair["as_it_is"]["verdict"] = fails
        about = Baseline(as_it_is=Side(**pair["as_it_is"]), baseline=Side(**pair["baseline"]))
        assert says in about.says("invalid")

    def test_one_that_could_not_be_run_says_why(self) -> None:
        about = Baseline(problem="the cluster did not come up")
        assert about.says("invalid") == "It could not be made: the cluster did not come up."


class TestRawLines:
    def test_a_sentence_names_its_line(self, folder: model.RunFolder) -> None:
        found = [line for _, line in citations.of_timeline(folder) or ()]
        assert found[1] is None, "a fault is not in a trace"
        for sentence, line in citations.of_timeline(folder) or ():
            if line is not None:
                text = (folder.path / line.file).read_text().splitlines()[line.number - 1]
                event = json.loads(text)
                assert (event["t_us"], event["event"]) == (sentence.t_us, sentence.kind)

    def test_a_witness_names_begin_and_end_of_its_operation(self, folder: model.RunFolder) -> None:
        finding = folder.anomalies[0]
        cited = citations.of_witnesses(folder, [(finding.partition, w) for w in finding.witnesses])
        history = (folder.path / "history.jsonl").read_text().splitlines()
        witness = finding.witnesses[0]
        begin, end = cited[witness]
        assert json.loads(history[begin.number - 1])["type"] == "invoke"
        assert json.loads(history[end.number - 1])["op"] == witness.op

    def test_a_place_in_a_log_is_found(self, folder: model.RunFolder) -> None:
        finding = folder.anomalies[1]
        cited = citations.of_witnesses(folder, [(finding.partition, w) for w in finding.witnesses])
        (line,) = cited[finding.witnesses[1]]
        batch = json.loads((folder.path / line.file).read_text().splitlines()[line.number - 1])
        assert batch["offset"] <= finding.offset < batch["offset"] + batch["count"]


class TestCurves:
    def test_the_unread_at_the_end_are_said(self, folder: model.RunFolder) -> None:
        axis = svg.Axis(made.us(0), made.us(30), made.us(0))
        unseen, lag = curves.panels(folder.curves, folder.notes, axis, ["log-0"])
        assert unseen.note == "records; 80 never read"
        assert [row.label for row in lag.rows] == ["log-0"]
        assert lag.rows[0].scale[0][1] == "6"

    def test_without_tables_it_says_so(self, tmp_path: Path) -> None:
        run = model.read(made.storm(tmp_path / "a" / "b", rate=1))
        axis = svg.Axis(made.us(0), made.us(30), made.us(0))
        assert {x.note for x in curves.panels(run.curves, run.notes, axis, [])} == {
            "The tables of this run folder do not hold it: judge the run again."
        }

    def test_a_damaged_table_costs_only_itself(self, failed: Path, tmp_path: Path) -> None:
        (tmp_path / "tables").mkdir()
        (tmp_path / "tables" / "lag.parquet").write_bytes(b"PAR1 and nothing")
        whole = (failed / "tables" / "unseen.parquet").read_bytes()
        (tmp_path / "tables" / "unseen.parquet").write_bytes(whole)
        notes = Notes()
        found = curves.read(tmp_path, notes)
        assert found.lag is None
        assert found.unseen is not None
        assert "tables/lag.parquet cannot be read" in notes.sentences[0]


class TestPlots:
    def test_the_same_folder_gives_the_same_bytes(self, folder: model.RunFolder) -> None:
        first, again = plots.draw(folder), plots.draw(folder)
        assert [plot.name for plot in first] == ["operations", "replication"]
        assert first == again
        assert all(plot.png.startswith(b"\x89PNG") for plot in first)
        assert all(b"<dc:date>" not in plot.svg for plot in first)

    def test_a_run_without_operations_has_none(self, tmp_path: Path) -> None:
        assert plots.draw(model.read(made.empty(tmp_path / "a" / "b"))) == []


class TestKinds:
    def test_a_hang(self, tmp_path: Path) -> None:
        text = reports.build(kinds.hanging(tmp_path / "a" / "b")).read_text("utf-8")
        assert "acknowledged a write in the 7.5 s after all faults were healed" in text
        assert "recovered from" not in text

    def test_a_crash(self, tmp_path: Path) -> None:
        text = reports.build(kinds.crashed(tmp_path / "a" / "b")).read_text("utf-8")
        assert "n3 ended by itself with code 70" in text
        assert '<a href="output/n3.txt">' in text
        assert '<span class="value">1 crashed</span>' in text

    def test_a_history_of_jepsen(self, tmp_path: Path) -> None:
        text = reports.build(kinds.jepsen(tmp_path / "a")).read_text("utf-8")
        assert "✗" in text.split("</title>")[0]
        assert "floodmark run" not in text, "nothing of ours can run it again"
        assert "floodmark check" in text
