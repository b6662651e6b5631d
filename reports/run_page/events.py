"""What the pages read of a trace event; all other fields are skipped while decoding."""

from __future__ import annotations

import msgspec


class Event(msgspec.Struct, frozen=True):
    """One line of a trace, as docs/file-formats.md names its fields; what a kind of event does not
    have keeps its default."""

    event: str
    t_us: int = 0
    node: str = ""
    incarnation: int = 0
    partition: str = ""
    role: str = ""
    leader: str | None = None
    leader_epoch: int = -1
    partition_epoch: int = -1
    isr: tuple[str, ...] = ()
    base_offset: int = -1
    from_leo: int = -1
    leo: int = -1
    hw: int = -1
    reason: str = ""
    client: str = ""
    follower: str = ""
    epoch: int = -1
    end_offset: int = -1
    candidate: str = ""
    term: int = -1
    pre: bool = False
    kind: str = ""
    source: str = ""
    state: str = ""
    unclean: bool = False
