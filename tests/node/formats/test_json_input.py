"""JSON from anybody: bounded, and refused with one kind of error."""

from __future__ import annotations

import contextlib
import io
import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.formats import json_input
from node.formats.json_input import (
    MOST_DEPTH,
    JsonReader,
    Unreadable,
    WrongForm,
    decode,
    ended,
    read_bytes,
    read_file,
)


class Form(msgspec.Struct):
    a: int = 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "truncated"),
        (b"{", "truncated"),
        (b"\xff", "malformed"),
        (b'{"a":"\xff"}', "Expected `int`"),
        (b'{"b":' + b"[" * 90_000, "nested deeper than 100 levels"),
        (b'{"b":' + b"[" * 101 + b"]" * 101 + b"}", "nested deeper than 100 levels"),
        (b"9" * 5000, "out of range"),
        (b'"' + b"x" * 1000 + b'"', "Expected `object`"),
    ],
)
def test_what_is_not_of_the_form_has_a_reason(text: bytes, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        decode(text, Form)


def test_bad_text_inside_a_string_has_a_reason() -> None:
    with pytest.raises(Unreadable, match="can't decode byte 0xff"):
        decode(b'"\xff"', str)
    with pytest.raises(Unreadable):
        decode("\ud800", str)


def test_lines_are_decoded_at_once_or_not_at_all() -> None:
    reader = JsonReader(Form)
    assert reader.decode_lines(b'{"a":1}\n{"a":2}\n') == [Form(1), Form(2)]
    for bad in (b"{", b"[]", b'{"b":' + b"[" * 90_000, b'{"a":1}\n{"a":"x"}'):
        with pytest.raises(Unreadable):
            reader.decode_lines(bad)


def test_json_of_another_form_is_told_from_no_json() -> None:
    with pytest.raises(WrongForm):
        decode(b"[]", Form)
    with pytest.raises(Unreadable) as failed:
        decode(b"[", Form)
    assert not isinstance(failed.value, WrongForm) or "array" in str(failed.value)


def test_a_reason_is_short() -> None:
    class Strict(msgspec.Struct, forbid_unknown_fields=True):
        a: int = 0

    with pytest.raises(WrongForm) as failed:
        decode(b'{"' + b"x" * 100_000 + b'":1}', Strict)
    assert len(str(failed.value)) < 400


def test_the_depth_is_exact_and_brackets_in_strings_do_not_count() -> None:
    assert decode(b"[" * MOST_DEPTH + b"]" * MOST_DEPTH, Any)
    assert decode(b'["' + b"[{" * 1000 + b'\\"[["]', Any)
    assert len(decode(b"[" + b"[],{}," * 1000 + b"1]", Any)) == 2001


values = st.recursive(
    st.none() | st.booleans() | st.text(max_size=5) | st.integers(-5, 5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=60,
)


@given(values)
def test_every_value_survives(value: Any) -> None:
    text = msgspec.json.encode(value)
    assert decode(text, Any) == value
    wrapped = b"[" * 120 + text + b"]" * 120
    with pytest.raises(Unreadable, match="deeper"):
        decode(wrapped, Any)


def test_a_text_and_a_file_have_a_most_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Unreadable, match="it has 201 bytes, and at most 200 are read"):
        JsonReader(str, 200).decode(b'"' + b"x" * 199 + b'"')
    file = tmp_path / "large.json"
    file.write_bytes(b" " * 300 + b"1")
    assert read_file(file, int) == 1
    with pytest.raises(Unreadable, match="more than 200 bytes"):
        read_bytes(file, 200)


def test_a_small_file_takes_little_memory_however_much_is_allowed(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_bytes(b"{}")
    tracemalloc.start()
    try:
        assert read_bytes(file, 1 << 30) == b"{}"
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    with pytest.raises(OSError, match="missing"):
        read_file(tmp_path / "missing", int)


def test_a_line_without_end_is_cut_and_the_next_one_is_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(json_input, "MOST_LINE_BYTES", 10)
    text = b"short\n" + b"x" * 95 + b"\nnext\n" + b"y" * 30
    file = io.BytesIO(text)
    lines = [ended(part, file) for part in iter(lambda: file.readline(11), b"")]
    assert lines == [b"short\n", b"x" * 11 + b"\n", b"next\n", b"y" * 11 + b"\n"]
    assert ended(b"a\nb", io.BytesIO(b"")) == b"a\nb"


@pytest.mark.parametrize(
    "second",
    [
        b'{"a1":{"b":0},"a2":0}',
        b'{"a2":{"b":0},"a2":0}',
        b'{"a1":{"b":0,"\\u0062":0},"a2":0}',
        b'{"a1":{"b":0,"b":5},"a2":0}',
        b"",
    ],
)
def test_a_key_that_is_there_twice_is_found_in_any_line(second: bytes) -> None:
    """Also if a line differs from another one in digits only."""
    reader = JsonReader(Any, keys_once=True)
    lines = [b'{"a1":{"b":10},"a2":5}', b'{"x":1}', second]
    alone = []
    for line in lines:
        with contextlib.suppress(Unreadable):
            alone += [reader.decode(line)] if line else []
    for _ in range(2):
        found = []
        with contextlib.suppress(Unreadable):
            found = reader.decode_lines(b"\n".join(lines) + b"\n")
        assert found == (alone if len(alone) == 3 or not second else [])
