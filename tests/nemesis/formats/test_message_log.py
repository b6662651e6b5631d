"""Messages that link rules dropped or held are written down, a few of each kind and second."""

from __future__ import annotations

from nemesis.formats.message_log import MOST_A_SECOND, MessageLine, MessageSampler


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
