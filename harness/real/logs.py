"""Each replica's log after the run, from its stopped node's data to `logs/<node>.jsonl`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from harness.appender import Appender
from harness.history import LogRun
from harness.workload import decode_batch
from node.core.batch import BatchView
from node.core.batch import build as build_batch
from node.errors import StorageError
from node.runtime.dump import BatchDump, LogDump, dump_logs
from node.trace import METADATA_PARTITION

_LINES_A_WRITE: Final = 2000
_encoder: Final = msgspec.json.Encoder()


def write_logs(node: str, data_dir: Path, file: Path) -> list[str]:
    """Dump the logs of one stopped broker; returns what was wrong with them, in sentences.

    The metadata log is left out: its records are not a client's. The last line of the file says
    that it is complete; where the store cannot be opened there is no such line.
    """
    problems: list[str] = []
    lines: list[bytes] = []
    out = Appender(file)
    try:
        for log in dump_logs(data_dir):
            if log.partition == METADATA_PARTITION:
                continue
            if log.problem:
                problems.append(f"{node}, {log.partition}: {log.problem}")
            for run in _runs(node, log, problems):
                lines.append(_encoder.encode(run) + b"\n")
                if len(lines) >= _LINES_A_WRITE:
                    out.write(b"".join(lines))
                    lines.clear()
        lines.append(_encoder.encode(LogRun(node=node, partition="", offset=0, count=0)) + b"\n")
        out.write(b"".join(lines))
    except StorageError as error:
        problems.append(f"the logs of {node} could not be read: {error}")
    finally:
        out.close()
    return problems


def _runs(node: str, log: LogDump, problems: list[str]) -> Iterator[LogRun]:
    """The opening line of a partition, then its batches."""
    yield LogRun(
        node=node, partition=log.partition, offset=log.start, count=0, hw=log.hw, leo=log.leo,
        epochs=log.epochs,
    )  # fmt: skip
    for one in log.batches:
        if one.count == 0:
            problems.append(f"{node}, {log.partition}, batch at {one.base_offset}: {one.problem}")
        else:
            yield _batch(node, log.partition, one)


def _batch(node: str, partition: str, one: BatchDump) -> LogRun:
    data = build_batch(one.count, one.payload, control=one.control)
    view = BatchView(one.base_offset, one.epoch, one.count, data, control=one.control)
    kept = "" if one.stored_chain == one.chain else one.stored_chain.hex()
    return LogRun(
        node=node, partition=partition, offset=one.base_offset, count=one.count, epoch=one.epoch,
        hash=one.chain.hex(), stored_hash=kept, records=decode_batch(view),
    )  # fmt: skip
