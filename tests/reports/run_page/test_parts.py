"""The parts of the page: scales, paths, fault intervals, cluster timeline, offset grid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.formats.history import Op, Read, RecordRun, Send, encode
from harness.formats.problem import Exit
from nemesis import faults as kinds
from nemesis.formats.fault_log import FaultLine
from reports import svg, wording
from reports.evidence import faults, leaders, model, operations
from reports.evidence.files import Notes
from reports.evidence.replicas import Head
from reports.evidence.tables import RunTables
from reports.evidence.traces import Traces, of_probes
from reports.log import grid
from reports.run_page import time_view
from tests.support import report_fixtures as made


def ints(*values: int) -> svg.Ints:
    return np.array(values, dtype=np.int64)


class TestDrawing:
    def test_axis_clips_and_labels_from_storm_start(self) -> None:
        axis = svg.Axis(1_000_000, 3_000_000, 2_000_000)
        assert axis.fraction(2_000_000) == 0.5
        assert axis.fraction(0) == 0
        assert axis.units(ints(0, 2_000_000, 9_000_000)).tolist() == [0, 5_000, 10_000]
        assert axis.label(2_500_000) == "0.500 s"
        assert axis.covers(3_500_000, 3_600_000) is False
        assert axis.covers(0, 9_000_000)

    @pytest.mark.parametrize(
        ("seconds", "first", "last"),
        [(30, "0", "30"), (0.8, "0.0", "0.8"), (4e-3, "0.0000", "0.0040"), (86_400, "0", "80,000")],
    )
    def test_ticks_are_round(self, seconds: float, first: str, last: str) -> None:
        ticks = svg.Axis(0, int(seconds * 1e6), 0).ticks()
        assert (ticks[0].label, ticks[-1].label) == (first, last)
        assert 4 <= len(ticks) <= 12
        assert [t.at for t in ticks] == sorted(t.at for t in ticks)

    def test_merge_joins_what_touches(self) -> None:
        low, high = svg.merge(ints(0, 5, 20, 22), ints(9, 8, 21, 30), 2)
        assert (low.tolist(), high.tolist()) == ([0, 20], [9, 30])

    def test_packed_spans_never_overlap_in_a_lane(self) -> None:
        spans = [(0, 10), (2, 4), (4, 6), (10, 12), (3, 11)]
        lanes = svg.pack(spans, lambda span: span)
        assert lanes == [[(0, 10), (10, 12)], [(2, 4), (4, 6)], [(3, 11)]]


class TestWords:
    def test_a_span_of_time_has_three_digits(self) -> None:
        table = """0: 0 µs, 999: 999 µs, 1500: 1.5 ms, 312400: 312 ms, 999900: 1.00 s,
            3214000: 3.21 s, 33400000: 33.4 s, 125000000: 2 min 5 s, 9000000000: 2 h 30 min"""
        cells = [cell.strip().split(": ") for cell in table.split(",")]
        assert [wording.span(int(us)) for us, _ in cells] == [text for _, text in cells]

    @pytest.mark.parametrize(
        ("text", "sentence"),
        [
            ("unknown: the disk is full.", "The disk is full."),
            ("invalid: n1 has it.", "n1 has it."),
            ("invalid: log-0 lost it.", "log-0 lost it."),
            ("unknown: history.jsonl ends.", "history.jsonl ends."),
            ("unknown: logs/n1.jsonl is missing.", "logs/n1.jsonl is missing."),
        ],
    )
    def test_a_sentence_begins_with_a_capital_or_a_name(self, text: str, sentence: str) -> None:
        assert wording.bare(text) == sentence
        assert wording.bare("invalid: orders lost it.", ["orders"]) == "orders lost it."

    @pytest.mark.parametrize(
        ("command", "folder"),
        [
            ("floodmark run --schedule 'my store/a/b' --x", "my store/a/b"),
            ("floodmark run 'unclosed", "store/a/b"),
            ("", "store/a/b"),
        ],
    )
    def test_a_replay_command_names_its_folder(self, command: str, folder: str) -> None:
        assert wording.folder_of(command, "a/b") == folder


def line(fault: int, action: Any, t_us: int, **fields: Any) -> FaultLine:
    return FaultLine(fault=fault, action=action, t_us=t_us, **({"what": ""} | fields))


class TestFaults:
    def test_a_kill_ends_when_its_victim_is_up_again(self) -> None:
        lines = [line(0, "inject", 10, what="kill", nodes=("n1", "n2")), line(0, "heal", 30)]
        (kill,) = faults.join(lines, (), {"n1": [1, 35], "n2": [1, 50]}, 99)
        assert (kill.start_us, kill.end_us, kill.healed) == (10, 50, True)

    def test_the_final_heal_ends_what_is_open(self) -> None:
        lines = [line(0, "inject", 10, what="pause"), line(-1, "heal", 40)]
        (pause,) = faults.join(lines, (), {}, 99)
        assert (pause.end_us, pause.healed) == (40, True)

    def test_a_fault_without_heal_lasts_to_the_end(self) -> None:
        (cut,) = faults.join([line(0, "inject", 10, what="cut")], (), {}, 99)
        assert (cut.end_us, cut.healed) == (99, False)
        assert "never undone" in cut.times(0)

    def test_a_link_fault_without_messages_took_no_effect(self) -> None:
        lines = [line(0, "inject", 1, what="loss"), line(0, "effect", 5, dropped=0)]
        (loss,) = faults.join(lines, (), {}, 9)
        assert (loss.status, loss.took_effect) == ("done", False)

    def test_a_breakpoint_counts_the_processes_that_came_to_it(self) -> None:
        lines = [line(0, "inject", 1, what="break", nodes=("n1", "n2")), line(0, "heal", 5)]
        (unmet,) = faults.join([*lines, line(0, "effect", 5, stopped=0)], (), {}, 9)
        assert (unmet.took_effect, unmet.effect()) == (False, "No process came to it.")
        (met,) = faults.join([*lines, line(0, "effect", 5, stopped=2)], (), {}, 9)
        assert (met.took_effect, met.effect()) == (True, "2 processes stopped there.")

    def test_faults_without_injection_are_skipped_missed_or_waiting(self) -> None:
        asked = (kinds.Kill(on="n1", at_ms=1), kinds.Kill(on="n1", at_ms=2), kinds.Ring(at_ms=3))
        lines = [line(0, "skipped", 5), line(1, "missed", 6, detail="no such event")]
        states = faults.join(lines, asked, {}, 9)
        assert [f.status for f in states] == ["skipped", "missed", "waiting"]
        assert [f.what for f in states] == ["kill", "kill", "ring"]
        assert states[1].effect() == "Missed: no such event."

    def test_a_fault_that_was_refused_or_hit_a_node_that_was_stopped_is_named(self) -> None:
        def fault(what: str, start_us: int, end_us: int, *nodes: str) -> faults.Executed:
            return faults.Executed(0, what, "done", "", start_us, end_us, nodes)

        pause, late = fault("pause", 1, 9, "n3"), fault("power-cut", 4, 6, "n2", "n3")
        refused = faults.Executed(2, "kill", "skipped", detail="n1 is down already")
        assert faults.in_vain([pause, late]) == ["power-cut hit n3 during a pause"]
        assert faults.in_vain([refused]) == ["kill skipped: n1 is down already"]
        after, other = fault("kill", 10, 12, "n3"), fault("kill", 2, 3, "n1")
        assert faults.in_vain([pause, after, other, fault("delay", 2, 3, "n3")]) == []


LEADS: dict[str, Any] = {"partition": "p", "role": "leader"}


class TestCluster:
    def events(self, tmp_path: Path, lines: list[dict[str, Any]]) -> leaders.ClusterTimeline:
        made.write_lines(tmp_path / "trace" / "n1.jsonl", lines)
        ended = Exit(node="n1", t_us=50, code=-9, by="kill", expected=True, incarnation=1)
        rows = RunTables(tmp_path, Notes()).table("trace")
        return leaders.read(Traces(rows, (ended,)), 100)

    def test_a_dead_process_leads_nothing(self, tmp_path: Path) -> None:
        lines: list[dict[str, Any]] = [
            {"incarnation": 1, "event": "started", "t_us": 1},
            {"incarnation": 1, "event": "role", "t_us": 10, **LEADS, "leader_epoch": 4},
            {"incarnation": 2, "event": "started", "t_us": 70},
        ]
        timeline = self.events(tmp_path, [{"node": "n1", **x} for x in lines])
        assert timeline.partitions["p"].roles == [leaders.RoleSpan("n1", "leader", 4, 10, 50)]
        assert [(up.start_us, up.end_us) for up in timeline.processes] == [(1, 50), (70, 100)]
        assert timeline.starts() == {"n1": [1, 70]}

    def test_answers_to_probes_stand_for_traces(self, tmp_path: Path) -> None:
        said = [("n1", 10, "role"), ("n2", 20, "partition"), ("n2", 60, "role")]
        lines = [{**LEADS, "node": n, "t_us": t, "event": event} for n, t, event in said]
        made.write_lines(tmp_path / "probes.jsonl", lines)
        probed = of_probes(tmp_path, (Exit(node="n1", t_us=50, incarnation=0),), Notes())
        led = leaders.read(probed, 100).partitions["p"].roles
        assert [(x.start_us, x.end_us) for x in led] == [(10, 50), (60, 100)]
        assert [str(line) for _, line in probed.at([("n2", 60)])["n2", 60]] == ["probes.jsonl:3"]

    def test_a_commit_in_the_traces_of_two_voters_counts_once(self, tmp_path: Path) -> None:
        head = {"event": "partition", "partition": "p", "leader": None, "leader_epoch": 1}
        lines = [
            {**head, "t_us": t, "node": node, "partition_epoch": e, "isr": isr}
            for t, node, e, isr in (
                (1, "v1", 0, ["n1", "n2"]),
                (2, "v2", 0, ["n1", "n2"]),
                (9, "v2", 1, ["n1"]),
                (10, "v1", 1, ["n1"]),
            )
        ]
        timeline = self.events(tmp_path, lines)
        assert [(x.isr, x.start_us, x.end_us) for x in timeline.partitions["p"].in_sync] == [
            (("n1", "n2"), 1, 9),
            (("n1",), 9, 100),
        ]

    def test_a_long_series_is_downsampled_and_keeps_its_last_point(self, tmp_path: Path) -> None:
        head = {"event": "hw", "node": "n1", **LEADS}
        lines = [{**head, "t_us": i * 10, "hw": i} for i in range(20_000)]
        hw = self.events(tmp_path, lines).partitions["p"].hw
        assert len(hw) <= leaders.MOST_POINTS + 1
        assert hw[-1][1] == 19_999


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> model.RunFolder:
    return model.read(made.storm(tmp_path_factory.mktemp("a") / "b", broken=True))


class TestGrid:
    def test_marks_the_replica_that_holds_other_records(self, tmp_path: Path) -> None:
        folder = model.read(made.diverged(tmp_path / "a"))
        (shown,) = grid.grids(folder)
        rows = {row.label: row.cells for row in shown.lines}
        assert list(rows) == ["acked", "n1", "n2", "read", "final"]
        at = folder.anomalies[0].offset - shown.offsets[0]
        assert at == model.GRID_BEFORE
        bad = [name for name, cells in rows.items() if "bad" in cells[at].classes]
        assert bad == ["acked", "n2", "final"]
        assert not any("bad" in cells[at - 1].classes for cells in rows.values())
        assert [cells[at].text for cells in rows.values()] == ["1:10 2:0", "1:10", "2:0", "", "2:0"]
        assert rows["n2"][at].title.endswith("; expected value 1:10")
        assert [x.head.node for x in shown.lineage if x.differs] == ["n2"]

    @pytest.mark.parametrize(
        ("of_n2", "leo_of_n2", "differing"),
        [
            (((1, 0), (2, 5), (4, 9)), 9, []),
            (((1, 0), (2, 5)), 7, []),
            (((1, 0), (2, 6)), 9, ["n2"]),
            (((1, 0), (3, 5)), 9, ["n2"]),
        ],
        ids=["epoch without a record", "shorter", "other start", "other epoch"],
    )
    def test_a_replica_differs_by_epochs_at_offsets_that_all_have(
        self, of_n2: tuple[tuple[int, int], ...], leo_of_n2: int, differing: list[str]
    ) -> None:
        others = [Head(n, "log-0", leo=9, hw=9, epochs=((1, 0), (2, 5))) for n in ("n1", "n3")]
        heads = [*others, Head("n2", "log-0", leo=leo_of_n2, hw=7, epochs=of_n2)]
        assert [one.head.node for one in grid.lineage(heads) if one.differs] == differing

    def test_a_lost_tail_is_marked_at_its_first_offset(self, tmp_path: Path) -> None:
        folder = made.storm(tmp_path / "a" / "b")
        for node in made.BROKERS:
            file = folder / "logs" / f"{node}.jsonl"
            lines = [json.loads(x) for x in file.read_text().splitlines()]
            kept = max(x["offset"] for x in lines if x["partition"] == "log-0" and x["count"])
            for x in lines:
                if x["partition"] == "log-0" and not x["count"]:
                    x.update(leo=kept, hw=kept)
            made.write_lines(
                file, [x for x in lines if x["partition"] != "log-0" or x["offset"] < kept]
            )
        found = {"property": made.LOST, "name": "tail-lost", "partition": "log-0", "offset": kept}
        made.edit(folder / "results.json", anomalies=[found])
        (shown,) = grid.grids(model.read(folder))
        rows = {row.label: row for row in shown.lines}
        at = kept - shown.offsets[0]
        assert [rows["acked"].cells[at + i].classes for i in (-1, 0)] == ["acked", "acked bad"]
        assert rows["n1"].cells[at].classes == "lacks"

    def test_a_window_between_sparse_offsets_has_no_grid(self, tmp_path: Path) -> None:
        folder = made.storm(tmp_path / "a" / "b")
        found = {"property": made.LOST, "name": "lost", "partition": "log-0"}
        made.edit(folder / "results.json", anomalies=[found | {"offset": at} for at in (3, 10**18)])
        (shown,) = grid.grids(model.read(folder))
        assert 3 in shown.offsets

    def test_a_long_value_shows_its_last_digits(self, tmp_path: Path) -> None:
        folder = made.diverged(tmp_path / "a")
        logs = [{"node": "n1", "partition": "log-0", "offset": 0, "count": 0, "leo": 2, "hw": 2}]
        logs += [
            {"node": "n1", "partition": "log-0", "offset": i, "count": 1, "epoch": 1}
            | {"records": [[i, value, 1, 1]]}
            for i, value in enumerate((10**11, 10**14 + 13))
        ]
        made.write_lines(folder / "logs" / "n1.jsonl", logs)
        (folder / "history.jsonl").write_bytes(b"")
        found = {"property": made.LOST, "name": "lost", "partition": "log-0", "offset": 0}
        made.edit(folder / "results.json", anomalies=[found])
        (shown,) = grid.grids(model.read(folder))
        row = next(row for row in shown.lines if row.label == "n1")
        assert [cell.text for cell in row.cells[:2]] == ["…00000", "…00013"]


class TestTime:
    def test_close_up_is_around_the_finding(self, broken: model.RunFolder) -> None:
        close, whole = time_view.views(broken)
        found = broken.anomalies[0]
        assert close.axis.start_us < min(w.t_us for w in found.witnesses)
        assert close.axis.end_us > found.t_us
        assert close.axis.length_us < 4_000_000
        assert (whole.axis.start_us, whole.axis.end_us) > (0, broken.last_us)

    def test_late_failed_operations_are_drawn_however_many_came_before(
        self, tmp_path: Path
    ) -> None:
        folder = made.many(tmp_path / "a" / "b", 8_000, clients=4)
        extra = {"op": 99_999, "process": 1, "client": "c1", "f": "send"}
        extra |= {"sends": [{"partition": "log-0", "value": 9_999_999}]}
        with (folder / "history.jsonl").open("a") as file:
            file.write(json.dumps({**extra, "t_us": made.us(11), "type": "invoke"}) + "\n")
            done = {"t_us": made.us(11.5), "type": "info", "error": "the very last"}
            file.write(json.dumps({**extra, **done}) + "\n")
        (whole,) = time_view.views(model.read(folder))
        by_client = next(x for x in whole.panels if x.title == "Operations by client")
        assert any("the very last" in row.body for row in by_client.rows)

    def test_a_history_is_sampled(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(operations, "MOST_OPERATIONS", 100)
        run = model.read(made.storm(tmp_path / "a" / "b"))
        assert (run.operations.every, 70 <= len(run.operations) <= 100) == (4, True)

    def test_gaps_without_acknowledgement_by_partition_and_together(
        self, broken: model.RunFolder
    ) -> None:
        found = broken.gaps
        assert set(found) == {"", "log-0", "log-1"}
        assert all(found[""].length_us <= gap.length_us for gap in found.values())
        assert found["log-0"].length_us > found[""].length_us > 1_500_000


def test_a_transaction_that_only_read_is_no_write(tmp_path: Path) -> None:
    """Read alone it is a poll; with one send it is a write, whatever else it read."""
    read = Read(partition="p", records=(RecordRun(offset=0, value=7, count=2),))
    send = Send(partition="p", value=9, offset=2)
    lines = [
        Op(op=0, t_us=1, process=1, client="c", type="invoke", f="txn"),
        Op(op=0, t_us=2, process=1, client="c", type="ok", f="txn", reads=(read,)),
        Op(op=1, t_us=3, process=1, client="c", type="invoke", f="txn", sends=(send,)),
        Op(op=1, t_us=4, process=1, client="c", type="ok", f="txn", sends=(send,), reads=(read,)),
    ]
    (tmp_path / "history.jsonl").write_bytes(b"".join(map(encode, lines)))
    found = operations.read(RunTables(tmp_path, Notes()))
    assert found.acked.tolist() == [False, True]
    assert [found.kinds[kind] for kind in found.kind] == ["poll", "txn"]
    assert found.count.tolist() == [2, 1]


def test_a_rate_has_the_range_of_wilson() -> None:
    assert wording.rate(0, 0) == "0 of 0"
    assert wording.rate(0, 10) == "0 of 10 (95 %: 0 to 28 %)"
    assert wording.rate(3, 10) == "3 of 10 (95 %: 11 to 60 %)"
    assert wording.rate(10, 10) == "10 of 10 (95 %: 72 to 100 %)"
    assert wording.rate(50, 100) == "50 of 100 (95 %: 40 to 60 %)"
