"""The judging of runs by the invariants of the KIP-966 model instead of our checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from checker.formats.verdict import Verdict
from checker.outside.judge import INVARIANTS
from checker.outside.run_folder import judge_folder
from node.formats.errors import UsageError
from node.formats.host_errors import reason
from node.formats.json_input import Unreadable


def judge_outside(folders: Sequence[Path], output: Callable[[str], None]) -> list[Verdict]:
    """Judge runs by the KIP-966 model; say what breaks. Raises UsageError if one is incomplete."""
    return [_judge(folder, output) for folder in folders]


def _judge(folder: Path, output: Callable[[str], None]) -> Verdict:
    try:
        found = judge_folder(folder)
    except (OSError, Unreadable, KeyError) as error:
        raise UsageError(f"{folder}: not a whole run: {reason(error)}") from None
    if found.why_not:
        output(f"{folder}: not judged: {found.why_not}")
        return Verdict.UNKNOWN
    if not found.judge.broken:
        events = found.judge.events
        output(f"{folder}: {len(INVARIANTS)} invariants hold over {events:,} trace events")
        return Verdict.VALID
    for each in found.judge.broken:
        where = f"{each.partition} at {each.t_us} us, turn of {each.node}"
        output(f"{folder}: {each.invariant} does not hold ({where}): {each.sentence}")
    return Verdict.INVALID
