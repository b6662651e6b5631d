"""Messages of a turn that leave before its commit, so that a leader replicates while its own disk
syncs.

The rule is about the trace, because the trace of a turn must be written before its messages leave:
messages marked `AT_ONCE` leave early if all that the turn has traced holds without the commit. An
append claims nothing of the disk. A high watermark or an acknowledgement does, unless it covers
only what earlier turns have committed: so a leader counts itself only for what its disk has.
After Raft's thesis, 10.2.1 (writing to the leader's disk in parallel)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from node.core.api import Mark, Outgoing
from node.formats.trace import ACK, APPEND, DIVERGING, DUPLICATE, HW, REFUSED, TraceEvent

_CLAIMS_NOTHING: Final = frozenset({DIVERGING, DUPLICATE, REFUSED})


def split(
    messages: Sequence[Outgoing], trace: Iterable[TraceEvent]
) -> tuple[Sequence[Outgoing], Sequence[Outgoing]]:
    """Return the messages of a turn that leave before its commit (but after its trace is written),
    and those that leave after it. Both keep their order."""
    for out in messages:
        if out.mark is not Mark.AFTER_COMMIT:
            break
    else:
        return (), messages
    last = Mark.AT_ONCE if _holds_without_commit(trace) else Mark.BEFORE_COMMIT
    marks = (Mark.BEFORE_COMMIT, last)
    early = [out for out in messages if out.mark in marks]
    return early, [out for out in messages if out.mark not in marks]


def _holds_without_commit(trace: Iterable[TraceEvent]) -> bool:
    appended_from: dict[str, int] = {}
    for event in trace:
        name = event["event"]
        if name == APPEND:
            appended_from.setdefault(event["partition"], event["base_offset"])
        elif name in (HW, ACK):
            covers = event["hw"] if name == HW else event["leo"]
            if covers > appended_from.get(event["partition"], covers):
                return False
        elif name not in _CLAIMS_NOTHING:
            return False
    return True
