"""Slow definitions of what replicas' logs and traces can show, word by word after docs/checks.md.

Every offset of every log is looked at on its own. The facts are those of a `Story`."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from harness.formats.history import LogRun
from tests.support.checker.evidence_definitions import missing
from tests.support.checker.story import NODES, P, Story

NEEDED = {"logs", "deletions"}


class Replica:
    """One replica's log of a partition: its head and its batches in order of offset."""

    def __init__(self, lines: list[LogRun]) -> None:
        self.head = lines[0]
        self.batches = sorted(lines[1:], key=lambda b: (b.offset, b.count))

    def records(self) -> dict[int, tuple[int, int]]:
        """Value and epoch at each offset."""
        return {
            run.offset + k: (run.value + k, batch.epoch)
            for batch in self.batches
            for run in batch.records
            for k in range(run.count)
        }

    def ends(self, hashed: bool = False) -> set[int]:
        """Return the ends of batches; if `hashed`, only those with a prefix hash."""
        return {b.offset + b.count for b in self.batches if b.hash or not hashed}


def deleted_below(s: Story, partition: str) -> int:
    """Return the highest start of a log, by dumps, traces and answers; 0 without `retention`."""
    if not s.run["promise"].get("retention"):
        return 0
    began = [
        line.offset
        for node in s.run["partitions"][partition]
        for line in s.logs.get(node, ())
        if line.partition == partition and line.count == 0
    ]
    began += [
        event["start"]
        for events in s.traces.values()
        for event in events
        if event["event"] == "deleted" and event.get("partition") == partition
    ]
    reads = (read for line in s.history if line.type == "ok" for read in line.reads)
    began += [read.log_start for read in reads if read.partition == partition]
    return max(began, default=0)


def deleted_at(s: Story, partition: str) -> tuple[tuple[int, int], ...] | None:
    """Return when traces say that logs began at an offset; None if not all of that is traced."""
    members = s.run["partitions"][partition]
    found = tuple(
        (event["t_us"], event["start"])
        for events in s.traces.values()
        for event in events
        if event["event"] == "deleted" and event.get("partition") == partition
    )
    traced = bool(members) and "trace" in s.run["capabilities"] and {*members} <= s.traces.keys()
    highest = max((at for _, at in found), default=0)
    return found if traced and highest == deleted_below(s, partition) else None


class LogDefinitions:
    """The anomalies of one partition's logs and traces."""

    def __init__(self, story: Story, partition: str = P) -> None:
        own = {n: [x for x in x_s if x.partition == partition] for n, x_s in story.logs.items()}
        self.replicas = {n: Replica(lines) for n, lines in own.items() if lines}
        self.finished = {n: r for n, r in self.replicas.items() if n not in story.unfinished}
        # What a broker kept of a partition that was moved away from it is no replica's log.
        members = story.run["partitions"][partition]
        self.replica_heads = {n: r for n, r in self.replicas.items() if n in members}
        self.complete = set(members) <= set(self.finished)
        self.due = self.convergence_due(story)
        self.read = {
            (run.offset + k, run.value + k, run.epoch)
            for op in story.history
            for read in op.reads
            if read.partition == partition
            for run in read.records
            for k in range(run.count)
            if run.value >= 0
        }
        self.events: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for node in NODES:
            for event in story.traces[node]:
                if event.get("partition") == partition:
                    self.events[event["event"]].append(event)
        judged = "hw" in story.run["capabilities"] and not missing(story, partition) & NEEDED
        self.deleted_below = deleted_below(story, partition)
        self.keep = story.run["promise"].get("retention_records", 0) if judged else 0
        self.leaders = [e for e in self.events["role"] if e["role"] == "leader"]

    @staticmethod
    def convergence_due(story: Story) -> bool:
        phases = story.run["phases"]
        heal_us, in_sync_us = phases.get("heal_us", 0), phases.get("in_sync_us", 0)
        limit_us = heal_us + story.run["recovery_limit_ms"] * 1000
        due_us = min(limit_us, in_sync_us or limit_us)
        return bool(heal_us > 0 and phases.get("end_us", 0) >= due_us)

    def early_deletions(self) -> int:
        """Count deletions after which fewer committed records were left than retention keeps, and
        logs that begin so in the end."""
        keep = self.keep
        if not keep:
            return 0
        moves = [(e["start"], e["t_us"]) for e in self.events["deleted"]]
        moves += [(r.head.offset, math.inf) for r in self.replica_heads.values()]
        return sum(
            start > 0
            and start + keep
            > max((e["hw"] for e in self.events["hw"] if e["t_us"] <= t), default=0)
            for start, t in moves
        )

    def counts(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for replica in self.finished.values():
            found.update(self.invariants(replica))
            found["out-of-order-sequence"] += self.out_of_order(replica)
        found["hw-beyond-log"] += sum(e["hw"] > e["leo"] >= 0 for e in self.events["truncated"])
        found["two-leaders"] = self.doubled(self.leaders) or self.doubled(
            [e for e in self.events["append"] if e["role"] == "leader"]
        )
        found["divergence"] = len(self.divergence())
        if not found["divergence"] and self.due and self.complete:
            every = {e for r in self.replica_heads.values() for e in r.ends(True)}
            apart = self.hashes(everything=True) | self.inside(
                every, self.replica_heads, committed=False
            )
            found["divergent-tail"] = len(apart | self.contents(committed=False))
        if self.due and self.complete:
            found["replicas-differ"] = len(
                self.hashes(everything=False, in_the_end=True)
                | self.contents(committed=True)
                | self.inside(
                    self.committed_ends(self.replica_heads), self.replica_heads, committed=True
                )
            )
        found["early-deletion"] = self.early_deletions()
        hws = [e["hw"] for e in self.events["hw"]]
        if self.complete and hws:
            longest = max(r.head.leo for r in self.replica_heads.values())
            found["committed-truncated"] = max(0, max(hws) - longest)
        found["incomplete-leader"] = sum(
            any(
                e["hw"] > role["leo"] >= 0
                and e["leader_epoch"] < role["leader_epoch"]
                and e["t_us"] < role["t_us"]
                for e in self.events["hw"]
            )
            for role in self.leaders
        )
        return +found

    @staticmethod
    def invariants(replica: Replica) -> Counter[str]:
        """Count the broken invariants of one log."""
        found: Counter[str] = Counter()
        head, batches = replica.head, replica.batches
        due = head.offset
        for batch in batches:
            found["log-hole"] += batch.offset != due
            due = batch.offset + batch.count
            found["corrupt-batch"] += batch.stored_hash not in ("", batch.hash)
        found["log-hole"] += head.leo not in (due, -1)
        found["hw-beyond-log"] = int(head.hw > head.leo >= 0)
        for a, b in itertools.pairwise(batches):
            found["epoch-regression"] += 0 <= b.epoch < a.epoch
        # A batch without an epoch is damaged, or clears the cache.
        stamped = [b for b in batches if b.epoch >= 0]
        later = [*itertools.takewhile(lambda b: b.epoch >= 0, reversed(batches))][::-1]
        found["epoch-cache-mismatch"] = int(
            bool(stamped and head.epochs)
            and not any(_is_cache_of(head, some, due) for some in (stamped, later))
        )
        return found

    def out_of_order(self, replica: Replica) -> int:
        """Count batches that do not follow the one before of their idempotent producer."""
        kept = [b for b in replica.batches if b.offset + b.count > self.deleted_below]
        return sum(not self.follows(kept[:at], batch) for at, batch in enumerate(kept))

    @staticmethod
    def follows(earlier: list[LogRun], batch: LogRun) -> bool:
        if not batch.produced:
            return True
        producer, epoch, sequence = batch.produced
        own = [at for at, b in enumerate(earlier) if b.produced and b.produced[0] == producer]
        last = earlier[own[-1]] if own else None
        due = 0
        if last and last.produced and last.produced[1] >= epoch:
            due = last.produced[2] + last.count
            if last.produced[1] > epoch:
                return False
        between = earlier[own[-1] + 1 :] if own else earlier
        ends = [last.offset + last.count if last else 0, *(b.offset + b.count for b in between)]
        holes = [b.offset for b in (*between, batch)] != ends
        unknown = holes or any(not b.produced and not b.control for b in between)
        return sequence == due or (sequence > due and unknown)

    @staticmethod
    def doubled(events: list[dict[str, Any]]) -> int:
        """Epochs that two nodes claim."""
        nodes = defaultdict(set)
        for event in events:
            nodes[event["leader_epoch"]].add(event["node"])
        return sum(len(who) > 1 and epoch >= 0 for epoch, who in nodes.items())

    def divergence(self) -> set[int]:
        """Offsets of committed prefixes at which two facts contradict."""
        found = self.hashes(everything=False)
        at = defaultdict(set)
        for replica in self.replicas.values():
            for offset, record in replica.records().items():
                if offset < replica.head.hw:
                    at[offset].add(record)
        for offset, value, epoch in self.read:
            at[offset].add((value, epoch))
        found |= _contradicted(at)
        told = {e["batch_end"] for e in self.events["hw"] if e["hash"]}
        ends = self.committed_ends(self.replicas) | told
        return found | self.inside(ends, self.finished, committed=True)

    def contents(self, *, committed: bool) -> set[int]:
        """Return the offsets at which final logs differ in value or epoch, unless all batches have
        prefix hashes."""
        if all(b.hash for r in self.replicas.values() for b in r.batches):
            return set()
        at = defaultdict(set)
        for replica in self.replica_heads.values():
            for offset, record in replica.records().items():
                if offset < replica.head.hw or not committed:
                    at[offset].add(record)
        return _contradicted(at)

    @staticmethod
    def committed_ends(logs: dict[str, Replica]) -> set[int]:
        """Batch ends of the logs, with their prefix hashes, below their HWs."""
        return {end for r in logs.values() for end in r.ends(True) if end <= r.head.hw}

    def hashes(self, *, everything: bool, in_the_end: bool = False) -> set[int]:
        """Batch ends with two prefix hashes: of committed batches and HW events; or of what the
        replicas hold in the end, committed or all of it."""
        at = defaultdict(set)
        in_the_end = in_the_end or everything
        for replica in (self.replica_heads if in_the_end else self.replicas).values():
            for batch in replica.batches:
                end = batch.offset + batch.count
                if batch.hash and (everything or end <= replica.head.hw):
                    at[end].add(batch.hash)
        for event in [] if in_the_end else self.events["hw"]:
            if event["hash"]:
                at[event["batch_end"]].add(event["hash"])
        return {end for end, hashes in at.items() if len(hashes) > 1}

    @staticmethod
    def inside(ends: set[int], logs: dict[str, Replica], *, committed: bool) -> set[int]:
        """Batch ends that fall inside a batch of some log (below its HW, if `committed`)."""
        found = set()
        for replica in logs.values():
            limit = min(replica.head.hw, replica.head.leo) if committed else replica.head.leo
            reach = {end for end in ends if replica.head.offset < end <= limit}
            found |= reach - replica.ends()
        return found


def _contradicted(at: Mapping[int, set[tuple[int, int]]]) -> set[int]:
    """Return the offsets that have two values or two epochs; an unknown epoch contradicts none."""
    return {
        offset
        for offset, records in at.items()
        if len({value for value, _ in records}) > 1
        or len({epoch for _, epoch in records if epoch >= 0}) > 1
    }


def _is_cache_of(head: Any, batches: list[Any], due: int) -> bool:
    """Return whether the epoch cache of a log that ends at `due` follows from these batches."""
    starts = [
        (b.epoch, b.offset)
        for a, b in itertools.pairwise([None, *batches])
        if b is not None and (a is None or a.epoch != b.epoch)
    ]
    kept = [entry for entry in head.epochs if entry[1] < due]
    # The epoch of the record before the start may be kept; no batch shows where it began.
    before = next((e for e, at in kept[:1] if at == head.offset - 1), None)
    if before is not None:
        kept = kept[1:]
        starts = starts[1:] if starts and starts[0][0] == before else starts
    return kept == starts
