"""Each replica's log after the run: read from a stopped node's data, written to
`logs/<node>.jsonl`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from harness.clients.workload import MIN_RECORD_BYTES, decode_payload
from harness.formats.history import LogRun, write_log
from node.formats.errors import StorageError
from node.formats.log_dump import BatchDump, LogDump
from node.formats.trace import METADATA_PARTITION


def write_logs(
    node: str, data_dir: Path, file: Path, replicas: Mapping[str, Collection[str]]
) -> list[str]:
    """Dump the logs of one stopped broker to `file`; return problems with them, as sentences.
    `replicas` maps each partition to its brokers. The last line of the file says that it is
    complete; it is missing if the store cannot be opened."""
    from node.runtime.read_logs import dump_logs

    problems: list[str] = []
    try:
        write_log(file, log_lines(node, dump_logs(data_dir), replicas, problems))
    except StorageError as error:
        problems.append(f"the logs of {node} could not be read: {error}")
    return problems


def log_lines(
    node: str,
    dumps: Iterable[LogDump],
    replicas: Mapping[str, Collection[str]],
    problems: list[str],
) -> Iterator[LogRun]:
    """Yield every line of a node's dump, including the closing line; add sentences to `problems`.

    The metadata log is left out: its records are not a client's. A partition that the node should
    have according to `replicas`, but does not have, is written as an empty log, because a reader
    takes a partition without a line as missing from the dump."""
    due = {partition for partition, nodes in replicas.items() if node in nodes}
    for log in dumps:
        due.discard(log.partition)
        if log.partition == METADATA_PARTITION:
            continue
        if log.problem:
            problems.append(f"{node}, {log.partition}: {log.problem}")
        yield from _runs(node, log, problems)
    for partition in sorted(due):
        yield LogRun(node=node, partition=partition, offset=0, count=0, leo=0)
    yield LogRun(node=node, partition="", offset=0, count=0)


def _runs(node: str, log: LogDump, problems: list[str]) -> Iterator[LogRun]:
    """Yield the opening line of a partition, then its batches."""
    yield LogRun(
        node=node,
        partition=log.partition,
        offset=log.start,
        count=0,
        hw=log.hw,
        leo=log.leo,
        epochs=log.epochs,
    )
    for one in log.batches:
        if one.base_offset < 0:
            problems.append(f"{node}, {log.partition}: {one.problem}")
        else:
            yield (_batch if one.sound else _damaged)(node, log.partition, one)


def _damaged(node: str, partition: str, one: BatchDump) -> LogRun:
    """Return a batch that fails its checksum: what it says of itself is not believed further than
    its own bytes reach, and its records are not read."""
    believed = 1 <= one.count <= len(one.payload) // MIN_RECORD_BYTES
    # A hash that is kept and none that is recomputed: 0 would say that none is kept.
    kept = one.stored_chain.hex() if any(one.stored_chain) else "1"
    return LogRun(
        node=node,
        partition=partition,
        offset=one.base_offset,
        count=one.count if believed else 1,
        stored_hash=kept,
    )


def _batch(node: str, partition: str, one: BatchDump) -> LogRun:
    kept = "" if one.stored_chain == one.chain else one.stored_chain.hex()
    return LogRun(
        node=node,
        partition=partition,
        offset=one.base_offset,
        count=one.count,
        epoch=one.epoch,
        hash=one.chain.hex(),
        stored_hash=kept,
        control=one.control,
        produced=one.produced,
        records=()
        if one.control
        else decode_payload(one.payload, one.count, one.base_offset, one.epoch),
    )
