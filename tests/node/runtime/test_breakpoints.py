"""A broker that stops at an exact place of a turn, and what a kill there leaves behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from node.core.messages import ProduceRequest, ProduceResponse
from node.formats.trace import APPEND, event
from node.runtime.breakpoints import Armed, Breakpoint, Breakpoints
from node.runtime.store import LmdbStorage
from tests.support.runtime_fakes import FakeCore
from tests.support.runtime_rig import BODY, Node, until

AT_THE_SECOND = Breakpoint(number=7, event="append", match={"partition": "log-0"}, nth=2)
BEFORE_COMMIT = Breakpoint(number=7, event="append", match={"leo": 2}, before="commit")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with Node(tmp_path, FakeCore) as made:
        yield made.start()


def write(node: Node, corr: int) -> None:
    node.send(ProduceRequest(corr=corr, partition="log-0"), BODY)


def stop_at_the_second_write(node: Node, point: Breakpoint) -> None:
    """Two writes, of which the second comes to the breakpoint."""
    node.breakpoints.order([point])
    node.produce("log-0", corr=1)
    write(node, corr=2)
    until(lambda: node.trace("break"), "the breakpoint")


def next_answer_of_a_new_process(node: Node) -> int:
    node.process.kill()
    node.ended()
    node.start()
    answer = node.produce("log-0", corr=3)
    assert isinstance(answer, ProduceResponse)
    assert answer.corr == 3, "the second write was answered after all"
    return answer.base_offset


@pytest.mark.integration
def test_a_kill_before_the_send_leaves_an_unacknowledged_write(node: Node) -> None:
    stop_at_the_second_write(node, AT_THE_SECOND)
    (told,) = node.trace("break")
    assert (told["number"], told["before"], told["at"], told["partition"]) == (
        7,
        "send",
        "append",
        "log-0",
    )
    assert [one["leo"] for one in node.trace("append")] == [1, 2]
    assert node.breakpoints.reached() == {7}
    assert next_answer_of_a_new_process(node) == 2


@pytest.mark.integration
def test_a_kill_before_the_commit_leaves_nothing_of_the_turn(node: Node) -> None:
    stop_at_the_second_write(node, BEFORE_COMMIT)
    assert [one["leo"] for one in node.trace("append")] == [1]
    assert next_answer_of_a_new_process(node) == 1


@pytest.mark.integration
@pytest.mark.parametrize("point", [AT_THE_SECOND, BEFORE_COMMIT])
def test_a_released_process_goes_on_where_it_stopped(node: Node, point: Breakpoint) -> None:
    stop_at_the_second_write(node, point)
    node.breakpoints.order([])
    answer = node.receive()
    assert isinstance(answer, ProduceResponse)
    assert (answer.corr, answer.base_offset) == (2, 1)
    assert node.produce("log-0", corr=3) == ProduceResponse(
        corr=3, partition="log-0", appended=True, base_offset=2
    )


@pytest.mark.integration
def test_a_breakpoint_stops_one_process_once(node: Node) -> None:
    stop_at_the_second_write(node, AT_THE_SECOND)
    node.breakpoints.order([AT_THE_SECOND.__class__(number=8, event="append", nth=5)])
    node.receive()
    for corr in (3, 4, 5):
        node.produce("log-0", corr)
    assert len(node.trace("break")) == 1


@pytest.mark.integration
def test_a_request_to_stop_ends_the_standing_too(node: Node) -> None:
    stop_at_the_second_write(node, AT_THE_SECOND)
    assert node.stop() == 0
    answer = node.receive()
    assert isinstance(answer, ProduceResponse)
    assert answer.corr == 2
    store = LmdbStorage(node.config.data_dir, "boot-1")
    assert len(list(store.batches("log-0"))) == 2
    store.close()


@pytest.mark.integration
def test_breakpoints_of_the_start_are_in_force_from_the_first_turn(tmp_path: Path) -> None:
    first = Breakpoint(number=1, event="started")
    with Node(tmp_path, FakeCore, breakpoints=(first,)) as node:
        node.start()
        until(lambda: node.trace("break"), "the breakpoint")
        node.breakpoints.order([])
        assert node.stop() == 0


def test_without_a_pipe_nothing_ever_stops() -> None:
    points = Breakpoints(Armed("n1", 1, [Breakpoint(number=1, event="append")]))
    assert (
        points.reached(
            [event(APPEND, "log-0", base_offset=0, leo=1, leader_epoch=1, hash="", role="leader")]
        )
        is None
    )
    assert points.wake_fd == -1
