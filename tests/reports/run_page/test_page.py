"""The page and the summary: every kind of run renders, says the truth and stays small."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import reports
from node.formats.errors import FloodmarkError, StorageError
from node.formats.event_text import EXIT
from reports.run_page import sections
from reports.run_page.citations import trace_events
from reports.run_page.model import read
from reports.run_page.sections import SECTIONS, Section
from tests.support import report_fixtures as made

FETCHED = ("src", "srcset", "action", "poster", "data", "xlink:href")


class Page(HTMLParser):
    """A page taken apart: its text by element id, its tags, ids and links."""

    VOID = frozenset({"meta", "link", "br", "path", "input"})

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.source = file.read_text("utf-8")
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()
        self.loads: list[str] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(self.source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {key: value or "" for key, value in attrs}
        self.tags.add(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        if "id" in values:
            self.ids.append(values["id"])
        if tag == "a":
            self.links.append(values["href"])
        if tag == "link":
            self.loads.append(values["href"])
        self.loads += [values[key] for key in FETCHED if key in values]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self.open):
            self.words.append(data)

    @property
    def text(self) -> str:
        """All visible text, white space made single."""
        return " ".join(" ".join(self.words).split())


def page(folder: Path) -> Page:
    return Page(reports.build(folder))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One folder of each kind of run."""
    root = tmp_path_factory.mktemp("store")
    return {
        "valid": made.storm(root / "calm" / "20260101T120000"),
        "invalid": made.storm(root / "unclean" / "20260101T121500", broken=True),
        "empty": made.empty(root / "empty" / "20260101T123000"),
        "killed": made.killed(root / "killed" / "20260101T124500"),
    }


@pytest.fixture(scope="module")
def pages(runs: dict[str, Path]) -> dict[str, Page]:
    return {kind: page(folder) for kind, folder in runs.items()}


def edit(file: Path, **changes: Any) -> None:
    """Change fields of a JSON file."""
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@pytest.mark.parametrize("kind", ["valid", "invalid", "empty", "killed"])
class TestEveryPage:
    def test_loads_nothing(self, pages: dict[str, Page], kind: str) -> None:
        shown = pages[kind]
        assert shown.loads == ["data:,"]
        assert "@import" not in shown.source
        assert not re.search(r"url\((?!#)", shown.source)
        assert "default-src 'none'" in shown.source
        assert not {"img", "iframe", "object", "embed"} & shown.tags
        assert not re.search(r"""(?:href|src)=["']?(?:https?:)?//""", shown.source)

    def test_is_well_formed_with_unique_ids_and_no_dead_anchor(
        self, pages: dict[str, Page], runs: dict[str, Path], kind: str
    ) -> None:
        shown = pages[kind]
        assert shown.open == []
        assert len(shown.ids) == len(set(shown.ids))
        for link in shown.links:
            if link.startswith("#"):
                assert link[1:] in shown.ids, link
            else:
                assert (runs[kind] / link).is_file(), link

    def test_names_the_run_and_how_to_run_it_again(
        self, pages: dict[str, Page], runs: dict[str, Path], kind: str
    ) -> None:
        name = f"{runs[kind].parent.name}/{runs[kind].name}"
        text = pages[kind].text
        assert name in text
        assert f"floodmark run --schedule store/{name}" in text
        assert f"floodmark check store/{name}" in text

    def test_leaves_nothing_beside_itself(self, runs: dict[str, Path], kind: str) -> None:
        reports.build(runs[kind])
        assert [file.name for file in runs[kind].glob("*report.html*")] == ["report.html"]
        assert not list(runs[kind].glob(".report*"))


class TestWhatItSays:
    def test_valid(self, pages: dict[str, Page]) -> None:
        text = pages["valid"].text
        assert "✓ valid" in text
        assert "Nothing acknowledged was lost" in text
        assert "The checker found nothing to report." in text
        assert "6 of 8" in text
        assert "1 skipped, 1 affected no message" in text
        assert "All replicas agree in this window" in text
        assert "Nothing: every file was read to its end" in text

    def test_invalid(self, pages: dict[str, Page]) -> None:
        text = pages["invalid"].text
        assert "✗ invalid" in text
        assert "log-0 lost 15 acknowledged records" in text
        assert "election-outside-isr" in text
        assert "Close-up of the first finding" in text
        assert "The outlined cells disagree at 15 offsets" in text
        assert "≠ the others" in text
        assert "Allowed: no progress is owed below min.insync.replicas." in text
        assert text.index("lost log-0") < text.index("divergence log-0") < text.index("no-progress")

    def test_the_timeline_is_shown(self, tmp_path: Path) -> None:
        run = made.storm(tmp_path / "a" / "b", broken=True)
        step = {
            "t_us": made.us(4.2),
            "text": "n1 truncates its log.",
            "kind": "truncated",
            "node": "n1",
            "breaks": "cut:own-high-watermark",
        }
        made.write_json(
            run / "timeline.json",
            {
                "about": "lost",
                "property": "no-lost-acknowledged-write",
                "partition": "log-0",
                "offset": 7,
                "sentences": [step],
            },
        )
        page = reports.build(run).read_text("utf-8")
        assert "What happened to offset 7 of log-0" in page
        assert '<li class="broke"><span class="when">4.200</span>' in page

    def test_witnesses_lead_to_the_time_view(self, pages: dict[str, Page]) -> None:
        operations = [link for link in pages["invalid"].links if link.startswith("#op-")]
        assert len(operations) == 3

    def test_empty(self, pages: dict[str, Page]) -> None:
        text = pages["empty"].text
        assert "? unknown" in text
        assert "the run finished with no operation and was not judged" in text
        assert "n2 could not be started: its port was taken" in text
        assert "The run recorded no operation, no fault and no trace" in text
        assert "This run was not judged" in text

    def test_killed(self, pages: dict[str, Page]) -> None:
        text = pages["killed"].text
        assert "the harness ended while the run was going on" in text
        assert "history.jsonl ends in a half line" in text
        assert "No replica logs were collected" in text
        assert "6 not reached" in text

    def test_faults_are_told_as_they_were_done(self, pages: dict[str, Page]) -> None:
        text = pages["valid"].text
        assert "Kill the leader of log-0 at 4.200 s, for 3.00 s: hit n1, 4.213 s to 7.240 s" in text
        assert "hit n2 ⇄ n1, n3, v1" in text
        assert "Skipped: no follower lagged." in text
        assert "No message was affected." in text

    @pytest.mark.parametrize(
        ("state", "sentence"),
        [
            ("interrupted", "the run was interrupted; it left 1,"),
            ("running", "killed, or still running"),
            ("", "does not say how far the run came"),
        ],
    )
    def test_unjudged(self, tmp_path: Path, state: str, sentence: str) -> None:
        folder = made.storm(tmp_path / "a" / "b", judged=False, rate=1)
        edit(folder / "run.json", state=state)
        assert sentence in page(folder).text

    def test_not_exercised(self, tmp_path: Path) -> None:
        folder = made.storm(tmp_path / "a" / "b", rate=1)
        why = {"property": "exercise", "verdict": "not-exercised", "reason": "two acks in all"}
        edit(folder / "results.json", verdict="not-exercised", sentence="", properties=[why])
        shown = page(folder)
        assert "○ not-exercised" in shown.text
        assert "The run proves nothing: its faults or its clients did too little." in shown.text
        assert "Exercised no two acks in all" in shown.text

    def test_a_process_that_died_unasked(self, tmp_path: Path) -> None:
        folder = made.storm(tmp_path / "a" / "b", rate=1)
        line = {"node": "n3", "incarnation": 1, "t_us": made.us(3), "code": 70, "by": "itself"}
        made.write_lines(folder / "exits.jsonl", [{**line, "expected": False}])
        shown = page(folder)
        assert "1 crashed Unexplained exits of n3." in shown.text
        assert "n3 exited by itself at 3.000 s, code 70" in shown.source


class TestDamage:
    @pytest.mark.parametrize(
        "lost",
        ["run.json", "schedule.json", "results.json", "history.jsonl", "faults.jsonl", "trace"],
    )
    def test_a_missing_file_costs_only_itself(self, tmp_path: Path, lost: str) -> None:
        folder = made.storm(tmp_path / "a" / "b", broken=True, rate=1)
        target = folder / lost
        if target.is_dir():
            for file in target.iterdir():
                file.unlink()
        else:
            target.unlink()
        text = page(folder).text
        assert "a/b" in text
        assert ("✗ invalid" in text) == (lost != "results.json")

    @pytest.mark.parametrize("parted", [False, True])
    def test_a_history_in_tables_is_said_where_its_drawings_would_be(
        self, tmp_path: Path, parted: bool
    ) -> None:
        folder = made.storm(tmp_path / "a" / "b", broken=True, rate=1)
        (folder / "history.jsonl").unlink()
        kept = folder / "tables" / ("ops" if parted else "ops.parquet")
        kept.parent.mkdir(exist_ok=True)
        kept.mkdir() if parted else kept.write_bytes(b"")
        text = page(folder).text
        assert "✗ invalid" in text
        assert "Not drawn: the history is kept as tables only." in text
        assert "its operations are not drawn here" in text
        for claim in ("history.jsonl is missing", "No write was", "No operation was recorded"):
            assert claim not in text

    @pytest.mark.parametrize("name", ["run.json", "schedule.json", "results.json"])
    @pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"run": 3}', b"\xff\xfe"])
    def test_a_broken_json_file_is_said(self, tmp_path: Path, name: str, content: bytes) -> None:
        folder = made.storm(tmp_path / "a" / "b", rate=1)
        (folder / name).write_bytes(content)
        text = page(folder).text
        assert name in text[text.index("What this page leaves out") :]
        assert ("✓ valid" in text) == (name != "results.json")

    def test_bad_lines_are_counted(self, tmp_path: Path) -> None:
        folder = made.storm(tmp_path / "a" / "b", rate=1)
        for name in ("history.jsonl", "trace/n1.jsonl", "logs/n2.jsonl"):
            lines = (folder / name).read_bytes().splitlines()
            lines[3:5] = [b"\x00garbage", b'{"op": "x"}']
            (folder / name).write_bytes(b"\n".join(lines) + b"\n")
        text = page(folder).text
        for name in ("history.jsonl", "trace/n1.jsonl", "logs/n2.jsonl"):
            assert f"{name}: 2 lines not understood and left out, first line 4." in text

    def test_hostile_texts_stay_texts(self, tmp_path: Path) -> None:
        evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&{{7*7}}"
        folder = made.storm(tmp_path / "a" / "b", broken=True, rate=1)
        edit(
            folder / "run.json",
            protocol=evil,
            problems=[{"kind": "not-healed", "sentence": evil}],
            replay=evil,
            state=evil,
            clients={evil: "producer"},
            versions={evil: evil},
        )
        found = json.loads((folder / "results.json").read_text())
        found["sentence"] = evil
        for anomaly in found["anomalies"]:
            anomaly.update(message=evil, name=evil, allowed=evil)
            anomaly["witnesses"][0].update(what=evil, client=evil, node=evil)
        found["properties"][0].update(property=evil, reason=evil)
        (folder / "results.json").write_text(json.dumps(found))
        history = (folder / "history.jsonl").read_text()
        history = history.replace('"c1"', json.dumps(evil)).replace('"timeout"', json.dumps(evil))
        (folder / "history.jsonl").write_text(history)
        faults = (folder / "faults.jsonl").read_text()
        faults = faults.replace('"kill"', json.dumps(evil)).replace('"n1"', json.dumps(evil))
        (folder / "faults.jsonl").write_text(faults)
        shown = page(folder)
        assert "img" not in shown.tags
        assert shown.source.count("<script>") == 1, "our own; data cannot run"
        assert shown.open == []
        assert "onerror" in shown.text
        assert "49" not in shown.text[: shown.text.index("Properties")]

    def test_an_odd_order_of_times_is_survived(self, tmp_path: Path) -> None:
        folder = made.storm(tmp_path / "a" / "b", rate=1)
        edit(folder / "run.json", phases={"storm_us": made.us(50), "heal_us": 1, "end_us": 2})
        assert "✓ valid" in page(folder).text

    def test_numbers_beyond_all_bounds_are_left_out(self, tmp_path: Path) -> None:
        folder = made.storm(tmp_path / "a" / "b", rate=1)
        edit(folder / "run.json", epoch_us=10**30)
        with (folder / "history.jsonl").open("a") as file:
            file.write(
                '{"op":1,"t_us":5,"process":1,"client":"c","type":"info","f":"send",'
                '"sends":[{"partition":"p","value":99999999999999999999}]}\n'
            )
        text = page(folder).text
        assert "history.jsonl: 1 line not understood and left out" in text
        assert "epoch_us is not understood" in text

    def test_an_invalid_utf16_pair_does_not_stop_it(self, tmp_path: Path) -> None:
        folder = made.empty(tmp_path / "a" / "b")
        text = (folder / "run.json").read_text().replace("port was taken", "port \\ud83d")
        (folder / "run.json").write_text(text)
        reports.build(folder)


class TestRefusals:
    def test_no_folder(self, tmp_path: Path) -> None:
        with pytest.raises(FloodmarkError, match="no such run folder"):
            reports.build(tmp_path / "nowhere")

    def test_not_a_run_folder(self, tmp_path: Path) -> None:
        with pytest.raises(reports.ReportError, match="not a run folder"):
            reports.build(tmp_path)
        assert list(tmp_path.iterdir()) == []

    def test_a_page_that_cannot_be_written_changes_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = made.empty(tmp_path / "a" / "b")
        before = reports.build(folder).read_bytes()

        def refuse(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Path, "replace", refuse)
        with pytest.raises(StorageError, match="the disk is full"):
            reports.build(folder)
        assert (folder / "report.html").read_bytes() == before
        assert not list(folder.glob(".report*"))


class TestSections:
    def test_a_section_is_one_entry_and_a_template(
        self, runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        template = tmp_path / "dummy.html.j2"
        template.write_text("<p>{{ data }} operations under {{ folder.info.protocol }}</p>")
        dummy = Section("dummy", "A dummy", str(template), lambda run: len(run.operations))
        absent = Section("absent", "Not there", str(template), lambda run: None)
        monkeypatch.setattr(sections, "SECTIONS", [*SECTIONS, dummy, absent])
        shown = page(runs["valid"])
        assert re.search(r"A dummy \d+ operations under kafka", shown.text)
        assert shown.ids.count("dummy") == shown.links.count("#dummy") == 1
        assert "absent" not in shown.ids

    def test_a_section_without_data_is_left_out(self, pages: dict[str, Page]) -> None:
        titles = {section.id for section in SECTIONS}
        assert titles - set(pages["valid"].ids) == {"timeline", "reproduction", "messages"}
        assert titles - set(pages["invalid"].ids) == {"timeline"}


class TestSize:
    def test_two_hundred_thousand_operations(self, tmp_path: Path) -> None:
        folder = made.many(tmp_path / "many" / "t", 200_000)
        file = reports.build(folder)
        assert file.stat().st_size < 1_500_000
        text = Page(file).text
        assert "196,000" in text
        assert "are merged where they touch" in text

    def test_findings_and_faults_without_end(self, tmp_path: Path) -> None:
        folder = made.storm(tmp_path / "a" / "b", broken=True, rate=2)
        found = json.loads((folder / "results.json").read_text())
        witness = {"what": "w" * 2_000, "op": 5, "t_us": made.us(3), "client": "c" * 500}
        found["anomalies"] = [
            {
                "property": "p" * 400,
                "name": "n" * 400,
                "message": "m" * 9_000,
                "offset": 9 * i,
                "partition": f"log-{i % 4}",
                "t_us": made.us(i % 30),
                "witnesses": [witness] * 40,
            }
            for i in range(700)
        ]
        (folder / "results.json").write_text(json.dumps(found))
        lines = []
        for i in range(4_000):
            head = {"fault": i, "what": "cut", "links": [["n1", "n2"]], "detail": "d" * 900}
            lines.append({**head, "action": "inject", "t_us": made.us(i / 150)})
            lines.append({**head, "action": "heal", "t_us": made.us(i / 150 + 2)})
        made.write_lines(folder / "faults.jsonl", lines)
        file = reports.build(folder)
        assert file.stat().st_size < 5_000_000
        text = Page(file).text
        assert "700 findings; the 60 that matter most are shown" in text
        assert "of 4,000 faults" in text


class TestSummary:
    def test_says_what_the_page_says(self, runs: dict[str, Path]) -> None:
        text = reports.summary(runs["invalid"])
        lines = text.splitlines()
        assert lines[0] == "✗ INVALID  unclean/20260101T121500"
        assert "log-0 lost 15 acknowledged records" in lines[1]
        assert "6 of 8" in text
        assert "lost in log-0 × 15" in text
        assert "no-progress in log-2 × 1 (allowed)" in text
        assert lines[-1].endswith("floodmark run --schedule store/unclean/20260101T121500")
        assert 8 <= len(lines) <= 14

    @pytest.mark.parametrize("kind", ["valid", "empty", "killed"])
    def test_is_short(self, runs: dict[str, Path], kind: str) -> None:
        assert len(reports.summary(runs[kind]).splitlines()) <= 12


def test_a_trace_for_which_the_system_does_not_vouch_draws_nothing(tmp_path: Path) -> None:
    run = made.storm(tmp_path / "other" / "20260101T120000", broken=True)
    with_traces = read(run)
    assert with_traces.cluster.partitions
    assert trace_events(with_traces, "log-0")
    info = json.loads((run / "run.json").read_text())
    info["capabilities"] = ["logs"]
    made.write_json(run / "run.json", info)
    without = read(run)
    assert not without.cluster.partitions
    assert without.evidence("trace") == []
    assert len(without.evidence("logs")) == len(with_traces.evidence("logs")) > 0
    assert [e.event for e, _ in trace_events(without, "log-0")] == [EXIT] * len(without.exits)
