"""The same history as another tool would have written it: nothing that it says changes.

Operations get other names, numbers and places, other clients work beside them, and the lines of
each form are written in other ways (`disguised_lines`). No check is known in here:
each change keeps what happened, so the verdict on a disguised history is that on the history
itself."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from checker.ingest.external_history import run_folder_of
from harness.formats.history import Op, Read, RecordRun, Send
from tests.support.checker.correct_history import History, runs
from tests.support.checker.disguised_lines import text_of
from tests.support.checker.done import places
from tests.support.checker.history_forms import as_tables

_BESIDE: Final = -(10**6)
_OTHER: Final = 10**7
"""From these on are the numbers of other clients' operations, or their values."""
SPREAD: Final = 1000
"""How many times further apart the lines of a disguised history are: there is room between them."""
NAMES: Final = ("a", "log-0", "3", "topic-1", "t:0", "orders.eu", "x_9", "P", "log-10", "ä")


class Disguise:
    """The changes that are drawn for one history; `fixed`: traits of the clients beside it."""

    def __init__(self, seed: int, *, jepsen: bool, **fixed: Any) -> None:
        self.rng = rng = random.Random(seed)
        self.jepsen = jepsen
        self.stretch = rng.choice([1, 1, 2, 3])
        self.shift = rng.choice([0, 0, 0, 7]) if not jepsen else 0
        self.values = rng.choice([0, 0, 5 << 32])
        self.step = rng.choice([1, 1, 3])
        names = [name for name in NAMES if name.isascii() or not jepsen]
        self.names = rng.sample(names, len(names))
        self.named: dict[str, str] = {}
        self.processes: dict[int, int] = {}
        self.numbers = rng.sample(range(200), 200)
        self.beside = rng.random() < 0.5
        self.fixed = fixed
        self.seeks: set[int] = set()
        """The assignments that begin at the start, by their numbers in the history."""

    def written(
        self,
        form: str,
        folder: Path,
        told: Sequence[Op],
        promise: Mapping[str, Any],
        seeks: Collection[int],
    ) -> Path:
        """Write a history in one of `FORMS`, and return the run folder to judge."""
        self.seeks |= {*seeks}
        made = self.ops(told)
        numbers: dict[int, int] = {}
        ops = [replace(op, op=numbers.setdefault(op.op, len(numbers))) for op in made]
        folder.mkdir(parents=True)
        if form == "tables":
            return as_tables(folder, ops, promise)
        file = folder / ("history.edn" if form == "edn" else "history.jsonl")
        file.write_text(text_of(form, ops, {numbers[n] for n in self.seeks}, self.rng))
        return run_folder_of(file, promise)

    def ops(self, told: Iterable[Op]) -> list[Op]:
        """Return the lines of a history in disguise; their numbers are those of before, or below
        0."""
        made = [self._op(op) for op in told]
        if self.beside:
            made = sorted([*made, *self._others(made[-1].t_us)], key=lambda op: op.t_us)
        return made

    # -- names and numbers -----------------------------------------------------------------------

    def partition(self, name: str) -> str:
        """Return the other name of a partition."""
        if name not in self.named:
            self.named[name] = self.names.pop()
        return self.named[name]

    def process(self, number: int) -> int:
        """Return the other number of a process."""
        if number not in self.processes:
            self.processes[number] = self.numbers.pop()
        return self.processes[number]

    def offset(self, offset: int) -> int:
        """Return where the record of an offset is; -1 and 0 stay what they mean."""
        return offset if offset < 0 else self.shift * (offset > 0) + offset * self.stretch

    def value(self, value: int) -> int:
        return value if value < 0 else self.values + value * self.step

    def _op(self, op: Op) -> Op:
        return replace(
            op,
            t_us=op.t_us * SPREAD,
            process=self.process(op.process),
            client=f"c{self.process(op.process)}",
            sends=tuple(sent for send in op.sends for sent in self._sends(send)),
            reads=tuple(map(self._read, op.reads)),
            partitions=tuple(map(self.partition, op.partitions)),
            rebalanced=tuple(map(self.partition, op.rebalanced)),
        )

    def _sends(self, send: Send) -> Iterator[Send]:
        """Return a send; its records are apart if offsets or values are."""
        whole = self.stretch == self.step == 1 and not self.shift
        for k in range(1 if whole else send.count):
            yield replace(
                send,
                partition=self.partition(send.partition),
                value=self.value(send.value + k),
                count=send.count if whole else 1,
                offset=self.offset(send.offset + k) if send.offset >= 0 else -1,
            )

    def _read(self, read: Read) -> Read:
        epochs = [run.epoch for run in read.records for _ in range(run.count)]
        got = [
            (self.offset(offset), self.value(value), epoch)
            for (offset, value), epoch in zip(places(read), epochs, strict=True)
        ]
        records = runs(got)
        if self.rng.random() < 0.3:
            records = tuple(RecordRun(*each[:2], 1, each[2]) for each in got)
        return replace(
            read,
            partition=self.partition(read.partition),
            # Right behind the record before: what was passed over would be open.
            start=read.start if read.start <= 0 else self.offset(read.start - 1) + 1,
            hw=self._behind(read.hw),
            log_start=self.offset(read.log_start),
            records=records,
        )

    def _behind(self, offset: int) -> int:
        """Return an offset at which nothing need be: right behind the record before, or later."""
        if offset <= 0 or self.rng.random() < 0.5:
            return self.offset(offset)
        return self.offset(offset - 1) + 1

    # -- other clients ---------------------------------------------------------------------------

    def _others(self, last_us: int) -> Iterator[Op]:
        """Yield what other clients do with partitions of their own, in which all is well: consumers
        are moved, and what has an unknown outcome takes effect late or never."""
        retries = self.rng.choice(["", "idempotent"])
        fixed: dict[str, Any] = {"dirty": "", "deletes": "", "weak": "", "retries": retries}
        fixed |= self.fixed
        seed = self.rng.randrange(1 << 30)
        beside = History(seed, jepsen=self.jepsen, **fixed)
        self.seeks |= {_BESIDE - number for number in beside.seeks}
        slower = max(1, last_us // (beside.ops[-1].t_us * SPREAD))
        # Their partitions and processes are others, whatever their names and numbers are.
        self.named, self.processes = {}, {}
        for op in beside.ops:
            yield self._op(
                replace(
                    op,
                    op=_BESIDE - op.op,
                    t_us=op.t_us * slower,
                    sends=tuple(replace(s, value=s.value + _OTHER) for s in op.sends),
                    reads=tuple(map(_other_values, op.reads)),
                )
            )


def _other_values(read: Read) -> Read:
    made = (RecordRun(r.offset, r.value + _OTHER, r.count, r.epoch) for r in read.records)
    return replace(read, records=tuple(made))
