"""The kernels against slow definitions that follow docs/checks.md word by word.

Hypothesis writes tiny histories of one partition: sends with any outcome, reads of anything. The
definitions below expand every record and compare every pair.
"""

from __future__ import annotations

import itertools
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checker.verdict import RunResult
from tests.checker.story import Story

OFFSETS = 6


@dataclass(frozen=True)
class Sent:
    """A send: its values are 10*i .. 10*i+count-1 for the i-th send of a history."""

    count: int
    at: int
    outcome: str
    process: int
    begin: int
    length: int


@dataclass(frozen=True)
class Polled:
    """A poll: runs of (offset, which send, which of its records, how many)."""

    runs: tuple[tuple[int, int, int, int], ...]
    outcome: str
    process: int
    final: bool


sents = st.lists(
    st.builds(
        Sent, st.integers(1, 3), st.integers(-1, OFFSETS), st.sampled_from(["ok", "info", "fail"]),
        st.integers(1, 2), st.integers(0, 6), st.integers(1, 4),
    ),
    max_size=5,
)  # fmt: skip
runs = st.tuples(st.integers(0, OFFSETS), st.integers(0, 4), st.integers(0, 2), st.integers(1, 2))
polls = st.lists(
    st.builds(
        Polled, st.lists(runs, max_size=3).map(tuple), st.sampled_from(["ok", "ok", "info"]),
        st.integers(8, 9), st.booleans(),
    ),
    max_size=5,
)  # fmt: skip
History = tuple[list[Sent], list[Polled]]


def values(i: int, sent: Sent) -> list[int]:
    return [10 * i + k for k in range(sent.count)]


def records(poll: Polled) -> list[list[tuple[int, int]]]:
    """The (offset, value) pairs of a poll, run by run."""
    return [
        [(offset + k, 10 * i + j + k) for k in range(count)] for offset, i, j, count in poll.runs
    ]


def flat(poll: Polled) -> list[tuple[int, int]]:
    return [pair for run in records(poll) for pair in run]


class Definitions:
    """Every anomaly of one history, as its definition says."""

    def __init__(self, sent: list[Sent], polled: list[Polled]) -> None:
        self.sent, self.polled = sent, polled
        self.ok = [p for p in polled if p.outcome == "ok"]
        self.read = {v for p in self.ok for _, v in flat(p)}
        self.committed = [
            i
            for i, s in enumerate(sent)
            if s.outcome == "ok" or (s.outcome == "info" and self.read & set(values(i, s)))
        ]
        self.pairs = {pair for p in polled for pair in flat(p)}
        for i in self.committed:
            if sent[i].at >= 0:
                self.pairs |= {(sent[i].at + k, v) for k, v in enumerate(values(i, sent[i]))}
        self.offsets = sorted({offset for offset, _ in self.pairs})
        self.index = {offset: n for n, offset in enumerate(self.offsets)}

    def places(self, value: int) -> list[int]:
        return sorted(o for o, v in self.pairs if v == value)

    def inconsistent(self) -> int:
        return sum(len({v for o, v in self.pairs if o == offset}) > 1 for offset in self.offsets)

    def duplicate(self) -> int:
        return sum(len(self.places(v)) > 1 for v in {v for _, v in self.pairs})

    def lost(self) -> int:
        bound = max((self.places(v)[0] for v in self.read), default=-1)
        owed = {v for i in self.committed for v in values(i, self.sent[i])}
        return sum(bool(self.places(v)) and self.places(v)[-1] <= bound for v in owed - self.read)

    def aborted(self) -> int:
        failed = {v for i, s in enumerate(self.sent) if s.outcome == "fail" for v in values(i, s)}
        return len(failed & {v for _, v in self.pairs if self._was_polled(v)})

    def _was_polled(self, value: int) -> bool:
        return any(v == value for p in self.polled for _, v in flat(p))

    def phantom(self) -> int:
        every = {v for i, s in enumerate(self.sent) for v in values(i, s)}
        return len({v for p in self.polled for _, v in flat(p)} - every)

    def polls(self) -> dict[str, int]:
        found = dict.fromkeys(
            ("poll-skip", "nonmonotonic-poll", "int-poll-skip", "int-nonmonotonic-poll"), 0
        )
        place: dict[int, int] = {}
        for poll in self.polled:
            offsets = [o for o, _ in flat(poll)]
            if not offsets:
                continue
            for a, b in itertools.pairwise(offsets):
                delta = self.index[b] - self.index[a]
                found["int-poll-skip"] += delta > 1
                found["int-nonmonotonic-poll"] += delta < 1
            if poll.process in place:
                delta = self.index[offsets[0]] - self.index[place[poll.process]]
                found["poll-skip"] += delta > 1
                found["nonmonotonic-poll"] += delta < 1
            if poll.outcome == "ok":
                place[poll.process] = offsets[-1]
        return found

    def base(self, i: int) -> int:
        first = self.places(values(i, self.sent[i])[0])
        return self.sent[i].at if self.sent[i].at >= 0 else first[0] if first else -1

    def nonmonotonic_sends(self) -> int:
        found = 0
        for process in (1, 2):
            mine = [
                i for i, s in enumerate(self.sent)
                if s.process == process and s.outcome != "fail" and self.base(i) >= 0
            ]  # fmt: skip
            found += sum(
                self.base(b) <= self.base(a) + self.sent[a].count - 1
                for a, b in itertools.pairwise(mine)
            )
        return found

    def realtime(self) -> int:
        certain = [i for i in self.committed if self.base(i) >= 0]
        return sum(
            any(
                self.sent[a].outcome == "ok" and self.sent[a].at >= 0
                and self.sent[a].begin + self.sent[a].length < self.sent[b].begin
                and self.sent[a].at + self.sent[a].count - 1 > self.base(b)
                for a in range(len(self.sent))
            )
            for b in certain
        )  # fmt: skip

    def vanished(self) -> int:
        """Read by an ok poll, and its lowest such place passed over by the final ones."""
        finals = [p for p in self.ok if p.final]
        again = {v for p in finals for _, v in flat(p)}
        end = max((o + 1 for p in finals for o, _ in flat(p)), default=0)
        every = {v for i, s in enumerate(self.sent) for v in values(i, s)}
        lowest = {v: min(o for p in self.ok for o, x in flat(p) if x == v) for v in self.read}
        return sum(lowest[v] < end for v in (self.read - again) & every)


def judged(sent: list[Sent], polled: list[Polled]) -> RunResult:
    """What the checker says of the same history; polls come after all sends."""
    s = Story(capabilities=[])
    # Operations are numbered in the order they are told; their times may overlap.
    for i, each in enumerate(sent):
        s.send(
            10 * i, each.count, at=each.at, outcome=each.outcome,  # type: ignore[arg-type]
            process=each.process, begin=each.begin, end=each.begin + each.length,
        )  # fmt: skip
    for poll in polled:
        merged = [(o, 10 * i + j, count) for o, i, j, count in poll.runs]
        s.poll(
            *merged, process=poll.process, outcome=poll.outcome,  # type: ignore[arg-type]
            final=poll.final, start=0 if poll.final else -1,
        )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        return s.check(Path(folder))


@settings(
    max_examples=150, derandomize=True, deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
@given(sents, polls)
def test_the_kernels_agree_with_the_definitions(sent: list[Sent], polled: list[Polled]) -> None:
    found = judged(sent, polled)
    counts: dict[str, int] = {}
    for anomaly in found.anomalies:
        counts[anomaly.name] = counts.get(anomaly.name, 0) + anomaly.count
    d = Definitions(sent, polled)
    due = {
        "inconsistent-offsets": d.inconsistent(),
        "duplicate": d.duplicate(),
        "lost": d.lost(),
        "vanished": d.vanished(),
        "aborted-read": d.aborted(),
        "phantom": d.phantom(),
        **d.polls(),
        "nonmonotonic-send": d.nonmonotonic_sends(),
        "realtime-order": d.realtime(),
    }
    assert {name: counts.get(name, 0) for name in due} == due, found.problems
    assert not any("failed" in problem for problem in found.problems), found.problems
