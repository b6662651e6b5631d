"""The operations of a history as the page counts them."""

from __future__ import annotations

from pathlib import Path

from harness.formats.history import Op, Read, RecordRun, Send, encode
from reports.run_page import operations
from reports.run_page.files import Notes


def test_a_transaction_that_only_read_is_no_write(tmp_path: Path) -> None:
    """Read alone it is a poll; with one send it is a write, whatever else it read."""
    read = Read(partition="p", records=(RecordRun(offset=0, value=7, count=2),))
    send = Send(partition="p", value=9, offset=2)
    lines = [
        Op(op=0, t_us=1, process=1, client="c", type="invoke", f="txn"),
        Op(op=0, t_us=2, process=1, client="c", type="ok", f="txn", reads=(read,)),
        Op(op=1, t_us=3, process=1, client="c", type="invoke", f="txn", sends=(send,)),
        Op(op=1, t_us=4, process=1, client="c", type="ok", f="txn", sends=(send,), reads=(read,)),
    ]
    path = tmp_path / "history.jsonl"
    path.write_bytes(b"".join(map(encode, lines)))
    found = operations.read(path, (), Notes())
    assert found.acked.tolist() == [False, True]
    assert [found.kinds[kind] for kind in found.kind] == ["poll", "txn"]
    assert found.count.tolist() == [2, 1]
