"""The sentence of a verdict counts every lost record, and says no more than was examined."""

from __future__ import annotations

import json
from pathlib import Path

from checker.engine.local import check_run
from checker.formats.verdict import Verdict
from checker.ingest.external_history import run_folder_of
from harness.formats.history import encode
from tests.support.checker.story import NODES, Story

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


def test_files_that_the_system_did_not_declare_are_no_evidence(tmp_path: Path) -> None:
    s = Story(capabilities=["trace"])
    batches = s.busy()
    s.final((0, 1_000_000, 12))
    # As evidence, these logs would be a divergence and a loss.
    for number, node in enumerate(NODES):
        s.log(node, (7_000_000 + number, 1), *batches[:-1])
    s.run["capabilities"] = ["trace"]
    result = s.check(tmp_path)
    assert [a.name for a in result.anomalies if a.verdict is Verdict.INVALID] == []
    assert (
        "logs/ has files that are not examined: the system does not declare logs."
        in result.measures["notes"]
    )
    about = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(about | {"capabilities": ["trace", "logs"]}))
    assert check_run(tmp_path).verdict is Verdict.INVALID
