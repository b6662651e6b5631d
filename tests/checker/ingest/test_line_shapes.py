"""Lines read by their shapes are what they are one by one; columns that say nothing go."""

from __future__ import annotations

import random

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checker.ingest.history_columns import HistoryBlock, _read
from checker.ingest.line_shapes import NotPlain, scan, templates
from checker.ingest.op_columns import KINDS, TYPES, filled
from checker.ingest.read_history import strict
from checker.ingest.row_group import table_of
from harness.formats.history import Op, Read, RecordRun, Send, encode
from node.formats.json_input import Unreadable

NAMES = st.sampled_from(
    ["p", "key-7", "key-07", "7", "007", "k-1-22", "é3", "a\\u00e91", 'q"1', "x.5"]
)
NUMBERS = st.one_of(
    st.integers(0, 30), st.sampled_from([1_000, 1_003, 2**31, 2**62 - 1, 10**17, 131_072])
)
RUNS = st.builds(RecordRun, NUMBERS, st.integers(-3, 50) | NUMBERS, st.integers(0, 4), NUMBERS)
OPS = st.builds(
    Op,
    op=NUMBERS,
    t_us=NUMBERS,
    process=NUMBERS | st.just(-1),
    client=NAMES | st.just(""),
    type=st.sampled_from(TYPES),
    f=st.sampled_from(KINDS),
    sends=st.lists(
        st.builds(Send, partition=NAMES, value=NUMBERS, count=st.integers(0, 3), offset=NUMBERS),
        max_size=2,
    ).map(tuple),
    reads=st.lists(
        st.builds(
            Read, partition=NAMES, start=NUMBERS, node=NAMES, records=st.lists(RUNS).map(tuple)
        ),
        max_size=2,
    ).map(tuple),
    partitions=st.lists(NAMES, max_size=2).map(tuple),
    rebalanced=st.lists(NAMES, max_size=1).map(tuple),
    final=st.booleans(),
    error=NAMES,
    seq=NUMBERS,
)


def one_by_one(text: bytes) -> list[bytes] | None:
    """Return the operations on lines, encoded; None where a line has none."""
    try:
        return [encode(strict.decode(line)) for line in text.split(b"\n")[:-1]]
    except Unreadable:
        return None


def by_shape(text: bytes) -> list[bytes] | None:
    """Return the same, from columns and the values of each line."""
    try:
        lines = scan(text)
        codes, found = templates(lines, _read)
        made = HistoryBlock(lines, codes, found, np.arange(len(codes)))
    except NotPlain:
        return None
    ops = [filled(found[code], lines, row) for row, code in enumerate(codes.tolist())]
    for row, op in enumerate(ops):
        assert (TYPES[made.type[row]], KINDS[made.f[row]]) == (op.type, op.f)
        assert {name: column[row] for name, column in made.number.items()} == {
            name: getattr(op, name) for name in made.number
        }
        assert made.client[1][made.client[0][row]] == op.client
        assert made.error[1][made.error[0][row]] == op.error
    assert [made.send_to[1][code] for code in made.send_to[0]] == [
        send.partition for op in ops for send in op.sends
    ]
    reads = [read for op in ops for read in op.reads]
    assert [made.read_of[1][code] for code in made.read_of[0]] == [r.partition for r in reads]
    assert [made.read_from[1][code] for code in made.read_from[0]] == [r.node for r in reads]
    for name, column in made.send.items():
        assert column.tolist() == [getattr(send, name) for op in ops for send in op.sends]
    for name, column in made.run.items():
        assert column.tolist() == [getattr(run, name) for read in reads for run in read.records]
    return [*map(encode, ops)]


@settings(deadline=None)
@given(st.lists(OPS, min_size=1, max_size=6))
def test_all_that_a_line_may_say(ops: list[Op]) -> None:
    assert by_shape(b"".join(map(encode, ops))) == [*map(encode, ops)]


@settings(deadline=None)
@given(st.lists(OPS, min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_lines_that_are_nearly_right(ops: list[Op], chance: random.Random) -> None:
    text = bytearray(b"".join(map(encode, ops)))
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(text))
        text[at : at + chance.randint(0, 1)] = chance.choice(
            [b"0", b"-", b"9", b".", b"1", b"", b"\n"]
        )
    found = by_shape(bytes(text))
    assert found is None or found == one_by_one(bytes(text))


def test_a_digit_in_another_place_is_another_shape() -> None:
    """`[1,2]` and `[12,]` are the same without their digits."""
    lines = scan(b'{"a":[1,2]}\n{"a":[12,]}\n{"a":[345,6]}\n')
    assert lines.shape.tolist() == [0, 1, 0]
    assert lines.number.tolist() == [1, 2, 12, 345, 6]


@pytest.mark.parametrize("text", [b"", b"1", b"99999999999999999999\n"])
def test_what_cannot_be_scanned(text: bytes) -> None:
    with pytest.raises(NotPlain):
        scan(text)


def test_a_number_of_an_exemplar_in_a_line_is_no_place() -> None:
    op = Op(op=1_000, t_us=1_001, process=1_000, client="1002", type="invoke", f="poll")
    lines = [encode(op), encode(msgspec.structs.replace(op, op=7))]
    assert by_shape(b"".join(lines)) == lines


@pytest.mark.parametrize(
    ("hw", "stays"),
    [([-1, -1], False), ([-1, 4], True), ([4, -1], True), ([-1, None], True), ([], True)],
)
def test_a_column_stays_unless_it_says_nothing_in_all_rows(
    hw: list[int | None], stays: bool
) -> None:
    rows = pa.RecordBatch.from_pydict({"hw": pa.array(hw, pa.int64())})
    assert (table_of(rows).column("hw") is not None) == stays
