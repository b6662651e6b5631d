"""The checks of a group, made by one worker or shared by two, come to the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checker.checks.registry import Scope, checks
from checker.engine import stages
from checker.engine.judge import Share, decoded, judge_group, judged_or_none, shares_joined
from checker.engine.stages import shares
from checker.evidence.arrow_blob import PackedBlob, arrow_blobs, packed
from checker.evidence.contents import READ_OK, evidence
from checker.evidence.group import groups_of
from checker.output import curves
from harness.bench.anomaly_injection import INJECTIONS
from harness.bench.synthetic import Size, make_history
from tests.support.checker.goldens import GOLDENS
from tests.support.checker.story import facts_of


def assert_shared_alike(folder: Path) -> None:
    """Each partition is judged by all checks, by both shares, and by each check alone."""
    facts = facts_of(folder)
    own = checks(Scope.PARTITION)
    for number, group in enumerate(groups_of(facts)):
        if not group.partition:
            continue
        whole = judge_group(group, measured=True)
        places, times = (
            judge_group(groups_of(facts)[number], measured=True, share=share)
            for share in (Share.PLACES, Share.TIMES)
        )
        assert shares_joined(places, times) == whole
        for check, found in zip(own, whole.findings, strict=True):
            alone = check.judge(groups_of(facts)[number])
            if group.history_whole:
                assert alone.anomalies == found.anomalies


@pytest.mark.parametrize("name", sorted(GOLDENS))
def test_goldens_in_shares(tmp_path: Path, name: str) -> None:
    for bad in (True, False):
        assert_shared_alike(GOLDENS[name].story(bad=bad).write(tmp_path / str(bad)))


@pytest.mark.parametrize("seed", range(3))
def test_what_was_injected_in_shares(tmp_path: Path, seed: int) -> None:
    size = Size(ops=6_000, keys=13, hot=0.5, seed=seed, anomalies=tuple(INJECTIONS))
    make_history(size, tmp_path / "run")
    assert_shared_alike(tmp_path / "run")


@pytest.mark.parametrize("name", sorted(GOLDENS))
def test_where_sends_begin_is_known_from_reads(tmp_path: Path, name: str) -> None:
    """As it is from all that is placed, of which acknowledged sends add nothing to the others."""
    for bad in (True, False):
        for group in groups_of(facts_of(GOLDENS[name].story(bad=bad).write(tmp_path / str(bad)))):
            known = evidence(group)
            if not group.partition or not len(known.sends):
                continue
            lowest, flags = known.place_of(known.sends.value)
            stated = known.sends.offset
            assert known.bases.tolist() == np.where(stated >= 0, stated, lowest).tolist()
            assert known.first_read.tolist() == ((flags & READ_OK) != 0).tolist()


def blobs_of(folder: Path) -> list[list[PackedBlob]]:
    """The facts of a run, group by group."""
    found: dict[str, list[PackedBlob]] = {}
    for blob in packed(arrow_blobs(facts_of(folder))):
        found.setdefault(blob.partition, []).append(blob)
    return list(found.values())


def test_only_a_partition_too_large_for_one_worker_is_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_history(Size(ops=4_000, keys=4, hot=0.9), tmp_path / "hot")
    make_history(Size(ops=4_000, keys=4), tmp_path / "spread")
    hot, spread = blobs_of(tmp_path / "hot"), blobs_of(tmp_path / "spread")
    assert {share for share, _ in shares(hot, 2)} == {Share.WHOLE}  # few rows
    monkeypatch.setattr(stages, "LARGE_GROUP_ROWS", 100)
    assert {share for share, _ in shares(spread, 2)} == {Share.WHOLE}
    work = shares(hot, 2)
    assert [share for share, _ in work[:3]] == [Share.PLACES, Share.TIMES, Share.WHOLE]
    assert work[0][1] is work[1][1]
    assert work[0][1][0].partition == "key-00"
    assert len(work) == len(hot) + 1


def test_a_share_that_needs_all_reads_has_the_group_judged_by_them(tmp_path: Path) -> None:
    make_history(Size(ops=1_000, keys=1), tmp_path / "run")
    (blobs,) = (b for b in blobs_of(tmp_path / "run") if b[0].partition == "key-00")
    places, times = (judged_or_none("key-00", blobs, s) for s in (Share.PLACES, Share.TIMES))
    whole = decoded({Share.WHOLE: judged_or_none("key-00", blobs)})
    assert whole is not None
    assert decoded({Share.TIMES: times, Share.PLACES: places}) == whole
    assert decoded({Share.TIMES: None, Share.PLACES: places}) is None
    assert decoded({Share.PLACES: None}) is None


NUMBERS = st.lists(st.integers(-50, 50), max_size=30)


@given(NUMBERS, NUMBERS, st.sampled_from([0, 1 << 20]))
def test_numbers_are_counted_as_they_are_met(
    first: list[int], second: list[int], most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(curves, "_MOST_COUNTERS", most)
        columns = [np.array(numbers, np.int64) for numbers in (first, second)]
        found = [column.tolist() for column in curves._counted(*columns)]
    every = sorted({*first, *second})
    assert found == [every, [first.count(n) for n in every], [second.count(n) for n in every]]
