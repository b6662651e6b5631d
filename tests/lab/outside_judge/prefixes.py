"""A tree of all prefixes of a partition's logs that a trace has shown.

A prefix is identified by its end offset and its hash, which covers everything below the end. A
leader appends one batch at a time, so each append says which prefix it continues. A log is its
longest prefix, and one log contains another if the other is its ancestor in the tree.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple


class Prefix(NamedTuple):
    """Everything below the offset `end` in some log. The empty prefix is `Prefix(0, "")`."""

    end: int
    hash: str


EMPTY = Prefix(0, "")


@dataclass(slots=True)
class _Unforked:
    """Prefixes without a fork, by ascending `ends`, behind the prefix `parent` of a branch."""

    parent: Prefix | None
    ends: list[int] = field(default_factory=list)
    hashes: list[str] = field(default_factory=list)


class Prefixes:
    """A tree of log prefixes, to tell in one step for each fork whether one contains another."""

    def __init__(self) -> None:
        self._branches = [_Unforked(None, [0], [""])]
        self._branch_of: dict[Prefix, int] = {EMPTY: 0}

    def __contains__(self, prefix: Prefix) -> bool:
        return prefix in self._branch_of

    def add(self, prefix: Prefix, after: Prefix) -> None:
        """Add `prefix`, which continues the known prefix `after`; a known one stays where it is."""
        if prefix in self._branch_of:
            return
        number = self._branch_of[after]
        branch = self._branches[number]
        if branch.ends[-1] != after.end:
            number = len(self._branches)
            branch = _Unforked(after)
            self._branches.append(branch)
        branch.ends.append(prefix.end)
        branch.hashes.append(prefix.hash)
        self._branch_of[prefix] = number

    def below(self, log: Prefix, offset: int) -> Prefix:
        """Return the longest known prefix of `log` that ends at or below `offset`."""
        branch = self._branches[self._branch_of[log]]
        upto = min(offset, log.end)
        while branch.ends[0] > upto:
            assert branch.parent is not None, (log, offset)
            upto = min(upto, branch.parent.end)
            branch = self._branches[self._branch_of[branch.parent]]
        at = bisect_right(branch.ends, upto) - 1
        return Prefix(branch.ends[at], branch.hashes[at])

    def contains(self, log: Prefix, prefix: Prefix) -> bool:
        """Return whether `prefix` is a prefix of `log`."""
        return prefix.end <= log.end and self.below(log, prefix.end) == prefix
