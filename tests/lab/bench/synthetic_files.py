"""Writes generated histories: as Parquet tables (`ops`, `sends`, `reads`), a row group for each
part; and as `history.jsonl` of a run, to measure how fast that is read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace

from checker.ingest import tables
from checker.ingest.lines import readable_lines
from harness.formats.history import Op, Read, RecordRun, Send, encode
from node.formats.json_input import read_file
from tests.support.checker.history_forms import as_jepsen, edn

if TYPE_CHECKING:
    from tests.lab.bench.synthetic import PollRows, SendRows

I64 = npt.NDArray[np.int64]
_OUTCOMES: Final = ("ok", "info", "fail")
_OPERATIONS: Final = ("send", "poll")
_NODES: Final = ("n1", "n2", "n3")
_OTHERWISE: Final = {
    "step": -1,
    "log_start": -1,
    "transaction": False,
    "invoke_line": 0,
    "complete_line": 0,
}
"""The value in all rows of columns that are not made."""


class TableWriter:
    """The three tables of a history, to which parts of it are appended."""

    def __init__(self, folder: Path, keys: Sequence[str]) -> None:
        self._run = folder.name
        self._keys = list(keys)
        self._next_op = 0
        self._wrote = {"ops": 0, "sends": 0, "reads": 0, "polls": 0}
        where = folder / "tables"
        where.mkdir(parents=True, exist_ok=True)
        self._files = {
            name: pq.ParquetWriter(
                where / f"{name}.parquet",
                tables.SCHEMAS[name],
                compression="lz4",
                use_dictionary=[f.name for f in tables.SCHEMAS[name] if f.type == pa.string()],
            )
            for name in ("ops", "sends", "reads")
        }

    def write(self, sends: SendRows | None, polls: dict[int, PollRows], *, final: bool) -> None:
        """Append one part; operations are numbered in the order of their invocation."""
        send_t0 = sends.t0 if sends else np.zeros(0, np.int64)
        t0 = np.concatenate([send_t0, *(p.t0 for p in polls.values())])
        order = np.argsort(t0, kind="stable")
        number = np.empty(len(t0), np.int64)
        number[order] = self._next_op + np.arange(len(t0))
        self._next_op += len(t0)
        at = len(send_t0)
        if sends:
            self._sends(sends, number[:at])
        poll_numbers = {}
        for key, each in polls.items():
            poll_numbers[key] = number[at : at + len(each.t0)]
            at += len(each.t0)
        self._reads(polls, poll_numbers, final)
        self._ops(sends, polls, number, order, final)

    def close(self) -> dict[str, int]:
        """Close the files; return the number of rows of each table, and of polls."""
        for file in self._files.values():
            file.close()
        return self._wrote

    def _write(self, name: str, rows: int, columns: dict[str, Any], order: I64 | None) -> None:
        schema = tables.SCHEMAS[name]
        arrays = []
        for field in schema:
            column = columns.get(field.name, _OTHERWISE.get(field.name))
            if isinstance(column, np.ndarray):
                column = pa.array(column if order is None else column[order])
            elif isinstance(column, tuple):
                codes, words = column
                codes = codes if order is None else codes[order]
                column = pa.DictionaryArray.from_arrays(
                    pa.array(codes.astype(np.int32)), pa.array(words, pa.string())
                )
            else:
                column = pa.repeat(pa.scalar(column, field.type), rows)
            arrays.append(column.cast(field.type))
        self._files[name].write_table(pa.Table.from_arrays(arrays, schema=schema), rows or 1)
        self._wrote[name] += rows

    def _sends(self, sends: SendRows, op: I64) -> None:
        order = np.argsort(op)
        columns = {
            "run": self._run,
            "op": op,
            "seq": 0,
            "partition": (sends.key, self._keys),
            "process": sends.process,
            "client": _clients(sends.process, False),
            "invoke_us": sends.t0,
            "complete_us": sends.t1,
            "outcome": (sends.outcome, _OUTCOMES),
            "acks": -1,
            "value": sends.value,
            "count": 1,
            "offset": sends.stated,
            "proved_us": -1,
        }
        self._write("sends", len(op), columns, order)

    def _reads(self, polls: dict[int, PollRows], op: Mapping[int, I64], final: bool) -> None:
        per_record = {
            name: np.concatenate(
                [
                    (op[k] if name == "op" else getattr(p, name))[p.record_poll]
                    for k, p in polls.items()
                ]
            )
            for name in ("op", "t0", "t1", "process", "start", "hw")
        }
        offset = np.concatenate([p.record_offset for p in polls.values()])
        value = np.concatenate([p.record_value for p in polls.values()])
        key = np.concatenate([np.full(len(p.record_poll), k) for k, p in polls.items()])
        order = np.lexsort((offset, per_record["op"]))
        sorted_op = per_record["op"][order]
        new = np.concatenate(([True], sorted_op[1:] != sorted_op[:-1]))[: len(order)]
        starts = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
        idx = np.empty(len(order), np.int32)
        idx[order] = np.arange(len(order)) - starts
        columns = {
            "run": self._run,
            "op": per_record["op"],
            "seq": 0,
            "idx": idx,
            "partition": (key, self._keys),
            "process": per_record["process"],
            "client": _clients(per_record["process"], True),
            "node": (key % len(_NODES), _NODES),
            "final": final,
            "outcome": "ok",
            "invoke_us": per_record["t0"],
            "complete_us": per_record["t1"],
            "start": per_record["start"],
            "hw": per_record["hw"],
            "offset": offset,
            "value": value,
            "count": 1,
            "epoch": -1,
            "rebalanced": False,
            "uncommitted": False,
            "at_end": False,
        }
        self._write("reads", len(order), columns, order)

    def _ops(
        self, sends: SendRows | None, polls: dict[int, PollRows], op: I64, order: I64, final: bool
    ) -> None:
        sent = len(sends.t0) if sends else 0
        polled = [np.bincount(p.record_poll, minlength=len(p.t0)) for p in polls.values()]
        every: list[SendRows | PollRows] = [*([sends] if sends else []), *polls.values()]
        zeros = np.zeros(sent, np.int64)
        process = np.concatenate([x.process for x in every])
        complete = np.concatenate([x.t1 for x in every])
        outcome = np.zeros(len(op), np.int64)
        if sends:
            outcome[:sent] = sends.outcome
        is_poll = (np.arange(len(op)) >= sent).astype(np.int64)
        columns = {
            "run": self._run,
            "op": op,
            "invoke_us": np.concatenate([x.t0 for x in every]),
            "complete_us": complete,
            "process": process,
            "client": _clients(process, is_poll > 0),
            "f": (is_poll, _OPERATIONS),
            "outcome": (outcome, _OUTCOMES),
            "final": final,
            "error": "",
            "sent": 1 - is_poll,
            "polled": np.concatenate([zeros, *polled]),
            "second": ((complete - 1_000_000) // 1_000_000).astype(np.int32),
        }
        self._write("ops", len(op), columns, order)
        self._wrote["polls"] += len(op) - sent


def _clients(process: I64, polls: npt.NDArray[np.bool_] | bool) -> tuple[I64, list[str]]:
    """Return a client for each process, as codes and names: p12 sends, c1012 polls."""
    known, first, codes = np.unique(process, return_index=True, return_inverse=True)
    letters = np.where(np.broadcast_to(polls, process.shape)[first], "c", "p")
    return codes, [f"{c}{p}" for c, p in zip(letters.tolist(), known.tolist(), strict=True)]


def write_lines(folder: Path, target: Path) -> int:
    """Write a run that has tables only as a run folder with `history.jsonl`; return the bytes of
    that. Within each row group of the tables, lines are in the order of time."""
    target.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(folder / "run.json", target / "run.json")
    history = target / "history.jsonl"
    files = {n: pq.ParquetFile(folder / f"tables/{n}.parquet") for n in ("ops", "sends", "reads")}
    with history.open("wb") as out:
        for stretch in range(files["ops"].num_row_groups):
            rows = {
                name: file.read_row_group(stretch).to_pylist()
                for name, file in files.items()
                if stretch < file.num_row_groups
            }
            lines = sorted(_lines(rows), key=lambda line: line[0])
            out.writelines(encode(op) for _, op in lines)
    for file in files.values():
        file.close()
    return history.stat().st_size


def _lines(rows: dict[str, list[dict[str, Any]]]) -> Iterator[tuple[int, Op]]:
    """Yield the lines of one stretch, each with its time."""
    sends = {row["op"]: row for row in rows.get("sends", [])}
    reads: dict[int, list[dict[str, Any]]] = {}
    for row in rows["reads"]:
        reads.setdefault(row["op"], []).append(row)
    for row in rows["ops"]:
        number = row["op"]
        done: dict[str, Any] = {}
        common: dict[str, Any] = {
            "op": number,
            "process": row["process"],
            "client": row["client"],
            "f": row["f"],
            "final": row["final"],
        }
        begun = dict(common)
        if (sent := sends.get(number)) is not None:
            what = {"partition": sent["partition"], "value": sent["value"]}
            begun["sends"] = (Send(**what),)
            done["sends"] = (Send(**what, offset=sent["offset"]),)
        if (runs := reads.get(number)) is not None:
            first = runs[0]
            records = tuple(RecordRun(run["offset"], run["value"]) for run in runs)
            read = Read(
                partition=first["partition"],
                start=first["start"],
                records=records,
                hw=first["hw"],
                node=first["node"],
            )
            done["reads"] = (read,)
        yield row["invoke_us"], Op(t_us=row["invoke_us"], type="invoke", **begun)
        ended = row["complete_us"]
        yield ended, Op(t_us=ended, type=row["outcome"], **common, **done)


def write_jepsen(history: Path, target: Path, form: str) -> int:
    """Write a history of ours as Jepsen records it, as "edn" or "json", and return its bytes. Each
    final reader first assigns itself every partition from its beginning."""
    show = edn if form == "edn" else json.dumps
    keys = tuple(sorted(read_file(history.with_name("run.json"), dict[str, Any])["partitions"]))
    final: set[int] = set()
    with target.open("w") as out:
        for op in readable_lines(history, Op):
            ops = [op]
            if op.final and op.process not in final:
                final.add(op.process)
                begun = Op(
                    t_us=op.t_us,
                    type="invoke",
                    op=-1,
                    process=op.process,
                    client=op.client,
                    f="assign",
                    partitions=keys,
                )
                ops = [begun, replace(begun, type="ok"), op]
            out.writelines(f"{show(line)}\n" for line in as_jepsen(ops, seeks=(-1,)))
    return target.stat().st_size
