"""The pipeline on Spark judges as the checker in process does, however the work is spread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from checker.engine import spark_job, stages
from checker.engine.judge import judge_group
from checker.engine.local import check_run
from checker.engine.result_cache import own_name
from checker.engine.spark_job import SparkWorkers, check
from checker.evidence.group import groups_of
from checker.formats.errors import CheckerError
from checker.formats.verdict import Verdict
from checker.ingest.source import Source
from tests.lab.bench.anomaly_injection import INJECTIONS
from tests.lab.bench.synthetic import Size, make_history
from tests.support.checker.story import NODES, Story, against, facts_of

# One worker runs all tests that need Spark, so that they share one JVM.
pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("spark")]


@pytest.fixture(autouse=True)
def no_run_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "SMALL_BYTES", 0)


def well() -> Story:
    """Return a valid run on two partitions."""
    s = Story("log-0", "log-1", run="well")
    for i, partition in enumerate(s.partitions):
        batches = s.busy(partition=partition, first=1_000 * (i + 1), process=i)
        s.final((0, 1_000 * (i + 1), 12), partition=partition)
        s.agree(*batches, partition=partition)
    return s


def badly() -> Story:
    """Return a run with about everything wrong."""
    s = Story("log-0", "log-1", run="badly", capabilities=["trace", "logs", "hw"])
    s.send(10, 3, at=0)
    s.send(20, 2, at=3)
    s.send(30, outcome="fail")
    s.send(40, 2, at=9, process=2)
    s.send(50, at=0, partition="log-1", process=3)
    s.poll((0, 10, 3), (3, 30), (4, 50), start=0)
    s.poll((9, 777), (4, 10), (7, 20))
    s.poll((0, 50), partition="log-1", hw=0)
    s.final((3, 20, 2))
    s.hw("n1", (10, 3))
    s.hw("n2", (11, 3))
    for node in NODES[:2]:
        s.event(node, "role", role="leader", leader=node, leader_epoch=3, leo=0, hw=0)
    s.log("n1", (10, 3), (20, 2))
    s.log("n2", (10, 2), (30, 1))
    s.log("n3", (60, 1))
    s.exits = [{"node": "n1", "t_us": 1_500_000, "code": 1, "expected": False}]
    return s


def grouped() -> Story:
    """Return a run with a group that forgets an ack."""
    s = Story(run="grouped")
    s.groups(counts=True)
    batches = s.busy()
    s.join("m1")
    s.give("m1", *((1_000_000 + i, i, 1) for i in range(12)))
    s.settle("m1", *((1_000_000 + i, i) for i in range(12)))
    s.give("m2", (1_000_003, 3, 1), begin=s.now - 950)
    s.fetch("m2", 12)
    s.drain()
    s.final((0, 1_000_000, 12))
    s.agree(*batches)
    return s


def damaged(folder: Path) -> Path:
    """Return a run folder with a line in it that cannot be read, and a file missing."""
    s = well()
    s.run["run"] = "damaged"
    s.write(folder)
    (folder / "history.jsonl").write_bytes((folder / "history.jsonl").read_bytes() + b"{\n")
    (folder / "logs" / "n3.jsonl").unlink()
    return folder


def test_spark_and_in_process_judge_alike(spark: SparkSession, tmp_path: Path) -> None:
    folders = [
        well().write(tmp_path / "with a space"),
        badly().write(tmp_path / "b"),
        damaged(tmp_path / "c"),
        well().write(tmp_path / "same name"),
        grouped().write(tmp_path / "grouped"),
        tmp_path / "nowhere",
    ]
    results = check(folders, session=spark)
    assert [r.verdict for r in results] == [
        Verdict.VALID,
        Verdict.INVALID,
        Verdict.UNKNOWN,
        Verdict.VALID,
        Verdict.INVALID,
        Verdict.UNKNOWN,
    ]
    assert set(against(results[4])) == {"acked-redelivered", "delivery-count"}
    assert {"lost", "divergence", "phantom", "misrouted", "two-leaders", "unexplained-exit"} <= set(
        against(results[1])
    )
    assert results == [check_run(folder) for folder in folders]
    assert not folders[-1].exists()


def test_spark_and_in_process_leave_the_same_behind(spark: SparkSession, tmp_path: Path) -> None:
    folder = badly().write(tmp_path / "run")
    check([folder], session=spark, out=tmp_path / "spark")
    check([folder], session=None, out=tmp_path / "alone")
    by_spark, alone = (tmp_path / how / own_name(folder) for how in ("spark", "alone"))
    assert not (folder / "results.json").exists()
    assert (by_spark / "results.json").read_bytes() == (alone / "results.json").read_bytes()
    for table in sorted((alone / "tables").glob("*.parquet")):
        one, other = (pq.read_table(each) for each in (by_spark / "tables" / table.name, table))
        plain = (each.name for each in other.schema if not pa.types.is_nested(each.type))
        order = [(name, "ascending") for name in plain]
        assert one.sort_by(order) == other.sort_by(order), table.name


@pytest.mark.parametrize(("seed", "shuffle"), [(1, False), (2, True)])
def test_the_result_does_not_depend_on_place_order_or_time_of_the_work(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, shuffle: bool
) -> None:
    """Sources go to any number of tasks in any order, as if some were read late; what was read
    arrives in any order, through files or as on a cluster by a shuffle; rows of tables are in any
    order."""
    make_history(Size(ops=2_000, anomalies=tuple(INJECTIONS)), tmp_path / "made")
    folders = [
        badly().write(tmp_path / "stated"),
        shuffled(tmp_path / "made", tmp_path / "b", seed),
    ]
    random = Random(seed)

    def scattered(work: Sequence[Source], _: int) -> list[list[Source]]:
        bins: list[list[Source]] = [[] for _ in range(random.choice((1, 5, 11)))]
        for source in random.sample(work, len(work)):
            random.choice(bins).append(source)
        return bins

    class Arriving(SparkWorkers):
        def __init__(self, session: SparkSession) -> None:
            super().__init__(session)
            self.share_files = not shuffle

        def map(self, work: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
            made = list(super().map(work, items))
            return iter(random.sample(made, len(made)))

    monkeypatch.setattr("checker.ingest.read_tables.ROWS_PER_SOURCE", 400)
    monkeypatch.setattr(stages, "bins", scattered)
    monkeypatch.setattr(spark_job, "SparkWorkers", Arriving)
    told, made = check(folders, session=spark)
    assert told == check_run(folders[0])
    assert made.anomalies == check_run(tmp_path / "made").anomalies


def shuffled(folder: Path, target: Path, seed: int) -> Path:
    """Return the run with its tables' rows in another order, in two files of small groups."""
    target.mkdir()
    (target / "run.json").write_bytes((folder / "run.json").read_bytes())
    for path in folder.glob("tables/*.parquet"):
        rows = pq.read_table(path)
        order = Random(seed).sample(range(rows.num_rows), rows.num_rows)
        parts = target / "tables" / path.name
        parts.mkdir(parents=True)
        for name, part in (("b", order[: len(order) // 2]), ("a", order[len(order) // 2 :])):
            pq.write_table(rows.take(pa.array(part)), parts / f"{name}.parquet", row_group_size=150)
    return target


@pytest.mark.parametrize("seed", range(3))
def test_the_result_does_not_depend_on_the_order_of_facts(tmp_path: Path, seed: int) -> None:
    folder = badly().write(tmp_path)
    blocks = facts_of(folder)
    pieces = [block.take(np.array([row])) for block in blocks for row in range(block.count)]
    Random(seed).shuffle(pieces)
    told, due = ([judge_group(group) for group in groups_of(made)] for made in (pieces, blocks))
    assert told == due


def test_a_spark_that_died_is_one_sentence(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise ConnectionRefusedError("the JVM is gone.\nat java.lang.Thread")

    monkeypatch.setattr(spark_job.SparkWorkers, "map", gone)
    with pytest.raises(CheckerError, match=r"^Spark failed: the JVM is gone\.$"):
        check([well().write(tmp_path)], session=spark)
