"""Histories with a known truth, by class: each has one thing wrong, or looks just like it.

A log is a list of records, and what clients did with it is written line by line. No check is known
in here: whether a history is wrong follows from what was done to the log or to an answer."""

from __future__ import annotations

import random
from typing import Any, Final

from msgspec.structs import replace

from harness.formats.history import Op, Read, RecordRun, Send
from tests.support.checker.correct_history import runs

P: Final = "log-0"
Q: Final = "7"


class Told:
    """The lines of a history. Records are appended to `log`; `wrong` says whether it is wrong."""

    def __init__(self, rng: random.Random, jepsen: bool) -> None:
        self.rng, self.jepsen = rng, jepsen
        self.ops: list[Op] = []
        self.seeks: set[int] = set()
        self.promise: dict[str, Any] = {}
        self.wrong = False
        self.log: dict[int, int] = {}
        """The value of a record at each offset of the partition P."""
        self.end = self.now_us = self.value = 0
        self.starts = not jepsen and rng.random() < 0.6
        self.watermarks = not jepsen and rng.random() < 0.5
        self.at_ends = not jepsen and rng.random() < 0.5
        self.named = rng.random() < 0.8
        """Whether acknowledgements name offsets."""

    def do(self, f: Any, process: int, outcome: Any = "ok", **more: Any) -> int:
        """Tell an operation: what it sent as `sends`, what else it knows at its end as `done`. It
        does not end if `outcome` is None."""
        done = more.pop("done", {})
        number = len({op.op for op in self.ops})
        about: dict[str, Any] = {"op": number, "process": process, "client": f"c{process}", "f": f}
        self.now_us += self.rng.choice([1, 100])
        self.ops.append(Op(t_us=self.now_us, type="invoke", **about, **more))
        if outcome is not None:
            self.now_us += self.rng.choice([1, 100])
            self.ops.append(Op(t_us=self.now_us, type=outcome, **about, **{**more, **done}))
        return number

    def end_last(self, line: int) -> None:
        """Let a line that is there be the last one so far."""
        self.now_us += 1
        self.ops.append(replace(self.ops.pop(line), t_us=self.now_us))

    def send(self, process: int = 0, *, at: int = -1) -> int:
        """Send a record and append it, at the end or at an offset; return where it is."""
        at = self.end if at < 0 else at
        value = self.value
        self.value += self.rng.choice([1, 10])
        self.log[at], self.end = value, max(self.end, at + 1)
        sent = Send(partition=P, value=value)
        known = Send(partition=P, value=value, offset=at if self.named else -1)
        self.do("send", process, sends=(sent,), done={"sends": (known,)})
        return at

    def other(self) -> None:
        """Send to and read from another partition, in which all is well."""
        for nth in range(4):
            value = 10**6 + nth
            sent, known = (Send(partition=Q, value=value, offset=o) for o in (-1, nth))
            self.do("send", 3, sends=(sent,), done={"sends": (known,)})
        read = Read(partition=Q, records=(RecordRun(0, 10**6, 4),))
        self.do("poll", 9, done={"reads": (read,)})

    def read(
        self, process: int, begin: int, end: int, *, skip: range = range(0), **more: Any
    ) -> None:
        """Poll the records begin .. end - 1 without those in `skip`."""
        got = [(o, self.log[o], -1) for o in range(begin, end) if o in self.log and o not in skip]
        states = more.pop("states", self.starts)
        hw = more.pop("hw", self.end if self.watermarks else -1)
        read = Read(
            partition=P,
            records=runs(got),
            start=begin if states else -1,
            hw=hw,
            at_end=more.pop("at_end", self.at_ends and end >= self.end),
            log_start=more.pop("log_start", -1),
        )
        about = {name: more.pop(name) for name in ("final", "isolation") if name in more}
        self.do("poll", process, **about, done={"reads": (read,), **more})

    def read_finally(self, process: int, begin: int = 0, *, skip: range = range(0)) -> None:
        """Read everything as a fresh client, in two polls, and ask once more."""
        if self.jepsen:
            self.seeks.add(self.do("assign", process, partitions=(P,)))
        middle = self.rng.randint(begin + 1, self.end)
        # A second poll that states its start passes over nothing in front of it.
        there = self.log.keys() - {*skip}
        while middle < self.end and not {middle - 1, middle} <= there:
            middle += 1
        first = {"states": self.starts or begin > 0}
        final = {} if self.jepsen else {"final": True}
        self.read(process, begin, middle, skip=skip, **final, **first)
        if middle < self.end:
            self.read(process, middle, self.end, skip=skip, **final)
        self.read(process, self.end, self.end, **final)

    def write(self, count: int) -> None:
        """Send some records, now and then beside a consumer that gets them."""
        place = 0
        for _ in range(count):
            self.send()
            if self.rng.random() < 0.5:
                self.read(1, place, self.end)
                place = self.end


def a_reader_passes_over_the_head(told: Told, wrong: bool) -> None:
    """Let a reader that says where it began lack records there, which others had (class A)."""
    told.write(told.rng.randint(12, 20))
    told.read_finally(90)
    skip = range(told.rng.randint(1, 5)) if wrong else range(0)
    how = told.rng.choice(["final", "crash", "new"])
    if how == "final" or told.jepsen:
        told.read_finally(91, skip=skip)
    else:
        low = told.rng.randint(0, 4)
        if how == "crash":
            told.read(5, 0, told.end)
            told.do("crash", 5)
        skip = range(low, low + 2) if wrong else skip
        told.read(5, low, told.end, skip=skip, states=True)


def a_final_reader_ends_early(told: Told, wrong: bool) -> None:
    """Let a final reader lack the head of the log, which no other reader read (classes A, F)."""
    told.starts = told.rng.random() < 0.3
    for _ in range(told.rng.randint(12, 20)):
        told.send()
    told.read_finally(90, skip=range(told.rng.randint(1, 4)) if wrong else range(0))


def an_append_goes_back(told: Told, wrong: bool) -> None:
    """Let a record that was sent after an acknowledgement stand in front of it (class B)."""
    told.named = False if told.rng.random() < 0.7 else told.named
    told.write(told.rng.randint(12, 16))
    first, second = told.end, told.end + 1
    for process, at in ((5, second if wrong else first), (6, first if wrong else second)):
        told.send(process, at=at)
    told.read_finally(90)


def a_dirty_reader(told: Told, wrong: bool) -> None:
    """Let a dirty reader get a transaction that others pass over: it aborted, or, in a wrong
    history, had committed (class C)."""
    told.write(told.rng.randint(12, 16))
    outcome = "ok" if wrong else told.rng.choice(["fail", "info"])
    base, sends = told.end, tuple(Send(partition=P, value=10**5 + k) for k in range(2))
    told.log |= {base + k: send.value for k, send in enumerate(sends)}
    told.end += 3
    known = tuple(
        Send(partition=P, value=s.value, offset=base + k if told.named else -1)
        for k, s in enumerate(sends)
    )
    told.do("txn", 3, outcome, sends=sends, done={"sends": known} if outcome == "ok" else {})
    by_promise = told.rng.random() < 0.3
    if by_promise:
        told.promise["isolation"] = "read_uncommitted"
    told.read(5, base, base + 2, **({} if by_promise else {"isolation": "read_uncommitted"}))
    told.send()
    gone = range(base, base + 3)
    told.watermarks = told.at_ends = False
    told.read(8, base - 1, told.end, skip=gone, states=not told.jepsen)
    told.read_finally(90, skip=gone)


def a_moved_reader(told: Told, wrong: bool) -> None:
    """Let a consumer go back, with a rebalance or, in a wrong history, without (class D)."""
    told.write(told.rng.randint(12, 16))
    told.read(5, 0, 6, states=False)
    moved = {} if wrong else {"rebalanced": (P,)}
    if told.rng.random() < 0.3 and not wrong:
        told.do("poll", 5, done={"rebalanced": (P,)})
        moved = {}
    told.read(5, told.rng.randint(0, 5), told.end, states=False, **moved)
    told.read_finally(90)


def a_subscriber_is_moved(told: Told, wrong: bool) -> None:
    """Let a subscriber go on behind a record that is never read, which proves nothing; or, in a
    wrong history, lack it inside one answer (class D)."""
    told.starts, told.named = False, True
    for _ in range(12):
        told.send()
    told.other()
    told.do("subscribe", 5, partitions=(P,))
    told.read(5, 0, 4, states=False)
    low = 3 if wrong else 5
    told.read(5, low + 1 - wrong, 12, skip=range(4, 6) if wrong else range(0), states=False)


def a_record_below_the_head(told: Told, wrong: bool) -> None:
    """Let a consumer pass over a record that was still there, or only over deleted ones."""
    told.promise["retention"] = True
    told.write(told.rng.randint(14, 20))
    kept = told.rng.randint(3, 6)
    lost = kept + told.rng.randint(1, 4) if wrong else 0
    skip = range(lost, lost + 1) if wrong else range(0)
    how = told.rng.choice(["storm", "final", "log start"])
    if how == "log start" and not told.jepsen:
        told.read(5, lost if wrong else 0, told.end, skip=skip, log_start=0, states=True)
    elif how == "storm":
        told.read(5, 0, told.end, skip=skip, states=False)
    told.read_finally(90, kept, skip=skip)
    if not wrong:
        return
    told.read(6, kept, told.end, skip=skip, states=not told.jepsen)


def an_answer_ends_below_its_mark(told: Told, wrong: bool) -> None:
    """Let an answer say that the log ends below the HW that it states, or state an older HW."""
    told.write(told.rng.randint(12, 16))
    end = told.rng.randint(1, told.end - 1)
    told.read(5, end, end, states=True, at_end=True, hw=told.end if wrong else end)
    told.read_finally(90)


def final_readers_get_nothing(told: Told, wrong: bool) -> None:
    """Let final readers get no record: the log ends there, as an answer says in a wrong history, or
    they may all have waited in vain."""
    for _ in range(told.rng.randint(12, 16)):
        told.send()
    states = told.rng.choice([{"hw": 0}, {"at_end": True}]) if wrong else {}
    for process in range(90, 90 + told.rng.randint(1, 3)):
        for _ in range(told.rng.randint(1, 3)):
            told.read(
                process, 0, 0, final=True, states=True, **{"hw": -1, "at_end": False, **states}
            )


def a_record_is_appended_again(told: Told, wrong: bool) -> None:
    """Let a record be there twice, as a producer that sends again may do, in its own transaction or
    alone; in a wrong history none does."""
    if not wrong:
        told.promise["delivery"] = "at-least-once"
    told.write(told.rng.randint(12, 16))
    base, count = told.end, told.rng.randint(1, 3)
    order = [told.rng.randrange(count) for _ in range(told.rng.randint(1, 3))]
    order = [*order, *range(count), *order[:1]]
    values = [10**5 + 7 * each for each in order]
    told.log |= {base + nth: value for nth, value in enumerate(values)}
    told.end += len(values)
    known = told.named and told.rng.random() < 0.5
    first = len(order) - 1 - count
    sends = [Send(partition=P, value=10**5 + 7 * each) for each in range(count)]
    placed = [
        Send(partition=P, value=s.value, offset=base + first + n if known else -1)
        for n, s in enumerate(sends)
    ]
    told.do("txn", 5, sends=tuple(sends), done={"sends": tuple(placed)})
    told.read_finally(90)
