"""Names and fields of the broker's trace events.

A trace event is one JSON object on a line of `trace/<node>.jsonl`. Every event has `t_us` (the
host's monotonic clock), `node`, `incarnation` (1 for a node's first process, +1 each restart) and
`event`; events about a partition have `partition`. In the file they have `seq` too, which numbers
the events of a process from 0. The remaining fields depend on the event and are listed in `EVENTS`.
Offsets are 0-based; LEO and HW are exclusive. Hashes are the chained prefix hash as 16 hexadecimal
digits, "" if a log is empty."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from node.formats.errors import DamagedStore

STARTED: Final = "started"
STOPPED: Final = "stopped"
REGISTERED: Final = "registered"
ROLE: Final = "role"
ISR: Final = "isr"
APPEND: Final = "append"
TRUNCATED: Final = "truncated"
DELETED: Final = "deleted"
DIVERGING: Final = "diverging"
HW: Final = "hw"
ACK: Final = "ack"
DUPLICATE: Final = "duplicate"
REFUSED: Final = "refused"
VOTE: Final = "vote"
CONTROLLER: Final = "controller"
BROKER: Final = "broker"
PARTITION: Final = "partition"
PROPOSED: Final = "proposed"
BREAK: Final = "break"
REPORTED: Final = "reported"
WITNESSED: Final = "witnessed"
DAMAGED: Final = "damaged"
GROUP_STATE: Final = "group-state"

NOTHING: Final = ""
EVERYTHING: Final = "everything"


class Declared(NamedTuple):
    """The fields of an event, and what it claims that the disk has: everything that its turn has
    written, nothing of it, or the log below the offset in the field `claims`."""

    fields: tuple[str, ...]
    claims: str = EVERYTHING


EVENTS: Final[dict[str, Declared]] = {
    # a process began; bugs are the historical bugs turned on
    STARTED: Declared(("protocol", "bugs", "clean")),
    # a process ended by request, everything flushed
    STOPPED: Declared(()),
    # the controller gave this process its broker epoch
    REGISTERED: Declared(("broker_epoch",)),
    # a replica took a role: "leader" | "follower" | "candidate" | "none"
    ROLE: Declared(("role", "leader", "leader_epoch", "partition_epoch", "leo", "hw")),
    # the leader's view of its in-sync set changed
    ISR: Declared(("isr", "maximal_isr", "leader_epoch", "partition_epoch")),
    # the leader asked the controller for another in-sync set
    PROPOSED: Declared(("isr", "leader_epoch", "partition_epoch")),
    # a follower reported to the controller that its leader does not answer
    REPORTED: Declared(("leader", "leader_epoch", "partition_epoch")),
    # the controller counted such a report; `witnesses` are all that count now
    WITNESSED: Declared(("leader", "leader_epoch", "witnesses", "isr")),
    # batches were added; `hash` covers everything below `leo`; `role` is "leader" or "follower"
    APPEND: Declared(("base_offset", "leo", "leader_epoch", "hash", "role"), NOTHING),
    # the tail was cut from `from_leo` down to `leo`
    TRUNCATED: Declared(("from_leo", "leo", "hw", "reason", "hash")),
    # the log begins at `start` now, `hash` is that of all below. `reason`: "retention" of a leader,
    # "leader" of a follower whose leader's log begins there, "restart" of one that had nothing
    # from there on and starts over, "truncated" of one that was cut below its start, to nothing
    DELETED: Declared(("from_start", "start", "leo", "leader_epoch", "reason", "hash")),
    # a leader answered a fetch with a diverging epoch
    DIVERGING: Declared(
        ("follower", "fetch_offset", "last_fetched_epoch", "epoch", "end_offset"), NOTHING
    ),
    # a replica's high watermark moved; `batch_end` is the last batch end <= hw, `hash` its prefix
    HW: Declared(("hw", "leo", "leader_epoch", "role", "batch_end", "hash"), "hw"),
    # a produce request was answered "ok" by its leader
    ACK: Declared(("base_offset", "leo", "acks", "hw", "isr", "client"), "leo"),
    # a leader was sent a batch of an idempotent producer that its log has at these offsets already
    DUPLICATE: Declared(("base_offset", "leo", "hw", "client"), NOTHING),
    # a request or response was refused: `reason` is an error name of node.formats.messages
    REFUSED: Declared(("kind", "source", "reason"), NOTHING),
    # a voter granted its vote; `pre` marks a pre-vote
    VOTE: Declared(("candidate", "term", "pre")),
    # this voter began ("active") or ceased ("resigned") to be the controller in `term`
    CONTROLLER: Declared(("state", "term")),
    # the controller committed a change of a broker: "unfenced" | "fenced" | "stopping"
    BROKER: Declared(("broker", "broker_epoch", "state")),
    # the controller committed a change of a partition; `unclean`: its leader was elected from
    # outside ISR and ELR and has not confirmed yet; `adding`, `removing`: a move is under way
    PARTITION: Declared(
        (
            "leader",
            "leader_epoch",
            "partition_epoch",
            "isr",
            "elr",
            "last_known_elr",
            "replicas",
            "unclean",
            "adding",
            "removing",
            "min_isr",
        )
    ),
    # the process stops here, `before` the "send" or "commit" of the turn that emitted `at`, until
    # it is released; `number` names the breakpoint
    BREAK: Declared(("number", "before", "at")),
    # what the disk gave back is not what was written: a batch at `offset`, or (-1) the value `key`
    DAMAGED: Declared(("offset", "key", "what")),
    # the coordinator of groups has this state after it applied its log below `applied`, whose
    # prefix hash is `hash`: pairs of key and value
    GROUP_STATE: Declared(("applied", "hash", "leader_epoch", "live"), "applied"),
}
FIELDS: Final = {name: declared.fields for name, declared in EVENTS.items()}

METADATA_PARTITION: Final = "__cluster_metadata-0"
GROUPS_PARTITION: Final = "__groups-0"
"""The partition whose leader coordinates groups of consumers; its log is their state."""
INTERNAL_PARTITIONS: Final = (METADATA_PARTITION, GROUPS_PARTITION)

TraceEvent = dict[str, Any]

BOUNDS: Final = frozenset({"at_least", "at_most"})
GIVEN: Final = "given"
MAX_CONDITIONS: Final = 200
"""In one pattern, and of values in a list to compare with."""
_MISSING: Final = object()


def event(name: str, partition: str | None = None, **fields: Any) -> TraceEvent:
    """Return a trace event of that name; asserts that `fields` are those listed in `FIELDS`, in
    order."""
    assert tuple(fields) == FIELDS[name], (name, tuple(fields), FIELDS[name])
    made: TraceEvent = {"event": name}
    if partition is not None:
        made["partition"] = partition
    made.update(fields)
    return made


def damaged_event(error: DamagedStore) -> TraceEvent:
    """Return the trace event for data that a disk returned damaged."""
    partition = error.partition or None
    return event(DAMAGED, partition, offset=error.offset, key=error.key, what=error.what)


def matches(fields: Mapping[str, Any], pattern: Mapping[str, Any]) -> bool:
    """Return whether a record of fields (a trace event, a header of a message) fits a pattern.

    A pattern is a dict of field name to a plain value, which must be equal, or to {"at_least": n}
    or {"at_most": n}, which compare numbers; both bounds may be given together. {"given": true}
    fits a field that is present and not null, {"given": false} one that is missing or null. A
    missing field fits no other condition; an empty pattern fits every record."""
    return all(_fits(fields.get(name, _MISSING), wanted) for name, wanted in pattern.items())


def is_bound(wanted: object) -> bool:
    """Return whether a condition of a pattern compares numbers ("at_least", "at_most") instead of
    asking for one value."""
    return isinstance(wanted, dict) and bool(wanted) and wanted.keys() <= BOUNDS


def is_given(wanted: object) -> bool:
    """Return whether a condition of a pattern asks only if a field is present ("given")."""
    return isinstance(wanted, dict) and wanted.keys() == {GIVEN} and wanted[GIVEN] in (True, False)


def wrong_pattern(pattern: Mapping[str, Any]) -> str:
    """Return why `matches` cannot compare with this pattern, "" if it can."""
    if len(pattern) > MAX_CONDITIONS:
        return f"a match has at most {MAX_CONDITIONS} conditions"
    for name, wanted in pattern.items():
        if is_bound(wanted):
            if any(isinstance(n, bool) or not isinstance(n, int | float) for n in wanted.values()):
                return f"match: {name}: at_least and at_most must be numbers"
        elif isinstance(wanted, dict) and not is_given(wanted):
            return f"match: {name}: a condition may have at_least and at_most, or only given"
        elif not isinstance(wanted, dict) and not _is_plain(wanted):
            return f"match: {name}: expected a number, a text, or a short list of them"
    return ""


def _is_plain(wanted: object) -> bool:
    if isinstance(wanted, list | tuple):
        return len(wanted) <= MAX_CONDITIONS and all(_is_scalar(each) for each in wanted)
    return _is_scalar(wanted)


def _is_scalar(wanted: object) -> bool:
    return wanted is None or isinstance(wanted, str | int | float)


def _fits(value: object, wanted: object) -> bool:
    if is_given(wanted):
        assert isinstance(wanted, dict)
        return (value is not None and value is not _MISSING) == bool(wanted[GIVEN])
    if not is_bound(wanted):
        # Fields that were tuples in a process are lists in a file.
        return (list(value) if isinstance(value, tuple) else value) == (
            list(wanted) if isinstance(wanted, tuple) else wanted
        )
    assert isinstance(wanted, dict)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    at_least, at_most = wanted.get("at_least"), wanted.get("at_most")
    return (at_least is None or value >= at_least) and (at_most is None or value <= at_most)
