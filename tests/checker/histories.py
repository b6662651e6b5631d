"""Histories for property tests: wild ones, and those of a correct log that are then corrupted."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from harness.history import Read, Run, Send
from tests.checker.story import P, Story

PARTITIONS = (P, "log-1")
OFFSETS = 6


@dataclass(frozen=True)
class Step:
    """One operation to be told: sends (partition, count, offset), reads (partition, start, HW,
    runs of (offset, which send, which of its records, how many))."""

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
    st.integers(0, 1), st.integers(-1, 3), st.integers(-1, OFFSETS),
    st.lists(_runs, max_size=3).map(tuple),
)  # fmt: skip


def wild(*, transactions: bool) -> st.SearchStrategy[list[Step]]:
    """Operations of any kind that say anything."""
    several = 2 if transactions else 1
    send = st.builds(
        Step, f=st.just("send"), process=st.integers(1, 2), outcome=_outcomes,
        sends=st.lists(_sends, min_size=1, max_size=several).map(tuple), **_times(),
    )  # fmt: skip
    poll = st.builds(
        Step, f=st.just("poll"), process=st.integers(1, 3), outcome=_outcomes,
        reads=st.lists(_reads, min_size=1, max_size=2).map(tuple), final=st.booleans(), **_times(),
    )  # fmt: skip
    moved = st.builds(
        Step, f=st.sampled_from(["assign", "subscribe", "crash"]), process=st.integers(1, 3),
        outcome=_outcomes, named=st.lists(st.integers(0, 1), max_size=2, unique=True).map(tuple),
        **_times(),
    )  # fmt: skip
    txn = st.builds(
        Step, f=st.just("txn"), process=st.integers(1, 3), outcome=_outcomes,
        sends=st.lists(_sends, max_size=3).map(tuple),
        reads=st.lists(_reads, max_size=2).map(tuple),
        named=st.lists(st.integers(0, 1), max_size=1).map(tuple), **_times(),
    )  # fmt: skip
    kinds = [send, send, poll, moved] + [txn, txn] * transactions
    return st.lists(st.one_of(kinds), min_size=1, max_size=7)


def tell(steps: list[Step], **run: object) -> Story:
    """The steps as a story. The n-th send of it has the values 10 n, 10 n + 1, ..."""
    s = Story(*PARTITIONS, capabilities=[], **run)
    sent = 0
    for step in steps:
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
                partition=PARTITIONS[where], start=start, hw=hw,
                records=tuple(
                    Run(o, 10 * i + j if i >= 0 else -1, count if i >= 0 else 1)
                    for o, i, j, count in runs
                ),
            )
            for where, start, hw, runs in step.reads
        ]  # fmt: skip
        named = tuple(PARTITIONS[where] for where in step.named)
        s.op(
            step.f, step.outcome, sends=made, acked=acked, reads=reads, process=step.process,
            begin=step.begin, end=step.begin + step.length, final=step.final,
            **({"rebalanced": named} if step.f == "txn" else {"partitions": named}),
        )  # fmt: skip
    return s
