"""Histories for property tests, which say anything."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from harness.formats.history import Read, RecordRun, Send
from tests.support.checker.story import NODES, P, Story

PARTITIONS = (P, "log-1")
OFFSETS = 6


@dataclass(frozen=True)
class Step:
    """One operation of a story: sends (partition, count, offset), reads (partition, start, HW, runs
    of (offset, which send, which of its records, how many))."""

    f: str
    process: int
    outcome: str
    begin: int
    length: int
    sends: tuple[tuple[int, int, int, int], ...] = ()
    reads: tuple[tuple[int, int, int, tuple[tuple[int, int, int, int], ...]], ...] = ()
    named: tuple[int, ...] = ()
    final: bool = False


def _times() -> dict[str, st.SearchStrategy[int]]:
    return {"begin": st.integers(0, 8), "length": st.integers(1, 4)}


_outcomes = st.sampled_from(["ok", "ok", "info", "fail"])
_sends = st.tuples(
    st.integers(0, 1), st.integers(1, 2), st.integers(-1, OFFSETS), st.sampled_from([-1, -1, -1, 1])
)
_runs = st.tuples(st.integers(0, OFFSETS), st.integers(-1, 4), st.integers(0, 1), st.integers(1, 2))
_reads = st.tuples(
    st.integers(0, 1),
    st.integers(-1, 3),
    st.integers(-1, OFFSETS),
    st.lists(_runs, max_size=3).map(tuple),
)


def wild(*, transactions: bool) -> st.SearchStrategy[list[Step]]:
    """Operations of any kind that say anything."""
    several = 2 if transactions else 1
    send = st.builds(
        Step,
        f=st.just("send"),
        process=st.integers(1, 2),
        outcome=_outcomes,
        sends=st.lists(_sends, min_size=1, max_size=several).map(tuple),
        **_times(),
    )
    poll = st.builds(
        Step,
        f=st.just("poll"),
        process=st.integers(1, 3),
        outcome=_outcomes,
        reads=st.lists(_reads, min_size=1, max_size=2).map(tuple),
        final=st.booleans(),
        **_times(),
    )
    moved = st.builds(
        Step,
        f=st.sampled_from(["assign", "subscribe", "crash"]),
        process=st.integers(1, 3),
        outcome=_outcomes,
        named=st.lists(st.integers(0, 1), max_size=2, unique=True).map(tuple),
        **_times(),
    )
    txn = st.builds(
        Step,
        f=st.just("txn"),
        process=st.integers(1, 3),
        outcome=_outcomes,
        sends=st.lists(_sends, max_size=3).map(tuple),
        reads=st.lists(_reads, max_size=2).map(tuple),
        named=st.lists(st.integers(0, 1), max_size=1).map(tuple),
        **_times(),
    )
    kinds = [send, send, poll, moved] + [txn, txn] * transactions
    return st.lists(st.one_of(kinds), min_size=1, max_size=7)


@dataclass(frozen=True)
class Around:
    """The evidence around a history: HW events (partition, ms, HW), if all of them are there, and
    logs by node: batches (which send, count), their HW, whether the dump was finished."""

    staleness_ms: int
    whole: bool
    complete_reads: bool
    watermarks: tuple[tuple[int, int, int], ...] | None
    logs: tuple[tuple[tuple[tuple[int, int], ...], int, bool] | None, ...]


_batches = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 2)), max_size=3).map(tuple)
_log = st.tuples(_batches, st.integers(0, 4), st.sampled_from([True, True, True, False]))
_logs = st.one_of(
    st.just((None, None, None)),
    st.tuples(_log, _log, _log),
    st.tuples(st.one_of(_log, st.none()), _log, _log),
    st.tuples(_log, st.none(), st.none()),
)
_watermarks = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 9), st.integers(0, OFFSETS)), max_size=3
).map(tuple)
around = st.builds(
    Around,
    st.integers(-1, 3),
    st.sampled_from([True, True, True, False]),
    st.booleans(),
    st.one_of(st.none(), st.none(), _watermarks),
    _logs,
)


def surrounded(steps: list[Step], known: Around) -> Story:
    """Return the steps as a story, with all that is known around them."""
    s = tell(steps, complete_reads=known.complete_reads)
    s.torn = not known.whole
    s.run["promise"]["staleness_ms"] = known.staleness_ms
    if known.watermarks is not None:
        s.run["capabilities"] = ["trace", "hw"]
        for where, ms, hw in known.watermarks:
            s.event(
                "n1",
                "hw",
                PARTITIONS[where],
                hw=hw,
                leo=hw,
                leader_epoch=0,
                role="leader",
                batch_end=hw,
                hash="",
                ms=ms,
            )
    for node, log in zip(NODES, known.logs, strict=True):
        if log is not None:
            batches, hw, finished = log
            s.log(node, *((10 * i, count) for i, count in batches), hw=hw)
            s.unfinished |= set() if finished else {node}
    return s


def tell(steps: list[Step], **run: object) -> Story:
    """Return the steps as a story. Its n-th send has the values 10 n, 10 n + 1, ..."""
    s = Story(*PARTITIONS, capabilities=[], **run)
    sent = 0
    free: dict[int, int] = {}
    # A process ends with an info; then its client goes on as another one.
    number: dict[int, int] = {}
    for step in steps:
        begin = max(step.begin, free.get(step.process, 0))
        free[step.process] = begin + step.length
        process = number.get(step.process, step.process)
        if step.outcome == "info":
            number[step.process] = process + 10
        made, acked = [], []
        for where, count, offset, acks in step.sends:
            common = {
                "partition": PARTITIONS[where],
                "value": 10 * sent,
                "count": count,
                "acks": acks,
            }
            made.append(Send(**common))
            acked.append(Send(**common, offset=offset))
            sent += 1
        reads = [
            Read(
                partition=PARTITIONS[where],
                start=start,
                hw=hw,
                records=tuple(
                    RecordRun(o, 10 * i + j if i >= 0 else -1, count if i >= 0 else 1)
                    for o, i, j, count in runs
                ),
            )
            for where, start, hw, runs in step.reads
        ]
        named = tuple(PARTITIONS[where] for where in step.named)
        s.op(
            step.f,
            step.outcome,
            sends=made,
            acked=acked,
            reads=reads,
            process=process,
            begin=begin,
            end=begin + step.length,
            final=step.final,
            **({"rebalanced": named} if step.f == "txn" else {"partitions": named}),
        )
    return s
