"""The measures of small runs, computed by hand (`measures.txt`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from checker.engine import stages
from checker.engine.local import check_run
from checker.engine.spark_job import check
from checker.formats.verdict import RunResult
from harness.formats.history import Send
from tests.support.checker.story import Story
from tests.support.checker.story_text import blocks, steps_of, take


class Case(NamedTuple):
    """A run, with rows of its tables and some of its measures."""

    name: str
    steps: list[str]
    rows: dict[str, list[str]]
    measures: dict[str, Any]

    def check(self, result: RunResult, tables: Path) -> None:
        assert {name: result.measures[name] for name in self.measures} == self.measures
        for query, rows in self.rows.items():
            assert columns(tables, query) == rows, query


def cases() -> Iterator[Case]:
    for name, lines in blocks(Path(__file__).with_name("measures.txt")).items():
        case = Case(name, [], {}, {})
        for line in lines:
            first, _, more = line.partition(" ")
            if first == "table":
                rows = case.rows[more] = []
            elif first == "measure":
                of, _, value = more.partition(" ")
                case.measures[of] = json.loads(value)
            elif not first:
                rows.append(line[2:])
            else:
                case.steps.extend(steps_of(line))
        yield case


CASES = {case.name: case for case in cases()}


def columns(tables: Path, query: str) -> list[str]:
    """Return some columns of the rows that have some values."""
    table, *words = query.split()
    which = dict(word.split("=") for word in words if "=" in word)
    return [
        " ".join(cell(row[name]) for name in words if "=" not in name)
        for row in pq.read_table(tables / f"{table}.parquet").to_pylist()
        if all(str(row[name]) == value for name, value in which.items())
    ]


def cell(value: object) -> str:
    return "-" if value is None else str(value)


@pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)
def test_what_is_measured(tmp_path: Path, case: Case) -> None:
    result = check_run(take(Story(), case.steps).write(tmp_path / "run"), write=True)
    case.check(result, tmp_path / "run" / "tables")


@pytest.mark.integration
@pytest.mark.xdist_group("spark")
def test_spark_tasks_measure_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES["what sends meet with around a fault"]
    folder = take(Story(), case.steps).write(tmp_path / "run")
    monkeypatch.setattr(stages, "_FEW_BYTES", 0)
    (result,) = check([folder], session=spark, small_bytes=0)
    case.check(result, folder / "tables")
    assert result == check_run(folder)


def test_what_transactions_sent_is_counted(tmp_path: Path) -> None:
    s = Story("a", "b")
    for nth in range(12):
        sent = [Send(partition=p, value=100 * at + nth) for at, p in enumerate("ab")]
        acked = [replace(send, offset=2 * nth) for send in sent]
        s.op("txn", "ok", sends=sent, acked=acked, process=1)
    found = s.check(tmp_path).measures
    assert (found["acked_records"], found["ops"]["txn"]["ok"]) == (24, 12)
    assert found["longest_gap_ms"] is not None
