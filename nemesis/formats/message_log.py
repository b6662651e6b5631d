"""`messages.jsonl`: messages that link rules dropped or held, a few of each kind and second."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from node.formats.bounds import Number, Time

FILE: Final = "messages.jsonl"

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
