"""Positions that a group is answered: `commit-lost`, `position-back`, `position-phantom`,
`position-ahead` and `stale-position`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from checker.checks.delivery.operations import Case, GroupView, StatedPositions
from checker.evidence.columns import Mask
from checker.evidence.sorting import I64


class Commits:
    """The attempts to commit positions in one partition, and which of them a fetch may show."""

    def __init__(self, view: GroupView) -> None:
        self.fenced = view.promise.fenced
        self.all = view.positions("commit")
        self.sure = self.all.take(self.all.ok)
        by_end = np.argsort(self.sure.end, kind="stable")
        self._ends = self.sure.end[by_end]
        self._latest = np.append(-1, np.maximum.accumulate(self.sure.inv[by_end]))
        self._epochs = np.append(-1, np.maximum.accumulate(self.sure.epoch[by_end]))
        by_value = np.argsort(self.all.offset, kind="stable")
        self._of_value, self._values = by_value, self.all.offset[by_value]
        begun = np.sort(self.all.inv)
        self._begun = begun
        by_begin = np.argsort(self.all.inv, kind="stable")
        self._highest = np.append(-1, np.maximum.accumulate(self.all.offset[by_begin]))

    def highest_asked(self, end: int) -> int:
        """Return the highest position that a commit asked for before a time; -1 if none did."""
        return int(self._highest[np.searchsorted(self._begun, end)])

    def of(self, position: int, end: int) -> StatedPositions:
        """Return the commits of a position that began before a time."""
        low, high = np.searchsorted(self._values, [position, position + 1])
        found = self.all.take(self._of_value[low:high])
        return found.take(found.inv < end)

    def before(self, inv: int) -> Mask:
        """Select the confirmed commits that ended before a time."""
        selected: Mask = self.sure.end < inv
        return selected

    def explains(self, sources: StatedPositions, inv: int) -> bool:
        """Return at once whether one of the `sources` is the last commit that counts at a time;
        False if that takes a closer look."""
        nth = np.searchsorted(self._ends, inv)
        late = sources.end >= self._latest[nth]
        if self.fenced:
            late &= (sources.epoch < 0) | (sources.epoch >= self._epochs[nth])
        return bool(late.any())

    def stand(self, sources: StatedPositions, by: Mask) -> Mask:
        """Select the sources that no confirmed commit of those selected by `by` overwrote."""
        sure = self.sure.take(by)
        latest = int(sure.inv.max(initial=-1))
        stands: Mask = sources.end >= latest
        if self.fenced:
            for n in np.flatnonzero(stands & (sources.epoch >= 0)).tolist():
                others = sure.epoch[sure.member != sources.member[n]]
                stands[n] = not (others > sources.epoch[n]).any()
        return stands


def stated_positions(view: GroupView) -> Iterator[Case]:
    """Judge every position that a fetch states, by the commits that it had to see.

    Find `position-ahead`: it is above all that commits asked for. Find `position-phantom`: no
    commit asked for it. Find `commit-lost`: a final fetch states it though each commit of it was
    certainly overwritten. Find `position-back`: the same of a fetch by an owner, and commits of
    earlier owners. Find `stale-position`: the same of any other fetch."""
    reads, commits = view.positions("position"), Commits(view)
    reads = reads.take(reads.ok)
    found: dict[str, list[int]] = {}
    for n in range(len(reads)):
        if name := _wrong(view, reads.take(np.array([n])), commits):
            found.setdefault(name, []).append(n)
    for name, rows in found.items():
        first = rows[0]
        stated, op = int(reads.offset[first]), int(view.ops.op[reads.row[first]])
        told = f"position {stated}" if stated >= 0 else "no position"
        yield Case(
            name,
            len(rows),
            f"operation {op} was told {told}, {_WHY[name]}",
            reads.row[rows].tolist(),
            stated,
        )


_WHY = {
    "position-ahead": "above everything that a commit asked for",
    "position-phantom": "which no commit asked for",
    "commit-lost": "though a later commit was confirmed",
    "position-back": "though an earlier owner had a later commit confirmed",
    "stale-position": "though a later commit was confirmed before",
}


def _wrong(view: GroupView, read: StatedPositions, commits: Commits) -> str:
    """Return the anomaly of one fetch, "" if it is right."""
    position, inv, end = int(read.offset[0]), int(read.inv[0]), int(read.end[0])
    if position > commits.highest_asked(end):
        return "position-ahead"
    sources = commits.of(position, end)
    if position >= 0 and not len(sources):
        return "position-phantom"
    sure = commits.sure
    if not read.final[0] and view.promise.fenced_reads:
        earlier = (sure.member != read.member[0]) & (sure.epoch >= 0)
        if not _shown(commits, position, sources, earlier & (sure.epoch < read.epoch[0])):
            return "position-back"
    if position >= 0 and commits.explains(sources, inv):
        return ""
    if _shown(commits, position, sources, commits.before(inv)):
        return ""
    return "commit-lost" if read.final[0] else "stale-position"


def _shown(commits: Commits, position: int, sources: StatedPositions, by: Mask) -> bool:
    """Return whether a fetch that had to see the commits selected by `by` may state `position`."""
    if position < 0:
        return not by.any()
    return bool(commits.stand(sources, by).any())


def commits_without_final_fetch(view: GroupView) -> bool:
    """Return whether a position was committed, and no final fetch says what became of it."""
    reads: StatedPositions = view.positions("position")
    commits: I64 = view.positions("commit").row
    return bool(len(commits)) and not bool((reads.final & reads.ok).any())
