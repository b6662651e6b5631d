"""Logs and traces for property tests: three replicas of one history, some of them astray."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from hypothesis import strategies as st

from tests.support.checker.story import NODES, Batch, P, Story


@dataclass(frozen=True)
class Log:
    """A replica's log: how much of which history, and what is wrong with it."""

    branch: int
    batches: int
    hw: int
    wrong: str


@dataclass(frozen=True)
class Event:
    """A line of a trace: a HW, a leadership, an append as leader, or a deletion."""

    what: str
    node: str
    branch: int
    batches: int
    epoch: int
    ms: int


logs = st.builds(
    Log,
    st.sampled_from([0, 0, 0, 1, 2]),
    st.integers(0, 4),
    st.integers(0, 7),
    st.sampled_from(
        [
            *[""] * 5,
            "bytes",
            "hole",
            "end",
            "no end",
            "cache",
            "no cache",
            "start",
            "hash",
            "epoch",
            "unfinished",
        ]
    ),
)
events = st.builds(
    Event,
    st.sampled_from(["hw", "hw", "role", "append", "deleted"]),
    st.sampled_from(NODES),
    st.sampled_from([0, 0, 1]),
    st.integers(0, 4),
    st.integers(0, 3),
    st.integers(1, 5),
)
Produced = tuple[int, int, int]
produced = st.tuples(
    st.booleans(),
    st.lists(
        st.one_of(
            st.none(),
            *[st.tuples(st.integers(0, 1), st.sampled_from([0, 0, 0, 1]), st.integers(0, 4))] * 3,
        ),
        max_size=5,
    ),
)
batches = st.lists(st.tuples(st.integers(1, 2), st.integers(0, 2)), min_size=5, max_size=5)


def history(of: list[tuple[int, int]], branch: int) -> list[Batch]:
    """Batches (value, count, epoch); branch 1 has another third batch, branch 2 cuts its second."""
    made: list[Batch] = [(10 * i, count, epoch) for i, (count, epoch) in enumerate(of)]
    if branch == 1:
        made[2] = (25, made[2][1], made[2][2])
    if branch == 2:
        value, _, epoch = made[1]
        made[1:2] = [(value, 1, epoch), (value + 1, 1, epoch)]
    return made


def tell(
    of: list[tuple[int, int]],
    held: list[Log | None],
    seen: list[Event],
    due: bool | None,
    moved: bool,
    keep: int | None = None,
    produced: tuple[bool, list[Produced | None]] = (False, []),
) -> Story:
    """Return the run as a story; `due` if its replicas must have converged, None if it never
    healed; `moved` if the last node is no replica any more; `keep`: so many records are kept when a
    head is deleted; `produced`: whether all producers are idempotent, and who wrote each batch."""
    s = Story()
    idempotent, by = produced
    s.run["promise"]["idempotent"] = idempotent
    if keep is not None:
        s.run["promise"] |= {"retention": True, "retention_records": keep}
        s.run["capabilities"].append("hw")
    s.run["partitions"][P] = list(NODES[: 2 if moved else 3])
    for node, log in zip(NODES, held, strict=True):
        if log is None:
            continue
        mine = history(of, log.branch)[: log.batches]
        end = sum(batch[1] for batch in mine)
        more: dict[str, object] = {}
        if log.wrong == "cache":
            more["epochs"] = [(0, 0), (2, 1)]
        elif log.wrong == "no cache":
            more["epochs"] = []
        elif log.wrong in ("end", "no end"):
            more["leo"] = end + 1 if log.wrong == "end" else -1
        s.log(node, *mine, hw=min(log.hw, end + 1), **more)  # type: ignore[arg-type]
        lines = s.logs[node]
        for number, one in enumerate(by[: len(mine)], 1):
            control = {"control": True, "records": ()} if one is None and idempotent else {}
            lines[number] = msgspec.structs.replace(lines[number], produced=one, **control)
        if log.wrong == "start":
            lines[0] = msgspec.structs.replace(lines[0], offset=1)
        if log.wrong == "bytes" and mine:
            lines[-1] = msgspec.structs.replace(lines[-1], stored_hash="00000000000000ff")
        if log.wrong == "unfinished":
            s.unfinished.add(node)
        if log.wrong in ("hash", "epoch"):
            unknown = {"hash": ""} if log.wrong == "hash" else {"epoch": -1}
            lines[1:] = [msgspec.structs.replace(line, **unknown) for line in lines[1:]]
        if log.wrong == "hole" and len(mine) > 1:
            del lines[1]
    for event in seen:
        mine = history(of, event.branch)[: event.batches]
        end = sum(batch[1] for batch in mine)
        if event.what == "hw":
            s.hw(event.node, *mine, epoch=event.epoch, ms=event.ms)
        elif event.what == "deleted":
            s.event(event.node, "deleted", start=end, leo=end, hash="", ms=event.ms)
        else:
            s.event(
                event.node,
                event.what,
                role="leader",
                leader_epoch=event.epoch,
                hw=0,
                leo=end if event.batches or event.what == "append" else -1,
                base_offset=0,
                hash="",
                ms=event.ms,
            )
    if due is not None:
        s.phase("heal", 10)
    s.phase("end", 10 + s.run["recovery_limit_ms"] - (due is False))
    return s


runs = st.tuples(
    batches,
    st.lists(st.one_of(logs, logs, logs, st.none()), min_size=3, max_size=3),
    st.lists(events, max_size=4),
    st.sampled_from([True, True, False, None]),
    st.sampled_from([False, False, True]),
    st.sampled_from([None, None, 0, 1, 2]),
    produced,
)
Run = tuple[Any, ...]
"""The arguments of `tell`."""
