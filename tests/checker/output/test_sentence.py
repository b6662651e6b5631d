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


def weak(s: Story) -> None:
    """Acknowledgements of the leader alone, which promise nothing."""
    s.run["promise"] |= {"acks": 1, "durable_acks": False, "committed_kept": False}


def test_a_loss_that_the_promise_allows_is_counted_all_the_same(tmp_path: Path) -> None:
    s = Story()
    weak(s)
    for value in range(20):
        s.send(100 + value, at=value, acks=1)
    s.agree(*((100 + value, 1) for value in range(6)))
    s.poll((0, 100, 6), start=0)
    result = s.check(tmp_path)
    assert result.verdict is Verdict.VALID
    assert result.sentence == (
        "valid: 14 of 20 acknowledged records are lost, which the promise allows (acks 0 or 1 do "
        "not promise that the record survives); the other 6 in 1 partition were kept; no fault "
        "took effect, and all replicas agree on what is committed."
    )


def test_replicas_that_may_differ_are_not_said_to_agree(tmp_path: Path) -> None:
    s = Story()
    s.run["promise"] |= {"disks_kept": False, "committed_kept": False, "durable_acks": False}
    for value in range(12):
        s.send(100 + value, at=value)
    s.send(200, outcome="info")
    s.log("n1", *((100 + value, 1) for value in range(12)))
    s.log("n2", *((100 + value, 1) for value in range(11)), (200, 1))
    s.log("n3", *((100 + value, 1) for value in range(12)))
    result = s.check(tmp_path)
    assert result.verdict is Verdict.VALID, result.sentence
    assert "replicas differ in what is committed, which the promise allows" in result.sentence
    assert "agree" not in result.sentence


def test_what_was_read_before_it_was_lost_counts_too(tmp_path: Path) -> None:
    s = Story()
    for value in range(12):
        s.send(100 + value, at=value)
    s.poll((0, 100, 9), start=0)
    s.agree((100, 1))
    s.final((0, 100))
    assert s.check(tmp_path).sentence.startswith(
        "invalid: 11 acknowledged records are lost (8 of them had been read before); first: 8 "
        "records of log-0 vanished after being read: "
    )


def test_the_losses_of_all_partitions_are_counted(tmp_path: Path) -> None:
    s = Story("log-0", Q)
    for partition, first in (("log-0", 100), (Q, 200)):
        s.send(first, 3, at=0, partition=partition)
        s.send(first + 10, at=3, partition=partition)
        s.poll((3, first + 10), partition=partition)
    assert s.check(tmp_path).sentence.startswith(
        "invalid: 6 acknowledged records in 2 partitions are lost; first: 3 acknowledged records "
        "of log-0 lost: "
    )


def test_a_record_that_was_read_but_never_acknowledged_is_told_apart(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=0)
    s.send(20, outcome="info")
    s.poll((1, 20))
    s.agree()
    assert s.check(tmp_path).sentence.startswith(
        "invalid: 2 records are lost, 1 of them acknowledged (1 of them had been read before); "
    )


def test_one_anomaly_that_says_it_all_is_not_repeated(tmp_path: Path) -> None:
    s = Story()
    s.send(10, 3, at=0)
    s.send(20, at=3)
    s.poll((3, 20))
    assert s.check(tmp_path).sentence.startswith("invalid: 3 acknowledged records of log-0 lost: ")


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


def test_without_logs_nothing_is_said_of_replicas(tmp_path: Path) -> None:
    s = Story(capabilities=[])
    s.busy()
    s.final((0, 1_000_000, 12))
    result = s.check(tmp_path)
    assert result.sentence.endswith(
        "12 acknowledged records in 1 partition were kept; no fault took effect; no replica's log "
        "was examined."
    )


def test_faults_are_counted_alike_by_verdict_and_measures(tmp_path: Path) -> None:
    s = Story()
    s.schedule = {"drawn": True, "faults": [{"what": "kill"}, {"what": "kill"}]}
    for index in range(2):
        s.fault(index, "kill", "inject", -5, nodes=["n1"])
    s.agree(*s.busy())
    result = s.check(tmp_path)
    assert result.measures["faults"] == 2
    assert result.sentence == (
        "not-exercised: Only 0 of 2 drawn faults took effect between acknowledged sends; fault 0 "
        "(kill) took effect before anything was acknowledged."
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
