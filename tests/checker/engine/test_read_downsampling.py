"""Reads that were downsampled where they were read come to the same findings."""

from __future__ import annotations

import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from checker.engine import stages
from checker.engine.judge import judge_group
from checker.engine.local import check_run
from checker.engine.read_downsampling import downsampled, splittable
from checker.engine.spark_job import check
from checker.engine.stages import StagedExecutor
from checker.evidence.columns import Rows
from checker.evidence.facts import Polls
from checker.evidence.group import groups_of
from tests.lab.bench.anomaly_injection import INJECTIONS
from tests.lab.bench.synthetic import Made, Size, make_history
from tests.support.checker.agreed import budget
from tests.support.checker.goldens import GOLDENS
from tests.support.checker.story import Story, facts_of
from tests.support.checker.story_text import blocks, steps_of, take


def downsample(facts: list[Rows], rows: int, seed: int) -> list[Rows]:
    """Downsample the same facts, with the reads cut into blocks of so many rows, in any order in a
    block. With an odd seed an operation may be in any block."""
    random = np.random.default_rng(seed)
    kept = []
    for part in facts:
        if part.kind is not Polls:
            kept.append(part)
            continue
        op = part.numbers("op")
        place = np.arange(len(op)) if seed % 2 == 0 else random.permutation(int(op.max()) + 1)[op]
        for number in np.unique(place // rows):
            own = random.permutation(np.flatnonzero(place // rows == number))
            kept += [each for each in downsampled(part.take(own)) if each.count]
    return kept


def assert_same(facts: list[Rows], rows: int, seed: int) -> Counter[bool]:
    """Compare group by group; how many could be judged when downsampled, and how many not."""
    whole = {group.partition: group for group in groups_of(facts)}
    seen: Counter[bool] = Counter()
    for group in groups_of(downsample(facts, rows, seed)):
        seen[splittable(group)] += 1
        if splittable(group):
            expected = whole[group.partition]
            assert judge_group(group, measured=True) == judge_group(expected, measured=True)
    return seen


def reads_in(facts: list[Rows]) -> int:
    return sum(part.count for part in facts if part.kind is Polls)


@pytest.fixture(scope="module")
def injected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Made]:
    folder = tmp_path_factory.mktemp("slices") / "hot"
    return folder, make_history(
        Size(ops=12_000, keys=13, hot=0.5, anomalies=tuple(INJECTIONS)), folder
    )


@pytest.mark.parametrize(("rows", "seed"), [(1_000_000, 0), (9_000, 2), (3_001, 4)])
def test_what_was_planted_is_found_in_any_blocks(
    injected: tuple[Path, Made], rows: int, seed: int
) -> None:
    facts = facts_of(injected[0])
    seen = assert_same(facts, rows, seed)
    assert seen[True] >= 13
    assert reads_in(downsample(facts, rows, seed)) < reads_in(facts) * 2 / 3


@pytest.mark.parametrize("name", sorted(GOLDENS))
def test_goldens_in_blocks(tmp_path: Path, name: str) -> None:
    for bad in (True, False):
        folder = GOLDENS[name].story(bad=bad).write(tmp_path / str(bad))
        for rows, seed in ((2, 2), (3, 1), (1_000, 4)):
            assert_same(facts_of(folder), rows, seed)


def _poll(count: int) -> tuple[Any, ...]:
    return (0, 0, count, "ok", 0, False, False, False, -1, ())


POLLS = st.lists(
    st.tuples(
        st.integers(0, 2),  # process
        st.sampled_from([0, 0, 0, 0, 0, 0, 0, 1, -1, -3, 6]),  # how far off it begins
        st.integers(0, 4),  # records
        st.sampled_from(["ok"] * 8 + ["info"]),
        st.sampled_from([0] * 9 + [-2, 1]),  # of the stated end
        st.sampled_from([False] * 12 + [True]),  # whether a record is another one
        st.sampled_from([False] * 4 + [True]),  # final
        st.booleans(),  # whether it states that the log ends there
        st.sampled_from([-1] * 6 + [0, 2, 5]),  # where it states that the log begins
        st.sampled_from([()] * 8 + [("log-0",)]),  # what moved while it ran
    ),
    min_size=4,
    max_size=40,
)


@budget(40)
@example([_poll(0), _poll(3), _poll(4), _poll(1)], 4, 0, False, 6, False)
@given(
    POLLS,
    st.integers(1, 50),
    st.integers(0, 9),
    st.booleans(),
    st.sampled_from([None, 24, 6]),
    st.booleans(),
)
def test_polls_of_any_sort_in_blocks(
    polls: list[tuple[int, int, int, str, int, bool, bool, bool, int, tuple[str, ...]]],
    rows: int,
    seed: int,
    one_by_one: bool,
    established: int | None,
    retention: bool,
) -> None:
    s = Story()
    s.promise(retention=retention)
    if established is not None:
        s.run["capabilities"].append("hw")
        s.hw("n1", (100, established), ms=0)
    for at in range(0, 24, 2):
        s.send(100 + at, 2, at=at)
    places: dict[int, int] = defaultdict(int)
    for process, off, count, outcome, stated, wrong, final, at_end, log_start, moved in polls:
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
            at_end=at_end,
            log_start=log_start,
            rebalanced=moved,
        )
        places[process] = begin + count
    assert_same(told(s), rows, seed)


class Steady(Story):
    """A story with polls of one record each that go on from one another."""

    def steady(self, *hws: int, process: int = 21, begin: int = 0, **how: Any) -> None:
        """Poll once for each stated end."""
        for at, hw in enumerate(hws, begin):
            self.poll((at, 100 + at), process=process, hw=hw, **how)


def told(story: Story) -> list[Rows]:
    with tempfile.TemporaryDirectory() as name:
        return facts_of(story.write(Path(name)))


LEFT_OUT = blocks(Path(__file__).with_name("left_out.txt"))


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_may_be_left_out_and_what_has_all_judged(name: str) -> None:
    s = Steady(capabilities=["trace", "epochs", *(["hw"] if "established" in name else [])])
    s.each(100, 8, at=0)
    take(s, [*steps_of(";".join(LEFT_OUT[name]))])
    whole = int(name.startswith("judged whole: "))
    assert assert_same(told(s), 100, 2) == Counter({True: 3 - whole, False: whole})


def test_a_poll_of_another_block_between_those_left_out_has_all_judged() -> None:
    s = Story()
    s.each(100, 12, at=0)
    for at in (0, 1, 2, 9, 3, 4, 5, 6):
        s.poll((at, 100 + at))
    facts = told(s)
    (polls,) = (part for part in facts if part.kind is Polls)
    strayed = polls.numbers("offset") == 9
    blocks = [polls.take(np.flatnonzero(own)) for own in (~strayed, strayed)]
    others = [part for part in facts if part is not polls]
    parts = [each for block in blocks for each in downsampled(block) if each.count]
    (group,) = (g for g in groups_of([*others, *parts]) if g.partition == "log-0")
    assert not splittable(group)


@pytest.mark.integration
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("back", [False, True])
def test_spark_gets_what_is_left(
    spark: SparkSession,
    injected: tuple[Path, Made],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    back: bool,
) -> None:
    folder, _ = injected
    monkeypatch.setattr(stages, "SMALL_BYTES", 0)
    if back:
        polls_of_another_file(folder, tmp_path / "hot")
        folder = tmp_path / "hot"
    asked = []
    really = StagedExecutor._groups
    monkeypatch.setattr(StagedExecutor, "_groups", lambda *a: asked.append(a[2]) or really(*a))
    (result,) = check([folder], session=spark, out=tmp_path / "out")
    assert result == check_run(folder)
    # Whether a record of key-06 vanished depends on every read of it; key-00 has its polls twice.
    assert asked == [None, {(0, "key-06")} | ({(0, "key-00")} if back else set())]


def polls_of_another_file(folder: Path, target: Path) -> None:
    """Add a poll of a consumer of the hot partition in another file."""
    (target / "tables/reads.parquet").mkdir(parents=True)
    for path in [folder / "run.json", *folder.glob("tables/[os]*s.parquet")]:
        (target / path.relative_to(folder)).write_bytes(path.read_bytes())
    table = pq.read_table(folder / "tables/reads.parquet")
    partition, op = (np.array(table.column(n).to_pylist()) for n in ("partition", "op"))
    process = np.array(table.column("process").to_pylist())
    first, second = np.unique(process[partition == "key-00"])[2:4]
    polls = np.unique(op[(partition == "key-00") & (process == second)])
    own = op == polls[len(polls) // 2]
    moved = np.where(own, first, process)
    table = table.set_column(
        table.schema.names.index("process"), "process", pa.array(moved, pa.int64())
    )
    for name, rows in (("a", ~own), ("b", own)):
        pq.write_table(
            table.filter(pa.array(rows)), target / "tables/reads.parquet" / f"{name}.parquet"
        )
