"""Large histories: generated ones hold what was injected, tables are judged as lines are, and
nothing is judged twice."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checker.engine import local
from checker.engine.local import MakeExecutor, RunToJudge, check_run, check_runs
from checker.engine.result_cache import own_name
from checker.evidence import sorting
from checker.evidence.columns import Words
from checker.evidence.facts import Outcome
from checker.evidence.run_meta import RunMeta
from checker.formats.verdict import Verdict
from checker.ingest import tables
from checker.ingest.counts import concat, tallied
from checker.ingest.read_tables import downsample_operations
from checker.output import measures
from checker.output.assemble import RunOutput
from harness.formats.run_info import Phases
from harness.runs.run_paths import run_folders
from node.formats.errors import UsageError
from tests.lab.bench.anomaly_injection import INJECTIONS
from tests.lab.bench.check import compare
from tests.lab.bench.synthetic import Made, Size, make_history
from tests.support.checker.story import Story
from tests.support.checker.story_text import steps_of, take


@pytest.fixture(scope="module")
def injected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Made]:
    folder = tmp_path_factory.mktemp("histories") / "injected"
    return folder, make_history(Size(ops=8_000, anomalies=tuple(INJECTIONS)), folder)


def test_a_made_history_is_valid(tmp_path: Path) -> None:
    made = make_history(Size(ops=4_000, keys=5, hot=0.9), tmp_path / "run")
    result = check_run(tmp_path / "run")
    assert result.verdict is Verdict.VALID, result.sentence
    assert made.ops == made.sends + made.polls == result.properties[-1].examined
    rows = {n: pq.read_table(tmp_path / f"run/tables/{n}.parquet") for n in ("sends", "reads")}
    assert rows["sends"].schema == tables.SCHEMAS["sends"]
    assert rows["reads"].schema == tables.SCHEMAS["reads"]
    assert rows["reads"].num_rows == made.records_read


def test_all_that_was_planted_is_found_and_nothing_else(injected: tuple[Path, Made]) -> None:
    folder, made = injected
    assert {p.name for p in made.injected} >= set(INJECTIONS)
    assert compare(made.injected, check_run(folder)) == ((), ())


@pytest.mark.parametrize(
    ("steps", "missed"),
    [
        (
            "busy; send 5 2 at=12; send 9 outcome=info process=3;"
            "op assign ok process=9 partitions=log-0,; final 0:1000000:12",
            0,
        ),
        ("script send:ok; send 5 at=0 step=0", 0),
        ("script send:ok; send 5 at=0 step=0 outcome=info", 1),
    ],
    ids=["operations of all kinds", "a scheduled operation", "a scheduled operation missed"],
)
def test_a_history_kept_as_tables_is_judged_as_its_lines_were(
    tmp_path: Path, steps: str, missed: int
) -> None:
    folder = take(Story(), [*steps_of(steps)]).write(tmp_path / "run")
    by_lines = check_run(folder, write=True)
    (folder / "history.jsonl").unlink()
    assert check_run(folder) == by_lines
    assert [a.name for a in by_lines.anomalies].count("operation-missed") == missed


def test_a_damaged_table_is_one_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    make_history(Size(ops=1_000, keys=3), folder)
    (folder / "tables/reads.parquet").write_bytes(b"PAR1 is not all it takes")
    result = check_run(folder)
    assert result.verdict is Verdict.UNKNOWN
    (problem,) = result.problems
    assert problem.startswith("tables/reads.parquet cannot be read: ")


def test_only_runs_that_changed_are_judged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = []
    for name in ("a", "b"):
        story = Story(run=name)
        story.busy()
        folders.append(story.write(tmp_path / name))
    judged: list[str] = []
    really = local.judge

    def watched(runs: Sequence[RunToJudge], make: MakeExecutor) -> list[RunOutput]:
        judged.extend(run.folder.name for run in runs)
        return really(runs, make)

    monkeypatch.setattr(local, "judge", watched)
    first = check_runs(folders, out=tmp_path / "out", again=False)
    left = {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*") if p.is_file()}
    assert check_runs(folders, out=tmp_path / "out", again=False) == first
    assert judged == ["a", "b"]
    assert left == {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*") if p.is_file()}
    history = folders[1] / "history.jsonl"
    os.utime(history, ns=(1, 1))
    check_runs(folders, out=tmp_path / "out", again=False)
    assert judged == ["a", "b", "b"]
    (tmp_path / "out" / own_name(folders[0]) / "results.json").write_bytes(b"{")
    assert check_runs(folders, out=tmp_path / "out", again=False) == first
    assert judged == ["a", "b", "b", "a"]


def test_a_store_stands_for_its_runs(tmp_path: Path) -> None:
    runs = [Story().write(tmp_path / "store" / "storm" / name) for name in ("1", "2")]
    (tmp_path / "store/storm/latest").symlink_to("2")
    assert run_folders([tmp_path / "store"]) == runs
    assert run_folders([runs[0], tmp_path / "store/storm"]) == [runs[0], *runs]
    with pytest.raises(UsageError, match="not a run folder"):
        run_folders([tmp_path])


@given(
    st.lists(
        st.tuples(*[st.sampled_from([-(2**63), -1, 0, 1, 7, 2**40, 2**63 - 1])] * 3), min_size=1
    ),
    st.integers(0, 2),
)
def test_sorting_is_by_all_columns(rows: list[tuple[int, ...]], small: int) -> None:
    ranges = [5] * small + [2**62] * (3 - small)
    made = (np.array(c, np.int64) for c in zip(*rows, strict=True))
    columns = [np.tile(c % most, 600) for c, most in zip(made, ranges, strict=True)]
    order = sorting.order_of(columns)
    assert order.tolist() == np.lexsort(columns[::-1]).tolist()
    ordered = [c[order] for c in columns]
    assert sorting.is_sorted(ordered)
    loosely = sorting.any_order_of(columns)
    assert all((c[loosely] == o).all() for c, o in zip(columns, ordered, strict=True))
    changed = any((c != o).any() for c, o in zip(columns, ordered, strict=True))
    assert sorting.is_sorted(columns) is not changed
    assert sorting.distinct(columns[0]).tolist() == sorted(set(columns[0].tolist()))


@given(st.lists(st.tuples(st.integers(0, 900), st.integers(0, 2), st.integers(0, 2)), min_size=1))
def test_few_operations_stand_for_all(ops: list[tuple[int, int, int]]) -> None:
    invoke, sent, outcome = (np.array(c, np.int64) for c in zip(*ops, strict=True))
    meta = RunMeta(phases=Phases(storm_us=100, heal_us=800))
    complete = invoke + 50
    given = {"invoke_us": invoke, "complete_us": complete, "sent": sent, "polled": sent}
    words = Words(outcome, [each.name.lower() for each in Outcome])
    made = {**given, "outcome": words, "step": np.full(len(ops), -1)}
    (block,) = downsample_operations(0, meta, made)
    names = ("invoke_us", "complete_us", "progress", "outcome", "count")
    kept = {name: block.numbers(name) for name in names}
    acked = (sent > 0) & (outcome == Outcome.OK)
    kept_acked = kept["progress"] & (kept["outcome"] == Outcome.OK)
    assert kept["count"].sum() == len(ops)
    assert kept["count"][kept_acked].sum() == acked.sum()
    if acked.any():
        assert kept["complete_us"][kept_acked].min() == complete[acked].min()
        assert kept["complete_us"][kept_acked].max() == complete[acked].max()

    def silence(t0: np.ndarray) -> int:
        inside = np.sort(t0[(t0 >= 100) & (t0 <= 800)])
        return int(np.diff(np.concatenate(([100], inside, [800]))).max())

    # Stretches are 3 us wide here; a silence worth telling is a third of the storm.
    if max(silence(invoke), silence(kept["invoke_us"])) > 6:
        assert silence(kept["invoke_us"]) == silence(invoke)


OPS = st.lists(
    st.tuples(
        st.integers(0, 3_000_000),
        st.integers(-1, 9_000),
        st.sampled_from(["send", "poll", "txn"]),
        st.sampled_from(["ok", "info", "fail"]),
        st.integers(0, 5),
    ),
    min_size=1,
)


@given(OPS)
def test_measures_from_counts_are_those_of_the_operations(
    ops: list[tuple[int, int, str, str, int]],
) -> None:
    rows = [
        (
            *("r", n, invoke, -1 if took < 0 else invoke + took, 1, "c1", f, outcome),
            *(False, "", sent, 0, -1, invoke // 1_000_000, 0, 0),
        )
        for n, (invoke, took, f, outcome, sent) in enumerate(ops)
    ]
    counted = tallied("r", {"ops": tables.all_columns_of(tables.from_rows("ops", rows))})
    known = measures.measure(
        *(concat([counted[n]] if n in counted else [], n) for n in ("tallies", "acks"))
    )
    for c in known.of("run"):
        same = [op for op in ops if op[2] == c.f]
        done = [op for op in same if op[3] == "ok" and op[1] >= 0]
        assert (c.ok, c.records) == (len(done), sum(op[4] for op in done))
        assert c.fail == sum(op[3] == "fail" for op in same)
        assert c.ok + c.fail + c.info == len(same)
        if done:
            took = np.array([op[1] for op in done])
            exact = np.quantile(took, measures.QUANTILES) / 1000
            low = (1 - 1 / 128) * exact - 0.001
            assert (low <= (c.p50_ms, c.p95_ms, c.p99_ms)).all()
            assert ((c.p50_ms, c.p95_ms, c.p99_ms) <= exact + 0.001).all()
    acked = sorted(
        i + t for i, t, _, outcome, sent in ops if outcome == "ok" and sent > 0 and t >= 0
    )
    gap = known.whole
    assert (gap.first_us, gap.last_us) == ((acked[0], acked[-1]) if acked else (-1, -1))
    longest = max(np.diff(acked), default=0)
    if longest > 2_000:
        assert gap.gap_us == longest
        assert gap.from_us == acked[int(np.argmax(np.diff(acked)))]
