"""Reading of logs/<node>.jsonl, the dump of a node's logs: tables replicas and log, and facts of
each batch.

A dump ends with a line that says so. Without it, or with a line that cannot be read, the logs of
the node are incomplete: that a record is not in them proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Any

from checker.evidence.columns import Rows, rows
from checker.evidence.facts import (
    Batches,
    EpochEntries,
    LogFiles,
    LogHeads,
    LogRecords,
    hash_number,
)
from checker.ingest import tables
from checker.ingest.lines import Line
from checker.ingest.source import FileReader, Ingested, Source, why
from harness.formats.history import LogRun, RecordRun
from node.formats.json_input import JsonReader

_OF_HEAD = attrgetter("partition", "offset", "hw", "leo")
_OF_BATCH = attrgetter("partition", "offset", "count", "epoch", "hash", "stored_hash")
_NOBODY = (-1, -1, -1)


class _LogReader(FileReader[LogRun]):
    """A reader of the dump of one node's logs."""

    form = JsonReader(LogRun)

    def __init__(self, source: Source, into: Ingested) -> None:
        super().__init__(source, into)
        self.ended = False
        # the nodes that lines of this file are about, other than its own
        self.other_nodes: set[str] = set()
        self.heads: list[LogRun] = []
        self.batches: list[LogRun] = []
        self.lines: list[int] = []

    def refuse(self, line: Line, error: Exception) -> None:
        """Report a line that cannot be read."""
        self.problem("line", f"line {line.number} is not an entry of a log: {why(error)}.")

    def take(self, number: int, entry: LogRun) -> None:
        """Take the head of a partition, a batch, or the end of the dump."""
        try:
            hash_number(entry.hash)
            hash_number(entry.stored_hash)
        except ValueError as error:
            self.refuse(Line(number, b"", True), error)
            return
        if entry.node != self.node:
            if entry.node not in self.other_nodes:
                sentence = f"holds a log of {entry.node}: it is not the dump of {self.node}."
                self.problem("node", sentence)
            self.other_nodes.add(entry.node)
        elif entry.partition == "":
            self.ended = True
        elif entry.count == 0:
            self.heads.append(entry)
        else:
            self.batches.append(entry)
            self.lines.append(number)


def read_log(source: Source, into: Ingested) -> None:
    """Read the dump of one node's logs; add its parts of the tables, and the facts, to `into`."""
    reader = _LogReader(source, into)
    reader.read()
    if not reader.ended:
        reader.problem("end", "lacks its last line: the dump was not finished.")
    run, node, complete = into.meta.run, reader.node, not reader.damaged
    if into.whole_tables:
        heads = (
            (run, node, h.partition, h.offset, h.leo, h.hw, complete, h.epochs)
            for h in reader.heads
        )
        into.tables["replicas"] = tables.from_rows("replicas", heads)
        into.tables["log"] = tables.from_rows("log", _log_rows(run, node, reader))
    into.facts.extend(_facts(source.run, reader, complete))


def _log_rows(run: str, node: str, reader: _LogReader) -> Iterator[tuple[Any, ...]]:
    """Yield one row for each run of records of each batch."""
    for batch, line in zip(reader.batches, reader.lines, strict=True):
        of_batch = (run, node, *_OF_BATCH(batch))
        for index, record in enumerate(
            batch.records or (RecordRun(batch.offset, -1, batch.count),)
        ):
            yield (*of_batch, index, record.offset, record.value, record.count, line)


def _facts(run: int, reader: _LogReader, complete: bool) -> Iterator[Rows]:
    """Yield facts of heads, epoch caches, batches and runs of records."""
    heads, batches, node = reader.heads, reader.batches, reader.node
    partitions = {*reader.into.meta.partitions, *(h.partition for h in heads)}
    if partitions:
        yield rows(LogFiles, run, sorted(partitions), node=node, finished=complete)
    if heads:
        partition, start, hw, leo = zip(*map(_OF_HEAD, heads), strict=True)
        about = {"node": node, "complete": complete}
        yield rows(LogHeads, run, partition, start=start, hw=hw, leo=leo, **about)
        entries = [(h.partition, n, e, s) for h in heads for n, (e, s) in enumerate(h.epochs)]
        if entries:
            partition, nth, epoch, start = zip(*entries, strict=True)
            yield rows(EpochEntries, run, partition, node=node, nth=nth, epoch=epoch, start=start)
    if not batches:
        return
    produced = [b.produced or _NOBODY for b in batches]
    yield rows(
        Batches,
        run,
        [b.partition for b in batches],
        node=node,
        offset=[b.offset for b in batches],
        count=[b.count for b in batches],
        listed=[sum(r.count for r in b.records) for b in batches],
        epoch=[b.epoch for b in batches],
        hash=[hash_number(b.hash) for b in batches],
        stored_hash=[hash_number(b.stored_hash) for b in batches],
        control=[b.control for b in batches],
        producer=[p[0] for p in produced],
        producer_epoch=[p[1] for p in produced],
        sequence=[p[2] for p in produced],
    )
    records = [
        (b.partition, r.offset, r.value, r.count, b.epoch) for b in batches for r in b.records
    ]
    if records:
        partition, offset, value, count, epoch = zip(*records, strict=True)
        runs = {"offset": offset, "value": value, "count": count, "epoch": epoch}
        yield rows(LogRecords, run, partition, node=node, **runs)
