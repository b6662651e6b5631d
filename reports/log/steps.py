"""A window of one partition's log through time: the steps by which its replicas came to hold what
they hold. The page's script replays them; without it, the grid shows the end of the run.

A step is small and flat, so that thousands of them stay a few dozen kilobytes: time, replica, what
happened, two offsets, an epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from markupsafe import Markup

from checker.formats.verdict import Verdict
from node.formats import trace
from node.formats.event_text import EXIT, Event, action
from reports.evidence.model import RunFolder
from reports.evidence.operations import LogWindow
from reports.log.grid import Grid, grids

MOST_STEPS: Final = 3_000
_WHAT: Final = {
    trace.APPEND: "append",
    trace.TRUNCATED: "cut",
    trace.ROLE: "role",
    trace.ACK: "ack",
    trace.HW: "hw",
}
"""The name of the step that shows a step of the story."""


class Step(msgspec.Struct, frozen=True, array_like=True):
    """One change of a replica, in English in `words`; `node` is its index in the replay.

    `what` says how to read `a` and `b`: append (offsets a..b, of `epoch`), cut (to offset a), hw
    (a), role (b: 1 leader, 0 not; in `epoch`, with high watermark a), up, down, ack (offsets
    a..b)."""

    at_s: float
    node: int
    what: str
    a: int
    b: int
    epoch: int
    words: str


class Replay(msgspec.Struct, frozen=True):
    """All steps of one window, oldest first; `broke` is the index of the step to jump to: the
    cause, or the step at the time of the finding; -1 if there is none."""

    partition: str
    low: int
    high: int
    nodes: tuple[str, ...]
    steps: tuple[Step, ...]
    broke: int


def log(folder: RunFolder) -> list[tuple[Grid, Markup | None]]:
    """Return every offset grid with its replay as JSON for the page's script, None without."""
    found = {} if folder.lean else replays(folder)
    made = []
    for grid in grids(folder):
        replay = found.get(f"{grid.partition}/{grid.window_low}")
        # In a script element nothing may end the element.
        text = msgspec.json.encode(replay).decode()
        text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
        made.append((grid, None if replay is None else Markup(text)))
    return made


def replays(folder: RunFolder) -> dict[str, Replay]:
    """Return the replays of a failed run by "partition/first offset" of their window. A window in
    which no replica appended a record has none."""
    if folder.verdict is not Verdict.INVALID:
        return {}
    return {
        f"{window.partition}/{window.low}": made
        for window in folder.windows
        if (made := _replay(folder, window)) is not None
    }


def _replay(folder: RunFolder, window: LogWindow) -> Replay | None:
    nodes = folder.info.partitions.get(window.partition, ())
    events = [e for e, _ in folder.traces.of_partition(window.partition) if e.node in nodes]
    steps = list(_steps(folder, window, nodes, events))
    if not steps or not any(step.what == "append" for step in steps):
        return None
    if len(steps) > MOST_STEPS:
        left_out = len(steps) - MOST_STEPS
        folder.notes.add(f"{window.partition}: the first {left_out:,} steps of its log's replay.")
        steps = steps[left_out:]
    return Replay(
        window.partition,
        window.low,
        window.high,
        nodes,
        tuple(steps),
        _broke(folder, window, steps),
    )


def _steps(
    folder: RunFolder, window: LogWindow, nodes: Sequence[str], events: Sequence[Event]
) -> Iterator[Step]:
    hw_of: dict[str, int] = {}
    for e in events:
        if (made := _step(window, e, hw_of)) is not None:
            what, a, b, words = made
            at_s = round(folder.seconds(e.t_us), 6)
            yield Step(at_s, nodes.index(e.node), what, a, b, e.leader_epoch, words)


def _step(window: LogWindow, e: Event, hw_of: dict[str, int]) -> tuple[str, int, int, str] | None:
    """Return the change that an event makes in the window: (what, a, b, sentence), None if none.

    `hw_of` keeps the high watermark of each replica: a move above the window changes nothing shown.
    """
    before = hw_of.get(e.node, -1)
    inside = e.base_offset < window.high and e.leo > window.low
    words = f"{e.node} {action(e)}"
    if e.event == trace.APPEND and inside:
        return "append", e.base_offset, e.leo, words
    if e.event == trace.ACK and inside:
        return "ack", e.base_offset, e.leo, words
    if e.event == trace.TRUNCATED and e.leo < min(e.from_leo, window.high):
        hw_of[e.node] = min(before, e.leo)
        return "cut", e.leo, e.hw, words
    if e.event == trace.HW:
        hw_of[e.node] = e.hw
        low, high = window.low, window.high
        if max(low, min(high, before)) == max(low, min(high, e.hw)) and before >= 0:
            return None
        return "hw", e.hw, e.leo, words
    if e.event == trace.ROLE:
        hw_of[e.node] = e.hw
        return "role", e.hw, int(e.role == "leader"), words
    if e.event == trace.STARTED:
        return "up", -1, -1, words
    return ("down", -1, -1, words) if e.event == EXIT else None


def _broke(folder: RunFolder, window: LogWindow, steps: Sequence[Step]) -> int:
    """Find the step that the story says is the cause, else the time of the finding."""
    story = folder.story
    when_us, wanted, whose = -1, "", -1
    if story is not None and story.partition == window.partition:
        first = folder.cause or next((s for s in story.steps if s.breaks), None)
        if first is not None:
            when_us, wanted = first.t_us, _WHAT.get(first.kind, "")
            nodes = folder.info.partitions.get(window.partition, ())
            whose = nodes.index(first.node) if first.node in nodes else -1
    if when_us < 0:
        # The finding that this window was chosen for; another of the partition may be earlier.
        here = [a for a in folder.anomalies if a.partition == window.partition and a.t_us >= 0]
        inside = [a for a in here if window.low <= a.offset < window.high]
        when_us = next((a.t_us for a in inside or here), -1)
    if when_us < 0:
        return -1
    at_s = folder.seconds(when_us) - 1e-6
    later = [i for i, step in enumerate(steps) if step.at_s >= at_s]
    of_that_kind = [
        i for i in later if wanted in ("", steps[i].what) and whose in (-1, steps[i].node)
    ]
    return next(iter(of_that_kind or later), len(steps) - 1)
