"""The lines that the nemesis writes."""

from __future__ import annotations

import msgspec

from nemesis.formats.fault_log import FaultLine


def test_counts_are_written_where_something_was_counted() -> None:
    line = FaultLine(fault=0, what="kill", action="inject", t_us=1)
    assert "dropped" not in msgspec.to_builtins(line)
    assert line.affected == 0
    counted = msgspec.structs.replace(line, action="effect", dropped=0, stopped=2)
    assert msgspec.to_builtins(counted)["dropped"] == 0
    every = msgspec.structs.replace(counted, dropped=1, delayed=2, duplicated=3, stopped=4)
    assert (counted.affected, every.affected) == (2, 10)
