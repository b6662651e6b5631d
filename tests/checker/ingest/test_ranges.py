"""A large history read into tables by ranges is what it is when read at once, or is not so read."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from checker.engine import stages
from checker.engine.local import check_run
from checker.engine.result_cache import own_name
from checker.engine.spark_job import check
from checker.evidence.run_meta import RunMeta
from checker.ingest import ranges, read_history
from checker.ingest.lines import Problems, Range, read_blocks
from checker.ingest.ranges import LargeHistory, into_tables
from checker.ingest.read_jepsen import read_history as read_whole
from checker.ingest.read_run_files import read_meta
from checker.ingest.read_tables import HISTORY_TABLES, files_of, open_table
from checker.ingest.source import Ingested, Source
from harness.formats.history import encode
from harness.formats.run_info import GroupPromise, Promise
from harness.formats.seal import seal_run
from tests.checker.ingest.test_read_jepsen import rows_by_table
from tests.lab.bench.anomaly_injection import INJECTIONS
from tests.lab.bench.synthetic import Maker, Size
from tests.support.checker import group_histories, weakened
from tests.support.checker.agreed import budget
from tests.support.checker.history_forms import as_jepsen, edn
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


def any_order(work: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
    """Apply a function as workers do: items and results move between processes."""
    for item in reversed(items):
        own_work, own_item = pickle.loads(pickle.dumps((work, item)))
        yield pickle.loads(pickle.dumps(own_work(own_item)))


def tables_in(folder: Path) -> dict[str, list[Any]]:
    """Return the rows of the tables of a history by name."""
    found: dict[str, list[Any]] = {}
    for name in HISTORY_TABLES:
        for path in files_of(folder / f"{name}.parquet"):
            with open_table(path) as file:
                found.setdefault(name, []).extend(file.read().to_pylist())
    return {name: sorted(rows, key=str) for name, rows in found.items()}


def in_ranges(source: Source, known: RunMeta, folder: Path, size: int) -> int:
    """Read a history into tables in ranges of so many bytes, and at once. The tables must be equal,
    and nothing may be wrong with it, if they can be made. Return the number of ranges, 0 if not."""
    whole = Ingested(known)
    read_whole(source, whole)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "RANGE_BYTES", size)
        if not into_tables(LargeHistory(source, known, folder), any_order, 1):
            assert not any(folder.iterdir() if folder.exists() else ())
            return 0
    assert [whole.problems.sentences(), whole.problems.notes] == [[], []]
    assert tables_in(folder) == rows_by_table(whole)
    return len({path.name[:11] for path in (folder / "ops.parquet").iterdir()}) - 1


def own(folder: Path) -> tuple[Source, RunMeta]:
    source = Source(0, folder, "history", folder / "history.jsonl")
    return source, read_meta(folder, Problems())


def of_no_column(line: bytes) -> bytes:
    """Return a line with a large number in a text, and an empty line."""
    return line[:-2] + b',"error":"%d"}\n\n' % 10**30


@pytest.mark.parametrize(
    ("size", "odd", "end"),
    [
        (1, (), b"\n"),
        (700, (0,), b"\r\n"),
        (4_000, (33, 40), b"\n"),
        (700, range(65), b"\n"),
        (1 << 20, (), b"\n"),
    ],
)
def test_the_tables_are_the_same_however_it_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, odd: Sequence[int], end: bytes
) -> None:
    folder = busy().write(tmp_path / "run")
    history = folder / "history.jsonl"
    lines = [
        b'%b,"seq":%d}%b' % (line[:-1], nth, end)
        for nth, line in enumerate(history.read_bytes().splitlines())
    ]
    for nth in odd:
        lines[nth] = of_no_column(lines[nth].replace(b"\r", b""))
    history.write_bytes(b"".join(lines))
    monkeypatch.setattr(read_history, "JOINED_AT_A_TIME", 7)
    monkeypatch.setattr(read_history, "ROWS_A_PART", 21)
    assert in_ranges(*own(folder), tmp_path / "parts", size) >= min(9_000 // size, 60)


def test_a_made_history_can_be_had_as_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, lines, parts = (tmp_path / name / "run" for name in ("made", "lines", "parts"))
    made = Maker(Size(ops=2_000, anomalies=tuple(INJECTIONS)))
    made.make(folder)
    made.write_lines(lines)
    monkeypatch.setattr(read_history, "JOINED_AT_A_TIME", 300)
    monkeypatch.setattr(read_history, "ROWS_A_PART", 700)
    assert in_ranges(*own(lines), parts / "tables", 40_000) > 5
    (parts / "run.json").write_bytes((folder / "run.json").read_bytes())
    assert check_run(lines) == check_run(folder) == check_run(parts)


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
@pytest.mark.parametrize("size", [800, 1 << 20])
def test_what_is_wrong_with_a_history_needs_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: object, size: int
) -> None:
    folder = busy().write(tmp_path / "run")
    history = folder / "history.jsonl"
    lines = history.read_bytes().splitlines(keepends=True)
    history.write_bytes(b"".join(damage(lines)))  # type: ignore[operator]
    monkeypatch.setattr(read_history, "JOINED_AT_A_TIME", 20)
    assert not in_ranges(*own(folder), tmp_path / "parts", size)


def test_a_process_that_goes_on_after_an_unknown_outcome_needs_all_of_it(tmp_path: Path) -> None:
    s = Story(P, "log-1")
    s.send(1, outcome="info", begin=20, end=30, process=0)
    s.send(2, at=0, begin=25, end=40, process=1)
    s.send(3, at=1, begin=31, end=32, process=0)
    for i in (*range(2), *range(10, 20)):
        s.send(4 + i, at=2 + i, begin=5 * i, end=5 * i + 1, process=9)
    s.history.sort(key=lambda op: op.t_us)
    folder = s.write(tmp_path / "run")
    for size in range(50, 900, 50):
        assert not in_ranges(*own(folder), tmp_path / f"parts-{size}", size)


def test_a_history_that_grows_is_read_to_where_it_ended(tmp_path: Path) -> None:
    file = tmp_path / "history"
    file.write_bytes(b'{"a":1}\n{"b":22}\n{"c":3}\n')
    blocks = [*read_blocks(file, part=Range(0, 12))]
    assert blocks == [(1, b'{"a":1}\n{"b":22}\n')]


def change_a_value(folder: Path) -> None:
    """One digit of a value: every line stays an operation."""
    history = folder / "history.jsonl"
    text = history.read_bytes()
    assert b'"value":1025' in text
    history.write_bytes(text.replace(b'"value":1025', b'"value":1026', 1))


def test_a_large_history_that_is_not_as_it_was_sealed_is_read_whole(tmp_path: Path) -> None:
    folder = busy().write(tmp_path / "run")
    seal_run(folder)
    assert in_ranges(*own(folder), tmp_path / "whole", 2_000)
    change_a_value(folder)
    assert not in_ranges(*own(folder), tmp_path / "changed", 2_000)


def damaged(text: bytes, chance: random.Random) -> bytes:
    """Return a history with a line dropped, doubled or moved, or with a few bytes changed."""
    lines = text.splitlines(keepends=True)
    at, to = chance.randrange(len(lines)), chance.randrange(len(lines))
    match chance.randrange(4):
        case 0:
            del lines[at]
        case 1:
            lines.insert(to, lines[at])
        case 2:
            lines.insert(to, lines.pop(at))
        case _:
            line = bytearray(lines[at])
            place = chance.randrange(len(line))
            new = chance.choice([b"0", b"5", b"", b"\n", b"{", b"\xff", b"\xef\xbb\xbf"])
            line[place : place + 1] = new
            lines[at] = bytes(line)
    return b"".join(lines)


def drawn(form: str, chance: random.Random) -> tuple[bytes, RunMeta]:
    """Return a history in a form, and what is known of it."""
    if form == "groups":
        ops, _ = group_histories.coordinator(chance.randrange(1000))
        promise = Promise(groups=GroupPromise(rebalance_ms=30))
        return b"".join(map(encode, ops)), RunMeta(promise=promise)
    cases = (weakened.drawn(chance.randrange(5_000)) for _ in count())
    case = next(case for case in cases if case and (case.form == "own") == (form == "own"))
    if form == "own":
        return b"".join(map(encode, case.story.history)), RunMeta()
    write = edn if form == "edn" else json.dumps
    told = as_jepsen(case.story.history, chance.choice([(), case.seeks]))
    return "".join(f"{write(line)}\n" for line in told).encode(), RunMeta(source=form)


@budget(12)
@given(
    st.integers(0, 1 << 30),
    st.sampled_from(["own", "groups", "jepsen", "edn"]),
    st.sampled_from([100, 1_000, 4_000]),
    st.booleans(),
)
def test_any_history(
    tmp_path_factory: pytest.TempPathFactory, seed: int, form: str, size: int, wrong: bool
) -> None:
    chance = random.Random(seed)
    folder = tmp_path_factory.mktemp("run")
    text, known = drawn(form, chance)
    (folder / "history").write_bytes(damaged(text, chance) if wrong else text)
    own_form = form if form in ("jepsen", "edn") else "own"
    source = Source(0, folder, "history", folder / "history", form=own_form)
    in_ranges(source, known, folder / "tables", size)


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
