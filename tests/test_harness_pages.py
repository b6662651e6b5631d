"""What is made for a page before it is built: the control of a failure, a finding brought along."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import reports
from harness import judge, pages
from harness.control import Control, make_control, nearest_correct
from harness.sim.run import simulate
from nemesis import library
from node.core import protocol as protocols


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("high-watermark", "kip-279"), ("kip-101", "kip-279"), ("quorum-naive", "quorum"),
        ("liftbridge", "kip-279"), ("kafka", "kafka"), ("quorum", "quorum"),
    ],
)  # fmt: skip
def test_the_nearest_correct_protocol_shares_most_choices(given: str, nearest: str) -> None:
    found = nearest_correct(given)
    assert found.name == nearest
    assert all(expected == "holds" for _, expected in protocols.REGISTRY[nearest].expected)


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated run of KIP-101's first scenario under the protocol that loses there."""
    run = tmp_path_factory.mktemp("store") / "kip-101" / "simulated-1"
    simulate(library.load("kip-101-scenario-1"), seed=1, stop_at="never", keep=run)
    return run


@pytest.fixture(scope="module")
def made(failed: Path) -> Control:
    return make_control(failed)


class TestControl:
    def test_the_schedule_fails_as_it_is_and_not_where_it_should_hold(self, made: Control) -> None:
        assert made.as_it_is is not None
        assert made.control is not None
        assert (made.as_it_is.protocol, made.as_it_is.verdict) == ("high-watermark", "invalid")
        assert (made.control.protocol, made.control.verdict) == ("kip-279", "valid")
        assert made.control.broken == ()

    def test_a_simulated_run_comes_out_the_same_again(self, made: Control) -> None:
        assert made.same_again is True

    def test_the_page_says_both(self, failed: Path, made: Control) -> None:
        text = reports.build(failed).read_text("utf-8")
        assert "what differs between the two is to blame" in text
        assert "byte for byte" in text
        assert f"floodmark replay {failed.parent.name}/{failed.name} --trace" in text

    def test_a_changed_run_is_found_out(self, failed: Path, made: Control, tmp_path: Path) -> None:
        for name in ("run.json", "schedule.json", "history.jsonl", "faults.jsonl"):
            (tmp_path / name).write_bytes((failed / name).read_bytes())
        (tmp_path / "trace").mkdir()
        for file in (failed / "trace").iterdir():
            (tmp_path / "trace" / file.name).write_bytes(file.read_bytes() + b"{}\n")
        assert make_control(tmp_path).same_again is False


class TestFinding:
    def test_its_files_come_along(self, tmp_path: Path) -> None:
        finding, run = tmp_path / "finding-1", tmp_path / "run"
        for folder in (finding, run):
            folder.mkdir()
        (finding / "explain.json").write_text(json.dumps({"bucket": "b"}))
        (finding / "drawn.json").write_text("{}")
        pages.bring_finding(finding, run, pytest.fail)
        assert sorted(f.name for f in (run / "finding").iterdir()) == ["drawn.json", "explain.json"]

    def test_a_schedule_of_another_origin_brings_nothing(self, tmp_path: Path) -> None:
        pages.bring_finding(tmp_path / "kip-101-scenario-1", tmp_path, pytest.fail)
        pages.bring_finding(None, tmp_path, pytest.fail)
        assert list(tmp_path.iterdir()) == []


def test_a_page_that_fails_to_build_costs_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(folder: Path) -> Path:
        raise ZeroDivisionError("a bug of the page")

    monkeypatch.setattr(reports, "build", broken)
    told: list[str] = []
    assert judge.build_page(tmp_path, told.append) is None
    assert told == ["The page could not be built: a bug of the page"]
