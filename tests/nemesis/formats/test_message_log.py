"""Messages that link rules dropped or held are written down, a few of each kind and second."""

from __future__ import annotations

import random

from nemesis.formats.message_log import MOST_A_SECOND, MessageLine, MessageSampler
from nemesis.links.pipeline import LinkPipeline
from nemesis.links.rule import LinkRule

Message = dict[str, object]


def test_every_second_and_kind_has_its_share() -> None:
    sampler = MessageSampler()
    kept = [
        sampler.line(second * 1_000_000 + i, "n1", "n2", "dropped", {"kind": kind, "hw": i})
        for second in range(3)
        for kind in ("fetch", "fetch-response")
        for i in range(40)
    ]
    lines = [line for line in kept if line is not None]
    assert len(lines) == 3 * 2 * MOST_A_SECOND
    assert lines[0] == MessageLine(
        t_us=0, sender="n1", receiver="n2", fate="dropped", kind="fetch", hw=0
    )
    assert {line.t_us // 1_000_000 for line in lines} == {0, 1, 2}


def test_only_what_never_arrived_or_waits_is_sampler() -> None:
    pipeline: LinkPipeline[Message] = LinkPipeline(lambda message: message, random.Random(1))
    told: list[tuple[str, str, object, str]] = []
    pipeline.on_affected = lambda a, b, load, fate: told.append((a, b, load["kind"], fate))
    for action, kind in (("drop", "fetch"), ("hold", "vote"), ("delay", "fetch-response")):
        pipeline.add(
            LinkRule(
                senders=("n1",),
                receivers=("n2",),
                kinds=(kind,),
                delay_ms=5,
                action=action,  # type: ignore[arg-type]
            )
        )
    for kind in ("fetch", "vote", "fetch-response", "alter-partition"):
        pipeline.carry("n1", "n2", {"kind": kind}, 1, 0)
    assert told == [("n1", "n2", "fetch", "dropped"), ("n1", "n2", "vote", "held")]


def test_a_spared_message_is_not_sampler() -> None:
    pipeline: LinkPipeline[Message] = LinkPipeline(lambda message: message, random.Random(1))
    told: list[str] = []
    pipeline.on_affected = lambda a, b, load, fate: told.append(fate)
    pipeline.exempts = lambda a, b, load: True
    pipeline.add(LinkRule(senders=("n1",), receivers=("n2",), action="drop"))
    assert pipeline.carry("n1", "n2", {"kind": "fetch"}, 1, 0) == 1
    assert told == []
