"""The inputs of a page: the baseline run of a failure, the files of a finding."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest

import reports
from harness.formats.baseline import Baseline
from harness.replay import pages
from harness.replay.pages import make_baseline
from harness.runs import judge
from harness.sim.run import simulate
from harness.systems.floodmark.system import nearest_correct
from nemesis import ready_made
from node.core import protocol as protocols
from tests.support.command import exit_code


@pytest.mark.parametrize(
    ("given", "clean", "nearest"),
    [
        ("high-watermark", True, "kip-279"),
        ("kip-101", True, "kip-279"),
        ("quorum-naive", True, "quorum"),
        ("liftbridge", True, "kip-279"),
        ("kafka", True, "kafka"),
        ("quorum", True, "quorum"),
        # A schedule with lying disks gets a protocol that promises to live with them.
        ("high-watermark", False, "kafka"),
    ],
)
def test_the_nearest_correct_protocol_shares_most_choices(
    given: str, clean: bool, nearest: str
) -> None:
    assert nearest_correct(given, clean=clean).name == nearest
    assert all(expected == "holds" for _, expected in protocols.REGISTRY[nearest].expected)


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a simulated run of KIP-101's first scenario under the protocol that loses there."""
    run = tmp_path_factory.mktemp("store") / "kip-101" / "simulated-1"
    simulate(ready_made.load("kip-101-scenario-1"), seed=1, stop_at="never", keep=run)
    return run


@pytest.fixture(scope="module")
def made(failed: Path) -> Baseline:
    baseline = make_baseline(failed, lambda sentence: None)
    assert baseline is not None
    return baseline


class TestBaseline:
    def test_the_schedule_fails_as_it_is_and_not_where_it_should_hold(self, made: Baseline) -> None:
        assert made.as_it_is is not None
        assert made.baseline is not None
        assert (made.as_it_is.protocol, made.as_it_is.verdict) == ("high-watermark", "invalid")
        assert (made.baseline.protocol, made.baseline.verdict) == ("kip-279", "valid")
        assert made.baseline.broken == ()
        assert made.same_again is True, "a simulated run comes out the same again"

    def test_a_page_names_the_verdict_and_its_baseline_run(
        self, failed: Path, made: Baseline
    ) -> None:
        text = reports.build(failed).read_text("utf-8")
        assert "what differs between the two is to blame" in text
        assert "byte for byte" in text
        assert f"floodmark replay {failed.parent.name}/{failed.name} --trace" in text

    def test_a_changed_run_is_found_out(self, failed: Path, made: Baseline, tmp_path: Path) -> None:
        for name in ("run.json", "schedule.json", "history.jsonl", "faults.jsonl"):
            (tmp_path / name).write_bytes((failed / name).read_bytes())
        (tmp_path / "trace").mkdir()
        for file in (failed / "trace").iterdir():
            (tmp_path / "trace" / file.name).write_bytes(file.read_bytes() + b"{}\n")
        again = make_baseline(tmp_path, lambda sentence: None)
        assert again is not None
        assert again.same_again is False


@pytest.fixture
def judged(failed: Path, tmp_path: Path) -> Path:
    """Return the same run just after its verdict."""
    run = tmp_path / "kip-101" / "simulated-1"
    shutil.copytree(failed, run, ignore=shutil.ignore_patterns("baseline.json", "report.html"))
    return run


class TestAfterTheVerdict:
    @pytest.mark.integration
    def test_a_failure_has_stills_and_baseline_run_at_once(
        self, judged: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert exit_code(["check", "--no-spark", str(judged)]) == 1
        assert capsys.readouterr().out.endswith(f"  page        {judged / 'report.html'}\n")
        text = (judged / "report.html").read_text("utf-8")
        assert "what differs between the two is to blame" in text
        assert "data:image/png;base64" in text

    def test_the_baseline_run_may_be_left_out(self, judged: Path) -> None:
        assert pages.page_after(judged, pytest.fail, baseline_too=False) == judged / "report.html"
        assert not (judged / "baseline.json").exists()
        assert "not run" in (judged / "report.html").read_text("utf-8")

    @pytest.mark.parametrize(
        ("error", "words"),
        [
            (ZeroDivisionError("a bug"), "The baseline run of"),
            (KeyboardInterrupt(), "The baseline run is left out"),
            (None, "The baseline run is left out; to make it: floodmark report {folder}"),
        ],
        ids=["a bug", "an interrupt", "too long"],
    )
    def test_whatever_happens_to_the_baseline_run_there_is_a_page(
        self, judged: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException | None, words: str
    ) -> None:
        def broken(folder: Path, tell: object) -> Baseline:
            while error is None:
                pass
            raise error

        monkeypatch.setattr(pages, "make_baseline", broken)
        monkeypatch.setattr(pages, "build", lambda run, **how: run / "report.html")
        monkeypatch.setattr(pages, "BASELINE_LIMIT_S", 0.01 if error is None else 60.0)
        told: list[str] = []
        assert pages.page_after(judged, told.append) is not None
        assert told[-1].startswith(words.format(folder=judged))
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


class TestFinding:
    def test_the_files_of_a_finding_come_with_its_run(self, tmp_path: Path) -> None:
        finding, run = tmp_path / "finding-1", tmp_path / "run"
        for folder in (finding, run):
            folder.mkdir()
        # A schedule of another origin brings nothing.
        pages.bring_finding(tmp_path / "kip-101-scenario-1", run, pytest.fail)
        pages.bring_finding(None, run, pytest.fail)
        assert list(run.iterdir()) == []
        (finding / "explain.json").write_text(json.dumps({"bucket": "b"}))
        (finding / "drawn.json").write_text("{}")
        pages.bring_finding(finding, run, pytest.fail)
        assert sorted(f.name for f in (run / "finding").iterdir()) == ["drawn.json", "explain.json"]


def test_a_page_that_fails_to_build_costs_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(folder: Path, program: str) -> Path:
        raise ZeroDivisionError("a bug of the page")

    monkeypatch.setattr(reports, "build", broken)
    told: list[str] = []
    assert judge.build_page(tmp_path, told.append) is None
    assert told == ["The page could not be built: a bug of the page"]
