"""In-sync set and high-watermark arithmetic: pure, no replica state.

Source: KIP-966 and KIP-497 (maximal ISR); for majorities the high-water mark pattern with Raft's
rule for older terms. See docs/protocols.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


def isr_high_watermark(
    maximal_isr: Iterable[str], leo_of: Mapping[str, int], *, committed_isr: int, min_isr: int
) -> int | None:
    """What every member of the maximal ISR has, or None when the HW may not move.

    A member whose log end is not known in this leader epoch (absent from `leo_of`) blocks. The
    size test is on the committed ISR: below MinISR the controller may hold an ELR unseen here.
    """
    if committed_isr < min_isr:
        return None
    ends = []
    for member in maximal_isr:
        if member not in leo_of:
            return None
        ends.append(leo_of[member])
    return min(ends)


def majority_high_watermark(
    voters: Sequence[str],
    leo_of: Mapping[str, int],
    *,
    epoch_start: int,
    half_is_enough: bool = False,
) -> int | None:
    """What a majority of the voters has, or None when the HW may not move.

    An unknown log end counts as 0. Only ends above `epoch_start` commit anything: records of
    older terms commit with a record of this one, never by counting alone (Raft, figure 8); an
    `epoch_start` of -1 says that counting is enough. `half_is_enough`: the index at N/2 of the
    *ascending* ends, which for an even number of voters half of them may lack.
    """
    ends = sorted((leo_of.get(v, 0) for v in voters), reverse=not half_is_enough)
    candidate = ends[len(voters) // 2]
    return candidate if candidate > epoch_start else None


def may_expand(
    *, fetch_offset: int, hw: int, leso: int, caught_up_ago_us: int, lag_us: int
) -> bool:
    """Whether a follower's log is complete enough to enter the ISR (rules 1-3 of five).

    Below the leader's epoch start offset its own HW may be stale, so HW alone does not prove
    completeness (KAFKA-7128). That the fetch is of this leader epoch and of the registered, active
    process are rules 4 and 5, which the caller checks.
    """
    return caught_up_ago_us <= lag_us and fetch_offset >= hw and fetch_offset >= leso
