"""Batches and messages as bytes: round trips, and garbage that is refused with one named error."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from node.core import batch as batches
from node.core.batch import HEADER, MAX_PAYLOAD
from node.formats import messages, wire
from node.formats import wire as wire_format
from node.formats.errors import WireError
from node.formats.messages import AnyMessage, FetchResponse
from node.formats.wire_bounds import LAST_EPOCH, MAX_EPOCH, MAX_OFFSET

KINDS: tuple[type[AnyMessage], ...] = AnyMessage.__args__  # type: ignore[attr-defined]
quick = settings(max_examples=60, deadline=None)

payloads = st.binary(max_size=80)
sized_payloads = payloads.flatmap(
    lambda payload: st.tuples(st.integers(1, max(1, len(payload))), st.just(payload))
)
"""A number of records, and a payload with room for them."""
offsets = st.integers(0, MAX_OFFSET)
epochs = st.integers(0, LAST_EPOCH)


# -- batches --------------------------------------------------------------------------------------


@quick
@given(sized_payloads, offsets, epochs)
def test_a_batch_comes_back(sized: tuple[int, bytes], base: int, epoch: int) -> None:
    count, payload = sized
    one = batches.view(batches.stamp(batches.build(count, payload), base, epoch))
    assert (one.base_offset, one.epoch, one.count, one.payload) == (base, epoch, count, payload)
    assert one.end == base + count


@quick
@given(st.lists(sized_payloads, max_size=5))
def test_batches_end_to_end_come_apart_again(several: list[tuple[int, bytes]]) -> None:
    made = [batches.build(*one) for one in several]
    found = batches.split(b"".join(made))
    assert [one.data for one in found] == made


@quick
@given(payloads, st.data())
def test_a_flipped_bit_is_noticed_wherever_the_producer_wrote(payload: bytes, data: Any) -> None:
    """All but base offset and epoch, which the leader stamps, and the control bit, which a
    producer may not set."""
    whole = bytearray(batches.build(3, payload))
    at = data.draw(st.integers(12, len(whole) - 1))
    flipped = 1 << data.draw(st.integers(0, 7))
    assume((at, flipped) != (12, batches.CONTROL_BIT))
    whole[at] ^= flipped
    with pytest.raises(WireError):
        batches.view(bytes(whole))


@quick
@given(payloads, st.data())
def test_a_batch_cut_short_is_refused(payload: bytes, data: Any) -> None:
    whole = batches.build(1, payload)
    with pytest.raises(WireError):
        batches.view(whole[: data.draw(st.integers(0, len(whole) - 1))])


def test_a_length_that_lies_allocates_nothing() -> None:
    lie = HEADER.pack(0, 0, batches.BATCH_VERSION, MAX_PAYLOAD + 1, 0, 1)
    with pytest.raises(WireError, match="does not fit"):
        batches.view(lie)


@pytest.mark.parametrize("count", [0, 8, 2**29, 2**32 - 1])
def test_a_count_that_lies_is_refused(count: int) -> None:
    """Room for the records of a batch is never larger than the batch."""
    with pytest.raises(WireError, match="does not fit"):
        batches.view(batches.build(count, b"7 bytes"))


@pytest.mark.parametrize(("base", "epoch"), [(-1, 0), (0, -2), (MAX_OFFSET + 1, 0)])
def test_a_place_that_no_log_has_is_refused(base: int, epoch: int) -> None:
    with pytest.raises(WireError, match="out of range"):
        batches.view(batches.stamp(batches.build(1, b"x"), base, epoch))


def test_the_prefix_hash_covers_order_epoch_count_and_payload() -> None:
    def chained(*several: tuple[int, int, bytes]) -> bytes:
        hash_ = batches.EMPTY_CHAIN
        for epoch, count, payload in several:
            one = batches.view(batches.stamp(batches.build(count, payload), 0, epoch))
            hash_ = batches.chain(hash_, one)
        return hash_

    base = chained((1, 1, b"a."), (1, 1, b"b."))
    others = [
        chained((1, 1, b"b."), (1, 1, b"a.")),
        chained((1, 1, b"a."), (2, 1, b"b.")),
        chained((1, 1, b"a."), (1, 2, b"b.")),
        chained((1, 1, b"a."), (1, 1, b"c.")),
        chained((1, 1, b"a.")),
        chained((1, 2, b"ab")),
    ]
    assert len({base, *others}) == 7
    assert base == chained((1, 1, b"a."), (1, 1, b"b."))


# -- messages -------------------------------------------------------------------------------------

names = st.text(max_size=12)
_NAMES = ("n1", "log-0", "a_b.c", "0123456789abcdef")


def _of(kind: Any) -> st.SearchStrategy[Any]:
    i = msgspec.inspect
    match kind:
        case i.IntType(ge=low, le=high):
            return st.integers(low, high)
        case i.BoolType():
            return st.booleans()
        case i.StrType(pattern=pattern):
            fit = [name for name in _NAMES if pattern and re.search(pattern, name)]
            return names if pattern is None else st.sampled_from(fit)
        case i.EnumType(cls=cls):
            return st.sampled_from(list(cls))
        case i.NoneType():
            return st.none()
        case i.UnionType(types=types):
            return st.one_of(*map(_of, types))
        case i.TupleType(item_types=types):
            return st.tuples(*map(_of, types))
        case i.VarTupleType(item_type=each):
            return st.lists(_of(each), max_size=3).map(tuple)
        case i.DictType(key_type=key, value_type=value):
            return st.dictionaries(_of(key), _of(value), max_size=3)
    raise AssertionError(kind)


def drawn(kind: type[AnyMessage]) -> st.SearchStrategy[AnyMessage]:
    """Any message of a kind, from its declared fields and their bounds."""
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    return st.builds(kind, **{field.name: _of(field.type) for field in info.fields})


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_of_message_comes_back(kind: type[AnyMessage]) -> None:
    @settings(max_examples=10, deadline=None)
    @given(drawn(kind), names, names, st.none() | payloads)
    def check(message: AnyMessage, to: str, source: str, body: bytes | None) -> None:
        frames = wire.encode(to, source, message, body)
        assert wire.decode(frames) == (to, source, message, body)
        fields = wire_format.peek(frames)
        assert fields["kind"] == kind.__struct_config__.tag
        assert fields["corr"] == message.corr
        assert wire_format.fields_of(message, body) == fields, "what a simulated link sees"

    check()


def test_every_message_class_can_be_sent() -> None:
    classes = {
        value
        for value in vars(messages).values()
        if isinstance(value, type) and issubclass(value, messages.Message)
    } - {messages.Message}
    assert classes == set(KINDS)
    assert len({kind.__struct_config__.tag for kind in KINDS}) == len(KINDS)


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        ([], "frames"),
        ([b"", b"", b""], "frames"),
        ([b""], "version missing"),
        ([b"\x01\x02\x02n1n2\x80"], "version 01"),
        ([b"\x02\x02\x02n1n"], "name is cut short"),
        ([b"\x02\x02\x41n1" + b"n" * 65 + b"\x80"], "above 64 bytes"),
        ([b"\x02\x02\x02n1n2"], "cannot be decoded"),
        ([b"\x02\x02\x02n1n2\x80"], "cannot be decoded"),
        ([b"\x02\x02\x02n1n2\x91\x01"], "cannot be decoded"),
        ([b"\x02\x02\x02n1n2\x81\x01\x01", b"body"], "cannot be decoded"),
        ([b"\x02\x01\x01\xffn\x81\xa4kind\xa8metadata"], "cannot be decoded"),
        ([bytes(wire_format.MAX_HEADER_BYTES + 1)], "header has more than"),
    ],
)
def test_why_a_message_is_refused(frames: list[bytes], why: str) -> None:
    with pytest.raises(WireError, match=why):
        wire.decode(frames)
    assert isinstance(wire_format.peek(frames), dict)


def test_a_message_that_is_too_big_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_FRAME_BYTES", 100)
    frames = wire.encode("n1", "n2", messages.MetadataRequest(), bytes(101))
    with pytest.raises(WireError, match="the message has more than"):
        wire.decode(frames)


@quick
@given(st.integers(-1, MAX_EPOCH), offsets, st.lists(payloads, max_size=3))
def test_the_body_of_a_fetch_response(epoch: int, hw: int, several: list[bytes]) -> None:
    body = wire_format.fetch_body(epoch, hw, several)
    assert wire_format.split_fetch_body(body) == (epoch, hw, b"".join(several))
    peeked = wire_format.peek(wire.encode("n1", "n2", FetchResponse(partition="log-0"), body))
    assert (peeked["leader_epoch"], peeked["hw"]) == (epoch, hw)
    assert peeked["body_bytes"] == len(body)


@pytest.mark.parametrize(
    ("epoch", "hw"), [(-2, 0), (MAX_EPOCH + 1, 0), (2**63 - 1, 0), (0, -1), (0, MAX_OFFSET + 1)]
)
def test_a_fetch_response_out_of_bounds(epoch: int, hw: int) -> None:
    with pytest.raises(WireError, match="leader epoch"):
        wire_format.split_fetch_body(wire_format.fetch_body(epoch, hw, []))


@pytest.mark.parametrize("body", [None, b"", bytes(15)])
def test_a_fetch_response_without_its_prefix(body: bytes | None) -> None:
    with pytest.raises(WireError):
        wire_format.split_fetch_body(body)
