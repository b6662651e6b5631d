"""`exits.jsonl`: every end of a process of the system under test, one line each."""

from __future__ import annotations

from typing import Literal

import msgspec

from node.formats.bounds import Number, Time


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a process of `node`. `code` is as in `subprocess` (negative: a signal), None if
    unknown. `by` says who ended it: a fault ("kill"), the harness ("stop"), a signal from outside
    ("outside"), or the process ("itself"). `expected`: whether the harness or a fault asked for it.
    The checker reports an end that is not expected, with the last output of the process (`said`).
    """

    node: str
    incarnation: Number = -1
    t_us: Time
    code: Number | None = None
    by: Literal["kill", "stop", "itself", "outside", ""] = ""
    expected: bool = False
    said: str | msgspec.UnsetType = msgspec.UNSET
