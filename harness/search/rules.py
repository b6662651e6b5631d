"""Link rules that several acts make use of: what is lost, late or doubled between whom."""

from __future__ import annotations

from typing import Final, Literal

from harness.search.scene import Scene, When
from nemesis.schedule import Link
from node.trace import METADATA_PARTITION

Action = Literal["drop", "delay", "duplicate", "hold"]

ACTIONS: Final[tuple[Action, ...]] = ("hold", "hold", "drop", "delay", "duplicate")
_THAT_KEEP: Final[tuple[Action, ...]] = ("hold", "duplicate", "delay")
_THAT_LOSE: Final[tuple[Action, ...]] = ("hold", "drop", "drop", "delay", "duplicate")


def late(scene: Scene, when: When) -> Link:
    """One or two answers to a follower come late, or a second time."""
    choose = scene.choose
    action = choose.pick(_THAT_KEEP)
    return Link(
        on="rest", to=scene.broker(), action=action, kinds=("fetched",),
        match={"partition": scene.partition, **({"diverging": True} if choose.chance(50) else {})},
        delay_ms=0 if action == "hold" else choose.pick((100, 200, 400)),
        limit=choose.pick((1, 2)), for_ms=scene.span_ms(130, 200, 300), **when,
    )  # fmt: skip


def deaf(scene: Scene, on: str, to: str, span: int, when: When) -> Link:
    """What leaders answer does not come, or comes much later."""
    return Link(
        on=on, to=to, action=scene.choose.pick(("drop", "hold")), kinds=("fetched", "epoch-ended"),
        match={"partition": scene.partition}, for_ms=span, **when,
    )  # fmt: skip


def slow_controller(scene: Scene, when: When) -> Link:
    """What the leader asks of the controller, or what it is told, is late or lost."""
    choose = scene.choose
    asks = choose.chance(60)
    action = choose.pick(_THAT_LOSE)
    return Link(
        on=scene.leader if asks else "voters", to="voters" if asks else scene.leader,
        action=action, kinds=("alter",) if asks else ("altered", "fetched"),
        delay_ms=choose.pick((100, 200)) if action in ("delay", "duplicate") else 0,
        for_ms=scene.span_ms(200, 130, 300, 400, 60), **when,
    )  # fmt: skip


def in_the_dark(scene: Scene, on: str, span: int, when: When, *, name: str = "") -> Link:
    """What the controller decides is late or unheard at a broker that is alive and well; where it
    is late, the broker lives through each change some time after the others."""
    action: Action = "hold" if name else scene.choose.pick(("drop", "delay", "hold"))
    return Link(
        name=name, on="voters", to=on, action=action, kinds=("fetched",),
        match={"partition": METADATA_PARTITION}, for_ms=span,
        delay_ms=scene.choose.pick((50, 100, 200)) if action == "delay" else 0, **when,
    )  # fmt: skip
