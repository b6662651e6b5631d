"""Members of ISR and ELR have every committed record, because each may lead next (KIP-966)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from checker.checks.cases import Cases, Examined
from checker.checks.findings import node_witness
from checker.checks.leaders import CommittedChange, changes_of
from checker.checks.registry import Check
from checker.evidence.contents import NEVER
from checker.evidence.facts import Appends, HighWatermarks, RoleChanges, Truncations
from checker.evidence.group import Group
from checker.evidence.needs import Need, missing
from checker.evidence.sorting import I64
from checker.formats.anomalies import LOG
from checker.formats.verdict import Witness

ISR = Check(LOG, (Need.TRACES,))


@ISR.finds("incomplete-isr")
def incomplete_isr(group: Group) -> Iterator[Cases | Examined]:
    """Find `incomplete-isr`: a leader moves the HW beyond the log end of another member of the ISR
    or ELR of its leader epoch; or a change adds a broker to ISR or ELR whose log ends below a HW
    that a leader established before (after an election from outside ISR and ELR, only HWs from then
    on count). The log end of a broker is its highest one in the leader epoch: a crash may shorten
    the log before the controller learns of it."""
    changes, events = group.memo(changes_of), group.of(HighWatermarks)
    moves = events.take(events.leads)
    if not len(moves) or not changes or missing(group, (Need.TRACES,)):
        return
    yield Examined(len(moves))
    yield Cases(
        "{words} of {partition}, {a:when}.",
        [*_moves_beyond(group, changes, moves), *_taken_in(group, changes, moves)],
        lambda each: each[:1],
        lambda each: {"words": each[1]},
    )


def _log_ends(group: Group) -> dict[str, tuple[I64, I64, I64]]:
    """Return for each broker, by time: when, in which leader epoch, and at which offset its log
    ended. If truncations follow the start of an epoch, its log began the epoch with the end that
    they left; an unknown end counts as beyond every offset."""
    roles, appends, cuts = group.of(RoleChanges), group.of(Appends), group.of(Truncations)
    found = {}
    for node in np.union1d(roles.node, appends.node).tolist():
        own, wrote = roles.take(roles.node == node), appends.take(appends.node == node)
        cut = cuts.take((cuts.node == node) & (cuts.leo >= 0))
        end = np.concatenate((own.leo, wrote.leo, [-1]))
        end[end < 0] = NEVER
        # Before the first role there is an epoch of its own, the last place of both columns.
        np.minimum.at(end, np.searchsorted(own.line, cut.line) - 1, cut.leo)
        line, t_us = np.append(own.line, wrote.line), np.append(own.t_us, wrote.t_us)
        order = np.argsort(line)
        since = np.searchsorted(own.line, line[order], side="right") - 1
        found[roles.name(node)] = t_us[order], np.append(own.epoch, -2)[since], end[order]
    return found


def _reached(group: Group, node: str, epoch: int, t_us: I64) -> I64:
    """Return the highest log end of a broker in an epoch by each time; its last log end before, if
    it had no part in the epoch by then; 0 without any."""
    nothing = np.zeros(0, np.int64)
    when, epochs, end = group.memo(_log_ends).get(node, (nothing, nothing, nothing))
    own = epochs == epoch
    last = np.append(0, end)[np.searchsorted(when, t_us, side="right")]
    highest = np.append(-1, np.maximum.accumulate(end[own]))
    there = highest[np.searchsorted(when[own], t_us, side="right")]
    found: I64 = np.where(there < 0, last, there)
    return found


def _moves_beyond(
    group: Group, changes: list[CommittedChange], moves: HighWatermarks
) -> Iterator[tuple[Witness, str]]:
    """Yield the moves of the HW beyond the log end of a member, with words for each."""
    ends = [change.t_us for change in changes[1:]]
    for now, until_us in zip(changes, [*ends, NEVER], strict=True):
        inside = (moves.t_us > now.t_us) & (moves.t_us < until_us) & (moves.epoch == now.epoch)
        rows = np.flatnonzero(inside)
        if not len(rows):
            continue
        for node in sorted({*now.members.isr, *now.members.elr} - {now.members.leader}):
            lacks = _reached(group, node, now.epoch, moves.t_us[rows]) < moves.hw[rows]
            for row in rows[lacks].tolist():
                witness = node_witness(moves, row, offset=int(moves.hw[row]))
                words = f"{witness.node} moved the high watermark to {moves.hw[row]}, beyond the"
                yield witness, f"{words} log of {node}, a member of ISR or ELR"


def _taken_in(
    group: Group, changes: list[CommittedChange], moves: HighWatermarks
) -> Iterator[tuple[Witness, str]]:
    """Yield the changes that take in a broker without all that is committed, with words."""
    since = -1
    for was, now in pairwise(changes):
        before, leader = {*was.members.isr, *was.members.elr}, now.members.leader
        if leader and leader not in before:
            since = now.epoch
        if was.number + 1 != now.number:
            continue
        earlier = (moves.t_us < now.t_us) & (moves.epoch <= now.epoch) & (moves.epoch >= since)
        hw, t_us = int(moves.hw[earlier].max(initial=0)), np.array([now.t_us])
        for node in sorted({*now.members.isr, *now.members.elr} - before - {leader}):
            if all(_reached(group, node, e, t_us)[0] < hw for e in (was.epoch, now.epoch)):
                witness = node_witness(now.facts, now.row, offset=hw)
                yield witness, f"{node} enters ISR or ELR without all below high watermark {hw}"
