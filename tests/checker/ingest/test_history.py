"""A history.jsonl read in parts and in blocks is what it is when read at once or by line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from checker.engine import stages
from checker.engine.local import check_run
from checker.engine.result_cache import own_name
from checker.engine.spark_job import check
from checker.ingest import read_history
from checker.ingest.external_history import run_folder_of
from checker.ingest.history import into_parts
from checker.ingest.ingest import tables_of
from checker.ingest.lines import Problems
from checker.ingest.read_run_files import read_meta
from checker.ingest.read_tables import HISTORY_TABLES
from checker.ingest.source import Source
from harness.formats.seal import seal_run
from node.formats.json_input import JsonReader, Unreadable
from tests.checker.ingest.test_read_jepsen import facts, rows_by_table
from tests.lab.bench.anomaly_injection import INJECTIONS
from tests.lab.bench.synthetic import Size, make_history
from tests.lab.bench.synthetic_files import write_lines
from tests.support.checker.goldens import GOLDENS
from tests.support.checker.story import P, Story


def busy() -> Story:
    """Overlapping operations of several clients, some of which never end."""
    s = Story(P, "log-1")
    for i in range(30):
        late = i * 7 % 11
        s.send(
            1_000 + i,
            at=i,
            begin=i * 3,
            end=i * 3 + 1 + late,
            process=i % 4 + 10 * (i // 4),
            outcome="info" if i % 9 == 8 else "ok",
        )
        s.poll((i, 1_000 + i), start=i, begin=i * 3 + 40, end=i * 3 + 41, process=99, hw=40)
    s.send(2_000, outcome=None, begin=20, process=500, partition="log-1")
    s.op("assign", "ok", process=99, partitions=("log-1",), begin=200, end=201)
    s.poll((0, 3_000), begin=210, end=220, process=99, partition="log-1")
    s.history.sort(key=lambda op: op.t_us)
    begun = [op.op for op in s.history if op.type == "invoke"]
    number = {op: begun.index(op) for op in begun}
    s.history = [msgspec.structs.replace(op, op=number[op.op]) for op in s.history]
    return s


def in_parts(folder: Path, target: Path) -> bool:
    """Return whether a history can be read into tables that are in parts in `target`."""
    source = Source(0, folder, "history", folder / "history.jsonl")
    return into_parts(source, read_meta(folder, Problems()), target)


def of_no_column(line: bytes) -> bytes:
    """Return a line with a large number in a text, and an empty line."""
    return line[:-2] + b',"error":"%d"}\n\n' % 10**30


@pytest.mark.parametrize("size", [1, 7, 40, 1 << 20])
@pytest.mark.parametrize("odd", [(), (0,), (33, 40), range(65)])
def test_the_tables_are_the_same_however_it_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, odd: Sequence[int]
) -> None:
    folder = busy().write(tmp_path / "run")
    history = folder / "history.jsonl"
    lines = [
        b'%b,"seq":%d}\n' % (line[:-1], nth)
        for nth, line in enumerate(history.read_bytes().splitlines())
    ]
    for nth in odd:
        lines[nth] = of_no_column(lines[nth])
    history.write_bytes(b"".join(lines))
    check_run(folder, write=True)
    monkeypatch.setattr(read_history, "JOINED_AT_A_TIME", size)
    monkeypatch.setattr(read_history, "ROWS_A_PART", 3 * size)
    parts = tmp_path / "parts"
    assert in_parts(folder, parts)
    for name in (f"{table}.parquet" for table in HISTORY_TABLES if table != "groups"):
        made, whole = (pq.read_table(of / name).to_pylist() for of in (parts, folder / "tables"))
        assert sorted(map(str, made)) == sorted(map(str, whole)), name


def test_a_made_history_can_be_had_as_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, lines = tmp_path / "made", tmp_path / "lines"
    make_history(Size(ops=2_000, anomalies=tuple(INJECTIONS)), folder)
    assert write_lines(folder, lines) == (lines / "history.jsonl").stat().st_size
    monkeypatch.setattr(read_history, "JOINED_AT_A_TIME", 300)
    monkeypatch.setattr(read_history, "ROWS_A_PART", 700)
    assert in_parts(lines, tmp_path / "parts" / "tables")
    (tmp_path / "parts" / "run.json").write_bytes((folder / "run.json").read_bytes())
    assert check_run(lines) == check_run(folder) == check_run(tmp_path / "parts")


@pytest.mark.parametrize(
    "damage",
    [
        lambda lines: [*lines[:20], b"{\n", *lines[20:]],
        lambda lines: lines[:40] + lines[3:4] + lines[40:],  # invoked twice
        lambda lines: lines + lines[-1:],  # completed twice
        lambda lines: lines[1:],  # ended and never begun
        lambda lines: lines[30:] + lines[:30],  # time goes back
        lambda lines: [*lines[:-1], lines[-1][:-5]],  # half a line
    ],
)
def test_what_is_wrong_with_a_history_needs_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: object
) -> None:
    folder = busy().write(tmp_path / "run")
    history = folder / "history.jsonl"
    lines = history.read_bytes().splitlines(keepends=True)
    history.write_bytes(b"".join(damage(lines)))  # type: ignore[operator]
    monkeypatch.setattr(read_history, "JOINED_AT_A_TIME", 20)
    assert not in_parts(folder, tmp_path / "parts")


def change_a_value(folder: Path) -> None:
    """One digit of a value: every line stays an operation."""
    history = folder / "history.jsonl"
    text = history.read_bytes()
    assert b'"value":1025' in text
    history.write_bytes(text.replace(b'"value":1025', b'"value":1026', 1))


def test_a_large_history_that_is_not_as_it_was_sealed_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_history, "JOINED_AT_A_TIME", 20)
    folder = busy().write(tmp_path / "run")
    seal_run(folder)
    assert in_parts(folder, tmp_path / "whole")
    change_a_value(folder)
    assert not in_parts(folder, tmp_path / "changed")


@pytest.mark.integration
@pytest.mark.xdist_group("spark")
def test_spark_reads_a_large_history_into_tables(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "LARGE_HISTORY_BYTES", 3_000)
    good, bad = busy().write(tmp_path / "good"), busy().write(tmp_path / "bad")
    with (bad / "history.jsonl").open("ab") as file:
        file.write(b"{\n")
    changed = busy().write(tmp_path / "changed")
    for folder in (good, changed):
        seal_run(folder)
    change_a_value(changed)
    expected = [check_run(good, write=True), check_run(bad), check_run(changed)]
    assert [result.verdict for result in expected][::2] == ["invalid", "unknown"]
    out = tmp_path / "out"
    for _ in range(2):
        assert check([good, bad, changed], session=spark, out=out, small_bytes=0) == expected
        made = {run: out / own_name(run) / "tables/reads.parquet" for run in (good, bad)}
        assert made[good].is_dir()
        assert made[bad].is_file()
    assert check([good], session=spark, small_bytes=0) == expected[:1]
    assert check_run(good, write=True) == expected[0]
    assert (good / "tables/reads.parquet").is_file()


def both(folder: Path, patch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Return the results of reading a history in blocks and line by line."""

    def refused(*_: Any) -> Any:
        raise Unreadable("not at once")

    found = []
    for alone in (False, True):
        with patch.context() as change:
            if alone:
                change.setattr(JsonReader, "decode_lines", refused)
            source = Source(0, folder, "history", folder / "history.jsonl")
            into = tables_of(source, read_meta(folder, Problems()))
            found.append((rows_by_table(into), facts(into), into.problems.sentences()))
    return found[0], found[1]


@pytest.mark.parametrize("bad", [False, True])
def test_blocks_of_lines_are_what_they_are_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: bool
) -> None:
    for name, golden in GOLDENS.items():
        at_once, alone = both(golden.story(bad=bad).write(tmp_path / name), monkeypatch)
        assert at_once == alone, name


ODD_LINES = Path(__file__).with_name("odd_lines.txt").read_text().splitlines()
"""Lines with escapes for bytes that are no text."""


@pytest.mark.parametrize("text", ODD_LINES)
def test_a_line_with_anything_odd_in_it_is_reported_however_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    line = text.encode().decode("unicode_escape").encode("latin-1")
    first = b'{"op":0,"t_us":4,"process":0,"client":"c","type":"invoke","f":"poll"}\n'
    last = b'{"op":9,"t_us":9,"process":9,"client":"c","type":"invoke","f":"poll"}\n'
    file = tmp_path / "history.jsonl"
    file.write_bytes(first + line + b"\n" + last)
    at_once, alone = both(run_folder_of(file), monkeypatch)
    assert at_once == alone
