"""The reads of a hot partition, split by offset and downsampled, come to the same findings."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from checker.engine import offset_ranges
from checker.engine.judge import judge_group
from checker.engine.local import check_run
from checker.engine.offset_ranges import (
    Ranges,
    downsampled,
    may_split,
    ranges_of,
    split,
    splittable,
)
from checker.engine.spark_job import SparkExecutor, check
from checker.evidence.facts import Kind
from checker.evidence.group import groups_of
from checker.ingest.ingest import ingest, sources
from checker.ingest.lines import Problems
from checker.ingest.read_head import read_meta
from harness.bench.anomaly_injection import INJECTIONS
from harness.bench.synthetic import Made, Size, make_history
from tests.support.checker.goldens import GOLDENS
from tests.support.checker.story import Story


def facts_of(folder: Path) -> list[pa.RecordBatch]:
    """All facts of a run."""
    return [block for source in sources(0, folder) for block in ingest(source, None).facts]


def downsample(facts: list[pa.RecordBatch], ranges: Ranges, seed: int) -> list[pa.RecordBatch]:
    """The same facts after the reads of each partition went through ranges, in any order."""
    random = np.random.default_rng(seed)
    kept, parts = [], defaultdict(list)
    for block in facts:
        every = dict.fromkeys(block.column("partition").unique().to_pylist(), ranges)
        for number, rows in split(block, every):
            if number == offset_ranges.WHOLE:
                kept.append(rows)
                continue
            shuffled = rows.take(pa.array(random.permutation(rows.num_rows)))
            for partition in shuffled.column("partition").unique().to_pylist():
                own = np.array(shuffled.column("partition").to_pylist()) == partition
                parts[partition, number].append(shuffled.filter(pa.array(own)))
    for (partition, number), blocks in parts.items():
        kept += [b for b in downsampled(0, partition, number, blocks) if b.num_rows]
    return kept


def assert_same(facts: list[pa.RecordBatch], ranges: Ranges, seed: int) -> Counter[bool]:
    """Compare group by group; how many could be judged when downsampled, and how many not."""
    whole = {group.partition: group for group in groups_of(facts)}
    seen: Counter[bool] = Counter()
    for group in groups_of(downsample(facts, ranges, seed)):
        seen[splittable(group)] += 1
        if splittable(group):
            expected = whole[group.partition]
            assert judge_group(group, measured=True) == judge_group(expected, measured=True)
    return seen


def reads_in(facts: list[pa.RecordBatch]) -> int:
    return sum(b.num_rows for b in facts if b.column("kind")[0].as_py() == Kind.READ)


@pytest.fixture(scope="module")
def injected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Made]:
    folder = tmp_path_factory.mktemp("slices") / "hot"
    return folder, make_history(
        Size(ops=12_000, keys=13, hot=0.5, anomalies=tuple(INJECTIONS)), folder
    )


@pytest.mark.parametrize(("width", "seed"), [(1_000_000, 1), (300, 2), (41, 3)])
def test_what_was_planted_is_found_in_any_ranges(
    injected: tuple[Path, Made], width: int, seed: int
) -> None:
    facts = facts_of(injected[0])
    seen = assert_same(facts, Ranges(0, width, 100), seed)
    assert seen[True] >= 13
    assert reads_in(downsample(facts, Ranges(0, width, 100), seed)) < reads_in(facts) * 2 / 3


@pytest.mark.parametrize("name", sorted(GOLDENS))
def test_goldens_in_ranges(tmp_path: Path, name: str) -> None:
    for bad in (True, False):
        folder = GOLDENS[name].story(bad=bad).write(tmp_path / str(bad))
        if may_split(read_meta(folder, Problems())):
            for width in (1, 3, 1_000):
                assert_same(facts_of(folder), Ranges(0, width, 8), width)


POLLS = st.lists(
    st.tuples(
        st.integers(0, 2),  # process
        st.sampled_from([0, 0, 0, 0, 0, 0, 0, 1, -1, -3, 6]),  # how far off it begins
        st.integers(0, 4),  # records
        st.sampled_from(["ok"] * 8 + ["info"]),
        st.sampled_from([0] * 9 + [-2, 1]),  # of the stated end
        st.sampled_from([False] * 12 + [True]),  # whether a record is another one
        st.sampled_from([False] * 4 + [True]),  # final
    ),
    min_size=4,
    max_size=40,
)


@given(POLLS, st.integers(1, 30), st.booleans())
def test_polls_of_any_sort_in_ranges(
    polls: list[tuple[int, int, int, str, int, bool, bool]], width: int, one_by_one: bool
) -> None:
    s = Story()
    for at in range(0, 24, 2):
        s.send(100 + at, 2, at=at)
    places: dict[int, int] = defaultdict(int)
    for process, off, count, outcome, stated, wrong, final in polls:
        begin = max(places[process] + off, 0)
        runs = [(begin, 100 + begin, count)] if count else []
        if one_by_one or wrong:
            runs = [(begin + i, 100 + begin + i + (50 if wrong else 0)) for i in range(count)]
        s.poll(
            *runs,
            start=places[process],
            hw=begin + count + stated,
            process=process + 20,
            outcome=outcome,
            final=final,
        )
        places[process] = begin + count
    assert_same(told(s), Ranges(0, width, 12), width)


def steady(s: Story, *hws: int, process: int = 21, begin: int = 0, **how: Any) -> None:
    """Polls of one record each that go on from one another; `hws` are the stated ends."""
    for at, hw in enumerate(hws, begin):
        s.poll((at, 100 + at), process=process, hw=hw, **how)


def the_stated_end_goes_back(s: Story) -> None:
    steady(s, 20, 20, 15, 20, 20, 20)


def more_is_read_than_the_stated_end(s: Story) -> None:
    steady(s, 20, 20, 20, 20, 20, 20, process=20)
    steady(s, 3, 3, 3, 3, 3, 3)


def one_final_read_says_where_it_began(s: Story) -> None:
    s.send(300, at=6)
    s.poll((6, 300), process=30)
    s.poll((6, 106), process=31)
    steady(s, -1, begin=5, final=True)
    steady(s, 20, begin=6, final=True, start=6)
    steady(s, 20, begin=7, final=True, start=7)


def what_is_read_first_may_not_have_been(s: Story) -> None:
    s.poll((1, 101), process=20, outcome="info")
    steady(s, 20, 20, 20, 20)


@pytest.mark.parametrize(
    "tell",
    [
        the_stated_end_goes_back,
        more_is_read_than_the_stated_end,
        one_final_read_says_where_it_began,
        what_is_read_first_may_not_have_been,
    ],
)
def test_what_may_not_be_left_out(tell: Callable[[Story], None]) -> None:
    s = Story()
    for at in range(8):
        s.send(100 + at, at=at)
    tell(s)
    assert assert_same(told(s), Ranges(0, 100, 2), 1)[False] == 0


def told(story: Story) -> list[pa.RecordBatch]:
    """The facts of a story."""
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        return facts_of(story.write(Path(name)))


def test_final_reads_that_are_left_out_have_got_their_records() -> None:
    s = Story()
    for at in range(8):
        s.send(100 + at, at=at)
    steady(s, *[20] * 8, process=20)
    steady(s, *[20] * 8, process=30, final=True)
    assert assert_same(told(s), Ranges(0, 100, 2), 1) == {True: 3}


def test_offsets_far_apart_are_not_expanded() -> None:
    s = Story()
    far = 2**62
    s.send(10, at=0)
    s.send(11, at=far)
    for process in range(20, 25):
        s.poll((0, 10), start=0, process=process)
        s.poll((far, 11), start=1, process=process)
    assert assert_same(told(s), Ranges(0, far // 7, 8), 1)[True]


def test_who_leaves_a_range_and_comes_back_is_judged_whole() -> None:
    s = Story()
    for at in range(12):
        s.send(100 + at, at=at)
    for at in (0, 1, 2, 9, 3, 4, 5):
        s.poll((at, 100 + at))
    assert assert_same(told(s), Ranges(0, 6, 2), 1)[False] == 1


@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("back", [False, True])
def test_spark_splits_what_is_hot(
    spark: SparkSession,
    injected: tuple[Path, Made],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    back: bool,
) -> None:
    folder, _ = injected
    monkeypatch.setattr(offset_ranges, "RANGE_ROWS", 3_000)
    monkeypatch.setattr(offset_ranges, "_SAMPLED_FROM_ROWS", 0)
    about = read_meta(folder, Problems())
    (hot,) = ranges_of(folder / "tables", about).values()
    assert hot.number > 2
    if back:
        comes_back(folder, tmp_path / "hot", hot)
        folder = tmp_path / "hot"
    asked = []
    really = SparkExecutor._rows
    monkeypatch.setattr(SparkExecutor, "_rows", lambda *a: asked.append(a[2:]) or really(*a))
    (result,) = check([folder], session=spark, out=tmp_path / "out")
    assert result == check_run(folder)
    assert len(asked) == (2 if back else 1)


def comes_back(folder: Path, target: Path, ranges: Ranges) -> None:
    """The same run, in which a consumer of the hot partition looks elsewhere in between."""
    (target / "tables").mkdir(parents=True)
    for path in [folder / "run.json", *folder.glob("tables/[ors]*s.parquet")]:
        (target / path.relative_to(folder)).write_bytes(path.read_bytes())
    table = pq.read_table(target / "tables/reads.parquet")
    rows = table.to_pylist()
    own = [i for i, row in enumerate(rows) if row["partition"] == "key-00"]
    at = next(i for i in own if rows[i]["offset"] == ranges.width // 2)
    far = next(i for i in own if rows[i]["offset"] > ranges.width * 2)
    rows[at] = {**rows[at], "offset": rows[far]["offset"], "value": rows[far]["value"]}
    pq.write_table(pa.Table.from_pylist(rows, table.schema), target / "tables/reads.parquet")
