"""Which messages the link rules dropped or held, as lines of `messages.jsonl`. Pure.

A page draws the messages that never arrived; a link that is cut for seconds loses thousands alike.
So of each kind on each link so many are kept in each second, wherever in the run that is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from nemesis.formats.message_log import NUMBERS, TEXTS, Fate, MessageLine

MOST_A_SECOND: Final = 5
"""Of one kind on one link."""


class StruckMessages:
    """Decides which of the messages that were struck are worth a line. Times in microseconds."""

    def __init__(self) -> None:
        self._second = -1
        self._kept: defaultdict[tuple[str, str, Any], int] = defaultdict(int)

    def line(
        self, t_us: int, sender: str, receiver: str, fate: Fate, fields: Mapping[str, Any]
    ) -> MessageLine | None:
        """The line of a message with these header fields; None when enough like it are kept."""
        second = t_us // 1_000_000
        if second != self._second:
            self._second = second
            self._kept.clear()
        alike = (sender, receiver, fields.get("kind"))
        if self._kept[alike] >= MOST_A_SECOND:
            return None
        self._kept[alike] += 1
        # Garbage on the wire may have fields of any type.
        texts = {name: fields[name] for name in TEXTS if isinstance(fields.get(name), str)}
        numbers = {name: fields[name] for name in NUMBERS if isinstance(fields.get(name), int)}
        return MessageLine(
            t_us=t_us, sender=sender, receiver=receiver, fate=fate, **texts, **numbers
        )
