"""Histories for property tests, which say anything."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from harness.formats.history import Read, RecordRun, Send
from tests.support.checker.story import NODES, P, Story

PARTITIONS = (P, "log-1")
OFFSETS = 6

_outcomes = st.sampled_from(["ok", "ok", "info", "fail"])
_places = st.integers(0, 1)
# Partition, count, offset, acks.
_sends = st.tuples(
    _places, st.integers(1, 2), st.integers(-1, OFFSETS), st.sampled_from([-1, -1, -1, 1])
)
# Offset, which send, which of its records, how many.
_runs = st.tuples(st.integers(0, OFFSETS), st.integers(-1, 4), _places, st.integers(1, 2))
# Partition, start, high watermark, runs.
_reads = st.tuples(
    _places, st.integers(-1, 3), st.integers(-1, OFFSETS), st.lists(_runs, max_size=3)
)
# Which send, count; then the high watermark, and whether the dump was finished.
_batches = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 2)), max_size=3)
_log = st.tuples(_batches, st.integers(0, 4), st.sampled_from([True, True, True, False]))
_logs = st.one_of(
    st.just((None, None, None)),
    st.tuples(_log, _log, _log),
    st.tuples(st.one_of(_log, st.none()), _log, _log),
    st.tuples(_log, st.none(), st.none()),
)
# Partition, time, high watermark.
_watermarks = st.lists(st.tuples(_places, st.integers(0, 9), st.integers(0, OFFSETS)), max_size=3)


def _contents(transactions: bool) -> dict[str, dict[str, st.SearchStrategy[Any]]]:
    """Return the sends, reads and partitions that an operation of each kind may have."""
    return {
        "send": {"sends": st.lists(_sends, min_size=1, max_size=1 + transactions)},
        "poll": {"reads": st.lists(_reads, min_size=1, max_size=2)},
        "moved": {"named": st.lists(_places, max_size=2, unique=True)},
        "txn": {
            "sends": st.lists(_sends, max_size=3),
            "reads": st.lists(_reads, max_size=2),
            "named": st.lists(_places, max_size=1),
        },
    }


@st.composite
def wild(draw: st.DrawFn, *, transactions: bool) -> Story:
    """Draw a story of operations of any kind. Its n-th send has the values 10 n, 10 n + 1, .."""
    s = Story(*PARTITIONS, capabilities=[], complete_reads=draw(st.booleans()))
    kinds = ["send", "send", "poll", "moved"] + ["txn", "txn"] * transactions
    contents = _contents(transactions)
    sent = 0
    free: dict[int, int] = {}
    # A process ends with an info; then its client goes on as another one.
    number: dict[int, int] = {}
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=7)):
        client, outcome = draw(st.integers(1, 2 + (kind != "send"))), draw(_outcomes)
        begin = max(draw(st.integers(0, 8)), free.get(client, 0))
        free[client] = end = begin + draw(st.integers(1, 4))
        process = number.get(client, client)
        if outcome == "info":
            number[client] = process + 10
        has = draw(st.fixed_dictionaries(contents[kind]))
        made = [_send(sent + n, *each) for n, each in enumerate(has.get("sends", ()))]
        sent += len(made)
        named = tuple(PARTITIONS[where] for where in has.get("named", ()))
        s.op(
            draw(st.sampled_from(["assign", "subscribe", "crash"])) if kind == "moved" else kind,
            outcome,
            sends=[before for before, _ in made],
            acked=[after for _, after in made],
            reads=[_read(*each) for each in has.get("reads", ())],
            process=process,
            begin=begin,
            end=end,
            final=kind == "poll" and draw(st.booleans()),
            **({"rebalanced": named} if kind == "txn" else {"partitions": named}),
        )
    _surround(draw, s)
    return s


def _send(number: int, where: int, count: int, offset: int, acks: int) -> tuple[Send, Send]:
    """Return a send as it begins and as it ends."""
    common = {"partition": PARTITIONS[where], "value": 10 * number, "count": count, "acks": acks}
    return Send(**common), Send(**common, offset=offset)


def _read(where: int, start: int, hw: int, runs: list[tuple[int, int, int, int]]) -> Read:
    records = tuple(
        RecordRun(o, 10 * i + j if i >= 0 else -1, count if i >= 0 else 1)
        for o, i, j, count in runs
    )
    return Read(partition=PARTITIONS[where], start=start, hw=hw, records=records)


def _surround(draw: st.DrawFn, s: Story) -> None:
    """Draw the evidence around a history: HW events, logs, and whether all of it is there."""
    s.run["promise"]["staleness_ms"] = draw(st.integers(-1, 3))
    s.torn = not draw(st.sampled_from([True, True, True, False]))
    watermarks = draw(st.one_of(st.none(), st.none(), _watermarks))
    if watermarks is not None:
        s.run["capabilities"] = ["trace", "hw"]
        rest = {"leader_epoch": 0, "role": "leader", "hash": ""}
        for where, ms, hw in watermarks:
            at = rest | {"batch_end": hw, "leo": hw, "hw": hw, "ms": ms}
            s.event("n1", "hw", PARTITIONS[where], **at)
    for node, log in zip(NODES, draw(_logs), strict=True):
        if log is not None:
            batches, hw, finished = log
            s.log(node, *((10 * i, count) for i, count in batches), hw=hw)
            s.unfinished |= set() if finished else {node}
