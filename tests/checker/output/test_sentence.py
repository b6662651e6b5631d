"""The sentence of a verdict counts every lost record, and says no more than was examined."""

from __future__ import annotations

from pathlib import Path

from checker.engine.local import check_run
from checker.ingest.external_history import run_folder_of
from harness.formats.history import encode
from tests.support.checker.story import Story

Q = "log-1"


def test_a_bare_history_is_valid_only_as_far_as_it_shows(tmp_path: Path) -> None:
    s = Story()
    s.busy()
    file = tmp_path / "bare.jsonl"
    file.write_bytes(b"".join(map(encode, s.history)))
    result = check_run(run_folder_of(file))
    assert result.sentence.endswith(
        "12 acknowledged records in 1 partition were kept, as far as a history alone shows: it "
        "records no faults, and no replica's log was examined."
    )
