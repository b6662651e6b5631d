"""The lines that the nemesis writes."""

from __future__ import annotations

import msgspec
import pytest

from nemesis.formats.fault_log import FaultLine
from nemesis.formats.message_log import MessageLine
from tests.support.format_table import Format, check

FAULT = FaultLine(
    fault=3,
    what="kill",
    action="effect",
    t_us=10,
    done_us=12,
    on="leader:log-0",
    nodes=("n1",),
    links=(("n1", "n2"),),
    detail="x",
    dropped=1,
    delayed=2,
    duplicated=3,
    stopped=4,
)


@pytest.mark.parametrize(
    "form",
    [
        Format(
            FAULT,
            (
                ("fault", 2**63),
                ("t_us", -1),
                ("done_us", 2**62 + 1),
                ("action", "struck"),
                ("dropped", -1),
                ("links", [["n1"]]),
            ),
        ),
        Format(
            MessageLine(
                t_us=1,
                sender="n1",
                receiver="n2",
                fate="held",
                kind="fetch",
                partition="log-0",
                offset=5,
                hw=4,
                leader_epoch=2,
                term=1,
                error="none",
            ),
            (("t_us", -1), ("fate", "lost"), ("hw", 2**63), ("kind", 7)),
        ),
    ],
    ids=repr,
)
def test_format(form: Format) -> None:
    check(form)


def test_counts_are_written_where_something_was_counted() -> None:
    line = FaultLine(fault=0, what="kill", action="inject", t_us=1)
    assert "dropped" not in msgspec.to_builtins(line)
    assert line.affected == 0
    counted = msgspec.structs.replace(line, action="effect", dropped=0, stopped=2)
    assert msgspec.to_builtins(counted)["dropped"] == 0
    assert (counted.affected, FAULT.affected) == (2, 10)
