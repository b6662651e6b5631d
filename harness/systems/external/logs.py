"""The logs of stopped nodes, as the adapter's `dump` reads them, written to `logs/<node>.jsonl`.

A process of its own reads them, because code that meets a damaged file may take forever. The
checker expects a log of each node for which `dump` returned one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import msgspec
import multiprocess

from harness.clients.workload import record_runs
from harness.formats.history import LogRun, write_log
from harness.systems.adapter import Adapter, Node
from harness.systems.external.calls import checked, in_words
from harness.systems.external.load import AdapterChoice
from node.formats.errors import FloodmarkError
from node.runtime import children
from node.runtime.children import settle_in

NODE_TIMEOUT_S: Final = 60.0
REAP_S: Final = 10.0
MAX_RECORDS: Final = 5_000_000


class NodeDump(msgspec.Struct, frozen=True):
    """The result for one node: the partitions that it has a log of, readable or not, and problems
    as sentences."""

    node: str
    partitions: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class DumpConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The order to the reading process: which logs of `members` to read, and the `folder` to write
    to. `output` is the file for its stdout and stderr."""

    choice: AdapterChoice
    nodes: tuple[Node, ...]
    members: tuple[str, ...]
    partitions: tuple[str, ...]
    record_bytes: int
    folder: str
    output: str
    parent_pid: int


def dump_logs(config: DumpConfig) -> tuple[list[NodeDump], list[str]]:
    """Write the logs of all nodes. Main thread only. Returns the result of each node that was
    reached, and all problems as sentences."""
    near, far = multiprocess.Pipe()
    process = children.start("logs", _main, config, far)
    far.close()
    found: list[NodeDump] = []
    problems: list[str] = []
    left = [node.name for node in config.nodes]
    try:
        while left:
            if not near.poll(NODE_TIMEOUT_S):
                problems.append(
                    f"the logs of {', '.join(left)} were not read: dump took more than "
                    f"{NODE_TIMEOUT_S:g} s for {left[0]}"
                )
                break
            found.append(near.recv())
            problems += found[-1].problems
            left.pop(0)
    except (EOFError, OSError):
        problems.append(
            f"the logs of {', '.join(left)} were not read: the process that read them ended by "
            f"itself (see {config.output})"
        )
    finally:
        process.kill()
        process.join(REAP_S)
        near.close()
    if not left:
        problems += [
            f"no node has a log of {partition}: dump returned None for each"
            for partition in config.partitions
            if not any(partition in dump.partitions for dump in found)
        ]
    return found, problems


def _main(config: DumpConfig, pipe: Connection) -> None:
    """Send a `NodeDump` for each node: the work of the process."""
    settle_in(config.parent_pid, config.output)
    adapter = config.choice.load()
    for node in config.nodes:
        problems: list[str] = []
        had: list[str] = []
        try:
            names = config.partitions if node.name in config.members else ()
            runs = log_lines(adapter, node, names, config.record_bytes, had, problems)
            write_log(Path(config.folder) / f"{node.name}.jsonl", runs)
        except FloodmarkError as error:
            problems.append(f"the logs of {node.name} could not be written: {error}")
        pipe.send(NodeDump(node.name, tuple(had), tuple(problems)))
    os._exit(0)


def log_lines(
    adapter: Adapter,
    node: Node,
    partitions: Sequence[str],
    record_bytes: int,
    had: list[str],
    problems: list[str],
) -> Iterator[LogRun]:
    """Yield every line of a node's dump, including the closing line. Adds sentences to `problems`,
    and to `had` each partition that the node has a log of, readable or not."""
    for partition in partitions:
        try:
            found = _records(adapter.dump(node, partition))
        except Exception as error:
            problems.append(
                f"the log of {partition} on {node.name} could not be read: {in_words(error)}"
            )
            had.append(partition)
            continue
        if found is None:
            continue
        had.append(partition)
        start = found[0][0] if found else 0
        end = found[-1][0] + 1 if found else 0
        yield LogRun(node=node.name, partition=partition, offset=start, count=0, hw=end, leo=end)
        for run in record_runs(found, record_bytes):
            yield LogRun(
                node=node.name,
                partition=partition,
                offset=run.offset,
                count=run.count,
                records=(run,),
            )
    yield LogRun(node=node.name, partition="", offset=0, count=0)


def _records(found: Any) -> list[tuple[int, bytes]] | None:
    """Return the records of `dump`, checked. Raises ValueError and WrongAnswer."""
    if found is None:
        return None
    kept: list[tuple[int, bytes]] = checked("dump", list(islice(found, MAX_RECORDS + 1)))
    if len(kept) > MAX_RECORDS:
        raise ValueError(f"dump returned more than {MAX_RECORDS} records")
    for (before, _), (offset, _) in pairwise(kept):
        if offset <= before:
            raise ValueError(
                f"dump returned the offset {offset} after {before}: they must increase"
            )
    return kept
