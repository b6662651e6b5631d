"""Lists of faults that never occurred while a partition was in some state, for example without a
leader. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from harness.formats.nightly_run import PHASES

MOST_NAMED: Final = 20
_WORDS: Final = dict(zip(PHASES, ("all in sync", "an ISR short", "no leader"), strict=True))


def never_met(coverage: Mapping[str, int], kinds: Iterable[str]) -> list[str]:
    """Return the fault kinds that never met some states of a partition, each with those states:
    `kill (no leader)`. `coverage` counts faults that took effect by `kind/role/phase`, where the
    phase is the state of the partition. A kind that never took effect is listed without states."""
    met: dict[str, set[str]] = {}
    for name, count in coverage.items():
        kind, _, where = name.partition("/")
        if count:
            met.setdefault(kind, set()).add(where.rpartition("/")[2])
    found = []
    for kind in sorted(set(kinds)):
        missing = [_WORDS[phase] for phase in PHASES if phase not in met.get(kind, ())]
        if len(missing) == len(PHASES):
            found.append(kind)
        elif missing:
            found.append(f"{kind} ({', '.join(missing)})")
    return found


def rate_of_new(coverage: Mapping[str, int]) -> float:
    """Return about how often the next fault meets a role and state that none of its kind has met:
    the share of those met once (Good and Turing). 1 if there is no fault."""
    total = sum(coverage.values())
    return sum(count == 1 for count in coverage.values()) / total if total else 1.0


def in_words(pairs: list[str], most: int = MOST_NAMED) -> str:
    """Return the first `most` items as a comma list, with the number of others; "" for none."""
    more = f" and {len(pairs) - most} more" if len(pairs) > most else ""
    return ", ".join(pairs[:most]) + more
