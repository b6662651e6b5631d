"""Near misses: without one piece of its evidence an anomaly is not concluded, and nothing is valid.

Its legal look-alike is the golden that is just short of it (`test_goldens.py`)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from checker.formats.anomalies import CATALOGUE, AnomalyKind, Knows, Needs
from checker.formats.verdict import RunResult, Verdict
from harness.formats.history import GROUP_STATES, Op
from tests.support.checker.goldens import GOLDENS
from tests.support.checker.missing_evidence import tampered
from tests.support.checker.story import Story, against
from tests.support.checker.weakened import WEAKENINGS

COUNTED: Final = {
    kind.name: kind
    for kind in CATALOGUE
    if kind.needs not in (Needs.EXERCISE, Needs.INFORMATION) and kind.name in GOLDENS
}
SHOWN_BY_ONE_READ: Final = {"unreadable-record", "inconsistent-offsets"}
"""A read that returned it shows it whatever else there is, so it has no near miss of this kind."""
LOOKED_FOR_WHERE_IT_IS_KNOWN: Final = {("poll-skip", "positions"), ("offset-hole", "positions")}
"""A poll whose position is not known is judged by its records alone."""
NOT_FOUND: Final = (Verdict.UNKNOWN, Verdict.NOT_EXAMINED)


def changed(change: Callable[[Op], Op]) -> Callable[[Story], None]:
    """Return a step that changes every line of a history."""

    def take(s: Story) -> None:
        s.history = [change(op) for op in s.history]

    return take


def without_ends(op: Op) -> Op:
    reads = tuple(replace(read, hw=-1, at_end=False) for read in op.reads)
    return replace(op, final=False, reads=reads)


def without_positions(op: Op) -> Op:
    """Let a process of its own make each poll."""
    reads = tuple(replace(read, start=-1) for read in op.reads)
    return replace(op, final=False, reads=reads, process=op.op if op.f == "poll" else op.process)


def overlap(s: Story) -> None:
    """Let one process begin everything before it ends anything."""
    end = max((op.t_us for op in s.history), default=0)
    s.history = [
        replace(op, process=1, t_us=op.t_us if op.type == "invoke" else end) for op in s.history
    ]


def send_again(s: Story) -> None:
    """Let another process send every value once more; no answer says where they are."""
    lines = [
        replace(op, sends=tuple(replace(sent, offset=-1) for sent in op.sends)) for op in s.history
    ]
    s.history = list(lines)
    for op in [op for op in lines if op.sends and op.type != "invoke"]:
        again = replace(op, op=s.ops, process=op.process + 100, reads=(), f="send")
        s.history += [replace(again, type="invoke"), replace(again, t_us=op.t_us + 1)]
        s.ops += 1


def set_clocks_back(s: Story) -> None:
    """Let the clock of each process go back at its last line."""
    last = {op.process: number for number, op in enumerate(s.history)}
    s.history = [
        replace(op, t_us=1) if number == last[op.process] else op
        for number, op in enumerate(s.history)
    ]
    s.as_told = True


def without_members(s: Story) -> None:
    """Take away the record of the members."""
    s.run.pop("membership", None)


def without_states(s: Story) -> None:
    """Take away what replicas keep of groups."""
    s.extra.pop(GROUP_STATES, None)


WITHOUT: Final[dict[Knows, Callable[[Story], object]]] = {
    Knows.TIMES: set_clocks_back,
    Knows.PROCESSES: overlap,
    Knows.POSITIONS: changed(without_positions),
    Knows.LOG_START: lambda s: s.run["promise"].update(compaction=True),
    Knows.END: changed(without_ends),
    Knows.VALUES: send_again,
}


def of_property(result: RunResult, kind: AnomalyKind) -> Verdict:
    return next(p.verdict for p in result.properties if p.property == kind.property)


def pieces(whole: Callable[[], Story]) -> Iterator[Story]:
    for _, without in tampered(whole()):
        yield without
    for weakening in WEAKENINGS:
        s = whole()
        if weakening.apply(s, random.Random(1)):
            yield s
    others = (lambda s: s.exits.clear(), without_members, without_states)
    for take in (*WITHOUT.values(), *others):
        s = whole()
        take(s)
        yield s


@pytest.mark.parametrize("name", sorted(COUNTED.keys() - SHOWN_BY_ONE_READ))
def test_some_piece_of_evidence_is_needed(tmp_path: Path, name: str) -> None:
    for number, s in enumerate(pieces(lambda: GOLDENS[name].story(bad=True))):
        result = s.check(tmp_path / str(number))
        found = (result.verdict, of_property(result, COUNTED[name]))
        if name not in against(result) and set(found) & set(NOT_FOUND):
            return
    pytest.fail(f"{name} is concluded from any part of its golden")


@pytest.mark.parametrize(
    ("name", "known"),
    [(kind.name, known) for kind in COUNTED.values() for known in kind.knows],
    ids=lambda value: value.value if isinstance(value, Knows) else value,
)
def test_what_a_history_must_say_is_needed(tmp_path: Path, name: str, known: Knows) -> None:
    s = GOLDENS[name].story(bad=True)
    WITHOUT[known](s)
    result = s.check(tmp_path)
    assert name not in against(result)
    if (name, known.value) not in LOOKED_FOR_WHERE_IT_IS_KNOWN:
        assert of_property(result, COUNTED[name]) in NOT_FOUND
