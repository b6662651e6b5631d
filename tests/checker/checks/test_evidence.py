"""What a property needs to be said to hold: where that is missing it is unknown or not examined."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from checker.engine.local import check_run
from checker.evidence.needs import Need
from checker.formats.anomalies import (
    AGREEMENT,
    EXERCISE,
    LIVENESS,
    LOG,
    LOST_WRITES,
    OFFSETS,
    PROPERTIES,
    READS,
)
from checker.formats.verdict import RunResult, Verdict
from checker.ingest.external_history import run_folder_of
from tests.support.checker.story import NODES, Story, against
from tests.support.paths import ROOT


def of(result: RunResult, name: str) -> tuple[Verdict, str]:
    """Verdict and reason of a property."""
    found = result.properties[PROPERTIES.index(name)]
    return found.verdict, found.reason


def unknown(result: RunResult) -> set[str]:
    """The properties that are unknown; nothing may count against the system."""
    assert against(result) == {}
    return {p.property for p in result.properties if p.verdict is Verdict.UNKNOWN}


def whole(*partitions: str) -> Story:
    """A run that is valid: written, read, read again at the end, and in all logs."""
    s = Story(*partitions)
    batches = s.busy()
    s.phase("heal")
    s.final((0, 1_000_000, 12))
    s.agree(*batches)
    s.phase("end", 5_000)
    return s


def test_the_whole_run_is_valid(tmp_path: Path) -> None:
    assert whole().check(tmp_path).verdict is Verdict.VALID


# -- logs


@pytest.mark.parametrize(
    ("nodes", "found"), [(NODES[2:], {"corrupt-batch"}), (NODES, {"corrupt-batch", "vanished"})]
)
def test_a_batch_that_was_found_damaged_is_gone_and_not_missing_evidence(
    tmp_path: Path, nodes: tuple[str, ...], found: set[str]
) -> None:
    s = Story()
    batches = s.busy()
    s.agree(*batches)
    for node in nodes:
        last = s.logs[node][-1]
        s.logs[node][-1] = replace(last, hash="", records=(), epoch=-1, stored_hash=last.hash)
    result = s.check(tmp_path)
    assert found <= against(result).keys() <= found | {"tail-lost"}
    for name in (LOST_WRITES, AGREEMENT, OFFSETS):
        assert of(result, name)[0] is not Verdict.UNKNOWN


@pytest.mark.parametrize("left_out", [NODES[2:], NODES])
def test_a_finished_dump_that_leaves_a_partition_out(
    tmp_path: Path, left_out: tuple[str, ...]
) -> None:
    s = whole()
    for node in left_out:
        s.logs[node].clear()
    result = s.check(tmp_path)
    assert unknown(result) == {LOST_WRITES, AGREEMENT, OFFSETS, LOG, LIVENESS}
    assert of(result, AGREEMENT)[1].startswith(
        f"the dump of the logs of {left_out[0]} leaves log-0 out, though {left_out[0]} is one of "
        "its replicas"
    )


def test_an_empty_log_is_a_log(tmp_path: Path) -> None:
    s = whole()
    s.logs["n3"].clear()
    s.log("n3")
    assert against(s.check(tmp_path)) == {"not-converged": 1}


def test_the_last_record_is_gone_from_two_logs_and_the_third_dump_leaves_it_out(
    tmp_path: Path,
) -> None:
    s = Story()
    batches = s.busy()
    s.final((0, 1_000_000, 11))
    for node in NODES[:2]:
        s.log(node, *batches[:-1])
    assert s.check(tmp_path).verdict is not Verdict.VALID


def test_a_partition_that_run_json_does_not_name(tmp_path: Path) -> None:
    s = whole()
    s.run["partitions"] = {}
    result = s.check(tmp_path)
    assert LOST_WRITES in unknown(result)
    assert of(result, LOST_WRITES)[1].startswith("run.json does not say which brokers have log-0")


def test_a_log_that_nobody_lists_as_missing(tmp_path: Path) -> None:
    s = whole()
    s.run["brokers"] = []
    folder = s.write(tmp_path)
    (folder / "logs" / "n2.jsonl").unlink()
    result = check_run(folder)
    assert of(result, AGREEMENT)[1].startswith("the log of log-0 on n2 is missing")


def test_a_dump_under_the_name_of_another_node(tmp_path: Path) -> None:
    s = whole()
    s.logs["n2"] = s.logs["n1"]
    result = s.check(tmp_path)
    assert result.verdict is Verdict.UNKNOWN
    assert result.sentence == (
        "unknown: logs/n2.jsonl holds a log of n1: it is not the dump of n2."
    )


# -- records


def test_a_batch_that_lists_fewer_records_than_it_has(tmp_path: Path) -> None:
    s = Story()
    s.send(10, 3, at=0)
    s.final((0, 10, 3))
    s.agree((10, 3))
    for node in NODES:
        batch = s.logs[node][1]
        s.logs[node][1] = replace(batch, records=(replace_count(batch.records[0], 2),))
    result = s.check(tmp_path)
    assert unknown(result) == {LOST_WRITES, OFFSETS}
    assert of(result, LOST_WRITES)[1].startswith(
        "the batch of log-0 at offset 0 on n1 lists 2 of its 3 records"
    )


def replace_count(run: object, count: int) -> object:
    return replace(run, count=count)  # type: ignore[type-var]


def test_a_batch_that_lists_nothing_where_others_know_of_records(tmp_path: Path) -> None:
    s = whole()
    s.logs["n2"][3] = replace(s.logs["n2"][3], records=())
    assert unknown(s.check(tmp_path)) == {LOST_WRITES, OFFSETS}


def test_a_batch_of_the_leader_itself_lists_nothing(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=1)
    s.final((1, 10))
    s.run["promise"]["contiguous_offsets"] = False
    s.agree((7, 1), (10, 1))
    for node in NODES:
        s.logs[node][1] = replace(s.logs[node][1], records=())
    assert unknown(s.check(tmp_path)) == set()


def test_one_log_has_prefix_hashes_and_another_has_none(tmp_path: Path) -> None:
    s = whole()
    s.logs["n2"] = [replace(line, hash="") for line in s.logs["n2"]]
    result = s.check(tmp_path)
    assert unknown(result) == {AGREEMENT}
    assert (
        "at offset 0 on n2 has no prefix hash, though other batches have one"
        in (of(result, AGREEMENT)[1])
    )


# -- records that must be shown to be there at the end


@pytest.mark.parametrize(("gone", "name"), [(slice(-5, None), "tail"), (slice(0, 10), "head")])
def test_what_final_reads_returned_is_in_no_log(tmp_path: Path, gone: slice, name: str) -> None:
    s = Story()
    batches = s.busy()
    s.final((0, 1_000_000, 12))
    s.agree(*batches)
    for node in NODES:
        head, *lines = s.logs[node]
        del lines[gone]
        s.logs[node] = [replace(head, offset=lines[0].offset, leo=lines[-1].offset + 1), *lines]
    found = against(s.check(tmp_path))
    assert found["vanished"] == len(batches[gone]), name


def test_a_final_reader_gets_nothing_below_what_was_read(tmp_path: Path) -> None:
    s = Story(capabilities=[])
    s.send(10, at=0)
    s.send(20, at=1)
    s.poll((0, 10), (1, 20))
    s.final((0, 10))
    s.poll(start=1, process=99, final=True)
    assert against(s.check(tmp_path)) == {"vanished": 1}


def test_a_final_reader_that_only_paused_says_nothing_of_the_end(tmp_path: Path) -> None:
    s = Story(capabilities=[])
    s.send(10, 3, at=0)
    s.poll((0, 10, 3))
    s.poll(start=0, process=99, final=True)
    s.poll((0, 10, 2), start=0, process=99, final=True)
    result = s.check(tmp_path)
    assert unknown(result) == {LOST_WRITES}
    assert of(result, LOST_WRITES)[1] == (
        "nothing shows that 1 acknowledged record of log-0 is still there: no final read returned "
        "value 12 at offset 2, and no log was dumped."
    )


EDN = """\
{:type :invoke, :f :send, :value [[:send 0 10]], :process 0, :time 1000}
{:type :ok, :f :send, :value [[:send 0 [0 10]]], :process 0, :time 2000}
{:type :invoke, :f :send, :value [[:send 0 11]], :process 0, :time 3000}
{:type :ok, :f :send, :value [[:send 0 [1 11]]], :process 0, :time 4000}
{:type :invoke, :f :poll, :value [[:poll]], :process 1, :time 5000}
{:type :ok, :f :poll, :value [[:poll {0 [[0 10] [1 11]]}]], :process 1, :time 6000}
{:type :invoke, :f :assign, :value [0], :process 2, :time 7000}
{:type :ok, :f :assign, :value [0], :seek-to-beginning? true, :process 2, :time 8000}
{:type :invoke, :f :poll, :value [[:poll]], :process 2, :time 9000}
{:type :ok, :f :poll, :value [[:poll {0 [[0 10]]}]], :process 2, :time 10000}
"""
EMPTY_POLL = """\
{:type :invoke, :f :poll, :value [[:poll]], :process 2, :time 11000}
{:type :ok, :f :poll, :value [[:poll ANSWER]], :process 2, :time 12000}
"""


@pytest.mark.parametrize("answer", ["{}", "{0 []}"])
def test_a_final_poll_of_jepsen_gets_nothing_below_what_was_read(
    tmp_path: Path, answer: str
) -> None:
    file = tmp_path / "history.edn"
    file.write_text(EDN)
    result = check_run(run_folder_of(file))
    assert unknown(result) == {LOST_WRITES}, "it may have been about to read on"
    file.write_text(EDN + EMPTY_POLL.replace("ANSWER", answer))
    assert against(check_run(run_folder_of(file))) == {"vanished": 1}


def test_an_acknowledged_offset_that_committed_logs_have_another_value_at(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=0)
    s.send(20, outcome="info", process=2)
    for node, value in zip(NODES, (20, 20, 10), strict=True):
        s.log(node, (value, 1), hw=1 if value == 20 else 0)
    assert against(s.check(tmp_path)) == {"lost": 1}


def test_an_acknowledged_record_that_one_follower_has(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=0)
    s.send(20, at=1)
    for node in NODES[:2]:
        s.log(node, (10, 1))
    s.log(NODES[2], (10, 1), (20, 1), hw=1)
    result = s.check(tmp_path)
    assert unknown(result) == {LOST_WRITES}
    assert of(result, LOST_WRITES)[1] == (
        "nothing shows that 1 acknowledged record of log-0 is still there: no final read returned "
        "value 20 at offset 1, and only the log of n3 has it."
    )


def test_what_nobody_promised_needs_no_proof(tmp_path: Path) -> None:
    s = Story(capabilities=[], promise={"acks": 1, "durable_acks": False})
    s.send(10, at=0, acks=1)
    assert unknown(s.check(tmp_path)) == set()


def test_an_interrupted_consumer_passed_over_nothing_below_its_start(tmp_path: Path) -> None:
    s = Story()
    s.send(10, 9, at=0)
    s.poll((6, 16, 3), start=6)
    for node in NODES:
        s.log(node, (10, 9), hw=0)
    s.logs["n3"].clear()
    s.log("n3", hw=0)
    result = s.check(tmp_path / "interrupted")
    assert unknown(result) == {LOST_WRITES}
    s.poll((3, 13), start=3, process=8)
    s.poll((5, 15), start=5, process=8)
    found = against(s.check(tmp_path / "passed"))
    assert found["lost"] == 1, "it jumped over what is at 4"


# -- duplicates that nobody read


def test_a_value_is_twice_in_the_committed_logs(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=0)
    s.final((0, 10))
    s.agree((10, 1), (10, 1))
    assert against(s.check(tmp_path)) == {"duplicate": 1}


def test_a_value_is_elsewhere_than_it_was_acknowledged_at(tmp_path: Path) -> None:
    s = Story()
    s.send(10, at=1)
    s.send(20, outcome="info", process=2)
    s.agree((10, 1), (20, 1))
    assert against(s.check(tmp_path)) == {"duplicate": 1}


# -- nothing to judge


def test_a_bare_history_examines_no_replica(tmp_path: Path) -> None:
    file = tmp_path / "history.edn"
    file.write_text(EDN)
    result = check_run(run_folder_of(file))
    for name in (AGREEMENT, READS, LOG, LIVENESS):
        assert of(result, name) == (Verdict.NOT_EXAMINED, "There was nothing to judge it by.")
    assert of(result, OFFSETS)[0] is Verdict.VALID


def test_a_run_of_which_nothing_was_examined_is_unknown(tmp_path: Path) -> None:
    s = Story(capabilities=[])
    s.schedule = {
        "workload": {"clients": 0, "consumers": 0, "operations": [{"what": "elect", "must": "any"}]}
    }
    s.op("assign", "ok", process=1, step=0)
    result = s.check(tmp_path)
    assert of(result, EXERCISE)[0] is Verdict.VALID
    assert result.verdict is Verdict.UNKNOWN
    assert result.sentence == (
        "unknown: Nothing was examined: no property had anything to be judged by."
    )


def test_the_document_names_every_need() -> None:
    text = (ROOT / "docs" / "checks.md").read_text().partition("## What each property needs")[2]
    named = {line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")}
    assert {need.value for need in Need} <= named


# -- a history that lacks lines


def without(s: Story, *ops: int) -> Story:
    s.history = [line for line in s.history if line.op not in ops]
    return s


def test_a_history_that_ends_before_the_final_reads(tmp_path: Path) -> None:
    s = whole()
    result = without(s, s.ops - 1).check(tmp_path)
    assert against(result) == {}
    assert result.sentence == ("unknown: history.jsonl ends 0.001 s before the final reads began.")


def test_a_history_that_lacks_an_operation(tmp_path: Path) -> None:
    result = without(whole(), 12).check(tmp_path)
    assert against(result) == {}
    assert result.sentence == (
        "unknown: history.jsonl lacks an operation: their numbers do not follow each other."
    )


def test_a_process_that_goes_on_after_an_operation_without_end(tmp_path: Path) -> None:
    s = whole()
    s.history = [line for line in s.history if line.op != 3 or line.type == "invoke"]
    result = s.check(tmp_path)
    assert against(result) == {}
    assert result.sentence == (
        "unknown: history.jsonl lacks the end of operation 3: its process 50 went on."
    )


# -- logs without prefix hashes


def unhashed(s: Story) -> Story:
    for node in NODES:
        s.logs[node] = [replace(line, hash="") for line in s.logs[node]]
    return s


def test_logs_without_hashes_are_compared_by_their_records(tmp_path: Path) -> None:
    s = Story()
    s.send(10, outcome="info")
    s.send(20, outcome="info")
    s.phase("heal")
    for node, value in zip(NODES, (10, 20, 10), strict=True):
        s.log(node, (value, 1), hw=0)
    s.phase("end", 5_000)
    found = unhashed(s).check(tmp_path)
    assert against(found) == {"divergent-tail": 1}


def test_a_log_begins_above_what_was_acknowledged(tmp_path: Path) -> None:
    s = unhashed(whole())
    head, _, *lines = s.logs["n2"]
    s.logs["n2"] = [replace(head, offset=1, epochs=()), *lines]
    found = s.check(tmp_path / "deleted")
    assert against(found) == {"log-hole": 1}
    s.run["promise"]["retention"] = True
    assert against(s.check(tmp_path / "allowed")) == {}


def test_the_oldest_records_may_be_deleted_where_that_is_promised(tmp_path: Path) -> None:
    s = unhashed(whole())
    s.run["promise"]["retention"] = True
    for node in NODES:
        head, _, *lines = s.logs[node]
        s.logs[node] = [replace(head, offset=1, epochs=()), *lines]
    assert against(s.check(tmp_path)) == {}


@pytest.mark.parametrize("state", ["running", "interrupted"])
@pytest.mark.parametrize("answered", [False, True])
def test_a_harness_that_ended_amid_the_final_reads_blames_nobody(
    tmp_path: Path, state: str, answered: bool
) -> None:
    """What the readers had not reached yet is not lost; once the cluster was stopped, it is."""
    s = Story(state=state)
    s.send(10, at=0)
    s.send(20, at=1)
    s.poll((1, 20), start=1)
    s.send(30, at=2)
    s.final((0, 10), hw=1, outcome="ok" if answered else "info")
    result = s.check(tmp_path / "amid")
    assert against(result) == {}
    assert unknown(result) == {LOST_WRITES}
    s.phase("end")
    assert "unseen" in against(s.check(tmp_path / "after"))
    assert ("vanished" in against(s.check(tmp_path / "stated"))) == answered
