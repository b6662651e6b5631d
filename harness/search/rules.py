"""Link rules that several acts make use of: what is lost, late or doubled between whom."""

from __future__ import annotations

from typing import Final, Literal

from harness.search.scenario_builder import Scene, When
from nemesis.formats.schedule import Link
from node.formats.trace import METADATA_PARTITION

Action = Literal["drop", "delay", "duplicate", "hold"]

ACTIONS: Final[tuple[Action, ...]] = ("hold", "hold", "drop", "delay", "duplicate")
DIVERGING: Final = {"diverging": {"given": True}}
"""What an answer says that tells a follower to cut its log."""
_THAT_KEEP: Final[tuple[Action, ...]] = ("hold", "duplicate", "delay")
_UNHEARD: Final[tuple[Action, ...]] = ("delay", "delay", "drop", "hold")
_THAT_LOSE: Final[tuple[Action, ...]] = ("hold", "drop", "drop", "delay", "duplicate")


def late(scene: Scene, to: str, when: When) -> Link:
    """One or two answers to a follower come late, or a second time."""
    choose = scene.choose
    action = choose.pick(_THAT_KEEP)
    return Link(
        on="rest",
        to=to,
        action=action,
        kinds=("fetch-response",),
        match={"partition": scene.partition, **(DIVERGING if choose.chance(50) else {})},
        delay_ms=0 if action == "hold" else choose.pick((100, 200, 400)),
        limit=choose.pick((1, 2)),
        for_ms=scene.span_ms(130, 250, 400, 600),
        **when,
    )


def deaf(scene: Scene, on: str, to: str, span: int, when: When) -> Link:
    """What leaders answer does not come, or comes much later."""
    return Link(
        on=on,
        to=to,
        action=scene.choose.pick(("drop", "hold")),
        kinds=("fetch-response", "offset-for-leader-epoch-response"),
        match={"partition": scene.partition},
        for_ms=span,
        **when,
    )


def slow_controller(scene: Scene, when: When, *, across: bool = False) -> Link:
    """What the leader asks of the controller, or what it is told, is late or lost; `across` the
    restart of a process it comes as a rule, after it."""
    choose = scene.choose
    asks = choose.chance(80 if across else 60)
    action: Action = "hold" if across and choose.chance(70) else choose.pick(_THAT_LOSE)
    percents = (300, 200, 400) if across else (200, 130, 300, 400, 60)
    return Link(
        on=scene.leader if asks else "voters",
        to="voters" if asks else scene.leader,
        action=action,
        kinds=("alter-partition",) if asks else ("alter-partition-response", "fetch-response"),
        delay_ms=choose.pick((100, 200)) if action in ("delay", "duplicate") else 0,
        for_ms=scene.span_ms(*percents),
        **when,
    )


def in_the_dark(scene: Scene, on: str, span: int, when: When, *, name: str = "") -> Link:
    """What the controller decides is late or unheard at a broker that is alive and well.

    Who hears nothing at all for a session is fenced; who hears late lives through each change some
    time after the others.
    """
    action: Action = "hold" if name else scene.choose.pick(_UNHEARD)
    session_ms = scene.cluster.timings.session_ms
    late_ms = scene.choose.pick((session_ms * 80 // 100, session_ms * 40 // 100, 50))
    return Link(
        name=name,
        on="voters",
        to=on,
        action=action,
        kinds=("fetch-response",),
        match={"partition": METADATA_PARTITION},
        for_ms=span,
        delay_ms=late_ms if action == "delay" else 0,
        **when,
    )
