"""What the harness asks of the link hub, and what it answers (msgpack on the control socket)."""

from __future__ import annotations

import msgspec

from nemesis.links.rule import Counts, LinkRule


class _Command(msgspec.Struct, frozen=True, kw_only=True, tag_field="do"):
    """Base of all commands."""


class AddRule(_Command, frozen=True, kw_only=True, tag="add"):
    """Put `rule` in force; answered with its number."""

    rule: LinkRule


class RemoveRule(_Command, frozen=True, kw_only=True, tag="remove"):
    """End a rule; answered with what it did. Messages it held go on at once."""

    number: int


class SetRules(_Command, frozen=True, kw_only=True, tag="set"):
    """Replace all rules, with no moment between; answered with the new numbers."""

    rules: tuple[LinkRule, ...]


class SetNode(_Command, frozen=True, kw_only=True, tag="node"):
    """From now on `name` is reached at `address`: a new client, or one that moved."""

    name: str
    address: str


class GetStats(_Command, frozen=True, kw_only=True, tag="stats"):
    """What has passed so far?"""


class Stop(_Command, frozen=True, kw_only=True, tag="stop"):
    """End the hub; what it still keeps back is lost."""


Command = AddRule | RemoveRule | SetRules | SetNode | GetStats | Stop


class HubStats(msgspec.Struct, kw_only=True):
    """Messages since the start. Those dropped by a rule are in the counts of that rule only.

    `unreachable` counts by receiver what was dropped because it was not there or its queue was
    full; `garbage` what was no message to a known receiver; `overflow` what found no room among
    those kept back. `delayed` and `held` are kept back now. `rules` are those in force now.
    """

    forwarded: int = 0
    garbage: int = 0
    overflow: int = 0
    delayed: int = 0
    held: int = 0
    unreachable: dict[str, int] = {}
    rules: dict[int, Counts] = {}


class Answer(msgspec.Struct, kw_only=True):
    """The answer to any command; `error` says why it was refused."""

    error: str = ""
    numbers: tuple[int, ...] = ()
    counts: Counts | None = None
    stats: HubStats | None = None
