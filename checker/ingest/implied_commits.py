"""One visible record proves its whole operation: the part of that rule that crosses partitions.

Inside a partition the checks see that themselves (`checker.evidence`). An operation of unknown
outcome that sent to several partitions took effect in all of them if an ok read returned a record
of it from any; that is found here, once per history, among those few operations only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from harness.formats.history import Send


def proved(unknown: Mapping[int, Sequence[Send]], runs: Iterable[tuple[str, int, int]]) -> set[int]:
    """Which operations of unknown outcome took effect after all.

    `unknown` says what each of them sent; `runs` are the records ok reads returned: partition,
    first value, count.
    """
    claims: dict[str, list[tuple[int, int]]] = {}
    for op, sends in unknown.items():
        for send in sends:
            claims.setdefault(send.partition, []).extend(
                (send.value + k, op) for k in range(send.count)
            )
    for claimed in claims.values():
        claimed.sort()
    found: set[int] = set()
    for partition, value, count in runs:
        claimed = claims.get(partition, [])
        at = bisect_left(claimed, (value,))
        while at < len(claimed) and claimed[at][0] < value + count:
            found.add(claimed[at][1])
            at += 1
    return found
