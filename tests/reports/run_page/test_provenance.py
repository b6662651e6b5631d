"""Sections that explain a failure: messages, counterfactuals, baseline run, curves, raw lines."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import reports
from harness.formats.baseline import Baseline, Side
from nemesis.faults import Kill, Pause
from node.formats import trace
from reports import svg
from reports.evidence import citations, model
from reports.messages import messages
from reports.operations import curves
from reports.run_page import head, plots, reproduction
from tests.support import report_fixtures as made
from tests.support.scripts import beside, proving


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.explained(tmp_path_factory.mktemp("store") / "t")


@pytest.fixture(scope="module")
def folder(failed: Path) -> model.RunFolder:
    return model.read(failed)


test_script = proving(beside(__file__))


class TestMessages:
    def test_the_lost_record_is_drawn_from_its_producer_to_its_end(
        self, folder: model.RunFolder
    ) -> None:
        shown = messages.messages(folder)
        assert shown is not None
        assert shown.lifelines == ("c1", "c2", "c3", "n1", "n2", "n3", "v1")
        first, *_ = (row for row in shown.rows if row.text.startswith("produce:"))
        acked, *_ = (row for row in shown.rows if row.text.startswith("produce-response:"))
        assert (first.sender, first.receiver) == ("c1", "n1"), "n1 appended it"
        assert (acked.sender, acked.receiver) == ("n1", "c1")
        assert [row.t_us for row in shown.rows] == sorted(row.t_us for row in shown.rows)
        lost = [row for row in shown.rows if row.tone == "lost"]
        assert (len(lost), lost[0].citation) == (13, "messages.jsonl:1")
        (broke,) = (row for row in shown.rows if row.breaks)
        assert (broke.sender, broke.tone) == ("n1", "bad")

    def test_a_valid_run_has_no_diagram(self, tmp_path: Path) -> None:
        assert messages.messages(model.read(made.storm(tmp_path / "a" / "b"))) is None

    def test_a_long_diagram_keeps_the_violation_and_the_nearest_rows(self, tmp_path: Path) -> None:
        run = made.explained(tmp_path / "a")
        file = run / "trace" / "n3.jsonl"
        role = {"node": "n3", "incarnation": 1, "event": "role", "partition": "log-0"}
        role |= {"role": "follower", "leader": "n1", "leader_epoch": 1, "leo": 1, "hw": 0}
        added = [{"t_us": 1_100_000 + i * 1_000, **role, "leo": i} for i in range(500)]
        made.write_lines(file, [*map(json.loads, file.read_text().splitlines()), *added])
        folder = model.read(run)
        shown = messages.messages(folder)
        assert shown is not None
        assert len(shown.rows) == messages.MOST_ROWS
        assert any(row.breaks for row in shown.rows)
        assert len([row for row in shown.rows if row.tone == "client"]) == len(client_rows(folder))
        centre = next(step.t_us for step in folder.steps if step.rule or step.breaks)
        own = [row.t_us for row in shown.rows if row.tone == "own"]
        assert len(own) > 30
        assert all(abs(t_us - centre) < 50_000 for t_us in own)

    def test_an_offset_in_two_windows_is_drawn_once(self, lost: model.RunFolder) -> None:
        once = client_rows(lost)
        assert once
        assert client_rows(replace(lost, windows=lost.windows + lost.windows)) == once

    def test_client_operations_at_the_offset_are_drawn_at_any_distance(
        self, lost: model.RunFolder
    ) -> None:
        assert lost.result is not None
        late = tuple(
            msgspec.structs.replace(each, t_us=each.t_us + 60_000_000) if each.t_us >= 0 else each
            for each in lost.result.anomalies
        )
        result = msgspec.structs.replace(lost.result, anomalies=late)
        assert client_rows(replace(lost, result=result)) == client_rows(lost)


@pytest.fixture(scope="module")
def lost(folder: model.RunFolder) -> model.RunFolder:
    """Return a run that lost records, without a story, like a run of another system."""
    return replace(folder, story=None, provenance=None)


def client_rows(folder: model.RunFolder) -> list[tuple[int, str]]:
    """Return the client operations of the diagram, with their times."""
    found = messages.messages(folder)
    assert found is not None
    return [(row.t_us, row.text) for row in found.rows if row.tone == "client"]


class TestReproduction:
    def test_a_finding_shows_what_its_failure_needs(self, folder: model.RunFolder) -> None:
        shown = reproduction.reproduction(folder)
        assert shown is not None
        explained = json.loads((folder.path / "finding" / "explain.json").read_text())
        changes = explained["counterfactuals"]
        text = reports.build(folder.path).read_text("utf-8")
        assert explained["bucket"] in text
        assert "fault 0 (Cut n1 from the rest" in text
        assert text.count("necessary</span>") == sum(not each["fails"] for each in changes) == 3
        assert text.count("not needed</span>") == sum(each["fails"] for each in changes) == 10
        for words in ("As drawn: 3 faults", "After shrinking: 1 fault", "(removed: not needed)"):
            assert words in text
        assert text.count("(simplified)") == 1, "the cut was longer"

    def test_another_failure_and_messages_without_a_run_are_named(self, tmp_path: Path) -> None:
        run = made.explained(tmp_path / "a")
        file = run / "finding" / "explain.json"
        changes = json.loads(file.read_text())["counterfactuals"]
        changes[0]["instead"] = "liveness: no-progress"
        made.edit(file, counterfactuals=changes, untried=4)
        text = reports.build(run).read_text("utf-8")
        assert "fails differently: liveness: no-progress" in text
        assert "4 more affected messages were not left out one by one" in text

    def test_an_equal_fault_is_kept_and_a_simpler_one_simplified(self, tmp_path: Path) -> None:
        run = made.explained(tmp_path / "a")
        drawn = (Kill(on="n1", at_ms=5), Kill(on="n2", at_ms=9), Pause(on="n1", at_ms=7))
        least = (Kill(on="n2", at_ms=9), Pause(on="n1", at_ms=1, for_ms=3))
        for name, faults in (("drawn", drawn), ("schedule", least)):
            plan = msgspec.structs.replace(made.LEAST, faults=faults)
            (run / "finding" / f"{name}.json").write_bytes(plan.to_json())
        shown = reproduction.reproduction(model.read(run))
        assert shown is not None
        fates = {words.partition(" at ")[0]: cell.fate for cell, words in shown[0].words}
        assert fates == {"Kill n1": "removed", "Kill n2": "kept", "Pause n1": "simpler"}


class TestBaseline:
    @pytest.mark.parametrize(
        ("fails", "holds", "says"),
        [
            ("invalid", "valid", "is to blame"),
            ("invalid", "not-exercised", "too short to prove more"),
            ("invalid", "invalid", "look at the harness, the checker"),
            ("valid", "valid", "this pair proves nothing"),
        ],
    )
    def test_a_pair_proves_only_what_it_shows(self, fails: str, holds: str, says: str) -> None:
        broken = (made.LOST,) if holds == "invalid" else ()
        as_it_is = Side(protocol="kafka", verdict=fails, sentence="lost.", broken=(made.LOST,))
        other = Side(protocol="kafka", verdict=holds, sentence="held.", broken=broken)
        assert says in Baseline(as_it_is=as_it_is, baseline=other).says("invalid")

    @pytest.mark.parametrize(
        ("broken", "tone"), [((), "good"), (("no-lost-acknowledged-write",), "unsure")]
    )
    def test_a_baseline_that_holds_is_a_good_sign(
        self, folder: model.RunFolder, broken: tuple[str, ...], tone: str
    ) -> None:
        pair = folder.baseline
        assert pair is not None
        assert pair.baseline is not None
        other = msgspec.structs.replace(pair.baseline, broken=broken)
        shown = head.badges(replace(folder, baseline=msgspec.structs.replace(pair, baseline=other)))
        assert [badge.tone for badge in shown if badge.name == "Baseline run"] == [tone]

    def test_a_baseline_that_could_not_be_run_says_why(self) -> None:
        about = Baseline(problem="the cluster did not come up")
        assert "the cluster did not come up" in about.says("invalid")


class TestRawLines:
    def test_a_sentence_names_its_line(self, folder: model.RunFolder) -> None:
        cited = citations.of_story(folder)
        assert cited
        for sentence, line in cited:
            traced = sentence.kind in trace.FIELDS
            assert (line is not None) == traced, "faults and reads are in no trace"
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

    def test_a_place_in_a_log_is_found(self, tmp_path: Path) -> None:
        run = model.read(made.diverged(tmp_path / "a"))
        (finding,) = (a for a in run.anomalies if a.name == "divergence")
        cited = citations.of_witnesses(run, [(finding.partition, w) for w in finding.witnesses])
        held = [w for w in finding.witnesses if w.node and w.op < 0 and w.offset >= 0]
        assert held
        for witness in held:
            (line, *_) = cited[witness]
            text = (run.path / line.file).read_text().splitlines()[line.number - 1]
            batch = json.loads(text)
            assert batch["node"] == witness.node


class TestCurves:
    def test_lag_and_unread_records_are_those_of_the_tables(self, tmp_path: Path) -> None:
        run = model.read(made.storm(tmp_path / "a" / "b"))
        assert run.lag is not None
        axis = svg.Axis(made.us(0), run.last_us, made.us(0))
        unseen, lag = curves.panels(run, axis, ["log-0"])
        assert unseen.note == "records; all had been read by the end"
        assert [row.label for row in lag.rows] == ["log-0", "log-1"]
        table = pq.read_table(run.path / "tables" / "lag.parquet").to_pylist()
        most = max(row["highest"] for row in table if row["partition"] == "log-0")
        assert lag.rows[0].scale[0][1] == str(most)

    def test_records_never_read_are_counted(self, tmp_path: Path) -> None:
        run = made.storm(tmp_path / "a" / "b")
        file = run / "tables" / "unseen.parquet"
        table = pq.read_table(file)
        column = pa.array([80] * len(table), table.schema.field("unseen").type)
        place = table.schema.get_field_index("unseen")
        pq.write_table(table.set_column(place, "unseen", column), file)
        read = model.read(run)
        axis = svg.Axis(made.us(0), read.last_us, made.us(0))
        assert curves.panels(read, axis, [])[0].note == "records; 80 never read"

    def test_without_tables_the_panels_say_how_to_make_them(self, tmp_path: Path) -> None:
        run = model.read(made.storm(tmp_path / "a" / "b", judged=False))
        axis = svg.Axis(made.us(0), made.us(9), made.us(0))
        for panel in curves.panels(run, axis, []):
            assert "judge the run again" in panel.note


class TestPlots:
    def test_the_same_folder_gives_the_same_bytes(self, folder: model.RunFolder) -> None:
        first, again = plots.draw(folder), plots.draw(folder)
        assert [plot.name for plot in first] == ["operations", "replication"]
        assert first == again
        assert all(plot.png.startswith(b"\x89PNG") for plot in first)
        assert all(b"<dc:date>" not in plot.svg for plot in first)

    def test_a_run_without_operations_has_none(self, tmp_path: Path) -> None:
        assert plots.draw(model.read(made.empty(tmp_path / "a" / "b"))) == []
