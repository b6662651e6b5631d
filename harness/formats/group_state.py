"""States of consumer groups that replicas keep, and the log from which they are made: the lines of
`group-states.jsonl`."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from node.formats.bounds import Number, Offset

GROUP_STATES: Final = "group-states.jsonl"


class GroupRecord(msgspec.Struct, frozen=True):
    """A record of the log of a group: the last value of a key is its state, null removes it."""

    key: Any
    value: Any


class GroupState(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One line. Either what replica `node` keeps of a group in a partition: its position, and by
    offset how often each `pending` record was delivered. Or a `record` of the log at `offset`. Or
    the state that `node` has after it `applied` the log below that offset: keys and values."""

    node: str = ""
    group: str = ""
    partition: str = ""
    applied: Offset = -1
    position: Offset | None = None
    pending: tuple[tuple[Offset, Number], ...] = ()
    offset: Offset = -1
    record: GroupRecord | None = None
    live: tuple[tuple[Any, Any], ...] | None = None
