"""Reads of a hot partition, taken by ranges of offsets and downsampled there before it is judged.

A partition that most operations go to would be one task that holds them all. Most of it are reads,
and most of those say what another says too. So its reads are first brought together by ranges of
offsets, a task each, and only these go on to be judged:

* of all reads that returned the same run of records the earliest, with what all of them say of it:
  nothing that is known of the contents of the partition is lost;
* of the polls of a process those that do not simply go on where the one before ended, their
  neighbours, and the first and the last in the range: the order of its polls is judged on these.

The findings are the same, witnesses and all. Where a range cannot know what it would have to
(a process left a range and came back; an operation lies in two of them), the partition is judged
whole after all: `splittable` says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from checker.evidence.arrow_blob import SCHEMA, arrow_blobs, packed, unpacked
from checker.evidence.contents import READ_FINAL, READ_OK, READ_OTHER, first_of
from checker.evidence.facts import (
    CONTENT,
    FINAL,
    FOLLOWS,
    I64,
    NUMBERS,
    Kind,
    Outcome,
    columns_block,
)
from checker.evidence.group import Facts, Group, Mask, group_of
from checker.evidence.run_meta import RunMeta
from checker.evidence.sorting import any_order_of, order_of
from checker.ingest import tables

WHOLE: Final = -1
RANGE_ROWS: Final = 2_000_000
_SAMPLED_FROM_ROWS: Final = 1_000_000
_SAMPLES: Final = 8
_OFFSET: Final = tables.SCHEMAS["reads"].names.index("offset")
_SPLIT: Final = ("client", "node")


class Ranges(NamedTuple):
    """The ranges of offsets of one partition: `number` of them, `width` offsets each."""

    first: int
    width: int
    number: int

    def of(self, offset: I64, start: I64) -> I64:
        """The range of each read: that of its first record, or of where it began."""
        at = np.where(offset >= 0, offset, start)
        found: I64 = np.clip((at - self.first) // self.width, 0, self.number - 1)
        return np.where(at >= 0, found, WHOLE)


def may_split(meta: RunMeta) -> bool:
    """Whether order and contents are all that is judged of reads; else all of them are needed."""
    return "hw" not in meta.capabilities and meta.promise.staleness_ms < 0


def ranges_of(folder: Path, meta: RunMeta) -> dict[str, Ranges]:
    """The ranges of those partitions that most reads are of, by a sample; {} if there are none."""
    if not may_split(meta):
        return {}
    target = folder / "reads.parquet"
    rows, taken, lowest, highest = 0, 0, [], []
    counts: Counter[str] = Counter()
    try:
        for path in sorted(target.glob("[!.]*.parquet")) if target.is_dir() else [target]:
            with pq.ParquetFile(path, read_dictionary=["partition"]) as file:
                about = file.metadata
                rows += about.num_rows
                if about.num_rows < _SAMPLED_FROM_ROWS:
                    continue
                for group in range(about.num_row_groups):
                    known = about.row_group(group).column(_OFFSET).statistics
                    lowest.append(known.min)
                    highest.append(known.max)
                    if group % (about.num_row_groups // _SAMPLES + 1) == 0:
                        found = file.read_row_group(group, columns=["partition"]).column(0)
                        taken += len(found)
                        for each in found.value_counts().to_pylist():
                            counts[each["values"]] += each["counts"]
    except (OSError, pa.ArrowException, AttributeError):
        return {}  # The reader of the whole table reports what is wrong with it.
    made = {}
    for name, count in counts.items():
        number = round(count / taken * rows) // RANGE_ROWS
        if number > 1:
            width = (max(highest) - max(min(lowest), 0)) // number + 1
            made[name] = Ranges(max(min(lowest), 0), width, number)
    return made


def split(
    block: pa.RecordBatch, ranges: Mapping[str, Ranges]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """A block by range, if it is one of reads; those of partitions that have none stay whole."""
    if not ranges or not block.num_rows or block.column("kind")[0].as_py() != Kind.READ:
        yield WHOLE, block
        return
    column = block.column("partition")
    column = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    codes = column.indices.to_numpy(zero_copy_only=False)
    names = column.dictionary.to_pylist()
    offset, start = (
        block.column(n).to_numpy() if n in block.schema.names else np.full(len(codes), -1)
        for n in ("offset", "leo")
    )
    place = np.full(len(codes), WHOLE, np.int64)
    for code, name in enumerate(names):
        if name in ranges:
            rows = np.flatnonzero(codes == code)
            place[rows] = ranges[name].of(offset[rows], start[rows])
    for number in np.unique(place).tolist():
        yield number, block.take(pa.array(np.flatnonzero(place == number)))


def downsampled(
    run: int, partition: str, number: int, blocks: Sequence[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The reads of one range, downsampled: facts to be judged in place of all of them."""
    reads = group_of(partition, {Kind.READ: blocks}).of(Kind.READ)
    known = _Range(reads)
    kept = np.flatnonzero(known.ordered | known.best)
    taken = reads.take(kept)
    columns: dict[str, object] = {name: taken.column(name) for name in NUMBERS}
    columns["flags"] = (
        taken.flags
        | np.where(known.ordered[kept], 0, CONTENT)
        | np.where(known.follows[kept], FOLLOWS, 0)
    )
    columns["hash"] = known.said[kept]
    left_out = np.zeros(len(kept), np.int64)
    if len(kept):
        # Whichever row carries the number: all that are left out are ok reads of some record.
        carrier = np.flatnonzero((taken.outcome == Outcome.OK) & (taken.count > 0))[:1]
        left_out[carrier] = len(reads) - len(kept)
    columns["hash2"] = left_out
    names = pa.array(reads.names)
    for name in _SPLIT:
        codes = pa.array(taken.column(name).astype(np.int32))
        columns[name] = pa.DictionaryArray.from_arrays(codes, names)
    yield columns_block(run, Kind.READ, _same(partition, len(kept)), columns)
    answers = np.flatnonzero(known.answers & ~known.ordered)
    yield columns_block(
        run,
        Kind.ANSWER,
        _same(partition, len(answers)),
        {"t0": reads.t0[answers], "t1": reads.t1[answers], "hw": known.stated[answers]},
    )
    process, first, last = known.spans()
    yield columns_block(
        run,
        Kind.SPAN,
        _same(partition, len(process)),
        {"process": process, "op": first, "value": last, "seq": np.full(len(process), number)},
    )


def downsample(key: tuple[pa.Scalar, ...], facts: pa.Table) -> pa.Table:
    """A task of Spark: the reads of one range of offsets, downsampled; others stay as they are."""
    run, partition, part = (word.as_py() for word in key)
    if part == WHOLE:
        return facts
    made = downsampled(run, partition, part, unpacked(facts)[Kind.READ])
    return pa.Table.from_batches(packed(arrow_blobs(made)), SCHEMA)


def _same(partition: str, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(partition), rows)


class _Range:
    """Which reads of one range of offsets are needed, and for what."""

    def __init__(self, reads: Facts) -> None:
        self.reads = reads
        self.ok: Mask = reads.outcome == Outcome.OK
        # A stated end, or where an empty answer was asked to start: see `checker.output.curves`.
        self.stated: I64 = np.where((reads.hw < 0) & (reads.count == 0), reads.leo, reads.hw)
        self.answers: Mask = self.ok & (reads.idx == 0) & (reads.t0 >= 0) & (self.stated >= 0)
        self.best, self.said = self._contents()
        self.ordered, self.follows = self._order()

    def _contents(self) -> tuple[Mask, I64]:
        """The earliest of all reads of the same run of records, and how all of them read it."""
        reads = self.reads
        best, said = np.zeros(len(reads), bool), np.zeros(len(reads), np.int64)
        rows = np.flatnonzero(reads.count > 0)
        if not len(rows):
            return best, said
        offset, *other = (c[rows] for c in (reads.offset, reads.value, reads.count, reads.epoch))
        late = ((~self.ok[rows]).astype(np.int64), reads.t1[rows])
        # They are in the order of operations already, which decides between equals.
        order = order_of((offset, *late))
        new = np.diff(offset[order], prepend=-1) != 0
        if any((np.diff(c[order])[~new[1:]] != 0).any() for c in other):
            # Only where an offset has several contents must these be separated by sorting.
            order = order_of((offset, *other, *late))
            new = np.diff(offset[order], prepend=-1) != 0
            for column in other:
                new[1:] |= np.diff(column[order]) != 0
        starts = np.flatnonzero(new)
        how = np.where(self.ok[rows], READ_OK, READ_OTHER)
        how[self.ok[rows] & ((reads.flags[rows] & FINAL) != 0)] |= READ_FINAL
        first = rows[order[starts]]
        best[first] = True
        said[first] = np.bitwise_or.reduceat(how[order], starts)
        return best, said

    def _order(self) -> tuple[Mask, Mask]:
        """The reads that the order of polls is judged on; which of them follow ones left out."""
        reads, rows = self.reads, len(self.reads)
        ordered, follows = np.ones(rows, bool), np.zeros(rows, bool)
        if not rows:
            return ordered, follows
        order = any_order_of((reads.process, np.arange(rows)))
        process, op, seq, idx, offset, end, hw, start = (
            c[order]
            for c in (
                reads.process,
                reads.op,
                reads.seq,
                reads.idx,
                reads.offset,
                reads.end,
                reads.hw,
                reads.leo,
            )
        )
        fine = (self.ok & (reads.count > 0) & (reads.offset >= 0))[order]
        fine &= (hw < 0) | (end <= hw)
        fine &= (idx > 0) | (start < 0) | (offset <= start)
        goes_on = np.zeros(rows, bool)
        goes_on[1:] = (process[1:] == process[:-1]) & (offset[1:] == end[:-1]) & (hw[1:] >= hw[:-1])
        opens = np.ones(rows, bool)
        opens[1:] = op[1:] != op[:-1]
        # Inside an operation every run goes on, and the numbers of runs show that none is missing.
        inside = goes_on & fine
        inside[1:] &= np.where(seq[1:] == seq[:-1], idx[1:] == idx[:-1] + 1, idx[1:] == 0)
        starts = np.flatnonzero(opens)
        whole = np.bitwise_and.reduceat(np.where(opens, fine & (idx == 0), inside), starts)
        # Between operations: this one goes on where the one before it ended.
        joined = whole & goes_on[starts]
        joined[1:] &= whole[:-1]
        joined[0] = False
        idle = joined & np.append(joined[1:], False)
        idle &= ~np.bitwise_or.reduceat(self._extremes()[order], starts)
        after_idle = np.append(False, idle[:-1]) & ~idle
        after_idle[1:] &= process[starts][1:] == process[starts][:-1]
        number = np.cumsum(opens) - 1
        ordered[order] = ~idle[number]
        follows[order] = after_idle[number]
        return ordered, follows

    def _extremes(self) -> Mask:
        """Final reads that say how far final reads went, from where, and what end they stated."""
        reads, found = self.reads, np.zeros(len(self.reads), bool)
        final = np.flatnonzero(self.ok & ((reads.flags & FINAL) != 0))
        if len(final):
            found[final[np.argmax(reads.end[final])]] = True
            found[final[np.argmax(reads.hw[final])]] = True
            begun = final[reads.leo[final] >= 0]
            if len(begun):
                found[begun[np.argmin(reads.leo[begun])]] = True
        return found

    def spans(self) -> tuple[I64, I64, I64]:
        """The processes that read here, with the first and the last of their operations."""
        reads = self.reads
        order = any_order_of((reads.process, reads.op)) if len(reads) else reads.op
        process, op = reads.process[order], reads.op[order]
        starts = first_of(process)
        ends = np.append(starts[1:], len(order))[: len(starts)] - 1
        return process[starts], op[starts], op[ends]


def splittable(group: Group) -> bool:
    """Whether what is left of a partition's reads is enough to judge it."""
    spans = group.of(Kind.SPAN)
    if not len(spans):
        return True
    if group.has_transactions:
        return False
    order = order_of((spans.process, spans.op, spans.value))
    process, first, last = spans.process[order], spans.op[order], spans.value[order]
    # One operation may end one range and begin the next.
    if ((process[1:] == process[:-1]) & (first[1:] < last[:-1])).any():
        return False
    reads = group.of(Kind.READ)
    reads = reads.take((reads.flags & CONTENT) == 0)
    return _none_between(reads, process, first, last) and _none_missing(reads)


def _none_between(reads: Facts, process: I64, first: I64, last: I64) -> bool:
    """No read without a place of its own fell between those of a range."""
    matters = (reads.hw >= 0) | (reads.count > 0)
    for row in np.flatnonzero((reads.offset < 0) & (reads.leo < 0) & matters).tolist():
        own = (process == reads.process[row]) & (first < reads.op[row]) & (reads.op[row] < last)
        if own.any():
            return False
    return True


def _none_missing(reads: Facts) -> bool:
    """Every run of a read but its first has the one before it."""
    later = reads.idx[1:] > 0
    before = (reads.op[1:] == reads.op[:-1]) & (reads.seq[1:] == reads.seq[:-1])
    before &= reads.idx[1:] == reads.idx[:-1] + 1
    return not len(reads) or bool(reads.idx[0] == 0 and before[later].all())
