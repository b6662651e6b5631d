"""`messages.jsonl`: messages that link rules dropped or held, a few of each kind and second."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from node.formats.bounds import Number, Time

FILE: Final = "messages.jsonl"
MOST_A_SECOND: Final = 5
"""Lines for one kind of message on one link."""

Fate = Literal["dropped", "held"]


class MessageLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message on its way from `sender` to `receiver`, with what its header said."""

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
    """Decides which of the affected messages get a line. Times in microseconds.

    A page draws the messages that never arrived, and a link that is cut for seconds loses thousands
    alike: so many of each kind on each link get a line in each second.
    """

    def __init__(self) -> None:
        self._second = -1
        self._written: defaultdict[tuple[str, str, Any], int] = defaultdict(int)

    def line(
        self, t_us: int, sender: str, receiver: str, fate: Fate, fields: Mapping[str, Any]
    ) -> MessageLine | None:
        """The line of a message with these header fields; None when enough like it have one."""
        second = t_us // 1_000_000
        if second != self._second:
            self._second = second
            self._written.clear()
        alike = (sender, receiver, fields.get("kind"))
        if self._written[alike] >= MOST_A_SECOND:
            return None
        self._written[alike] += 1
        # Garbage on the wire may have fields of any type.
        texts = {name: fields[name] for name in TEXTS if isinstance(fields.get(name), str)}
        numbers = {name: fields[name] for name in NUMBERS if isinstance(fields.get(name), int)}
        return MessageLine(
            t_us=t_us, sender=sender, receiver=receiver, fate=fate, **texts, **numbers
        )
