"""No lost acknowledged write, in four forms: lost, tail-lost, vanished, unseen.

That a record was kept must be shown: by a final read that returned it, or by the logs. If nothing
shows it, the property is unknown. If the run promises retention, a record below the start of a log
may be gone: such records are counted, and those of them that were never read are not judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from checker.checks.cases import Cases, Examined, Unknown, excused
from checker.checks.findings import (
    LossCount,
    agreeing,
    listing,
    node_witness_at,
    op_name,
    plural,
    record_witness,
    send_witness,
)
from checker.checks.groups import given_to_groups
from checker.checks.registry import Check
from checker.evidence.columns import Mask
from checker.evidence.contents import (
    NEVER,
    READ_FINAL,
    READ_OK,
    READ_PROVES,
    Columnar,
    Evidence,
    evidence,
    expand,
    find,
)
from checker.evidence.facts import Contents, Outcome
from checker.evidence.group import Group
from checker.evidence.needs import Need, absence_proved, logs_expected
from checker.evidence.positions import (
    UNKNOWN_POSITION,
    Positions,
    latest_over,
    log_start_open,
    positions,
)
from checker.evidence.sorting import I64
from checker.formats.anomalies import LOST_WRITES
from checker.formats.verdict import Witness
from harness.formats.history import show_value

_WEAK = "acks 0 or 1 do not promise that the record survives"
_OPENING = {
    "lost": "{n:acknowledged record} of {partition} lost",
    "tail-lost": "{n:acknowledged record} at the end of {partition} lost",
    "unseen": "{n:acknowledged record} of {partition} never delivered",
}

LOSSES = Check(LOST_WRITES, (Need.HISTORY, Need.LOGS, Need.RECORDS))


@dataclass(frozen=True)
class _Required(Columnar):
    """Records that have to be there at the end, a row each: row of its send, value, acknowledged
    offset (-1: unknown), whether acks 0 or 1 were asked for, highest offset at which it is known
    (or -1), and how it was read."""

    send: I64
    value: I64
    offset: I64
    weak: Mask
    last: I64
    flags: I64


@LOSSES.finds("lost", "vanished", "tail-lost", "unseen")
def losses(group: Group) -> Iterator[Cases | Examined | Unknown | dict[str, LossCount]]:
    """Find committed records that no ok read returned, or that are gone (see `vanished`). `lost`: a
    record at or below the highest record that was read, which a read passed over or no log has; or
    another value is at its offset in a log. `tail-lost`: a record above that, and no complete log
    has it. `unseen`: neither is shown, but the final reads had to return it."""
    known = evidence(group)
    if not (len(known.sends) or len(known.polls) or len(group.of(Contents))):
        yield {"loss": LossCount()}
        return
    promise, by_us = group.meta.promise, not group.meta.source
    unread = not (len(known.polls) or logs_expected(group))
    theirs = not promise.reads and given_to_groups(group) if by_us else promise.groups is not None
    if unread and theirs:
        yield {"loss": LossCount()}
        return  # only groups read it: whether they got all is judged by `undelivered`
    required = _required(known)
    read = (required.flags & READ_OK) != 0
    absent = _absent(group, known, required.value)
    below = ~read & (required.last >= 0) & (required.last <= _highest_read(known))
    passed = _Passed(group, known)
    if below.any():
        below &= absent | passed.over(required.last, required.value)
    gone = ~read & ~below & absent
    reused = gone
    if gone.any():
        reused = gone & np.isin(required.offset, known.log_records.offset)
    replaced = _replaced(known, required, ~read & ~absent)
    lost, tail = below | reused | replaced, gone & ~reused
    deleted = (required.last >= 0) & (required.last < known.deleted_below) & ~lost
    deleted &= (required.flags & READ_FINAL) == 0  # A replica deletes when others still have it.
    acknowledged = known.sends.outcome[required.send] == Outcome.OK
    missing = ~read & ~lost & ~tail & ~deleted
    yield from _each_promise(group, known, required.take(lost), "lost")
    yield from _each_promise(group, known, required.take(tail), "tail-lost")
    was_read = vanished(known, group)
    yield _of_vanished(group, known, was_read)
    unseen = missing & passed.asked_after(required) if missing.any() else missing
    yield from _each_promise(group, known, required.take(unseen), "unseen")
    missing &= ~unseen
    open_ = (missing | read) & ~deleted
    if len(was_read):
        open_ &= ~np.isin(required.value, was_read.value)
    writers = known.sends.outcome[known.writer(was_read.value)]
    loss = LossCount(
        lost=int((lost | tail).sum()) + len(was_read),
        acknowledged=int(((lost | tail) & acknowledged).sum() + (writers == Outcome.OK).sum()),
        read=len(was_read),
        undelivered=int((unseen & acknowledged).sum()),
        deleted=int((deleted & acknowledged).sum()),
        deleted_unread=int((deleted & acknowledged & ~read).sum()),
    )
    yield {"loss": loss}
    yield Examined(len(required) - int((deleted & ~read).sum()))
    yield Unknown(_not_shown(group, known, required.take(open_)))


def _required(known: Evidence) -> _Required:
    """Return the committed records, with what reads and acknowledgements say of each."""
    rows = np.flatnonzero(known.committed)
    run, place = expand(known.sends.count[rows])
    send = rows[run]
    value = known.sends.value[send] + place
    base = known.sends.offset[send]
    at = known.values_sent(rows)
    return _Required(
        send,
        value,
        np.where(base >= 0, base + place, -1),
        known.sends.acks[send] != -1,
        np.append(known.values.last, -1)[at],
        np.append(known.values.flags, 0)[at],
    )


def _reads_are_over(known: Evidence, group: Group) -> bool:
    """Return whether readers went on for as long as was needed: a record that no final read
    returned would not have been returned later either."""
    meta = group.meta
    if meta.complete_reads:
        return True
    if meta.final_reads_had_time:
        return group.final_reads_invoked
    return meta.state == "finished" and len(known.final_reads) > 0


def _highest_read(known: Evidence) -> int:
    """Return the highest first offset of a value that an ok read returned; -1 if there is none."""
    read = known.values.first[(known.values.flags & READ_OK) != 0]
    return int(read.max()) if len(read) else -1


class _Passed:
    """The offsets that reads of a partition passed over, and until when they asked for more."""

    def __init__(self, group: Group, known: Evidence) -> None:
        self.group, self.known = group, known

    @cached_property
    def rows(self) -> Positions:
        """The position of every ok read."""
        return positions(self.known)

    def over(self, offsets: I64, values: I64) -> Mask:
        """Select the values, at these offsets, that at least one read passed over. A read passed
        over a value if it returned another value at that offset; or if it is known to have begun at
        or below the offset, returned later records, and nothing had deleted this one by then."""
        found = np.zeros(len(offsets), dtype=bool)
        if not self.group.history_whole:
            return found
        read = self.known.read_records
        ok = read.offset[(read.flags & READ_OK) != 0]
        found |= np.isin(offsets, ok)
        if not self.group.processes_sound:
            return found
        gap = self.rows.gap
        found |= latest_over(offsets, gap.due, gap.begin, gap.t0) >= 0
        return found

    def asked_after(self, required: _Required) -> Mask:
        """Select the records that a read had to return: readers went on for long enough, and one
        was invoked at or below the offset of the record when the record was there. If a final read
        of the partition showed the record to be committed, final readers went on from there."""
        group, found = self.group, np.zeros(len(required), dtype=bool)
        if not len(required) or not _reads_are_over(self.known, group) or not group.history_whole:
            return found
        if group.meta.promise.compaction or not group.clocks_sound:
            return found
        committed_us = self.known.committed_us[required.send]
        if log_start_open(group):
            # Retention deletes the oldest records: it does not move the end of the log back.
            ended = self.rows.final & (self.rows.ended >= 0) & (self.rows.end >= self.rows.ended)
            stated = self.rows.take(ended)
            never = np.full(len(stated), NEVER)
            ended_below = latest_over(required.last, stated.ended, never, stated.t0)
            return (required.last >= 0) & (ended_below >= committed_us)
        # A record with an unknown offset may be anywhere: only a read from 0 must return it.
        offsets = np.maximum(required.last, 0)
        if group.meta.source:
            anywhere = required.last < 0
            return self._found_nothing_more(offsets, anywhere) >= committed_us
        reads = self.known.polls.take(self.known.polls.final)
        if not len(reads) or self.known.finals_say_nothing:
            return found
        # Final readers begin at 0 and go on; one that is not answered asks for more as well.
        found |= (reads.invoke_us.max() >= committed_us) | (
            reads.complete_us.max() >= self.known.proved_here_us[required.send]
        )
        stood_below: Mask = offsets >= np.maximum(reads.start, 0).min()
        return stood_below & found

    def _found_nothing_more(self, offsets: I64, anywhere: Mask) -> I64:
        """Return, for each of these offsets, when a final reader at or below it last asked and was
        answered that there is nothing more; -1 if that never happened. For a record that may be
        `anywhere`, only a reader counts that had read everything from 0 on."""
        rows = self.rows.take(self.rows.final & (self.rows.low >= 0))
        # A poll without records may have waited in vain. In Jepsen's histories it counts, unless
        # another read contradicts it.
        reached = np.where(rows.low > 0, self.known.final_end, _highest_read(self.known) + 1)
        waited = rows.empty & (rows.low >= reached) & self.group.meta.is_jepsen
        rows = rows.take(waited | ((rows.ended >= 0) & (rows.end >= rows.ended)))
        if not len(rows):
            return np.full(len(offsets), -1)
        order = np.argsort(rows.low)
        latest = np.maximum.accumulate(rows.t0[order])
        at = np.searchsorted(rows.low[order], offsets, side="right") - 1
        found = np.where(at >= 0, latest[np.maximum(at, 0)], -1)
        of_all = int(rows.t0[rows.origin == 0].max(initial=-1))
        return np.where(anywhere, of_all, found)


def _replaced(known: Evidence, required: _Required, which: Mask) -> Mask:
    """Select records with another value at their offset in one committed log and in none itself."""
    which = which & (required.offset >= 0)
    if not which.any():
        return which
    logged = known.committed_log_records
    found: Mask = which & np.isin(required.offset, logged.offset)
    found &= ~np.isin(required.value, logged.value)
    return found


def _absent(group: Group, known: Evidence, values: I64) -> Mask:
    """Select the values that are certainly in no replica's log."""
    if not len(values) or not absence_proved(group):
        return np.zeros(len(values), dtype=bool)
    found: Mask = find(known.logged_values, values) < 0
    if known.deleted_below:
        offset, _ = known.place_of(values)
        found &= offset >= known.deleted_below
    return found


def _not_shown(group: Group, known: Evidence, required: _Required) -> str:
    """Say how many of these records nothing shows to be there at the end; "" if all are shown. A
    final read shows it, or a log below the HW of its replica, or the logs of all replicas. In a
    history of another tool without final reads any read does, as in Jepsen."""
    promise = group.meta.promise
    read = (required.flags & READ_OK) != 0
    owed = ~required.weak & np.where(read, promise.committed_stays, promise.durable_acks)
    shown = (required.flags & READ_FINAL) != 0
    if shown.any():
        shown &= ~_ended_below(group, known, required.last)
    if group.meta.source and not len(known.final_reads):
        shown = read
    required = required.take(owed & ~shown)
    if len(required):
        required = required.take(~_kept(group, known, required.value))
    if not len(required):
        return ""
    value, offset = int(required.value[0]), int(required.offset[0])
    at = f" at offset {offset}" if offset >= 0 else ""
    return (
        f"nothing shows that {plural(len(required), 'acknowledged record')} of {group.partition} "
        f"{agreeing(len(required))} still there: no final read returned value "
        f"{show_value(value)}{at}, and {_where(group, known, value)}"
    )


def _ended_below(group: Group, known: Evidence, offsets: I64) -> Mask:
    """Select the offsets at or below which the log ended, as a final read states that was invoked
    later than all final reads that returned a record there."""
    if not group.clocks_sound:
        return np.zeros(len(offsets), dtype=bool)
    finals = positions(known)
    finals = finals.take(finals.final)
    stated, never = finals.take(finals.ended >= 0), np.full(len(finals), NEVER)
    if not len(stated) or stated.ended.min() > offsets.max(initial=-1):
        return np.zeros(len(offsets), dtype=bool)
    denied = latest_over(offsets, stated.ended, never[: len(stated)], stated.t0)
    return denied > latest_over(offsets, finals.begin, finals.end, finals.t0)


def _kept(group: Group, known: Evidence, values: I64) -> Mask:
    """Select the values that a replica has below its HW and below one that a majority of the
    replicas has reached; or that all replicas have."""
    heads, logged = group.replica_heads, known.committed_log_records
    reached = np.sort(heads.hw)[::-1]
    majority = len(group.replicas) // 2
    below = int(reached[majority]) if majority < len(reached) else -1
    kept = np.isin(values, logged.value[logged.offset < below])
    if group.logs_complete:
        logged = known.log_records
        everywhere = np.ones(len(values), dtype=bool)
        for node in group.replica_heads.node.tolist():
            everywhere &= np.isin(values, logged.value[logged.node == node])
        kept |= everywhere
    found: Mask = kept
    return found


def _where(group: Group, known: Evidence, value: int) -> str:
    """Name the logs that hold a record not yet proved kept or lost."""
    if not group.dumped:
        return "no log was dumped"
    holders = listing(node for node, _ in known.holders(value))
    return f"only the log of {holders} has it" if holders else "no log that is there has it"


def _each_promise(group: Group, known: Evidence, missing: _Required, name: str) -> Iterator[Cases]:
    """Yield records that were never read, those acknowledged with weaker acks than all apart."""
    if not len(missing):
        return
    missing = missing.take(np.lexsort((missing.value, missing.offset)))
    for rows, allowed in excused(np.arange(len(missing)), missing.weak, _WEAK):
        yield _missing(group, known, missing.take(rows), name, allowed)


def _missing(group: Group, known: Evidence, missing: _Required, name: str, allowed: str) -> Cases:

    def shown(row: int) -> Iterator[Witness]:
        offset, value = int(missing.offset[row]), int(missing.value[row])
        yield send_witness(known.sends, int(missing.send[row]), offset=offset, value=value)
        if row == 0:
            yield from _instead(known, offset, value)

    def words(row: int) -> dict[str, object]:
        offset, value = int(missing.offset[row]), int(missing.value[row])
        ended = known.sends.outcome[missing.send[row]] == Outcome.OK
        return {
            "value": value,
            "verb": "was acknowledged"
            if ended
            else "was committed (a record of its batch was read)",
            "at": f" at offset {offset}," if offset >= 0 else "",
            "instead": _instead_text(_instead(known, offset, value)),
            "triage": _triage(group, known, missing.value, value),
        }

    return Cases(
        f"{_OPENING[name]}: value {{value:show}}, sent by {{a:op}}, {{verb}}{{at}} {{a:when}}"
        "{instead}; {triage}",
        np.arange(len(missing)),
        shown,
        words,
        name=name,
        allowed=allowed,
        offset=missing.offset[0] if len(missing) else None,
    )


def _instead(known: Evidence, offset: int, value: int) -> list[Witness]:
    """Name a read that has another value at this offset, or else a log."""
    if offset < 0:
        return []
    here = known.read_records
    others = here.value[(here.offset == offset) & (here.value != value)]
    if len(others):
        return [record_witness(known, offset, int(others[0]))]
    logged = known.log_records
    rows = np.flatnonzero((logged.offset == offset) & (logged.value != value))
    return [node_witness_at(known.logs, logged, int(rows[0]))] if len(rows) else []


def _instead_text(witnesses: list[Witness]) -> str:
    for witness in witnesses:
        if witness.op >= 0 and "read" in witness.what:
            return f", but {op_name(witness)} read value {show_value(witness.value)} there"
        if witness.node:
            return f", but {witness.node}'s log has value {show_value(witness.value)} there"
    return ""


def _triage(group: Group, known: Evidence, values: I64, first: int) -> str:
    """Say whether the records are gone everywhere, or only undelivered."""
    if not group.dumped:
        return "no replica's log is there to look it up in."
    held = int(np.isin(values, known.logged_values).sum())
    looked = listing(group.dumped)
    if not held:
        scope = "gone everywhere" if group.logs_complete else "in none of the logs we have"
        which = "it is" if len(values) == 1 else "all are"
        return f"{which} {scope} (logs of {looked})."
    holders = known.holders(first)
    where = listing(f"{node} at offset {offset}" for node, offset in holders)
    of_first = f"the first is held by {where}" if holders else "the first is in no log"
    return f"{held:,} of {len(values):,} in some log, {of_first}."


@dataclass(frozen=True)
class _Vanished(Columnar):
    """Values that an ok read returned and that later were not there any more, sorted by offset."""

    value: I64
    offset: I64


def vanished(known: Evidence, group: Group) -> _Vanished:
    """Find `vanished`: values that an ok read returned, of operations that had taken effect, and
    that no complete log has; or that later final reads passed over, or to which they answered that
    the log ends below. In the order of offsets."""
    values = known.values_read
    gone = _can_vanish(known) & _absent(group, known, values.value)
    doubtful = np.flatnonzero(_doubtful(known, group) & ~gone)
    if len(doubtful):
        gone[doubtful] = _denied(known, group, values.value[doubtful], values.first[doubtful])
    rows = np.flatnonzero(gone)
    rows = rows[np.lexsort((values.value[rows], values.first[rows]))]
    return _Vanished(values.value[rows], values.first[rows])


def _can_vanish(known: Evidence) -> Mask:
    """Select those of `values_read` that must stay: a committed read returned them, or their
    operation took effect. Others were read with read_uncommitted, and may be of one that aborts."""
    values = known.values_read
    writer = known.writer(values.value)
    certain = np.append(known.committed, False)[writer]
    found: Mask = (writer >= 0) & (((values.flags & READ_PROVES) != 0) | certain)
    return found


def _doubtful(known: Evidence, group: Group) -> Mask:
    """Select those of `values_read` that final reads may show to be gone."""
    if not len(known.final_reads) or not group.history_whole:
        return np.zeros(len(known.values_read.value), dtype=bool)
    return _can_vanish(known)


def _denied(known: Evidence, group: Group, values: I64, first: I64) -> Mask:
    """Select the values, first read at these offsets, that final reads invoked after they had been
    read show to be gone: one passed over the offset, and none invoked later returned a record
    there; or none returned the value, and they state an end of the log that is at or below it."""
    if not (group.clocks_sound and group.processes_sound):
        return np.zeros(len(values), dtype=bool)
    finals = positions(known)
    finals = finals.take(finals.final)
    known_values = known.values_read
    by_finals = known_values.value[(known_values.flags & READ_FINAL) != 0]
    gap, again = finals.gap, np.isin(values, by_finals)
    if again.all() and not len(gap):
        return ~again
    read_us = _read_since(known, values)
    passed_us = latest_over(first, gap.due, gap.begin, gap.t0)
    # A read that has another value at the offset passed over the record as well.
    over_us = latest_over(first, finals.begin, finals.end, finals.t0)
    passed = (passed_us >= read_us) & ((passed_us > over_us) | ~again)
    passed |= ~again & (over_us >= read_us) & (first >= known.deleted_below)
    end = int(finals.ended.max(initial=UNKNOWN_POSITION))
    if end < known.final_end or end < 0 or not _reads_are_over(known, group):
        return passed
    stated = finals.take(finals.ended >= 0)
    behind = latest_over(first, stated.ended, np.full(len(stated), NEVER), stated.t0) >= read_us
    behind &= ~again & (first >= end) & (find(known.logged_values, values) < 0)
    return passed | behind


def _read_since(known: Evidence, values: I64) -> I64:
    """Return when an ok read first returned each of these values."""
    read = known.read_records
    rows = np.flatnonzero(((read.flags & READ_OK) != 0) & np.isin(read.value, values))
    order = np.argsort(values)
    read_us = np.full(len(values), NEVER)
    at = order[np.searchsorted(values[order], read.value[rows])]
    np.minimum.at(read_us, at, known.read_at[rows])
    return read_us


def depends_on_every_read(group: Group) -> bool:
    """Return whether a finding may depend on reads that downsampling left out
    (`checker.engine.read_downsampling`): on when the final reads of an offset were invoked, on what
    reads show of the start of the log, or on where the readers of another tool's history stood."""
    known = evidence(group)
    if group.meta.promise.retention and log_start_open(group):
        return True
    values, finals = known.values_read, known.final_reads
    not_again = _doubtful(known, group) & ((values.flags & READ_FINAL) == 0)
    if (not_again & ~_absent(group, known, values.value)).any():
        return True
    ended = positions(known)
    ended = ended.take(ended.final)
    if len(ended.gap) or (ended.ended[ended.ended >= 0] < known.final_end).any():
        return bool(len(np.unique(finals.process)) > 1)
    required = _required(known) if group.meta.source else None
    return required is not None and bool(((required.flags & READ_OK) == 0).any())


def _of_vanished(group: Group, known: Evidence, gone: _Vanished) -> Cases:
    return Cases(
        "{n:record} of {partition} vanished after being read: {a:op} read value {value:show} at "
        "offset {a.offset}, {a:when}, and later it was not there any more; {triage}",
        np.arange(len(gone)),
        lambda row: [record_witness(known, int(gone.offset[row]), int(gone.value[row]))],
        lambda row: {
            "value": gone.value[row],
            "triage": _triage(group, known, gone.value, int(gone.value[row])),
        },
        name="vanished",
    )
