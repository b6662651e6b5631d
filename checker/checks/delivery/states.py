"""States of groups that replicas keep: `replay-differs` and `group-replicas-differ`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from checker.checks.delivery.operations import Case
from checker.checks.findings import plural
from harness.formats.history import GroupState


def replay_differs(states: Sequence[GroupState]) -> Iterator[Case]:
    """Find `replay-differs`: a state after the log below `applied` is not what that log makes: of
    each key the last value, without those whose last value is null."""
    log = sorted((s for s in states if s.record is not None), key=lambda s: s.offset)
    wrong = []
    for state in (s for s in states if s.live is not None):
        made: dict[str, Any] = {}
        for each in log:
            if each.record is not None and each.offset < state.applied:
                made[_text(each.record.key)] = each.record.value
        made = {key: value for key, value in made.items() if value is not None}
        told = {_text(key): value for key, value in state.live or ()}
        if made != told:
            keys = [key for key in sorted({*made, *told}) if made.get(key) != told.get(key)]
            wrong.append((state, keys[0]))
    if wrong:
        state, key = wrong[0]
        message = (
            f"{state.node} has another state than its log makes below offset {state.applied}, at "
            f"first in {key}"
        )
        yield Case("replay-differs", len(wrong), message)


def group_replicas_differ(states: Sequence[GroupState]) -> Iterator[Case]:
    """Find `group-replicas-differ`: two replicas that applied as much have different positions, or
    different records that are delivered and not settled."""
    first: dict[tuple[str, str, int], GroupState] = {}
    wrong = []
    for state in (s for s in states if s.position is not None):
        other = first.setdefault((state.group, state.partition, state.applied), state)
        if (other.position, sorted(other.pending)) != (state.position, sorted(state.pending)):
            wrong.append((other, state))
    if wrong:
        one, two = wrong[0]
        message = (
            f"{one.node} and {two.node} differ about group {one.group} in {one.partition}: "
            f"position {one.position} and {two.position}, {len(one.pending)} and "
            f"{plural(len(two.pending), 'record')} pending"
        )
        yield Case("group-replicas-differ", len(wrong), message)


def _text(key: Any) -> str:
    return msgspec.json.encode(key, order="sorted").decode()
