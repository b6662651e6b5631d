"""`exits.jsonl`: every end of a process of the system under test, one line each."""

from __future__ import annotations

from typing import Literal

import msgspec

from node.formats.bounds import Number, Time


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """One end of a process of `node`.

    `code` is as in `subprocess` (below 0: a signal). `by` says who ended it: a fault ("kill"), the
    harness ("stop"), a signal that the harness did not send ("outside"), or the process ("itself").
    An end without a request is not `expected`; the checker reports it, and what it `said` last.
    """

    node: str
    incarnation: Number = -1
    t_us: Time
    code: Number | None = None
    by: Literal["kill", "stop", "itself", "outside", ""] = ""
    expected: bool = False
    said: str | msgspec.UnsetType = msgspec.UNSET
