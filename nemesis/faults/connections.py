"""Faults of connections instead of messages: stall, slow, reset and half-open."""

from __future__ import annotations

from typing import Any, Final

from nemesis.faults.dice import Dice
from nemesis.faults.kind import ONE_NODE, Drawing
from nemesis.faults.link_fault import BetweenNodes
from nemesis.faults.words import target
from nemesis.formats.cluster_spec import AtLeastOne

_TARGETS: Final = (*ONE_NODE, ("minority", 1))
_RATES: Final = (1_000, 5_000, 20_000, 100_000)
"""Bytes per second of drawn faults: from what carries heartbeats only to what carries a workload
with delay."""


class _Connections(BetweenNodes, frozen=True, kw_only=True):
    """A fault of the connections between the nodes `on` and `to`."""

    colour = "#b3632a"
    pattern = "dots"
    simulated = False


class Stall(_Connections, frozen=True, kw_only=True, tag="stall"):
    """Bytes from `on` to `to`, with `two_way` also those back, are held until the heal; connections
    stay up, and new ones can be made."""

    two_way: bool = True

    action = "hold"
    letter = "W"
    drawing = Drawing(targets=_TARGETS, aliases=(), delays_follower=(7,))

    def words(self) -> str:
        if self.two_way:
            return f"Hold what passes between {target(self.on)} and {target(self.to)}"
        return f"Hold what {target(self.on)} sends to {target(self.to)}"


class Slow(_Connections, frozen=True, kw_only=True, tag="slow"):
    """Bytes from `on` to `to`, if `two_way` also back, pass at `bytes_per_s` on each connection."""

    bytes_per_s: AtLeastOne
    two_way: bool = True

    action = "slow"
    letter = "Y"
    drawing = Drawing(targets=_TARGETS, aliases=())

    @classmethod
    def draw_fields(cls, dice: Dice, on: str) -> dict[str, Any]:
        return super().draw_fields(dice, on) | {"bytes_per_s": dice.rng.choice(_RATES)}

    def words(self) -> str:
        joint = "between {} and {}" if self.two_way else "from {} to {}"
        links = joint.format(target(self.on), target(self.to))
        return f"Slow connections {links} down to {self.bytes_per_s:,} bytes/s"


class Reset(_Connections, frozen=True, kw_only=True, tag="reset"):
    """Every connection between `on` and `to` is reset (RST to both ends), and so is every new one
    until the heal."""

    action = "reset"
    letter = "Z"
    sentence = "Reset connections between {on} and {to}"
    drawing = Drawing(targets=_TARGETS, aliases=())


class HalfOpen(_Connections, frozen=True, kw_only=True, tag="half-open"):
    """Each connection between `on` and `to` ends for `to`, while the end at `on` stays up until the
    heal and takes bytes until its buffers are full. New connections pass."""

    action = "half-open"
    letter = "O"
    sentence = "Let {to} lose its connections with {on} unnoticed"
    drawing = Drawing(targets=_TARGETS, aliases=())
