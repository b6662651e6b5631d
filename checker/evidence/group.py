"""Groups: all facts about one partition of a run, as sorted columns, which checks are functions of.

Facts arrive in any order. Each kind is sorted here by a key that no two of its rows share, so that
no result depends on the order of arrival or on the number of processes. A column is made when a
check first asks for it: most checks use a few of many, and a partition may have millions of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from typing import Any, TypeVar

import numpy as np

from checker.evidence.columns import Columns, Facts, Rows
from checker.evidence.facts import (
    GroupStates,
    HistoryParts,
    LogFiles,
    LogHeads,
    RunFacts,
    TraceFiles,
)
from checker.evidence.run_meta import RunMeta
from checker.evidence.sorting import I64
from node.formats.json_input import decode

# By kind: columns, and the rows of them (None: all) that are about the group.
Parts = Mapping[type[Facts], tuple[Columns, I64 | None]]
_Kind = TypeVar("_Kind", bound=Facts)
_Made = TypeVar("_Made")


class Group:
    """One partition of a run, or with the partition "" the run as a whole: its metadata and its
    facts by kind, each made on first use."""

    def __init__(
        self, partition: str, parts: Parts, nothing: dict[type[Facts], Any] | None = None
    ) -> None:
        """`nothing` has the kinds without rows, which all groups of a run share."""
        self.partition = partition
        self._parts = parts
        self._nothing = {} if nothing is None else nothing
        self._views: dict[type[Facts], Any] = {}
        self._made: dict[Any, Any] = {}

    @cached_property
    def meta(self) -> RunMeta:
        """The metadata of the whole run."""
        about = self.of(RunFacts)
        return _meta(str(about.text[0])) if len(about) else RunMeta()

    def _names(self) -> Sequence[str]:
        """Return the names that codes stand for, for facts of all kinds."""
        return next((columns.names for columns, _ in self._parts.values()), ("",))

    def memo(self, make: Callable[[Group], _Made]) -> _Made:
        """Return the result of `make` for this group, computed once for all checks."""
        if make not in self._made:
            self._made[make] = make(self)
        made: _Made = self._made[make]
        return made

    @property
    def run(self) -> str:
        """The name of the run."""
        return self.meta.run

    def of(self, kind: type[_Kind]) -> _Kind:
        """Return the facts of one kind about this group, sorted."""
        view: _Kind | None = self._views.get(kind)
        if view is None:
            view = self._views[kind] = self._view(kind)
        return view

    def _view(self, kind: type[_Kind]) -> _Kind:
        if kind not in self._parts:
            if kind not in self._nothing:
                self._nothing[kind] = kind(Columns(kind, [], self._names), None)
            nothing: _Kind = self._nothing[kind]
            return nothing
        columns, rows = self._parts[kind]
        keys = kind.order_by
        if columns.has("turn"):
            keys = tuple("turn" if key == "op" else key for key in keys)
        return kind(columns, columns.order(keys, rows))

    @cached_property
    def replicas(self) -> tuple[str, ...]:
        """The replicas of this partition by run.json, else the nodes with a complete log of it."""
        return self.meta.partitions.get(self.partition) or self.dumped

    @cached_property
    def dumped(self) -> tuple[str, ...]:
        """The nodes with a complete dump of their log of this partition."""
        heads = self.of(LogHeads)
        return tuple(sorted({heads.name(n) for n in heads.node[heads.complete]}))

    @cached_property
    def logs_complete(self) -> bool:
        """Return whether the log of every replica is there: then a record in no log is gone."""
        return bool(self.meta.partitions.get(self.partition)) and not self.logs_lacking

    @cached_property
    def logs_lacking(self) -> tuple[str, ...]:
        """The replicas without a complete dump of their log of this partition."""
        return tuple(node for node in self.replicas if node not in self.dumped)

    @cached_property
    def dumps(self) -> dict[str, bool]:
        """The nodes whose logs were dumped; the value says whether the dump was finished."""
        files = self.of(LogFiles)
        return {files.name(n): bool(f) for n, f in zip(files.node, files.finished, strict=True)}

    @cached_property
    def replica_heads(self) -> LogHeads:
        """The `LogHeads` of the replicas, without brokers that the partition was moved from."""
        heads = self.of(LogHeads)
        rows = [r for r, n in enumerate(heads.node.tolist()) if heads.name(n) in self.replicas]
        return heads.take(np.array(rows, np.int64))

    @cached_property
    def traced(self) -> frozenset[str]:
        """The nodes with a complete trace."""
        files = self.of(TraceFiles)
        return frozenset(files.name(n) for n in files.node[files.whole])

    @cached_property
    def history_whole(self) -> bool:
        """Return whether every line of the history was read, so that absence proves something."""
        parts = self.of(HistoryParts)
        return bool(len(parts)) and bool(parts.whole.all())

    @cached_property
    def has_transactions(self) -> bool:
        """Return whether any operation of the run has several sends, or sends and reads."""
        return bool(self.of(HistoryParts).transactions.any())

    @cached_property
    def final_reads_invoked(self) -> bool:
        """Return whether any final read of the run was invoked, answered or not."""
        return bool(self.of(HistoryParts).final_reads.any())

    @cached_property
    def has_groups(self) -> bool:
        """Return whether members of groups did anything that the promise allows to be judged."""
        used = self.of(HistoryParts).groups.any() or len(self.of(GroupStates))
        return self.meta.promise.groups is not None and bool(used)

    @cached_property
    def clocks_sound(self) -> bool:
        """Return whether no process has a clock that goes back."""
        return not self.of(HistoryParts).clock_back.any()

    @cached_property
    def processes_sound(self) -> bool:
        """Return whether every process did one operation after another."""
        return not self.of(HistoryParts).overlap.any()

    def seconds(self, t_us: int) -> str:
        """Format a time as seconds since the storm began."""
        return self.meta.since_storm(int(t_us))


@lru_cache(maxsize=64)
def _meta(text: str) -> RunMeta:
    """Return the metadata of a run, decoded once for all its partitions."""
    return decode(text, RunMeta)


def group_of(partition: str, facts: Iterable[Rows]) -> Group:
    """Return the group that has all of these facts; all are about one partition of a run."""
    made = _columns(facts, shared=False)
    return Group(partition, {kind: (columns, None) for kind, columns in made.items()})


def groups_of(facts: Iterable[Rows]) -> list[Group]:
    """Return the groups of a run, sorted by partition; they share their columns."""
    found: dict[str, dict[type[Facts], tuple[Columns, I64 | None]]] = {}
    for kind, columns in _columns(facts, shared=True).items():
        codes, partitions = columns.partitions()
        if len(partitions) == 1:
            found.setdefault(partitions[0], {})[kind] = (columns, None)
            continue
        ends = np.cumsum(np.bincount(codes, minlength=len(partitions)))
        every = np.split(np.argsort(codes, kind="stable"), ends[:-1])
        for partition, rows in zip(partitions, every, strict=True):
            found.setdefault(partition, {})[kind] = (columns, rows)
    nothing: dict[type[Facts], Any] = {}
    return [Group(partition, parts, nothing) for partition, parts in sorted(found.items())]


def _columns(facts: Iterable[Rows], *, shared: bool) -> dict[type[Facts], Columns]:
    """Return columns of all kinds, with one list of names for all."""
    by_kind: dict[type[Facts], list[Rows]] = {}
    for part in facts:
        if part.count:
            by_kind.setdefault(part.kind, []).append(part)
    made: dict[type[Facts], Columns] = {}

    @cache
    def names() -> tuple[str, ...]:
        # Codes follow the order of names, so that sorting by code is sorting by name.
        return tuple(sorted({""}.union(*(columns.own_names() for columns in made.values()))))

    for kind, own in by_kind.items():
        made[kind] = Columns(kind, own, names, shared=shared)
    return made
