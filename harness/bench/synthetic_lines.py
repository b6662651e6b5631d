"""A made history as the lines a run writes, `history.jsonl`: what ingest is measured on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from harness.formats.history import Op, Read, RecordRun, Send, encode


def write_lines(folder: Path, target: Path) -> int:
    """The run in `folder`, which has tables only, as a run folder with lines; says their bytes.

    A stretch of the tables at a time: within each, lines are in the order of time.
    """
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
    """The lines of one stretch, each with its time."""
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
