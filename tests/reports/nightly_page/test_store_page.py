"""The list of a store: its findings, then its runs, with links to their pages."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec.structs import replace

from checker.formats.verdict import RunResult, Verdict
from harness.formats.finding import RECORD, RunCounts
from harness.search import findings
from reports.nightly_page.store_page import LIST, Store, build_list, render_list
from tests.support.nightly_fakes import loses_a_write

EPOCH_S = 1_767_268_800
MOMENTS = {"epoch_us": EPOCH_S * 1_000_000, "phases": {"start_us": 1_000_000, "end_us": 43_000_000}}


def make_run(store: Path, name: str, verdict: Verdict) -> Path:
    folder = store / name / "20260101T000000"
    folder.mkdir(parents=True)
    about = {"protocol": "kafka", "world": "real", "state": "finished", **MOMENTS}
    (folder / "run.json").write_bytes(msgspec.json.encode(about))
    result = RunResult(run=name, verdict=verdict, sentence=f"{verdict}: Lost by <{name}>.")
    (folder / "results.json").write_bytes(msgspec.json.encode(result))
    if verdict is Verdict.INVALID:
        (folder / "report.html").write_text("<!doctype html><title>a failure</title>")
    return folder


def test_runs_are_listed_those_that_failed_first(tmp_path: Path) -> None:
    assert "There is no run in this store yet." in render_list(Store(tmp_path))
    bad = make_run(tmp_path, "bad", Verdict.INVALID)
    good = make_run(tmp_path, "good", Verdict.VALID)
    os.utime(bad / "results.json", (1, 1))
    os.utime(bad / "run.json", (1, 1))
    (tmp_path / "bad" / "latest").symlink_to(bad.name)
    lost = make_run(tmp_path, "lost", Verdict.VALID)
    (lost / "results.json").unlink()
    (lost / "run.json").write_text("{")
    assert build_list(tmp_path) == tmp_path / LIST
    page = (tmp_path / LIST).read_text("utf-8")
    assert "<h2>3 runs</h2>" in page
    assert page.index("Lost by &lt;bad&gt;") < page.index("Lost by &lt;good&gt;")
    assert f'href="bad/{bad.name}/report.html"' in page
    assert f'href="good/{good.name}/schedule.json"' in page
    assert "not judged" in page, "what cannot be read is listed too"
    assert datetime.fromtimestamp(EPOCH_S).strftime("%Y-%m-%d %H:%M") in page
    assert ">42.0 s<" in page
    assert "no nightly run yet" in page


def test_saved_findings_stand_above_the_runs(tmp_path: Path) -> None:
    store = tmp_path / "store"
    made = make_run(store, "made", Verdict.INVALID)
    real = {"world": "real", "subject": "nats", "version": "2.9", "settings": {"sync": "2m"}}
    counts, loss = RunCounts(failed=2, of=3), loses_a_write("a <loss>")
    findings.keep(
        replace(loss, faults=("0.10 s: Kill n1",), counts=counts, run=str(made), **real), store
    )
    other = store / "findings" / "cannot-be-read"
    other.mkdir()
    (other / RECORD).write_text("{")
    row = '<td>nats 2.9 sync=2m</td><td>0.10 s: Kill n1</td><td class="when">2 of 3</td>'
    for moved in (False, True):
        page = render_list(Store(store.rename(tmp_path / "moved") if moved else store))
        assert "<h2>1 saved finding</h2>" in page
        assert "a &lt;loss&gt;" in page
        assert row in page
        assert f'<a href="{made.relative_to(store)}/report.html">page</a>' in page


def test_the_run_of_a_finding_and_a_folder_of_any_name_are_listed(tmp_path: Path) -> None:
    finding = tmp_path / "findings" / "kafka-1"
    finding.mkdir(parents=True)
    make_run(tmp_path, "made", Verdict.INVALID).rename(finding / "simulated")
    other = make_run(tmp_path, 'a"<\r é', Verdict.VALID).parent
    other.with_name("b").mkdir()
    page = render_list(Store(tmp_path))
    assert 'href="findings/kafka-1/simulated/report.html"' in page
    assert "a%22%3C%0D%20%C3%A9/" in page
    other.rename(other.with_name(os.fsdecode(b"a\xff")))
    assert "a?/" in build_list(tmp_path).read_text("utf-8"), "a name that is no text is listed"
