"""`messages.jsonl`: messages that link rules dropped or held, a few of each kind and second."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from node.formats.bounds import Number, Time
from node.formats.wire_bounds import MAX_NODE_NAME, MAX_OFFSET, MAX_PARTITION_NAME

FILE: Final = "messages.jsonl"
MOST_A_SECOND: Final = 5
"""Lines for one kind of message on one link."""

MOST_LINKS: Final = 20_000
"""Kinds of messages on links that get lines in one second."""

Fate = Literal["dropped", "held"]


class MessageLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message from `sender` to `receiver`, with fields of its header."""

    t_us: Time
    sender: str
    receiver: str
    fate: Fate
    kind: str = "?"
    partition: str = ""
    offset: Number = -1
    hw: Number = -1
    leader_epoch: Number = -1
    term: Number = -1
    error: str = ""


TEXTS: Final = ("kind", "partition", "error")
NUMBERS: Final = ("offset", "hw", "leader_epoch", "term")


class MessageSampler:
    """The choice of the affected messages that get a line. Times in microseconds. A page draws the
    messages that never arrived, and a link that is cut for seconds loses thousands of the same
    kind: only MOST_A_SECOND of each kind on each link get a line in each second."""

    def __init__(self) -> None:
        self._second = -1
        self._written: defaultdict[tuple[str, str, Any], int] = defaultdict(int)

    def line(
        self, t_us: int, sender: str, receiver: str, fate: Fate, fields: Mapping[str, Any]
    ) -> MessageLine | None:
        """Return the line of a message with these `fields`; None if enough of its kind have one."""
        # Garbage on the wire may have names of any length and fields of any type.
        sender, receiver = sender[:MAX_NODE_NAME], receiver[:MAX_NODE_NAME]
        second = t_us // 1_000_000
        if second != self._second:
            self._second = second
            self._written.clear()
        texts = {
            name: fields[name][:MAX_PARTITION_NAME]
            for name in TEXTS
            if isinstance(fields.get(name), str)
        }
        alike = (sender, receiver, texts.get("kind", "?"))
        if self._written[alike] >= MOST_A_SECOND or len(self._written) > MOST_LINKS:
            return None
        self._written[alike] += 1
        numbers = {
            name: fields[name]
            for name in NUMBERS
            if isinstance(fields.get(name), int) and abs(fields[name]) <= MAX_OFFSET
        }
        return MessageLine(
            t_us=t_us, sender=sender, receiver=receiver, fate=fate, **texts, **numbers
        )
