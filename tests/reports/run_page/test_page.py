"""The page and the summary: every kind of run renders, says the truth and stays small."""

from __future__ import annotations

import functools
import itertools
import json
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import reports
from node.formats.errors import FloodmarkError, StorageError
from node.formats.event_text import EXIT
from reports.evidence import model
from reports.run_page import sections
from reports.run_page.sections import SECTIONS, Section
from tests.support import report_fixtures as made
from tests.support.html_page import HtmlPage
from tests.support.snapshot import Snapshot, masked

SENTENCES = Path(__file__).with_name("sentences.txt")
FATES = ("dropped", "delayed")
JSON_FILES = ("run.json", "schedule.json", "results.json")
Folders = Callable[[str], Path]
Pages = Callable[[str], HtmlPage]


def page(folder: Path) -> HtmlPage:
    return HtmlPage(reports.build(folder))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Return the folder of a kind of run, written when it is first asked for."""
    root = tmp_path_factory.mktemp("runs") / "store"
    return functools.cache(lambda kind: made.KINDS[kind](root / kind / "t"))


@pytest.fixture(scope="module")
def pages(runs: Folders) -> Pages:
    return functools.cache(lambda kind: page(runs(kind)))


@pytest.mark.parametrize("kind", made.KINDS)
class TestEveryPage:
    def test_loads_nothing(self, pages: Pages, kind: str) -> None:
        shown = pages(kind)
        assert [each for each in shown.loads if not each.startswith("data:")] == []
        assert "@import" not in shown.source
        assert not re.search(r"url\((?!#)", shown.source)
        assert "default-src 'none'" in shown.source
        assert not {"iframe", "object", "embed"} & shown.tags
        assert not re.search(r"""(?:href|src)=["']?(?:https?:)?//""", shown.source)

    def test_is_well_formed_with_unique_ids_and_no_dead_anchor(
        self, pages: Pages, runs: Folders, kind: str
    ) -> None:
        shown = pages(kind)
        assert shown.open == []
        assert len(shown.ids) == len(set(shown.ids))
        for link in shown.links:
            assert link[1:] in shown.ids if link[0] == "#" else (runs(kind) / link).is_file(), link

    def test_leaves_nothing_beside_itself(self, runs: Folders, kind: str) -> None:
        reports.build(runs(kind))
        assert [file.name for file in runs(kind).glob("*report.html*")] == ["report.html"]
        assert not list(runs(kind).glob(".report*"))

    def test_links_the_operations_of_its_findings(
        self, runs: Folders, pages: Pages, kind: str
    ) -> None:
        witnesses = [w for a in model.read(runs(kind)).anomalies for w in a.witnesses[:32]]
        assert {f"#op-{w.op}" for w in witnesses if w.op >= 0} <= set(pages(kind).links)


def test_what_pages_and_summaries_say(runs: Folders, pages: Pages, snapshot: Snapshot) -> None:
    """Blocks that are sentences, and the summary for the terminal, without the checker's own."""
    texts = {}
    for kind in made.KINDS:
        file = runs(kind) / "results.json"
        judged = masked(file.read_text("utf-8")) if file.exists() else ""
        blocks = [x for x in map(masked, pages(kind).blocks) if x.endswith(".") and " " in x]
        texts[f"page: {kind}"] = [x for x in dict.fromkeys(blocks) if x[1:-1] not in judged]
        lines = masked(reports.summary(runs(kind))).splitlines()
        del lines[1]
        texts[f"summary: {kind}"] = [
            x.partition(": ")[0] if x.startswith("  finding") else x for x in lines
        ]
    snapshot(SENTENCES, texts)


class TestNumbers:
    """The snapshot masks numbers, so they are compared here with the files of the run."""

    @pytest.mark.parametrize("kind", ["valid", "invalid", "diverged"])
    def test_operations_and_faults(self, runs: Folders, pages: Pages, kind: str) -> None:
        text, run = pages(kind).text, model.read(runs(kind))
        lines = [json.loads(x) for x in (runs(kind) / "history.jsonl").read_text().splitlines()]
        ended = [x for x in lines if x["type"] != "invoke"]
        acked = [x for x in ended if x["type"] == "ok" and x["f"] == "send"]
        count = {kind: sum(x["type"] == kind for x in ended) for kind in ("ok", "fail", "info")}
        records = sum(send["count"] for x in acked for send in x["sends"])
        effective = sum(fault.took_effect for fault in run.faults)
        assert f"{len(acked)} sends ({records} records)" in text
        assert f"{count['ok']} ok, {count['fail']} failed, {count['info']} unknown" in text
        assert f"{effective} of {len(run.faults)}" in text

    def test_findings(self, runs: Folders) -> None:
        run, text = model.read(runs("diverged")), reports.summary(runs("diverged"))
        for anomaly in run.anomalies[:3]:
            allowed = " (allowed)" if anomaly.allowed else ""
            assert f"{anomaly.name} in log-0 × {anomaly.count}{allowed}: " in text
        assert [bool(anomaly.allowed) for anomaly in run.anomalies] == [False] + [True] * 5

    def test_times_of_faults(self, pages: Pages) -> None:
        text = pages("valid").text
        assert "Kill the leader of log-0 at 0.600 s, for 900 ms: hit n1, 0.600 s to 1.520" in text
        assert "hit n2 ⇄ n1, n3, v1, 4.200 s to 5.700 s" in text

    def test_messages_that_faults_affected(self, runs: Folders, pages: Pages) -> None:
        lines = map(json.loads, (runs("valid") / "faults.jsonl").read_text().splitlines())
        effects = [line for line in lines if line["action"] == "effect"]
        said = [f"{x[fate]} messages {fate}" for x in effects for fate in FATES if x[fate]]
        assert len(said) == 3
        assert [words for words in said if words not in pages("valid").text] == []


class TestHead:
    def test_the_line_to_repeat_leads_to_this_folder_whatever_run_json_says(
        self, tmp_path: Path
    ) -> None:
        folder = made.KINDS["valid"](tmp_path / "store" / "valid" / "t")
        file = folder / "run.json"
        info = json.loads(file.read_text())
        info["replay"] = "floodmark run --schedule /elsewhere/valid/t"
        file.write_text(json.dumps(info))
        assert model.read(folder).folder == "store/valid/t"

    @pytest.mark.parametrize("kind", ["valid", "invalid", "empty", "killed"])
    def test_names_the_run_and_how_to_run_it_again(self, pages: Pages, kind: str) -> None:
        text = pages(kind).text
        assert f"floodmark run --schedule store/{kind}/t" in text
        assert f"floodmark check store/{kind}/t" in text

    @pytest.mark.parametrize(
        ("state", "sentence"),
        [
            ("interrupted", "the run was interrupted; it left 305"),
            ("running", "killed, or still running"),
            ("", "does not say how far the run came"),
        ],
    )
    def test_a_run_without_verdict_says_how_it_ended(
        self, tmp_path: Path, state: str, sentence: str
    ) -> None:
        folder = made.storm(tmp_path / "a" / "b", judged=False)
        made.edit(folder / "run.json", state=state)
        assert sentence in page(folder).text

    def test_a_run_that_proves_nothing_says_why(self, tmp_path: Path) -> None:
        folder = made.storm(tmp_path / "a" / "b")
        why = {"property": "exercise", "verdict": "not-exercised", "reason": "two acks in all"}
        made.edit(folder / "results.json", verdict="not-exercised", sentence="", properties=[why])
        text = page(folder).text
        assert "○ not-exercised" in text
        assert "Exercised no two acks in all" in text

    def test_an_unexplained_exit_is_counted_and_drawn(self, pages: Pages) -> None:
        shown = pages("crashed")
        assert "1 crashed Unexplained exits of n3." in shown.text
        assert "n3 exited by itself at 3.000 s, code 70" in shown.source
        assert "output/n3.txt" in shown.links

    def test_a_run_that_never_recovered_is_not_said_to_have(self, pages: Pages) -> None:
        assert "recovered from" not in pages("hanging").text

    def test_a_history_of_jepsen_has_no_command_of_ours_that_runs_it(self, pages: Pages) -> None:
        assert "floodmark run" not in pages("jepsen").source
        assert "floodmark check" in pages("jepsen").source


class TestDamage:
    @pytest.mark.parametrize(
        ("name", "content"),
        [
            *((name, None) for name in (*JSON_FILES, "history.jsonl", "faults.jsonl", "trace")),
            *itertools.product(JSON_FILES, (b"", b"{", b"[]", b'{"run": 3}', b"\xff\xfe")),
        ],
    )
    def test_a_missing_or_broken_file_costs_only_itself(
        self, tmp_path: Path, name: str, content: bytes | None
    ) -> None:
        folder = made.diverged(tmp_path / "a" / "b")
        target = folder / name
        if content is not None:
            target.write_bytes(content)
        else:
            shutil.rmtree(target) if target.is_dir() else target.unlink()
        text = page(folder).text
        assert "a/b" in text
        assert content is None or name in text[text.index("What this page leaves out") :]
        assert ("✗ invalid" in text) == (name != "results.json")

    def test_a_history_in_tables_is_drawn_as_any_other(self, tmp_path: Path) -> None:
        folder = made.diverged(tmp_path / "a" / "b")
        whole = page(folder).blocks
        (folder / "history.jsonl").unlink()
        missing = set(whole) - set(page(folder).blocks)
        assert [block for block in missing if not block.startswith("history.jsonl ")] == []

    def test_a_damaged_table_costs_only_itself(self, tmp_path: Path) -> None:
        folder = made.diverged(tmp_path / "a" / "b")
        (folder / "history.jsonl").unlink()
        for name in ("sends", "lag"):
            (folder / "tables" / f"{name}.parquet").write_bytes(b"PAR1 and nothing")
            assert f"tables/{name}.parquet cannot be read" in page(folder).text

    def test_tables_older_than_their_file_do_not_stand_for_it(self, tmp_path: Path) -> None:
        folder = made.diverged(tmp_path / "a" / "b")
        file = folder / "history.jsonl"
        file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:2]))
        assert len(model.read(folder).operations) == 1

    def test_hostile_texts_stay_texts(self, tmp_path: Path) -> None:
        evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&{{7*7}}"
        folder = made.storm(tmp_path / "a" / "b", broken=True)
        made.edit(
            folder / "run.json",
            protocol=evil,
            problems=[{"kind": "not-healed", "sentence": evil}],
            replay=evil,
            state=evil,
            clients={evil: "producer"},
            versions={evil: evil},
        )
        found = json.loads((folder / "results.json").read_text())
        for anomaly in found["anomalies"]:
            anomaly.update(message=evil, name=evil, allowed=evil)
            anomaly["witnesses"][0].update(what=evil, client=evil, node=evil)
        found["properties"][0].update(property=evil, reason=evil)
        made.edit(folder / "results.json", **{**found, "sentence": evil})
        for name, words in (("history", ("c1", "timeout")), ("faults", ("kill", "n1"))):
            text = (folder / f"{name}.jsonl").read_text()
            for word in words:
                text = text.replace(f'"{word}"', json.dumps(evil))
            (folder / f"{name}.jsonl").write_text(text)
        shown = page(folder)
        assert "img" not in shown.tags
        assert shown.source.count("<script>") == 1, "our own; data cannot run"
        assert shown.open == []
        assert "onerror" in shown.text
        assert "49" not in shown.text[: shown.text.index("Properties")]

    def test_an_odd_order_of_times_is_survived(self, tmp_path: Path) -> None:
        folder = made.storm(tmp_path / "a" / "b")
        phases = {"storm_us": made.us(50), "heal_us": 1, "end_us": 2}
        made.edit(folder / "run.json", phases=phases)
        assert "✓ valid" in page(folder).text

    def test_numbers_beyond_all_bounds_are_left_out(self, tmp_path: Path) -> None:
        folder = made.storm(tmp_path / "a" / "b")
        made.edit(folder / "run.json", epoch_us=10**30)
        trace = folder / "trace" / "n1.jsonl"
        trace.write_text(trace.read_text().replace('"incarnation":1,', f'"incarnation":{2**40},'))
        with (folder / "history.jsonl").open("a") as file:
            file.write(
                '{"op":1,"t_us":5,"process":1,"client":"c","type":"info","f":"send",'
                '"sends":[{"partition":"p","value":99999999999999999999}]}\n'
            )
        text = page(folder).text
        assert "is not an operation: " in text
        assert "epoch_us is not understood" in text

    def test_an_invalid_utf16_pair_is_survived(self, tmp_path: Path) -> None:
        folder = made.empty(tmp_path / "a" / "b")
        text = (folder / "run.json").read_text().replace("port was taken", "port \\ud83d")
        (folder / "run.json").write_text(text)
        assert "? unknown" in page(folder).text

    def test_a_trace_for_which_the_system_does_not_vouch_draws_nothing(
        self, tmp_path: Path
    ) -> None:
        run = made.storm(tmp_path / "other" / "t", broken=True)
        with_traces = model.read(run)
        assert with_traces.cluster.partitions
        assert with_traces.traces.of_partition("log-0")
        made.edit(run / "run.json", capabilities=["logs"])
        without = model.read(run)
        assert not without.cluster.partitions
        assert without.replicas.heads == with_traces.replicas.heads != {}
        events = without.traces.of_partition("log-0")
        assert [e.event for e, _ in events] == [EXIT] * len(without.exits)


class TestOpens:
    """A page opens no file that has tables, and each other one once."""

    @pytest.mark.parametrize("judged", [True, False])
    def test_each_file_has_one_reader(self, tmp_path: Path, judged: bool) -> None:
        folder = made.storm(tmp_path / "a" / "b", broken=judged, judged=judged)
        opened, counting = Counter[Path](), True

        def count(event: str, arguments: tuple[Any, ...]) -> None:
            # Without that flag it only looks for holes.
            if counting and event == "open" and arguments[2] & os.O_PATH:
                opened[Path(str(arguments[0]))] += 1

        sys.addaudithook(count)
        reports.build(folder)
        counting = False
        every = set(folder.rglob("*.jsonl")) - {folder / "messages.jsonl"}
        beside = {folder / f"{name}.jsonl" for name in ("exits", "faults", "messages")}
        once = dict.fromkeys(beside if judged else every, 1)
        assert {x: n for x, n in opened.items() if x.suffix == ".jsonl"} == once


class TestRefusals:
    def test_a_folder_that_does_not_exist(self, tmp_path: Path) -> None:
        with pytest.raises(FloodmarkError, match="no such run folder"):
            reports.build(tmp_path / "nowhere")

    def test_a_folder_that_holds_no_run(self, tmp_path: Path) -> None:
        with pytest.raises(reports.ReportError, match="not a run folder"):
            reports.build(tmp_path)
        assert list(tmp_path.iterdir()) == []

    def test_a_page_that_cannot_be_written_changes_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = made.empty(tmp_path / "a" / "b")
        before = reports.build(folder).read_bytes()

        def refuse(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "rename", refuse)
        with pytest.raises(StorageError, match="the disk is full"):
            reports.build(folder)
        assert (folder / "report.html").read_bytes() == before
        assert not list(folder.glob(".report*"))


class TestSections:
    def test_a_section_is_one_entry_and_a_template(
        self, runs: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        template = tmp_path / "dummy.html.j2"
        template.write_text("<p>{{ data }} operations under {{ folder.info.protocol }}</p>")
        dummy = Section("dummy", "A dummy", str(template), lambda run: len(run.operations))
        absent = Section("absent", "Not there", str(template), lambda run: None)
        monkeypatch.setattr(sections, "SECTIONS", [*SECTIONS, dummy, absent])
        shown = page(runs("valid"))
        assert re.search(r"A dummy \d+ operations under kafka", shown.text)
        assert shown.ids.count("dummy") == shown.links.count("#dummy") == 1
        assert "absent" not in shown.ids

    @pytest.mark.parametrize(
        ("kind", "missing"),
        [
            ("valid", {"story", "servers", "reproduction", "messages"}),
            ("hanging", {"servers"}),
            ("explained", {"servers"}),
        ],
    )
    def test_a_section_without_data_is_left_out(
        self, pages: Pages, kind: str, missing: set[str]
    ) -> None:
        assert {section.id for section in SECTIONS} - set(pages(kind).ids) == missing


class TestSize:
    def test_sixty_thousand_operations_are_merged(self, tmp_path: Path) -> None:
        file = reports.build(made.many(tmp_path / "many" / "t", 60_000))
        assert file.stat().st_size < 1_500_000
        text = HtmlPage(file).text
        assert "58,800" in text
        assert "are merged where they touch" in text

    def test_findings_and_faults_without_end_are_cut(self, tmp_path: Path) -> None:
        folder = made.storm(tmp_path / "a" / "b", broken=True)
        witness = {"what": "w" * 2_000, "op": 5, "t_us": made.us(3), "client": "c" * 500}
        long = {"property": "p" * 400, "name": "n" * 400, "message": "m" * 9_000}
        long |= {"witnesses": [witness] * 20}
        anomalies = [
            {**long, "offset": 9 * i, "partition": f"log-{i % 4}", "t_us": made.us(i % 9)}
            for i in range(300)
        ]
        made.edit(folder / "results.json", anomalies=anomalies)
        lines = []
        for i in range(2_500):
            head = {"fault": i, "what": "cut", "links": [["n1", "n2"]], "detail": "d" * 900}
            lines.append({**head, "action": "inject", "t_us": made.us(i / 300)})
            lines.append({**head, "action": "heal", "t_us": made.us(i / 300 + 2)})
        made.write_lines(folder / "faults.jsonl", lines)
        file = reports.build(folder)
        assert file.stat().st_size < 5_000_000
        text = HtmlPage(file).text
        assert "300 findings; the 60 that matter most are shown" in text
        assert "of 2,500 faults" in text
