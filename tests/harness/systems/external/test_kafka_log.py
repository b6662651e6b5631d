"""The log of Kafka on a disk, as its brokers write it."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from harness.systems.external.kafka_log import read_log

# Written by another implementation of the format (kafka-python 3.0.12). The second has a key.
FORMAT_0 = (
    "0000000000000000000000110c94f89c0000ffffffff000000036f6e65"
    "000000000000000100000012b77f2df30000000000016b0000000374776f"
)
# Written by Kafka 4.4.0.
BATCH = (
    "00000000000000000000007a00000002022ff09351000000000000000001a220240d67000001a220240d67ffffffff"
    "ffffffffffffffffffff000000018e010000000180010000004a00000000b2ce3de238cfb947" + "00" * 49
)
LATER = FORMAT_0.replace("9c00", "9c02", 1)
COMPRESSED = FORMAT_0[:34] + "01" + FORMAT_0[36:]


def written(folder: Path, text: str, end: int = 9) -> Path:
    """Return the `log.dirs` of a broker that has one partition."""
    log = folder / "log-0-0"
    log.mkdir()
    (log / "00000000000000000000.log").write_bytes(bytes.fromhex(text))
    marks = f"0\n2\nother 0 7\nlog-0 0 {end}\n"
    (folder / "replication-offset-checkpoint").write_text(marks)
    return folder


def found(folder: Path) -> list[tuple[int, bytes]]:
    return list(read_log(folder, "log-0") or ())


def test_records_below_the_high_watermark_are_read(tmp_path: Path) -> None:
    folder = written(tmp_path, FORMAT_0)
    assert found(folder) == [(0, b"one"), (1, b"two")]
    assert read_log(folder, "log-1") is None, "a broker without the partition has no log"
    later = FORMAT_0.replace("00" * 8, "00" * 7 + "05").replace("00" * 7 + "01", "00" * 7 + "06")
    (folder / "log-0-0" / "00000000000000000005.log").write_bytes(bytes.fromhex(later))
    assert [offset for offset, _ in found(folder)] == [0, 1, 5, 6]


@pytest.mark.parametrize("end", [0, 1])
def test_a_record_above_the_stored_high_watermark_may_be_committed(
    end: int, tmp_path: Path
) -> None:
    with pytest.raises(
        ValueError, match=f"has offset {end}, above the stored high watermark {end}"
    ):
        found(written(tmp_path, FORMAT_0, end=end))


@pytest.mark.parametrize(
    "text", [FORMAT_0[:-2], FORMAT_0[:-2] + "00", LATER, FORMAT_0[:20], COMPRESSED, "ff" * 40]
)
def test_what_cannot_be_read_is_one_sentence(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"00000000\.log has an unreadable record at"):
        found(written(tmp_path, text))


def test_records_without_a_high_watermark_are_not_an_empty_log(tmp_path: Path) -> None:
    folder = written(tmp_path, FORMAT_0)
    (folder / "replication-offset-checkpoint").write_text("0\n1\nother 0 7\n")
    with pytest.raises(ValueError, match="no high watermark of log-0"):
        found(folder)
    (folder / "log-0-0" / "00000000000000000000.log").write_bytes(b"")
    assert found(folder) == []


def test_records_in_a_batch_are_read(tmp_path: Path) -> None:
    value = bytes.fromhex("0000004a00000000b2ce3de238cfb947") + bytes(48)
    assert found(written(tmp_path, BATCH)) == [(0, value)]


@pytest.mark.parametrize("at", range(16, len(BATCH) // 2))
def test_no_changed_byte_of_a_batch_is_read(at: int, tmp_path: Path) -> None:
    data = bytearray.fromhex(BATCH)
    data[at] ^= 1
    with pytest.raises(ValueError, match=r"00000000\.log has an unreadable record at"):
        found(written(tmp_path, data.hex()))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(("key", "value"), [(None, b"v"), (b"", b""), (b"k", b"value")])
def test_a_message_of_either_format_is_read(
    magic: int, key: bytes | None, value: bytes, tmp_path: Path
) -> None:
    size = -1 if key is None else len(key)
    fields = struct.pack(">bb", magic, 0) + bytes(8 * magic) + struct.pack(">i", size)
    rest = fields + (key or b"") + struct.pack(">i", len(value)) + value
    entry = struct.pack(">qiI", 7, len(rest) + 4, zlib.crc32(rest)) + rest
    assert found(written(tmp_path, entry.hex())) == [(7, value)]
