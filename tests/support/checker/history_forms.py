"""A history in every form in which a tool may record it: our lines, tables, Jepsen's JSON, EDN."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from checker.ingest import tables
from checker.ingest.external_history import run_folder_of
from harness.formats.history import Op, Read, RecordRun, encode
from tests.support.checker.done import pairs

FORMS: Final = ("own", "tables", "json", "edn")


def written(
    form: str,
    folder: Path,
    history: Sequence[Op],
    promise: Mapping[str, Any],
    seeks: Collection[int] = (),
) -> Path:
    """Write a history in one of `FORMS`, and return the run folder to judge. `seeks`: the
    assignments of Jepsen that begin at the start."""
    folder.mkdir(parents=True, exist_ok=True)
    if form == "tables":
        return as_tables(folder, history, promise)
    file = folder / ("history.edn" if form == "edn" else "history.jsonl")
    if form == "own":
        file.write_bytes(b"".join(map(encode, history)))
    else:
        write = edn if form == "edn" else json.dumps
        lines = as_jepsen(history, seeks)
        file.write_text("".join(f"{write(line)}\n" for line in lines))
    return run_folder_of(file, promise)


def as_jepsen(history: Iterable[Op], seeks: Collection[int] = ()) -> list[dict[str, Any]]:
    """Return the lines that Jepsen would have written: no starts and no high watermarks."""
    made = []
    for op in history:
        line: dict[str, Any] = {"process": op.process, "time": op.t_us * 1000, "type": op.type}
        value: Any = [*op.partitions] if op.f in ("assign", "subscribe") else _steps(op)
        line |= {"f": op.f, "value": None if op.f == "crash" else value}
        if op.op in seeks:
            line["seek-to-beginning?"] = True
        if op.isolation:
            line["isolation"] = op.isolation
        if op.rebalanced:
            line["rebalance-log"] = [{"type": "assigned", "keys": [*op.rebalanced]}]
        if op.error:
            line["error"] = op.error
        made.append(line)
    return made


def _steps(op: Op) -> list[Any]:
    steps: list[Any] = [
        ["send", s.partition, s.value + k if s.offset < 0 else [s.offset + k, s.value + k]]
        for s in op.sends
        for k in range(s.count)
    ]
    if op.f not in ("poll", "txn"):
        return steps
    if op.type == "invoke":
        return [*steps, ["poll"]]
    polled: dict[str, list[list[int]]] = {}
    for read in op.reads:
        found = [[r.offset + k, r.value + k] for r in read.records for k in range(r.count)]
        polled.setdefault(read.partition, []).extend(found)
    return [*steps, ["poll", polled]]


def edn(value: Any) -> str:
    """Return a value as Clojure prints it: words as keywords, numbers in quotes as texts."""
    match value:
        case dict():
            return "{" + ", ".join(f"{edn(k)} {edn(v)}" for k, v in value.items()) + "}"
        case list() | tuple():
            return "[" + " ".join(map(edn, value)) + "]"
        case str():
            return f":{value}" if value[:1].isalpha() and " " not in value else json.dumps(value)
    return "nil" if value is None else str(value).lower()


def as_tables(
    folder: Path, history: Sequence[Op], promise: Mapping[str, Any], group: int = 0
) -> Path:
    """Write a history as tables, with the run.json of another tool; `group`: the number of rows of
    a row group."""
    rows: dict[str, list[dict[str, Any]]] = {
        name: [] for name in ("ops", "sends", "reads", "assigns")
    }
    used: dict[int, set[str]] = {}
    for begun, ended in pairs(history):
        for step in (*begun.sends, *(ended.reads if ended else ())):
            used.setdefault(begun.process, set()).add(step.partition)
    subscribed: dict[int, bool] = {}
    for begun, ended in pairs(history):
        moved = begun.f in ("assign", "subscribe", "crash")
        if moved and (ended is None or ended.type != "fail"):
            subscribed[begun.process] = begun.f == "subscribe"
        is_subscribed = subscribed.get(begun.process, False)
        _add_rows(rows, begun, ended, promise, used.get(begun.process, set()), is_subscribed)
    for name, found in rows.items():
        schema = tables.SCHEMAS[name]
        columns = [pa.array([row[field.name] for row in found], field.type) for field in schema]
        (folder / "tables").mkdir(exist_ok=True)
        table = pa.Table.from_arrays(columns, schema=schema)
        target = folder / "tables" / f"{name}.parquet"
        pq.write_table(table, target, row_group_size=group or 1 + len(history) % 40)
    about = {"format": 2, "run": "tables", "state": "finished", "source": "own"}
    given = {"contiguous_offsets": False, **promise}
    about |= {"promise": given, "capabilities": [], "complete_reads": True}
    (folder / "run.json").write_text(json.dumps(about))
    return folder


def _add_rows(
    rows: Mapping[str, list[dict[str, Any]]],
    begun: Op,
    ended: Op | None,
    promise: Mapping[str, Any],
    used: set[str],
    subscribed: bool,
) -> None:
    """Add the rows of one operation."""
    done = ended or begun
    common = {
        "run": "tables",
        "op": begun.op,
        "invoke_us": begun.t_us,
        "complete_us": ended.t_us if ended else -1,
        "process": begun.process,
        "client": begun.client,
        "outcome": ended.type if ended else "info",
        "final": begun.final,
    }
    counts = {
        "f": begun.f,
        "error": done.error,
        "sent": sum(send.count for send in begun.sends),
        "polled": sum(run.count for read in done.reads for run in read.records),
        "step": -1,
        "second": done.t_us // 1_000_000,
        "invoke_line": 0,
        "complete_line": 0,
    }
    rows["ops"].append(common | counts)
    offsets = {(send.partition, send.value): send.offset for send in done.sends}
    for seq, send in enumerate(begun.sends):
        about = {name: getattr(send, name) for name in ("partition", "acks", "value", "count")}
        offset = offsets.get((send.partition, send.value), -1)
        rows["sends"].append(common | about | {"seq": seq, "offset": offset, "proved_us": -1})
        rows["sends"][-1]["transaction"] = begun.f == "txn" or len(begun.sends) > 1
    isolation = done.isolation or begun.isolation or promise.get("isolation", "")
    for seq, read in enumerate(done.reads):
        for idx, run in enumerate(read.records or (RecordRun(-1, -1, 0),)):
            about = {"seq": seq, "idx": idx, "uncommitted": isolation == "read_uncommitted"}
            about |= {"rebalanced": read.partition in done.rebalanced} | _of_read(read, run)
            rows["reads"].append(common | about)
    read = {r.partition for r in done.reads if r.records and done.type == "ok"}
    for partition in set(done.rebalanced).difference(read):
        about = {"subscribed": subscribed, "named": False, "partition": partition}
        rows["assigns"].append(common | about)
    if begun.f == "crash" or (begun.f in ("assign", "subscribe") and common["outcome"] != "fail"):
        kept = () if begun.f == "crash" else begun.partitions
        for partition in sorted(used.union(kept)):
            about = {"subscribed": subscribed, "named": partition in kept}
            rows["assigns"].append(common | about | {"partition": partition})


def _of_read(read: Read, run: RecordRun) -> dict[str, Any]:
    names = ("partition", "node", "start", "hw", "at_end", "log_start")
    numbers = ("offset", "value", "count", "epoch")
    return {name: getattr(read, name) for name in names} | {n: getattr(run, n) for n in numbers}
