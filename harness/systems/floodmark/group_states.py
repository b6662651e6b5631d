"""The states of groups that coordinators traced, beside the log that made them: the lines of
`group-states.jsonl`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from harness.formats.history import GROUP_STATES, GroupRecord, GroupState
from node.core.groups.state import decode_payload
from node.formats.errors import StorageError
from node.formats.files import write_whole
from node.formats.log_dump import BatchDump, LogDump
from node.formats.trace import GROUP_STATE, GROUPS_PARTITION


def write_group_states(
    data: Iterable[Path], events: Iterable[Mapping[str, Any]], folder: Path
) -> None:
    """Write the file of a run from the data folders of its stopped brokers. A log that cannot be
    read is left out: its own file says so."""
    from node.runtime.read_logs import dump_logs

    logs = []
    for each in data:
        with suppress(StorageError):
            logs.append(batches_of_groups(dump_logs(each)))
    lines = msgspec.json.Encoder().encode_lines(group_states(logs, events))
    write_whole(folder / GROUP_STATES, lines, folder.parent)


def batches_of_groups(dumps: Iterable[LogDump]) -> list[BatchDump]:
    """Return the batches of a node's log of groups; none if it has no such log."""
    return [one for log in dumps if log.partition == GROUPS_PARTITION for one in log.batches]


def group_states(
    logs: Iterable[list[BatchDump]], events: Iterable[Mapping[str, Any]]
) -> list[GroupState]:
    """Return the records of the newest log, and each state whose log this is: the records of any
    other were cut, so that nothing is compared."""
    whole = [log for log in logs if log and all(one.sound and one.count for one in log)]
    log = max(whole, key=lambda log: (log[-1].epoch, log[-1].base_offset), default=[])
    hashes = {one.base_offset + one.count: one.chain.hex() for one in log}
    lines = [
        GroupState(
            offset=offset, record=GroupRecord(list(record.key), msgspec.to_builtins(record.value))
        )
        for one in log
        for offset, record in enumerate(decode_payload(one.payload), one.base_offset)
    ]
    for event in events:
        if event["event"] == GROUP_STATE and hashes.get(event["applied"]) == event["hash"]:
            live = tuple((key, value) for key, value in event["live"])
            lines.append(GroupState(node=event["node"], applied=event["applied"], live=live))
    return lines
