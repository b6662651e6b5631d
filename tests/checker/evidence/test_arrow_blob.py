"""Facts on their way to their group: nothing is lost or mixed up, in whatever form they travel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from checker.evidence import arrow_blob
from checker.evidence.arrow_blob import BlobFile, arrow_blobs, packed, unpacked
from checker.evidence.columns import Rows, rows
from checker.evidence.facts import Polls, Sends
from checker.evidence.group import group_of
from checker.evidence.sorting import I64

ROWS = 9_000


def reads(seed: int, processes: int) -> Rows:
    """Draw reads of three partitions, operation by operation, each of some process."""
    random = np.random.default_rng(seed)
    process: I64 = random.integers(0, processes, ROWS)
    return rows(
        Polls,
        3,
        [f"p{number}" for number in process % 3],
        op=np.arange(ROWS) + seed * ROWS,
        process=process * 1_000_003,
        client=[f"c{number}" for number in process],
        offset=random.integers(0, 10**6, ROWS),
    )


@pytest.mark.parametrize("processes", [6, 2_000])
@pytest.mark.parametrize("filed", [False, True])
def test_each_partition_gets_its_rows_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: int, filed: bool
) -> None:
    monkeypatch.setattr(arrow_blob, "_FILED_FROM_ROWS", 1)
    blocks = [reads(seed, processes) for seed in (1, 0)]
    with BlobFile(tmp_path) as file:
        blobs = [*packed(arrow_blobs(blocks), file=file if filed else None)]
    assert [path.suffix for path in tmp_path.iterdir()] == [".arrow"] * filed
    names = ("op", "process", "offset", "client")
    whole = [r for b in blocks for r in zip(b.partition, *map(b.columns.get, names), strict=True)]
    for partition in ("p0", "p1", "p2"):
        own = [blob for blob in blobs if blob.partition == partition]
        found = group_of(partition, unpacked(own)).of(Polls)
        expected = sorted((r[1:] for r in whole if r[0] == partition), key=lambda r: (r[1], r[0]))
        client = [found.name(code) for code in found.client]
        assert [*zip(found.op, found.process, found.offset, client, strict=True)] == expected
        assert set(found.hw.tolist()) == {-1}


def test_small_blobs_make_no_file(tmp_path: Path) -> None:
    with BlobFile(tmp_path) as file:
        list(packed(arrow_blobs([rows(Sends, 0, ["p"], op=1)]), file=file))
    assert not list(tmp_path.iterdir())
