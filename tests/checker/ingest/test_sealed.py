"""Sealed evidence: whatever is done to a file of a run, its verdict is unknown, and says where."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from checker.engine.local import check_run, check_runs
from checker.formats.verdict import RunResult, Verdict
from checker.ingest.lines import Problems
from checker.ingest.read_run_files import read_meta
from checker.ingest.source import LineNumbers
from harness.formats import seal
from harness.formats.run_info import RunInfo
from harness.sim.run import simulate
from nemesis.faults import Kill
from nemesis.formats.schedule import Cluster, Schedule, Timings, Workload
from node.formats import json_input
from tests.support.checker.story import Story
from tests.support.tampering import CHANGES, damage, evidence

FAST = Timings(heartbeat_ms=100, session_ms=700, lag_ms=500)
SMALL = Cluster(partitions=1, timings=FAST)


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a small simulated run that is valid."""
    workload = Workload(seed=3, clients=1, consumers=1, rate=10, duration_ms=2_500)
    faults = (Kill(on="follower:log-0", at_ms=500, for_ms=600),)
    schedule = Schedule(cluster=SMALL, workload=workload, faults=faults)
    return kept(tmp_path_factory, schedule, "valid")


@pytest.fixture(scope="module")
def invalid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a small simulated run that is invalid."""
    cluster = msgspec.structs.replace(SMALL, bugs=("read-beyond-hw",))
    workload = Workload(seed=3, clients=2, consumers=1, rate=20, duration_ms=1_500)
    return kept(tmp_path_factory, Schedule(cluster=cluster, workload=workload), "invalid")


def kept(factory: pytest.TempPathFactory, schedule: Schedule, verdict: str) -> Path:
    folder = factory.mktemp("sealed") / verdict
    result = simulate(schedule, seed=3, check_invariants=False, stop_at="never", keep=folder)
    assert result.checked.verdict == verdict, result.checked.sentence
    assert check_run(folder).verdict == verdict
    return folder


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return the place of a damaged copy."""
    return tmp_path / "copy"


def judged(folder: Path, copy: Path, name: str, change: str, seed: int) -> RunResult | None:
    """Return the result of a damaged copy; None where the damage changed nothing."""
    shutil.copytree(folder, copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns("tables"))
    if not damage(copy, name, CHANGES[change], random.Random(f"{name} {change} {seed}")):
        return None
    result = check_run(copy)
    if name == "run.json" and result.verdict is not Verdict.UNKNOWN:
        # White space, fields in another order, or one twice with one value.
        assert said(copy) == said(folder), (change, result.sentence)
        return None
    return result


def said(folder: Path) -> RunInfo | None:
    """Return the contents of run.json in any spelling."""
    try:
        return msgspec.json.decode((folder / "run.json").read_bytes(), type=RunInfo)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def must_be_unknown(result: RunResult | None, name: str, change: str) -> None:
    if result is None:
        return
    assert result.verdict is Verdict.UNKNOWN, (name, change, result.sentence)
    about = {seal.FILE: "seal.json"}.get(name, name)
    assert any(about in problem for problem in result.problems), (name, change, result.problems)


@pytest.mark.parametrize("turn", range(4))
def test_damage_to_any_file_makes_a_run_unknown(
    valid: Path, invalid: Path, copy: Path, turn: int
) -> None:
    """Every file is damaged in some ways, and in every way some file is; the nightly tier damages
    every file in every way."""
    changes, folder = list(CHANGES), invalid if turn == 3 else valid
    for number, name in enumerate(evidence(folder)):
        change = changes[(3 * number + turn) % len(changes)]
        must_be_unknown(judged(folder, copy, name, change, 1), name, change)


@pytest.mark.nightly
@pytest.mark.parametrize("change", CHANGES)
def test_any_damage_to_any_file_makes_a_run_unknown(
    valid: Path, invalid: Path, copy: Path, change: str
) -> None:
    for folder in (valid, invalid):
        for name in evidence(folder):
            must_be_unknown(judged(folder, copy, name, change, 1), name, change)


@pytest.mark.nightly
@pytest.mark.parametrize("change", ["remove", "double", "swap", "flip"])
def test_any_damage_to_any_line_makes_a_run_unknown(valid: Path, copy: Path, change: str) -> None:
    for name in evidence(valid):
        if name == "run.json":
            continue
        lines = (valid / name).read_bytes().splitlines(keepends=True)
        for at, line in enumerate(lines):
            made = list(lines)
            match change:
                case "remove":
                    del made[at]
                case "double":
                    made.insert(at, line)
                case "swap" if at:
                    made[at - 1 : at + 1] = made[at - 1 : at + 1][::-1]
                case "flip":
                    made[at] = bytes([line[0] ^ 1]) + line[1:]
            if made == lines:
                continue
            shutil.copytree(valid, copy, dirs_exist_ok=True)
            (copy / name).write_bytes(b"".join(made))
            must_be_unknown(check_run(copy), name, change)


def test_the_sentence_has_file_and_line(valid: Path, copy: Path) -> None:
    shutil.copytree(valid, copy)
    for name in ("history.jsonl", "trace/n1.jsonl"):
        lines = (copy / name).read_bytes().splitlines(keepends=True)
        (copy / name).write_bytes(b"".join(lines[:10] + lines[11:]))
    result = check_run(copy)
    assert result.sentence == (
        "unknown: history.jsonl is not as it was when the run was sealed: it has "
        f"{len((copy / 'history.jsonl').read_bytes().splitlines())} instead of "
        f"{len((valid / 'history.jsonl').read_bytes().splitlines())} lines, the first difference "
        "is in lines 8 to 11."
    )
    assert "history.jsonl line 11: lines are missing before it (number 10)." in result.problems
    assert "trace/n1.jsonl line 11: lines are missing before it (number 10)." in result.problems


def test_a_violation_shows_in_unsealed_evidence_of_a_killed_harness(
    invalid: Path, copy: Path
) -> None:
    shutil.copytree(invalid, copy)
    (copy / seal.FILE).unlink()
    about = json.loads((copy / "run.json").read_text()) | {"state": "running", "seal": ""}
    (copy / "run.json").write_text(json.dumps(about))
    assert check_run(copy).verdict is Verdict.INVALID
    lines = (copy / "history.jsonl").read_bytes().splitlines(keepends=True)
    (copy / "history.jsonl").write_bytes(b"".join(lines[:40] + lines[41:]))
    assert check_run(copy).verdict is Verdict.UNKNOWN, "unless a line is missing in it"


def test_the_evidence_of_others_needs_no_seal(tmp_path: Path) -> None:
    s = Story()
    s.agree(*s.busy())
    assert s.check(tmp_path).verdict is Verdict.VALID


def test_tables_stand_for_a_history_only_if_they_were_sealed_when_they_were_made(
    valid: Path, copy: Path
) -> None:
    shutil.copytree(valid, copy, ignore=shutil.ignore_patterns("tables", "results.json"))
    assert check_runs([copy])[0].verdict is Verdict.VALID
    (copy / "history.jsonl").unlink()
    assert check_runs([copy])[0].verdict is Verdict.VALID
    found = sorted((copy / "tables").rglob("*.parquet"))
    for path in (each for each in found if each.is_file()):
        table, _, _ = path.relative_to(copy / "tables").parts[0].partition(".")
        if table not in ("ops", "sends", "reads"):
            continue
        before = path.read_bytes()
        path.write_bytes(before[:-200] + bytes([before[-200] ^ 4]) + before[-199:])
        result = check_run(copy)
        assert result.verdict is Verdict.UNKNOWN
        name = path.relative_to(copy)
        assert result.problems[0] == f"{name} is not as it was when the run was sealed."
        path.write_bytes(before)
    (copy / seal.TABLES_FILE).unlink()
    assert check_run(copy).problems == (
        "The history is kept as tables only, and they were not sealed when they were made.",
    )


def test_a_history_is_hashed_once(valid: Path, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(valid, copy, ignore=shutil.ignore_patterns("tables", "results.json"))
    hashed: list[str] = []
    chunks = seal._chunks

    def noted(path: Path, chunk_bytes: int) -> Iterator[Any]:
        hashed.append(path.name)
        return chunks(path, chunk_bytes)

    monkeypatch.setattr(seal, "_chunks", noted)
    assert check_runs([copy])[0].verdict is Verdict.VALID
    assert hashed.count("history.jsonl") == 1
    assert (copy / seal.TABLES_FILE).exists()


def test_tables_of_a_damaged_history_are_not_sealed(valid: Path, copy: Path) -> None:
    shutil.copytree(valid, copy, ignore=shutil.ignore_patterns("tables", "results.json"))
    lines = (copy / "history.jsonl").read_bytes().splitlines(keepends=True)
    (copy / "history.jsonl").write_bytes(b"".join(lines[:-2]))
    assert check_runs([copy])[0].verdict is Verdict.UNKNOWN
    assert not (copy / seal.TABLES_FILE).exists()


def test_a_seal_names_the_place_of_a_difference_in_files_of_any_size(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for lines in (0, 1, 10, 5_000):
        text = b"".join(b"line %d\n" % number for number in range(lines))
        path.write_bytes(text)
        known = seal.seal_file(path)
        assert (known.bytes, known.lines) == (len(text), lines)
        assert len(known.chunks) <= 256
        assert seal.difference(path, known) is None
        path.write_bytes(text + b"more\n")
        found = seal.difference(path, known)
        assert found is not None
        assert found.lines == lines + 1
        assert found.first <= lines + 1 <= found.last + 1
        if lines:
            path.write_bytes(text.replace(b"line 0\n", b"line X\n"))
            assert seal.difference(path, known)[1] == 1  # type: ignore[index]
            path.write_bytes(text[:-1])
            assert seal.difference(path, known) is not None


def test_numbers_of_lines(tmp_path: Path) -> None:
    """Rising by one from 0, or none at all; anything else is said once."""

    def said(*numbers: int) -> list[str]:
        following = LineNumbers()
        return [gap for number in numbers if (gap := following.gap(number))]

    assert said(0, 1, 2) == []
    assert said(-1, -1, -1) == []
    assert said(0, 2, 3) == ["lines are missing before it (number 1)"]
    assert said(3, 4) == ["lines are missing before it (number 0 to 2)"]
    assert said(0, 1, 1, 2) == ["it is there twice or out of order (number 1, not 2)"]
    assert len(said(0, -1, 2)) == 2
    assert len(said(-1, 1)) == 1


def test_a_seal_is_read_as_a_whole(valid: Path) -> None:
    meta = read_meta(valid, Problems())
    assert seal.digest_of((valid / seal.FILE).read_bytes()) == meta.seal
    known = seal.read_seal(valid / seal.FILE)
    assert {"history.jsonl", "trace/v1.jsonl", "logs/n3.jsonl", "exits.jsonl"} <= known.files.keys()


def test_one_verdict_reads_the_seal_once_for_all_files(
    valid: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = shutil.copytree(valid, tmp_path / "run")
    read, opened = json_input.open_file, list[str]()

    def noted(path: Path, **how: Any) -> Any:
        opened.append(path.name)
        return read(path, **how)

    monkeypatch.setattr(json_input, "open_file", noted)
    assert check_run(run).verdict is Verdict.VALID
    # Once to compare run.json and the names of the files, and once for all their contents.
    assert opened.count(seal.FILE) == 2
