"""Logs and traces for property tests: three replicas of one history, some of them astray."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

from tests.support.checker.story import NODES, Batch, P, Story

Pairs = list[tuple[int, int]]
"""The count and the epoch of each batch."""
Producer = tuple[int, int, int]
_EMPTY: dict[str, dict[str, Any]] = {"hash": {"hash": ""}, "epoch": {"epoch": -1}}
_wrong = st.sampled_from(
    [
        *[""] * 5,
        *("bytes", "hole", "end", "no end", "cache", "no cache", "start", "hash", "epoch"),
        "unfinished",
    ]
)
# The producer, its epoch, its sequence; None is a batch of no producer.
_producer = st.tuples(st.integers(0, 1), st.sampled_from([0, 0, 0, 1]), st.integers(0, 4))
_batches = st.lists(st.tuples(st.integers(1, 2), st.integers(0, 2)), min_size=5, max_size=5)


def _history(of: Pairs, branch: int, most: int) -> list[Batch]:
    """Return the first batches (value, count, epoch) of a history: branch 1 has another third
    batch, branch 2 cuts its second."""
    made: list[Batch] = [(10 * i, count, epoch) for i, (count, epoch) in enumerate(of)]
    if branch == 1:
        made[2] = (25, made[2][1], made[2][2])
    if branch == 2:
        value, _, epoch = made[1]
        made[1:2] = [(value, 1, epoch), (value + 1, 1, epoch)]
    return made[:most]


@st.composite
def runs(draw: st.DrawFn) -> Story:
    """Draw a run. Its producers may be idempotent, a log may be missing, the last node may be no
    replica any more, and the replicas must have converged, or not yet, or it never healed."""
    s, of = Story(), draw(_batches)
    by = draw(st.lists(st.one_of(st.none(), _producer, _producer, _producer), max_size=5))
    s.run["promise"]["idempotent"] = draw(st.booleans())
    keep = draw(st.sampled_from([None, None, 0, 1, 2]))
    if keep is not None:
        s.run["promise"] |= {"retention": True, "retention_records": keep}
        s.run["capabilities"].append("hw")
    s.run["partitions"][P] = list(NODES[: draw(st.sampled_from([3, 3, 2]))])
    for node in NODES:
        if draw(st.sampled_from([True, True, True, False])):
            _add_log(draw, s, node, of, by)
    for what in draw(
        st.lists(st.sampled_from(["hw", "hw", "role", "append", "deleted"]), max_size=4)
    ):
        _add_event(draw, s, what, of)
    due = draw(st.sampled_from([True, True, False, None]))
    if due is not None:
        s.phase("heal", 10)
    s.phase("end", 10 + s.run["recovery_limit_ms"] - (due is False))
    return s


def _add_log(
    draw: st.DrawFn, s: Story, node: str, of: Pairs, by: list[tuple[int, ...] | None]
) -> None:
    """Draw a replica's log: how much of which history, and what is wrong with it."""
    mine = _history(of, draw(st.sampled_from([0, 0, 0, 1, 2])), draw(st.integers(0, 4)))
    end, wrong = sum(batch[1] for batch in mine), draw(_wrong)
    more: dict[str, Any] = {}
    if "cache" in wrong:
        more["epochs"] = [(0, 0), (2, 1)] if wrong == "cache" else []
    elif wrong in ("end", "no end"):
        more["leo"] = end + 1 if wrong == "end" else -1
    s.log(node, *mine, hw=min(draw(st.integers(0, 7)), end + 1), **more)
    lines = s.logs[node]
    for number, one in enumerate(by[: len(mine)], 1):
        control = one is None and s.run["promise"]["idempotent"]
        of_control = {"control": True, "records": ()} if control else {}
        lines[number] = msgspec.structs.replace(lines[number], produced=one, **of_control)
    if wrong == "start":
        lines[0] = msgspec.structs.replace(lines[0], offset=1)
    if wrong == "bytes" and mine:
        lines[-1] = msgspec.structs.replace(lines[-1], stored_hash="00000000000000ff")
    if wrong == "unfinished":
        s.unfinished.add(node)
    if wrong in _EMPTY:
        lines[1:] = [msgspec.structs.replace(line, **_EMPTY[wrong]) for line in lines[1:]]
    if wrong == "hole" and len(mine) > 1:
        del lines[1]


def _add_event(draw: st.DrawFn, s: Story, what: str, of: Pairs) -> None:
    """Draw a line of a trace: a HW, a leadership, an append as leader, or a deletion."""
    node, count = draw(st.sampled_from(NODES)), draw(st.integers(0, 4))
    mine = _history(of, draw(st.sampled_from([0, 0, 1])), count)
    end, epoch, ms = sum(b[1] for b in mine), draw(st.integers(0, 3)), draw(st.integers(1, 5))
    if what == "hw":
        s.hw(node, *mine, epoch=epoch, ms=ms)
    elif what == "deleted":
        s.event(node, "deleted", start=end, leo=end, hash="", ms=ms)
    else:
        leo = end if count or what == "append" else -1
        about = {"role": "leader", "leader_epoch": epoch, "hw": 0, "base_offset": 0, "hash": ""}
        s.event(node, what, leo=leo, ms=ms, **about)
