"""Parts of sentences about faults: targets, lists, ordinals, conditions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from harness.formats.history import GROUP_PREFIX
from nemesis.formats.fault import ROLES
from node.formats.trace import GIVEN

_ORDINALS: Final = {1: "first", 2: "second", 3: "third"}


def listing(items: Iterable[str], limit: int = 12) -> str:
    """Return a list as a phrase: `n1, n2 and n3`; beyond `limit` items it ends `and 17 more`."""
    names = list(items)
    if len(names) > limit:
        return ", ".join(names[: limit - 1]) + f" and {len(names) - limit + 1} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def target(text: str) -> str:
    """Return a target of a schedule as a phrase: `leader:log-0` is `the leader of log-0`."""
    role, _, partition = text.partition(":")
    if role in ROLES:
        return ROLES[role] + (f" of {place(partition)}" if partition else "")
    return listing(text.split(","))


def place(partition: str) -> str:
    """Return a partition, or the group that consumes it, as a phrase."""
    consumed = partition.removeprefix(GROUP_PREFIX)
    return partition if consumed == partition else f"the group of {consumed}"


def nth(number: int) -> str:
    """Return an ordinal: `first`, `second`, `third`, `4th`."""
    return _ORDINALS.get(number, f"{number}th")


def wanted(value: object) -> str:
    """Return the condition of a match on one field: `50`, `at least 50`, `not given`."""
    if isinstance(value, dict) and GIVEN in value:
        return "given" if value[GIVEN] else "not given"
    if isinstance(value, dict):
        return " and ".join(f"{str(bound).replace('_', ' ')} {n}" for bound, n in value.items())
    return str(value)


def conditions(match: Mapping[str, object]) -> str:
    """Return the conditions of a match: `role = leader, hw at least 50`."""
    return ", ".join(
        f"{name} {wanted(value)}" if isinstance(value, dict) else f"{name} = {value}"
        for name, value in match.items()
    )
