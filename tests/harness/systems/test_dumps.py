"""Adapters refuse a log file that is damaged, as `Adapter.dump` demands."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from harness.systems import liftbridge, rabbitmq
from harness.systems.external.redis_aof import commands


def chunk(offset: int, *payloads: bytes) -> bytes:
    """Return a chunk of a stream as RabbitMQ writes it, with a trailer of three bytes."""
    data = b"".join(struct.pack(">I", len(each)) + each for each in payloads)
    count = len(payloads)
    sizes = (zlib.crc32(data), len(data), 3, 0)
    return struct.pack(">BBHIqQQIIII", 0x50, 0, count, count, 1, 1, offset, *sizes) + data + b"end"


def test_a_damaged_segment_of_rabbitmq_is_refused(tmp_path: Path) -> None:
    segment = tmp_path / "0.segment"
    whole = b"OSIL\0\0\0\1" + chunk(0, b"a", b"bc") + chunk(2, b"d" * 40)
    records = [(0, b"a"), (1, b"bc"), (2, b"d" * 40)]
    segment.write_bytes(whole)
    assert list(rabbitmq._records(segment)) == records
    second = len(whole) - len(chunk(2, b"d" * 40))
    for at in range(9, len(whole) - 60):
        damaged = [whole[:at] + bytes(60) + whole[at + 60 :]]
        for data in damaged + [whole[:at]] * (not second - 3 <= at <= second):
            segment.write_bytes(data)
            with pytest.raises((ValueError, struct.error)):
                list(rabbitmq._records(segment))


def test_a_log_of_liftbridge_is_read_to_its_high_watermark(tmp_path: Path) -> None:
    values = [b"a", b"", b"d" * 40]
    messages = [b"crc." + b"\0\0" + struct.pack(">ii", -1, len(v)) + v + b"\0\0" for v in values]
    sets = [struct.pack(">qqqi", at, 0, 1, len(m)) + m for at, m in enumerate(messages)]
    (tmp_path / "00000000000000000000.log").write_bytes(b"".join(sets))
    mark = tmp_path / "replication-offset-checkpoint"
    mark.write_text("2")
    assert list(liftbridge.records(tmp_path)) == list(enumerate(values))
    mark.write_text("1")
    with pytest.raises(ValueError, match="offset 2: torn, or not committed"):
        list(liftbridge.records(tmp_path))
    mark.write_text("2")
    for missing in range(1, len(sets[2])):
        (tmp_path / "00000000000000000000.log").write_bytes(b"".join(sets)[:-missing])
        with pytest.raises(ValueError, match=r"torn|damaged"):
            list(liftbridge.records(tmp_path))


def test_commands_of_redis_may_end_within_one_and_have_no_zeros_between(tmp_path: Path) -> None:
    words = [[b"SELECT", b"0"], [b"RPUSH", b"log-0", b"a\r\n*1", b""]]
    first, second = (
        b"*%d\r\n" % len(each) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in each)
        for each in words
    )
    file = tmp_path / "appendonly.aof"
    for end in range(len(first + second) + 1):
        cut = (first + second)[:end]
        file.write_bytes(cut)
        assert list(commands(tmp_path)) == words[: cut.startswith(first) + cut.endswith(second)]
        file.write_bytes(cut + bytes(4096))
        with pytest.raises(ValueError, match=r"appendonly\.aof is damaged at byte"):
            list(commands(tmp_path))
