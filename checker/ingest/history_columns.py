"""Many lines of a history at once, by column: twenty times sooner than one by one.

`read_columns` reads lines only if the strict reader (`checker.ingest.read_history`) would have
nothing to say about any of them; and of the operations in them only those that are plain: at most
one send, which the completion repeats, and no move of a consumer. All others are left to the
reader: `HistoryColumns.rest`.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from checker.evidence.facts import I64
from checker.evidence.group import Mask
from checker.evidence.sorting import order_of
from checker.ingest import tables
from harness.formats.history import OpKind, OpType
from node.formats.bounds import MOST_TIME_US

_SEND: Final = pa.struct(
    [("partition", pa.string())]
    + [(name, pa.int64()) for name in ("value", "count", "acks", "offset")]
)
_READ: Final = pa.struct(
    [
        ("partition", pa.string()),
        ("start", pa.int64()),
        ("records", pa.list_(pa.list_(pa.int64()))),
        ("hw", pa.int64()),
        ("node", pa.string()),
    ]
)
_LINE: Final = pa.schema(
    [(name, pa.int64()) for name in ("op", "t_us", "process")]
    + [(name, pa.string()) for name in ("client", "type", "f")]
    + [("sends", pa.list_(_SEND)), ("reads", pa.list_(_READ))]
    + [(name, pa.list_(pa.string())) for name in ("partitions", "rebalanced")]
    + [("final", pa.bool_()), ("error", pa.string()), ("step", pa.int64()), ("seq", pa.int64())]
)
_REQUIRED: Final = ("op", "t_us", "process", "client", "type", "f")
# Of each number its default (None: it must be there) and its range (`node.formats.bounds`).
_OFFSET: Final = (-1, 2**63 - 2**33)
_NUMBER: Final = (-(2**62), 2**62)
_VALUE: Final = (-(2**62), 2**63 - 2**33)
_COUNT: Final = (0, 2**17)
_LINE_NUMBERS: Final = {
    "op": (None, _OFFSET),
    "t_us": (None, (0, MOST_TIME_US)),
    "process": (None, _NUMBER),
    "step": (-1, _NUMBER),
    "seq": (-1, _OFFSET),
}
_SEND_NUMBERS: Final = {
    "value": (None, _VALUE),
    "count": (1, _COUNT),
    "acks": (-1, _NUMBER),
    "offset": (-1, _OFFSET),
}
_READ_NUMBERS: Final = {"start": (-1, _OFFSET), "hw": (-1, _OFFSET)}
# A run of records is an array of two to four numbers.
_RUN_NUMBERS: Final = (("offset", 0, _OFFSET), ("value", 0, _VALUE), ("count", 1, _COUNT))
_EPOCH: Final = ("epoch", -1, _NUMBER)
_LEAST_RUN, _LONGEST_RUN = 2, 4
_BLOCK_BYTES: Final = 1 << 20
_MOVES: Final = ("assign", "subscribe", "crash")


class _NotPlain(Exception):
    """The lines must be looked at one by one."""


@dataclass(frozen=True)
class HistoryColumns:
    """Some lines, read. `rest`: pairs of rows, invocation and completion, of operations that are
    not plain; `open` and `awaited`: invocations without completion, completions without
    invocation. Rows are numbers of lines, from 0."""

    tables: dict[str, pa.Table]
    rest: I64
    open: I64
    awaited: I64
    invoked: I64
    first_us: dict[int, int]
    last_us: dict[int, int]
    used: dict[int, set[str]]
    numbers: tuple[int, int]
    lines: tuple[bytes, I64]

    def line(self, row: int) -> bytes:
        """The text of a line."""
        text, ends = self.lines
        return text[int(ends[row - 1]) + 1 if row else 0 : int(ends[row])]


def read_columns(text: bytes, run: str, origin_us: int) -> HistoryColumns | None:
    """Whole lines as columns; None if one of them is not as it should be, or cannot be read so.

    `run` is the name of the run, `origin_us` when its storm began.
    """
    # What Arrow cannot tell from a field that is missing, or reads in another way than msgspec.
    if b"null" in text or b"\\" in text or not text.endswith(b"\n"):
        return None
    try:
        text.decode()
        return _Lines(text, _parsed(text)).columns(run, origin_us)
    except (_NotPlain, UnicodeDecodeError, pa.ArrowException):
        return None


def _parsed(text: bytes) -> pa.Table:
    table = pyarrow.json.read_json(
        BytesIO(text),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),
        parse_options=pyarrow.json.ParseOptions(_LINE, unexpected_field_behavior="error"),
    )
    return table.combine_chunks()


def _whole(column: pa.ChunkedArray) -> pa.Array:
    joined = column.combine_chunks()
    return joined.chunk(0) if isinstance(joined, pa.ChunkedArray) else joined


def _number(column: pa.Array, default: int | None, bounds: tuple[int, int]) -> I64:
    """A column of numbers, checked."""
    if column.null_count:
        if default is None:
            raise _NotPlain
        column = column.fill_null(default)
    numbers: I64 = column.to_numpy(zero_copy_only=False)
    if len(numbers) and (numbers.min() < bounds[0] or numbers.max() > bounds[1]):
        raise _NotPlain
    return numbers


def _words(column: pa.Array, *, least: int = 0) -> tuple[I64, list[str]]:
    """A column of words as codes and words, where a missing one is ""."""
    encoded = column.fill_null("").dictionary_encode()
    words = encoded.dictionary.to_pylist()
    if any(len(word) < least for word in words):
        raise _NotPlain
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), words


def _among(column: pa.Array, known: tuple[str, ...]) -> I64:
    """A column of words as their places in `known`."""
    codes, words = _words(column)
    if not set(words) <= set(known):
        raise _NotPlain
    return np.array([known.index(word) for word in words], np.int64)[codes]


def _lengths(lists: pa.Array) -> I64:
    lengths: I64 = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    return lengths.astype(np.int64)


_Words = tuple[I64, list[str]]


class _Lines:
    """Lines by column, checked as the strict reader checks them."""

    def __init__(self, text: bytes, table: pa.Table) -> None:
        characters = np.frombuffer(text, np.uint8)
        ends = np.flatnonzero(characters == ord("\n"))
        if table.num_rows != len(ends):
            raise _NotPlain
        # Arrow also takes two operations in one line, and one operation in two.
        starts = np.append(0, ends[:-1] + 1)
        if (characters[starts] != ord("{")).any() or (characters[ends - 1] != ord("}")).any():
            raise _NotPlain
        self.lines = text, ends
        column = {name: _whole(table.column(name)) for name in _LINE.names}
        if any(column[name].null_count for name in _REQUIRED):
            raise _NotPlain
        self.number = {
            name: _number(column[name], default, bounds)
            for name, (default, bounds) in _LINE_NUMBERS.items()
        }
        types, kinds = get_args(OpType), get_args(OpKind)
        self.type, self.f = _among(column["type"], types), _among(column["f"], kinds)
        self.outcome: _Words = self.type, list(types)
        self.kind: _Words = self.f, list(kinds)
        self.client = _words(column["client"])
        self.error = _words(column["error"])
        self.final: Mask = column["final"].fill_null(False).to_numpy(zero_copy_only=False)
        moved = np.isin(self.f, [kinds.index(kind) for kind in _MOVES])
        self.odd: Mask = moved | (_lengths(column["rebalanced"]) > 0)
        if _lengths(column["partitions"])[~moved].any():
            self.odd |= _lengths(column["partitions"]) > 0
        self._take_sends(column["sends"])
        self._take_reads(column["reads"])

    def _take_sends(self, lists: pa.Array) -> None:
        self.sends = _lengths(lists)
        self.send_at = np.cumsum(self.sends) - self.sends
        flat = lists.flatten()
        self.send = {
            name: _number(flat.field(name), default, bounds)
            for name, (default, bounds) in _SEND_NUMBERS.items()
        }
        self.send_to = _words(flat.field("partition"), least=1)

    def _take_reads(self, lists: pa.Array) -> None:
        self.reads = _lengths(lists)
        self.read_at = np.cumsum(self.reads) - self.reads
        flat = lists.flatten()
        self.read = {
            name: _number(flat.field(name), default, bounds)
            for name, (default, bounds) in _READ_NUMBERS.items()
        }
        self.read_of = _words(flat.field("partition"), least=1)
        self.read_from = _words(flat.field("node"))
        records = flat.field("records")
        self.runs = _lengths(records)
        self.run_at = np.cumsum(self.runs) - self.runs
        arrays = records.flatten()
        size, numbers = _lengths(arrays), _number(arrays.flatten(), None, (-(2**62), 2**63 - 1))
        if len(size) and (size.min() < _LEAST_RUN or size.max() > _LONGEST_RUN):
            raise _NotPlain
        at = np.cumsum(size) - size
        self.run: dict[str, I64] = {}
        for place, (name, default, (low, high)) in enumerate((*_RUN_NUMBERS, _EPOCH)):
            found = np.full(len(size), default, np.int64)
            there = size > place
            found[there] = numbers[at[there] + place]
            if len(found) and (found.min() < low or found.max() > high):
                raise _NotPlain
            self.run[name] = found

    def columns(self, run: str, origin_us: int) -> HistoryColumns:
        """Join completions with their invocations."""
        first_us, last_us = self._times()
        op, invoke = self.number["op"], self.type == get_args(OpType).index("invoke")
        begun, ended = np.flatnonzero(invoke), np.flatnonzero(~invoke)
        begun, ended = begun[order_of((op[begun],))], ended[order_of((op[ended],))]
        for rows in (begun, ended):
            if (op[rows][1:] == op[rows][:-1]).any():
                raise _NotPlain
        at = np.searchsorted(op[begun], op[ended])
        there = at < len(begun)
        there[there] = op[begun][at[there]] == op[ended][there]
        done, asked = ended[there], begun[at[there]]
        if (asked > done).any():
            raise _NotPlain
        for column in (self.number["process"], self.f):
            if (column[asked] != column[done]).any():
                raise _NotPlain
        without = np.ones(len(begun), bool)
        without[at[there]] = False
        # In the order in which they ended, as they are read one by one.
        order = order_of((done,)) if len(done) else done
        asked, done = asked[order], done[order]
        plain = self._plain(asked, done)
        made = self._tables(run, origin_us, asked[plain], done[plain])
        return HistoryColumns(
            made,
            np.stack((asked[~plain], done[~plain]), axis=1),
            np.sort(begun[without]),
            np.sort(ended[~there]),
            op[begun],
            first_us,
            last_us,
            self._used(asked[plain], done[plain]),
            self._numbers(),
            self.lines,
        )

    def _times(self) -> tuple[dict[int, int], dict[int, int]]:
        """The first and the last time of each process; none of them may go back."""
        process, t_us = self.number["process"], self.number["t_us"]
        if not len(process):
            raise _NotPlain
        order = order_of((process,))
        process, t_us = process[order], t_us[order]
        same = process[1:] == process[:-1]
        if (same & (t_us[1:] < t_us[:-1])).any():
            raise _NotPlain
        starts = np.flatnonzero(np.append(True, ~same))
        ends = np.append(starts[1:], len(process)) - 1
        names = process[starts].tolist()
        return (
            dict(zip(names, t_us[starts].tolist(), strict=True)),
            dict(zip(names, t_us[ends].tolist(), strict=True)),
        )

    def _numbers(self) -> tuple[int, int]:
        """The number that the writer gave the first line, and the one after the last."""
        seq = self.number["seq"]
        if seq[0] < 0:
            if (seq != seq[0]).any():
                raise _NotPlain
            return int(seq[0]), int(seq[0])
        if (seq[1:] != seq[:-1] + 1).any():
            raise _NotPlain
        return int(seq[0]), int(seq[-1]) + 1

    def _plain(self, asked: I64, done: I64) -> Mask:
        """Which operations are plain."""
        found = ~(self.odd[asked] | self.odd[done])
        found &= (self.sends[asked] <= 1) & (self.sends[done] <= self.sends[asked])
        both = np.flatnonzero(found & (self.sends[done] == 1))
        sent, known = self.send_at[asked[both]], self.send_at[done[both]]
        same = self.send["value"][sent] == self.send["value"][known]
        same &= self.send_to[0][sent] == self.send_to[0][known]
        found[both] = same
        return found

    def _used(self, asked: I64, done: I64) -> dict[int, set[str]]:
        """The partitions that each process sent to or read."""
        made: dict[int, set[str]] = {}
        sent, read = asked[self.sends[asked] == 1], np.repeat(done, self.reads[done])
        for rows, (codes, words), at in (
            (sent, self.send_to, self.send_at[sent]),
            (read, self.read_of, _places(self.read_at[done], self.reads[done])),
        ):
            process, codes = self.number["process"][rows], codes[at]
            if not len(codes):
                continue
            order = order_of((process, codes))
            process, codes = process[order], codes[order]
            new = np.append(True, (process[1:] != process[:-1]) | (codes[1:] != codes[:-1]))
            for who, code in zip(process[new].tolist(), codes[new].tolist(), strict=True):
                made.setdefault(who, set()).add(words[code])
        return made

    def _tables(self, run: str, origin_us: int, asked: I64, done: I64) -> dict[str, pa.Table]:
        """The tables `ops`, `sends` and `reads` of these operations."""
        number, final = self.number, self.final[asked] | self.final[done]
        begun, ended = number["t_us"][asked], number["t_us"][done]

        def common(rows: I64 | slice) -> dict[str, Any]:
            return {
                "run": run,
                "op": number["op"][asked][rows],
                "process": number["process"][asked][rows],
                "client": (self.client[0][asked][rows], self.client[1]),
                "invoke_us": begun[rows],
                "complete_us": ended[rows],
                "outcome": (self.outcome[0][done][rows], self.outcome[1]),
                "final": final[rows],
                "proved": False,
                "rebalanced": False,
            }

        sent = np.flatnonzero(self.sends[asked] == 1)
        send = self._sends(asked[sent], done[sent])
        count = np.zeros(len(asked), np.int64)
        count[sent] = send["count"]
        reads = self.reads[done]
        read = _places(self.read_at[done], reads)
        runs = np.maximum(self.runs[read], 1)
        every, polled = self._runs(read, runs)
        row = np.repeat(np.repeat(np.arange(len(done)), reads), runs)
        of_op = np.bincount(row, polled, minlength=len(done)).astype(np.int64)
        nth = np.arange(len(read)) - np.repeat(np.cumsum(reads) - reads, reads)
        return {
            "ops": _table(
                "ops",
                common(slice(None))
                | {
                    "f": (self.kind[0][asked], self.kind[1]),
                    "error": (self.error[0][done], self.error[1]),
                    "sent": count,
                    "polled": of_op,
                    "step": number["step"][asked],
                    "second": (ended - origin_us) // 1_000_000,
                },
            ),
            "sends": _table(
                "sends",
                common(sent)
                | send
                | {
                    "seq": np.zeros(len(sent), np.int64),
                    "partition": (self.send_to[0][self.send_at[asked[sent]]], self.send_to[1]),
                },
            ),
            "reads": _table("reads", common(row) | every | {"seq": np.repeat(nth, runs)}),
        }

    def _sends(self, asked: I64, done: I64) -> dict[str, Any]:
        """What is known of one send each: by its completion, if that tells of the same records."""
        at = self.send_at[asked]
        known = np.flatnonzero(self.sends[done] == 1)
        known = known[
            self.send["count"][self.send_at[done[known]]] == self.send["count"][at[known]]
        ]
        at = at.copy()
        at[known] = self.send_at[done[known]]
        return {name: column[at] for name, column in self.send.items()}

    def _runs(self, read: I64, runs: I64) -> tuple[dict[str, Any], I64]:
        """The runs of records of these reads, one that is empty for a read without records."""
        of = np.repeat(np.arange(len(read)), runs)
        idx = np.arange(len(of)) - np.repeat(np.cumsum(runs) - runs, runs)
        there = (self.runs[read] > 0)[of]
        at = (self.run_at[read][of] + idx)[there]
        found: dict[str, Any] = {"idx": idx}
        for name, empty in (("offset", -1), ("value", -1), ("count", 0), ("epoch", -1)):
            column = np.full(len(of), empty, np.int64)
            column[there] = self.run[name][at]
            found[name] = column
        rows = read[of]
        found |= {
            "partition": (self.read_of[0][rows], self.read_of[1]),
            "node": (self.read_from[0][rows], self.read_from[1]),
            "start": self.read["start"][rows],
            "hw": self.read["hw"][rows],
        }
        return found, found["count"]


def _places(begin: I64, count: I64) -> I64:
    """The places begin .. begin + count - 1 of each row, one after another."""
    made: I64 = np.arange(int(count.sum())) + np.repeat(begin - (np.cumsum(count) - count), count)
    return made


def _table(name: str, columns: dict[str, Any]) -> pa.Table:
    """A table from columns: numbers, words as codes, or one value for all rows."""
    schema, rows, arrays = tables.SCHEMAS[name], len(columns["op"]), []
    for field in schema:
        column = columns[field.name]
        if isinstance(column, tuple):
            codes, words = column
            array = pa.DictionaryArray.from_arrays(
                pa.array(codes.astype(np.int32)), pa.array(words, pa.string())
            ).cast(field.type)
        elif isinstance(column, np.ndarray):
            array = pa.array(column).cast(field.type)
        else:
            array = pa.repeat(pa.scalar(column, field.type), rows)
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=schema)
