"""The measures of small runs, computed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from checker.engine import stages
from checker.engine.local import check_run
from checker.engine.spark_job import check
from checker.formats.verdict import RunResult
from tests.support.checker.story import STORM_MS, P, Story

SECOND_US = 1_000_000
STORM_US = STORM_MS * 1_000


def measured(story: Story, folder: Path) -> tuple[RunResult, dict[str, list[dict[str, Any]]]]:
    """A run's result and its tables as rows."""
    result = check_run(story.write(folder), write=True)
    paths = (folder / "tables").glob("*.parquet")
    return result, {path.stem: pq.read_table(path).to_pylist() for path in paths}


def columns(rows: list[dict[str, Any]], *names: str, **which: Any) -> list[tuple[Any, ...]]:
    """Some columns of the rows that have these values."""
    return [
        tuple(row[name] for name in names)
        for row in rows
        if all(row[name] == value for name, value in which.items())
    ]


def test_what_was_acknowledged_and_not_read_yet(tmp_path: Path) -> None:
    s = Story(phases={"start_us": 1, "storm_us": STORM_US, "end_us": STORM_US + 10 * SECOND_US})
    s.send(10, 3, at=0, begin=10, end=50)
    s.send(20, 2, at=3, begin=60, end=120)
    s.poll((0, 10, 2), start=0, begin=130, end=260)
    # Read before its acknowledgement came: it never was unseen.
    s.send(30, at=5, begin=270, end=480)
    s.poll((5, 30), begin=300, end=310)
    s.poll((2, 12), (3, 20, 2), begin=700, end=710, outcome="info")
    s.poll((2, 12), begin=800, end=850)
    s.poll((2, 12), begin=900, end=950)
    result, tables = measured(s, tmp_path)
    curve = [(0.1, 3, 3), (0.2, 5, 5), (0.3, 5, 3), (0.5, 6, 3), (0.9, 6, 2)]
    for partition in ("", P):
        found = columns(tables["unseen"], "at_s", "acked", "unseen", partition=partition)
        assert found == curve
    assert tables["unseen"][0]["at_us"] == STORM_US + 100_000
    assert result.measures["unseen"] == {"most": 5, "at_end": 2}


def test_a_long_run_has_wider_steps(tmp_path: Path) -> None:
    s = Story(phases={"start_us": 1, "storm_us": STORM_US, "end_us": STORM_US + 101 * SECOND_US})
    s.send(10, at=0, begin=0, end=199)
    s.send(11, at=1, begin=200, end=201)
    _, tables = measured(s, tmp_path)
    assert columns(tables["unseen"], "at_s", "unseen", partition=P) == [(0.2, 1), (0.4, 2)]


def test_how_far_followers_are_behind(tmp_path: Path) -> None:
    s = Story(phases={"start_us": 1, "storm_us": STORM_US, "end_us": STORM_US + 10 * SECOND_US})

    def told(ms: int, node: str, event: str, leo: int, **more: Any) -> None:
        s.event(node, event, ms=ms, leo=leo, leader_epoch=more.pop("epoch", 1), **more)

    told(5, "n1", "role", 0, role="leader")
    told(6, "n2", "role", 0, role="follower")
    told(20, "n1", "append", 4, role="leader")
    told(30, "n2", "append", 4, role="follower")
    told(150, "n1", "append", 6, role="leader")
    # An old leader that has not heard yet leads nobody any more.
    told(310, "n2", "role", 4, role="leader", epoch=2)
    told(320, "n1", "append", 9, role="leader")
    told(330, "n2", "append", 12, role="leader", epoch=2)
    told(440, "n1", "truncated", 4, epoch=2)
    told(450, "n1", "append", 12, role="follower", epoch=2)
    result, tables = measured(s, tmp_path)
    lag = columns(tables["lag"], "node", "leader", "at_s", "lag", "highest", partition=P)
    assert lag == [
        ("n1", "n2", 0.4, 3, 3),
        ("n1", "n2", 0.5, 0, 8),
        ("n2", "n1", 0.1, 0, 4),
        ("n2", "n1", 0.2, 2, 2),
        ("n2", "n2", 0.4, 0, 2),
    ]
    assert result.measures["lag"] == {"most": 8, "node": "n1", "partition": P}


def test_how_old_answers_were(tmp_path: Path) -> None:
    s = Story(phases={"start_us": 1, "storm_us": STORM_US, "end_us": STORM_US + 10 * SECOND_US})
    s.send(10, at=0, begin=0, end=10)
    s.send(11, at=1, begin=11, end=20)
    s.send(12, at=2, begin=20, end=30, acks=1)
    s.poll((0, 10), start=0, hw=1, begin=25, end=26)  # 5 ms after offset 1 was acknowledged
    s.poll((1, 11), start=1, hw=2, begin=40, end=41, process=10)  # acks=1 makes nothing known
    s.poll(start=0, hw=-1, begin=50, end=51, process=11)  # 40 ms after offset 0
    s.poll((2, 12), start=2, hw=3, begin=140, end=150, process=12)
    s.poll((0, 10), (1, 11), start=0, hw=1, begin=160, end=161, outcome="info", process=13)
    result, tables = measured(s, tmp_path)
    for partition in ("", P):
        found = columns(
            tables["staleness"],
            "at_s",
            "answers",
            "stale",
            "mean_ms",
            "max_ms",
            partition=partition,
        )
        assert found == [(0.1, 3, 2, 15.0, 40.0), (0.2, 1, 0, 0.0, 0.0)]
    assert result.measures["staleness"] == {"answers": 4, "stale": 2, "max_ms": 40.0}


def struck() -> Story:
    """Two partitions, of which one stops while a fault goes on; the second fault never ends."""
    s = Story(P, "log-1", phases={"start_us": 1, "storm_us": STORM_US})
    s.phase("stop_writing", 9_000)
    sends = ((P, 1, (0, 100, 4_000, 5_000)), ("log-1", 2, (0, 900, 1_900, 2_900, 8_500)))
    for partition, process, begins in sends:
        for at, begin in enumerate(begins):
            late = 1_500 if (partition, begin) == (P, 4_000) else 2
            s.send(
                100 * process + at,
                at=at,
                begin=begin,
                end=begin + late,
                partition=partition,
                process=process if late == 2 else 7,
            )
    s.send(900, begin=1_500, end=1_600, outcome="fail", process=3)
    s.fault(4, "kill", "inject", 1_000, on="n1", nodes=["n1"])
    s.fault(4, "kill", "heal", 3_000, on="n1", nodes=["n1"])
    s.fault(5, "pause", "inject", 8_700, on="n2", nodes=["n2"])
    s.fault(6, "pause", "skipped", 8_800)
    return s


def assert_struck(result: RunResult, rows: list[dict[str, Any]]) -> None:
    names = ("before_ok", "during_ok", "during_fail", "after_ok", "first_ack_ms", "longest_gap_ms")
    of_kill = columns(rows, "partition", *names, nth=0)
    assert of_kill == [
        # Without gap of all: log-1 was acknowledged at 2,902 ms and at 8,502, log-0 in between.
        ("", 4, 2, 1, 2, None, 2_100.0),
        (P, 2, 0, 1, 2, 2_002.0, 4_900.0),
        ("log-1", 2, 2, 0, 0, 5_502.0, 5_600.0),
    ]
    assert columns(rows, "before_p50_ms", "during_max_ms", "after_max_ms", nth=0, partition=P) == [
        (2.0, None, pytest.approx(1_500, rel=1 / 128))
    ]
    assert columns(rows, "fault", "what", "on", "begin_us", "end_us", nth=1, partition="log-1") == [
        (5, "pause", "n2", STORM_US + 8_700_000, None)
    ]
    told = result.measures["around_faults"]
    assert [(f["fault"], f["first_ack_ms"], f["longest_gap_ms"]) for f in told] == [
        (4, 5_502.0, 5_600.0),
        (5, None, None),
    ]
    assert told[0]["acked"] == [4, 2, 2]


def test_what_sends_met_with_around_a_fault(tmp_path: Path) -> None:
    result, tables = measured(struck(), tmp_path)
    assert_struck(result, tables["around_faults"])


@pytest.mark.integration
@pytest.mark.xdist_group("spark")
def test_spark_tasks_measure_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = struck().write(tmp_path / "run")
    monkeypatch.setattr(stages, "_FEW_BYTES", 0)
    (result,) = check([folder], session=spark, small_bytes=0)
    assert_struck(result, pq.read_table(folder / "tables/around_faults.parquet").to_pylist())
    assert result == check_run(folder)


def test_rates_of_clients_and_partitions(tmp_path: Path) -> None:
    s = Story(P, "log-1", phases={"start_us": 1, "storm_us": STORM_US})
    s.phase("stop_writing", 4_000)
    s.send(10, 5, at=0, begin=0, end=1)
    s.send(20, 3, at=5, begin=10, end=12)
    s.send(30, 2, at=0, begin=10, end=12, partition="log-1", process=2)
    s.send(40, 2, begin=20, end=30, outcome="info", process=2)
    _, tables = measured(s, tmp_path)
    rates = ("f", "ok", "ok_per_s", "records_per_s")
    assert columns(tables["per_partition"], "partition", *rates) == [
        (P, "send", 2, 0.5, 2.0),
        ("log-1", "send", 1, 0.2, 0.5),
    ]
    assert columns(tables["per_client"], "client", *rates) == [
        ("c1", "send", 2, 0.5, 2.0),
        ("c2", "send", 1, 0.2, 0.5),
    ]
    assert columns(tables["per_second"], "second", *rates) == [(0, "send", 3, 3.0, 10.0)]


def test_findings_are_tables_too(tmp_path: Path) -> None:
    s = Story()
    s.busy()
    s.send(5, at=0)
    s.final((0, 1_000_000, 12))
    result, tables = measured(s, tmp_path)
    told = json.loads((tmp_path / "results.json").read_bytes())
    assert [row["name"] for row in tables["anomalies"]] == [a.name for a in result.anomalies]
    first = tables["anomalies"][0]
    assert first["verdict"] == "invalid"
    assert first["witnesses"][0]["op"] == told["anomalies"][0]["witnesses"][0]["op"]
    assert {name: first[name] for name in ("property", "count", "offset", "message")} == {
        name: told["anomalies"][0].get(name, 1)
        for name in ("property", "count", "offset", "message")
    }
    properties = columns(tables["properties"], "property", "verdict", "examined")
    assert properties == [(p.property, str(p.verdict), p.examined) for p in result.properties]
