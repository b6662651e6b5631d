"""The run of a `ClusterStage` as a story that the checker judges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from harness.formats.history import LogRun, RecordRun
from node.core import batch as batches
from tests.support.checker.story import NODES, P, Story

if TYPE_CHECKING:
    from tests.support.stage_cluster import ClusterStage

RETRIES: Final = 1000
"""Correlation ids above this are those of batches that were sent again."""


def story_of(stage: ClusterStage) -> Story:
    """Return what clients, brokers and disks say of the run until now."""
    story = Story(P, recovery_limit_ms=1)
    story.run["promise"] |= stage.promise | {
        "durable_acks": not stage.promise["unclean_election"],
        "idempotent": bool(stage.produced),
    }
    story.run["phases"] = {"start_us": 1, "storm_us": 1000}
    story.run["capabilities"] += ["logs", *["hw"] * stage.promise["retention"]]
    values = {text: number for number, (text, _) in reversed([*enumerate(stage.sent, 1)])}
    _send(stage, story)
    for start, at_ms, texts, hw in stage.reads:
        runs = [(offset, values[text]) for offset, text in texts]
        when = {"process": 100 + story.ops, "begin": at_ms, "end": at_ms}
        story.poll(*runs, start=start, hw=hw, **when)
    for e in stage.world.trace:
        story.traces[e["node"]].append({"incarnation": 1, **e})
    for node in NODES:
        story.logs[node] += _log(stage, node, values)
    return story


def _send(stage: ClusterStage, story: Story) -> None:
    """Tell each send with its last answer."""
    answers = stage.world.answers()
    for number, (text, acks) in enumerate(stage.sent, 1):
        answer = answers.get(number)
        when: dict[str, Any] = {}
        for nth, (again, at_ms) in enumerate(stage.retries, 1):
            if again == text and (answer is None or answer.error):
                answer = answers.get(RETRIES + nth, answer)
                when = {"process": 200 + number, "end": at_ms}
        outcome: Any = None
        if answer is not None:
            outcome = "info" if answer.appended else "fail"
            outcome = outcome if answer.error else "ok"
        at = answer.base_offset if answer and not answer.error else -1
        begin_ms = story.now_ms
        story.send(number, at=at, outcome=outcome, acks=acks, **when)
        if when:
            story.now_ms = begin_ms + 2  # others are sent before it is acknowledged


def _log(stage: ClusterStage, node: str, values: dict[str, int]) -> Iterator[LogRun]:
    """Yield the log of a replica as it is on disk; nothing if the partition has moved away."""
    replica = stage.world.nodes[node].replicas.get(P)
    if replica is None:
        return
    head = {"offset": replica.log.start, "hw": replica.hw, "leo": replica.leo}
    epochs = tuple(replica.log.cache.entries())
    yield LogRun(node=node, partition=P, count=0, epochs=epochs, **head)
    for base, (chain, data) in sorted(stage.world.log(node, P).items()):
        one = batches.view(data)
        records = (RecordRun(base, values[one.payload.decode()], one.count),)
        stamp = {"epoch": one.epoch, "hash": chain.hex()}
        yield LogRun(node=node, partition=P, offset=base, count=one.count, records=records, **stamp)
