"""Commands killed at drawn moments and called again: nothing is lost, done twice, or left."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from harness.formats.journal import SearchedRow, SearchRow, read_rows
from harness.formats.nightly_journal import AnyRow
from harness.search import findings
from tests.support.paths import ROOT
from tests.support.waiting import until

pytestmark = pytest.mark.nightly

NAIVE = "examples/naive_log/adapter.py:NaiveLog"
MOST_S = 60.0
TIMES = int(os.environ.get("FLOODMARK_KILLS", "4"))


@pytest.mark.parametrize(
    ("words", "journals", "rows"),
    [
        ("search --protocol quorum-naive --schedules 9999", "searches/*.jsonl", SearchRow),
        ("bugs find --only M19 --only M1 --seeds 2", "known-bugs/*.jsonl", SearchRow),
        (f"search --system {NAIVE} --schedules 99", "searches/*.jsonl", SearchRow),
        ("nightly --budget 30m --no-real", "nightly/*.jsonl", AnyRow),
    ],
)
def test_nothing_is_lost_or_done_twice(
    tmp_path: Path, words: str, journals: str, rows: Any
) -> None:
    rng, store = random.Random(f"{words} {time.time_ns()}"), tmp_path / "store"
    command = [sys.executable, "-m", "harness.cli", *words.split(), "--quiet", "--jobs", "1"]
    before: dict[Path, list[Any]] = {}

    for _ in range(TIMES):
        enough = size_of(store, journals) + rng.choice((1, 500, 1500))
        with subprocess.Popen([*command, "--store", str(store)], cwd=ROOT) as killed:
            wait_for(killed, store, journals, enough)
            with suppress(subprocess.TimeoutExpired):
                killed.wait(rng.uniform(0.0, 5.0))
            killed.kill()
        until(lambda: not left_of(store), "the end of its processes")
        after = {file: read_rows(file, rows) for file in store.glob(journals)}
        assert {file: after[file][: len(lines)] for file, lines in before.items()} == before
        before = after
    keys = Counter((file, row.key) for file in before for row in before[file] if row.key)
    assert max(keys.values(), default=1) == 1
    known = [row for lines in before.values() for row in lines]
    with_find = [row for row in known if isinstance(row, SearchedRow) and row.findings]
    wanted = {f.bucket for row in with_find if "known-bug/" not in row.key for f in row.findings}
    # One that was found at the last moment is written when the command is called again.
    assert len(wanted - {found.bucket for _, found in findings.load_all(store)}) <= 1


def wait_for(command: subprocess.Popen[bytes], store: Path, journals: str, size: int) -> None:
    """Wait until the journals are so long, for at most `MOST_S`: a machine under load takes long to
    the first row of a session, and a finding may be shrunk for minutes."""
    late_s = time.monotonic() + MOST_S

    def is_due() -> bool:
        late = time.monotonic() >= late_s or command.poll() is not None
        return late or size_of(store, journals) >= size

    until(is_due, "rows")


def size_of(store: Path, journals: str) -> int:
    """Return the size of the journals in bytes; each session begins with a row."""
    return sum(file.stat().st_size for file in store.glob(journals))


def left_of(store: Path) -> list[str]:
    """Return the processes that know the store."""
    said = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return [line for line in said.stdout.splitlines() if str(store) in line]
